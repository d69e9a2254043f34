"""Select the variants that a test function runs on.

A function that requests the ``variant`` fixture (mostly through ``attachment`` or ``measure``) runs once
for every selected variant of the targets file. No machine is contacted: capabilities are computed
from the options. Session scope makes pytest group the cases by variant, so that each is attached once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet  # public since pytest 8.4 only

from storagetest.config import Variant
from storagetest.plugin.items import fixtures_of, item_variant, needs_of, wire_needs
from storagetest.plugin.measure.client_selection import client_parameters
from storagetest.plugin.run_state import KEY, RunState

_CUSTOM = {"custom_workload", "own_workload"}
"""The fixture with the name of a custom workload; ``own_workload`` is its old name, for one release."""

_CASES_A_MODULE = 2
"""Number of conformance cases of a module, or tests of a foreign suite, in a sample."""


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize ``metafunc`` by variant, and by clients if it measures."""
    if "variant" not in metafunc.fixturenames:
        return
    state = metafunc.config.stash[KEY]
    state.targets_needed = True
    if "comparison" in metafunc.fixturenames:
        comparisons = state.comparisons if state.loaded else {}
        both = [
            pytest.param(
                each.left.id, id=f"{each.left.id}-{each.name}", marks=pytest.mark.comparison(each.name)
            )
            for each in comparisons.values()
        ] or [_nothing("no-comparison", "the targets file has no comparison of selected variants")]
        metafunc.parametrize("variant", both, indirect=True, scope="session")
        return
    if "search_plan" in metafunc.fixturenames:
        _parametrize_searches(metafunc, state)
        return
    for fixture in _CUSTOM & set(metafunc.fixturenames):
        _parametrize_custom(metafunc, fixture, state)
        return
    ids = _candidates(state, metafunc) if state.loaded else []
    parameters = {
        identifier: client_parameters(metafunc, state.variants[identifier], state) for identifier in ids
    }
    if not any(parameters.values()):
        metafunc.parametrize("variant", ids, ids=ids, indirect=True, scope="session")
        return
    both = [
        pytest.param(identifier, each.values[0], id=f"{identifier}-{each.id}", marks=each.marks)
        for identifier in ids
        for each in parameters[identifier] or (pytest.param(None, id="1client"),)
    ]
    metafunc.parametrize(("variant", "clients"), both, indirect=True, scope="session")


def _parametrize_searches(metafunc: pytest.Metafunc, state: RunState) -> None:
    """Parametrize by search, by variant that it applies to, and by clients."""
    one = pytest.param(None, id="")
    every = [
        pytest.param(
            identifier,
            plan,
            each.values[0],
            id=f"{identifier}-{plan.name}-{each.id}".rstrip("-"),
            marks=each.marks,
        )
        for plan in (state.config.searches if state.loaded else ())
        for identifier, variant in state.variants.items()
        if plan.applies_to(variant)
        for each in client_parameters(metafunc, variant, state) or [one]
    ]
    arguments = ("variant", "search_plan", "clients")
    every = every or [_nothing("no-search", "the targets file has no search of these variants", None, None)]
    metafunc.parametrize(arguments, every, indirect=["variant", "clients"], scope="session")


def _parametrize_custom(metafunc: pytest.Metafunc, fixture: str, state: RunState) -> None:
    """Parametrize by variant, custom workload and, if the workload can run on several, clients."""
    names = state.loaded.custom_workloads if state.loaded else ()
    one = pytest.param(None, id="")
    every = []
    for name in names:
        several = state.workload(name).synchronized
        for identifier, variant in state.variants.items():
            for each in (several and client_parameters(metafunc, variant, state)) or [one]:
                case = f"{identifier}-{name}-{each.id}".rstrip("-")
                every.append(pytest.param(identifier, name, each.values[0], id=case, marks=each.marks))
    arguments = ("variant", fixture, "clients")
    every = every or [_nothing("no-workload", "the targets file has no workloads of its own", None, None)]
    metafunc.parametrize(arguments, every, indirect=["variant", "clients"], scope="session")


