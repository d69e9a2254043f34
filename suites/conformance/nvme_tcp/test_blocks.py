"""I/O commands (NVM Command Set 3.3; Base 7.2): Read, Write, Flush, Compare, Zeroes, DSM, Verify, Copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.limits import UNLIMITED
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, refused, write_blocks

from .test_namespaces import need_invalid

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3")]

Observe = Callable[[str], None]

BROADCAST = 0xFFFFFFFF
"""The NSID of all namespaces (Base 3.2.1.5)."""

NO_NAMESPACE = 0xFFFFFFFE
"""An NSID that few controllers have: it is the largest one that NN can be."""

DEAC_SUPPORTED = 1 << 3
"""DLFEAT: Write Zeroes supports the Deallocate bit (NVM 4.1.5.1)."""


def optional(session: ControllerSession, command: Io) -> None:
    """Skip if ``command`` is not supported according to ONCS."""
    if not session.controller["oncs"] >> ONCS_BITS[command] & 1:
        pytest.skip(f"ONCS: {command.name} is not supported")


def pattern(scratch: Scratch, blocks: int, seed: int) -> bytes:
    return block_data(blocks * scratch.block_size, seed)


def zero(queue: Queue, scratch: Scratch, at: int, blocks: int, *, deallocate: bool = False) -> CommandResult:
    """Write zeroes, in commands within WZSL; return the last result, or the first that is not good."""
    for lba, count in scratch.limits.pieces(scratch.lba + at, blocks, most=scratch.limits.zeroes):
        done = queue.run(io.write_zeroes(scratch.nsid, lba, count, deallocate=deallocate))
        if not done.ok:
            break
    return done


def discard(queue: Queue, scratch: Scratch, *ranges: tuple[int, int]) -> None:
    """Deallocate (offset, blocks), in commands within DMRL and DMRSL."""
    limits = scratch.limits
    pieces = [
        piece
        for at, blocks in ranges
        for piece in limits.pieces(scratch.lba + at, blocks, most=limits.discard)
    ]
    for first in range(0, len(pieces), limits.discard_ranges):
        some = pieces[first : first + limits.discard_ranges]
        done = queue.run(io.dataset_management(scratch.nsid, len(some)), data=io.dsm_ranges(some))
        assert done.ok, f"Dataset Management of {some} ended with {status_name(done.status)}"


@pytest.mark.case("NVB-RW-01", section="NVM 3.3.6", kills=("write-lost", "read-flipped"))
def test_what_is_written_is_read(queue: Queue, scratch: Scratch) -> None:
    data = write_blocks(queue, scratch, 16, 1)
    assert read_blocks(queue, scratch, 16) == data


@pytest.mark.case("NVB-RW-02", section="NVM 3.3.6", kills=("write-spills",))
def test_a_write_leaves_its_neighbours_alone(queue: Queue, scratch: Scratch) -> None:
    before = write_blocks(queue, scratch, 3, 2)
    middle = write_blocks(queue, scratch, 1, 3, at=1)
    size = scratch.block_size
    assert read_blocks(queue, scratch, 3) == before[:size] + middle + before[2 * size :]


@pytest.mark.case("NVB-RW-03", section="NVM 3.3.6", kills=("write-lost",))
def test_written_data_is_read_by_another_controller(queue: Queue, bench: Harness, scratch: Scratch) -> None:
    data = write_blocks(queue, scratch, 8, 4)
    assert read_blocks(bench.session().io_queue(), scratch, 8) == data


@pytest.mark.case("NVB-RW-04", section="NVM 3.3.6", kills=("write-lost",))
def test_what_is_written_is_read_by_another_queue(session: ControllerSession, scratch: Scratch) -> None:
    first = session.io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    second = session.io_queue()
    data = write_blocks(first, scratch, 8, 5)
    assert read_blocks(second, scratch, 8) == data


@pytest.mark.case("NVB-RW-05", section="NVM 3.3.6", kills=("fua-refused",))
def test_fua_is_taken(queue: Queue, scratch: Scratch) -> None:
    data = pattern(scratch, 1, 6)
    assert queue.run(io.write(scratch.nsid, scratch.lba, 1, fua=True), data=data).ok
    done = queue.run(io.read(scratch.nsid, scratch.lba, 1, fua=True), reads=scratch.block_size)
    assert done.data == data


@pytest.mark.case("NVB-RW-06", section="NVM 3.3.4", kills=("read-flipped",))
def test_sixteen_reads_at_once_are_all_answered(queue: Queue, scratch: Scratch) -> None:
    """Sixteen, or as many as the queue may hold (CAP.MQES, MAXCMD)."""
    data, size = write_blocks(queue, scratch, 16, 7), scratch.block_size
    count = min(16, scratch.limits.outstanding)
    cids = [queue.submit(io.read(scratch.nsid, scratch.lba + at, 1), reads=size) for at in range(count)]
    for at, cid in enumerate(cids):
        assert queue.wait(cid).data == data[at * size : (at + 1) * size]


RANGES = {"AT-END": (0, 1), "ACROSS-END": (-1, 2), "FAR": (1 << 40, 1), "MAX": (None, 1)}


def out_of_range(kills: tuple[str, ...], prefix: str) -> pytest.MarkDecorator:
    """One case for each way to name a block past the end."""
    return pytest.mark.parametrize(
        ("start", "blocks"),
        [
            pytest.param(start, blocks, id=name, marks=pytest.mark.case(f"NVB-{prefix}-{name}", kills=kills))
            for name, (start, blocks) in RANGES.items()
        ],
    )


INVALID_NSID = ("nsid-not-checked", "namespace-invalid-field")


def past_end(scratch: Scratch, start: int | None) -> int:
    return (1 << 64) - 1 if start is None else scratch.end + start


@pytest.mark.case(section="NVM 3.3.4")
@out_of_range(("lba-not-checked",), "READ")
def test_read_past_end_is_refused(queue: Queue, scratch: Scratch, start: int | None, blocks: int) -> None:
    done = queue.run(
        io.read(scratch.nsid, past_end(scratch, start), blocks), reads=blocks * scratch.block_size
    )
    refused(done, StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case(section="NVM 3.3.6")
@out_of_range(("lba-not-checked",), "WRITE")
def test_write_past_end_is_refused(queue: Queue, scratch: Scratch, start: int | None, blocks: int) -> None:
    data = pattern(scratch, blocks, 8)
    done = queue.run(io.write(scratch.nsid, past_end(scratch, start), blocks), data=data)
    refused(done, StatusCode.LBA_OUT_OF_RANGE, StatusCode.CAPACITY_EXCEEDED)


@pytest.mark.case("NVB-LAST-BLOCK", section="NVM 3.3.4", kills=("last-block-refused",))
def test_the_last_block_is_read(queue: Queue, scratch: Scratch) -> None:
    done = queue.run(io.read(scratch.nsid, scratch.end - 1, 1), reads=scratch.block_size)
    assert done.ok, f"3.3.4: the last block is within the range, not {status_name(done.status)}"


@pytest.mark.case(section="Base 4.1.1")
@pytest.mark.parametrize("nsid", [
    pytest.param(0, marks=pytest.mark.case("NVB-NSID-0", kills=INVALID_NSID)),
    pytest.param(NO_NAMESPACE, marks=pytest.mark.case("NVB-NSID-FFFFFFFE", kills=INVALID_NSID)),
    pytest.param(0xFFFFFFFF, marks=pytest.mark.case("NVB-NSID-FFFFFFFF", kills=("nsid-not-checked",))),
])  # fmt: skip
def test_a_read_of_no_namespace_is_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, nsid: int
) -> None:
    need_invalid(session, nsid)
    done = queue.run(io.read(nsid, 0, 1), reads=scratch.block_size)
    # Base 3.2.1.5: an invalid NSID is an Invalid Namespace; for FFFFFFFFh it is also an Invalid Field
    refused(done, StatusCode.INVALID_NAMESPACE, *([StatusCode.INVALID_FIELD] if nsid == BROADCAST else []))


@pytest.mark.case("NVB-MDTS", section="Base 5.2.13.2.1", kills=("mdts-ignored",))
def test_a_transfer_over_mdts_is_refused(queue: Queue, scratch: Scratch) -> None:
    most = scratch.limits.transfer
    blocks = most + 1
    if most == UNLIMITED or blocks > scratch.end:
        pytest.skip("MDTS sets no limit that a command could reach")
    done = queue.run(io.read(scratch.nsid, 0, blocks), reads=blocks * scratch.block_size)
    refused(done, StatusCode.INVALID_FIELD)


@pytest.mark.case(
    "NVB-MDTS-WRITE", section="Base 5.2.13.2.1", kills=("mdts-of-writes-ignored",), builds_on=("NVB-MDTS",)
)
def test_a_write_over_mdts_is_refused(queue: Queue, scratch: Scratch) -> None:
    most, blocks = scratch.limits.transfer, scratch.limits.transfer + 1
    if most == UNLIMITED or scratch.lba + blocks > scratch.end:
        pytest.skip("MDTS sets no limit that a write could reach")
    data = bytes(blocks * scratch.block_size)
    refused(queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data), StatusCode.INVALID_FIELD)


@pytest.mark.case(section="Base 4.2.3.1")
@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVB-OPCODE-{code:02X}H", kills=("opcode-accepted",)))
    for code in (0x7C, 0x30, 0x44)
])  # fmt: skip
def test_an_unknown_io_opcode_is_refused(queue: Queue, scratch: Scratch, opcode: int) -> None:
    refused(queue.run(Command(opcode, nsid=scratch.nsid)), StatusCode.INVALID_OPCODE)


@pytest.mark.case("NVB-FUSE-01", section="Base 3.4.2", level="SHOULD", kills=("fuse-ignored",))
def test_a_fused_command_is_refused_where_there_are_none(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    if session.controller.raw[522] & 1:
        pytest.skip("FUSES: Compare and Write is supported")
    command = replace(io.read(scratch.nsid, scratch.lba, 1), flags=0x41)
    refused(queue.run(command, reads=scratch.block_size), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVB-FUSE-11B", section="Base 1.4.1.6", kills=("fuse-reserved-taken",))
def test_a_reserved_fuse_is_refused(queue: Queue, scratch: Scratch) -> None:
    """FUSE 11b is reserved (4.1.1): it is no command by itself, and no part of a fused operation."""
    command = replace(io.read(scratch.nsid, scratch.lba, 1), flags=0x43)
    done = queue.run(command, reads=scratch.block_size)
    assert not done.ok, "1.4.1.6: a command whose FUSE is 11b, a reserved value, succeeds"


# Flush (Base 7.2)


@pytest.mark.case("NVB-FLUSH-01", section="Base 7.2", kills=("flush-refused",))
def test_flush_succeeds(queue: Queue, scratch: Scratch) -> None:
    write_blocks(queue, scratch, 1, 9)
    assert queue.run(io.flush(scratch.nsid)).ok


@pytest.mark.case("NVB-FLUSH-02", section="Base 7.2", level="MAY")
def test_flush_of_all_namespaces(queue: Queue, observe: Observe) -> None:
    observe(f"NSID FFFFFFFFh: {status_name(queue.run(io.flush(0xFFFFFFFF)).status)}")


@pytest.mark.case("NVB-FLUSH-03", section="Base 3.2.1.5", kills=("nsid-not-checked",))
def test_flush_of_no_namespace_is_refused(session: ControllerSession, queue: Queue) -> None:
    need_invalid(session, NO_NAMESPACE)
    refused(queue.run(io.flush(NO_NAMESPACE)), StatusCode.INVALID_NAMESPACE)


# Compare (3.3.1)


@pytest.mark.case("NVB-COMPARE-01", section="NVM 3.3.1", kills=("compare-never",))
def test_equal_blocks_compare(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.COMPARE)
    blocks = scratch.fit(2)
    data = write_blocks(queue, scratch, blocks, 10)
    assert queue.run(io.compare(scratch.nsid, scratch.lba, blocks), data=data).ok


@pytest.mark.case("NVB-COMPARE-02", section="NVM 3.3.1", kills=("compare-always",))
def test_one_bit_that_differs_is_a_compare_failure(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    optional(session, Io.COMPARE)
    blocks = scratch.fit(2)
    data = write_blocks(queue, scratch, blocks, 11)
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    refused(queue.run(io.compare(scratch.nsid, scratch.lba, blocks), data=wrong), StatusCode.COMPARE_FAILURE)


# Write Zeroes (3.3.8)


@pytest.mark.case("NVB-ZEROES-01", section="NVM 3.3.8", kills=("zeroes-ignored",))
def test_written_zeroes_are_read(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.WRITE_ZEROES)
    data = write_blocks(queue, scratch, 8, 12)
    done = zero(queue, scratch, 2, 4)
    assert done.ok, f"Write Zeroes ended with {status_name(done.status)}"
    size = scratch.block_size
    assert read_blocks(queue, scratch, 8) == data[: 2 * size] + bytes(4 * size) + data[6 * size :]


@pytest.mark.case("NVB-ZEROES-02", section="NVM 3.3.8", kills=("zeroes-ignored",))
def test_deallocated_zeroes_read_as_zero(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """They read as zeroes, whatever DLFEAT reports for other deallocated blocks. DEAC is optional."""
    optional(session, Io.WRITE_ZEROES)
    write_blocks(queue, scratch, 8, 13)
    done = zero(queue, scratch, 0, 8, deallocate=True)
    if not done.ok and not session.namespace(scratch.nsid)["dlfeat"] & DEAC_SUPPORTED:
        pytest.skip(f"DLFEAT bit 3: Write Zeroes takes no DEAC, and it was {status_name(done.status)}")
    assert done.ok, f"Write Zeroes with DEAC, which DLFEAT announces, ended with {status_name(done.status)}"
    assert read_blocks(queue, scratch, 8) == bytes(8 * scratch.block_size)


ODD_RANGES = ((1, 1), (3, 5), (7, 9), (9, 14), (15, 1), (2, 29))
"""First block and blocks of ranges that begin and end within larger units of 8 and 16 blocks."""


@pytest.mark.case(
    "NVB-ZEROES-DEAC-PARTS", section="NVM 3.3.8", kills=("deac-whole-units",), builds_on=("NVB-ZEROES-02",)
)
def test_deallocated_zeroes_begin_and_end_at_any_block(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """A namespace may deallocate larger units: what is outside of them is zeroed, and the neighbours stay."""
    optional(session, Io.WRITE_ZEROES)
    blocks, size = 32, scratch.block_size
    for at, count in ODD_RANGES:
        data = write_blocks(queue, scratch, blocks, 1340 + at)
        done = zero(queue, scratch, at, count, deallocate=True)
        if not done.ok and not session.namespace(scratch.nsid)["dlfeat"] & DEAC_SUPPORTED:
            pytest.skip(f"DLFEAT bit 3: Write Zeroes takes no DEAC, and it was {status_name(done.status)}")
        assert done.ok, (
            f"Write Zeroes with DEAC, which DLFEAT announces, ended with {status_name(done.status)}"
        )
        found = read_blocks(queue, scratch, blocks)
        wanted = data[: at * size] + bytes(count * size) + data[(at + count) * size :]
        wrong = [lba for lba in range(blocks) if found[lba * size :][:size] != wanted[lba * size :][:size]]
        assert not wrong, (
            f"3.3.8: Write Zeroes with DEAC of {count} blocks from block {at} on; of {blocks} blocks these "
            f"are wrong: {wrong}"
        )


@pytest.mark.case(section="NVM 3.3.8")
@out_of_range(("lba-not-checked", "zeroes-past-end"), "ZEROES")
def test_zeroes_past_the_end_are_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, start: int | None, blocks: int
) -> None:
    optional(session, Io.WRITE_ZEROES)
    done = queue.run(io.write_zeroes(scratch.nsid, past_end(scratch, start), blocks))
    refused(done, StatusCode.LBA_OUT_OF_RANGE)


# Dataset Management (3.3.3)


@pytest.mark.case("NVB-DSM-01", section="NVM 3.3.3.2.1", kills=("dsm-half",))
def test_deallocated_blocks_read_as_one_of_three_things(
    session: ControllerSession, queue: Queue, scratch: Scratch, observe: Observe
) -> None:
    optional(session, Io.DATASET_MANAGEMENT)
    data = write_blocks(queue, scratch, 8, 14)
    discard(queue, scratch, (0, 8))
    seen, size = read_blocks(queue, scratch, 8), scratch.block_size
    kinds = {bytes(size): "zeroes", b"\xff" * size: "ones"}
    named = {
        kinds.get(seen[at : at + size], "old data" if seen[at : at + size] == data[at : at + size] else "?")
        for at in range(0, len(seen), size)
    }
    observe(f"deallocated blocks read as {', '.join(sorted(named))}")
    assert "?" not in named, "3.3.3.2.1: zeroes, ones, or what was written last"


@pytest.mark.case("NVB-DSM-02", section="NVM 3.3.3", kills=("dsm-spills",))
def test_deallocation_keeps_other_blocks(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.DATASET_MANAGEMENT)
    data, size = write_blocks(queue, scratch, 24, 15), scratch.block_size
    discard(queue, scratch, (8, 4), (16, 4))
    seen = read_blocks(queue, scratch, 24)
    for first, last in ((0, 8), (12, 16), (20, 24)):
        assert seen[first * size : last * size] == data[first * size : last * size], (
            "3.3.3: other blocks are kept"
        )


@pytest.mark.case("NVB-DSM-03", section="NVM 3.3.3", level="SHOULD", kills=("dsm-end-internal-error",))
def test_a_range_past_the_end_is_out_of_range_or_ignored(
    session: ControllerSession, queue: Queue, scratch: Scratch, observe: Observe
) -> None:
    optional(session, Io.DATASET_MANAGEMENT)
    ranges = io.dsm_ranges([(scratch.end, min(8, scratch.limits.discard))])
    done = queue.run(io.dataset_management(scratch.nsid, 1), data=ranges)
    observe(f"a range past the end: {status_name(done.status)}")
    if not done.ok:  # 3.3.3: the command is advisory, so nothing need come of it
        refused(done, StatusCode.LBA_OUT_OF_RANGE)


# Verify (3.3.5) and Copy (3.3.2)


@pytest.mark.case("NVB-VERIFY-01", section="NVM 3.3.5", kills=("verify-refused",))
def test_good_blocks_verify(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.VERIFY)
    write_blocks(queue, scratch, 4, 16)
    done = queue.run(io.verify(scratch.nsid, scratch.lba, min(4, scratch.limits.verify)))
    assert (done.ok, done.data) == (True, b""), "3.3.5: and no data is transferred"


@pytest.mark.case("NVB-VERIFY-02", section="NVM 3.3.5", kills=("lba-not-checked", "verify-past-end"))
def test_verify_past_the_end_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.VERIFY)
    refused(queue.run(io.verify(scratch.nsid, scratch.end, 1)), StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case("NVB-COPY-01", section="NVM 3.3.2", kills=("copy-ignored",))
def test_ranges_are_copied_in_order(
    session: ControllerSession, queue: Queue, scratch: Scratch, observe: Observe
) -> None:
    """Two ranges, or as many and as long as MSRC, MSSRL and MCL allow (NVM 4.1.5.1)."""
    optional(session, Io.COPY)
    data, size = write_blocks(queue, scratch, 8, 17), scratch.block_size
    write_blocks(queue, scratch, 8, 18, at=32)
    ranges = scratch.limits.copied([(4, 4), (0, 2)])
    if not ranges:
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    observe(f"copied ranges of {', '.join(str(blocks) for _, blocks in ranges)} blocks")
    sources = io.copy_ranges((scratch.lba + at, blocks) for at, blocks in ranges)
    done = queue.run(io.copy(scratch.nsid, scratch.lba + 32, len(ranges)), data=sources)
    assert done.ok, f"Copy of {ranges} (offset, blocks) ended with {status_name(done.status)}"
    copied = b"".join(data[at * size : (at + blocks) * size] for at, blocks in ranges)
    assert read_blocks(queue, scratch, len(copied) // size, at=32) == copied, (
        "3.3.2: the ranges, in their order"
    )


@pytest.mark.case("NVB-COPY-02", section="NVM 3.3.2", kills=("lba-not-checked",))
def test_copy_from_past_end_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.COPY)
    ranges = io.copy_ranges([(scratch.end, 1)])
    refused(queue.run(io.copy(scratch.nsid, scratch.lba, 1), data=ranges), StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case("NVB-COPY-03", section="NVM 3.3.2", kills=("copy-limits",))
def test_a_copy_over_mssrl_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.COPY)
    most = scratch.limits.copy_range
    if most >= min(0xFFFF, scratch.end):
        pytest.skip("MSSRL is as long as a range can be")
    ranges = io.copy_ranges([(0, most + 1)])
    refused(
        queue.run(io.copy(scratch.nsid, scratch.lba, 1), data=ranges), StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED
    )


@pytest.mark.case("NVB-COPY-04", section="NVM 3.3.2", kills=("copy-limits",))
def test_ranges_over_msrc_are_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    optional(session, Io.COPY)
    count = scratch.limits.copy_ranges + 1
    if count > 128:
        pytest.skip("MSRC is beyond what a case sends")
    ranges = io.copy_ranges([(scratch.lba, 1)] * count)
    refused(
        queue.run(io.copy(scratch.nsid, scratch.lba + 64, count), data=ranges),
        StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED,
    )
