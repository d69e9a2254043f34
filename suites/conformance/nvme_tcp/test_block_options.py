"""I/O commands further on (NVM 3.3): Compare, large Write Zeroes, DSM without AD, Copy, hints, marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, refused, write_blocks

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3")]

LIMITED_RETRY = 1 << 31

Supports = Callable[[Io], None]


@pytest.fixture
def supports(session: ControllerSession) -> Supports:
    """Return a function that skips the case if a command is not supported."""

    def check(command: Io) -> None:
        if not session.controller["oncs"] >> ONCS_BITS[command] & 1:
            pytest.skip(f"ONCS: {command.name} is not supported")

    return check


# Compare (3.3.1)


@pytest.mark.case("NVB-COMPARE-03", section="NVM 3.3.1", kills=("compare-last-only",))
def test_compare_looks_at_every_block(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.COMPARE)
    blocks, size = scratch.fit(8), scratch.block_size
    data = write_blocks(queue, scratch, blocks, 1)
    command = io.compare(scratch.nsid, scratch.lba, blocks)
    for at in sorted({0, 1, size - 1, size // 2, len(data) // 2, len(data) - size, len(data) - 1}):
        wrong = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        done = queue.run(command, data=wrong)
        assert done.status == StatusCode.COMPARE_FAILURE, (
            f"3.3.1: byte {at} of {len(data)} differs, but Compare ended with {status_name(done.status)}"
        )
    assert queue.run(command, data=data).ok, "3.3.1: equal data compare after failures"
    assert read_blocks(queue, scratch, blocks) == data, "3.3.1: Compare changes no data"


@pytest.mark.case(
    "NVB-COMPARE-04", section="NVM 3.3.1", kills=("compare-always", "compare-never", "second-compare-passes")
)
def test_compare_of_data_outside_the_capsule(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.COMPARE)
    blocks = scratch.blocks_of(queue.in_capsule_limit + 32768)
    data = write_blocks(queue, scratch, blocks, 2)
    command = io.compare(scratch.nsid, scratch.lba, blocks)
    assert queue.run(command, data=data, inside=False).ok, "3.3.1: equal data"
    for at in (0, len(data) // 2, len(data) - 1):
        wrong = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        refused(queue.run(command, data=wrong, inside=False), StatusCode.COMPARE_FAILURE)


@pytest.mark.case(
    "NVB-COMPARE-LARGE", section="NVM 3.3.1", kills=("compare-large-prefix",), builds_on=("NVB-COMPARE-04",)
)
def test_compare_of_the_largest_transfer_looks_at_its_end(
    supports: Supports, queue: Queue, scratch: Scratch
) -> None:
    """As many blocks as MDTS and the scratch allow; one byte of the last block differs."""
    supports(Io.COMPARE)
    blocks = scratch.fit(scratch.blocks)
    data = write_blocks(queue, scratch, blocks, 4)
    command = io.compare(scratch.nsid, scratch.lba, blocks)
    done = queue.run(command, data=data)
    assert done.ok, f"3.3.1: Compare of {blocks} equal blocks ended with {status_name(done.status)}"
    done = queue.run(command, data=data[:-1] + bytes([data[-1] ^ 1]))
    assert done.status == StatusCode.COMPARE_FAILURE, (
        f"3.3.1: the last byte of {blocks} blocks differs, but Compare ended with {status_name(done.status)}"
    )


@pytest.mark.case(section="NVM 3.3.1")
@pytest.mark.parametrize(("start", "blocks"), [
    pytest.param(0, 1, marks=pytest.mark.case("NVB-COMPARE-AT-END", kills=("compare-range",))),
    pytest.param(-1, 2, marks=pytest.mark.case("NVB-COMPARE-ACROSS-END", kills=("compare-range",))),
    pytest.param(1 << 40, 1, marks=pytest.mark.case("NVB-COMPARE-FAR", kills=("compare-range",))),
])  # fmt: skip
def test_compare_past_the_end_is_refused(
    supports: Supports, queue: Queue, scratch: Scratch, start: int, blocks: int
) -> None:
    supports(Io.COMPARE)
    data = bytes(blocks * scratch.block_size)
    done = queue.run(io.compare(scratch.nsid, scratch.end + start, blocks), data=data)
    refused(done, StatusCode.LBA_OUT_OF_RANGE)


# Write Zeroes (3.3.8), Dataset Management (3.3.3), Copy (3.3.2)


@pytest.mark.case("NVB-ZEROES-03", section="NVM 3.3.8", kills=("zeroes-64-blocks",))
def test_many_blocks_are_zeroed_by_one_command(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.WRITE_ZEROES)
    data, size = write_blocks(queue, scratch, scratch.blocks, 3), scratch.block_size
    blocks = min(scratch.blocks - 2, scratch.limits.zeroes)
    done = queue.run(io.write_zeroes(scratch.nsid, scratch.lba + 1, blocks))
    assert done.ok, f"3.3.8: {blocks} blocks, which WZSL allows, ended with {status_name(done.status)}"
    expected = data[:size] + bytes(blocks * size) + data[(blocks + 1) * size :]
    assert read_blocks(queue, scratch, scratch.blocks) == expected, (
        f"3.3.8: {blocks} blocks are zeroes, and no other"
    )


@pytest.mark.case("NVB-ZEROES-NLB", section="NVM 3.3.8", kills=("zeroes-nlb-byte",))
def test_the_number_of_blocks_to_zero_has_16_bits(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    """NLB is a number of 16 bits: 256, 257 and 512 blocks of one command are zeroes, and no other."""
    supports(Io.WRITE_ZEROES)
    start = scratch.end // 2  # the half of the namespace that the cases write
    most = scratch.end - start - 2
    if min(most, scratch.limits.zeroes) < 257:
        pytest.skip(f"one command may zero {scratch.limits.zeroes} blocks, and {most} may be written")
    wide, size = replace(scratch, lba=start, blocks=most + 2), scratch.block_size
    for blocks in (256, 257, min(512, most, scratch.limits.zeroes)):
        data = write_blocks(queue, wide, blocks + 2, blocks)
        done = queue.run(io.write_zeroes(wide.nsid, start + 1, blocks))
        assert done.ok, f"3.3.8: {blocks} blocks, which WZSL allows, ended with {status_name(done.status)}"
        expected = data[:size] + bytes(blocks * size) + data[-size:]
        found = read_blocks(queue, wide, blocks + 2)
        wrong = [at for at in range(blocks + 2) if found[at * size :][:size] != expected[at * size :][:size]]
        assert not wrong, (
            f"3.3.8: of {blocks + 2} blocks, block {wrong[0]} is wrong; 1 to {blocks} were zeroed"
        )


@pytest.mark.case("NVB-DSM-04", section="NVM 3.3.3", kills=("dsm-without-ad",))
def test_without_ad_no_block_is_deallocated(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.DATASET_MANAGEMENT)
    blocks = min(8, scratch.limits.discard)
    data = write_blocks(queue, scratch, 8, 4)
    ranges = io.dsm_ranges([(scratch.lba, blocks)])
    for attributes in (0, 1, 2):  # none; Integral Dataset for Read, for Write
        command = replace(io.dataset_management(scratch.nsid, 1, deallocate=False), cdw11=attributes)
        done = queue.run(command, data=ranges)
        assert done.ok, f"3.3.3: attributes {attributes:x}h are hints, not {status_name(done.status)}"
        assert read_blocks(queue, scratch, 8) == data, (
            f"3.3.3: attributes {attributes:x}h without AD changed data"
        )


@pytest.mark.case("NVB-ZEROES-04", section="NVM 3.3.8", kills=("write-lost",))
def test_zeroed_blocks_are_written_again(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.WRITE_ZEROES)
    write_blocks(queue, scratch, 4, 20)
    done = queue.run(io.write_zeroes(scratch.nsid, scratch.lba, min(4, scratch.limits.zeroes)))
    assert done.ok, f"Write Zeroes ended with {status_name(done.status)}"
    data = write_blocks(queue, scratch, 4, 21)
    assert read_blocks(queue, scratch, 4) == data, (
        "3.3.8: a block that was zeroed holds what is written to it"
    )


def deallocate(queue: Queue, scratch: Scratch, blocks: int) -> None:
    """Deallocate blocks from the start of the scratch, within DMRSL."""
    for lba, count in scratch.limits.pieces(scratch.lba, blocks, most=scratch.limits.discard):
        done = queue.run(io.dataset_management(scratch.nsid, 1), data=io.dsm_ranges([(lba, count)]))
        assert done.ok, f"Dataset Management ended with {status_name(done.status)}"


@pytest.mark.case("NVB-DSM-05", section="NVM 3.3.3.2.1", kills=("dsm-unsteady",))
def test_a_deallocated_block_reads_the_same_each_time(
    supports: Supports, queue: Queue, scratch: Scratch
) -> None:
    supports(Io.DATASET_MANAGEMENT)
    write_blocks(queue, scratch, 8, 22)
    deallocate(queue, scratch, 8)
    first = read_blocks(queue, scratch, 8)
    for _ in range(3):
        assert read_blocks(queue, scratch, 8) == first, (
            "3.3.3.2.1: the values of a deallocated block do not change"
        )


@pytest.mark.case("NVB-DSM-06", section="NVM 3.3.3.2.1", kills=("write-lost",))
def test_deallocated_blocks_are_written_again(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.DATASET_MANAGEMENT)
    write_blocks(queue, scratch, 8, 23)
    deallocate(queue, scratch, 8)
    data = write_blocks(queue, scratch, 8, 24)
    assert read_blocks(queue, scratch, 8) == data, "3.3.3.2.1: a write allocates the block"


@pytest.mark.case("NVB-COPY-08", section="NVM 3.3.2", kills=("copy-limits", "copy-first-range"))
def test_a_copy_over_mcl_is_refused(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    """More blocks together than MCL, in ranges that MSSRL and MSRC allow."""
    supports(Io.COPY)
    limits = scratch.limits
    if not limits.copy_range or limits.copy_ranges * limits.copy_range <= limits.copy_total:
        pytest.skip("MSRC and MSSRL allow no more blocks than MCL")
    count = limits.copy_total // limits.copy_range + 1
    ranges = io.copy_ranges([(0, limits.copy_range)] * count)
    done = queue.run(io.copy(scratch.nsid, scratch.lba, count), data=ranges)
    refused(done, StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED)


@pytest.mark.case("NVB-COPY-05", section="NVM 3.3.2", kills=("copy-to-past-end",))
def test_copy_to_past_the_end_is_refused(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.COPY)
    if not scratch.limits.copied([(0, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    sources = io.copy_ranges([(scratch.lba, 1)])
    refused(queue.run(io.copy(scratch.nsid, scratch.end, 1), data=sources), StatusCode.LBA_OUT_OF_RANGE)


PAST_END: dict[str, Callable[[Scratch], tuple[list[tuple[int, int]], int]]] = {
    "ENDS": lambda s: ([(s.end - 1, 2)], s.lba + 8),
    "SECOND": lambda s: ([(s.lba, 1), (s.end, 1)], s.lba + 8),
    "SECOND-ENDS": lambda s: ([(s.lba, 1), (s.end - 1, 2)], s.lba + 8),
    "THIRD": lambda s: ([(s.lba, 1), (s.lba + 2, 1), (s.end, 1)], s.lba + 8),
    "TOGETHER": lambda s: ([(s.lba, 1), (s.lba + 2, 1)], s.end - 1),
}
"""Source ranges (first LBA, blocks), and the LBA that they are copied to: one end is past the namespace's."""


