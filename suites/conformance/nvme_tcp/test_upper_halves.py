"""High bits of addresses, and the largest number of blocks: what 32 or 16 bits do not hold (NVM 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Io, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.limits import UNLIMITED
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, read_blocks, write_blocks

from .test_families import supported, uncorrectable
from .test_log_pages import newest

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.1")]

BITS = (32, 48, 63)
"""Bits of an LBA that are in its upper dword (chosen)."""

BLOCKS = 4
COPIED_TO = 8
"""Blocks that a Copy takes part in: the first of the source, and of the destination."""

LONG = 30.0
"""Timeout in seconds of a command of 65,536 blocks (chosen)."""

SAMPLES = (0, 1, 255, 256, 32767, 32768, 65534, 65535)
"""Offsets of the blocks that are looked at: at the ends of 8, 15 and 16 bits (chosen)."""


def _need(session: ControllerSession, *opcodes: Io) -> None:
    """Skip if an optional command is not supported."""
    for opcode in opcodes:
        if not supported(session, opcode):
            pytest.skip(f"ONCS: {opcode.name} is not supported")


def _far(scratch: Scratch, at: int = 0) -> Iterator[int]:
    """Yield addresses past the end whose lower dword is that of the block ``at`` of ``scratch``."""
    found = [lba for bit in BITS if (lba := scratch.lba + at + (1 << bit)) >= scratch.end]
    if not found:
        pytest.skip(f"the namespace has {scratch.end} blocks: no address of one bit more is past its end")
    yield from found


def _copy(scratch: Scratch, source: int, to: int) -> tuple[Command, bytes]:
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    return io.copy(scratch.nsid, to, 1), io.copy_ranges([(source, 1)])


def _claim_kept(queue: Queue, scratch: Scratch, before: bytes, blocks: int, what: str) -> None:
    for at in range(blocks):
        done = queue.run(io.read(scratch.nsid, scratch.lba + at, 1), reads=scratch.block_size)
        assert done.ok, (
            f"3.1: {what}; LBA {scratch.lba + at:#x} cannot be read since: {status_name(done.status)}"
        )
        kept = before[at * scratch.block_size : (at + 1) * scratch.block_size]
        assert done.data == kept, f"3.1: {what}; LBA {scratch.lba + at:#x} is changed, which it did not name"


@pytest.mark.case("NVB-HIGH-DSM", section="NVM 3.3.3", kills=("dsm-high-dword-ignored",))
def test_a_deallocation_of_a_far_range_takes_no_other_block(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Alone, and behind a range that is there; whether the far range is an error is NVB-DSM-03."""
    _need(session, Io.DATASET_MANAGEMENT)
    before = write_blocks(queue, scratch, BLOCKS, 1200)
    for lba in _far(scratch):
        for ranges in ([(lba, 1)], [(scratch.lba + COPIED_TO, 1), (lba, 1)][: scratch.limits.discard_ranges]):
            done = queue.run(io.dataset_management(scratch.nsid, len(ranges)), data=io.dsm_ranges(ranges))
            what = f"Dataset Management of LBA {lba:#x} ended with {status_name(done.status)}"
            _claim_kept(queue, scratch, before, BLOCKS, what)


@pytest.mark.case("NVB-HIGH-COPY-FROM", section="NVM 3.3.2", kills=("copy-source-high-dword-ignored",))
def test_a_copy_of_a_far_block_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    _need(session, Io.COPY)
    before = write_blocks(queue, scratch, COPIED_TO + 1, 1201)
    for lba in _far(scratch):
        command, ranges = _copy(scratch, lba, scratch.lba + COPIED_TO)
        done = queue.run(command, data=ranges)
        assert not done.ok, f"3.1: a Copy of LBA {lba:#x} succeeded; the namespace has {scratch.end} blocks"
        what = f"a Copy of LBA {lba:#x} ended with {status_name(done.status)}"
        _claim_kept(queue, scratch, before, COPIED_TO + 1, what)


@pytest.mark.case("NVB-HIGH-COPY-TO", section="NVM 3.3.2", kills=("copy-to-high-dword-ignored",))
def test_a_copy_to_a_far_block_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    _need(session, Io.COPY)
    before = write_blocks(queue, scratch, COPIED_TO + 1, 1202)
    for lba in _far(scratch, COPIED_TO):
        command, ranges = _copy(scratch, scratch.lba, lba)
        done = queue.run(command, data=ranges)
        assert not done.ok, f"3.1: a Copy to LBA {lba:#x} succeeded; the namespace has {scratch.end} blocks"
        what = f"a Copy to LBA {lba:#x} ended with {status_name(done.status)}"
        _claim_kept(queue, scratch, before, COPIED_TO + 1, what)


