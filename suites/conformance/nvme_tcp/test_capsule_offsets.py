"""Data in a capsule that begin at an offset, of others than Write (Base 3.3.2.1.3; Write: NVT-SGL-06).

What is in front of the offset would be taken for the data by a controller that ignores it: each command would
then end otherwise, or do something else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe, in_capsule
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp
from storagetest.wire.nvme_tcp.reservation_harness import REGISTER, ReservingHost

from .test_families import supported

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(
        level="MUST",
        section="Base 3.3.2.1.3",
        kills=("sgl-offset-of-others-ignored",),
        builds_on=("NVT-SGL-06",),
    ),
]

OTHER_KEY = 0xE9E9
"""The reservation key in front of the offset (chosen)."""


def _need(session: ControllerSession, queue: Queue, size: int, *opcodes: Io) -> None:
    for opcode in opcodes:
        if not supported(session, opcode):
            pytest.skip(f"ONCS: {opcode.name} is not supported")
    if not session.controller["sgls"] >> 20 & 1:
        pytest.skip("SGLS bit 20: offsets in the capsule are not supported")
    if queue.in_capsule_limit < 2 * size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data; {2 * size} are needed")


def _run(queue: Queue, command: Command, front: bytes, data: bytes) -> Cqe:
    """Send a command whose ``data`` are behind ``front`` in its capsule; return its completion."""
    command = replace(command, cid=queue.next_cid(), dptr=in_capsule(len(data), offset=len(front)))
    queue.send(CapsuleCmd(command.encode(), front + data))
    pdu = queue.receive().pdu
    assert isinstance(pdu, CapsuleResp), f"3.3.2.1.3: not {pdu}"
    return Cqe.decode(pdu.cqe)


@pytest.mark.case("NVT-OFFSET-COMPARE")
def test_data_of_a_compare_begin_at_their_offset(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """The data of the block are behind other data, and then in front of them."""
    size = scratch.block_size
    _need(session, queue, size, Io.COMPARE)
    block, other = write_blocks(queue, scratch, 1, 1890), block_data(size, 1891)
    command = io.compare(scratch.nsid, scratch.lba, 1)
    for front, data, wanted in (
        (other, block, StatusCode.SUCCESS),
        (block, other, StatusCode.COMPARE_FAILURE),
    ):
        status = _run(queue, command, front, data).status
        assert status == wanted, (
            f"3.3.2.1.3: a Compare whose data are at offset {size} of its capsule ended with "
            f"{status_name(status)}; required: {status_name(wanted)}"
        )


@pytest.mark.case("NVT-OFFSET-COPY")
def test_ranges_of_a_copy_begin_at_their_offset(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    front, ranges = (io.copy_ranges([(scratch.lba + at, 1)]) for at in (1, 0))
    _need(session, queue, len(ranges), Io.COPY)
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    blocks = write_blocks(queue, scratch, 3, 1892)
    done = _run(queue, io.copy(scratch.nsid, scratch.lba + 2, 1), front, ranges)
    assert done.ok, f"3.3.2.1.3: SGLS allows offsets, not {status_name(done.status)}"
    found = read_blocks(queue, scratch, 1, at=2)
    assert found == blocks[: scratch.block_size], (
        f"3.3.2.1.3: the range of a Copy is at offset {len(front)} of its capsule; another block is copied"
    )


@pytest.mark.case("NVT-OFFSET-REGISTER")
def test_keys_of_a_register_begin_at_their_offset(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    keys = io.keys(0, first.key)
    _need(first.session, first.queue, len(keys))
    done = _run(first.queue, io.register(first.nsid, REGISTER), io.keys(0, OTHER_KEY), keys)
    assert done.ok, f"3.3.2.1.3: SGLS allows offsets, not {status_name(done.status)}"
    found = [one.key for one in first.report().registrants]
    assert found == [first.key], (
        f"3.3.2.1.3: the keys of a Register are at offset {len(keys)} of its capsule, and those of the "
        f"registrants are {found}; required: {[first.key]}"
    )
