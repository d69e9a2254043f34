"""Ranges of a file that are cut, allocated, punched, copied or mapped, and used again: small and large."""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from storagetest.agent.testlib import assert_errno, skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.large_files import put
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

MIB = 1 << 20
PAGE = mmap.PAGESIZE


def assert_contents(path, wanted, after):
    """Assert the size and the contents of a file, read by a new open."""
    found = path.read_bytes()
    assert len(found) == len(wanted), (
        f"the file has {len(found)} bytes instead of {len(wanted)} after {after}"
    )
    wrong = first_difference(found, wanted)
    assert not wrong, f"the file has {wrong}, after {after}"


def copy_range(source, target, length, start, to):
    """Copy a whole range; skip the case if the file system has no copy_file_range()."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    done = 0
    while done < length:
        try:
            step = os.copy_file_range(source, target, length - done, start + done, to + done)
        except OSError as error:
            if not done and error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV):
                skip(f"this file system has no copy_file_range(2): {error.strerror}")
            raise
        if not step:
            break
        done += step
    return done


@dataclass(frozen=True)
class Cut:
    """An open file that was cut to ``old`` bytes, and is to have ``size`` again."""

    path: Path
    descriptor: int
    old: int
    size: int


def _by_path(cut):
    os.truncate(cut.path, cut.size)
    return b""


def _by_descriptor(cut):
    os.ftruncate(cut.descriptor, cut.size)
    return b""


def _by_write(cut):
    os.pwrite(cut.descriptor, b"end", cut.size - 3)
    return b"end"


def _by_allocation(cut):
    fallocate(cut.descriptor, 0, cut.old, cut.size - cut.old)
    return b""


def _by_zeroing(cut):
    fallocate(cut.descriptor, FALLOC_ZERO_RANGE, cut.size - 5, 5)
    return b""


def _by_copy(cut):
    source_path = make_file(cut.path.parent / "source", b"copied")
    with open_fd(source_path) as source:
        assert copy_range(source, cut.descriptor, 6, 0, cut.size - 6) == 6
    os.unlink(source_path)
    return b"copied"


GROWTHS = {
    "TRUNCATE": _by_path,
    "FTRUNCATE": _by_descriptor,
    "WRITE": _by_write,
    "ALLOCATE": _by_allocation,
    "ZERO": _by_zeroing,
    "COPY": _by_copy,
}
GROWTH_KILLS = {
    "TRUNCATE": ("cut-mebibyte-returns", "cut-at-sector-returns"),
    "FTRUNCATE": ("cut-mebibyte-returns", "cut-at-sector-returns"),
    "WRITE": ("cut-by-path-returns", "gap-has-cut-data"),
    "ALLOCATE": ("allocated-has-cut-data", "allocation-beyond-end-keeps-size"),
    "ZERO": ("zero-range-not-extended",),
    "COPY": ("copied-range-without-gap",),
}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            id=how.lower(),
            marks=pytest.mark.case(f"PSX-CUT-GROWN-{how}", kills=GROWTH_KILLS[how]),
        )
        for how in GROWTHS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 ftruncate(), write(), posix_fallocate(): DESCRIPTION")
def test_what_was_cut_reads_as_zeroes_however_the_file_grows(client_dir, how):
    """The extended area appears as if it were zero-filled: of a page, of many and of MiB, and again.

    The first cut is made by ftruncate(), the second by truncate(). Small files are cut at a border of
    sectors or blocks, too.
    """
    small = ((9000, cut) for cut in (511, 512, 1024, 2048, 4608))
    for size, cut in (*small, (3000, 1000), (10_000, 4096), (200_000, 4097), (2 * MIB + 17, 5000)):
        path = client_dir / f"f{size}"
        with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
            for turn in (1, 2):
                data = bytes([0xA0 + turn]) * size
                assert os.pwrite(descriptor, data, 0) == size
                if turn == 1:
                    os.ftruncate(descriptor, cut)
                else:
                    os.truncate(path, cut)
                end = GROWTHS[how](Cut(path, descriptor, cut, size))
                wanted = data[:cut] + bytes(size - cut - len(end)) + end
                assert_contents(path, wanted, f"a cut from {size} to {cut} and growth, time {turn}")
        os.unlink(path)


@pytest.mark.case(
    "PSX-PUNCH-LARGE",
    section="fallocate(2): Deallocating file space",
    kills=("punch-mebibyte-stays",),
)
def test_hole_ends_where_it_was_asked_to(client_dir):
    """All of the range reads as zeroes, and nothing outside of it: holes of one byte to MiB, at odd edges."""
    wanted = bytearray(pattern_bytes(3 * MIB + 100))
    path = make_file(client_dir / "f", bytes(wanted))
    ranges = (
        (1, 1), (4095, 2), (8191, 4097), (16_384, 4096), (20_481, 4094), (65_535, 65_538), (200_000, MIB + 1),
        (2 * MIB - 1, 2), (2 * MIB, 700_001), (3 * MIB + 99, 1),
    )  # fmt: skip
    with open_fd(path) as descriptor:
        for offset, length in ranges:
            fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
            wanted[offset : offset + length] = bytes(length)
            assert_contents(path, bytes(wanted), f"a hole of {length} bytes at {offset}")
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 3 * MIB + 50, 10_000)
        wanted[3 * MIB + 50 :] = bytes(50)
        assert_contents(path, bytes(wanted), "a hole across the end of the file")
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4 * MIB, 10_000)
        assert_contents(path, bytes(wanted), "a hole beyond the end of the file")


@pytest.mark.case(
    "PSX-PUNCH-WHOLE",
    section="fallocate(2): Deallocating file space",
    kills=("punch-whole-file-empties",),
)
def test_hole_over_the_whole_file_leaves_its_size(client_dir):
    """With FALLOC_FL_KEEP_SIZE the size stays, also if no data are left: up to the end and beyond it."""
    for size in (1, PAGE, MIB + 17):
        for length in (size, 2 * size + 5 * PAGE):
            path = make_file(client_dir / f"{size}-{length}", pattern_bytes(size))
            with open_fd(path) as descriptor:
                fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, length)
                assert_contents(path, bytes(size), f"a hole of {length} bytes over all of it")
                os.pwrite(descriptor, b"again", 0)
                wanted = b"again" + bytes(size)[5:]
                assert_contents(path, wanted, f"a write into a hole of {length} bytes over all of it")


@pytest.mark.case(
    "PSX-ALLOCATE-APPEND",
    section="fallocate(2): FALLOC_FL_KEEP_SIZE; open(2): O_APPEND",
    kills=("allocation-sets-size-at-append",),
)
def test_append_to_an_allocated_range_begins_at_the_size(client_dir):
    """Allocated space beyond the end is no data: appends begin at the size, and a gap there is zeroes."""
    wanted = b"begin"
    path = make_file(client_dir / "f", wanted)
    with open_fd(path) as descriptor, open_fd(path, os.O_WRONLY | os.O_APPEND) as appender:
        for turn, part in enumerate((b"first", b"s" * 5000, b"third")):
            fallocate(descriptor, FALLOC_KEEP_SIZE, len(wanted) // 2, 100_000)
            assert_contents(path, wanted, f"FALLOC_FL_KEEP_SIZE {turn + 1}")
            assert os.write(appender, part) == len(part)
            wanted += part
            assert_contents(path, wanted, f"append {turn + 1}")
        assert os.lseek(descriptor, 0, os.SEEK_END) == len(wanted)
        os.ftruncate(descriptor, 50_000)
        wanted += bytes(50_000 - len(wanted))
        assert_contents(path, wanted, "ftruncate() into the allocated range")
        assert os.write(appender, b"last") == 4
        fallocate(descriptor, 0, 49_990, 20_000)
        wanted += b"last" + bytes(69_990 - 50_004)
        assert_contents(path, wanted, "an append, and an allocation across the end")
        assert os.write(appender, b"more") == 4
        assert_contents(path, wanted + b"more", "an append after it")


@pytest.mark.case(
    "PSX-COPY-WITHIN",
    section="copy_file_range(2): DESCRIPTION, ERRORS",
    kills=("copy-within-from-start",),
)
def test_range_is_copied_within_one_file(client_dir):
    """Ranges that meet are copied, forwards, backwards and past the end; ranges that overlap are EINVAL."""
    data = pattern_bytes(50_000)
    path = make_file(client_dir / "f", data)
    with open_fd(path) as one, open_fd(path) as two:
        wanted = bytearray(data)
        ranges = ((10_000, 30_000, 5000), (20_000, 1, 4097), (4096, 8192, 4096), (5000, 60_000, 9999))
        for start, to, length in (*ranges, (40_000, 39_000, 1000), (30_001, 30_002, 1)):
            assert copy_range(one, two, length, start, to) == length
            part = bytes(wanted[start : start + length])
            wanted += bytes(max(0, to + length - len(wanted)))
            wanted[to : to + length] = part
            assert_contents(path, bytes(wanted), f"a copy of {length} bytes from {start} to {to}")
        for start, to, length in ((1000, 1500, 501), (1500, 1000, 501), (1000, 1000, 10)):
            assert_errno(errno.EINVAL, os.copy_file_range, one, two, length, start, to)
        assert_contents(path, bytes(wanted), "copies of overlapping ranges, which are refused")


@pytest.mark.case(
    "PSX-COPY-SOURCE-END",
    section="copy_file_range(2): RETURN VALUE",
    kills=("copy-range-ends-file",),
)
def test_copy_ends_with_its_source(client_dir):
    """What is copied ends with the source: the target is not cut, filled, or moved, and calls follow on."""
    data = pattern_bytes(9000)
    with open_fd(make_file(client_dir / "source", data)) as source:
        for size in (0, 4000, 30_000):
            path = make_file(client_dir / f"t{size}", b"t" * size)
            with open_fd(path) as target:
                assert copy_range(source, target, 100_000, 5000, 1000) == 4000
                wanted = (b"t" * size).ljust(1000, b"\0")
                wanted = wanted[:1000] + data[5000:] + wanted[5000:]
                assert_contents(path, wanted, f"a copy beyond the end of the source to a file of {size}")
                assert os.copy_file_range(source, target, 10, 9000, 0) == 0
                assert os.copy_file_range(source, target, 10, 90_000, 0) == 0
                assert_contents(path, wanted, "copies from the end of the source on")
        path = make_file(client_dir / "parts")
        with open_fd(path) as target:
            for start in range(0, 9000, 1500):
                assert copy_range(source, target, 1500, start, start) == 1500
            assert_contents(path, data, "six copies that follow on each other")
    assert_contents(client_dir / "source", data, "copies of it")


@pytest.mark.case(
    "PSX-RANGE-PIECES", section="POSIX.1-2024 pwrite(), read(): DESCRIPTION", kills=("piece-300-lost",)
)
def test_many_pieces_and_the_gaps_between_them_are_kept(client_dir):
    """A file of 320 separate pieces has each where it was written, also after some gaps were filled."""
    count, size = 320, 4096
    data = pattern_bytes(2 * count * size)
    wanted = bytearray(len(data))

    def write(at):
        assert os.pwrite(descriptor, data[at : at + size], at) == size
        wanted[at : at + size] = data[at : at + size]

    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for number in range(count):
            write((2 * number + 1) * size)
        os.fsync(descriptor)
        assert_contents(client_dir / "f", bytes(wanted), f"writes of {count} pieces with gaps between them")
        for number in range(count - 1, 0, -20):
            write(2 * number * size)
    assert_contents(client_dir / "f", bytes(wanted), "writes into some of the gaps, from the last on")


@pytest.mark.case(
    "PSX-RANGE-BACKWARDS", section="POSIX.1-2024 pwrite(): DESCRIPTION", kills=("write-before-clobbers",)
)
def test_file_is_written_from_its_end_to_its_beginning(client_dir):
    """Each write changes its bytes alone: none of the write that begins where it ends."""
    for size in (100, 1000, 4096, 10_000):
        path = client_dir / str(size)
        data = pattern_bytes(5 * size)
        with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
            for start in reversed(range(0, len(data), size)):
                part = data[start : start + size]
                assert os.pwrite(descriptor, part, start) == len(part)
                os.fdatasync(descriptor)
        assert_contents(path, data, f"writes of {size} bytes from the end to the beginning")


@pytest.mark.case(
    "PSX-MMAP-HELD",
    section="POSIX.1-2024 mmap(), msync(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-MMAP-READ"),
    kills=("mapped-second-store-lost",),
)
def test_mapping_that_stays_is_the_file_whatever_is_done_to_it(client_dir):
    """Stores, again and again in the same pages, and calls on the file in turn: each leaves its own bytes."""
    size = 4 * PAGE + 100
    wanted = bytearray(pattern_bytes(size))
    path = make_file(client_dir / "f", bytes(wanted))

    def store(at, data):
        mapped[at : at + len(data)] = data
        wanted[at : at + len(data)] = data

    def write(at, data):
        os.pwrite(descriptor, data, at)
        wanted[at : at + len(data)] = data

    with open_fd(path) as descriptor, map_file(descriptor, size) as mapped:
        for turn in range(3):
            data = b"%d" % turn * 40
            store(10, data)
            write(100, data)
            store(200, data)
            mapped.flush()
            assert_contents(path, bytes(wanted), f"store, write(), store and msync() in one page, {turn}")
            write(PAGE - 20, data)
            store(PAGE + 20, data)
            store(size - 40, data)
            mapped.flush()
            assert mapped[:] == bytes(wanted), f"the mapping after a write() across two pages, {turn}"
            assert_contents(path, bytes(wanted), f"stores around a write() and in the last page, {turn}")
            new = client_dir / f"f{turn}"
            os.rename(path, new)
            path = new
            store(2 * PAGE, data)
            mapped.flush()
            os.fsync(descriptor)
            assert_contents(path, bytes(wanted), f"a store after rename(), {turn}")
            os.ftruncate(descriptor, size - 60)
            os.ftruncate(descriptor, size)
            wanted[size - 60 :] = bytes(60)
            assert mapped[:] == bytes(wanted), f"the mapping after the file was cut and extended, {turn}"
            store(size - 10, b"0123456789")
        mapped.flush()
    assert_contents(path, bytes(wanted), "the mapping and the descriptor are closed")


@pytest.mark.case(
    "PSX-MMAP-END",
    section="POSIX.1-2024 mmap(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-MMAP-READ"),
    kills=("mapped-tail-extends",),
)
def test_store_in_the_last_page_leaves_the_size(client_dir):
    """Modifications of the last page beyond the end of the file are not written out: the size stays."""
    for size in (1, 511, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 100):
        path = make_file(client_dir / str(size), b"x" * size)
        with open_fd(path) as descriptor:
            with map_file(descriptor, size) as mapped:
                mapped[size - 1] = 0x79
                mapped.flush()
            os.fsync(descriptor)
            assert os.fstat(descriptor).st_size == size
        assert_contents(path, b"x" * (size - 1) + b"y", "a store to the last byte")
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            os.write(descriptor, b"z")
        assert_contents(path, b"x" * (size - 1) + b"yz", "a store to the last byte and an append")


@pytest.mark.case(
    "PSX-DATA-REOPENED",
    section="POSIX.1-2024 close(), fsync(): DESCRIPTION",
    kills=("datasync-loses-size",),
)
def test_data_stay_over_close_and_open(client_dir):
    """What was written is read after the close, with and without fsync(), by any order of the two."""
    wanted = b""
    path = client_dir / "f"
    for turn in range(3):
        for flush in (None, os.fsync, os.fdatasync):
            with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor, open_fd(path, os.O_RDWR) as other:
                for part in (b"first %d" % turn, b"second" * 1000, b"x"):
                    os.pwrite(descriptor, part, len(wanted))
                    wanted += part
                    if flush:
                        flush(descriptor)
                os.pwrite(other, b"by the other", len(wanted))
                wanted += b"by the other"
                if flush:
                    flush(descriptor)
                os.pwrite(descriptor, b"after it", len(wanted))
                wanted += b"after it"
            assert_contents(path, wanted, f"writes around {getattr(flush, '__name__', 'no')}() and close()")


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            mode,
            id=name.lower(),
            marks=pytest.mark.case(f"PSX-ALLOCATE-{name}", kills=("allocation-zeroes-behind-hole",)),
        )
        for name, mode in (("PARTS", 0), ("PARTS-KEEP-SIZE", FALLOC_KEEP_SIZE))
    ],
)
@pytest.mark.case(section="fallocate(2): Allocating disk space")
def test_allocation_over_data_and_holes_keeps_the_data(client_dir, mode):
    """Any subregion that contained data is left unchanged: before, between and behind holes, each time."""
    path, size = client_dir / "f", 200_000
    wanted = bytearray(size)
    with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, size)
        for start, length in ((0, 5000), (70_000, 9000), (120_001, 1), (190_000, 10_000)):
            wanted[start : start + length] = b"d" * length
            os.pwrite(descriptor, wanted[start : start + length], start)
        os.fsync(descriptor)
        for start, length in ((100, 75_000), (4096, 150_000), (75_000, 10), (0, size)):
            fallocate(descriptor, mode, start, length)
            assert_contents(path, bytes(wanted), f"an allocation of {length} bytes at {start}")


@pytest.mark.case(
    "PSX-CUT-GROWN-BORDERS",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("cut-at-4-mib-returns",),
)
def test_what_was_cut_at_a_border_of_storage_does_not_come_back(client_dir):
    """A cut where objects, chunks and extents begin is as any other: at powers of two, 64 KiB to 64 MiB."""
    for border in (MIB >> 4, MIB >> 2, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 64 * MIB):
        path = client_dir / str(border)
        for turn in range(2):
            with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
                put(descriptor, b"x" * 12_000, border - 4000)
                os.ftruncate(descriptor, border)
                os.ftruncate(descriptor, border + 9000)
                found = os.pread(descriptor, 20_000, border - 4000)
            wrong = first_difference(found, b"x" * 4000 + bytes(9000))
            assert not wrong, (
                f"a file that was cut to {border} bytes and grown has {wrong} (from 4000 before, turn {turn})"
            )
        os.unlink(path)


@pytest.mark.case(
    "PSX-CUT-GROWN-BLOCKS",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("cut-of-a-kib-returns", "cut-of-4-kib-returns"),
)
def test_what_was_cut_by_one_block_does_not_come_back(client_dir):
    """A cut by one block of any size is as any other: also by several cuts, and to one byte more."""
    for block in (512, 1024, 2048, 4096, 8192, 16_384, 65_536):
        data = pattern_bytes(6 * block)
        for sizes in (
            (5 * block,),
            (5 * block, 4 * block),
            (5 * block + 1,),
            (6 * block - 1, 5 * block),
            (0,),
        ):
            with open_fd(make_file(client_dir / str(block), data)) as descriptor:
                os.fsync(descriptor)
                for size in sizes:
                    os.ftruncate(descriptor, size)
                os.ftruncate(descriptor, len(data))
                found = os.pread(descriptor, len(data), 0)
            wrong = first_difference(found, data[: sizes[-1]] + bytes(len(data) - sizes[-1]))
            assert not wrong, (
                f"a file of {len(data)} bytes that was cut to {', '.join(map(str, sizes))} and grown again "
                f"has {wrong}; required: zeroes behind the last cut"
            )
            os.unlink(client_dir / str(block))
