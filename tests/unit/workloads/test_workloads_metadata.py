"""The metadata workload with the real agent on a directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from storagetest.errors import WorkloadError
from storagetest.polling import wait_until
from storagetest.workloads.base import LoadSize, workloads
from storagetest.workloads.metadata import OPERATIONS, Metadata

MIB = 1 << 20
SCALE = LoadSize(size=MIB, ramp=0, runtime=0.3)
LOAD = Metadata()
OPTIONAL = {"xattr"}  # not on every file system that a test may find


def phases(sample):
    return {line["phase"]: line for line in map(json.loads, sample.evidence["phases"].splitlines())}


def test_the_course_holds_every_operation_once(directory):
    sample = LOAD.measure(directory, LOAD.Options(processes=2), replace(SCALE, runtime=1.2, interval=0.03))
    reported = phases(sample)
    assert {one.name for one in sample.series} == {f"{name} operations" for name in reported}
    for one in sample.series:
        name = one.name.removesuffix(" operations")
        rest = reported[name]["seconds"] - 0.03 * (len(one.times) - 1)  # how long the last interval was
        counted = 0.03 * sum(one.values[:-1]) + rest * one.values[-1]
        assert 0 < rest <= 0.03 + 1e-9
        assert counted == pytest.approx(reported[name]["operations"][name]["ops"])
    assert sample.began is not None


def test_the_ceiling_is_what_the_clients_memory_does(directory):
    assert LOAD.ceiling(directory, LOAD.Options(), replace(SCALE, runtime=1.0)) is None  # too short for it
    ceiling = LOAD.ceiling(directory, LOAD.Options(processes=1), replace(SCALE, runtime=5.0))
    assert ceiling > 100
    assert not list(Path("/dev/shm").glob("storagetest-metadata*"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shared": True, "processes": 2},
        {"depth": 2, "width": 3, "processes": 2},
        {"depth": 2, "width": 2, "shared": True, "processes": 3, "files": 60},
        {"file_size": "2KiB", "processes": 1},
        {"whole": True, "files": 64},
    ],
    ids=str,
)
def test_every_operation_is_measured_and_nothing_is_left(directory, options):
    read = LOAD.Options.model_validate(options)
    sample = LOAD.measure(directory, read, SCALE)
    offered = {name for name in OPERATIONS if f"{name}_ops" in sample.values}
    assert set(OPERATIONS) - offered <= OPTIONAL
    for name in offered:
        assert sample.values[f"{name}_ops"] > 0
        assert sample.values[f"{name}_p50"] <= sample.values[f"{name}_p99"]
    assert set(sample.values) <= set(LOAD.metrics)
    assert 0 <= sample.values["client_cpu"] <= 1
    found = phases(sample)
    for name in offered:
        entry = found[name]["operations"][name]
        assert sample.operations[name].count == entry["ops"]
        assert sample.values[f"{name}_p99"] == sample.operations[name].percentile(0.99)
        assert LOAD.metrics[f"{name}_p99"].operation == name
    assert sample.ios == sum(found[name]["operations"][name]["ops"] for name in found)
    assert not list(Path(directory.path).iterdir())


def test_all_names_are_made_and_taken_away_when_asked_for_the_whole(directory):
    options = LOAD.Options.model_validate(
        {"whole": True, "files": 103, "processes": 4, "depth": 1, "width": 3}
    )
    found = phases(LOAD.measure(directory, options, SCALE))
    for name in set(found) - {"readdir"}:
        assert found[name]["operations"][name]["total"] == 103
    assert found["readdir"]["operations"]["readdir"]["total"] == 4 * 3
    assert found["readdir"]["operations"]["readdir"]["total_bytes"] == 103


def test_in_a_shared_directory_everybody_lists_everything(directory):
    options = LOAD.Options.model_validate(
        {"whole": True, "files": 30, "processes": 3, "shared": True, "operations": ["readdir"]}
    )
    entry = phases(LOAD.measure(directory, options, SCALE))["readdir"]["operations"]["readdir"]
    assert (entry["total"], entry["total_bytes"]) == (3, 3 * 30)


def test_only_what_is_asked_for_is_reported(directory):
    options = LOAD.Options.model_validate({"operations": ["stat", "rmdir"], "processes": 2})
    sample = LOAD.measure(directory, options, SCALE)
    assert {name.rpartition("_")[0] for name in sample.values} == {"stat", "rmdir", "client"}
    assert list(phases(sample)) == ["mkdir", "rmdir", "create", "stat"]


def test_profile_sets_the_files_and_space_limits_them(directory):
    def files(options, scale=SCALE, attachment=directory):
        return LOAD.request(attachment, LOAD.Options.model_validate(options), scale)["files"]

    assert files({}) == MIB // 4096
    assert files({"files": 77}) == 77
    assert files({"files_per_directory": 10, "depth": 2, "width": 3, "processes": 2}) == 10 * 9 * 2
    assert files({"files_per_directory": 10, "depth": 2, "width": 3, "processes": 2, "shared": True}) == 90
    assert files({"file_size": "16KiB"}) == MIB // 16384
    small = replace(directory, size=8 * 4096)
    assert files({"files": 10_000}, attachment=small) == 8
    with pytest.raises(WorkloadError, match="at least 1MiB is needed"):
        files({"processes": 256}, attachment=small)


def test_cold_needs_root(directory):
    options = LOAD.Options.model_validate({"cold": True, "operations": ["stat"], "processes": 1})
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        assert LOAD.measure(directory, options, SCALE).values["stat_ops"] > 0
    else:
        with pytest.raises(WorkloadError, match="cold needs root"):
            LOAD.measure(directory, options, SCALE)


@pytest.fixture
def small(client, tmp_path):
    """A file system of 1 MiB and 64 inodes."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "storagetest", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_target_that_gets_full_is_an_error_with_the_call_the_path_and_what_to_do(directory, small):
    options = LOAD.Options.model_validate({"processes": 2, "files": 200})
    full = replace(directory, path=str(small))
    with pytest.raises(
        WorkloadError, match=r"metadata on .*: .*No space left on device \(ENOSPC\)\nthe target is full"
    ):
        LOAD.measure(full, options, replace(SCALE, runtime=10.0))
    assert not list(small.iterdir())


