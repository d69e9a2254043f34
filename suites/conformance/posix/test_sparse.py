"""Sparse files: SEEK_HOLE, SEEK_DATA, fallocate() and allocated blocks."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.large_files import allocated
from storagetest.agent.testlib.libc import (
    FALLOC_COLLAPSE_RANGE,
    FALLOC_INSERT_RANGE,
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 lseek(): SEEK_HOLE"
    ),
]
falloc = "fallocate(2): DESCRIPTION"
falloc_errors = "fallocate(2): ERRORS"

MIB = 1 << 20
PAGE = 4096


@pytest.mark.case("PSX-SEEK-HOLE-END", kills=("seek-hole-in-data", "write-last-byte-lost"))
def test_file_ends_in_a_virtual_hole(client_dir):
    """A file is considered to have a virtual hole just past its last byte."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(10_000))) as descriptor:
        os.fsync(descriptor)
        assert os.lseek(descriptor, 0, os.SEEK_HOLE) == 10_000
        assert os.lseek(descriptor, 9_999, os.SEEK_HOLE) == 10_000


@pytest.mark.case("PSX-SEEK-DATA-DATA", kills=("seek-data-skips",))
def test_seek_data_finds_written_data(client_dir):
    """SEEK_DATA sets the offset to the next location not less than offset that contains data."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(10_000))) as descriptor:
        assert os.lseek(descriptor, 0, os.SEEK_DATA) == 0
        assert os.lseek(descriptor, 5_000, os.SEEK_DATA) == 5_000


@pytest.mark.case("PSX-SEEK-ENXIO", section="POSIX.1-2024 lseek(): ERRORS", kills=("seek-past-end-accepted",))
def test_seek_at_or_past_the_end_is_refused(client_dir):
    """[ENXIO] offset is beyond the end, or there are no data past it."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(10_000))) as descriptor:
        assert_errno(errno.ENXIO, os.lseek, descriptor, 10_000, os.SEEK_DATA)
        assert_errno(errno.ENXIO, os.lseek, descriptor, 10_001, os.SEEK_HOLE)
        assert_errno(errno.ENXIO, os.lseek, descriptor, 99_999, os.SEEK_DATA)


@pytest.mark.case(
    "PSX-SEEK-ENXIO-END",
    section="POSIX.1-2024 lseek(): ERRORS",
    kills=("seek-hole-at-end-accepted",),
)
def test_seek_for_a_hole_at_the_end_is_refused(client_dir):
    """[ENXIO] The offset of SEEK_HOLE is the size of the file: of one with data, with holes, and empty."""
    for name, data, size in (
        ("data", pattern_bytes(10_000), 10_000),
        ("hole", b"x", 1 << 20),
        ("empty", b"", 0),
    ):
        with open_fd(make_file(client_dir / name, data)) as descriptor:
            os.ftruncate(descriptor, size)
            assert_errno(errno.ENXIO, os.lseek, descriptor, size, os.SEEK_HOLE)


@pytest.mark.case(
    "PSX-SEEK-HOLE-MIDDLE", kills=("hole-reads-garbage", "seek-data-skips", "seek-hole-in-data")
)
def test_reported_hole_contains_no_written_data(client_dir):
    """A hole may be reported between two written ranges, but never inside them."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.pwrite(descriptor, b"a" * 4096, 0)
        os.pwrite(descriptor, b"b" * 4096, 4 * MIB)
        os.fsync(descriptor)
        hole = os.lseek(descriptor, 0, os.SEEK_HOLE)
        assert 4096 <= hole <= 4 * MIB + 4096
        record_observation("holes are " + ("seen" if hole < 4 * MIB else "not seen"))
        if hole < 4 * MIB:
            data = os.lseek(descriptor, hole, os.SEEK_DATA)
            assert hole < data <= 4 * MIB
            assert os.pread(descriptor, data - hole, hole) == bytes(data - hole)


@pytest.mark.case("PSX-SEEK-DATA-UNWRITTEN", kills=("seek-data-skips", "seek-hole-in-data"))
def test_seek_data_finds_cached_data(client_dir):
    """SEEK_DATA finds data that are only in the client's cache."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 4 * MIB)
        os.pwrite(descriptor, b"x" * 4096, 2 * MIB)
        found = os.lseek(descriptor, 0, os.SEEK_DATA)
        assert found <= 2 * MIB
        assert os.lseek(descriptor, 2 * MIB, os.SEEK_HOLE) >= 2 * MIB + 4096