def _nothing(identifier: str, reason: str, *more: None) -> ParameterSet:
    """Return the one parameter of a case that has none: a skip with a name and a reason.

    pytest's own is ``[NOTSET]``, "got empty parameter set".
    """
    return pytest.param(None, *more, id=identifier, marks=pytest.mark.skip(reason=reason))


def _candidates(state: RunState, metafunc: pytest.Metafunc) -> list[str]:
    """Return the variants of a case. A wire case gets the first of each target that has its need.

    In a sample, a case through the mount gets one for each protocol. If none fits, the first variant remains,
    so that the case is reported as a skip.
    """
    item, wire = metafunc.definition, wire_needs(metafunc.definition)
    if wire:
        every = [one for one in state.variants.values() if wire <= state.capabilities(one)]
        first = {variant.target: variant for variant in reversed(every)}
    elif metafunc.config.option.st_sample and item.get_closest_marker("case"):
        needs = needs_of(item)
        able = [variant for variant in state.variants.values() if not state.lacking(variant, needs)]
        first = {variant.protocol: variant for variant in reversed(able)}
    else:
        return list(state.variants)
    fitting = {variant.id for variant in first.values()}
    return [identifier for identifier in state.variants if identifier in fitting] or list(state.variants)[:1]


def second_variant(item: pytest.Item, state: RunState) -> Variant | None:
    """Return the second variant of ``item``: the right side of a comparison, or that of the same data."""
    mark = item.get_closest_marker("comparison")
    if mark is not None:
        return state.comparisons[mark.args[0]].right
    variant = state.variant_of(item) if "same_data" in fixtures_of(item) else None
    return None if variant is None else state.same_data(variant)


def apply_needs_and_sample(state: RunState, items: list[pytest.Item], *, sample: bool) -> list[pytest.Item]:
    """Mark items as skipped whose variant lacks a capability; return the items that a sample leaves out."""
    able: list[pytest.Item] = []
    for item in items:
        variant = state.variant_of(item)
        if variant is None:
            continue
        reason = state.lacking(variant, needs_of(item))
        if not reason and "find_maximum" in fixtures_of(item) and not state.profile.search:
            name = state.profile.name
            reason = f"profile {name} allows no measurements for a search. Set `search: 40` in it"
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        else:
            able.append(item)
    if not sample:
        return []
    sampled = set(_sample(state, able))
    return [
        item
        for item in items
        if item.get_closest_marker("experiment") or (item_variant(item) is not None and item not in sampled)
    ]


def _sample(state: RunState, items: list[pytest.Item]) -> list[pytest.Item]:
    """Choose one case of each suite (a file), on the protocol with the fewest cases so far.

    So every suite and every protocol is run, on the first capable variant: attaching more of them takes time.
    A conformance module on the wire, which has one protocol, gets :data:`_CASES_A_MODULE` cases. Cases
    through the mount count as one suite for each directory. An optional target, which may be unavailable,
    gets one case, and only if no other target has its protocol.
    """
    order = {identifier: number for number, identifier in enumerate(state.variants)}

    def position(item: pytest.Item) -> int:
        return order[item_variant(item) or ""]

    required = {variant.protocol for variant in state.variants.values() if not variant.optional}
    chosen: list[pytest.Item] = []
    taken: Counter[str] = Counter()
    suites: dict[Path, dict[str, pytest.Item]] = {}
    for item in items:
        variant = state.variants[item_variant(item) or ""]
        if variant.optional and variant.protocol in required:
            continue
        if variant.optional:
            group, limit = f"optional {variant.protocol}", 1
        elif item.get_closest_marker("external") or wire_needs(item):
            group, limit = f"{item.path} {variant.protocol}", _CASES_A_MODULE
        else:
            suite = item.path.parent if item.get_closest_marker("case") else item.path
            candidates = suites.setdefault(suite, {})
            candidates[variant.protocol] = min(candidates.get(variant.protocol, item), item, key=position)
            continue
        if taken[group] < limit:
            taken[group] += 1
            chosen.append(item)
    turns: Counter[str] = Counter()
    for candidates in sorted(suites.values(), key=len):  # the suite with the fewest protocols first
        protocol = min(candidates, key=lambda name: turns[name])
        turns[protocol] += 1
        chosen.append(candidates[protocol])
    return chosen
