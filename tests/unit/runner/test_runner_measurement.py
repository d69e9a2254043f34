"""One case: what is done in which order, and how often."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from measured_loads import needs_fio

from storagetest.errors import ConfigError, WorkloadError
from storagetest.runner import MeasurementPhase, PrefillCache
from storagetest.verdict import Outcome
from storagetest.workloads.base import LoadSize
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
        (MeasurementPhase.CEILING, 0, 0),
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