@pytest.mark.case("PSX-SEEK-LAST-BYTES", kills=("seek-misses-last-bytes",))
def test_few_bytes_behind_a_hole_are_found(client_dir):
    """SEEK_DATA finds the last bytes of a file, also if they do not fill a block, and all up to the end."""
    for size in (1, 100, PAGE + 1):
        with open_fd(client_dir / f"f{size}", os.O_CREAT | os.O_RDWR) as descriptor:
            os.pwrite(descriptor, b"x" * size, MIB)
            found = next_data(descriptor, 0)
            assert found is not None, f"SEEK_DATA finds none of {size} bytes behind a hole of 1 MiB"
            assert found <= MIB, f"SEEK_DATA finds {found}: {size} bytes begin at {MIB}"
            last = MIB + size - 1
            assert next_data(descriptor, last) == last, f"SEEK_DATA at the last of {size} bytes"
            assert os.lseek(descriptor, MIB, os.SEEK_HOLE) == last + 1, f"SEEK_HOLE in the last {size} bytes"


@pytest.mark.case("PSX-SEEK-INSIDE", kills=("seek-hole-leaves-hole", "seek-data-late-in-hole"))
def test_positions_inside_holes_and_data_agree_with_their_borders(client_dir):
    """SEEK_HOLE inside a hole, and SEEK_DATA inside data, find the offset itself; else the next border.

    Past the last data, SEEK_HOLE may return the file's size instead.
    """
    size = 5 * MIB
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, size)
        for start in (MIB, 3 * MIB):
            os.pwrite(descriptor, pattern_bytes(MIB // 2), start)
        os.fsync(descriptor)
        parts, at = [], 0
        while at < size:
            data = next_data(descriptor, at)
            end = size if data is None else os.lseek(descriptor, data, os.SEEK_HOLE)
            parts.append((at, size if data is None else data, end))
            at = end
        for hole, data, end in parts:
            for at in inside(hole, data):
                found = os.lseek(descriptor, at, os.SEEK_HOLE)
                assert found == at or found == data == size, (
                    f"SEEK_HOLE at {at}, in a hole from {hole} to {data}, finds {found}"
                )
                found = next_data(descriptor, at)
                assert found == (None if data == size else data), (
                    f"SEEK_DATA at {at}, in a hole from {hole} to {data}, finds {found}"
                )
            for at in inside(data, end):
                found = os.lseek(descriptor, at, os.SEEK_HOLE), os.lseek(descriptor, at, os.SEEK_DATA)
                assert found == (end, at), (
                    f"SEEK_HOLE and SEEK_DATA at {at}, in data from {data} to {end}, find {found}"
                )


@pytest.mark.case("PSX-SEEK-CHANGED", kills=("seek-map-of-first-look",))
def test_positions_are_those_of_the_file_of_now(client_dir):
    """A descriptor that has looked for data and holes before finds what was written and cut off since."""
    path = client_dir / "f"
    with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor, open_fd(path, os.O_RDONLY) as reader:
        os.ftruncate(descriptor, 4 * MIB)
        descriptors = {"the descriptor that writes": descriptor, "another descriptor": reader}
        for one in descriptors.values():
            next_data(one, 0), next_data(one, 2 * MIB), os.lseek(one, 2 * MIB, os.SEEK_HOLE)
        os.pwrite(descriptor, pattern_bytes(PAGE), 2 * MIB)
        for name, one in descriptors.items():
            found = next_data(one, 0)
            assert found is not None, f"{name} finds no data after a write"
            assert found <= 2 * MIB, f"{name} finds data at {found}, after a write at {2 * MIB}"
            assert next_data(one, 2 * MIB) == 2 * MIB, f"{name} does not find the data of a write"
            hole = os.lseek(one, 2 * MIB, os.SEEK_HOLE)
            assert hole >= 2 * MIB + PAGE, f"{name} finds a hole at {hole}, in the data of a write"
        os.ftruncate(descriptor, MIB)
        for one in descriptors.values():
            assert_errno(errno.ENXIO, os.lseek, one, 2 * MIB, os.SEEK_DATA)
            assert os.lseek(one, 0, os.SEEK_HOLE) <= MIB


@pytest.mark.case(
    "PSX-SEEK-DATA-FINAL",
    section="POSIX.1-2024 lseek(): ERRORS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SEEK-DATA-DATA"),
    kills=("seek-data-final-hole-size", "seek-data-final-hole-zero"),
)
def test_no_data_are_found_in_the_final_hole(client_dir):
    """[ENXIO] The offset falls within the final hole. What is no hole there is data, and found at the offset.

    Files without any data, with data of one byte and more, one that was cut and extended, and a punched one.
    """

    def punched(descriptor):
        os.pwrite(descriptor, pattern_bytes(2 * MIB), 0)
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, MIB, MIB)

    def cut(descriptor):
        os.pwrite(descriptor, pattern_bytes(2 * MIB), 0)
        os.ftruncate(descriptor, MIB)
        os.ftruncate(descriptor, 2 * MIB)

    def extended(length):
        def make(descriptor):
            os.pwrite(descriptor, pattern_bytes(length), 0)
            os.ftruncate(descriptor, 2 * MIB)

        return make

    files = {"no data": extended(0), "1 byte": extended(1), "1 MiB of data": extended(MIB), "a cut": cut}
    for name, make in {**files, "a punched end": punched}.items():
        with open_fd(client_dir / name, os.O_CREAT | os.O_RDWR) as descriptor:
            try:
                make(descriptor)
            except CannotRun:
                continue  # PSX-PUNCH-* test whether that is legal
            os.fsync(descriptor)
            for offset in (MIB, MIB + 1, MIB + 70_000, 2 * MIB - PAGE, 2 * MIB - 1):
                found = next_data(descriptor, offset)
                assert found is None or offset <= found < 2 * MIB, (
                    f"SEEK_DATA at {offset} finds {found} in a file of {2 * MIB} bytes, with {name} and a "
                    "hole from 1 MiB on: it has to be ENXIO, or an offset from there to the end"
                )
                hole = os.lseek(descriptor, offset, os.SEEK_HOLE)
                assert found is not None or hole in (offset, 2 * MIB), (
                    f"SEEK_HOLE at {offset} finds {hole}, and SEEK_DATA no data, with {name}"
                )


