"""Two cases in turns."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from storagetest.measure.run import METRICS
from storagetest.runner import Measurement, PrefillCache, run_interleaved
from storagetest.verdict import ErrorPlan, Outcome, Threshold
from storagetest.workloads.base import LoadSize

SCALE = LoadSize(size=1 << 20, ramp=0.0, runtime=0.1)
PTS = replace(SCALE, steady="pts", steady_rounds=6)
GATE = Threshold(METRICS["iops"], ">=", 1.5, "iops: a >= 1.5 x b", "", "b")


@pytest.fixture
def pair(scripted, attachment, case):
    def measure(left: list[float], right: list[float], scale: LoadSize = SCALE, max_repeats: int = 8):
        did: list[str] = []

        def measurement(name: str, figures: list[float]) -> Measurement:
            load, info = scripted(figures), replace(case, variant=name)
            load.did = SimpleNamespace(append=lambda what: did.append(f"{name} {what}"))
            return Measurement(
                load, load.Options(), replace(attachment), scale, case=info, fills=PrefillCache()
            )

        both = measurement("a", left), measurement("b", right)
        plan = ErrorPlan(gates=2, max_repeats=max_repeats)
        return did, run_interleaved(*both, repeats=3, max_repeats=max_repeats, gates=[GATE], plan=plan)

    return measure


def test_both_are_filled_first_and_then_measured_a_b_b_a(pair):
    did, (left, right, (verdict,)) = pair([200.0, 201.0, 199.0], [100.0, 101.0, 100.0])
    assert did == [
        *("a fill", "b fill"),
        *("a measure 0", "b measure 0", "b measure 1", "a measure 1", "a measure 2", "b measure 2"),
    ]
    assert (left.variant, right.variant) == ("a", "b")
    assert [len(run.samples) for run in (left, right)] == [3, 3]
    assert verdict.outcome is Outcome.PASS


def test_what_misses_is_measured_again_in_pairs_before_it_is_a_failure(pair):
    near = [100.0, 101.0, 100.5, 99.5] * 4
    did, (left, right, (verdict,)) = pair(near, near[::-1])
    assert verdict.outcome is Outcome.FAIL
    assert len(left.samples) == len(right.samples) > 3
    assert len(did) == 2 + 2 * len(left.samples)


def test_undecided_pair_stops_at_the_budget(pair):
    _, (left, _, (verdict,)) = pair([100.0, 200.0] * 4, [100.0] * 8, max_repeats=5)
    assert verdict.outcome is Outcome.INVALID
    assert len(left.samples) == 5


@pytest.mark.parametrize("unsteady", ["a", "b"])
def test_without_a_steady_state_of_both_no_pair_is_measured_and_both_are_invalid(pair, unsteady):
    falling, level = [1000.0 / (1 + number) for number in range(12)], [100.0] * 12
    figures = (falling, level) if unsteady == "a" else (level, falling)
    did, (left, right, (verdict,)) = pair(*figures, scale=PTS)
    assert len(did) == 2 + 6 + 5  # the fills, the budget of one, and the window of the other
    assert verdict.outcome is Outcome.INVALID
    assert "no steady state (pts, 6 rounds: iops ranges over " in verdict.reason
    for run in (left, right):
        assert run.samples == ()
        assert "no steady state" in run.invalid[0]
        assert run.invalid[0].startswith(f"{unsteady}: ") == (run.variant != unsteady)


def test_pairs_are_measured_once_both_are_steady(pair):
    _, (left, right, (verdict,)) = pair([200.0] * 12, [100.0] * 12, scale=PTS)
    assert verdict.outcome is Outcome.PASS
    assert [len(run.samples) for run in (left, right)] == [3, 3]
