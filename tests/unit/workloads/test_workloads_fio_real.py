"""The workloads with a real fio on a directory, and on a file that stands in for a device."""

import json
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import assert_filled, measured, needs_fio

from storagetest.errors import ClientLacks, WorkloadError
from storagetest.hosts import LocalHost
from storagetest.measure.run import METRICS
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.workloads._fio import base
from storagetest.workloads._fio.job import Division, FioJob
from storagetest.workloads._fio.run import run_fio
from storagetest.workloads.base import LoadSize
from storagetest.workloads.mixed_access import MixedAccess
from storagetest.workloads.random_mixed import RandomMixed
from storagetest.workloads.sequential import Sequential
from storagetest.workloads.small_random_read import SmallRandomRead
from storagetest.workloads.small_random_write import SmallRandomWrite

sys.path.insert(0, str(Path(__file__).parents[2] / "mutants"))
import fuse_mount

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0.1, runtime=0.3)
WRITE = SmallRandomWrite()
STREAM = Sequential()


def file_of(attachment: Attachment) -> Path:
    return Path(attachment.path) / f"storagetest-{SCALE.size}.dat"


@needs_fio
@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (WRITE, {}),
        (WRITE, {"block_size": "16KiB", "queue_depth": 2, "jobs": 2}),
        (WRITE, {"engine": "psync", "queue_depth": 1}),
        (WRITE, {"engine": "psync", "queue_depth": 1, "direct": False}),
        (STREAM, {}),
        (STREAM, {"direction": "write", "block_size": "64KiB"}),
        (STREAM, {"direction": "write", "block_size": "64KiB", "jobs": 2}),
        (STREAM, {"jobs": 2, "files": "per-job", "queue_depth": 1}),
        (WRITE, {"jobs": 4, "files": "per-job"}),
        (SmallRandomRead(), {}),
        (RandomMixed(), {"read_percent": 70}),
        (MixedAccess(), {"direction": "write", "block_size": "16KiB"}),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_load_yields_every_metric_and_they_fit_together(directory, workload, options):
    read = workload.Options.model_validate(options)
    sample = measured(workload, directory, options, SCALE)
    waits_in_submission = options.get("engine") == "psync"
    expected = {
        name for name in workload.metrics if not (waits_in_submission and name.startswith("submission"))
    }
    assert set(sample.values) == expected
    assert expected > set(METRICS)
    assert sample.values["iops"] == pytest.approx(sample.ios / sample.seconds)
    at_the_ends = 2 * read.queue_depth * getattr(read, "jobs", 1)  # in flight when the ramp and the run ended
    blocks = sample.values["bandwidth"] * sample.seconds / read.block_size
    assert abs(blocks - sample.ios) <= at_the_ends
    assert sample.values["p50"] <= sample.values["p95"] <= sample.values["p99"] <= sample.values["p99.9"]
    assert 0 <= sample.values["client_cpu"] <= 1
    assert sample.seconds >= SCALE.runtime * 0.9
    assert sample.evidence["size"] == "4MiB"
    assert json.loads(sample.evidence["fio.json"])["jobs"]
    assert shlex.split(sample.evidence["argv"])[0] == "fio"
    assert "cores busy" in sample.evidence["cpu"]


@needs_fio
def test_latency_includes_what_the_submission_waited_for(directory):
    """libaio waits in io_submit(2) for a buffered, synchronous write; its completion is immediate."""
    WRITE.fill(directory, WRITE.Options(), SCALE)
    job = FioJob(
        "w", str(file_of(directory)), "randwrite", 4096, SCALE.size, direct=False, sync="dsync", runtime=0.3
    )
    result = run_fio(directory.client, job, deadline=30).result
    submission, completion = (result.parts[name].mean for name in ("submission", "completion"))
    assert submission > completion
    assert result.latency_mean == pytest.approx(submission + completion, rel=0.05)
    assert result.latency.percentile(0.99) >= result.parts["submission"].percentile(0.99) * 0.98