def inside(start, end):
    """Return positions from ``start`` to the one before ``end``."""
    return sorted({start, start + 1, (start + end) // 2, end - 1}) if start + 1 < end else []


def next_data(descriptor, offset):
    """Return where SEEK_DATA leads, or None if there are no data at or behind ``offset``."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


@pytest.mark.case("PSX-SEEK-CONTRADICTION", kills=("seek-data-of-a-hole",))
def test_no_byte_is_reported_as_data_and_as_a_hole(client_dir):
    """SEEK_DATA and SEEK_HOLE never find the same offset: in one hole, in front of data and behind data."""
    size = 8 * MIB
    for name, places in (("hole", ()), ("front", (0,)), ("behind", (6 * MIB,)), ("both", (0, 6 * MIB))):
        with open_fd(client_dir / name, os.O_CREAT | os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, size)
            for place in places:
                os.pwrite(descriptor, b"d" * 65536, place)
            os.fsync(descriptor)
            for at in (0, 1, 4096, MIB, 2 * MIB + 1, 5 * MIB, size - 1):
                data, hole = next_data(descriptor, at), os.lseek(descriptor, at, os.SEEK_HOLE)
                assert data != hole, (
                    f"{name}: from {at} on SEEK_DATA and SEEK_HOLE both find {hole}, in a file of {size} "
                    f"bytes with data at {places}"
                )


@pytest.mark.case(
    "PSX-SPARSE-BLOCKS", section="POSIX.1-2024 <sys/stat.h>", level="MAY", kills=("blocks-full",)
)
def test_hole_allocates_no_blocks(client_dir):
    """A file system may leave holes unallocated: st_blocks counts allocated blocks."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 64 * MIB)
        os.fsync(descriptor)
    assert os.stat(client_dir / "f").st_blocks * 512 < MIB


@pytest.mark.case(
    "PSX-SPARSE-BLOCKS-WRITTEN", section="POSIX.1-2024 <sys/stat.h>", level="SHOULD", kills=("blocks-zero",)
)
def test_data_allocate_blocks(client_dir):
    """st_blocks is the number of allocated blocks: 1 MiB of incompressible data has some."""
    with open_fd(make_file(client_dir / "f", os.urandom(MIB))) as descriptor:
        os.fsync(descriptor)
    assert os.stat(client_dir / "f").st_blocks * 512 >= MIB // 2


@pytest.mark.case(
    "PSX-FALLOCATE-EXTENDS", section=falloc, kills=("fallocate-erases", "fallocate-ignored", "size-stale")
)
def test_fallocate_extends_the_file(client_dir):
    """The file size will be changed if offset+len is greater; the space reads as zeroes."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        fallocate(descriptor, 0, 0, MIB)
        assert os.fstat(descriptor).st_size == MIB
        assert os.pread(descriptor, MIB, 0) == b"abc" + bytes(MIB - 3)


@pytest.mark.case("PSX-FALLOCATE-ALLOCATES", section=falloc, kills=("fallocate-erases", "fallocate-ignored"))
def test_fallocate_allocates_the_space(client_dir):
    """After it, writes into the range are guaranteed not to fail for lack of space."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        fallocate(descriptor, 0, 0, 4 * MIB)
        assert allocated(descriptor) >= 4 * MIB


@pytest.mark.case("PSX-FALLOCATE-KEEP-SIZE", section=falloc, kills=("fallocate-size-not-kept",))
def test_fallocate_keep_size_keeps_the_size(client_dir):
    """With FALLOC_FL_KEEP_SIZE the file size is not changed even if offset+len is greater."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        fallocate(descriptor, FALLOC_KEEP_SIZE, 0, MIB)
        assert os.fstat(descriptor).st_size == 3


@pytest.mark.case("PSX-FALLOCATE-KEEPS-DATA", section=falloc, kills=("fallocate-erases", "fallocate-ignored"))
def test_fallocate_keeps_existing_data(client_dir):
    """Any subregion within the range that contained data before is left unchanged."""
    data = pattern_bytes(20_000)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, 0, 0, 50_000)
    assert (client_dir / "f").read_bytes() == data + bytes(30_000)


@pytest.mark.case(
    "PSX-POSIX-FALLOCATE",
    section="POSIX.1-2024 posix_fallocate(): DESCRIPTION",
    kills=("fallocate-erases", "fallocate-ignored", "size-stale"),
)
def test_posix_fallocate_extends_the_file(client_dir):
    """If offset+len is beyond the current file size, it shall adjust the size; otherwise leave it."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        try:
            os.posix_fallocate(descriptor, 0, 100_000)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                skip("this file system has no posix_fallocate()")
            raise
        assert os.fstat(descriptor).st_size == 100_000
        os.posix_fallocate(descriptor, 0, 10)
        assert os.fstat(descriptor).st_size == 100_000
        assert os.pread(descriptor, 5, 0) == b"abc\0\0"


@pytest.mark.case("PSX-FALLOCATE-EINVAL", section=falloc_errors)
def test_fallocate_of_an_invalid_range_is_refused(client_dir):
    """[EINVAL] offset was less than 0, or len was less than or equal to 0."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        fallocate(descriptor, 0, 0, 4096)
        assert_errno(errno.EINVAL, fallocate, descriptor, 0, -1, 4096)
        assert_errno(errno.EINVAL, fallocate, descriptor, 0, 0, 0)


@pytest.mark.case("PSX-FALLOCATE-READ-ONLY", section=falloc_errors)
def test_fallocate_of_a_read_only_descriptor_is_refused(client_dir):
    """[EBADF] fd is not opened for writing."""
    with open_fd(make_file(client_dir / "f"), os.O_RDONLY) as descriptor:
        assert_errno(errno.EBADF, fallocate, descriptor, 0, 0, 4096)


@pytest.mark.case("PSX-FALLOCATE-ENOSPC", section=falloc_errors, kills=("fallocate-ignored",))
def test_fallocate_of_too_much_space_is_refused(client_dir):
    """[EFBIG] offset+len exceeds the maximum file size, or [ENOSPC] there is not enough space left."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        fallocate(descriptor, 0, 0, 4096)
        assert_errno((errno.ENOSPC, errno.EFBIG), fallocate, descriptor, 0, 0, 1 << 62)


def punch_hole(client_dir, offset: int, length: int, size: int = MIB) -> bytes:
    """Write a file of ``size`` bytes, punch a hole into it, and return the expected content."""
    data = pattern_bytes(size)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
        assert os.fstat(descriptor).st_size == size
    return (data[:offset] + bytes(length) + data[offset + length :])[:size]


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-PUNCH-{name}"))
        for name, *rest in (
            ("BLOCKS", 65_536, 131_072),
            ("UNALIGNED", 5_001, 70_003),
            ("START", 0, 4096),
            ("TO-END", MIB - 8192, 8192),
            ("PAST-END", MIB - 100, 50_000),
        )
    ],
)
@pytest.mark.case(section="fallocate(2): FALLOC_FL_PUNCH_HOLE", kills=("punch-hole-ignored",))
def test_punched_hole_reads_as_zeroes(client_dir, offset, length):
    """Partial blocks are zeroed, whole ones removed; the range reads as zeroes and the size is unchanged."""
    wanted = punch_hole(client_dir, offset, length)
    assert read_at(client_dir / "f", 2 * MIB) == wanted


