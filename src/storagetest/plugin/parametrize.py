"""Which variants a test function runs on.

A function that asks for the ``variant`` fixture (mostly through ``attachment`` or ``measure``) is run once
for every selected variant of the targets file. Nothing is contacted here: what a variant can do is computed
from its options. Session scope makes pytest group the cases by variant, so that each is attached once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from storagetest.config import Variant
from storagetest.plugin.fixtures.deprecated import new_capability
from storagetest.plugin.measure.client_selection import client_parameters
from storagetest.plugin.run_state import KEY, RunState

__all__ = ["apply_needs_and_sample", "item_variant", "parametrize", "second_variant"]

_CUSTOM = {"custom_workload", "own_workload"}
"""The fixture with the name of a custom workload; ``own_workload`` is its name of old, for one release."""

_CASES_A_MODULE = 2
"""How many conformance cases of a module, or tests of a foreign suite, a sample keeps."""


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give ``metafunc`` its variants."""
    if "variant" not in metafunc.fixturenames:
        return
    state = metafunc.config.stash[KEY]
    state.wanted = True
    if "comparison" in metafunc.fixturenames:
        known = state.comparisons if state.loaded else {}
        both = [
            pytest.param(
                each.left.id, id=f"{each.left.id}-{each.name}", marks=pytest.mark.comparison(each.name)
            )
            for each in known.values()
        ]
        metafunc.parametrize("variant", both, indirect=True, scope="session")
        return
    for fixture in _CUSTOM & set(metafunc.fixturenames):
        named = state.loaded.custom_workloads if state.loaded else ()
        each = [(identifier, name) for name in named for identifier in state.variants]
        metafunc.parametrize(
            ("variant", fixture),
            each,
            ids=["-".join(ids) for ids in each],
            indirect=["variant"],
            scope="session",
        )
        return
    ids = _candidates(state, metafunc) if state.loaded else []
    many = {identifier: client_parameters(metafunc, state.variants[identifier], state) for identifier in ids}
    if not any(many.values()):
        metafunc.parametrize("variant", ids, ids=ids, indirect=True, scope="session")
        return
    both = [
        pytest.param(identifier, each.values[0], id=f"{identifier}-{each.id}", marks=each.marks)
        for identifier in ids
        for each in many[identifier] or (pytest.param(None, id="1client"),)
    ]
    metafunc.parametrize(("variant", "clients"), both, indirect=True, scope="session")


def _candidates(state: RunState, metafunc: pytest.Metafunc) -> list[str]:
    """Return the variants to try: for a case on the wire one a target, as their options are for clients only.

    Of a sample, a case through the mount needs only one a protocol: there are thousands of them. Where none
    fits, one is left, so that leaving the case out is a decision that can be seen.
    """
    case, needs = metafunc.definition, _needs(metafunc.definition)
    wire = {need for need in needs if need.endswith("-wire")}
    if wire:
        first = {variant.target: variant for variant in reversed(state.variants.values())}
    elif metafunc.config.option.st_sample and case.get_closest_marker("case"):
        able = [variant for variant in state.variants.values() if needs <= state.capabilities(variant)]
        first = {variant.protocol: variant for variant in reversed(able)}
    else:
        return list(state.variants)
    fitting = {variant.id for variant in first.values() if wire <= state.capabilities(variant)}
    return [identifier for identifier in state.variants if identifier in fitting] or list(state.variants)[:1]


def _needs(item: pytest.Item) -> set[str]:
    return {new_capability(str(need)) for mark in item.iter_markers("needs") for need in mark.args}


def item_variant(item: pytest.Item) -> str | None:
    """Return the id of the variant that ``item`` runs on, if it runs on one."""
    callspec = getattr(item, "callspec", None)
    variant = callspec.params.get("variant") if callspec else None
    return variant if isinstance(variant, str) else None


def second_variant(item: pytest.Item, state: RunState) -> Variant | None:
    """Return the variant that ``item`` uses beside its own: that of a comparison, or of the same data."""
    mark = item.get_closest_marker("comparison")
    if mark is not None:
        return state.comparisons[mark.args[0]].right
    identifier = item_variant(item) if "same_data" in getattr(item, "fixturenames", ()) else None
    return state.same_data(state.variants[identifier]) if identifier else None


def apply_needs_and_sample(state: RunState, items: list[pytest.Item], *, sample: bool) -> list[pytest.Item]:
    """Mark what a variant cannot do as skipped, and return the items that ``sample`` leaves out."""
    able: list[pytest.Item] = []
    for item in items:
        identifier = item_variant(item)
        if identifier is None:
            continue
        lacking = _lacking(state, item, identifier)
        if lacking:
            item.add_marker(pytest.mark.skip(reason=f"{identifier} has no {', '.join(sorted(lacking))}"))
        elif "find_maximum" in getattr(item, "fixturenames", ()) and not state.profile.search:
            name = state.profile.name
            why = f"profile {name} has no measurements for a search: say `search: 40` there"
            item.add_marker(pytest.mark.skip(reason=why))
        else:
            able.append(item)
    if not sample:
        return []
    kept = set(_sample(state, able))
    return [item for item in items if item_variant(item) is not None and item not in kept]


def _sample(state: RunState, items: list[pytest.Item]) -> list[pytest.Item]:
    """Choose a little of everything: one case of each suite (a file), on the protocol with the fewest so far.

    So every suite runs and every protocol is run over: on its first variant that can, as attaching another
    takes its time. Of a conformance module on the wire, which has its one protocol, a few cases are kept;
    cases through the mount count as one suite a directory; of an optional target, which may not be there at
    all, there is one case, and that only where nothing else has its protocol.
    """
    order = {identifier: number for number, identifier in enumerate(state.variants)}

    def place(item: pytest.Item) -> int:
        return order[item_variant(item) or ""]

    surely_there = {variant.protocol for variant in state.variants.values() if not variant.optional}
    kept: list[pytest.Item] = []
    shares: Counter[str] = Counter()
    suites: dict[Path, dict[str, pytest.Item]] = {}
    for item in items:
        variant = state.variants[item_variant(item) or ""]
        if variant.optional and variant.protocol in surely_there:
            continue
        if variant.optional:
            share, most = f"optional {variant.protocol}", 1
        elif item.get_closest_marker("external") or any(need.endswith("-wire") for need in _needs(item)):
            share, most = f"{item.path} {variant.protocol}", _CASES_A_MODULE
        else:
            suite = item.path.parent if item.get_closest_marker("case") else item.path
            candidates = suites.setdefault(suite, {})
            candidates[variant.protocol] = min(candidates.get(variant.protocol, item), item, key=place)
            continue
        if shares[share] < most:
            shares[share] += 1
            kept.append(item)
    turns: Counter[str] = Counter()
    for candidates in sorted(suites.values(), key=len):  # the one with the least choice chooses first
        protocol = min(candidates, key=lambda name: turns[name])
        turns[protocol] += 1
        kept.append(candidates[protocol])
    return kept


def _lacking(state: RunState, item: pytest.Item, identifier: str) -> set[str]:
    return _needs(item) - state.capabilities(state.variants[identifier])
