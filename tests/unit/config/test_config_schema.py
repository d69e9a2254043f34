# ruff: noqa: E501  # YAML as people write it
"""config: the published JSON Schema takes what load takes, and knows no other keys."""

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from storagetest.config.schema import json_schema

HEAD = "version: 1\ntargets:\n  t: {protocol: shelf, address: a.example.net, path: /a"

GOOD = [
    HEAD + "}",
    HEAD
    + ", version: '4.1', nconnect: ~, rsize: 64KiB, timeout: 500ms, hard: no, depth: auto, flags: [a, b]}",
    HEAD
    + ", rsize: 4096, timeout: 0, depth: 4, share: 1, secret: '${env:A}', login: {username: u, password: p}}",
    HEAD + ", matrix: {version: ['3', '4.0'], rsize: [1KiB, 2048]}, exclude: [{version: '3', rsize: 2048}]}",
    HEAD + ", client: local, optional: yes, deadline: 2min, thresholds: {stream: [p99 <= 5ms]}}",
    "version: 1\ntargets: {t: {protocol: drawer, matrix: {number: [1, 2]}, filesystem: ext4, erase: naa.1}}",
    HEAD + "}\nclients: {c: {transport: ssh, address: c, jump: {address: d}}, d: {transport: local}}",
    HEAD
    + "}\nservers: {c: {transport: ssh, address: c, port: 22, password: x, connect_timeout: 3s, key: ~/k}}",
    HEAD + "}\nprofiles: {smoke: {size: 1MiB, ramp: 0, runtime: 1s}, mine: {repeats: 3, max_repeats: 4}}",
    HEAD
    + "}\nthresholds: {'stream[direction=read,block_size=4KiB]': [iops >= 20k], small-drip: ['client_cpu <= 50%']}",
    HEAD + "}\nx-anything: {a: [1, {b: c}]}",
]

BAD = [
    "version: 2\ntargets: {t: {protocol: drawer, number: 1}}",
    "targets: {t: {protocol: drawer, number: 1}}",
    "version: 1",
    "version: 1\ntargets: {}",
    "version: 1\ntargets: {t: {number: 1}}",
    "version: 1\ntargets: {t: {protocol: drwer, number: 1}}",
    "version: 1\ntargets: {t: {protocol: drawer}}",
    "version: 1\ntargets: {t: {protocol: drawer, number: '1'}}",
    "version: 1\ntargets: {a.b: {protocol: drawer, number: 1}}",
    "version: 1\ntarget: {}\ntargets: {t: {protocol: drawer, number: 1}}",
    HEAD + ", number: 1}",
    HEAD + ", version: 4.1}",
    HEAD + ", version: '5'}",
    HEAD + ", rsize: 64k}",
    HEAD + ", timeout: 5m}",
    HEAD + ", timeout: 5}",
    HEAD + ", port: 0}",
    HEAD + ", secret: 5}",
    HEAD + ", login: {username: u, pasword: p}}",
    HEAD + ", matrix: {}}",
    HEAD + ", matrix: {version: []}}",
    HEAD + ", matrix: {version: [3]}}",
    HEAD + ", matrix: {vresion: ['3']}}",
    HEAD + ", matrix: {address: [a]}}",
    HEAD + ", matrix: {secret: [a]}}",
    HEAD + ", matrix: {login: [{username: u, password: p}]}}",
    HEAD + ", clients: []}",
    HEAD + ", thresholds: {stream: 'iops >= 5'}}",
    HEAD + ", thresholds: {'st rem': ['iops >= 5']}}",
    HEAD + "}\nclients: {}",
    HEAD + "}\nclients: {c: {address: c}}",
    HEAD + "}\nclients: {c: {transport: ssh}}",
    HEAD + "}\nclients: {c: {transport: local, address: c}}",
    HEAD + "}\nclients: {c: {transport: ssh, address: c, host_key_chek: no}}",
    HEAD + "}\nprofiles: {smoke: {runtme: 1s}}",
    HEAD + "}\nprofiles: {smoke: {repeats: 0}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_load_takes_the_schema_takes(load_text, validator, text):
    load_text(text)
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize("text", BAD)
def test_what_the_schema_refuses_load_refuses(error_of, validator, text):
    assert not validator.is_valid(yaml.safe_load(text))
    assert error_of(text)


def test_each_protocol_of_a_choice_has_a_description(validator):
    shelf: dict[str, Any] = validator.schema["$defs"]["shelf"]
    assert shelf["description"] == "A file system on a shelf."
    assert shelf["properties"]["protocol"]["const"] == "shelf"
    assert shelf["properties"]["path"]["description"] == "What to mount."
    assert "secret" not in shelf["properties"]["matrix"]["properties"]


def test_every_reference_of_the_real_schema_leads_somewhere():
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    missing = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if (
                isinstance(part.get("$ref"), str)
                and part["$ref"].removeprefix("#/$defs/") not in schema["$defs"]
            ):
                missing.add(part["$ref"])
            part = list(part.values())
        if isinstance(part, list):
            for item in part:
                walk(item)

    walk(schema)
    assert missing == set()
