"""fio: its command line, its report, and its averaged logs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_loads import measured, needs_fio

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import BUCKETS, LONGEST, bucket, bucket_start
from storagetest.workloads._fio.job import FIRST, Division, FioJob, argv
from storagetest.workloads._fio.latency_intervals import percentiles_over_time
from storagetest.workloads._fio.parse import FioResult, parse
from storagetest.workloads._fio.timeline import began, first_io, timeline
from storagetest.workloads.base import LoadSize
from storagetest.workloads.random_mixed import RandomMixed

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
            job["write"]["lat_ns"]["bins"] = value
        else:
            job["write"][name] = value
    return json.dumps(report, indent=2)


RIGHT = read(CLEAN)


def test_the_numbers_are_fios():
    write = json.loads(CLEAN)["jobs"][0]["write"]
    assert (RIGHT.ios, RIGHT.bytes) == (write["total_ios"], write["io_bytes"])
    assert RIGHT.seconds == write["runtime"] / 1000
    assert RIGHT.ios / RIGHT.seconds == pytest.approx(write["iops"])
    assert RIGHT.latency_mean == pytest.approx(write["lat_ns"]["mean"] * 1e-9)
    assert RIGHT.version == "fio-3.33"
    for percent, ns in write["lat_ns"]["percentile"].items():
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
        ("", "fio: unrecognized option '--slat_percentiles=1'\n", "this fio is too old: fio 3.19 or newer"),
        ("Killed\n", "", "Killed"),
        (CLEAN[: len(CLEAN) // 2], "", "breaks off"),
        (CLEAN[:-3], "Killed", "breaks off"),
        (CLEAN + CLEAN, "", "2 reports"),
        ("{\n}\n", "", "fio version"),
        ("{\n  oops\n}\n", "", "damaged"),
        ("{\n" + "[" * 100_000 + "\n}\n", "", "cannot be trusted|damaged"),
        (CLEAN.replace('"iops" :', '"iops" : 1, "iops_was" :'), "", "contradicts itself"),
        (CLEAN.replace('"jobs" : [', '"jobs" : [{},'), "", "2 jobs"),
        (CLEAN.replace("fio-3.33", "fio-2.16"), "", "fio-2.16 is too old: fio 3.19 or newer"),
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
        (changed(total_ios=RIGHT.ios * 2, iops=RIGHT.ios * 2 / RIGHT.seconds), "", "count of latencies 42"),
        (changed(bins={}), "", "0 in bins"),
        (changed(bins={"1000000000": RIGHT.ios}), "", "not a bucket"),
        (changed(bins={"100": RIGHT.ios}), "", "latencies, 4230 in bins"),
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
        (changed(lat_ns=None), "", "cannot be trusted"),
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


def parsed(words: list[str]) -> dict[str, str]:
    return dict(option.removeprefix("--").split("=", 1) for option in words)


def options(job: FioJob) -> dict[str, str]:
    program, *rest = argv(job)
    assert program == "fio"
    return parsed(rest)


def test_timed_job_has_pattern_duration_and_report_options():
    job = FioJob(
        "w", "/mnt/f", "randwrite", 4096, 1 << 20, queue_depth=8, jobs=2, ramp=0.25, runtime=10, seed=5
    )
    given = options(job)
    pattern = {"filename": "/mnt/f", "rw": "randwrite", "bs": "4096", "size": "1048576", "randseed": "5"}
    engine = {"iodepth": "8", "numjobs": "2", "direct": "1", "ioengine": "libaio", "allow_file_create": "0"}
    times = {"time_based": "1", "runtime": "10000ms", "ramp_time": "250ms"}
    data = {"norandommap": "1", "refill_buffers": "1"}
    report = {"group_reporting": "1", "output-format": "json+", "lat_percentiles": "1"}
    assert given.items() >= {**pattern, **engine, **times, **data, **report}.items()
    assert "randrepeat" not in given
    assert "end_fsync" not in given


def test_a_pass_over_the_size_has_no_time_and_ends_with_a_sync():
    given = options(FioJob("fill", "/mnt/f", "write", 1 << 20, 1 << 30, create=True))
    assert not {"time_based", "runtime", "ramp_time", "norandommap", "randseed"} & set(given)
    assert (given["end_fsync"], given["allow_file_create"], given["randrepeat"]) == ("1", "1", "0")


def test_without_a_ramp_none_is_asked_for():
    assert "ramp_time" not in options(FioJob("r", "/f", "read", 4096, 4096, runtime=1))


def test_a_colon_in_a_name_does_not_make_two_files_of_it():
    assert options(FioJob("r", "/dev/disk/by-path/ip-10.0.0.1:3260", "read", 512, 512))["filename"] == (
        "/dev/disk/by-path/ip-10.0.0.1\\:3260"
    )


def test_workers_with_files_of_their_own_are_given_a_directory_and_numbered_names():
    job = FioJob("r", "/mnt/a:b/f.$jobnum.dat", "read", 512, 512, jobs=2, division=Division.FILE)
    given = options(job)
    assert (given["directory"], given["filename_format"]) == ("/mnt/a\\:b", "f.$jobnum.dat")
    assert "filename" not in given
    assert (job.files, job.data_size) == (("/mnt/a:b/f.0.dat", "/mnt/a:b/f.1.dat"), 1024)


def test_workers_with_parts_begin_one_behind_the_other():
    given = options(FioJob("r", "/dev/x", "read", 512, 1024, jobs=2, offset=4096, division=Division.PART))
    assert (given["offset"], given["offset_increment"], given["size"]) == ("4096", "1024", "1024")


def test_mix_has_its_shares():
    assert options(FioJob("x", "/f", "randrw", 4096, 1 << 20, read_percent=70))["rwmixread"] == "70"
    partly = options(FioJob("x", "/f", "randread", 4096, 1 << 20, random_percent=80))
    assert partly["percentage_random"] == "80"


def test_jobs_at_a_barrier_have_a_worker_for_the_first_io():
    load = FioJob(
        "w", "/mnt/f", "randwrite", 4096, 1 << 20, queue_depth=8, jobs=2, runtime=10, log_interval=0.5
    )
    command = argv(load, load, barrier="/run/gate")
    at = [number for number, option in enumerate(command) if option.startswith("--name=")]
    assert [command[number] for number in at] == ["--name=w", "--name=w", f"--name={FIRST}"]
    given = parsed(command[at[-1] :])
    pattern = {"filename": "/mnt/f", "rw": "randwrite", "bs": "4096", "ioengine": "libaio"}
    one_io = {"number_ios": "1", "numjobs": "1", "iodepth": "1", "time_based": "0", "write_lat_log": FIRST}
    assert given.items() >= {**pattern, **one_io}.items()
    assert not {"write_bw_log", "write_iops_log", "log_avg_msec"} & set(given)
    waits = [option for option in command if option.startswith("--exec_prerun=")]
    assert len(waits) == 3
    assert all("workers=5;" in option for option in waits)
    assert FIRST not in " ".join(argv(load, load))


LOGS = "\n".join(
    f"load_{kind}.log\0{at}, {value}, {way}, 4096, 0"
    for kind, at, value, way in [
        ("iops", 11000, 100, 0),
        ("iops", 11001, 300, 0),
        ("bw", 11000, 400, 0),
        ("bw", 11001, 1200, 0),
        ("lat", 11000, 1000, 0),
        ("lat", 11001, 2000, 0),
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
    text = "load_lat.log\x001700000001000, 5, 1, 0, 0\nfirst_lat.log\x001700000000500, 20000000, 1, 4096, 0\n"
    assert first_io(text) == pytest.approx(1700000000.48, abs=1e-6)
    assert first_io("load_lat.log\x001700000001000, 5, 1, 0, 0\n") is None


def hist(time: int, direction: int, counts: dict[int, int], size: int = 464) -> str:
    return f"load_clat_hist.log\0{time}, {direction}, 4096, " + ", ".join(
        str(counts.get(n, 0)) for n in range(size)
    )


def test_percentiles_of_an_interval_come_from_the_merged_counts_of_its_workers():
    # Count 100 is buckets 400 to 403, count 200 is buckets 800 to 803.
    fast, slow = bucket_start(400), bucket_start(800)
    text = "\n".join(
        [
            hist(11000, 0, {100: 60}),
            hist(11003, 0, {100: 35, 200: 5}),
            hist(12000, 0, {200: 99}),
            hist(12000, 1, {100: 1}),
            hist(13000, 1, {100: 2}),
            hist(9000, 0, {100: 500}),  # before the measuring
        ]
    )
    found = {one.name: one for one in percentiles_over_time(text, "c", start=10.0, interval=1.0)}
    assert set(found) == {"read completion p50", "read completion p99", "write completion p50"}
    median, p99 = found["read completion p50"], found["read completion p99"]
    assert (median.source, median.host, median.times) == ("latency", "c", (1.0, 2.0))
    assert fast * 1e-9 <= median.values[0] <= fast * 1.0625e-9
    assert slow * 1e-9 <= median.values[1] <= slow * 1.0625e-9
    assert p99.times == (1.0,)  # 99 I/Os have no p99
    assert slow * 1e-9 <= p99.values[0] <= slow * 1.0625e-9
    assert found["write completion p50"].times == (3.0,)  # one I/O has no median


@pytest.mark.parametrize("rest", ["", "1", "a, 0, 4096, 1", "11000, 0, 4096, 1, 2, 3", "11000, 2, 4096, 1"])
def test_a_damaged_line_of_the_histogram_log_is_left_out(rest):
    assert percentiles_over_time(f"load_clat_hist.log\0{rest}", "c", start=10.0, interval=1.0) == ()


def test_buckets_are_those_of_the_histogram():
    starts = [bucket_start(index) for index in range(BUCKETS + 1)]
    assert starts == sorted(set(starts))
    assert all(starts[n] <= bucket(starts[n]) < starts[n + 1] for n in range(BUCKETS))
    assert starts[-1] * 1e-9 == LONGEST


def test_many_workers_have_fewer_intervals():
    job = FioJob("x", "/f", "randrw", 4096, 1 << 20, jobs=250, runtime=30.0, log_interval=1.0)
    assert job.histogram_interval == 15.0
    assert "--log_hist_msec=15000" in argv(job)
    assert not [option for option in argv(replace(job, log_interval=0.0)) if "hist" in option]


@needs_fio
def test_a_real_fios_intervals_agree_with_its_histogram(directory):
    scale = LoadSize(size=4 << 20, ramp=0.3, runtime=1.5, interval=0.5)
    sample = measured(RandomMixed(), directory, {"engine": "psync", "queue_depth": 1, "jobs": 2}, scale)
    named = {one.name: one for one in sample.series if one.source == "latency"}
    median = named["read completion p50"]
    assert median.times[0] == 0.5
    assert len(median.times) >= 2
    whole = sample.latency
    assert whole.percentile(1e-6) * 0.9 <= min(median.values)
    assert max(median.values) <= whole.percentile(1.0) * 1.1
