"""``searches``: search for the combination of values with the most bandwidth.

    searches:
      best-read:
        workload: mixed-access[direction=read]
        values: {block_size: [64KiB, 1MiB, 4MiB], jobs: [1, 2, 4], nconnect: [1, 4], clients: [1, 2]}
        strategy: stepwise
        start: {block_size: 1MiB, nconnect: 4}

A name under ``values`` is a parameter of the workload, an option of the target's protocol, or ``clients``.
Values that are not given are those of ``find_maximum``: the protocol's own, and powers of two of clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, ValidationError

from storagetest.config.base import Items, Model
from storagetest.config.kinds import WorkloadKind
from storagetest.config.models import Variant
from storagetest.config.thresholds import read_key, read_parameter
from storagetest.config.validation import ValidationErrors, first_message, suggest
from storagetest.config.variant_filter import matches_name
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

CLIENTS = "clients"
"""The name of the number of clients among the parameters of a search."""


class SearchEntry(Model):
    """A search for the maximum bandwidth."""

    workload: str = Field(min_length=1)
    """The workload, or workload[parameter=value,…] with its fixed parameters."""

    values: Mapping[str, Items[Any]] = Field(min_length=1)
    """The values to search, in an order in which neighbours are alike: small to large, mostly."""

    strategy: Literal["surrogate", "one-at-a-time", "stepwise"] = "surrogate"
    """`surrogate`: a model of all measurements chooses the next point. `one-at-a-time`: all values of one
    parameter, then of the next. `stepwise`: from `start`, each parameter as long as it gets better."""

    start: Mapping[str, Any] = Field(default_factory=dict)
    """Where the search begins: one of the `values` for some parameters. For others: the first of their
    values (`stepwise`), or the middle one."""

    targets: Items[str] = ("*",)
    """Variants or targets to search on, as names or globs."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search as the fixture ``search`` provides it; ``parameters`` are fixed, ``values`` are searched."""

    name: str
    workload: str
    parameters: Mapping[str, Any]
    values: Mapping[str, tuple[Any, ...]]
    strategy: str
    start: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ("*",)
    protocol_options: frozenset[str] = frozenset()

    def applies_to(self, variant: Variant) -> bool:
        """Whether ``targets`` names the variant, and its protocol has all ``protocol_options``."""
        has = type(variant.options).model_fields
        return matches_name(variant, self.targets) and self.protocol_options <= has.keys()


def read_searches(
    section: YamlNode,
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
    problems: ValidationErrors,
) -> tuple[Search, ...]:
    """Return the searches of the section; adds errors to ``problems``."""

    def read(name: str, entry: SearchEntry, node: YamlNode) -> Search:
        return _read(name, entry, node, variants, workloads)

    return problems.named_entries(section, "searches", SearchEntry, read)


def _read(
    name: str,
    entry: SearchEntry,
    node: YamlNode,
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
) -> Search:
    places = {key: child.place for key, child in (node.mapping or {}).items()}
    try:
        workload, given = read_key(entry.workload, workloads)
        fixed = {key: read_parameter(workload, key, text) for key, text in given.items()}
    except ConfigError as error:
        raise ConfigError(str(error), place=places["workload"]) from None
    searched = [variant for variant in variants if matches_name(variant, entry.targets)]
    if not searched:
        raise ConfigError(f"targets: none is called {', '.join(entry.targets)}", place=node.place)
    try:
        values = _values(entry.values, fixed, workload, searched)
    except ConfigError as error:
        raise ConfigError(f"values: {error}", place=places["values"]) from None
    start = {key: _value(key, value, workload, searched) for key, value in entry.start.items()}
    for key, value in start.items():
        if value not in values.get(key, ()):
            raise ConfigError(f"start: {key} has no such value among its `values`", place=places["start"])
    of_protocol = frozenset(values) - set(workload.Options.model_fields) - {CLIENTS}
    return Search(
        name, workload.name, fixed, values, entry.strategy, start, tuple(entry.targets), of_protocol
    )


def _values(
    given: Mapping[str, Sequence[object]],
    fixed: Mapping[str, object],
    workload: WorkloadKind,
    variants: Sequence[Variant],
) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for name, listed in given.items():
        if name in fixed:
            raise ConfigError(f"{name} is both fixed and searched")
        found[name] = tuple(_value(name, value, workload, variants) for value in listed)
        if not listed or len(set(map(str, found[name]))) != len(listed):
            raise ConfigError(f"{name}: one value or more, each once")
    return found


def _value(name: str, value: object, workload: WorkloadKind, variants: Sequence[Variant]) -> object:
    """Return a value as the workload or a protocol reads it. Raises :class:`ConfigError`."""
    if name == CLIENTS:
        if type(value) is not int or value < 1:
            raise ConfigError(f"clients: {value!r} is not a number of clients")
        return value
    if name in workload.Options.model_fields:
        return read_parameter(workload, name, str(value))
    options = [type(each.options) for each in variants if name in type(each.options).model_fields]
    if not options:
        known = [*workload.Options.model_fields, CLIENTS]
        raise ConfigError(
            f"{name!r} is neither a parameter of {workload.name} nor an option of a target"
            f"{suggest(name, known)}"
        )
    variant = next(each for each in variants if isinstance(each.options, options[0]))
    try:
        dumped = {**variant.options.model_dump(exclude_unset=True), name: value}
        return getattr(options[0].model_validate(dumped), name)
    except ValidationError as error:
        raise ConfigError(first_message(error)) from None
