"""Commands whose SGL has more than they transfer: the command decides, and no other block changes (NVM 3.3).

SGLS bit 18 states whether a longer SGL is supported. Whether a controller refuses it is left open here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command, transport_sgl
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVM 3.3", builds_on=("NVB-RW-01",)),
]

BLOCKS = 4
"""Blocks that are looked at (chosen)."""


@dataclass(frozen=True, slots=True)
class Longer:
    """A command, data of which it needs the first half, and the first block that it must not change."""

    command: Command
    data: bytes
    kept_from: int


def _longer(scratch: Scratch, name: str) -> Longer:
    """Return a command on the blocks of ``scratch``."""
    nsid, lba = scratch.nsid, scratch.lba
    if name == "WRITE":
        return Longer(io.write(nsid, lba, 1), block_data(2 * scratch.block_size, 312), 1)
    if name == "DSM":
        ranges = io.dsm_ranges([(lba, 1), (lba + 2, 1)])
        return Longer(io.dataset_management(nsid, 1), ranges, 1)
    ranges = io.copy_ranges([(lba + 3, 1), (lba + 3, 1)])
    return Longer(io.copy(nsid, lba, 1), ranges, 1)


OPCODES = {"DSM": Io.DATASET_MANAGEMENT, "COPY": Io.COPY}


@pytest.mark.parametrize("name", [
    pytest.param("WRITE", marks=pytest.mark.case("NVB-SGL-LONG-WRITE", kills=("sgl-decides-blocks",))),
    pytest.param("DSM", marks=pytest.mark.case("NVB-SGL-LONG-DSM", kills=("sgl-decides-ranges",))),
    pytest.param("COPY", marks=pytest.mark.case("NVB-SGL-LONG-COPY", kills=("sgl-decides-ranges",))),
])  # fmt: skip
def test_what_an_sgl_has_behind_the_data_of_a_command_changes_no_block(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """NLB, and NR of a command with ranges, are half of what the SGL has; the data are in the capsule."""
    if name in OPCODES and not session.controller["oncs"] >> ONCS_BITS[OPCODES[name]] & 1:
        pytest.skip(f"ONCS: {OPCODES[name].name} is not supported")
    longer = _longer(scratch, name)
    if queue.in_capsule_limit < len(longer.data):
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data")
    before = write_blocks(queue, scratch, BLOCKS, 311)
    done = queue.run(longer.command, data=longer.data, inside=True)
    found, at = read_blocks(queue, scratch, BLOCKS), longer.kept_from * scratch.block_size
    assert found[at:] == before[at:], (
        f"3.3: {name} of one {'block' if name == 'WRITE' else 'range'}, whose SGL has two, has changed "
        f"another block; it ended with {status_name(done.status)}"
    )
    if done.ok and name == "WRITE":
        assert found[:at] == longer.data[:at], "3.3.6: the block of a write that succeeded has other data"


@pytest.mark.case("NVB-SGL-LONG-READ", kills=("sgl-decides-blocks",))
def test_a_read_returns_its_blocks_whatever_its_sgl_has(queue: Queue, scratch: Scratch) -> None:
    """It returns one block, or is refused; the SGL has two."""
    data = write_blocks(queue, scratch, 2, 313)
    size = scratch.block_size
    cid = queue.submit(io.read(scratch.nsid, scratch.lba, 1), reads=size, dptr=transport_sgl(2 * size))
    done = queue.wait(cid)
    if done.status in (StatusCode.DATA_SGL_LENGTH_INVALID, StatusCode.INVALID_FIELD):
        return
    assert done.ok, f"4.3.2: a read whose SGL is longer than its data ends with {status_name(done.status)}"
    assert done.data == data[:size], "3.3.4: a read whose SGL is longer than its data returns other data"