@pytest.mark.case("NVB-HIGH-UNC", section="NVM 3.3.7", kills=("mark-high-dword-ignored",))
def test_a_mark_of_a_far_block_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    _need(session, Io.WRITE_UNCORRECTABLE)
    before = write_blocks(queue, scratch, BLOCKS, 1203)
    try:
        for lba in _far(scratch):
            done = queue.run(uncorrectable(scratch.nsid, lba, 1))
            assert not done.ok, (
                f"3.1: Write Uncorrectable of LBA {lba:#x} succeeded; the namespace has {scratch.end} blocks"
            )
            what = f"Write Uncorrectable of LBA {lba:#x} ended with {status_name(done.status)}"
            _claim_kept(queue, scratch, before, BLOCKS, what)
    finally:
        write_blocks(queue, scratch, BLOCKS, 1204)


@pytest.mark.case(
    "NVA-LOG-ERROR-LBA-HIGH",
    section="Base 5.2.12.1.2",
    kills=("error-log-lba-dword",),
    builds_on=("NVA-LOG-ERROR-LBA",),
)
def test_an_entry_of_the_error_log_has_every_bit_of_the_lba(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    for lba in _far(scratch):
        before = newest(session).count
        cid = queue.submit(io.read(scratch.nsid, lba, 1), reads=scratch.block_size)
        if queue.wait(cid).ok:
            pytest.skip("a read past the end succeeds (NVB-READ-FAR)")
        entry = newest(session)
        if entry.count <= before or (entry.sqid, entry.cid) != (queue.qid, cid):
            pytest.skip("the controller logs no error for a read past the end")
        assert entry.lba == lba, (
            f"5.2.12.1.2: the entry of a read of LBA {lba:#x}, of one block, has LBA {entry.lba:#x}"
        )


# Bits of an LBA, and of the offset in bytes that a controller makes of it


@pytest.mark.case(
    "NVB-LBA-EACH-BIT", section="NVM 3.3.4, 3.3.6", kills=("lba-16-bits",), builds_on=("NVB-RW-02",)
)
def test_a_far_block_is_none_of_those_whose_address_has_fewer_bits(queue: Queue, scratch: Scratch) -> None:
    """The last block but one, and the blocks of its address without one bit, or without all upper ones.

    The others are only read. A controller that counts bytes in 32 bits takes one of them for it, if the
    namespace is larger than 4 GiB.
    """
    far = Scratch(scratch.nsid, scratch.end - 2, 1, scratch.end, scratch.limits)
    kept = queue.run(io.read(far.nsid, far.lba, 1), reads=far.block_size)
    if not kept.ok:
        pytest.skip(f"LBA {far.lba:#x} is not read: {status_name(kept.status)}")
    alike = {far.lba ^ 1 << bit for bit in range(far.lba.bit_length()) if far.lba >> bit & 1}
    alike |= {far.lba & (1 << bits) - 1 for bits in range(1, far.lba.bit_length())}

    def read(lba: int) -> bytes:
        return queue.run(io.read(far.nsid, lba, 1), reads=far.block_size).data

    before = {lba: read(lba) for lba in sorted(alike)}  # without data, if a block cannot be read
    try:
        data = write_blocks(queue, far, 1, 1216)
        assert read_blocks(queue, far, 1) == data, f"3.3.4: LBA {far.lba:#x} is not what was written there"
        for lba, found in before.items():
            assert read(lba) == found, f"3.3.6: a write of LBA {far.lba:#x} has changed LBA {lba:#x}"
    finally:
        queue.run(io.write(far.nsid, far.lba, 1), data=kept.data)


# 65,536 blocks: NLB is FFFFh, zero's based


WITHOUT_DATA: dict[str, tuple[Io, Callable[[int, int, int], Command], str]] = {
    "ZEROES": (Io.WRITE_ZEROES, io.write_zeroes, "NVM 3.3.8"),
    "VERIFY": (Io.VERIFY, io.verify, "NVM 3.3.5"),
    "UNC": (Io.WRITE_UNCORRECTABLE, uncorrectable, "NVM 3.3.7"),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVB-MOST-PAST-{name}", section=section, kills=("most-blocks-are-none",)))
    for name, (_, _, section) in WITHOUT_DATA.items()
])  # fmt: skip
def test_65536_blocks_from_the_last_one_are_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """They reach past the end, and may be over a limit, too; the last block is as before."""
    opcode, make, _ = WITHOUT_DATA[name]
    _need(session, opcode)
    end = Scratch(scratch.nsid, scratch.end - 1, 1, scratch.end, scratch.limits)
    before = read_blocks(queue, end, 1)
    done = _run(queue, make(end.nsid, end.lba, UNLIMITED))
    try:
        assert not done.ok, f"3.1: {opcode.name} of 65,536 blocks succeeded; one is left to the end"
        _claim_kept(queue, end, before, 1, f"{opcode.name} ended with {status_name(done.status)}")
    finally:
        queue.run(io.write(end.nsid, end.lba, 1), data=before)


