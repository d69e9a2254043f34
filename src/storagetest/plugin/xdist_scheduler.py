"""One target stays on one xdist worker.

Measuring cases exclude each other by lock anyway; keeping a target's cases together saves attaching it on
every worker. Node ids are left as they are (xdist's own ``loadgroup`` would append a group name).
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from storagetest.plugin.run_state import KEY

__all__ = ["TargetScheduling", "target_of"]


def target_of(nodeid: str, variants: dict[str, str]) -> str | None:
    """Return the target whose variant stands among ``nodeid``'s parameters (``variants``: id → target)."""
    _, bracket, parameters = nodeid.partition("[")
    framed = f"-{parameters.removesuffix(']')}-"
    matches = [identifier for identifier in variants if bracket and f"-{identifier}-" in framed]
    return variants[max(matches, key=len)] if matches else None


class TargetScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types for it
    """Group by target; what runs on none is grouped by module."""

    def _split_scope(self, nodeid: str) -> str:
        state = self.config.stash[KEY]
        known = state.variants if state.loaded is not None else {}  # suites without a target need no file
        variants = {identifier: variant.target for identifier, variant in known.items()}
        fallback: Any = super()._split_scope(nodeid)
        return target_of(nodeid, variants) or str(fallback)