@pytest.mark.case(
    "PSX-PUNCH-FREES",
    section="fallocate(2): FALLOC_FL_PUNCH_HOLE",
    kills=("blocks-full", "blocks-zero", "punch-hole-ignored"),
)
def test_punched_hole_deallocates_its_blocks(client_dir):
    """Space is deallocated: whole blocks within the range are removed from the file."""
    with open_fd(make_file(client_dir / "f", os.urandom(2 * MIB))) as descriptor:
        os.fsync(descriptor)
        before = os.fstat(descriptor).st_blocks
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, MIB)
        os.fsync(descriptor)
    assert os.stat(client_dir / "f").st_blocks <= before - MIB // 512 // 2


@pytest.mark.case(
    "PSX-PUNCH-SEEK",
    section="fallocate(2): FALLOC_FL_PUNCH_HOLE",
    kills=("punch-hole-ignored", "seek-data-skips"),
)
def test_punched_hole_is_found_by_seek_hole(client_dir):
    """SEEK_HOLE may report a removed range, or "always return the offset of the end of the file" (lseek(2)).

    Whichever it does, the range reads as zeroes, and SEEK_DATA skips no data.
    """
    with open_fd(make_file(client_dir / "f", os.urandom(2 * MIB))) as descriptor:
        os.fsync(descriptor)
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, MIB)
        os.fsync(descriptor)
        assert os.pread(descriptor, MIB, 0) == bytes(MIB), "the removed range does not read as zeroes"
        hole, data = os.lseek(descriptor, 0, os.SEEK_HOLE), os.lseek(descriptor, 0, os.SEEK_DATA)
        record_observation("the hole is " + ("seen" if hole < MIB else "not seen"))
        assert hole < MIB or hole == 2 * MIB, (
            f"SEEK_HOLE found {hole}, among data; lseek(2): a hole or the end"
        )
        assert data <= MIB, f"SEEK_DATA found {data}; data begin at {MIB}, and lseek(2) skips none"


