"""The agent's loads on the oldest Python that it supports, and its latency bins."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.agent import latency_bins
from storagetest.agent.commands.loads.streaming import _Reader
from storagetest.agent.op_log import BackToBackOpLog, OpLog
from storagetest.measure.histogram import RELATIVE_ERROR, Histogram

MIB = 1 << 20


def fill(path: Path, **more):
    request = {"command": "loads.fill", "deadline": 30, "path": str(path), "size": 2 * MIB + 5, "seed": 1}
    return {**request, **more}


@pytest.fixture
def data(ask, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    assert ask(fill(path, make=True))["value"] == {"size": 2 * MIB + 5}
    return path


def play(path: Path, **more):
    request = {"command": "loads.streaming", "deadline": 30, "path": str(path), "streams": 2, "frame": 4096,
               "size": MIB, "rate": 50.0, "seconds": 0.2, "within": 5.0, "direct": False}  # fmt: skip
    return {**request, **more}


def work(path: Path, **more):
    request = {"command": "loads.database", "deadline": 30, "path": str(path), "logs": str(path.parent),
               "log": MIB, "data": 2 * MIB, "record": 4096, "page": 8192, "workers": 2, "read_percent": 50,
               "direct": False, "seconds": 0.2, "seed": 1}  # fmt: skip
    return {**request, **more}


def test_fill_without_make_does_not_create_the_file(ask, tmp_path):
    line = ask(fill(tmp_path / "x", make=False))
    assert (line["t"], line["errno"]) == ("error", "ENOENT")
    assert list(tmp_path.iterdir()) == []


def test_every_frame_is_read_at_its_due_time(ask, data):
    value = ask(play(data))["value"]
    logs = value["phases"]["play"]["operations"]
    assert [reader["read"] for reader in value["readers"]] == [10, 10]
    assert sum(logs["response"]["bins"].values()) == logs["service"]["ops"] == 20
    assert logs["service"]["bytes"] == 20 * 4096
    assert value["phases"]["play"]["span"] >= 9 / 50


def test_a_file_that_ends_too_early_is_an_error(ask, data):
    os.truncate(data, MIB)
    line = ask(play(data))
    assert line["t"] == "error"
    assert "no whole frame at" in line["message"]


def test_commits_and_pages_run_concurrently_and_the_log_is_removed(ask, data):
    logs = ask(work(data))["value"]["phases"]["work"]["operations"]
    assert all(logs[name]["ops"] for name in ("commit", "page_read", "page_write"))
    assert logs["commit"]["total_bytes"] == 4096 * logs["commit"]["total"]
    assert list(data.parent.iterdir()) == [data]
    assert data.stat().st_size == 2 * MIB + 5


def test_on_a_device_the_log_stays_before_the_pages(ask, data):
    before = data.read_bytes()
    ask(work(data, logs=None, data=MIB, read_percent=100, seed=7))
    after = data.read_bytes()
    assert after[MIB:] == before[MIB:]
    assert after[:4096] != before[:4096]


@pytest.mark.parametrize(
    ("waits", "achieved"),
    [
        ([0] * 100, 1.0),
        ([0] * 50 + [300] * 3 + [0] * 47, 1.0),  # a stall that it caught up with
        ([0] * 99 + [300], 1.0),  # a stall at the very end
        ([10 * n for n in range(100)], 0.84),  # 25 % too slow throughout, at least 760 ms late at the end
        ([0] * 50, 0.5),  # half of the frames were abandoned
        ([0], 0.0),  # one frame is no rate
    ],
    ids=["never late", "a stall", "a late stall", "too slow", "half", "one"],
)
def test_a_reader_reaches_its_rate_if_it_catches_up(waits, achieved):
    """A hundred frames, 25 per second; ``waits`` is the delay of each start in milliseconds."""
    reader = _Reader(play(Path("/none"), rate=25.0, seconds=4.0), 0)
    for wait in waits:
        reader.service.ends.append(0)
        reader.service.latencies.append(5_000_000)
        reader.response.ends.append(0)
        reader.response.latencies.append(5_000_000 + wait * 1_000_000)
    assert reader.achieved() == pytest.approx(achieved, abs=0.01)


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
    log = op_log((5, 11, 20, 21, 45, 50), (7, 7, 100, 100, 1000, 1001))
    report = log.report(10, 50, 10)  # 11 and 20 end in the first ten after 10, 21 in the second
    assert report["timeline"] == {
        0: {7: 1, 100: 1},
        1: {100: 1},
        3: {992: 2},
    }  # 960 to 1023 are one coarse bin
    assert sum(sum(bins.values()) for bins in report["timeline"].values()) == report["ops"] == 5


@pytest.mark.parametrize("ns", [0, 15, 16, 1000, 10**6, 10**10])
def test_a_coarse_bin_is_near_its_latencies(ns):
    assert abs(latency_bins.middle(ns, latency_bins.COARSE) - ns) <= ns / 16


def test_a_chain_counts_nothing_between_its_segments():
    chain = BackToBackOpLog()
    for stamps in ((100, 103, 107), (1000,), (2000, 2010)):
        segment = chain.segment()
        del segment[:]
        segment.extend(stamps)
    assert (chain.count, chain.last) == (3, 2010)
    assert chain.report(0, 5000) == {"ops": 3, "total": 3, "bins": {3: 1, 4: 1, 10: 1}}
