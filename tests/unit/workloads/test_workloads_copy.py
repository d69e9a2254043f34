"""Copying with the real agent on a directory."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import assert_rate, measured, measured_operations

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import Histogram
from storagetest.workloads._agent.result import AgentResult, OpStats, PhaseStats
from storagetest.workloads.base import LoadSize
from storagetest.workloads.copy import Copy

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=0.8)
LOAD = Copy()


def run(directory, options, scale=SCALE):
    return measured_operations(LOAD, directory, options, scale)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("method", ["client", "server"])
def test_a_large_file_is_written_copied_read_and_deleted(directory, method, processes):
    # Many blocks for each process, so that there are some while all are at it.
    scale = replace(SCALE, size=16 * MIB * processes)
    sample, operations = run(directory, {"whole": True, "method": method, "processes": processes}, scale)
    size = scale.size // processes * processes
    for name in ("write", "copy", "read"):
        assert operations[name]["blocks"]["total_bytes"] == size
        assert_rate(sample, name, sample.values[f"{name}_bandwidth"])
    assert operations["delete"]["files"]["total"] == 2 * processes
    assert "write_files" not in sample.values


def test_a_tree_is_too(directory):
    options = {"whole": True, "kind": "tree", "processes": 2, "file_size": "8KiB", "sync": False}
    sample, operations = run(directory, options)
    files = 4 * MIB // 10240
    for name in ("write", "copy", "read"):
        assert operations[name]["files"]["total"] == files
        assert operations[name]["files"]["total_bytes"] == operations["write"]["files"]["total_bytes"]
    assert operations["delete"]["files"]["total"] == 2 * files
    assert set(sample.values) == set(LOAD.metrics)
    spans = [json.loads(line)["span"] for line in sample.evidence["phases"].splitlines()]
    assert len(spans) == 4
    assert sample.values["elapsed"] == pytest.approx(sum(spans))


def test_what_the_time_did_not_suffice_to_write_is_not_copied(directory):
    scale = replace(SCALE, size=256 * MIB, runtime=0.1)
    sample, operations = run(directory, {"kind": "tree"}, scale)
    assert "elapsed" not in sample.values  # it is that of the profile
    assert operations["write"]["files"]["total"] < 256 * MIB // 20480
    assert operations["copy"]["files"]["total"] <= operations["write"]["files"]["total"]


def test_source_and_copy_have_to_fit(directory):
    small = replace(directory, size=8 * MIB)
    assert LOAD.request(small, LOAD.Options(), replace(SCALE, size=3 * MIB))["size"] == 3 * MIB
    with pytest.raises(WorkloadError, match=r"the load requires 8MiB, and .* has space for 7372KiB"):
        LOAD.request(small, LOAD.Options(), replace(SCALE, size=4 * MIB))


def test_a_copy_that_differs_is_the_targets_failure(directory):
    """A process changes the copies while they are made: what is read back is not what was written."""
    stop = threading.Event()

    def spoil() -> None:
        while not stop.wait(0.001):
            for copy in Path(directory.path).glob("storagetest-copy/p0/b/*"):
                with suppress(OSError), copy.open("r+b") as file:
                    file.write(b"spoilt")

    message = r"here: copies differ .*storagetest-copy/p0/b/\d+ at byte 0"
    with ThreadPoolExecutor() as threads:
        threads.submit(spoil)
        try:
            with pytest.raises(AssertionError, match=message):
                measured(LOAD, directory, {"kind": "tree", "depth": 0, "whole": True}, SCALE)
        finally:
            stop.set()


@pytest.mark.parametrize("moved", [0, MIB])
def test_a_phase_in_which_no_block_ended_while_all_were_active_has_no_bandwidth(moved):
    blocks = OpStats(ops=moved // MIB, total=3, bytes=moved, total_bytes=3 * MIB, latency=Histogram())
    phase = PhaseStats(0.1, 0.3, 0.1, 0.1, 0.5, overlap=True, operations={"blocks": blocks})
    invalid = LOAD.invalid(AgentResult({"write": phase}), LOAD.Options(processes=3))
    assert [word.partition(":")[0] for word in invalid] == ([] if moved else ["write"])
