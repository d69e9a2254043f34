"""Refuse marks that would silently have no effect, when cases are collected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache

import pytest

from storagetest.config.validation import suggest
from storagetest.plugin.fixtures.deprecated import new_capability
from storagetest.plugin.items import once_for_marks
from storagetest.plugin.options import MARKERS
from storagetest.plugin.run_state import CONFIGURED_CAPABILITIES, RunState
from storagetest.protocols.base import protocols

_SIMILAR = 0.85
_OURS = {marker.partition("(")[0].partition(":")[0] for marker in MARKERS}


def check_marks(state: RunState, config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Raise :class:`pytest.UsageError` that names the first item with a mark that has no effect.

    Such marks are: one that is almost the name of a mark of this plugin, ``gate`` without a threshold, and
    ``needs`` without a capability or with one that no protocol and no variant has.
    """
    known = {marker.partition(":")[0].partition("(")[0].strip() for marker in config.getini("markers")}
    capabilities = _capabilities(state)

    def check(item: pytest.Item) -> None:
        for mark in item.iter_markers():
            where = f"{item.nodeid}: @pytest.mark.{mark.name}"
            near = _similar(mark.name)
            if near and mark.name not in known:
                raise pytest.UsageError(f"{where} is not a registered mark; did you mean {near[0]!r}?")
            if mark.name == "gate" and not mark.args:
                raise pytest.UsageError(f"{where} has no threshold, such as 'iops >= 20000'")
            if mark.name != "needs":
                continue
            if not mark.args:
                raise pytest.UsageError(f"{where} names no capability, such as 'filesystem'")
            for need in (new_capability(str(need)) for need in mark.args):
                if need not in capabilities:
                    hint = suggest(need, capabilities)
                    raise pytest.UsageError(f"{where}: no protocol has the capability {need!r}{hint}")

    for item in items:
        once_for_marks(item, check)


@cache
def _similar(name: str) -> list[str]:
    return difflib.get_close_matches(name, _OURS, n=1, cutoff=_SIMILAR)


def _capabilities(state: RunState) -> set[str]:
    names = {name for protocol in protocols for name in protocol.capability_names}
    variants = state.variants.values() if state.loaded else ()
    return names.union(CONFIGURED_CAPABILITIES, *map(state.capabilities, variants))
