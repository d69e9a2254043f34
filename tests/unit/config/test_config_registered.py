# ruff: noqa: E501  # YAML as people write it
"""config: every registered protocol's example loads, from a file, and the schema takes it too."""

import dataclasses

import pytest
import yaml
from jsonschema import Draft202012Validator

from storagetest.config import load
from storagetest.config.schema import json_schema
from storagetest.config.targets import TARGET_KEYS
from storagetest.protocols.base import protocols

LAB = """\
version: 1
clients:
  client1: {transport: ssh, address: client1, ssh_config: ~/.local/state/storagetest/lab/default/ssh_config}
  client2: {transport: ssh, address: client2, ssh_config: ~/.local/state/storagetest/lab/default/ssh_config}
servers:
  appliance: {transport: ssh, address: appliance, ssh_config: ~/.local/state/storagetest/lab/default/ssh_config}
targets:
  nfs: {protocol: nfs, server: appliance, address: 10.77.0.1, export: /a, clients: [client1, client2],
        matrix: {version: ["3", "4.0", "4.1", "4.2"], nconnect: [1, 2]}}
  smb: {protocol: smb, address: 10.77.0.1, share: a, username: storagetest, password: "${file:~/smb-password}",
        matrix: {dialect: ["2.1", "3.0", "3.1.1"]}}
  iscsi: {protocol: iscsi, address: 10.77.0.1, port: 3260, iqn: "iqn.2026-11.org.storagetest:lab-plain", lun: 0,
          erase: "naa.6001405000000000", matrix: {header_digest: [none, crc32c]}}
  nvme-tcp: {protocol: nvme-tcp, address: 10.77.0.1, port: 4420, nqn: "nqn.2026-11.org.storagetest:lab1",
             namespace: 1, erase: "uuid.00000000", matrix: {header_digest: [false, true]}}
  lustre: {protocol: lustre, mgs: 10.77.0.1@tcp, fsname: lab, optional: true, matrix: {stripe_count: [1, 2]}}
"""


@pytest.fixture(scope="module")
def validator():
    return Draft202012Validator(json_schema())


@pytest.mark.parametrize("name", sorted(protocols.all()))
def test_example_loads(tmp_path, validator, name):
    document = {"version": 1, "targets": {"example": {"protocol": name, **protocols.get(name).example}}}
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(document))
    (variant,) = load(path).variants
    assert variant.id == "example"
    assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize("name", sorted(protocols.all()))
def test_no_option_hides_a_key_of_every_target(name):
    assert protocols.get(name).Options.model_fields.keys().isdisjoint(TARGET_KEYS)


def test_the_lab_s_file_loads(tmp_path, validator):
    path = tmp_path / "targets.yaml"
    path.write_text(LAB)
    config = load(path)
    ids = [variant.id for variant in config.variants]
    assert len(ids) == 8 + 3 + 2 + 2 + 2
    assert "nfs-v4.2-nconnect2" in ids
    assert not any("10.77" in text for text in ids)
    assert {variant.protocol for variant in config.variants if variant.optional} == {"lustre"}
    assert [error.message for error in validator.iter_errors(yaml.safe_load(LAB))] == []
    assert "smb-password" not in repr(dataclasses.asdict(config.variants[8])["options"])
