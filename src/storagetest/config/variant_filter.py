"""Filters on variants: globs of names, and ``where``.

``where`` is a mapping from names to a value or a list of values. The names are ``protocol``, ``target`` and
the options of all protocols. A variant matches if it has one of the values of each name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from storagetest.config.kinds import protocol_kinds
from storagetest.config.models import Variant

_OF_VARIANT = ("protocol", "target")


def matches(variant: Variant, where: Mapping[str, object]) -> bool:
    """Whether the variant has one of the values of every name in ``where``."""
    return all(_has(variant, name, wanted) for name, wanted in where.items())


def matches_name(variant: Variant, globs: Iterable[str]) -> bool:
    """Whether the variant's id or its target's name matches one of ``globs``."""
    return any(fnmatchcase(name, glob) for glob in globs for name in (variant.id, variant.target))


def unknown_names(where: Iterable[str]) -> list[str]:
    """Return the names in ``where`` that no variant can have, sorted."""
    options = {name for kind in protocol_kinds().values() for name in kind.Options.model_fields}
    return sorted(set(where) - options - {*_OF_VARIANT})


def _has(variant: Variant, name: str, wanted: object) -> bool:
    value = getattr(variant if name in _OF_VARIANT else variant.options, name, None)
    return any(value == each for each in (wanted if isinstance(wanted, list) else [wanted]))
