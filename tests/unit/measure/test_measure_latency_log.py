"""fio's log of every I/O: the same histogram as from the numbers, or an error that names the line."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_loads import needs_fio

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import Histogram, bucket
from storagetest.measure.latency_log import LatencyLog, parse, read


def plain(values: list[int]) -> Histogram:
    return Histogram.from_fio_bins(Counter(bucket(ns) for ns in values))


def lines(rows: list[tuple[int, int]], tail: str = ", 4096, 0") -> bytes:
    return "".join(f"{at}, {ns}, {way}{tail}\n" for at, (ns, way) in enumerate(rows)).encode()


rows_of_a_log = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 300), st.integers(0, 10**9), st.integers(0, 10**16 - 1)), st.integers(0, 2)
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(
    rows_of_a_log, st.sampled_from([", 4096, 0", ", 512, 1073741824, 0x7fff", ", 4096"]), st.integers(1, 90)
)
def test_it_is_the_histogram_of_the_numbers_however_the_log_is_cut(rows, tail, size):
    text = lines(rows, tail)
    found = parse(text[at : at + size] for at in range(0, len(text), size))
    assert found.lines == len(rows)
    for way, name in enumerate(("read", "write", "trim")):
        mine = [ns for ns, one in rows if one == way]
        assert found.directions.get(name, Histogram()) == plain(mine)
    assert found.all == plain([ns for ns, _ in rows])


@pytest.mark.parametrize(
    "ns", [*range(260), *(2**power + off for power in range(7, 50) for off in (-1, 0, 1))]
)
def test_every_edge_of_a_bucket(ns):
    assert parse([lines([(ns, 0)])]).directions == {"read": plain([ns])}


GOOD = lines([(1000 + at, at % 2) for at in range(5)])


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (b"2, 1002, 0", b"2, 1002", 3, "expected 5 columns"),
        (b"2, 1002, 0", b"2, 1002, 0, 7", 3, "expected 5 columns"),
        (b"2, 1002, 0, 4096, 0\n", b"\n", 3, "expected 5 columns"),
        (b"4096, 0\n3, 1003, 1, 4096, 0", b"4096\n3, 1003, 1, 4096, 0, 0", 3, "expected 5 columns"),
        (b"1, 1001", b"1, -001", 2, "not part of a number"),
        (b"1, 1001", b"1, 10.1", 2, "not part of a number"),
        (b"1, 1001", b"1, 1e01", 2, "not a number"),
        (b"1, 1001", b"1, 10 1", 2, "a missing or an unexpected space"),
        (b"1, 1001", b"1,1001", 2, "a missing or an unexpected space"),
        (b"1, 1001", b"1,  1001", 2, "a missing or an unexpected space"),
        (b"1, 1001", b"1, ", 2, "not a latency"),
        (b"1, 1001", b"1, 12345678901234567", 2, "not a latency"),
        (b"3, 1003, 1", b"3, 1003, 3", 4, "not a direction"),
        (b"3, 1003, 1", b"3, 1003, 11", 4, "not a direction"),
        (b"3, 1003, 1", b"3, 1003, ", 4, "not a direction"),
        (b"4096, 0\n4,", b"fio: error, 4096, 0\n4,", 4, ""),
    ],
)
def test_error_of_a_damaged_log_names_its_line(old, new, line, message):
    assert old in GOOD
    for log in (GOOD.replace(old, new), GOOD.replace(old, new) * 3):
        with pytest.raises(WorkloadError, match=rf"^x\.log:{line}: .*{message}"):
            parse([log], "x.log")


def test_an_end_in_the_middle_of_a_line_is_an_error():
    for end in range(1, len(GOOD)):
        if GOOD[end - 1 : end] != b"\n":
            with pytest.raises(WorkloadError, match=r"middle of a line|columns|direction|latency"):
                parse([GOOD[:end]])


def test_a_line_without_an_end_does_not_fill_the_memory():
    with pytest.raises(WorkloadError, match="x:1: the line does not end"):
        parse((b"1" * 900 for _ in range(10**9)), "x")


def test_too_few_columns_are_no_latency_log():
    with pytest.raises(WorkloadError, match=":1: 2 columns are too few"):
        parse([b"1, 2\n"])


def test_an_empty_log_has_no_lines(tmp_path: Path):
    (tmp_path / "a.log").touch()
    assert read(tmp_path / "a.log") == LatencyLog(0, {})
    with pytest.raises(WorkloadError, match=r"b\.log: No such file"):
        read(tmp_path / "b.log")


@needs_fio
@pytest.mark.parametrize("more", [[], ["--log_offset=1"]], ids=["plain", "offset"])
def test_a_real_fios_log_has_the_bins_of_its_report(tmp_path: Path, more: list[str]):
    job = ["--name=x", "--filename=data", "--size=1M", "--bs=4k", "--rw=randrw", "--ioengine=psync"]
    logs = ["--write_lat_log=x", "--per_job_logs=0", "--output-format=json+", "--output=out.json"]
    subprocess.run(["fio", *job, *logs, *more], cwd=tmp_path, check=True, capture_output=True)
    report = json.loads((tmp_path / "out.json").read_text())["jobs"][0]
    found = read(tmp_path / "x_clat.log").directions
    for way in ("read", "write"):
        assert found[way] == Histogram.from_fio_bins(report[way]["clat_ns"]["bins"])
