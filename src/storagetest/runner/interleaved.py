"""Measure two cases alternately (A B B A), so that slow drift affects both of a pair alike.

One case is measured at a time; the other is attached and idle. Both are prepared (data sets written) before
either is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storagetest.measure.run import Run
from storagetest.runner.measurement import Measurement
from storagetest.verdict import ErrorPlan, Threshold, Verdict, judge_pair, mark_client_limited, wants_more


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
        for case in (left, right):
            case.prepare()
        for case in (left, right):
            case.reach_steady_state(keep=False)
        if left.not_steady or right.not_steady:
            return _not_measured(left, right, gates, confidence)
        pairs = 0

        def measure_pair(of: int) -> None:
            nonlocal pairs
            for case in (left, right) if pairs % 2 == 0 else (right, left):
                case.measure(of)
            pairs += 1

        for _ in range(max(1, repeats)):
            measure_pair(repeats)
        verdicts = _judge(left.run, right.run, gates, confidence, plan)
        while not right.run.invalid and wants_more(left.run, verdicts, max_repeats=max_repeats):
            measure_pair(pairs + 1)
            verdicts = _judge(left.run, right.run, gates, confidence, plan)
        for case in (left, right):
            case.finish()
        runs = left.run, right.run
        return *runs, tuple(mark_client_limited(verdict, *runs) for verdict in verdicts)


def _not_measured(
    left: Measurement, right: Measurement, gates: Sequence[Threshold], confidence: float
) -> tuple[Run, Run, tuple[Verdict, ...]]:
    """Return both runs without repeats: each is INVALID by itself, or because of the other."""
    for case in (left, right):
        case.finish()
    runs = left.run, right.run
    first, second = (
        run
        if run.invalid
        else replace(run, invalid=tuple(f"{other.variant}: {reason}" for reason in other.invalid))
        for run, other in (runs, runs[::-1])
    )
    return first, second, _judge(first, second, gates, confidence, None)


def _judge(
    left: Run, right: Run, gates: Sequence[Threshold], confidence: float, plan: ErrorPlan | None
) -> tuple[Verdict, ...]:
    return tuple(judge_pair(left, right, gate, confidence=confidence, plan=plan) for gate in gates)