def _run(queue: Queue, command: Command) -> CommandResult:
    return queue.wait(queue.submit(command), deadline=LONG)


def _largest(scratch: Scratch, opcode: Io, most: int) -> Scratch:
    """Return 65,536 blocks, and one on each side of them, of the half that the cases overwrite."""
    start = scratch.end // 2
    if most < UNLIMITED:
        pytest.skip(f"{opcode.name} of this controller takes {most} blocks")
    if start + UNLIMITED + 2 > scratch.end:
        pytest.skip(f"the namespace has {scratch.end} blocks; the case needs {2 * (UNLIMITED + 2)}")
    return Scratch(scratch.nsid, start + 1, UNLIMITED, scratch.end, scratch.limits)


PAGE, PIECE, ENTRY = 4096, 1024, 64
"""Bytes of a memory page, of a part that is read, and of an entry of the error log (5.2.12.1.2)."""
UNKNOWN_LOG = 0xEE
OFFSETS_SUPPORTED = 1 << 2
"""LPA: extended data of Get Log Page (Base 5.2.13.2.1)."""


@pytest.mark.case("NVA-LOG-ERROR-LARGE", section="Base 5.2.12", kills=("log-first-4-kib",))
def test_a_log_page_of_more_than_4_kib_is_read_by_one_command(session: ControllerSession) -> None:
    """The error log, which has an entry for each of the errors that the case causes, is that of its parts."""
    entries = min(session.controller["elpe"] + 1, 80)
    length, most = entries * ENTRY // PIECE * PIECE, session.controller["mdts"]
    if length <= PAGE or (most and length > session.cap.page_size << most):
        pytest.skip(f"the error log has {entries} entries, and MDTS is {most}")
    if not session.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    for _ in range(entries):
        session.admin.run(admin.get_log_page(UNKNOWN_LOG, ENTRY), reads=ENTRY)

    def read(at: int, size: int) -> bytes:
        done = session.admin.run(admin.get_log_page(LogPage.ERROR, size, offset=at), reads=size)
        assert done.ok, f"5.2.12: {size} bytes from LPO {at} of page 01h are {status_name(done.status)}"
        return done.data

    before = read(0, length)
    for at in range(0, length, PIECE):
        part, after = read(at, PIECE), read(0, length)
        whole = [one[at : at + PIECE] for one in (before, after)]
        assert part in whole, (
            f"5.2.12: bytes {at} to {at + PIECE} of the error log are {whole[1][:16].hex()}… if {length} are "
            f"read by one command, and {part[:16].hex()}… if {PIECE} are"
        )
        before = after


WIDE = 600
"""Blocks of a command without data, if its limit and the namespace allow as many (chosen)."""


def _wider(session: ControllerSession, scratch: Scratch, opcode: Io, most: int) -> Scratch:
    """Return more blocks than a transfer may have, of the half that the cases overwrite.

    MDTS is of data that are transferred: it does not limit commands without data (Base 5.2.13.2.1).
    """
    _need(session, opcode, Io.WRITE_UNCORRECTABLE)
    start = scratch.end // 2
    blocks = min(max(WIDE, 2 * scratch.limits.transfer + 1), scratch.end - start - 2, most)
    if blocks <= scratch.limits.transfer:
        pytest.skip(
            f"MDTS allows {scratch.limits.transfer} blocks, {opcode.name} {most}, and {scratch.end - start} "
            "may be written"
        )
    return Scratch(scratch.nsid, start + 1, blocks, scratch.end, scratch.limits)


