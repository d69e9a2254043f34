"""Run all cases of a target on one xdist worker.

Performance cases exclude each other by locks anyway; one worker for each target avoids attaching it on
every worker. Node ids are not changed (xdist's own ``loadgroup`` would append a group name).
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from storagetest.plugin.run_state import KEY


def target_of(nodeid: str, variants: dict[str, str]) -> str | None:
    """Return the target whose variant is a parameter in ``nodeid`` (``variants``: id → target), or None."""
    _, bracket, parameters = nodeid.partition("[")
    delimited = f"-{parameters.removesuffix(']')}-"
    matches = [identifier for identifier in variants if bracket and f"-{identifier}-" in delimited]
    return variants[max(matches, key=len)] if matches else None


class TargetScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types for it
    """Group cases by target; cases without a target are grouped by module."""

    def _split_scope(self, nodeid: str) -> str:
        state = self.config.stash[KEY]
        selected = state.variants if state.loaded is not None else {}  # no targets file is loaded
        variants = {identifier: variant.target for identifier, variant in selected.items()}
        fallback: Any = super()._split_scope(nodeid)
        return target_of(nodeid, variants) or str(fallback)
