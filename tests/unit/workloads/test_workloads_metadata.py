"""The metadata workload with the real agent on a directory."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import assert_rate, measured, measured_operations, phases
from processes import parent_of

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import Histogram
from storagetest.polling import wait_until
from storagetest.workloads._agent.result import AgentResult, OpStats, PhaseStats
from storagetest.workloads.base import LoadSize
from storagetest.workloads.metadata import OPERATIONS, Metadata

MIB = 1 << 20
SCALE = LoadSize(size=MIB, ramp=0, runtime=0.3)
LOAD = Metadata()
OPTIONAL = {"xattr"}  # not on every file system that a test may find


def test_the_course_holds_every_operation_once(directory):
    sample = measured(LOAD, directory, {"processes": 2}, replace(SCALE, runtime=1.2, interval=0.03))
    reported = phases(sample)
    rates = [one for one in sample.series if one.source == "load"]
    assert {one.name for one in rates} == {f"{name} operations" for name in reported}
    medians = {one.name for one in sample.series if one.source == "latency" and one.name.endswith(" p50")}
    assert {"create p50", "stat p50"} <= medians <= {f"{name} p50" for name in reported}
    for one in rates:
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
    sample, found = measured_operations(LOAD, directory, options, SCALE)
    offered = {name for name in OPERATIONS if f"{name}_ops" in sample.values}
    assert set(OPERATIONS) - offered <= OPTIONAL
    assert set(sample.values) <= set(LOAD.metrics)
    assert 0 <= sample.values["client_cpu"] <= 1
    for name in offered:
        assert_rate(sample, name, sample.values[f"{name}_ops"])
        if name in sample.operations:
            assert sample.values[f"{name}_p50"] <= sample.values[f"{name}_p99"]
            assert sample.operations[name].count == found[name][name]["ops"]
        assert LOAD.metrics[f"{name}_p99"].operation == name
    assert sample.ios == sum(found[name][name]["ops"] for name in found)


def test_all_names_are_made_and_taken_away_when_asked_for_the_whole(directory):
    options = {"whole": True, "files": 103, "processes": 4, "depth": 1, "width": 3}
    _, found = measured_operations(LOAD, directory, options, SCALE)
    totals = {name: entry[name]["total"] for name, entry in found.items()}
    assert totals == {**dict.fromkeys(found, 103), "readdir": 4 * 3}
    assert found["readdir"]["readdir"]["total_bytes"] == 103


def test_in_a_shared_directory_everybody_lists_everything(directory):
    options = {"whole": True, "files": 30, "processes": 3, "shared": True, "operations": ["readdir"]}
    _, found = measured_operations(LOAD, directory, options, SCALE)
    entry = found["readdir"]["readdir"]
    assert (entry["total"], entry["total_bytes"]) == (3, 3 * 30)


def test_only_what_is_asked_for_is_reported(directory):
    sample = measured(LOAD, directory, {"operations": ["stat", "rmdir"], "processes": 2}, SCALE)
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
    assert files({"files": 7}, attachment=small) == 7
    for too_many in ({"files": 8}, {"processes": 256}):
        with pytest.raises(WorkloadError, match=r"the load requires .*, and .* has space for 28KiB"):
            files(too_many, attachment=small)


def test_cold_needs_root(directory):
    options = LOAD.Options.model_validate({"cold": True, "operations": ["stat"], "processes": 1})
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        assert LOAD.measure(directory, options, SCALE).values["stat_ops"] > 0
    else:
        with pytest.raises(WorkloadError, match="cold needs root"):
            LOAD.measure(directory, options, SCALE)


def test_a_target_that_gets_full_is_an_error_with_the_call_the_path_and_what_to_do(directory, small_fs):
    full = replace(directory, path=small_fs("size=1m,nr_inodes=64"))
    message = r"metadata on .*: .*No space left on device \(ENOSPC\)\nthe target is full"
    with pytest.raises(WorkloadError, match=message):
        measured(LOAD, full, {"processes": 2, "files": 200}, replace(SCALE, runtime=10.0))
    assert not list(Path(full.path).iterdir())


def test_an_agent_that_is_killed_is_an_error(directory):
    place = Path(directory.path) / "storagetest-metadata"

    def workers() -> list[int]:
        found = []
        for cwd in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if cwd.readlink().is_relative_to(place):
                    found.append(int(cwd.parent.name))
        return found

    def kill() -> None:
        worker, *_ = wait_until(workers, 20, "the agent's workers", interval=0.05)
        os.kill(parent_of(worker), signal.SIGKILL)

    message = r"^here: metadata on .*: the agent ended without a result: it was killed"
    with ThreadPoolExecutor() as threads, pytest.raises(WorkloadError, match=message):
        threads.submit(kill)
        measured(LOAD, directory, {"processes": 2, "operations": ["stat"]}, replace(SCALE, runtime=30.0))
    wait_until(lambda: not workers(), 10, "the end of the agent's workers", interval=0.05)


SENDS_OLD = """cat >/dev/null; printf '{"t":"error","kind":"python","message":"3.7"}\\n'; exit 1"""
SENDS_NOTHING = "cat >/dev/null; echo out of memory >&2; exit 137"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (SENDS_OLD, r"^here: metadata on .*: python3 is 3\.7, too old: the agent needs 3.9"),
        (SENDS_NOTHING, r"without a result: it was killed\nout of memory"),
    ],
    ids=["old", "killed"],
)
def test_old_or_silent_python_is_an_error(directory, programs, script, message):
    programs(python3=script)
    with pytest.raises(WorkloadError, match=message):
        measured(LOAD, directory, {}, SCALE)


@pytest.mark.skipif(
    any(Path(place, "python3").exists() for place in ("/usr/sbin", "/sbin")), reason="odd place"
)
def test_missing_python_names_the_package(directory, programs):
    programs(without="python3")
    with pytest.raises(WorkloadError, match=r"^here: metadata on .*: python3 is missing: install python3-"):
        measured(LOAD, directory, {}, SCALE)


@pytest.mark.parametrize("ended", [0, 2])
def test_an_operation_of_which_none_ended_while_all_were_active_has_no_rate(ended):
    create = OpStats(ops=ended, total=3, bytes=0, total_bytes=0, latency=Histogram())
    phase = PhaseStats(0.1, 0.3, 0.1, 0.1, 0.5, overlap=True, operations={"create": create})
    invalid = LOAD.invalid(AgentResult({"create": phase}), LOAD.Options(processes=3, operations=("create",)))
    assert [word.partition(":")[0] for word in invalid] == ([] if ended else ["create"])
