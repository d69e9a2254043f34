"""From a matrix to variants: the cross product, less what is excluded, and an id for each.

An id is ``<target>-<part>-<part>…``, one part an option of the matrix. The options that the protocol's
``short`` names come first, in its order; the others follow by name. A part is the prefix (from ``short``, or
the option's name less its underscores) and the value: ``v4.2``, ``nconnect4``, ``rsize64KiB``. True prints as
the prefix alone, false and null as ``no-`` and the prefix. What is not ``[A-Za-z0-9._-]`` becomes ``-``.

So an id depends on the variant's options, not on the order in the file. Secrets and addresses may not
be in a matrix, because the ids would contain them; two variants with the same id are an error.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from storagetest import units
from storagetest.config.base import Mark, SecretText, TargetOptions
from storagetest.config.validation import ValidationErrors, mentions, nested_model, suggest
from storagetest.config.yaml_source import YamlNode

Combination = Mapping[str, YamlNode]
"""One value for each option of a matrix; the nodes' key place is the option's."""

_MOST_VARIANTS = 1000
_ADDRESS_LIKE = re.compile(r"[0-9]+(?:\.[0-9]+){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+", re.ASCII)


def expand(
    matrix: YamlNode,
    exclude: YamlNode | None,
    options: type[TargetOptions],
    fixed: Mapping[str, YamlNode],
    *,
    where: str,
    problems: ValidationErrors,
) -> list[Combination]:
    """Return the combinations of ``matrix`` in its order, less the excluded; problems are noted."""
    before = len(problems.found)
    axes = {
        name: _axis(name, values, options, fixed, where=f"{where}.matrix.{name}", problems=problems)
        for name, values in problems.mapping(matrix, f"{where}.matrix").items()
    }
    if matrix.mapping is not None and not axes:
        problems.add(matrix.place, f"{where}.matrix: the matrix is empty; remove it")
    total = math.prod(len(values) for values in axes.values())
    if total > _MOST_VARIANTS:
        problems.add(
            matrix.key_place, f"{where}.matrix: {total} combinations; at most {_MOST_VARIANTS} are allowed"
        )
    if len(problems.found) > before:
        return []
    combinations: list[Combination] = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    if exclude is not None:
        combinations = _exclude(combinations, axes, exclude, f"{where}.exclude", problems)
    return combinations


def refuses_matrix(options: type[TargetOptions], name: str) -> str:
    """Return why the option is not allowed in a matrix, or None if it is."""
    entry = options.model_fields[name]
    if mentions(entry.annotation, SecretText):
        return "a secret is not allowed in a matrix: the variants' ids would contain it"
    if nested_model(entry.annotation) is not None:
        return "only an option with a plain value is allowed in a matrix"
    if _marked(options, name, Mark.ADDRESS):
        return "an address is not allowed in a matrix: write a target for each"
    return ""


def _marked(options: type[TargetOptions], name: str, mark: Mark) -> bool:
    entry = options.model_fields[name]
    return mark in entry.metadata or mentions(entry.annotation, mark)


def _axis(
    name: str,
    values: YamlNode,
    options: type[TargetOptions],
    fixed: Mapping[str, YamlNode],
    *,
    where: str,
    problems: ValidationErrors,
) -> list[YamlNode]:
    """Return the values of one option, each with the option's place as its key place."""
    if name not in options.model_fields:
        problems.add(values.key_place, f"{where}: no such option{suggest(name, options.model_fields)}")
        return []
    if refusal := refuses_matrix(options, name):
        problems.add(values.key_place, f"{where}: {refusal}")
        return []
    if name in fixed:
        problems.add(
            values.key_place, f"{where}: the option is also fixed at {fixed[name].key_place}; remove one"
        )
    items = problems.items(values, where)
    if values.items is not None and not items:
        problems.add(values.place, f"{where}: the list is empty; remove the option, or give it a value")
    for index, item in enumerate(items):
        if any(_same(item, earlier) for earlier in items[:index]):
            problems.add(item.place, f"{where}: {item.raw or 'this value'} is listed twice")
    return [replace(item, key_place=values.key_place) for item in items]


def _same(one: YamlNode, other: YamlNode) -> bool:
    """Whether both are the same value of the same kind: the number 3 is not the text "3"."""
    if one.kind != other.kind:
        return False
    if one.mapping is not None or one.items is not None:
        return bool(one.plain() == other.plain())
    return bool(one.value == other.value)


def _exclude(
    combinations: list[Combination],
    axes: Mapping[str, Sequence[YamlNode]],
    exclude: YamlNode,
    where: str,
    problems: ValidationErrors,
) -> list[Combination]:
    """Drop every combination that holds all the values of an item of ``exclude``."""
    dropped: set[int] = set()
    for index, item in enumerate(problems.items(exclude, where)):
        wanted = problems.mapping(item, f"{where}.{index}")
        for name in wanted.keys() - axes.keys():
            problems.add(
                wanted[name].key_place,
                f"{where}.{index}.{name}: the matrix has no such option{suggest(name, axes)}",
            )
        if item.mapping is None or wanted.keys() - axes.keys():
            continue
        hit = {
            number
            for number, combination in enumerate(combinations)
            if all(_same(combination[name], value) for name, value in wanted.items())
        }
        if not hit or not wanted:
            message = (
                "this drops nothing: the matrix holds no such combination"
                if wanted
                else "an empty mapping drops all"
            )
            problems.add(item.place, f"{where}.{index}: {message}")
            continue
        dropped |= hit
    kept = [combination for number, combination in enumerate(combinations) if number not in dropped]
    if combinations and not kept:
        problems.add(exclude.key_place, f"{where}: nothing is left of the matrix")
    return kept


def parts(options: TargetOptions, names: list[str]) -> dict[str, str]:
    """Return option → its part of the id, in the id's order, for the options in ``names``."""
    return {name: _part(options, name) for name in sorted(names, key=lambda name: _rank(options, name))}


def _rank(options: TargetOptions, name: str) -> tuple[int, str]:
    leading = list(options.short)
    return (leading.index(name) if name in leading else len(leading), name)


def _part(options: TargetOptions, name: str) -> str:
    prefix = options.short.get(name, name.replace("_", ""))
    value = getattr(options, name)
    if value is True:
        return prefix or name.replace("_", "")
    if value is False or value is None:
        return f"no-{prefix or name.replace('_', '')}"
    text = _text(value, type(options), name)
    return prefix + re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")


def _text(value: object, options: type[TargetOptions], name: str) -> str:
    if isinstance(value, int) and _marked(options, name, Mark.SIZE):
        return units.format_size(value)
    if isinstance(value, int | float) and value < 0:  # its sign would not survive, and -1 be taken for 1
        return f"minus{-value:g}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "+".join(map(str, value))
    return str(value)


def shows_address(text: str) -> bool:
    """Whether an IP address can be read in ``text``."""
    for candidate in _ADDRESS_LIKE.findall(text):
        try:
            ipaddress.ip_address(candidate)
        except ValueError:
            continue
        return True
    return False