@needs_fio
def test_load_goes_on_in_the_cooldown_and_is_not_counted(directory):
    cooled = replace(SCALE, cooldown=0.4, interval=0.1)
    sample = measured(WRITE, directory, {"jobs": 2}, cooled)
    output = sample.evidence["fio.json"]  # fio lists its jobs first
    counted, after = (job["write"] for job in json.loads(output[output.index("\n{") :])["jobs"])
    assert after["io_bytes"] > 0
    assert after["runtime"] >= 400 * 0.9
    assert sample.values["bandwidth"] * sample.seconds == pytest.approx(counted["io_bytes"])
    assert sample.ios == counted["total_ios"]
    assert sample.seconds == pytest.approx(counted["runtime"] / 1000)
    assert max(at for one in sample.series for at in one.times) <= sample.seconds + 2 * cooled.interval
    assert "--startdelay=400ms" in shlex.split(sample.evidence["argv"])


@needs_fio
def test_one_worker_alone_does_not_cool_down(directory):
    sample = measured(WRITE, directory, {"jobs": 1}, replace(SCALE, cooldown=0.4))
    assert "cooldown" not in sample.evidence["argv"]


@needs_fio
def test_with_a_file_per_job_the_data_set_is_divided_into_files(directory):
    options = {"jobs": 2, "files": "per-job", "direction": "write", "queue_depth": 1}
    sample = measured(STREAM, directory, options, SCALE)
    files = sorted(Path(directory.path).iterdir())
    assert [file.name for file in files] == [f"storagetest-{SCALE.size}-2.{number}.dat" for number in (0, 1)]
    for file in files:
        assert_filled(file, SCALE.size // 2)
    assert sample.evidence["size"] == "4MiB"
    assert "numjobs=2" in sample.evidence["argv"]


@needs_fio
def test_jobs_of_a_sequential_load_have_parts_of_one_file(directory):
    """Each worker writes its own half: every block of the file is new, and the file is no longer."""
    read = STREAM.Options.model_validate({"jobs": 2, "direction": "write", "block_size": "512KiB"})
    job = STREAM.job(directory, read, SCALE)
    assert (job.size, job.data_size, job.division) == (SCALE.size // 2, SCALE.size, Division.PART)
    STREAM.fill(directory, read, SCALE)
    before = file_of(directory).read_bytes()
    once = replace(job, runtime=None, ramp=0.0, log_interval=0.0)
    assert run_fio(directory.client, once, deadline=30).result.bytes == SCALE.size
    after = file_of(directory).read_bytes()
    assert len(after) == SCALE.size
    blocks = range(0, SCALE.size, 4096)
    assert all(before[at : at + 4096] != after[at : at + 4096] for at in blocks)


def test_files_of_jobs_are_refused_where_they_cannot_be(directory):
    device = replace(directory, kind=AttachmentKind.BLOCK)
    per_job = WRITE.Options.model_validate({"jobs": 8, "files": "per-job"})
    assert WRITE.capabilities(per_job) == {"filesystem"}
    assert WRITE.capabilities(WRITE.Options(jobs=8)) == frozenset()
    with pytest.raises(WorkloadError, match="8 files of at least 1MiB do not fit into 4MiB"):
        WRITE.job(directory, per_job, SCALE)
    with pytest.raises(ValueError, match="cache: warm is about one file"):
        WRITE.Options.model_validate(
            {"files": "per-job", "cache": "warm", "direct": False, "engine": "psync", "queue_depth": 1}
        )
    assert WRITE.job(device, WRITE.Options(jobs=2), SCALE).files == (device.path,)


def test_a_case_keeps_its_parameters_of_before_files_and_jobs_were_options():
    assert list(WRITE.parameters(WRITE.Options())) == [
        *("block_size", "queue_depth", "jobs", "direct", "engine", "sync", "seed"),
    ]
    assert list(STREAM.parameters(STREAM.Options())) == [
        *("direction", "block_size", "queue_depth", "direct", "engine", "sync", "seed"),
    ]
    several = STREAM.Options.model_validate({"jobs": 2, "files": "per-job"})
    assert STREAM.title(several) == "sequential jobs=2 per-job"


@needs_fio
def test_filling_leaves_random_data_everywhere(directory):
    WRITE.fill(directory, WRITE.Options(), SCALE)
    assert_filled(file_of(directory), SCALE.size)
    assert file_of(directory).stat().st_blocks * 512 >= SCALE.size


@needs_fio
@pytest.mark.skipif(fuse_mount.why_not() is not None, reason=f"{fuse_mount.why_not()}")
def test_where_direct_io_is_refused_buffered_loads_run(client, tmp_path):
    for name in ("below", "disk"):
        (tmp_path / name).mkdir()
    with fuse_mount.mounted("fuse_sound:DirectRefused", tmp_path / "below", tmp_path / "disk") as disk:
        directory = Attachment(client, str(disk), AttachmentKind.FILESYSTEM, 1 << 30)
        sample = measured(WRITE, directory, {"engine": "psync", "queue_depth": 1, "direct": False}, SCALE)
        with pytest.raises(WorkloadError, match="fio"):
            measured(WRITE, directory, {}, SCALE)
    assert sample.values["iops"] > 0


@needs_fio
def test_all_loads_of_a_size_share_one_file(directory):
    assert WRITE.dataset(WRITE.Options(), SCALE) == STREAM.dataset(STREAM.Options(), SCALE)
    WRITE.fill(directory, WRITE.Options(), SCALE)
    STREAM.measure(directory, STREAM.Options(), SCALE)
    assert [path.name for path in Path(directory.path).iterdir()] == [file_of(directory).name]


@needs_fio
def test_what_was_not_filled_is_not_measured(directory):
    message = r"^here: fio did no I/O\n  .*disallowed(.|\n)*status 1: fio --name"
    with pytest.raises(WorkloadError, match=message):
        WRITE.measure(directory, WRITE.Options(), SCALE)
    assert not list(Path(directory.path).iterdir())


@needs_fio
def test_every_repeat_writes_something_else_and_the_same_next_time(directory):
    options = WRITE.Options()
    WRITE.fill(directory, options, SCALE)

    def seed(scale: LoadSize) -> str:
        argv = shlex.split(WRITE.measure(directory, options, scale).evidence["argv"])
        return next(option for option in argv if option.startswith("--randseed="))

    assert seed(SCALE) == seed(SCALE) != seed(replace(SCALE, repeat=1))


@needs_fio
def test_a_device_is_written_within_the_size_and_never_created(device):
    scale = LoadSize(size=4 * MIB, ramp=0, runtime=0.2)
    STREAM.fill(device, STREAM.Options(), scale)
    WRITE.measure(device, WRITE.Options(), scale)
    data = Path(device.path).read_bytes()
    assert len(data) == 8 * MIB
    assert data[4 * MIB :] == b"x" * 4 * MIB
    assert b"x" * 4096 not in data[: 4 * MIB]
    Path(device.path).unlink()
    with pytest.raises(WorkloadError):
        STREAM.fill(device, STREAM.Options(), scale)
    assert not Path(device.path).exists()


def test_data_set_that_does_not_fit_is_refused_before_a_write(device, directory):
    before = Path(device.path).read_bytes()
    for place, size, has in (
        (device, 9 * MIB, "8MiB, and"),
        (replace(directory, size=10 * MIB), 10 * MIB, "10MiB free, of which 90% are used at most"),
    ):
        message = f"the data set has {size // MIB}MiB; {place.path} has {has}"
        for operation in (STREAM.fill, STREAM.measure):
            with pytest.raises(WorkloadError, match=re.escape(message)):
                operation(place, STREAM.Options(), LoadSize(size=size, ramp=0, runtime=0.2))
    assert Path(device.path).read_bytes() == before
    assert list(Path(directory.path).glob("storagetest-*")) == []


@pytest.mark.parametrize("size", [0, MIB // 2])
def test_no_space_is_an_error(directory, size):
    with pytest.raises(WorkloadError, match="at least 1MiB is required"):
        WRITE.fill(replace(directory, size=size), WRITE.Options(), SCALE)


def test_more_in_flight_than_fits_is_refused(directory):
    options = WRITE.Options.model_validate({"block_size": "1MiB", "queue_depth": 8})
    with pytest.raises(WorkloadError, match="8 blocks of 1MiB do not fit into 4MiB"):
        WRITE.measure(directory, options, SCALE)


@pytest.mark.parametrize(("data", "holes"), [(0, 64), (MIB, 48), (3 * MIB, 16)])
def test_holes_are_found_out(directory, data, holes):
    path = Path(directory.path) / "sparse"
    path.write_bytes(os.urandom(data))
    os.truncate(path, 4 * MIB)
    reported = f"{4 * MIB} bytes long with {data} allocated; {holes} of 64 places in it read as zeros"
    with pytest.raises(WorkloadError, match=reported):
        base._check_filled(directory, str(path), 4 * MIB, direct=True)


@pytest.mark.parametrize(("asks", "blocks"), [(True, 2048), (False, 8)])
def test_allocated_blocks_are_asked_of_the_server(tmp_path, asks, blocks):
    stat = tmp_path / "stat"
    cached = "echo 1048576 2048 512" if asks else "echo 'unrecognized option' >&2; exit 1"
    stat.write_text(f"#!/bin/sh\ncase $1 in --cached=never) {cached};; *) echo 1048576 8 512;; esac\n")
    stat.chmod(0o755)
    with LocalHost(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}) as client:
        assert base._ask_server(client, "file") == (1048576, blocks, 512)


def test_a_filled_file_of_another_size_is_an_error(directory):
    path = Path(directory.path) / "longer"
    path.write_bytes(os.urandom(2 * MIB))
    with pytest.raises(WorkloadError, match=f"filled with {MIB} bytes, .* is {2 * MIB} bytes long"):
        base._check_filled(directory, str(path), MIB, direct=True)


def test_a_file_that_cannot_be_read_has_holes(directory):
    path = Path(directory.path) / "directory"
    path.mkdir()
    with pytest.raises(WorkloadError, match="64 of 64 places"):
        base._check_filled(directory, str(path), path.stat().st_size + 64 * 4096, direct=False)


@needs_fio
@pytest.mark.skipif(fuse_mount.why_not() is not None, reason=f"{fuse_mount.why_not()}")
def test_where_no_blocks_are_counted_the_data_are_read(client, tmp_path):
    for name in ("below", "disk"):
        (tmp_path / name).mkdir()
    with fuse_mount.mounted("fuse_sound:NoBlocks", tmp_path / "below", tmp_path / "disk") as disk:
        directory = Attachment(client, str(disk), AttachmentKind.FILESYSTEM, 1 << 30)
        WRITE.fill(directory, WRITE.Options(), SCALE)
        assert file_of(directory).stat().st_blocks == 0


@needs_fio
def test_a_full_target_is_an_error_with_fios_own_words(client):
    job = FioJob("fill", "/dev/full", "write", 4096, MIB, direct=False, engine="psync")
    with pytest.raises(WorkloadError, match=r"No space left on device(.|\n)*fio: io_u error"):
        run_fio(client, job, deadline=30)


@needs_fio
def test_a_mix_has_both_directions_in_its_ratio(directory):
    sample = measured(RandomMixed(), directory, {"read_percent": 75}, SCALE)
    (job,) = json.loads(sample.evidence["fio.json"])["jobs"]
    reads, writes = job["read"]["total_ios"], job["write"]["total_ios"]
    assert sample.ios == reads + writes
    assert abs(sample.latency.count - sample.ios) <= 2 * 8  # in flight at the ends
    assert 0.65 < reads / sample.ios < 0.85


LACKS_URING = """\
case "$*" in
    *ioengine=io_uring*) echo 'fio: engine io_uring not loadable' >&2; exit 1 ;;
esac
echo 'fio: something else' >&2
case "$*" in *--name=probe*) exit 0 ;; *) exit 1 ;; esac
"""


def test_an_engine_that_was_asked_for_and_is_not_there_is_what_the_client_lacks(directory, programs):
    programs(fio=LACKS_URING)
    uring = WRITE.Options.model_validate({"engine": "io_uring"})
    with pytest.raises(ClientLacks, match=r"^here: fio cannot use its engine io_uring there: .*not loadable"):
        WRITE.measure(directory, uring, SCALE)
    for options in ({}, {"engine": "libaio"}):  # the engine is there: whatever it is, it is no skip
        with pytest.raises(WorkloadError, match="something else"):
            WRITE.measure(directory, WRITE.Options.model_validate(options), SCALE)


MODES = [
    {"engine": "psync", "direct": False, "queue_depth": 1},
    {"engine": "psync", "direct": False, "queue_depth": 1, "sync": "sync"},
    {"engine": "psync", "direct": False, "queue_depth": 1, "sync": "dsync"},
    {"engine": "mmap", "direct": False, "queue_depth": 1},
    {"engine": "libaio", "sync": "dsync"},
]


@needs_fio
@pytest.mark.parametrize("options", MODES, ids=str)
def test_every_mode_of_io_runs(directory, options):
    sample = measured(RandomMixed(), directory, options, SCALE)
    argv = shlex.split(sample.evidence["argv"])
    sync = options.get("sync", "none")
    assert (f"--sync={sync}" in argv) is (sync != "none")
    assert f"--ioengine={options['engine']}" in argv
    assert sample.values["iops"] > 0
