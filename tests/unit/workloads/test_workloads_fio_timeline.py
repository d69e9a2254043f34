"""fio's averaged logs as series."""

from __future__ import annotations

import pytest
from measured_loads import measured, needs_fio

from storagetest.workloads._fio.timeline import began, first_io, timeline
from storagetest.workloads.base import LoadSize
from storagetest.workloads.random_mixed import RandomMixed

LOGS = "\n".join(
    f"load_{kind}.log\0{at}, {value}, {way}, 4096, 0"
    for kind, at, value, way in [
        ("iops", 11000, 100, 0),
        ("iops", 11001, 300, 0),
        ("bw", 11000, 400, 0),
        ("bw", 11001, 1200, 0),
        ("clat", 11000, 1000, 0),
        ("clat", 11001, 2000, 0),
        ("iops", 12003, 50, 0),
        ("iops", 12003, 7, 1),
        ("iops", 11000, 9, 2),
    ]
)


def test_workers_rates_are_added_and_latencies_averaged_by_their_ios():
    found = {one.name: (one.times, one.values) for one in timeline(LOGS, "c", start=10.0, interval=1.0)}
    assert found == {
        "read IOPS": ((1.0, 2.0), (400.0, 50.0)),
        "read bandwidth": ((1.0,), (1600 * 1024.0,)),
        "read latency": ((1.0,), (pytest.approx(1750e-9),)),
        "write IOPS": ((2.0,), (7.0,)),
    }


def test_the_measuring_began_an_interval_before_the_first_line():
    assert began(LOGS, 1.0) == 10.0
    assert began("", 1.0) is None


@pytest.mark.parametrize(
    "text",
    ["", "load_bw.log\0", "load_bw.log\0a, b, 0, 1", "load_bw.log\x001, 2", "junk", "load_bw.log\x001,,0,1"],
)
def test_a_half_written_log_has_fewer_points_and_is_no_error(text):
    assert timeline(text, "c", start=0.0, interval=1.0) == ()


@needs_fio
def test_a_real_fios_course_agrees_with_its_report(directory):
    scale = LoadSize(size=4 << 20, ramp=0.3, runtime=1.5, interval=0.5)
    sample = measured(RandomMixed(), directory, {"engine": "psync", "queue_depth": 1, "jobs": 2}, scale)
    named = {one.name: one for one in sample.series}
    assert set(named) >= {"read IOPS", "write IOPS", "read bandwidth", "read latency"}
    reads, writes = named["read IOPS"], named["write IOPS"]
    both = [read + write for read, write in zip(reads.values, writes.values, strict=False)]
    assert min(both) * 0.5 <= sample.values["iops"] <= max(both) * 1.5
    assert reads.times[0] == 0.5
    assert sample.began is not None


def test_the_first_io_is_when_the_scout_submitted_its_own():
    text = (
        "load_clat.log\x001700000001000, 5, 1, 0, 0\nfirst_clat.log\x001700000000500, 20000000, 1, 4096, 0\n"
    )
    assert first_io(text) == pytest.approx(1700000000.48, abs=1e-6)
    assert first_io("load_clat.log\x001700000001000, 5, 1, 0, 0\n") is None
