"""Facts about pytest's items and processes, which pytest has no method for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from storagetest.plugin.fixtures.deprecated import new_capability


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


def needs_of(item: pytest.Item) -> set[str]:
    """Return the capabilities that the marks of ``item`` require of its variant."""
    return {new_capability(str(need)) for mark in item.iter_markers("needs") for need in mark.args}


def wire_needs(item: pytest.Item) -> set[str]:
    """Return those of :func:`needs_of` that a wire case has."""
    return {need for need in needs_of(item) if need.endswith("-wire")}


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
