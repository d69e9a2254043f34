"""Two cases measured in turns, A B B A, so that what drifts slowly is in both of a pair.

Nothing is idle and nothing runs at once: while one is measured, the other is only attached. Both are prepared
(filled) before either is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storagetest.measure.run import Run
from storagetest.runner.measurement import Measurement
from storagetest.verdict import ErrorPlan, Threshold, Verdict, judge_pair, mark_client_limited, wants_more

__all__ = ["run_interleaved"]


def run_interleaved(
    left: Measurement,
    right: Measurement,
    *,
    repeats: int,
    max_repeats: int,
    gates: Sequence[Threshold],
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
) -> tuple[Run, Run, tuple[Verdict, ...]]:
    """Measure at least ``repeats`` pairs, and further ones while a gate of ``left`` is undecided.

    Budget and errors are those of :func:`storagetest.runner.measurement.run_case`, counted in pairs.
    If a side reaches no steady state, no pair is measured, and both runs are INVALID with that reason.
    """
    with left, right:
        for bench in (left, right):
            bench.prepare()
        for bench in (left, right):
            bench.reach_steady_state(keep=False)
        if left.not_steady or right.not_steady:
            return _not_measured(left, right, gates, confidence)
        pairs = 0

        def pair(of: int) -> None:
            nonlocal pairs
            for bench in (left, right) if pairs % 2 == 0 else (right, left):
                bench.measure(of)
            pairs += 1

        for _ in range(max(1, repeats)):
            pair(repeats)
        verdicts = _judge(left.run, right.run, gates, confidence, plan)
        while not right.run.invalid and wants_more(left.run, verdicts, max_repeats=max_repeats):
            pair(pairs + 1)
            verdicts = _judge(left.run, right.run, gates, confidence, plan)
        for bench in (left, right):
            bench.finish()
        runs = left.run, right.run
        return *runs, tuple(mark_client_limited(verdict, *runs) for verdict in verdicts)


def _not_measured(
    left: Measurement, right: Measurement, gates: Sequence[Threshold], confidence: float
) -> tuple[Run, Run, tuple[Verdict, ...]]:
    """Return both runs without repeats: each is INVALID by itself, or because of the other."""
    for bench in (left, right):
        bench.finish()
    runs = left.run, right.run
    first, second = (
        run
        if run.invalid
        else replace(run, invalid=tuple(f"{other.variant}: {why}" for why in other.invalid))
        for run, other in (runs, runs[::-1])
    )
    return first, second, _judge(first, second, gates, confidence, None)


def _judge(
    left: Run, right: Run, gates: Sequence[Threshold], confidence: float, plan: ErrorPlan | None
) -> tuple[Verdict, ...]:
    return tuple(judge_pair(left, right, gate, confidence=confidence, plan=plan) for gate in gates)
