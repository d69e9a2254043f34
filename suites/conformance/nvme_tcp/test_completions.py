"""Completions (Base 4.2): their reserved fields, SQHD and CID, on every queue and with every outcome.

The fields of all other cases' completions are looked at, too (conftest.py); these cases name the rule.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, status_name
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, request_event
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, ICReq

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 4.2.2")]

INVALID_NSID = 0xFFFFFFFE
UNKNOWN_OPCODE = 0x7C

SAME_CID = 0x1234
"""CID of several commands, one after the other (chosen)."""


def use(queue: Queue, scratch: Scratch) -> list[Cqe]:
    """Run commands that succeed: two writes, one by R2T, a read and Flush; return their completions."""
    size, many = scratch.block_size, scratch.blocks_of(queue.in_capsule_limit + 4096)
    done = [
        queue.run(io.write(scratch.nsid, scratch.lba, 1), data=block_data(size, 1)),
        queue.run(io.write(scratch.nsid, scratch.lba, many), data=block_data(many * size, 2)),
        queue.run(io.read(scratch.nsid, scratch.lba, 1), reads=size),
        queue.run(io.flush(scratch.nsid)),
    ]
    assert all(one.ok for one in done), [status_name(one.status) for one in done]
    return [one.cqe for one in done]


def failed(queue: Queue, scratch: Scratch) -> list[Cqe]:
    """Run commands that fail: past the end, of an invalid NSID, of an unknown opcode."""
    size = scratch.block_size
    done = [
        queue.run(io.read(scratch.nsid, scratch.end, 1), reads=size),
        queue.run(io.read(INVALID_NSID, 0, 1), reads=size),
        queue.run(Command(UNKNOWN_OPCODE, nsid=scratch.nsid)),
    ]
    assert not any(one.ok for one in done), [status_name(one.status) for one in done]
    return [one.cqe for one in done]


@pytest.mark.case("NVT-CQE-IO", kills=("io-resp-phase", "io-resp-flags", "io-resp-result", "flush-result"))
def test_reserved_fields_of_completions_of_an_io_queue_are_zero(queue: Queue, scratch: Scratch) -> None:
    use(queue, scratch)
    assert not queue.faults, "; ".join(queue.faults)


@pytest.mark.case("NVT-CQE-IO-FAILED", kills=("error-resp-crd",))
def test_reserved_fields_of_completions_of_failed_io_commands_are_zero(
    queue: Queue, scratch: Scratch
) -> None:
    failed(queue, scratch)
    assert not queue.faults, "; ".join(queue.faults)


@pytest.mark.case("NVT-CQE-SQID", kills=("io-resp-sqid",))
def test_sqid_is_reserved_in_completions_of_an_io_queue(queue: Queue, scratch: Scratch) -> None:
    sqids = {cqe.sqid for cqe in use(queue, scratch)}
    assert sqids == {0}, f"4.2.2: SQID of completions over fabrics is reserved, but was {sorted(sqids)}"


@pytest.mark.case("NVT-CQE-SQID-LATE", kills=("sqid-after-sixteen",), builds_on=("NVT-CQE-SQID",))
def test_sqid_is_reserved_in_every_later_completion(session: ControllerSession, scratch: Scratch) -> None:
    queue = session.io_queue(sqsize=7)
    sqids = [queue.run(io.flush(scratch.nsid)).cqe.sqid for _ in range(40)]
    assert not any(sqids), f"4.2.2: SQID of completions over fabrics is reserved, but was {sqids}"


@pytest.mark.case("NVT-CQE-SQID-FAILED", kills=("error-resp-sqid",))
def test_sqid_is_reserved_in_completions_of_failed_io_commands(queue: Queue, scratch: Scratch) -> None:
    sqids = {cqe.sqid for cqe in failed(queue, scratch)}
    assert sqids == {0}, f"4.2.2: SQID of completions over fabrics is reserved, but was {sorted(sqids)}"


@pytest.mark.case("NVT-CQE-ADMIN-FAILED", kills=("error-resp-crd",))
def test_reserved_fields_of_completions_of_failed_admin_commands_are_zero(session: ControllerSession) -> None:
    assert not session.admin.run(admin.identify(0x0F), reads=4096).ok
    assert not session.admin.run(Command(UNKNOWN_OPCODE)).ok
    assert not session.admin.faults, "; ".join(session.admin.faults)


@pytest.mark.case("NVT-CQE-SQHD", section="Base 4.2.1", kills=("sqhd-not-wrapped", "sqhd-skips-0"))
def test_sqhd_moves_by_one_and_wraps_at_the_end_of_the_queue(
    session: ControllerSession, scratch: Scratch
) -> None:
    queue = session.io_queue(sqsize=7)
    heads = [queue.run(io.flush(scratch.nsid)).cqe.sqhd for _ in range(20)]
    assert queue.sqsize is not None
    assert max(heads) <= queue.sqsize, f"4.2.1: a queue of {queue.sqsize + 1} entries, but SQHD was {heads}"
    steps = {(after - before) % (queue.sqsize + 1) for before, after in itertools.pairwise(heads)}
    assert steps == {1}, f"4.2.1: one command moves SQHD by one, but it was {heads}"


@pytest.mark.case(
    "NVT-CQE-SQHD-EACH", section="Base 4.2.1", kills=("second-queue-sqhd", "sqhd-of-first-queue")
)
def test_each_queue_has_a_head_of_its_own(session: ControllerSession, scratch: Scratch) -> None:
    """SQHD is the head of the command's own queue. In each turn the queues have 1, 2 and 3 commands."""
    queues = [session.io_queue(sqsize=7)]
    queues += [session.io_queue(sqsize=7) for _ in range(1, min(3, session.io_queues_granted))]
    if len(queues) < 2:
        pytest.skip("the controller grants one I/O queue")
    heads: list[list[int]] = [[] for _ in queues]
    for _ in range(6):
        for number, queue in enumerate(queues):
            heads[number] += [queue.run(io.flush(scratch.nsid)).cqe.sqhd for _ in range(number + 1)]
    for number, (queue, seen) in enumerate(zip(queues, heads, strict=True)):
        assert queue.sqsize is not None
        steps = {(after - before) % (queue.sqsize + 1) for before, after in itertools.pairwise(seen)}
        assert steps == {1}, f"I/O queue {number + 1}: one command moves SQHD by one, but it was {seen}"


