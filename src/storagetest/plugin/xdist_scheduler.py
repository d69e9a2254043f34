"""Run all cases of a target on one xdist worker; those on the wire of a file system may have another.

Performance cases exclude each other by locks anyway; one worker for each target avoids attaching it on
every worker, and two variants of one target are not attached at the same time: the Linux client of NFS gives
the second mount the connections of the first, whatever its `nconnect` is. Cases on the wire of a file system
attach nothing and have directories of their own, so each variant has its worker for them. Those on the wire
of a block device stay with their target: they share its blocks with the other cases.

Node ids are not changed (xdist's own ``loadgroup`` would append a group name).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

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


class TargetScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types for it
    """Group cases as the module describes; cases without a target are grouped by module."""

    def _split_scope(self, nodeid: str) -> str:
        state = self.config.stash[KEY]
        selected = state.variants if state.loaded is not None else {}  # no targets file is loaded
        identifier = variant_in(nodeid, selected)
        if identifier is None:
            return str(super()._split_scope(nodeid))
        variant: Any = selected[identifier]
        module = self.config.rootpath / nodeid.partition("::")[0]
        if "filesystem" in state.capabilities(variant) and is_wire_module(module):
            return f"{identifier} on the wire"
        return str(variant.target)
