"""Forms that are no fused operation, and each place of a difference in one (Base 3.4.2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.pdu import ICReq
from storagetest.wire.tcp import ResponseTimeout

from .test_digests import needs_digests
from .test_edges_fused import LEADS, first, fusing_queue, run_both, second
from .test_fused import FIRST, SECOND

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.4.2", builds_on=("NVB-FUSED-EQUAL",)),
]

Halves = tuple[CommandResult, CommandResult]


@pytest.fixture
def fusing(session: ControllerSession, scratch: Scratch) -> Queue:
    """Return an I/O queue for fused operations."""
    return fusing_queue(session, scratch)


def _claim_kept(queue: Queue, scratch: Scratch, before: bytes, ended: Halves, what: str) -> None:
    """Claim that no half succeeded, that the block is what it was, and that the next operation is done."""
    for name, done in zip(("first", "second"), ended, strict=True):
        assert not done.ok, f"3.4.2: {what}, but the {name} half ended with a success"
    assert read_blocks(queue, scratch, 1) == before, f"3.4.2: {what}, but the Write was carried out"
    new = block_data(scratch.block_size, 1301)
    for done in run_both(queue, (first(scratch), second(scratch)), (before, new)):
        assert done.ok, f"3.4.2: {what}; a half of the next operation ended with {status_name(done.status)}"
    assert read_blocks(queue, scratch, 1) == new, f"3.4.2: {what}; the Write of the next operation was lost"


@pytest.mark.parametrize("short", [
    pytest.param("compare", marks=pytest.mark.case("NVB-FUSED-SHORT-COMPARE")),
    pytest.param("write", marks=pytest.mark.case("NVB-FUSED-SHORT-WRITE")),
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", kills=("fused-short",), builds_on=("NVB-FUSED-EQUAL", "NVT-SGL-04"))
def test_a_half_with_half_of_its_data_ends_both(fusing: Queue, scratch: Scratch, short: str) -> None:
    """The SGL of one half has half a block. What is there is equal to the blocks."""
    before, new = write_blocks(fusing, scratch, 1, 1302), block_data(scratch.block_size, 1303)
    half = scratch.block_size // 2
    data = (before[:half], new) if short == "compare" else (before, new[:half])
    ended = run_both(fusing, (first(scratch), second(scratch)), data)
    _claim_kept(fusing, scratch, before, ended, f"the SGL of the {short} has {half} bytes of a block")


def _zeroes(scratch: Scratch) -> Command:
    return io.write_zeroes(scratch.nsid, scratch.lba, 1)


OTHERS: dict[str, tuple[Io, Callable[[Scratch], Command]]] = {
    "READ": (Io.READ, lambda scratch: io.read(scratch.nsid, scratch.lba, 1)),
    "FLUSH": (Io.FLUSH, lambda scratch: io.flush(scratch.nsid)),
    "ZEROES": (Io.WRITE_ZEROES, _zeroes),
    "VERIFY": (Io.VERIFY, lambda scratch: io.verify(scratch.nsid, scratch.lba, 1)),
}
"""Commands that are half of no fused operation (5.2.13.2.1: FUSES has Compare and Write alone)."""


def _submit(queue: Queue, command: Command, scratch: Scratch, data: bytes) -> int:
    if command.opcode in (Io.COMPARE, Io.WRITE):
        return queue.submit(command, data=data)
    return queue.submit(command, reads=scratch.block_size if command.opcode == Io.READ else 0)


def _other(session: ControllerSession, scratch: Scratch, name: str, fuse: int) -> Command:
    opcode, make = OTHERS[name]
    if opcode in ONCS_BITS and not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    return replace(make(scratch), flags=fuse)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-FUSED-FIRST-{name}", kills=("fused-any-first",)))
    for name in OTHERS
])  # fmt: skip
def test_a_write_is_not_fused_with_another_command_than_compare(
    session: ControllerSession, fusing: Queue, scratch: Scratch, name: str
) -> None:
    """The first half is no Compare: the Write behind it is aborted."""
    before, new = write_blocks(fusing, scratch, 1, 1304), block_data(scratch.block_size, 1305)
    half = _submit(fusing, _other(session, scratch, name, FIRST), scratch, b"")
    write = fusing.submit(second(scratch), data=new)
    ended = fusing.wait(half), fusing.wait(write)
    _claim_kept(fusing, scratch, before, ended, f"the first half was {name}")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-FUSED-SECOND-{name}", kills=("fused-any-second",)))
    for name in OTHERS
])  # fmt: skip
def test_a_compare_is_not_fused_with_another_command_than_write(
    session: ControllerSession, fusing: Queue, scratch: Scratch, name: str
) -> None:
    """The second half is no Write: both are aborted, and the next operation is carried out."""
    before = write_blocks(fusing, scratch, 1, 1306)
    compare = fusing.submit(first(scratch), data=before)
    half = _submit(fusing, _other(session, scratch, name, SECOND), scratch, b"")
    ended = fusing.wait(compare), fusing.wait(half)
    _claim_kept(fusing, scratch, before, ended, f"the second half was {name}")


@pytest.mark.case("NVB-FUSED-TWO-QUEUES", kills=("fused-on-two-queues",), builds_on=("NVB-FUSED-ALONE",))
def test_halves_on_two_queues_are_not_fused(session: ControllerSession, scratch: Scratch) -> None:
    """The Compare waits in one queue, and the Write is in another one: that is a half without the other.

    The Write may come before the Compare: later attempts leave that time.
    """
    left = fusing_queue(session, scratch)
    if session.io_queues_granted < 2:
        pytest.skip("one I/O queue is granted")
    right = session.io_queue()
    before = write_blocks(left, scratch, 1, 1307)
    for seed, pause in enumerate(LEADS, start=1321):
        new = block_data(scratch.block_size, seed)
        compare = left.submit(first(scratch), data=before)
        time.sleep(pause)
        done = right.run(second(scratch), data=new)
        assert read_blocks(right, scratch, 1) == before, (
            "3.4.2: a Write whose Compare is in another queue was carried out"
        )
        refused(done, StatusCode.ABORTED_MISSING_FUSED)
        write = left.submit(second(scratch), data=new)
        for name, half in (("Compare", compare), ("Write", write)):
            ended = left.wait(half)
            assert ended.ok, (
                f"3.4.2: the {name} of one queue ended with {status_name(ended.status)}; another queue had a "
                "Write alone between the halves"
            )
        before = read_blocks(left, scratch, 1)
        assert before == new, "3.4.2: the Write behind its Compare was carried out"


@pytest.mark.case("NVB-FUSED-PLACES", kills=("fused-compares-end",), builds_on=("NVB-FUSED-OTHER",))
def test_a_difference_at_any_place_aborts_the_write(fusing: Queue, scratch: Scratch) -> None:
    """One bit differs: in the first byte, next to borders of words, in the middle, at the end."""
    before, new = write_blocks(fusing, scratch, 1, 1309), block_data(scratch.block_size, 1310)
    size = scratch.block_size
    for number, at in enumerate(
        (0, 1, 3, 4, 7, 8, 63, 64, 255, size // 2 - 1, size // 2, size - 8, size - 1)
    ):
        expected = bytearray(before)
        expected[at] ^= 1 << number % 8
        ended = run_both(fusing, (first(scratch), second(scratch)), (bytes(expected), new))
        assert read_blocks(fusing, scratch, 1) == before, (
            f"3.4.2: bit {number % 8} of byte {at} of {size} differs, but the Write was carried out"
        )
        refused(ended[0], StatusCode.COMPARE_FAILURE)
        refused(ended[1], StatusCode.ABORTED_FAILED_FUSED)
    for done in run_both(fusing, (first(scratch), second(scratch)), (before, new)):
        assert done.ok, f"3.4.2: the blocks are equal, but a half ended with {status_name(done.status)}"


@pytest.mark.case("NVB-FUSED-NSID", section="NVM 2.1.3.1", level="SHOULD", kills=("fused-any-nsid",))
def test_halves_of_two_namespaces_are_not_fused(fusing: Queue, pair: tuple[Scratch, Scratch]) -> None:
    """The Compare is of one namespace, and equal there; the Write of another, which has the same block."""
    left, right = pair
    if left.block_size != right.block_size:
        pytest.skip("the blocks of the namespaces have different sizes")
    before, new = write_blocks(fusing, left, 1, 1311), block_data(left.block_size, 1312)
    done = fusing.run(io.write(right.nsid, right.lba, 1), data=before)
    assert done.ok, f"NVM 3.3.6: a write ended with {status_name(done.status)}"
    ended = run_both(fusing, (first(left), second(right)), (before, new))
    for name, where in (("first", left), ("second", right)):
        assert read_blocks(fusing, where, 1) == before, (
            f"2.1.3.1: the halves are of namespaces {left.nsid} and {right.nsid}, and the {name} was written"
        )
    assert not ended[1].ok, "2.1.3.1: the Write of another namespace than its Compare's ended with a success"


PAIRS = 300
"""Operations of a case: more than an I/O queue has places for, so that each is used again (chosen)."""


@pytest.mark.case("NVB-FUSED-AGAIN", kills=("fused-fails-again",))
def test_operations_after_a_half_that_was_aborted_are_done(fusing: Queue, scratch: Scratch) -> None:
    """A Compare without its Write is aborted; operations in each place of the queue come after it."""
    current = write_blocks(fusing, scratch, 1, 1320)
    lone = fusing.submit(first(scratch), data=current)
    done = fusing.run(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
    assert done.ok, f"NVM 3.3.4: a read behind a lone half ended with {status_name(done.status)}"
    done = fusing.wait(lone)
    assert not done.ok, "3.4.2: a Compare without its Write ended with a success"
    for number in range(1, PAIRS + 1):
        new = block_data(scratch.block_size, 1321 + number % 2)
        for half in run_both(fusing, (first(scratch), second(scratch)), (current, new)):
            assert half.ok, (
                f"3.4.2: a half of operation {number}, after a half that was aborted, ended with "
                f"{status_name(half.status)}"
            )
        current = new
    assert read_blocks(fusing, scratch, 1) == current, f"3.4.2: the block after {PAIRS} operations"


@pytest.mark.case(
    "NVB-FUSED-DIGEST",
    section="NVMe/TCP 3.5",
    kills=("fused-ddgst-unchecked",),
    builds_on=("NVB-FUSED-EQUAL", "NVT-DGST-CAPSULE"),
)
def test_a_write_whose_compare_was_damaged_is_not_carried_out(bench: Harness, scratch: Scratch) -> None:
    """The data digest of the Compare is wrong, and its data are those of the block."""
    queue = fusing_queue(bench.session(icreq=ICReq(data_digest=True)), scratch)
    needs_digests(queue)
    if scratch.block_size > queue.in_capsule_limit:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data")
    before, new = write_blocks(queue, scratch, 1, 1330), block_data(scratch.block_size, 1331)
    compare = queue.submit(first(scratch), data=before, inside=True, override=_wrong)
    write = queue.submit(second(scratch), data=new, inside=True)
    compared = queue.wait(compare)
    refused(compared, StatusCode.TRANSIENT_TRANSPORT_ERROR)
    try:
        ended = compared, queue.wait(write)
    except ResponseTimeout as error:
        raise AssertionError(f"3.4.2: a Write whose Compare was damaged is not completed: {error}") from error
    _claim_kept(queue, scratch, before, ended, "the data of the Compare were damaged")


def _wrong(raw: bytes) -> bytes:
    return override_field(raw, "DDGST", 0xDEADBEEF)
