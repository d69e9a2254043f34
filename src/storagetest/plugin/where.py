"""``where``, by which a table beside a suite says which variants it is about.

It asks for a variant's ``protocol``, its ``target``, its ``implementation`` and its protocol's options; for a
value or one of a list of values; all of it has to hold. A name that no protocol has is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from storagetest.config import Variant
from storagetest.protocols.base import protocols

__all__ = ["holds", "refuse_unknown_names"]

_OF_VARIANT = ("protocol", "target", "implementation")


def holds(variant: Variant, where: Mapping[str, object]) -> bool:
    """Whether the variant is as ``where`` says."""
    return all(_holds(variant, name, wanted) for name, wanted in where.items())


def refuse_unknown_names(place: str, where: Iterable[str]) -> None:
    """Raise :class:`pytest.UsageError` for names that nothing has."""
    options = {name for each in protocols.all().values() for name in each.Options.model_fields}
    odd = sorted(set(where) - options - {*_OF_VARIANT})
    if odd:
        raise pytest.UsageError(f"{place}: where: no protocol has an option {', '.join(odd)}")


def _holds(variant: Variant, name: str, wanted: object) -> bool:
    got = getattr(variant if name in _OF_VARIANT else variant.options, name, None)
    return any(got == each for each in (wanted if isinstance(wanted, list) else [wanted]))
