"""Ranges whose end is beyond 2^64: no sum of address and length is within the namespace (NVM 3.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Scratch, refused

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.1")]

LAST = (1 << 64) - 1
BLOCKS = 2
"""Blocks of each command: the sum of both numbers is 1 in 64 bits."""


def _uncorrectable(nsid: int, lba: int, blocks: int) -> Command:
    return Command(
        Io.WRITE_UNCORRECTABLE, nsid=nsid, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=blocks - 1
    )


COMMANDS: dict[str, tuple[Io, Callable[[int, int, int], Command]]] = {
    "READ": (Io.READ, io.read),
    "WRITE": (Io.WRITE, io.write),
    "COMPARE": (Io.COMPARE, io.compare),
    "ZEROES": (Io.WRITE_ZEROES, io.write_zeroes),
    "VERIFY": (Io.VERIFY, io.verify),
    "UNC": (Io.WRITE_UNCORRECTABLE, _uncorrectable),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-WRAP-{name}", kills=("lba-wraps",))) for name in COMMANDS
])  # fmt: skip
def test_a_range_that_wraps_is_out_of_range(session: ControllerSession, scratch: Scratch, name: str) -> None:
    opcode, make = COMMANDS[name]
    if opcode in ONCS_BITS and not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS bit {ONCS_BITS[opcode]}: {opcode.name} is not supported")
    command, size = make(scratch.nsid, LAST, BLOCKS), BLOCKS * scratch.block_size
    queue = session.io_queue()
    if opcode == Io.READ:
        done = queue.run(command, reads=size)
    else:
        done = queue.run(command, data=bytes(size) if opcode in (Io.WRITE, Io.COMPARE) else b"")
    refused(
        done, StatusCode.LBA_OUT_OF_RANGE, *([StatusCode.CAPACITY_EXCEEDED] if opcode == Io.WRITE else [])
    )
