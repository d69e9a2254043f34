"""Run all cases of a target on one xdist worker; divide those on the wire of a file system among all workers.

Performance cases exclude each other by locks anyway; one worker for each target avoids attaching it on
every worker, and two variants of one target are not attached at the same time: the Linux client of NFS gives
the second mount the connections of the first, whatever its `nconnect` is. Cases on the wire of a file system
attach nothing and have directories of their own, so each variant's modules are divided among all workers.
Those on the wire of a block device stay with their target: they share its blocks with the other cases.

Node ids are not changed (xdist's own ``loadgroup`` would append a group name).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

from storagetest.config import Variant
from storagetest.plugin.run_state import KEY

_WIRE_NEED = re.compile(r'\bneeds\(\s*"[\w-]+-wire"')


def variant_in(nodeid: str, variants: Iterable[str]) -> str | None:
    """Return the id among ``variants`` that is a parameter in ``nodeid``, or None."""
    _, bracket, parameters = nodeid.partition("[")
    delimited = f"-{parameters.removesuffix(']')}-"
    return max((one for one in variants if bracket and f"-{one}-" in delimited), key=len, default=None)


@cache
def is_wire_module(path: Path) -> bool:
    """Whether the cases of a module are on the wire, by its source: only workers collect."""
    try:
        return _WIRE_NEED.search(path.read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


def divide(sizes: Mapping[str, int], parts: int) -> dict[str, int]:
    """Return the part, from 0, of each key: the largest first, each to the part that has least so far."""
    loads = [0] * parts
    chosen = {}
    for key, size in sorted(sizes.items(), key=lambda one: (-one[1], one[0])):
        chosen[key] = loads.index(min(loads))
        loads[chosen[key]] += size
    return chosen


class TargetScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types for it
    """Group cases as the module describes; cases without a target are grouped by module."""

    def _split_scope(self, nodeid: str) -> str:
        identifier = self._variant_in(nodeid)
        if identifier is None:
            return str(super()._split_scope(nodeid))
        module = nodeid.partition("::")[0]
        if self._on_wire(identifier, module):
            return f"{identifier} on the wire {self._wire_parts[identifier][module]}"
        return str(self._variants[identifier].target)

    def _variant_in(self, nodeid: str) -> str | None:
        return variant_in(nodeid, self._variants)

    def _on_wire(self, identifier: str, module: str) -> bool:
        capabilities = self.config.stash[KEY].capabilities(self._variants[identifier])
        return "filesystem" in capabilities and is_wire_module(self.config.rootpath / module)

    @cached_property
    def _variants(self) -> Mapping[str, Variant]:
        state = self.config.stash[KEY]
        return state.variants if state.loaded is not None else {}  # no targets file is loaded

    @cached_property
    def _wire_parts(self) -> dict[str, dict[str, int]]:
        """The part of each module, by variant. Asked for when every worker has collected."""
        sizes: dict[str, Counter[str]] = defaultdict(Counter)
        for nodeid in next(iter(self.registered_collections.values())):
            identifier, module = self._variant_in(nodeid), nodeid.partition("::")[0]
            if identifier is not None and self._on_wire(identifier, module):
                sizes[identifier][module] += 1
        return {identifier: divide(counts, self.numnodes) for identifier, counts in sizes.items()}