@pytest.mark.case(
    "NVB-WIDE-VERIFY", section="NVM 3.3.5", kills=("verify-first-256",), builds_on=("NVB-UNC-04",)
)
def test_more_blocks_than_a_transfer_has_are_verified(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """The block that cannot be read is the last one, and one in the middle."""
    wide = _wider(session, scratch, Io.VERIFY, scratch.limits.verify)
    for at in (wide.blocks - 1, wide.blocks // 2):
        done = queue.run(uncorrectable(wide.nsid, wide.lba + at, 1))
        assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
        try:
            done = _run(queue, io.verify(wide.nsid, wide.lba, wide.blocks))
        finally:
            write_blocks(queue, wide, 1, 1213, at=at)
        assert not done.ok, (
            f"3.3.5: block {at + 1} of {wide.blocks} cannot be read, and Verify of all succeeds"
        )
    done = _run(queue, io.verify(wide.nsid, wide.lba, wide.blocks))
    assert done.ok, (
        f"3.3.5: Verify of {wide.blocks} blocks that are read ended with {status_name(done.status)}"
    )


@pytest.mark.case("NVB-WIDE-UNC", section="NVM 3.3.7", kills=("mark-first-256",), builds_on=("NVB-UNC-01",))
def test_more_blocks_than_a_transfer_has_are_marked(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Each of them cannot be read, and the blocks before and behind them can."""
    wide = _wider(session, scratch, Io.WRITE_UNCORRECTABLE, scratch.limits.marks)
    outside = {at: write_blocks(queue, wide, 1, 1214, at=at) for at in (-1, wide.blocks)}
    done = _run(queue, uncorrectable(wide.nsid, wide.lba, wide.blocks))
    if done.status == StatusCode.INVALID_FIELD:
        pytest.skip(f"Write Uncorrectable takes fewer than {wide.blocks} blocks")
    try:
        assert done.ok, (
            f"3.3.7: {wide.blocks} blocks: Write Uncorrectable ended with {status_name(done.status)}"
        )
        middle = scratch.limits.transfer
        for at in sorted({0, wide.blocks // 2, middle - 1, middle, wide.blocks - 1}):
            found = queue.run(io.read(wide.nsid, wide.lba + at, 1), reads=wide.block_size)
            assert not found.ok, (
                f"3.3.7: {wide.blocks} blocks were marked, and block {at + 1} of them is read"
            )
        for at, data in outside.items():
            assert read_blocks(queue, wide, 1, at=at) == data, f"3.3.7: LBA {wide.lba + at} was not marked"
    finally:
        write_blocks(queue, wide, wide.blocks, 1215)
    read_blocks(queue, wide, wide.blocks)


@pytest.mark.case(
    "NVB-MOST-ZEROES", section="NVM 3.3.8", kills=("most-blocks-are-none",), builds_on=("NVB-ZEROES-01",)
)
def test_65536_blocks_are_zeroed(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    _need(session, Io.WRITE_ZEROES)
    largest = _largest(scratch, Io.WRITE_ZEROES, scratch.limits.zeroes)
    inside = {at: write_blocks(queue, largest, 1, 1210, at=at) for at in SAMPLES}
    outside = {at: write_blocks(queue, largest, 1, 1211, at=at) for at in (-1, UNLIMITED)}
    done = _run(queue, io.write_zeroes(largest.nsid, largest.lba, UNLIMITED))
    assert done.ok, f"3.3.8: Write Zeroes whose NLB is FFFFh ended with {status_name(done.status)}"
    left = [at for at in inside if any(read_blocks(queue, largest, 1, at=at))]
    assert not left, f"3.3.8: of 65,536 zeroed blocks these are not zero: {left}"
    for at, data in outside.items():
        assert read_blocks(queue, largest, 1, at=at) == data, (
            f"3.3.8: 65,536 blocks from LBA {largest.lba} were zeroed, and so was LBA {largest.lba + at}"
        )


@pytest.mark.case(
    "NVB-MOST-VERIFY", section="NVM 3.3.5", kills=("most-blocks-are-none",), builds_on=("NVB-UNC-04",)
)
def test_65536_blocks_are_verified_to_the_last(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    _need(session, Io.VERIFY, Io.WRITE_UNCORRECTABLE)
    largest = _largest(scratch, Io.VERIFY, scratch.limits.verify)
    for at in (0, UNLIMITED - 1):
        done = queue.run(uncorrectable(largest.nsid, largest.lba + at, 1))
        assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
        try:
            done = _run(queue, io.verify(largest.nsid, largest.lba, UNLIMITED))
        finally:
            write_blocks(queue, largest, 1, 1212, at=at)
        assert not done.ok, f"3.3.5: block {at + 1} of 65,536 cannot be read, and Verify of all succeeds"
