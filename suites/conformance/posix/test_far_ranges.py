"""Holes, zeroes, sizes and copies with odd ends at offsets past 4 GiB and 8 TiB, in sparse files."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.large_files import put
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.tmpfiles import open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

GIB, TIB = 1 << 30, 1 << 40
SPAN = 64 << 10
"""Bytes of data at each place."""
PLACES = {"4-GIB": 4 * GIB, "7-GIB": 7 * GIB, "1-TIB": TIB + 4 * GIB, "9-TIB": 9 * TIB + GIB}
RANGES = (
    (1, 1), (100, 300), (4095, 2), (5000, 3192), (8192, 4096), (9000, 30_001), (0, 777), (SPAN - 900, 900),
    (12_289, 8_190), (16_384, 12_289),
)  # fmt: skip
"""Offset and length in the span: inside of a block, over its ends, from the first and to the last byte."""


def places(name, kills):
    """Parametrize by ``far``; the cases are ``PSX-FAR-<name>-<place>``."""
    return pytest.mark.parametrize(
        "far",
        [
            pytest.param(
                far, id=place.lower(), marks=pytest.mark.case(f"PSX-FAR-{name}-{place}", kills=kills)
            )
            for place, far in PLACES.items()
        ],
    )


class FarFile:
    """An open file with data at a far place, and others where the low 32 bits and 31 bits of it lead."""

    def __init__(self, descriptor, far):
        self.descriptor, self.far = descriptor, far
        self.wanted = {}
        try:
            os.ftruncate(descriptor, far + SPAN)
        except OSError as error:
            if error.errno not in (errno.EFBIG, errno.EINVAL, errno.ENOSPC, errno.EDQUOT):
                raise
            skip(f"no file of {far + SPAN} bytes, holes included, can be made: {error.strerror}")
        if os.fstat(descriptor).st_size != far + SPAN:
            skip(f"no file of {far + SPAN} bytes can be made: PSX-TRUNCATE-EFBIG tests whether it is refused")
        for number, place in enumerate((far, far & 0xFFFFFFFF, far & 0x7FFFFFFF)):
            if place not in self.wanted:
                self.wanted[place] = bytearray(pattern_bytes(SPAN + number)[number:])
                put(descriptor, bytes(self.wanted[place]), place)

    def fill(self):
        """Write the data at the far place again."""
        self.wanted[self.far][:] = pattern_bytes(SPAN)
        os.pwrite(self.descriptor, pattern_bytes(SPAN), self.far)

    def clear(self, offset, length):
        """Note that a range of the far place has zeroes."""
        self.wanted[self.far][offset : offset + length] = bytes(length)

    def compare(self, what):
        """Assert the data at each place, and the size."""
        size = os.fstat(self.descriptor).st_size
        assert size == self.far + SPAN, f"the size is {size} after {what}; required: {self.far + SPAN}"
        for place, wanted in self.wanted.items():
            wrong = first_difference(os.pread(self.descriptor, SPAN, place), bytes(wanted))
            assert not wrong, f"after {what}, the {SPAN} bytes at {place} have {wrong}"


def compare_each_range(client_dir, far, mode, what):
    """Clear each of :data:`RANGES` at ``far`` by fallocate(2), and assert the data of the file."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        file = FarFile(descriptor, far)
        for offset, length in RANGES:
            os.fsync(descriptor)
            fallocate(descriptor, mode | FALLOC_KEEP_SIZE, far + offset, length)
            file.clear(offset, length)
            file.compare(f"{what} of {length} bytes at {far} + {offset}")
            file.fill()


@places("PUNCHED", ("far-hole-edges-32-bit", "far-hole-edges-left"))
@pytest.mark.case(section="fallocate(2): Deallocating file space")
def test_hole_has_odd_ends_at_a_far_offset(client_dir, far):
    """Partial blocks are zeroed and whole ones removed, and nothing else, wherever in the file that is."""
    compare_each_range(client_dir, far, FALLOC_PUNCH_HOLE, "a hole")