@pytest.mark.case("NVT-CQE-SQHD-ADMIN", section="Base 4.2.1", kills=("sqhd-stuck",))
def test_sqhd_of_the_admin_queue_wraps(session: ControllerSession) -> None:
    heads = [session.admin.run(admin.keep_alive()).cqe.sqhd for _ in range(70)]
    assert session.admin.sqsize is not None
    assert max(heads) <= session.admin.sqsize, f"4.2.1: SQHD was {heads}"
    assert len(set(heads)) > 2, f"4.2.1: SQHD is the queue's head, but was {sorted(set(heads))}"


@pytest.mark.case(section="Base 4.1.1")
@pytest.mark.parametrize("cid", [
    pytest.param(0, marks=pytest.mark.case("NVT-CID-0", kills=("cid-0-lost",))),
    pytest.param(0x7FFF, marks=pytest.mark.case("NVT-CID-7FFF", kills=("resp-wrong-cid",))),
    pytest.param(0x8000, marks=pytest.mark.case("NVT-CID-8000", kills=("cid-high-cut",))),
    pytest.param(0xFFFE, marks=pytest.mark.case("NVT-CID-FFFE", kills=("cid-high-cut",))),
])  # fmt: skip
def test_every_cid_is_returned(queue: Queue, scratch: Scratch, cid: int) -> None:
    queue.send(CapsuleCmd(replace(io.flush(scratch.nsid), cid=cid).encode()))
    pdu = queue.receive().pdu
    assert isinstance(pdu, CapsuleResp), f"4.1.1: a completion is due, not {pdu}"
    assert Cqe.decode(pdu.cqe).cid == cid, f"4.2.1: CID {Cqe.decode(pdu.cqe).cid:#x} is not the command's"


