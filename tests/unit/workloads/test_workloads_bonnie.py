"""Bonnie with the real agent on a directory."""

from dataclasses import replace

import pytest
from measured_loads import measured_operations

from storagetest.workloads.base import LoadSize
from storagetest.workloads.bonnie import Bonnie

MIB = 1 << 20
SCALE = LoadSize(size=MIB, ramp=0, runtime=0.6)
LOAD = Bonnie()


def run(directory, options, scale=SCALE):
    return measured_operations(LOAD, directory, options, scale)


@pytest.mark.parametrize("char_io", ["buffered", "syscall"])
def test_the_whole_of_it_does_what_bonnie_does(directory, char_io):
    sample, found = run(directory, {"whole": True, "char_io": char_io, "seeks": 100, "files": 50})
    assert list(found) == [
        "char_write", "block_write", "rewrite", "char_read", "block_read", "seeks",
        "sequential_create", "sequential_stat", "sequential_delete",
        "random_create", "random_stat", "random_delete",
    ]  # fmt: skip
    for name in ("char_write", "block_write", "rewrite", "char_read", "block_read"):
        assert found[name][name]["total_bytes"] == MIB
    assert found["seeks"]["seeks"]["total"] == 100
    assert found["seeks"]["seeks"]["total_bytes"] == 100 * 8192
    for order in ("sequential", "random"):
        for what in ("create", "stat", "delete"):
            assert found[f"{order}_{what}"][what]["total"] == 50
    assert set(sample.values) == set(LOAD.metrics)
    assert sample.evidence["size"] == str(MIB)
    assert "on a null device" in sample.evidence["char_write_ceiling"]


def test_each_phase_keeps_to_its_share_of_the_time(directory):
    scale = replace(SCALE, size=64 * MIB, runtime=0.6)
    _, found = run(directory, {"char_io": "syscall", "sync": True, "files": 20}, scale)
    assert found["char_write"]["char_write"]["total_bytes"] < 64 * MIB
    written = found["block_write"]["block_write"]["total_bytes"]
    assert 0 < found["block_read"]["block_read"]["total_bytes"] <= written


def test_characters_and_files_can_be_left_out(directory):
    sample, found = run(directory, {"characters": False, "files": 0, "sync_on_close": True, "cold": False})
    assert list(found) == ["block_write", "rewrite", "block_read", "seeks"]
    assert "char_write" not in sample.values
    assert sample.values["block_write"] > 0
