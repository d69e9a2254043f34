"""The command line that fio gets."""

from __future__ import annotations

from storagetest.workloads._fio.job import FIRST, FioJob, argv


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
    report = {"group_reporting": "1", "output-format": "json+", "clat_percentiles": "1"}
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
