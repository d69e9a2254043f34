"""Tables beside a suite, and ``where``, by which they say which variants they are about.

``where`` asks for a variant's ``protocol``, its ``target``, its ``implementation`` and its protocol's
options; for a value or one of a list of values; all of it has to hold. A name that no protocol has is an
error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.protocols.base import protocols

__all__ = ["holds", "read_table", "refuse_unknown_names"]

_OF_VARIANT = ("protocol", "target", "implementation")


def read_table(path: Path) -> dict[str, Any] | None:
    """Return what a file says, None where there is none; :class:`pytest.UsageError` where it is no TOML."""
    if not path.is_file():
        return None
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None


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
