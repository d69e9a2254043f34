"""The ``comparison`` fixture: measure two variants on one client in turns, and compare them.

The left side is the case's variant, and shares its attachment with the variant's other cases.
The right side is attached only while the case runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storagetest.config.comparisons import Comparison
from storagetest.errors import ConfigError
from storagetest.hosts import Host
from storagetest.measure.run import Run
from storagetest.plugin.attach import attach_or_skip, fail_on_option_mismatch
from storagetest.plugin.measure.measure import make_measurement, record_and_raise
from storagetest.plugin.measure.running import within_case
from storagetest.plugin.run_state import RunState
from storagetest.protocols.base import Attachment
from storagetest.runner import run_interleaved


class ComparisonRunner:
    """Callable: measure both sides in turns and check the comparison's gate."""

    def __init__(
        self,
        item: pytest.Item,
        comparison: Comparison,
        sides: tuple[Attachment, Attachment],
        state: RunState,
    ) -> None:
        self._item, self._comparison, self._sides, self._state = item, comparison, sides, state

    @within_case
    def __call__(self) -> tuple[Run, Run]:
        """Measure and judge; return both runs. Raises AssertionError (missed) or Invalid (no verdict)."""
        __tracebackhide__ = True
        comparison, state = self._comparison, self._state
        # Not in the fixture: pytest would report the failure as an error.
        fail_on_option_mismatch(comparison.right, self._sides[1])
        load = state.workload(comparison.workload)()
        options = load.Options.model_validate(dict(comparison.parameters))
        left, right = (
            make_measurement(self._item, load, options, variant, [attachment], state)
            for variant, attachment in zip((comparison.left, comparison.right), self._sides, strict=True)
        )
        profile = state.profile
        first, second, verdicts = run_interleaved(
            left,
            right,
            repeats=profile.repeats,
            max_repeats=profile.max_repeats,
            gates=(comparison.threshold,),
            plan=state.thresholds.plan(self._item, 1, profile.max_repeats),
        )
        record_and_raise(self._item, first, verdicts, second)
        return first, second


@contextmanager
def right_side(comparison: Comparison, client: Host, state: RunState) -> Iterator[Attachment]:
    """Attach the right side; skips and failures are those of a case on that variant."""
    _check(comparison, client, state)
    with attach_or_skip(comparison.right, client, state) as attachment:
        yield attachment


def _check(comparison: Comparison, client: Host, state: RunState) -> None:
    right = comparison.right
    reason = state.failure_reason(right)
    if reason:
        pytest.skip(reason)
    if client.name not in {machine.name for machine in right.clients}:
        raise ConfigError(
            f"{right.id} is not a target of client {client.name}, on which {comparison.left.id} is attached."
            " Choose another client with --st-client",
            place=comparison.place,
        )
    load = state.workload(comparison.workload)()
    needs = load.capabilities(load.Options.model_validate(dict(comparison.parameters)))
    for variant in (comparison.left, comparison.right):
        if lacking := state.lacking(variant, needs):
            pytest.skip(lacking)
