"""Thin clones with the real agent, on a directory and on small file systems of their own."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import measured

from storagetest.agent.commands.loads import thin_clones as agent
from storagetest.errors import ClientLacks, WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.runner.allocation import allocated_bytes
from storagetest.workloads.base import LoadSize
from storagetest.workloads.thin_clones import ThinClones

MIB = 1 << 20
CHUNK = 1 << 16
SCALE = LoadSize(size=16 * MIB, ramp=0, runtime=1)
LOAD = ThinClones()
SPARSE = {"method": "sparse", "clones": 5, "image_data": "1MiB", "clone_data": "128KiB"}
WRITTEN = MIB + 5 * 128 * 1024


@pytest.fixture
def memory(directory, small_fs):
    """A file system that nothing else uses, so that its used space is that of the clones."""
    return replace(directory, path=small_fs("size=64m"))


@pytest.fixture
def xfs(directory, tmp_path):
    """A file system with reflinks."""
    image, place = tmp_path / "disk", tmp_path / "mounted"
    image.touch()
    place.mkdir()
    with image.open("r+b") as file:
        file.truncate(512 * MIB)
    for argv in (["mkfs.xfs", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        try:
            failed = subprocess.run(argv, check=False, capture_output=True, timeout=60).returncode
        except FileNotFoundError:
            failed = 1
        if failed:
            pytest.skip(f"{argv[0]} of a file does not work here")
    yield replace(directory, path=str(place))
    subprocess.run(["umount", str(place)], check=True, timeout=60)


def test_sparse_clones_take_what_is_written_to_them(memory):
    sample = measured(LOAD, memory, SPARSE, SCALE)
    values = sample.values
    assert values["nominal"] == 5 * 16 * MIB
    assert values["written"] == values["extents"] == WRITTEN
    assert WRITTEN <= values["used"] == values["allocated"] < WRITTEN + 64 * 1024
    assert sample.evidence["allocated by"] == "statfs"
    assert sample.evidence["no_mapped"] == '"the file system is on no disk of the client"'
    assert set(values) | {"client_cpu"} == set(LOAD.metrics)  # a load within a tick has no processor time
    assert list(Path(memory.path).iterdir()) == []


def test_reflinks_share_the_data_of_the_image(xfs):
    sample = measured(LOAD, xfs, {**SPARSE, "method": "reflink"}, SCALE)
    assert sample.values["extents"] >= 6 * MIB, "the data of the image are in each clone"
    assert WRITTEN <= sample.values["used"] < 4 * WRITTEN


def test_a_target_without_reflinks_is_left_out_with_the_reason(memory):
    with pytest.raises(ClientLacks, match=r"^the target has no reflinks \(E[A-Z]+ from FICLONE\)$"):
        measured(LOAD, memory, {**SPARSE, "method": "reflink"}, SCALE)
    assert list(Path(memory.path).iterdir()) == []


def test_the_server_counts_if_the_target_has_a_control(memory):
    counts = iter([1000, 5000])
    sample = measured(LOAD, replace(memory, allocated=lambda: next(counts)), SPARSE, SCALE)
    assert sample.values["allocated"] == 4000
    assert sample.values["used"] >= WRITTEN
    assert sample.evidence["allocated by"] == "the control `allocated` on the server"


def test_the_server_counts_while_the_clones_exist(memory):
    seen = []

    def count() -> int:
        seen.append(len(list(Path(memory.path).glob("storagetest-clones/clone-*"))))
        return len(seen)

    measured(LOAD, replace(memory, allocated=count), SPARSE, SCALE)
    assert seen == [0, 5]


def test_space_that_others_free_meanwhile_makes_the_run_invalid(memory):
    other = Path(memory.path) / "other"
    other.write_bytes(b"x" * 8 * MIB)
    counts = iter([9, 4])

    def count() -> int:
        other.unlink(missing_ok=True)
        return next(counts)

    sample = LOAD.measure(replace(memory, allocated=count), LOAD.Options.model_validate(SPARSE), SCALE)
    assert sample.values["allocated"] == 0
    assert sample.invalid == ("the server counts 5 bytes less than before",)


def test_without_sizes_clones_hold_half_a_percent_of_their_nominal_size(memory):
    request = LOAD.request(memory, LOAD.Options(), replace(SCALE, size=640 * MIB))
    data = request["image_data"] + request["clones"] * request["clone_data"]
    assert data / (request["clones"] * request["image"]) == pytest.approx(0.005, rel=0.05)


def test_a_control_that_prints_no_number_is_an_error():
    with LocalHost("server") as host:
        assert allocated_bytes(host, ["echo", "12345"], target="lun") == 12345
        with pytest.raises(WorkloadError, match=r"lun: controls.allocated on server printed '12 MiB'"):
            allocated_bytes(host, ["echo", "12 MiB"], target="lun")


class Started:
    """The barrier of a phase that begins at once."""

    def wait(self) -> int:
        return 0


def test_a_clone_with_other_data_is_found(tmp_path):
    request = {"seed": 1, "clones": 3, "image": MIB, "image_data": 2 * CHUNK, "clone_data": CHUNK}
    cloner = agent._Cloner({**request, "method": "sparse"}, os.fsencode(tmp_path / "clones"), 0)
    cloner.setup()
    for phase in (cloner.image, cloner.clone, cloner.write):
        phase(Started())
    assert cloner.check() == (5 * CHUNK, [])
    (offset, data), *_ = cloner.chunks[cloner.names[1]]
    with (tmp_path / "clones" / "clone-1").open("r+b") as file:
        file.seek(offset)
        file.write(bytes(byte ^ 1 for byte in data))
    assert cloner.check() == (5 * CHUNK, [f"clone-1 at {offset}"])


def test_damage_that_the_agent_finds_fails(memory, monkeypatch):
    evidence = ThinClones.evidence
    monkeypatch.setattr(
        ThinClones, "evidence", lambda *arguments: {**evidence(*arguments), "differs": '["clone-1 at 0"]'}
    )
    with pytest.raises(AssertionError, match=r"clones have other data than they should: \["):
        LOAD.measure(memory, LOAD.Options.model_validate(SPARSE), SCALE)
