"""Thresholds: whose they are, which of them hold for a case, and which goes before which.

Under ``thresholds`` (the file's, or a target's) a key names a workload, or a workload with some of its
parameters: ``sequential[direction=read,block_size=1MiB]``. The gates below such a key are for the
cases that have all of those parameters. Values are compared after the workload has read them: 1MiB and
1048576 are the same. A list is written ``multi-user[levels=[1,4,16]]``.

For one case, of the gates of the same sort (absolute, or against the baseline) on the same metric, one holds:
a target's goes before the file's; then the one under the key with more parameters; then the one further down
in the file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError, create_model

from storagetest.config.base import FROM_FILE, Model, WorkloadOptions
from storagetest.config.kinds import WorkloadKind
from storagetest.config.models import ThresholdRule, ThresholdText
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

if TYPE_CHECKING:
    from storagetest.verdict.base import Threshold

_KEY = re.compile(r"([^\[\]]+)(?:\[((?:[^\[\]]|\[[^\[\]]*\])*)\])?")
_COMMA = re.compile(r",(?![^\[\]]*\])")
"""A comma between parameters, not one within a list: ``levels=[1,4],block_size=4KiB``."""


def read_rules(
    node: YamlNode, where: str, problems: ValidationErrors, workloads: Mapping[str, WorkloadKind]
) -> tuple[ThresholdRule, ...]:
    """Return the rules of a ``thresholds`` mapping; add their errors to ``problems``."""
    rules = []
    for key, gates in problems.mapping(node, where).items():
        try:
            workload, given = read_key(key, workloads)
            parameters = {name: read_parameter(workload, name, text) for name, text in given.items()}
        except ConfigError as error:
            problems.add_error(error, gates.key_place)
            continue
        rules.append(
            ThresholdRule(workload.name, parameters, _read_gates(gates, workload, f"{where}.{key}", problems))
        )
    return tuple(rules)


def read_key(key: str, workloads: Mapping[str, WorkloadKind]) -> tuple[WorkloadKind, dict[str, str]]:
    """Split ``sequential[direction=read]`` into the workload and its parameters' texts."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise ConfigError(f"{key!r} is not a workload, or workload[parameter=value,…]")
    workload = find_workload(match[1].strip(), workloads)
    given: dict[str, str] = {}
    for pair in _COMMA.split(match[2]) if match[2] is not None else ():
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value) or name in given:
            raise ConfigError(f"{key!r}: expected [parameter=value,…], each parameter once")
        given[name] = value
    return workload, given


def find_workload(name: str, workloads: Mapping[str, WorkloadKind]) -> WorkloadKind:
    """Return the workload called ``name``. Raises :class:`ConfigError` with the nearest name."""
    if name not in workloads:
        raise ConfigError(f"unknown workload {name!r}{suggest(name, workloads)}")
    return workloads[name]


def read_parameter(workload: WorkloadKind, name: str, text: str) -> object:
    """Return a parameter's value as the workload reads it, be it a number, a boolean or text."""
    if name not in workload.Options.model_fields:
        raise ConfigError(
            f"{workload.name} has no parameter {name!r}{suggest(name, workload.Options.model_fields)}"
        )
    message = f"{name}={text} is not a value that {workload.name} takes"
    for candidate in (_as_yaml(text), text):
        try:
            return _as_parameter(workload.Options, name, candidate)
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            if details["type"] == "value_error":  # a sentence of this project
                message = f"{name}={text}: {details['ctx']['error']}"
    raise ConfigError(message)


def _as_yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


def _as_parameter(options: type[WorkloadOptions], name: str, value: object) -> object:
    return dict(_parameter_model(options, name).model_validate({"value": value}, context=FROM_FILE))["value"]


@cache
def _parameter_model(options: type[WorkloadOptions], name: str) -> type[Model]:
    """Return a model of that one field, so that a parameter can be read without the others."""
    entry = options.model_fields[name]
    fields: dict[str, Any] = {"value": (entry.annotation, entry)}
    return create_model(f"{options.__name__}_{name}", __base__=Model, **fields)


def _read_gates(
    node: YamlNode, workload: WorkloadKind, where: str, problems: ValidationErrors
) -> tuple[ThresholdText, ...]:
    gates: list[ThresholdText] = []
    seen: dict[tuple[str, ...], str] = {}
    items = problems.items(node, where)
    if node.items == ():
        problems.add(node.place, f"{where}: an empty list gates nothing; remove the key or add a threshold")
    for item in items:
        if not isinstance(item.value, str):
            problems.add(item.place, f'{where}: a threshold is text such as "iops >= 20000", not {item.kind}')
            continue
        gate = ThresholdText(str(item.value), item.place)
        try:
            threshold = _threshold(gate, workload)
        except ConfigError as error:
            problems.add_error(error, item.place)
            continue
        what = (threshold.metric.name, threshold.op, threshold.against)
        if what in seen:
            shown = " ".join(what).strip()
            problems.add(item.place, f"{where}: {shown} is gated twice, first at {seen[what]}")
        seen.setdefault(what, item.place)
        gates.append(gate)
    return tuple(gates)


def _threshold(gate: ThresholdText, workload: WorkloadKind) -> Threshold:
    from storagetest.verdict import parse_threshold  # noqa: PLC0415  # keep the import of config cheap

    return parse_threshold(gate.text, workload.metrics, place=gate.place)


def choose(
    levels: Iterable[Iterable[ThresholdRule]], workload: WorkloadKind, parameters: Mapping[str, Any]
) -> tuple[Threshold, ...]:
    """Return the thresholds of one case: ``levels`` are the file's rules, then the target's.

    ``parameters`` are the case's, read by the workload or as text.
    """
    case = {name: _normal(workload, name, value) for name, value in parameters.items()}
    chosen: dict[tuple[str, ...], Threshold] = {}
    for level in levels:
        matching = [
            rule for rule in level if rule.workload == workload.name and rule.where.items() <= case.items()
        ]
        for rule in sorted(matching, key=lambda rule: len(rule.where)):  # stable: the file's order within
            for gate in rule.gates:
                threshold = _threshold(gate, workload)
                chosen[threshold.metric.name, threshold.op, threshold.against] = threshold
    return tuple(chosen.values())


def most(levels: Iterable[Iterable[ThresholdRule]], workload: WorkloadKind) -> int:
    """Return how many gates a case of ``workload`` can have at most, whatever its parameters."""
    rules = [rule for level in levels for rule in level if rule.workload == workload.name]
    thresholds = [_threshold(gate, workload) for rule in rules for gate in rule.gates]
    return len({(each.metric.name, each.op, each.against) for each in thresholds})


def _normal(workload: WorkloadKind, name: str, value: object) -> object:
    """Return a case's parameter as the workload reads it; an unknown one is returned unchanged."""
    if name in workload.Options.model_fields:
        with contextlib.suppress(ValidationError):
            return _as_parameter(workload.Options, name, value)
    return value
