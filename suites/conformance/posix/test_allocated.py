"""Space is allocated in each place of a file: in front of data, between data, up to an odd last byte.

Blocks are counted as stat(2) reports them. How many more there are than was asked for is a SHOULD: a file
system may allocate in larger units.
"""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.large_files import allocated, put
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_ZERO_RANGE, fallocate
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-FALLOCATE-ALLOCATES")),
]
falloc = "fallocate(2): Allocating disk space"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PIECE = 64 * KIB
SLACK = 16 * MIB
"""Bytes that may be allocated more than was asked for (chosen: units of up to 8 MiB at both ends)."""


def assert_allocated(descriptor, wanted, what):
    """Assert that the file has at least ``wanted`` bytes of blocks."""
    found = allocated(descriptor)
    assert found >= wanted, (
        f"{what}: the file has blocks of {found} bytes; required: at least {wanted}, the allocated range and "
        f"the data, so that a write cannot fail for lack of space"
    )


@pytest.mark.case(
    "PSX-ALLOCATED-BEFORE",
    section=falloc,
    kills=("fallocate-before-data-ignored", "fallocate-takes-all-before"),
)
def test_space_is_allocated_in_front_of_data_that_are_far_behind(client_dir):
    """The range that is asked for is allocated, and not all that is in front of the next data.

    The data are 1 GiB behind the range, and then farther than the whole file system is large.
    """
    whole = os.statvfs(client_dir)
    beyond = max(2 * whole.f_blocks * whole.f_frsize, 8 * GIB)
    for number, far in enumerate((GIB, min(beyond, 1 << 42))):
        for mode in (0, FALLOC_KEEP_SIZE):
            path = client_dir / f"{number}-{mode}"
            with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
                put(descriptor, pattern_bytes(PIECE), far)
                fallocate(descriptor, mode, MIB, MIB)
                assert_allocated(descriptor, MIB + PIECE, f"1 MiB at 1 MiB, in front of data at {far}")
                size = os.fstat(descriptor).st_size
                assert size == far + PIECE, f"the size is {size} after an allocation inside of {far + PIECE}"
                assert os.pwrite(descriptor, b"written", MIB + 5) == 7
                assert os.pread(descriptor, 20, MIB) == bytes(5) + b"written" + bytes(8)
                assert os.pread(descriptor, PIECE + 1, far) == pattern_bytes(PIECE), "the data behind it"
            os.unlink(path)


@pytest.mark.case("PSX-ALLOCATED-BETWEEN", section=falloc, kills=("fallocate-ends-at-data",))
def test_space_is_allocated_between_pieces_of_data(client_dir):
    """A range with data in it is allocated from its first to its last byte; the data stay."""
    places = (0, 3 * MIB, 3 * MIB + 2 * PIECE, 7 * MIB - PIECE, 12 * MIB)
    for number, (offset, length) in enumerate(
        ((0, 8 * MIB), (MIB, 4 * MIB), (3 * MIB + 100, 3 * MIB), (2 * MIB, 9 * MIB), (5 * MIB, 20 * MIB))
    ):
        wanted = bytearray(max(12 * MIB + PIECE, offset + length))
        with open_fd(client_dir / str(number), os.O_CREAT | os.O_RDWR) as descriptor:
            for place in places:
                wanted[place : place + PIECE] = pattern_bytes(PIECE)
                os.pwrite(descriptor, pattern_bytes(PIECE), place)
            os.fsync(descriptor)
            outside = sum(PIECE for place in places if place + PIECE <= offset or place >= offset + length)
            fallocate(descriptor, 0, offset, length)
            what = f"{length} bytes at {offset}, with pieces of data in them"
            assert_allocated(descriptor, length + outside, what)
        wrong = first_difference((client_dir / str(number)).read_bytes(), bytes(wanted))
        assert not wrong, f"after the allocation of {what}, the file has {wrong}"
        os.unlink(client_dir / str(number))


@pytest.mark.case("PSX-ALLOCATED-ODD", section=falloc, kills=("fallocate-in-whole-pages",))
def test_space_is_allocated_to_the_last_byte(client_dir):
    """The range need not end at a block: its last byte has space, too, and the size is offset+len."""
    for number, (offset, length) in enumerate(
        ((0, 1), (0, 4097), (4095, 2), (100, 65_536), (1, MIB), (8 * KIB - 1, 256 * KIB + 2))
    ):
        with open_fd(make_file(client_dir / str(number))) as descriptor:
            fallocate(descriptor, 0, offset, length)
            assert_allocated(descriptor, length, f"{length} bytes at {offset} of an empty file")
            size = os.fstat(descriptor).st_size
            assert size == offset + length, f"the size is {size}; required: {offset + length}, offset+len"
            assert os.pread(descriptor, offset + length, 0) == bytes(offset + length), "they are not zeroes"


@pytest.mark.case("PSX-ALLOCATED-AGAIN", section=falloc, kills=("fallocate-second-ignored",))
def test_space_is_allocated_by_later_calls(client_dir):
    """A range of which a part has space already gets the rest, by the second call as by the first."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        fallocate(descriptor, 0, 0, 2 * MIB)
        for offset, length in (
            (100, MIB),
            (MIB, 4 * MIB),
            (9 * MIB, MIB),
            (4 * MIB, 6 * MIB),
            (0, 12 * MIB),
        ):
            fallocate(descriptor, 0, offset, length)
            assert_allocated(descriptor, length, f"{length} bytes at {offset}, of which a part has space")
        assert_allocated(descriptor, 12 * MIB, "12 MiB, allocated in parts")


@pytest.mark.case(
    "PSX-ALLOCATED-NO-MORE", level="SHOULD", section=falloc, kills=("fallocate-takes-all-before",)
)
def test_allocation_takes_about_what_is_asked_for(client_dir):
    """The space of the range is allocated. More than some units of the file system is waste.

    SHOULD: the page does not say in which units a file system allocates.
    """
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        put(descriptor, pattern_bytes(PIECE), 64 * MIB)
        before = allocated(descriptor)
        for offset in (0, 2 * MIB, 62 * MIB, 2 * MIB, 0):
            fallocate(descriptor, 0, offset, MIB)
        found = allocated(descriptor) - before
    assert found <= 3 * MIB + SLACK, (
        f"an allocation of 1 MiB in each of 3 places in front of data takes {found} bytes; it should take "
        f"about 3 MiB"
    )


@pytest.mark.case(
    "PSX-ALLOCATED-ZEROED",
    section="fallocate(2): FALLOC_FL_ZERO_RANGE",
    level="SHOULD",
    kills=("zero-range-of-holes-ignored",),
)
def test_space_is_allocated_for_a_hole_that_is_zeroed(client_dir):
    """Blocks are allocated for the holes of the range: in a file that is one hole, and between data."""
    with open_fd(client_dir / "hole", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 8 * MIB)
        fallocate(descriptor, FALLOC_ZERO_RANGE, MIB, 4 * MIB)
        assert_allocated(descriptor, 4 * MIB, "4 MiB of a hole are zeroed")
        assert not first_difference(os.pread(descriptor, 8 * MIB, 0), bytes(8 * MIB))
    with open_fd(client_dir / "data", os.O_CREAT | os.O_RDWR) as descriptor:
        for place in (0, 3 * MIB):
            put(descriptor, pattern_bytes(PIECE), place)
        fallocate(descriptor, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, MIB, 4 * MIB)
        assert_allocated(descriptor, PIECE + 4 * MIB, "4 MiB are zeroed, with data and past the end")
