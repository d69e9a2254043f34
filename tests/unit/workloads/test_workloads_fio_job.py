"""The command line that fio gets."""

from __future__ import annotations

from storagetest.workloads._fio.job import FIRST, FioJob, argv


def options(job: FioJob) -> dict[str, str]:
    program, *rest = argv(job)
    assert program == "fio"
    return dict(option.removeprefix("--").split("=", 1) for option in rest)


def test_a_timed_job_says_what_runs_how_long_and_how_it_reports():
    job = FioJob(
        "w", "/mnt/f", "randwrite", 4096, 1 << 20, queue_depth=8, jobs=2, ramp=0.25, runtime=10, seed=5
    )
    said = options(job)
    assert said["filename"] == "/mnt/f"
    assert (said["rw"], said["bs"], said["size"]) == ("randwrite", "4096", "1048576")
    assert (said["iodepth"], said["numjobs"], said["direct"], said["ioengine"]) == ("8", "2", "1", "libaio")
    assert (said["time_based"], said["runtime"], said["ramp_time"]) == ("1", "10000ms", "250ms")
    assert (said["randseed"], said["norandommap"], said["refill_buffers"]) == ("5", "1", "1")
    assert (said["group_reporting"], said["output-format"], said["clat_percentiles"]) == ("1", "json+", "1")
    assert said["allow_file_create"] == "0"
    assert "randrepeat" not in said
    assert "end_fsync" not in said


def test_a_pass_over_the_size_has_no_time_and_ends_with_a_sync():
    said = options(FioJob("fill", "/mnt/f", "write", 1 << 20, 1 << 30, create=True))
    assert not {"time_based", "runtime", "ramp_time", "norandommap", "randseed"} & set(said)
    assert (said["end_fsync"], said["allow_file_create"], said["randrepeat"]) == ("1", "1", "0")


def test_without_a_ramp_none_is_asked_for():
    assert "ramp_time" not in options(FioJob("r", "/f", "read", 4096, 4096, runtime=1))


def test_a_colon_in_a_name_does_not_make_two_files_of_it():
    assert options(FioJob("r", "/dev/disk/by-path/ip-10.0.0.1:3260", "read", 512, 512))["filename"] == (
        "/dev/disk/by-path/ip-10.0.0.1\\:3260"
    )


def test_a_mix_says_its_shares():
    mixed = argv(FioJob("x", "/f", "randrw", 4096, 1 << 20, read_percent=70))
    assert "--rwmixread=70" in mixed
    partly = argv(FioJob("x", "/f", "randread", 4096, 1 << 20, random_percent=80))
    assert "--percentage_random=80" in partly


def test_a_scout_goes_with_jobs_that_wait_at_a_door_and_does_one_io_of_the_first():
    load = FioJob(
        "w", "/mnt/f", "randwrite", 4096, 1 << 20, queue_depth=8, jobs=2, runtime=10, log_interval=0.5
    )
    command = argv(load, load, barrier="/run/gate")
    at = [number for number, option in enumerate(command) if option.startswith("--name=")]
    assert [command[number] for number in at] == ["--name=w", "--name=w", f"--name={FIRST}"]
    section = command[at[-1] :]
    said = dict(option.removeprefix("--").split("=", 1) for option in section)
    assert (said["filename"], said["rw"], said["bs"], said["ioengine"]) == (
        "/mnt/f",
        "randwrite",
        "4096",
        "libaio",
    )
    assert (said["number_ios"], said["numjobs"], said["iodepth"], said["time_based"]) == ("1", "1", "1", "0")
    assert said["write_lat_log"] == FIRST
    assert not {"write_bw_log", "write_iops_log", "log_avg_msec"} & set(said)
    waits = [option for option in command if option.startswith("--exec_prerun=")]
    assert len(waits) == 3
    assert all("workers=5;" in option for option in waits)
    assert FIRST not in " ".join(argv(load, load))