@pytest.mark.case("NVT-CID-REUSED", section="Base 4.1.1", kills=("cid-reuse-refused",))
def test_a_cid_is_used_again_after_its_completion(queue: Queue, scratch: Scratch) -> None:
    command = replace(io.flush(scratch.nsid), cid=5)
    for _ in range(3):
        assert queue.run(command).ok, "4.1.1: a CID is free when its command is complete"


@pytest.mark.case("NVT-CID-QUEUES", section="Base 4.1.1", kills=("cid-across-queues",))
def test_a_cid_is_unique_on_its_own_queue(session: ControllerSession, scratch: Scratch) -> None:
    """A CID that is outstanding on the admin queue is used on an I/O queue, and the other way round."""
    queue, size = session.io_queue(), scratch.block_size
    request_event(session, cid=SAME_CID)
    for _ in range(2):
        done = queue.run(replace(io.flush(scratch.nsid), cid=SAME_CID))
        assert done.ok, (
            f"4.1.1: CID {SAME_CID:#x} waits on the admin queue; a Flush of that CID on an I/O queue "
            f"ends with {status_name(done.status)}"
        )
    blocks = scratch.blocks_of(queue.in_capsule_limit + 4096)
    write = replace(io.write(scratch.nsid, scratch.lba, blocks), cid=SAME_CID + 1)
    waiting = queue.submit(write, data=block_data(blocks * size, 90))  # for the data of its R2T
    done = session.admin.run(replace(admin.get_features(Feature.NUMBER_OF_QUEUES), cid=SAME_CID + 1))
    assert done.ok, (
        f"4.1.1: CID {SAME_CID + 1:#x} is outstanding on an I/O queue; Get Features of that CID ends with "
        f"{status_name(done.status)}"
    )
    assert queue.wait(waiting).ok, "3.3.1: and the write goes on"


def _run_as(queue: Queue, command: Command, *, data: bytes = b"", reads: int = 0) -> bytes:
    """Run ``command`` with the CID that the last one had, and return its data."""
    done = queue.run(replace(command, cid=SAME_CID), data=data, reads=reads)
    assert done.ok, f"4.1.1: a command of a CID that is free again ended with {status_name(done.status)}"
    return done.data


@pytest.mark.case("NVT-CID-AGAIN-WRITE", kills=("cid-write-cached",), builds_on=("NVT-CID-REUSED",))
@pytest.mark.case(section="Base 4.1.1")
def test_each_write_of_a_cid_is_carried_out(queue: Queue, scratch: Scratch) -> None:
    """Two writes of the same blocks by one CID, next to each other, in the capsule and by R2T."""
    size = scratch.block_size
    for blocks in (1, scratch.blocks_of(queue.in_capsule_limit + 4096)):
        command = io.write(scratch.nsid, scratch.lba, blocks)
        for turn in range(2):
            for seed in (70, 71):
                data = block_data(blocks * size, seed + 2 * turn)
                _run_as(queue, command, data=data)
            found = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * size)
            assert found.data == data, (
                f"4.1.1: two writes of {blocks} blocks by CID {SAME_CID:#x} succeeded; the second is lost"
            )


@pytest.mark.case("NVT-CID-AGAIN-READ", kills=("cid-read-cached",), builds_on=("NVT-CID-REUSED",))
@pytest.mark.case(section="Base 4.1.1")
def test_each_read_of_a_cid_is_carried_out(queue: Queue, scratch: Scratch) -> None:
    """A block is read by one CID again and again, and written by others in between."""
    for number in range(4):
        data = block_data(scratch.block_size, 80 + number)
        assert queue.run(io.write(scratch.nsid, scratch.lba, 1), data=data).ok
        found = _run_as(queue, io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
        assert found == data, f"4.1.1: read {number + 1} of CID {SAME_CID:#x} returns old data"


@pytest.mark.case("NVT-CQE-ADMIN-DIGEST", section="NVMe/TCP 3.6.2.7", kills=("io-resp-flags",))
def test_reserved_fields_are_zero_with_digests(session: ControllerSession, scratch: Scratch) -> None:
    queue = session.io_queue(icreq=ICReq(header_digest=True, data_digest=True))
    use(queue, scratch)
    assert session.identify(Cns.CONTROLLER)
    assert not queue.faults, "; ".join(queue.faults)