LENGTHS = (
    *(2 * GIB + more for more in (-1, 0, 4099)),
    3 * GIB,
    *(4 * GIB + more for more in (-1, 0, 1)),
    6 * GIB + 8191,
    9 * GIB,
)
MARK = 12_288
"""Bytes of data at each mark of a long range."""


@pytest.mark.case(
    "PSX-FAR-LONG-HOLES",
    section="fallocate(2): Deallocating file space",
    kills=("hole-length-31-bit", "hole-length-32-bit-odd"),
)
def test_hole_is_as_long_as_it_has_to_be(client_dir):
    """Each byte of the range reads as zero, and the bytes on both sides are kept, whatever the length is."""
    marks = [number * GIB for number in range(13)]
    data = pattern_bytes(MARK)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for length in LENGTHS:
            for offset in (100, GIB + 4096, 2 * GIB - 5):
                ends = [offset, offset + length]
                places = sorted({*marks, *(end - MARK // 2 for end in ends if end > MARK)})
                wanted = {}
                for place in places:
                    put(descriptor, data, place)
                for place in places:
                    was = bytearray(os.pread(descriptor, MARK, place))
                    start, end = max(offset - place, 0), min(offset + length - place, MARK)
                    if start < end:
                        was[start:end] = bytes(end - start)
                    wanted[place] = bytes(was)
                fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
                for place in places:
                    wrong = first_difference(os.pread(descriptor, MARK, place), wanted[place])
                    assert not wrong, (
                        f"a hole of {length} bytes at {offset} leaves {wrong} in the bytes at {place}"
                    )


@places("ZEROED", ("far-zeroes-edges-left",))
@pytest.mark.case(section="fallocate(2): Zeroing file space")
def test_zeroed_range_has_odd_ends_at_a_far_offset(client_dir, far):
    """Reads of the range return zeroes, and those of its neighbours what they had, wherever that is."""
    compare_each_range(client_dir, far, FALLOC_ZERO_RANGE, "zeroes")


@places("CUT", ("far-cut-leaves-the-rest-of-a-page",))
@pytest.mark.case(section="POSIX.1-2024 ftruncate(): DESCRIPTION")
def test_file_is_cut_at_an_odd_far_size(client_dir, far):
    """The bytes behind the new size are gone: they are zeroes when the file grows again."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        file = FarFile(descriptor, far)
        for at in (1, 100, 4095, 4097, 10_000, SPAN - 1):
            os.fsync(descriptor)
            os.ftruncate(descriptor, far + at)
            os.ftruncate(descriptor, far + SPAN)
            file.clear(at, SPAN - at)
            file.compare(f"ftruncate() to {far + at} and to {far + SPAN}")
            file.fill()


@places("COPIED", ("far-copy-source-32-bit", "far-copy-target-32-bit"))
@pytest.mark.case(section="copy_file_range(2): DESCRIPTION")
def test_range_is_copied_from_and_to_a_far_offset(client_dir, far):
    """Bytes are copied from the one offset to the other, of two files and of one."""
    with (
        open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor,
        open_fd(client_dir / "g", os.O_CREAT | os.O_RDWR) as other,
    ):
        file, target = FarFile(descriptor, far), FarFile(other, far)
        target.wanted[far] = bytearray(pattern_bytes(SPAN)[::-1])
        os.pwrite(other, target.wanted[far], far)
        for offset, length in RANGES:
            to = (offset + 3001) % (SPAN - length + 1)
            copied = 0
            while copied < length:
                try:
                    done = os.copy_file_range(
                        descriptor, other, length - copied, far + offset + copied, far + to + copied
                    )
                except OSError as error:
                    skip(f"this file system has no copy_file_range(2) here: {error.strerror}")
                assert done, f"copy_file_range() of {length} bytes ends after {copied}, before the file does"
                copied += done
            target.wanted[far][to : to + length] = file.wanted[far][offset : offset + length]
            what = f"copy_file_range() of {length} bytes at {far} + {offset} to {far} + {to}"
            target.compare(what)
            file.compare(what)
