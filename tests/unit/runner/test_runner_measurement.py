"""Measuring a case: repeats, steady state, and interleaved variants."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from measured_loads import needs_fio

from storagetest.config.base import WorkloadOptions
from storagetest.errors import ConfigError, WorkloadError
from storagetest.measure.run import METRICS, Sample
from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit
from storagetest.runner import Measurement, MeasurementPhase, PrefillCache, run_interleaved
from storagetest.verdict import ErrorPlan, Outcome, Threshold
from storagetest.workloads.base import LoadSize, Workload
from storagetest.workloads.small_random_write import SmallRandomWrite

SCALE = LoadSize(size=1 << 20, ramp=0.5, runtime=2.0)
STEADY = [1000.0, 1001.0, 999.0] * 4
UNSTEADY = [900.0, 1100.0] * 4


def test_run_has_all_its_metadata(scripted, measure):
    before = time.time()
    result, verdicts = measure(scripted(STEADY), SCALE, "iops >= 500", "iops >= 2000")
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS, Outcome.FAIL]
    assert (result.case, result.workload, result.target, result.variant) == ("test_x", "scripted", "t", "t-v")
    assert (result.protocol, result.client, result.profile) == ("local", "here", "smoke")
    assert result.parameters == {"word": "x"}
    assert result.negotiated == {"fstype": "ext4"}
    assert [sample.values["iops"] for sample in result.samples] == STEADY[:3]
    assert before <= result.started <= time.time()
    assert result.versions["kernel"].split(".")[0].isdigit()
    assert result.versions["sh"] == "sh 5"
    assert "none" not in result.versions  # a tool that is not there is left out


def test_it_fills_first_and_once_an_attachment(scripted, attachment, measure):
    fills, load = PrefillCache(), scripted(STEADY)
    measure(load, SCALE, fills=fills)
    measure(load, SCALE, fills=fills)
    repeats = ["measure 0", "measure 1", "measure 2"]
    assert load.did == ["fill", *repeats, *repeats]
    measure(
        load, SCALE, attachment=replace(attachment), fills=fills
    )  # attached again: an equal value, another attachment
    assert load.did.count("fill") == 2
    fills.forget(attachment)
    measure(load, SCALE, fills=fills)
    assert load.did.count("fill") == 3


def test_a_fill_that_failed_is_tried_again(scripted, measure):
    fills, load = PrefillCache(), scripted(STEADY, fill_fails=True)
    for _ in range(2):
        with pytest.raises(WorkloadError, match="no space"):
            measure(load, SCALE, fills=fills)
    assert load.did == ["fill", "fill"]


def test_it_repeats_until_the_gate_is_decided(scripted, measure):
    noisy = [1000.0, 1100.0, 950.0, 1050.0, 1010.0, 1020.0, 1000.0, 1030.0]
    result, (verdict,) = measure(scripted(noisy), SCALE, "iops >= 950")
    assert verdict.outcome is Outcome.PASS
    assert 3 < len(result.samples) < 8
    assert verdict.interval.count == len(result.samples)


def test_repeats_stop_at_the_budget_with_a_reason(scripted, measure):
    result, (verdict,) = measure(scripted(UNSTEADY), SCALE, "iops >= 1000", max_repeats=5)
    assert len(result.samples) == 5
    assert verdict.outcome is Outcome.INVALID
    assert "after 5 runs" in verdict.reason


def test_one_gate_undecided_is_enough_to_repeat(scripted, measure):
    result, verdicts = measure(scripted(UNSTEADY), SCALE, "iops >= 1", "iops >= 1000", max_repeats=6)
    assert len(result.samples) == 6
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS, Outcome.INVALID]


class Percentile(Workload["Percentile.Options"]):
    """A load with a p99 of 1 ms, at a rate that is given; the first repeat may have another."""

    name = "percentile"
    Options = WorkloadOptions

    def __init__(self, rate: int, first: int | None = None) -> None:
        self.rates = [first or rate, rate]
        self.runtimes: list[float] = []

    def measure(self, attachment, options, scale):
        rate = self.rates[bool(self.runtimes)]
        self.runtimes.append(scale.runtime)
        return Sample({"p99": 1e-3, "iops": float(rate)}, scale.runtime, round(rate * scale.runtime))


def test_repeats_begin_again_and_are_longer_if_a_percentile_has_too_few_ios(measure):
    load = Percentile(1000)
    run, (verdict,) = measure(load, SCALE, "p99 <= 5ms")
    assert verdict.outcome is Outcome.PASS
    assert load.runtimes == [2.0, *[pytest.approx(11 / 3)] * 3]  # 11,000 I/Os, a tenth more than required
    assert len(run.samples) == 3
    assert sum(sample.ios for sample in run.samples) >= 10_000
    assert {sample.evidence["runtime"] for sample in run.samples} == {
        "3.67 s instead of 2.00 s: p99 requires 10,000 I/Os in 3 repeats"
    }


def test_repeats_stay_as_they_are_if_that_is_enough_or_no_budget_would_be(measure):
    for rate, outcome in ((2000, Outcome.PASS), (100, Outcome.INVALID)):
        load = Percentile(rate)
        run, (verdict,) = measure(load, SCALE, "p99 <= 5ms")
        assert (load.runtimes, verdict.outcome) == ([2.0] * 3, outcome)
        assert "runtime" not in run.samples[0].evidence
    load = Percentile(1000)
    measure(load, SCALE, "iops >= 5")
    assert load.runtimes == [2.0] * 3


def test_a_slow_first_repeat_does_not_keep_the_repeats_short(measure):
    load = Percentile(1000, first=100)
    run, (verdict,) = measure(load, SCALE, "p99 <= 5ms", max_repeats=20)
    assert verdict.outcome is Outcome.PASS
    assert load.runtimes[:2] == [2.0, 2.0]
    assert load.runtimes[2] > 2.0
    assert load.runtimes[2:] == [load.runtimes[2]] * len(run.samples)


def test_repeats_that_do_not_end_with_their_runtime_stay_as_they_are(measure, monkeypatch):
    monkeypatch.setattr(Percentile, "is_timed", lambda *_: False)
    load = Percentile(1000)
    measure(load, SCALE, "p99 <= 5ms")
    assert load.runtimes[0] == 2.0
    assert set(load.runtimes) == {2.0}


def test_without_gates_it_measures_the_repeats_asked_for(scripted, measure):
    result, verdicts = measure(scripted(UNSTEADY), SCALE, repeats=2)
    assert (len(result.samples), verdicts) == (2, ())


def test_fewer_repeats_than_a_verdict_takes_are_added_up_to_the_budget(scripted, measure):
    result, (verdict,) = measure(scripted(STEADY), SCALE, "iops >= 500", repeats=1)
    assert (len(result.samples), verdict.outcome) == (3, Outcome.PASS)
    result, (verdict,) = measure(scripted(STEADY), SCALE, "iops >= 500", repeats=1, max_repeats=1)
    assert (len(result.samples), verdict.outcome) == (1, Outcome.INVALID)


def test_a_gate_on_what_is_not_measured_is_a_mistake_in_the_configuration(scripted, measure):
    with pytest.raises(ConfigError, match="p99 was not measured"):
        measure(scripted(STEADY), SCALE, "p99 <= 5ms")


def test_progress_is_reported_before_each_step(scripted, measure):
    events = []
    measure(scripted(UNSTEADY), SCALE, "iops >= 1000", max_repeats=4, on_progress=events.append)
    assert [(event.phase, event.repeat, event.of) for event in events] == [
        (MeasurementPhase.FILL, 0, 0),
        (MeasurementPhase.MEASURE, 1, 3),
        (MeasurementPhase.MEASURE, 2, 3),
        (MeasurementPhase.MEASURE, 3, 3),
        (MeasurementPhase.MEASURE, 4, 4),
        (MeasurementPhase.DONE, 4, 4),
    ]
    assert {event.expected for event in events if event.phase is MeasurementPhase.MEASURE} == {2.5}
    assert [event.elapsed for event in events] == sorted(event.elapsed for event in events)


@needs_fio
def test_the_whole_way_with_a_real_fio(measure):
    scale = LoadSize(size=2 << 20, ramp=0.1, runtime=0.3)
    gates = ("bandwidth >= 1B/s", "p50 <= 1ns")
    options = {"block_size": "4KiB", "queue_depth": 4}
    result, (good, bad) = measure(SmallRandomWrite(), scale, *gates, options=options, max_repeats=3)
    assert good.outcome in (Outcome.PASS, Outcome.INVALID)  # INVALID where this machine is very busy
    assert bad.outcome in (Outcome.FAIL, Outcome.INVALID)
    assert len(result.samples) == 3
    assert len({sample.evidence["argv"] for sample in result.samples}) == 3  # each with its own seed
    assert result.versions["fio"].startswith("fio-")
    assert result.parameters["block_size"] == "4KiB"


def test_invalid_repeat_makes_the_run_invalid(scripted, measure):
    class Doubtful(scripted):  # type: ignore[misc,valid-type]
        headline = ("iops",)

        def measure(self, attachment, options, scale):
            sample = super().measure(attachment, options, scale)
            return replace(sample, invalid=("too slow",) if scale.repeat == 1 else ())

    result, (verdict,) = measure(Doubtful(STEADY), SCALE, "iops >= 500")
    assert result.invalid == ("too slow",)
    assert verdict.outcome is Outcome.INVALID
    assert "too slow" in verdict.reason
    assert result.headline == ("iops",)


TEN_ROUNDS = LoadSize(size=1 << 20, ramp=0.0, runtime=1.0, steady="pts", steady_rounds=10)
FALLING = [900.0, 700, 500, 400, 302, 300, 301, 299, 300, 298, 300, 301]


def test_the_steady_rounds_are_the_run_and_the_others_do_not_count(scripted, measure):
    events = []
    result, (verdict,) = measure(scripted(FALLING), TEN_ROUNDS, "iops >= 250", on_progress=events.append)
    assert [sample.values["iops"] for sample in result.samples] == FALLING[4:9]
    assert verdict.outcome is Outcome.PASS
    assert result.invalid == ()
    assert [event.phase for event in events].count(MeasurementPhase.STEADY_STATE) == 9
    assert MeasurementPhase.MEASURE not in [event.phase for event in events]  # five are more than three


def test_more_repeats_than_the_window_are_measured_after_it(scripted, measure):
    result, _ = measure(scripted(FALLING), TEN_ROUNDS, repeats=7)
    assert [sample.values["iops"] for sample in result.samples] == FALLING[4:11]
    assert "pts, 9 rounds: iops ranges over" in result.samples[-1].evidence["steady state"]


def test_a_target_that_does_not_settle_is_invalid_with_the_figures_and_not_measured_on(scripted, measure):
    load = scripted([1000.0 / (1 + number) for number in range(20)])
    result, (verdict,) = measure(load, TEN_ROUNDS, "iops >= 1")
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
    result, _ = measure(load, replace(TEN_ROUNDS, steady="slope"), repeats=2)
    assert [sample.values["iops"] for sample in result.samples] == [4.0, 5.0]


def test_without_being_asked_nothing_is_waited_for(scripted, measure):
    result, _ = measure(scripted(FALLING), replace(TEN_ROUNDS, steady="none"))
    assert [sample.values["iops"] for sample in result.samples] == FALLING[:3]


QUICK = LoadSize(size=1 << 20, ramp=0.0, runtime=0.1)
SIX_ROUNDS = replace(QUICK, steady="pts", steady_rounds=6)
GATE = Threshold(METRICS["iops"], ">=", 1.5, "iops: a >= 1.5 x b", "", "b")


@pytest.fixture
def pair(scripted, attachment, case):
    def measure(left: list[float], right: list[float], scale: LoadSize = QUICK, max_repeats: int = 8):
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
    did, (left, right, (verdict,)) = pair(*figures, scale=SIX_ROUNDS)
    assert len(did) == 2 + 6 + 5  # the fills, the budget of one, and the window of the other
    assert verdict.outcome is Outcome.INVALID
    assert "no steady state (pts, 6 rounds: iops ranges over " in verdict.reason
    for run in (left, right):
        assert run.samples == ()
        assert "no steady state" in run.invalid[0]
        assert run.invalid[0].startswith(f"{unsteady}: ") == (run.variant != unsteady)


def test_pairs_are_measured_once_both_are_steady(pair):
    _, (left, right, (verdict,)) = pair([200.0] * 12, [100.0] * 12, scale=SIX_ROUNDS)
    assert verdict.outcome is Outcome.PASS
    assert [len(run.samples) for run in (left, right)] == [3, 3]