@pytest.mark.case(
    "PSX-PUNCH-CACHED",
    section="fallocate(2): FALLOC_FL_PUNCH_HOLE",
    kills=("hole-reads-garbage", "punch-hole-ignored"),
)
def test_punched_hole_invalidates_the_cache(client_dir):
    """A read after the call returns zeroes, even if the range was just written or read."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(100_000))) as descriptor:
        assert os.pread(descriptor, 100, 50_000) != bytes(100)
        os.pwrite(descriptor, b"fresh", 50_000)
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 40_960, 20_480)
        assert os.pread(descriptor, 20_480, 40_960) == bytes(20_480)


@pytest.mark.case(
    "PSX-ZERO-RANGE", section="fallocate(2): FALLOC_FL_ZERO_RANGE", kills=("zero-range-ignored",)
)
def test_zeroed_range_reads_as_zeroes(client_dir):
    """After a successful call, subsequent reads from this range will return zeroes."""
    data = pattern_bytes(200_000)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, FALLOC_ZERO_RANGE, 10_001, 100_003)
    assert (client_dir / "f").read_bytes() == data[:10_001] + bytes(100_003) + data[110_004:]


@pytest.mark.case(
    "PSX-ZERO-RANGE-KEEP-SIZE",
    section="fallocate(2): Zeroing file space",
    builds_on=("PSX-ZERO-RANGE",),
    kills=("zeroed-past-end-extends",),
)
def test_zeroed_range_past_the_end_extends_the_file_if_asked(client_dir):
    """A range that ends past the end of the file extends it, and with FALLOC_FL_KEEP_SIZE it does not."""
    data = pattern_bytes(20_000)
    for offset in (0, 10_001, 20_000, 30_000):
        kept = data[:offset]
        with open_fd(make_file(client_dir / f"{offset}", data)) as descriptor:
            fallocate(descriptor, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, offset, 70_000)
            size = os.fstat(descriptor).st_size
            assert size == 20_000, f"size {size} after {offset}, with FALLOC_FL_KEEP_SIZE"
            assert os.pread(descriptor, 30_000, 0) == kept.ljust(20_000, b"\0"), f"the data after {offset}"
            fallocate(descriptor, FALLOC_ZERO_RANGE, offset, 70_000)
            size = os.fstat(descriptor).st_size
            assert size == offset + 70_000, f"size {size} after {offset}, without FALLOC_FL_KEEP_SIZE"
        assert (client_dir / f"{offset}").read_bytes() == kept.ljust(offset + 70_000, b"\0")


@pytest.mark.case("PSX-COLLAPSE-RANGE", section="fallocate(2): FALLOC_FL_COLLAPSE_RANGE")
def test_collapse_range_removes_the_range(client_dir):
    """The contents after offset+len are appended at offset, and the file is len bytes smaller."""
    data = pattern_bytes(MIB)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, FALLOC_COLLAPSE_RANGE, 262_144, 131_072)
    assert (client_dir / "f").read_bytes() == data[:262_144] + data[393_216:]


@pytest.mark.case("PSX-INSERT-RANGE", section="fallocate(2): FALLOC_FL_INSERT_RANGE")
def test_insert_range_shifts_the_data(client_dir):
    """Data from offset on are shifted up by len bytes; the inserted range is a hole."""
    data = pattern_bytes(MIB)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, FALLOC_INSERT_RANGE, 262_144, 131_072)
    assert (client_dir / "f").read_bytes() == data[:262_144] + bytes(131_072) + data[262_144:]


def file_with_holes(path):
    """Make a file of data between holes, on the storage and not in the cache; return what it has.

    Its data begin at a page, end at one, are a page's last byte, and stand in the middle of one.
    """
    wanted = bytearray(16 * PAGE)
    parts = ((3 * PAGE - 1, 1), (5 * PAGE, 2 * PAGE), (9 * PAGE + 100, 50), (12 * PAGE - 700, 1400))
    with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, len(wanted))
        for offset, length in parts:
            wanted[offset : offset + length] = pattern_bytes(length)
            os.pwrite(descriptor, wanted[offset : offset + length], offset)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return bytes(wanted)


def ranges_from_holes():
    """Yield ranges that begin in a hole, at a page or not, and end in data, behind them or before them."""
    for data in (3 * PAGE - 1, 5 * PAGE, 9 * PAGE + 100, 12 * PAGE - 700):
        for before in (1, 2, 4095, 4096, 4097, 4098, 7000):
            for length in (before, before + 1, 4098, 8191, 20_000):
                yield data - before, length


def assert_range(found, wanted, offset, length):
    """Assert that a read returned what the file has."""
    wrong = first_difference(found, wanted[offset : offset + length])
    assert not wrong, f"a read of {length} bytes at {offset}, in a hole, returns {wrong}"


@pytest.mark.case(
    "PSX-HOLE-READ", section="POSIX.1-2024 read(): DESCRIPTION", kills=("hole-and-data-shifted",)
)
def test_read_that_begins_in_a_hole_returns_zeroes_and_the_data(client_dir):
    """A hole's bytes are zeroes, and the data behind it are in their place, from any byte on."""
    wanted = file_with_holes(client_dir / "f")
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        for offset, length in ranges_from_holes():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            assert_range(os.pread(descriptor, length, offset), wanted, offset, length)
