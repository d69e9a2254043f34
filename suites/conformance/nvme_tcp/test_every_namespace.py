"""I/O commands of NSID FFFFFFFFh, which names no one namespace (Base 3.2.1.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.config import Variant
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks

from .test_families import supported, uncorrectable

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.2.1.5")]

EVERY = 0xFFFFFFFF
BLOCKS = 2

Made = tuple[Command, bytes]


def _copy(scratch: Scratch) -> Made:
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    return io.copy(EVERY, scratch.lba + 1, 1), io.copy_ranges([(scratch.lba, 1)])


COMMANDS: dict[str, tuple[Io, Callable[[Scratch], Made]]] = {
    "WRITE": (Io.WRITE, lambda s: (io.write(EVERY, s.lba, 1), block_data(s.block_size, 1301))),
    "COMPARE": (Io.COMPARE, lambda s: (io.compare(EVERY, s.lba, 1), block_data(s.block_size, 1300))),
    "ZEROES": (Io.WRITE_ZEROES, lambda s: (io.write_zeroes(EVERY, s.lba, 1), b"")),
    "DSM": (
        Io.DATASET_MANAGEMENT,
        lambda s: (io.dataset_management(EVERY, 1), io.dsm_ranges([(s.lba, 1)])),
    ),
    "COPY": (Io.COPY, _copy),
    "VERIFY": (Io.VERIFY, lambda s: (io.verify(EVERY, s.lba, 1), b"")),
    "UNC": (Io.WRITE_UNCORRECTABLE, lambda s: (uncorrectable(EVERY, s.lba, 1), b"")),
}
"""By name: the command, and how it and its data are made."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-EVERY-{name}", kills=("broadcast-is-first",)))
    for name in COMMANDS
])  # fmt: skip
def test_a_command_of_blocks_is_of_one_namespace(
    session: ControllerSession, queue: Queue, scratch: Scratch, variant: Variant, name: str
) -> None:
    """It is refused, and the blocks of that LBA are as before."""
    options = variant.options
    allowed = {options.namespace, *(one.namespace for one in options.more_namespaces)}
    others = sorted(set(session.namespaces()) - allowed)
    if others:
        pytest.skip(f"{variant.id}: a target that carries it out may overwrite namespaces {others}")
    opcode, make = COMMANDS[name]
    if not supported(session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    before = write_blocks(queue, scratch, BLOCKS, 1300)
    command, data = make(scratch)
    done = queue.run(command, data=data)
    try:
        refused(done, StatusCode.INVALID_NAMESPACE, StatusCode.INVALID_FIELD)
        found = read_blocks(queue, scratch, BLOCKS)
        assert found == before, (
            f"3.2.1.5: {opcode.name} of NSID FFFFFFFFh ended with {status_name(done.status)}, "
            f"and has changed blocks of NSID {scratch.nsid}"
        )
    finally:
        write_blocks(queue, scratch, BLOCKS, 1302)
