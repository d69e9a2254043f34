"""The JSON Schema of targets.yaml, made from the models and the registries: for editors and for the docs.

It accepts everything that :func:`storagetest.config.load` accepts. Load refuses more: what takes two places
of the file to see (an unknown client, options that do not go together), and the syntax of thresholds.

``storagetest schema > docs/reference/targets.schema.json`` writes the published one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from storagetest.config.base import Model
from storagetest.config.comparisons import ComparisonEntry
from storagetest.config.custom_workloads import CustomWorkloadEntry
from storagetest.config.kinds import ProtocolKind, WorkloadKind, protocol_kinds, workload_kinds
from storagetest.config.known_issues import KnownIssueEntry
from storagetest.config.matrix import refuses_matrix
from storagetest.config.models import NAME, LocalEntry, ProfileEntry, SlurmEntry, SshEntry, TargetEntry
from storagetest.config.roles import ROLES
from storagetest.config.searches import SearchEntry

Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the schema (draft 2020-12) for the protocols and workloads that are registered here."""
    return make_schema(protocol_kinds(), workload_kinds())


def make_schema(protocols: Mapping[str, ProtocolKind], workloads: Mapping[str, WorkloadKind]) -> Schema:
    """Return the schema for the given protocols and workloads, by name."""
    definitions: Schema = {}
    over_ssh = {**_model(SshEntry, definitions), "required": ["transport"]}  # which a jump may leave out
    machine = {"oneOf": [_model(LocalEntry, definitions), over_ssh, _model(SlurmEntry, definitions)]}
    targets = [_target(kind, definitions) for kind in protocols.values()]
    definitions |= {"machine": machine, "thresholds": _thresholds(workloads)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "targets.yaml of storagetest",
        "type": "object",
        "required": ["version", "targets"],
        "properties": {
            "version": {"const": 1, "description": "The version of this format."},
            "clients": _named(
                {"$ref": "#/$defs/machine"},
                "The hosts that attach targets and generate load. client[1-74] stands for many.",
                pattern=_HOST_NAMES,
            ),
            "servers": _named(
                {"$ref": "#/$defs/machine"},
                "The servers, for counters and diagnostics.",
                pattern=_HOST_NAMES,
            ),
            "targets": _named({"oneOf": targets}, "The storage endpoints under test."),
            "profiles": _named(
                _model(ProfileEntry, definitions),
                "How much load: changes to the built-in profiles, and profiles of your own.",
                fewest=0,
            ),
            "workloads": _named(
                _model(CustomWorkloadEntry, definitions),
                "Custom workloads, with gates like any other: a job file of fio, a function, or a preset.",
                fewest=0,
            ),
            "thresholds": {"$ref": "#/$defs/thresholds"},
            "comparisons": _named(
                _model(ComparisonEntry, definitions), "Two variants, measured in turns.", fewest=0
            ),
            "searches": _named(
                _model(SearchEntry, definitions),
                "Searches for the values with the most bandwidth.",
                fewest=0,
            ),
            "roles": _roles(),
            "known_issues": {
                "description": "Known issues of targets: a list, or the path of a file with one.",
                "oneOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": _model(KnownIssueEntry, definitions)},
                ],
            },
        },
        "patternProperties": {"^x-": {"description": "Ignored: a place for YAML anchors."}},
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


_HOST_NAMES = NAME.removesuffix("$") + r"(\[[0-9]+-[0-9]+\][A-Za-z0-9_-]*)?$"
"""A name, or one with a range of numbers (:mod:`storagetest.config.ranges`)."""


def _named(item: Schema, description: str, *, fewest: int = 1, pattern: str = NAME) -> Schema:
    return {
        "type": "object",
        "description": description,
        "minProperties": fewest,
        "propertyNames": {"pattern": pattern},
        "additionalProperties": item,
    }


def _roles() -> Schema:
    return {
        "type": "object",
        "description": "The targets of the published experiments (suites/papers), by role.",
        "properties": {
            name: {"type": "string", "minLength": 1, "description": f"{text[0].upper()}{text[1:]}."}
            for name, text in ROLES.items()
        },
        "additionalProperties": False,
    }


def _model(model: type[Model], definitions: Schema, *, prefix: str = "") -> Schema:
    """File the schema of ``model`` and of those within it under ``definitions``; return a reference to it."""
    name = prefix or model.__name__
    made = model.model_json_schema(ref_template=f"#/$defs/{prefix and prefix + '.'}{{model}}")
    for inner, schema in made.pop("$defs", {}).items():
        definitions[f"{prefix and prefix + '.'}{inner}"] = schema
    if "$ref" in made:  # a model that refers to itself is wholly in $defs
        name = made["$ref"].rpartition("/")[2]
        made = definitions[name]
    definitions[name] = made
    return {"$ref": f"#/$defs/{name}"}


def _target(kind: ProtocolKind, definitions: Schema) -> Schema:
    """File the schema of one protocol's targets: the common keys, its options, and these in a matrix."""
    options = definitions[_model(kind.Options, definitions, prefix=kind.name)["$ref"].rpartition("/")[2]]
    common = definitions.pop(_model(TargetEntry, definitions)["$ref"].rpartition("/")[2])
    properties: Schema = options.get("properties", {})
    free = {name: schema for name, schema in properties.items() if not refuses_matrix(kind.Options, name)}
    matrix = {
        "type": "object",
        "description": "Options with several values; every combination is a variant.",
        "minProperties": 1,
        "properties": {
            name: {"type": "array", "minItems": 1, "items": _without_default(schema)}
            for name, schema in free.items()
        },
        "additionalProperties": False,
    }
    definitions[kind.name] = {
        "type": "object",
        "title": kind.name,
        "description": (kind.__doc__ or "").strip().partition("\n")[0],
        "required": ["protocol"],
        "properties": {
            **common["properties"],
            "protocol": {"const": kind.name, "description": "How the target is reached."},
            "matrix": matrix,
            "exclude": {
                "type": "array",
                "description": "Combinations of the matrix to leave out.",
                "items": {
                    "type": "object",
                    "minProperties": 1,
                    "properties": {name: _without_default(schema) for name, schema in free.items()},
                    "additionalProperties": False,
                },
            },
            "thresholds": {"$ref": "#/$defs/thresholds"},
            **properties,
        },
        "additionalProperties": False,
        "allOf": [_somewhere(name, name in free) for name in options.get("required", [])],
    }
    if not definitions[kind.name]["allOf"]:
        del definitions[kind.name]["allOf"]
    return {"$ref": f"#/$defs/{kind.name}"}


def _without_default(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}


def _somewhere(name: str, in_matrix: bool) -> Schema:
    """Require an option: fixed, or in the matrix where it may stand there."""
    if not in_matrix:
        return {"required": [name]}
    return {
        "anyOf": [
            {"required": [name]},
            {"required": ["matrix"], "properties": {"matrix": {"required": [name]}}},
        ]
    }


def _thresholds(workloads: Mapping[str, WorkloadKind]) -> Schema:
    own = NAME.removeprefix("^").removesuffix("$")
    return {
        "type": "object",
        "description": "Gates by workload, or by workload[parameter=value,…].",
        # Any name may be that of a custom workload.
        "propertyNames": {"pattern": rf"^ *{own} *(\[[^\[\]]+\])?$", "examples": sorted(workloads)},
        "additionalProperties": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": "[<>]=",
                "examples": ["iops >= 20000", "p99 <= 5ms", "bandwidth >= 50MiB/s"],
            },
        },
    }


def schema_text() -> str:
    """Return the schema as it is published: indented, with a newline at its end."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
