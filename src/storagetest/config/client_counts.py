"""Number of clients that a case runs on: a number, a list of numbers, or all clients of the target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from storagetest.config.base import Items
from storagetest.errors import ConfigError

ALL = "all"
"""Every client of the target."""

_ONE = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": ALL}]}
_EXPECTED = "expected a number of clients, all, or a list such as [1, 2, 4, all]"


def read_counts(value: object) -> tuple[int | str, ...]:
    """Return the numbers in ``4``, ``all`` or ``[1, 2, 4, all]``; :class:`ValueError` for others."""
    items = value if isinstance(value, list | tuple) else (value,)
    found: list[int | str] = []
    for item in items:
        if isinstance(item, bool) or not (item == ALL or (isinstance(item, int) and item >= 1)):
            raise ValueError(_EXPECTED)
        if item in found:
            raise ValueError(f"{item} is listed twice")
        found.append(item if isinstance(item, int) else ALL)
    if not found:
        raise ValueError(_EXPECTED)
    return tuple(found)


def asked_counts(text: str | None) -> tuple[int | str, ...] | None:
    """Parse the value of ``--st-scale``. Raises :class:`ConfigError`."""
    if text is None:
        return None
    try:
        return read_counts(
            [int(part) if part.strip().isdigit() else part.strip() for part in text.split(",")]
        )
    except ValueError as error:
        raise ConfigError(f"--st-scale {text}: {error}") from None


def how_many(count: int | str, available: int) -> int:
    """Return ``count`` as a number: ``all`` is the number of ``available`` clients."""
    return available if isinstance(count, str) else count


Counts = Annotated[
    tuple[int | Literal["all"], ...],
    BeforeValidator(read_counts),
    WithJsonSchema({"anyOf": [*_ONE["anyOf"], {"type": "array", "minItems": 1, "items": _ONE}]}),
]
"""Type of ``scale``."""

Clients = Annotated[
    Items[str],
    Field(min_length=1),
    BeforeValidator(lambda value: [ALL] if value == ALL else value),
    WithJsonSchema(
        {"anyOf": [{"const": ALL}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}
    ),
]
"""Type of ``clients``: a list of names, or ``all``."""
