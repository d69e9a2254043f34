"""fio's output as it comes: the right numbers, or an error. Never wrong ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import WorkloadError
from storagetest.workloads._fio.parse import FioResult, parse

# As fio 3.33 printed it: 4 KiB randwrite at depth 8 for 0.5 s after a ramp of 0.2 s.
CLEAN = (Path(__file__).parent / "fio-3.33-randwrite.json").read_text()
LINES = CLEAN.splitlines()
IO_ERROR = "fio: io_u error on file /dev/sdb: Input/output error: write offset=184912257024, buflen=4096"
PID = "fio: pid=5509, err=5/file:io_u.c:1896, func=io_u error, error=Input/output error"
NOTE = "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1"


def read(stdout: str, stderr: str = "", direction: str = "write", runtime: float | None = 0.5) -> FioResult:
    return parse(stdout, stderr, (direction,), runtime=runtime, in_flight=8)


def changed(**members: Any) -> str:
    """The clean report with members of its write section (or, ``job_…``, of its job) replaced."""
    report = json.loads(CLEAN)
    job = report["jobs"][0]
    for name, value in members.items():
        if name.startswith("job_"):
            job[name.removeprefix("job_")] = value
        elif name == "bins":
            job["write"]["clat_ns"]["bins"] = value
        else:
            job["write"][name] = value
    return json.dumps(report, indent=2)


RIGHT = read(CLEAN)


def test_the_numbers_are_fios():
    write = json.loads(CLEAN)["jobs"][0]["write"]
    assert (RIGHT.ios, RIGHT.bytes) == (write["total_ios"], write["io_bytes"])
    assert RIGHT.seconds == write["runtime"] / 1000
    assert RIGHT.ios / RIGHT.seconds == pytest.approx(write["iops"])
    assert RIGHT.latency_mean == pytest.approx(write["clat_ns"]["mean"] * 1e-9)
    assert RIGHT.version == "fio-3.33"
    for percent, ns in write["clat_ns"]["percentile"].items():
        assert RIGHT.latency.percentile(float(percent) / 100) == pytest.approx(ns * 1e-9)


MIDDLE = len(LINES) // 2


@pytest.mark.parametrize(
    "dirty",
    [
        f"{IO_ERROR}\n{PID}\n{CLEAN}",
        f"{NOTE}\n{CLEAN}",
        f"fio: /dev/sda exceeds 32-bit tausworthe.\nfio: Switching to tausworthe64.\n{CLEAN}",
        f"{CLEAN}\n{NOTE}\n",
        f"{CLEAN}}}\n",
        f"{NOTE}{CLEAN}",
        "\n".join([*LINES[:MIDDLE], IO_ERROR, PID, *LINES[MIDDLE:]]),
        "\n".join([LINES[0], NOTE, *LINES[1:-1], NOTE, LINES[-1]]),
        "\n\n" + CLEAN.replace("\n", "\r\n"),
        json.dumps(json.loads(CLEAN), indent=4),
    ],
    ids=[
        "before",
        "note",
        "tausworthe",
        "after",
        "brace after",
        "glued",
        "inside",
        "edges",
        "crlf",
        "indent",
    ],
)
def test_diagnostics_around_and_inside_do_not_matter(dirty):
    assert read(dirty) == RIGHT


@pytest.mark.parametrize(
    ("stdout", "stderr", "message"),
    [
        ("", "", "no report"),
        ("", "fio: engine nosuch not loadable\nfio: failed to load engine", "fio: failed to load engine"),
        ("fio: unrecognized option '--bogus=1'\n", "", "unrecognized option"),
        ("Killed\n", "", "Killed"),
        (CLEAN[: len(CLEAN) // 2], "", "breaks off"),
        (CLEAN[:-3], "Killed", "breaks off"),
        (CLEAN + CLEAN, "", "2 reports"),
        ("{\n}\n", "", "fio version"),
        ("{\n  oops\n}\n", "", "damaged"),
        ("{\n" + "[" * 100_000 + "\n}\n", "", "cannot be trusted|damaged"),
        (CLEAN.replace('"iops" :', '"iops" : 1, "iops_was" :'), "", "contradicts itself"),
        (CLEAN.replace('"jobs" : [', '"jobs" : [{},'), "", "2 jobs"),
        (CLEAN.replace("fio-3.33", "fio-2.16"), "", "fio-2.16 is too old: fio 3.7 or newer"),
        (CLEAN.replace('"bins" :', '"binned" :'), "", "no latency bins"),
        (changed(job_error=5), IO_ERROR, "Input/output error .EIO.(.|\n)*offset=184912257024"),
        (changed(job_error=-3), "", "cannot be trusted"),
        (changed(total_ios=0, io_bytes=0), "", "no I/O"),
        (changed(io_bytes=0), "", "no I/O"),
        (changed(runtime=0), "", "ended early"),
        (changed(runtime=400), "", "measured 0.4 s of 0.5 s"),
        (changed(iops=1.0), "", "I/O rate 1 against"),
        (changed(bw_bytes=7), "", "bandwidth"),
        (changed(bw_bytes=-7), "", "bw_bytes is -7"),
        (changed(iops=float("nan")), "", "iops is nan"),
        (changed(iops=None), "", "iops is None"),
        (changed(iops="64k"), "", "iops is '64k'"),
        (changed(total_ios=True), "", "total_ios is True"),
        (changed(total_ios=RIGHT.ios * 2, iops=RIGHT.ios * 2 / RIGHT.seconds), "", "count of latencies 136"),
        (changed(bins={}), "", "0 in bins"),
        (changed(bins={"1000000000": RIGHT.ios}), "", "not a bucket"),
        (changed(bins={"100": RIGHT.ios}), "", "latencies, 13628 in bins"),
        (changed(bins={"100": RIGHT.latency.count}), "", "p50 is not that of its bins"),
        (
            CLEAN.replace('"percentile" : {', '"percentile" : {}, "was" : {').replace(
                '"mean" : ', '"mean" : 9'
            ),
            "",
            "mean",
        ),
        (changed(bins={"101": 1, "100": 1}), "", "not in order"),
        (CLEAN.replace("fio-3.33", "fio-new"), "", "fio version is 'fio-new'"),
        (changed(bins=[1, 2]), "", "cannot be trusted"),
        (changed(clat_ns=None), "", "cannot be trusted"),
        (changed(job_write=None), "", "cannot be trusted"),
    ],
)
def test_what_cannot_be_believed_is_an_error_that_shows_the_last_lines(stdout, stderr, message):
    with pytest.raises(WorkloadError, match=message):
        read(stdout, stderr)


def test_the_other_direction_did_nothing():
    with pytest.raises(WorkloadError, match="no I/O"):
        read(CLEAN, direction="read")


def test_a_pass_over_the_size_may_take_any_time():
    assert read(CLEAN, runtime=None) == RIGHT


def test_a_run_of_less_than_nine_tenths_is_short():
    assert read(CLEAN, runtime=0.55) == RIGHT
    with pytest.raises(WorkloadError, match="ended early"):
        read(CLEAN, runtime=0.6)


@settings(deadline=None)
@given(
    st.integers(0, len(CLEAN)),
    st.sampled_from([IO_ERROR, PID, NOTE, "{", "}", "\n{\n", "\n}\n", "\n7\n", '"']),
)
def test_text_thrown_in_anywhere_never_changes_a_number(place, text):
    """Glued or on lines of its own, as two writers to one file leave it."""
    for noise in (text, f"{text}\n", f"\n{text}\n"):
        try:
            result = read(CLEAN[:place] + noise + CLEAN[place:])
        except WorkloadError:
            continue
        assert replace(result, latency_mean=RIGHT.latency_mean) == RIGHT
        assert result.latency_mean == pytest.approx(
            RIGHT.latency_mean, rel=0.03
        )  # a digit far behind the point


@settings(deadline=None)
@given(st.integers(0, len(CLEAN)), st.integers(1, 400))
def test_a_piece_that_is_missing_never_changes_a_number(place, length):
    try:
        result = read(CLEAN[:place] + CLEAN[place + length :])
    except WorkloadError:
        return
    assert replace(result, latency_mean=0, latency=RIGHT.latency) == replace(RIGHT, latency_mean=0)
    assert result.latency_mean == pytest.approx(RIGHT.latency_mean, rel=0.03)
    for q in (0.5, 0.95, 0.99, 0.999):
        assert result.latency.percentile(q) == RIGHT.latency.percentile(q)


def test_a_time_that_its_two_members_disagree_on_is_no_time():
    report = json.loads(CLEAN)
    assert RIGHT.ended == report["timestamp_ms"] / 1000
    for wrong in (report["timestamp_ms"] + 5000, None, str(report["timestamp_ms"])):
        assert read(json.dumps({**report, "timestamp_ms": wrong}, indent=2)).ended is None