def test_an_agent_that_is_killed_is_an_error(directory):
    options = LOAD.Options.model_validate({"processes": 2, "operations": ["stat"]})
    place = Path(directory.path) / "storagetest-metadata"

    def owners() -> list[int]:
        found = []
        for cwd in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if cwd.readlink().is_relative_to(place):
                    found.append(int(cwd.parent.name))
            except OSError:
                continue
        return found

    def kill() -> None:
        workers = wait_until(owners, 20, "the agent's workers", interval=0.05)
        status = Path(f"/proc/{workers[0]}/status").read_text()
        agent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        os.kill(int(agent), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(
            WorkloadError, match=r"^here: metadata on .*: the agent ended without a result: it was killed"
        ):
            LOAD.measure(directory, options, replace(SCALE, runtime=30.0))
    finally:
        killer.join()
    wait_until(lambda: not owners(), 10, "the end of the agent's workers", interval=0.05)


@pytest.fixture
def without_python(tmp_path_factory, monkeypatch):
    """A PATH with the system's programs less python3; ``make(text)`` puts a script in its place."""

    def make(text: str | None = None) -> None:
        place = tmp_path_factory.mktemp("bin")
        for program in ("sh", "env", "timeout", "grep", "cut", "kill", "sleep", "cat", "stat", "printf"):
            if found := shutil.which(program):
                (place / program).symlink_to(found)
        if text is not None:
            (place / "python3").write_text(f"#!/bin/sh\n{text}\n")
            (place / "python3").chmod(0o755)
        monkeypatch.setenv("PATH", str(place))

    return make


def test_old_or_silent_python_is_an_error(directory, without_python):
    without_python("""cat >/dev/null; printf '{"t":"error","kind":"python","message":"3.7"}\\n'; exit 1""")
    with pytest.raises(
        WorkloadError, match=r"^here: metadata on .*: python3 is 3\.7, too old: the agent needs 3.9"
    ):
        LOAD.measure(directory, LOAD.Options(), SCALE)
    without_python("cat >/dev/null; echo out of memory >&2; exit 137")
    with pytest.raises(WorkloadError, match=r"without a result: it was killed\nout of memory"):
        LOAD.measure(directory, LOAD.Options(), SCALE)


@pytest.mark.skipif(
    any(Path(place, "python3").exists() for place in ("/usr/sbin", "/sbin")), reason="odd place"
)
def test_missing_python_names_the_package(directory, without_python):
    without_python()
    with pytest.raises(WorkloadError, match=r"^here: metadata on .*: python3 is missing: install python3-"):
        LOAD.measure(directory, LOAD.Options(), SCALE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": ["chown"]}, "operations"),
        ({"operations": []}, "at least 1"),
        ({"processes": 0}, "greater than or equal to 1"),
        ({"files": 2}, "too few for 4 processes"),
        ({"files": 100, "files_per_directory": 10}, "give one of them"),
        ({"depth": 10, "width": 10}, r"width \*\* depth is 10000000000: at most"),
        ({"file_size": "2MiB"}, "less than or equal to 1048576"),
        ({"fils": 3}, "fils"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        LOAD.Options.model_validate(options)


def test_the_registry_finds_it_and_its_example_loads():
    workload = workloads.get("metadata")
    assert workload.Options.model_validate(workload.example)
    shown = workload().parameters(workload.Options.model_validate({"file_size": 4096}))
    assert shown["file_size"] == "4KiB"
    assert shown["operations"].startswith("mkdir,rmdir,create")
