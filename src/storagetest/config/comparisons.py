"""``comparisons``: two variants, one workload, one metric, and the gate that relates them.

    comparisons:
      nfs-versions:
        workload: small-random-write[block_size=4KiB]
        metric: p99
        gate: nfs-v4.2 <= 1.1 x nfs-v3

The gate may require either of the two: ``nfs >= 1.7 x iscsi`` of a latency states that NFS is the slower one.
A side is a variant's id, or the name of a target that has one variant. Both are attached at the same time on
a client that both have, so they cannot be the same device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from storagetest.config.base import BlockOptions, Model
from storagetest.config.kinds import WorkloadKind
from storagetest.config.models import Variant
from storagetest.config.thresholds import read_key, read_parameter
from storagetest.config.validation import ValidationErrors, first_message, suggest
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

if TYPE_CHECKING:
    from storagetest.verdict import Threshold


class ComparisonEntry(Model):
    """Two variants measured in turns."""

    workload: str = Field(min_length=1)
    """The workload, or workload[parameter=value,…]."""

    metric: str = Field(min_length=1)
    """The workload's metric to compare."""

    gate: str = Field(min_length=1)
    """The required relation of the two, such as `iscsi >= 1.0 x nfs`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left`` and ``right`` are variants; ``threshold`` is left's, against right's id."""

    name: str
    workload: str
    parameters: Mapping[str, Any]
    left: Variant
    right: Variant
    threshold: Threshold
    place: str


def read_comparisons(
    section: YamlNode,
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
    problems: ValidationErrors,
) -> tuple[Comparison, ...]:
    """Return the comparisons of the section; adds errors to ``problems``."""

    def read(name: str, entry: ComparisonEntry, node: YamlNode) -> Comparison:
        return _read(name, entry, node, variants, workloads)

    return problems.named_entries(section, "comparisons", ComparisonEntry, read)


def _read(
    name: str,
    entry: ComparisonEntry,
    node: YamlNode,
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
) -> Comparison:
    from storagetest.verdict import Threshold, parse_comparison  # noqa: PLC0415  # keep config cheap to import

    places = {key: child.place for key, child in (node.mapping or {}).items()}
    workload, parameters = _workload(entry.workload, places["workload"], workloads)
    metric = workload.metrics.get(entry.metric)
    if metric is None:
        hint = suggest(entry.metric, workload.metrics)
        raise ConfigError(f"{workload.name} has no metric {entry.metric!r}{hint}", place=places["metric"])
    contest = parse_comparison(entry.gate, place=places["gate"])
    left, right = (_variant(side, variants, places["gate"]) for side in (contest.left, contest.right))
    _check_both(left, right, places["gate"])
    text = f"{metric.name}: {left.id} {contest.op} {contest.factor:g} x {right.id}"
    threshold = Threshold(metric, contest.op, contest.factor, text, places["gate"], right.id)
    return Comparison(name, workload.name, parameters, left, right, threshold, node.key_place)


def _workload(
    text: str, place: str, workloads: Mapping[str, WorkloadKind]
) -> tuple[WorkloadKind, Mapping[str, Any]]:
    try:
        workload, given = read_key(text, workloads)
        parameters = {name: read_parameter(workload, name, value) for name, value in given.items()}
        workload.Options.model_validate(parameters)
    except ConfigError as error:
        raise ConfigError(str(error), place=place) from None
    except ValidationError as error:
        raise ConfigError(f"{text}: {first_message(error)}", place=place) from None
    return workload, parameters


def _variant(name: str, variants: Sequence[Variant], place: str) -> Variant:
    for variant in variants:
        if variant.id == name:
            return variant
    of_target = [variant for variant in variants if variant.target == name]
    if not of_target:
        hint = suggest(name, [variant.id for variant in variants])
        raise ConfigError(f"unknown variant {name!r}{hint}", place=place)
    if len(of_target) > 1:
        ids = ", ".join(variant.id for variant in of_target)
        raise ConfigError(f"the target {name!r} has several variants; name one: {ids}", place=place)
    return of_target[0]


def _device(variant: Variant) -> str | None:
    return variant.options.erase if isinstance(variant.options, BlockOptions) else None


def _check_both(left: Variant, right: Variant, place: str) -> None:
    if left.id == right.id:
        raise ConfigError(f"{left.id} is compared with itself", place=place)
    if _device(left) is not None and _device(left) == _device(right):
        raise ConfigError(
            f"{left.id} and {right.id} are one device, which cannot be attached twice at the same time",
            place=place,
        )
    if not {client.name for client in left.clients} & {client.name for client in right.clients}:
        raise ConfigError(f"{left.id} and {right.id} have no client in common", place=place)
