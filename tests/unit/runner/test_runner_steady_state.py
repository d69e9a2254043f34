"""A run whose target has to settle first."""

from __future__ import annotations

from dataclasses import replace

from storagetest.measure.run import Unit
from storagetest.measure.series import LOAD, Series
from storagetest.runner import MeasurementPhase
from storagetest.verdict import Outcome
from storagetest.workloads.base import LoadSize

PTS = LoadSize(size=1 << 20, ramp=0.0, runtime=1.0, steady="pts", steady_rounds=10)
FALLING = [900.0, 700, 500, 400, 302, 300, 301, 299, 300, 298, 300, 301]


def test_the_steady_rounds_are_the_run_and_the_others_do_not_count(scripted, measure):
    events = []
    result, (verdict,) = measure(scripted(FALLING), PTS, "iops >= 250", on_progress=events.append)
    assert [sample.values["iops"] for sample in result.samples] == FALLING[4:9]
    assert verdict.outcome is Outcome.PASS
    assert result.invalid == ()
    assert [event.phase for event in events].count(MeasurementPhase.STEADY_STATE) == 9
    assert MeasurementPhase.MEASURE not in [event.phase for event in events]  # five are more than three


def test_more_repeats_than_the_window_are_measured_after_it(scripted, measure):
    result, _ = measure(scripted(FALLING), PTS, repeats=7)
    assert [sample.values["iops"] for sample in result.samples] == FALLING[4:11]
    assert "pts, 9 rounds: iops ranges over" in result.samples[-1].evidence["steady state"]


def test_a_target_that_does_not_settle_is_invalid_with_the_figures_and_not_measured_on(scripted, measure):
    load = scripted([1000.0 / (1 + number) for number in range(20)])
    result, (verdict,) = measure(load, PTS, "iops >= 1")
    assert len(load.did) == 1 + 10  # the fill, and the budget
    assert verdict.outcome is Outcome.INVALID
    assert "no steady state (pts, 10 rounds: iops ranges over " in verdict.reason
    assert len(result.samples) == 5


def test_slope_takes_the_first_round_that_is_level(scripted, measure):
    class Course(scripted):
        def measure(self, attachment, options, scale):
            sample = super().measure(attachment, options, scale)
            falls = max(0.0, 3.0 - scale.repeat)
            values = tuple(100.0 - falls * 10 * at for at in range(6))
            times = tuple(float(at) for at in range(6))
            iops = Series(LOAD, "read IOPS", Unit.PER_SECOND, "c", times, values)
            latency = Series(LOAD, "read latency", Unit.SECONDS, "c", times, (0.1,) * 6)
            return replace(sample, series=(iops, latency))

    load = Course([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    result, _ = measure(load, replace(PTS, steady="slope"), repeats=2)
    assert [sample.values["iops"] for sample in result.samples] == [4.0, 5.0]


def test_without_being_asked_nothing_is_waited_for(scripted, measure):
    result, _ = measure(scripted(FALLING), replace(PTS, steady="none"))
    assert [sample.values["iops"] for sample in result.samples] == FALLING[:3]