@pytest.mark.parametrize("where", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVB-COPY-PAST-{name}", kills=("copy-end-of-first" if name == "ENDS" else "copy-later-past-end",)))
    for name in PAST_END
])  # fmt: skip
@pytest.mark.case(section="NVM 3.3.2")
def test_a_copy_whose_ranges_end_past_the_namespace_is_refused(
    supports: Supports, queue: Queue, scratch: Scratch, where: str
) -> None:
    """Each range is in the namespace, and so are all together where they are copied to."""
    supports(Io.COPY)
    ranges, target = PAST_END[where](scratch)
    if scratch.limits.copied(ranges) != ranges:
        pytest.skip(f"MSRC, MSSRL or MCL: not {len(ranges)} ranges of up to 2 blocks in one Copy")
    done = queue.run(io.copy(scratch.nsid, target, len(ranges)), data=io.copy_ranges(ranges))
    refused(done, StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case("NVB-COPY-06", section="NVM 3.3.2", kills=("copy-any-format",))
def test_a_copy_of_a_format_that_does_not_exist_is_refused(
    supports: Supports, queue: Queue, scratch: Scratch
) -> None:
    supports(Io.COPY)
    command = io.copy(scratch.nsid, scratch.lba + 8, 1)
    command = replace(command, cdw12=command.cdw12 | 0xF << 8)
    refused(queue.run(command, data=io.copy_ranges([(scratch.lba, 1)])), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVB-COPY-07", section="NVM 3.3.2", kills=("copy-ignored",))
def test_a_copy_keeps_its_source_and_its_neighbours(
    supports: Supports, queue: Queue, scratch: Scratch
) -> None:
    supports(Io.COPY)
    data, size = write_blocks(queue, scratch, 64, 5), scratch.block_size
    ranges = scratch.limits.copied([(0, 16)])
    if not ranges:
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    blocks = ranges[0][1]
    done = queue.run(io.copy(scratch.nsid, scratch.lba + 33, 1), data=io.copy_ranges([(scratch.lba, blocks)]))
    assert done.ok, f"3.3.2: a copy of {blocks} blocks ended with {status_name(done.status)}"
    expected = data[: 33 * size] + data[: blocks * size] + data[(33 + blocks) * size :]
    assert read_blocks(queue, scratch, 64) == expected, (
        "3.3.2: the destination is written, and no other block"
    )


@pytest.mark.parametrize("name", [
    pytest.param("COPY", marks=pytest.mark.case("NVB-COPY-SGL")),
    pytest.param("DATASET_MANAGEMENT", marks=pytest.mark.case("NVB-DSM-SGL")),
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", kills=("ranges-beyond-sgl",))
def test_ranges_beyond_the_sgl_are_refused(
    supports: Supports, queue: Queue, scratch: Scratch, name: str
) -> None:
    """A command of two ranges whose SGL has the bytes of one is aborted."""
    supports(Io[name])
    one = [(scratch.lba, 1)]
    command, data = io.copy(scratch.nsid, scratch.lba + 8, 2), io.copy_ranges(one)
    most = len(scratch.limits.copied([(0, 1), (0, 1)]))
    if name == "DATASET_MANAGEMENT":
        command, data = io.dataset_management(scratch.nsid, 2, deallocate=False), io.dsm_ranges(one)
        most = scratch.limits.discard_ranges
    if most < 2:
        pytest.skip("the limits of the command allow one range")
    done = queue.run(command, data=data)
    assert not done.ok, f"4.3.2: {name} of two ranges, with an SGL of {len(data)} bytes, succeeds"


# Fields that are hints (3.3.4, 3.3.6)


@pytest.mark.case("NVB-RW-HINTS", section="NVM 3.3.4", kills=("hints-refused",))
def test_dataset_management_hints_are_taken(queue: Queue, scratch: Scratch) -> None:
    """Access frequency and latency, a sequential request, incompressible data: DSM of dword 13."""
    data = block_data(scratch.block_size, 6)
    for hint in (0x01, 0x15, 0x40, 0x80):
        done = queue.run(replace(io.write(scratch.nsid, scratch.lba, 1), cdw13=hint), data=data)
        assert done.ok, f"3.3.6: DSM {hint:02x}h of a write is a hint, not {status_name(done.status)}"
        command = replace(io.read(scratch.nsid, scratch.lba, 1), cdw13=hint)
        done = queue.run(command, reads=scratch.block_size)
        assert done.ok, f"3.3.4: DSM {hint:02x}h of a read is a hint, not {status_name(done.status)}"
        assert done.data == data


@pytest.mark.case("NVB-RW-LR", section="NVM 3.3.4", kills=("limited-retry-refused",))
def test_limited_retry_is_taken(queue: Queue, scratch: Scratch) -> None:
    data = block_data(scratch.block_size, 7)
    command = io.write(scratch.nsid, scratch.lba, 1)
    assert queue.run(replace(command, cdw12=command.cdw12 | LIMITED_RETRY), data=data).ok, "3.3.6: LR is set"
    command = io.read(scratch.nsid, scratch.lba, 1)
    done = queue.run(replace(command, cdw12=command.cdw12 | LIMITED_RETRY), reads=scratch.block_size)
    assert done.ok, f"3.3.4: LR is set, not {status_name(done.status)}"
    assert done.data == data


# Write Uncorrectable (3.3.7)


def mark(queue: Queue, scratch: Scratch, at: int, blocks: int) -> None:
    """Mark blocks by Write Uncorrectable."""
    command = replace(io.verify(scratch.nsid, scratch.lba + at, blocks), opcode=Io.WRITE_UNCORRECTABLE)
    done = queue.run(command)
    assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"


@pytest.mark.case(
    "NVB-UNC-01",
    section="NVM 3.3.7",
    kills=("uncorrectable-ignored", "uncorrectable-data", "read-after-error"),
)
def test_a_marked_block_is_not_read(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.WRITE_UNCORRECTABLE)
    data, size = write_blocks(queue, scratch, 3, 8), scratch.block_size
    mark(queue, scratch, 1, 1)
    try:
        done = queue.run(io.read(scratch.nsid, scratch.lba + 1, 1), reads=size)
        refused(done, StatusCode.UNRECOVERED_READ_ERROR)
        for at in (0, 2):
            assert read_blocks(queue, scratch, 1, at=at) == data[at * size : (at + 1) * size], (
                "3.3.7: its neighbours"
            )
    finally:
        write_blocks(queue, scratch, 3, 9)


@pytest.mark.case(
    "NVB-UNC-RESET", section="NVM 3.3.7", kills=("uncorrectable-until-reset",), builds_on=("NVB-UNC-01",)
)
def test_a_mark_outlives_a_controller_reset(
    supports: Supports, session: ControllerSession, queue: Queue, scratch: Scratch, bench: Harness
) -> None:
    """The controller that has marked the block is reset, and enabled again; another host reads."""
    supports(Io.WRITE_UNCORRECTABLE)
    reader = bench.session(name="another host's admin queue").io_queue()
    write_blocks(queue, scratch, 1, 8)
    mark(queue, scratch, 0, 1)
    try:
        session.disable()
        session.enable()
        done = reader.run(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
        assert done.status == StatusCode.UNRECOVERED_READ_ERROR, (
            f"3.3.7: a marked block is read after a controller reset: {status_name(done.status)}"
        )
    finally:
        write_blocks(reader, scratch, 1, 9)


@pytest.mark.case("NVB-UNC-02", section="NVM 3.3.7", kills=("uncorrectable-stays",))
def test_a_marked_block_is_read_after_it_is_written(
    supports: Supports, queue: Queue, scratch: Scratch
) -> None:
    supports(Io.WRITE_UNCORRECTABLE)
    write_blocks(queue, scratch, 2, 10)
    mark(queue, scratch, 0, 2)
    data = write_blocks(queue, scratch, 2, 11)
    assert read_blocks(queue, scratch, 2) == data, "3.3.7: a write clears the mark"


@pytest.mark.case("NVB-UNC-03", section="NVM 3.3.7", kills=("lba-not-checked",))
def test_a_mark_past_the_end_is_refused(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.WRITE_UNCORRECTABLE)
    command = replace(io.verify(scratch.nsid, scratch.end, 1), opcode=Io.WRITE_UNCORRECTABLE)
    refused(queue.run(command), StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case("NVB-UNC-04", section="NVM 3.3.5", kills=("uncorrectable-data",))
def test_a_marked_block_does_not_verify(supports: Supports, queue: Queue, scratch: Scratch) -> None:
    supports(Io.WRITE_UNCORRECTABLE)
    supports(Io.VERIFY)
    write_blocks(queue, scratch, 2, 12)
    mark(queue, scratch, 1, 1)
    try:
        done = queue.run(io.verify(scratch.nsid, scratch.lba + 1, 1))
        refused(done, StatusCode.UNRECOVERED_READ_ERROR)
    finally:
        write_blocks(queue, scratch, 2, 13)
