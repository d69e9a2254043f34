"""Bonnie with the real agent on a directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from storagetest.workloads.base import LoadSize, workloads
from storagetest.workloads.bonnie import Bonnie

MIB = 1 << 20
SCALE = LoadSize(size=MIB, ramp=0, runtime=0.6)
LOAD = Bonnie()


def run(directory, options, scale=SCALE):
    sample = LOAD.measure(directory, LOAD.Options.model_validate(options), scale)
    lines = map(json.loads, sample.evidence["phases"].splitlines())
    assert not list(Path(directory.path).iterdir())
    return sample, {line["phase"]: line for line in lines}


@pytest.mark.parametrize("char_io", ["buffered", "syscall"])
def test_the_whole_of_it_does_what_bonnie_does(directory, char_io):
    sample, phases = run(directory, {"whole": True, "char_io": char_io, "seeks": 100, "files": 50})
    assert list(phases) == [
        "char_write", "block_write", "rewrite", "char_read", "block_read", "seeks",
        "sequential_create", "sequential_stat", "sequential_delete",
        "random_create", "random_stat", "random_delete",
    ]  # fmt: skip
    for name in ("char_write", "block_write", "rewrite", "char_read", "block_read"):
        assert phases[name]["operations"][name]["total_bytes"] == MIB
    assert phases["seeks"]["operations"]["seeks"]["total"] == 100
    assert phases["seeks"]["operations"]["seeks"]["total_bytes"] == 100 * 8192
    for order in ("sequential", "random"):
        for what in ("create", "stat", "delete"):
            assert phases[f"{order}_{what}"]["operations"][what]["total"] == 50
    assert set(sample.values) == set(LOAD.metrics)
    assert sample.evidence["size"] == str(MIB)
    assert "on a null device" in sample.evidence["char_write_ceiling"]


def test_each_phase_keeps_to_its_share_of_the_time(directory):
    scale = replace(SCALE, size=64 * MIB, runtime=0.6)
    _, phases = run(directory, {"char_io": "syscall", "sync": True, "files": 20}, scale)
    assert phases["char_write"]["operations"]["char_write"]["total_bytes"] < 64 * MIB
    written = phases["block_write"]["operations"]["block_write"]["total_bytes"]
    assert 0 < phases["block_read"]["operations"]["block_read"]["total_bytes"] <= written


def test_characters_and_files_can_be_left_out(directory):
    sample, phases = run(directory, {"characters": False, "files": 0, "sync_on_close": True, "cold": False})
    assert list(phases) == ["block_write", "rewrite", "block_read", "seeks"]
    assert "char_write" not in sample.values
    assert sample.values["block_write"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 10_000}, "is not a power of two"),
        ({"chunk_size": "2MiB"}, "less than or equal to 1048576"),
        ({"char_io": "stdio"}, "buffered"),
        ({"seekers": 0}, "greater than or equal to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        LOAD.Options.model_validate(options)


def test_the_registry_finds_it_and_its_example_loads():
    workload = workloads.get("bonnie")
    assert workload.Options.model_validate(workload.example)
    assert workload().parameters(workload.Options())["chunk_size"] == "8KiB"
