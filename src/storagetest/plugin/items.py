"""Facts about pytest's items and processes, which pytest has no method for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from storagetest.plugin.fixtures.deprecated import new_capability

T = TypeVar("T")

_BY_MARKS = pytest.StashKey[dict[tuple[object, ...], tuple[list[pytest.Mark], Any]]]()


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is an xdist worker."""
    return hasattr(config, "workerinput")


def parameters_of(item: pytest.Item) -> Mapping[str, Any]:
    """Return the parameters of ``item`` by name; none if it is not parametrized."""
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def fixtures_of(item: pytest.Item) -> Sequence[str]:
    """Return the names of the fixtures that ``item`` uses; none if it is not a function."""
    return getattr(item, "fixturenames", ())


def item_variant(item: pytest.Item) -> str | None:
    """Return the id of the variant that ``item`` runs on, or None."""
    variant = parameters_of(item).get("variant")
    return variant if isinstance(variant, str) else None


def once_for_marks(item: pytest.Item, function: Callable[[pytest.Item], T]) -> T:
    """Return ``function(item)``, which depends on the marks of ``item`` alone.

    It is called once for the items that share their marks, which are those of a test on all variants: tens of
    thousands of items are collected in seconds.
    """
    assert item.parent is not None
    known = item.parent.stash.setdefault(_BY_MARKS, {})
    marks = item.own_markers
    key = (function, *map(id, marks))
    if key not in known:
        known[key] = list(marks), function(item)  # the marks are kept, so that no other gets their ids
    return cast("T", known[key][1])


def needs_of(item: pytest.Item) -> frozenset[str]:
    """Return the capabilities that the marks of ``item`` require of its variant."""
    return once_for_marks(item, _needs)


def _needs(item: pytest.Item) -> frozenset[str]:
    return frozenset(new_capability(str(need)) for mark in item.iter_markers("needs") for need in mark.args)


def wire_needs(item: pytest.Item) -> frozenset[str]:
    """Return those of :func:`needs_of` that a wire case has."""
    return once_for_marks(item, _wire_needs)


def _wire_needs(item: pytest.Item) -> frozenset[str]:
    return frozenset(need for need in needs_of(item) if need.endswith("-wire"))


@cache
def suite_directory(path: Path) -> Path:
    """Return the directory of the test file ``path``: the same object each time, whose hash is known."""
    return path.parent


def release_variant(item: pytest.Item, nextitem: pytest.Item | pytest.Collector | None) -> None:
    """End the session-scoped fixtures of the item's variant if the next item has another one.

    pytest ends them only when the next item sets up the other variant, and reports what fails then at that
    item.
    """
    variant = item_variant(item)
    if variant is None or not isinstance(item, pytest.Function):
        return
    if nextitem is not None and not isinstance(nextitem, pytest.Item):
        return  # the node whose fixtures stay: the item runs once more
    if nextitem is not None and item_variant(nextitem) == variant:
        return
    for definition in item._fixtureinfo.name2fixturedefs.get("variant", ()):  # noqa: SLF001  # pytest has no public way
        definition.finish(item._request)  # type: ignore[arg-type]  # noqa: SLF001  # any request does
