"""Which variants a test function runs on.

A function that asks for the ``variant`` fixture (mostly through ``attachment`` or ``measure``) is run once
for every selected variant of the targets file. Nothing is contacted here: what a variant can do is computed
from its options. Session scope makes pytest group the cases by variant, so that each is attached once.
"""

from __future__ import annotations

import pytest

from storagetest.plugin.state import KEY, State

__all__ = ["item_variant", "parametrize", "select"]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give ``metafunc`` its variants."""
    if "variant" not in metafunc.fixturenames:
        return
    state = metafunc.config.stash[KEY]
    state.wanted = True
    ids = list(state.variants) if state.loaded else []
    metafunc.parametrize("variant", ids, ids=ids, indirect=True, scope="session")


def item_variant(item: pytest.Item) -> str | None:
    """Return the id of the variant that ``item`` runs on, if it runs on one."""
    callspec = getattr(item, "callspec", None)
    variant = callspec.params.get("variant") if callspec else None
    return variant if isinstance(variant, str) else None


def select(state: State, items: list[pytest.Item], *, sample: bool) -> list[pytest.Item]:
    """Mark what a variant cannot do as skipped, and return the items that ``sample`` leaves out."""
    dropped: list[pytest.Item] = []
    sampled: set[tuple[str, str]] = set()
    for item in items:
        identifier = item_variant(item)
        if identifier is None:
            continue
        variant = state.variants[identifier]
        lacking = _lacking(state, item, identifier)
        if lacking:
            reason = f"{identifier} has no {', '.join(sorted(lacking))}"
            item.add_marker(pytest.mark.skip(reason=reason))
        if sample:
            case = (item.nodeid.partition("[")[0], variant.protocol)
            if case in sampled:
                dropped.append(item)
            elif not lacking:
                sampled.add(case)
    return dropped


def _lacking(state: State, item: pytest.Item, identifier: str) -> set[str]:
    variant = state.variants[identifier]
    wanted = {str(need) for mark in item.iter_markers("needs") for need in mark.args}
    return wanted - state.protocol(variant).capabilities(variant.options)
