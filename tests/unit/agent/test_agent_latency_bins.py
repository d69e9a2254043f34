"""The agent's latency bins are those of ``Histogram``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storagetest.agent import latency_bins
from storagetest.agent.op_log import BackToBackOpLog, OpLog
from storagetest.measure.histogram import RELATIVE_ERROR, Histogram

LATENCIES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**35)), max_size=50)


@given(LATENCIES)
def test_the_bins_are_those_of_the_histogram(latencies):
    counted = Histogram.from_fio_bins(latency_bins.count(latencies))
    assert counted.count == len(latencies)
    assert counted == Histogram.of(ns * 1e-9 for ns in latencies)


@given(st.integers(1, 2**34 - 1))
def test_a_bin_is_within_the_stated_error(ns):
    assert abs(latency_bins.middle(ns) - ns) <= ns * RELATIVE_ERROR


@given(LATENCIES, LATENCIES)
def test_merged_histograms_equal_the_histogram_of_all(some, others):
    merged = Histogram.from_fio_bins(latency_bins.count(some)) + Histogram.from_fio_bins(
        latency_bins.count(others)
    )
    assert merged == Histogram.from_fio_bins(latency_bins.count(some + others))


def op_log(ends, latencies, sizes=None) -> OpLog:
    log = OpLog(sized=sizes is not None)
    log.ends.extend(ends)
    log.latencies.extend(latencies)
    if sizes is not None:
        log.sizes.extend(sizes)
    return log


def test_an_op_log_reports_operations_that_ended_in_the_window():
    log = op_log((10, 20, 30), (3, 4, 5), (100, 200, 400))
    counts = {"ops": 2, "total": 3, "bytes": 600, "total_bytes": 700}
    assert log.report(10, 30) == {**counts, "bins": {4: 1, 5: 1}}
    assert log.last == 30
    assert OpLog().last == 0


def test_the_timeline_counts_operations_that_ended_in_each_slot():
    log = op_log((5, 11, 20, 21, 45, 50), [1] * 6)
    report = log.report(10, 50, 10)  # 11 and 20 end in the first ten after 10, 21 in the second
    assert report["timeline"] == {0: 2, 1: 1, 3: 2}
    assert sum(report["timeline"].values()) == report["ops"] == 5


def test_a_chain_counts_nothing_between_its_segments():
    chain = BackToBackOpLog()
    for stamps in ((100, 103, 107), (1000,), (2000, 2010)):
        segment = chain.segment()
        del segment[:]
        segment.extend(stamps)
    assert (chain.count, chain.last) == (3, 2010)
    assert chain.report(0, 5000) == {"ops": 3, "total": 3, "bins": {3: 1, 4: 1, 10: 1}}
