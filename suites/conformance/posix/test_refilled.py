"""Holes and allocated ranges of a file that are filled piece by piece, in each order."""

from __future__ import annotations

import mmap
import os

import pytest

from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

PAGE = mmap.PAGESIZE
PIECES = 12
SIZES = (1024, PAGE, 3 * PAGE + 1)
"""Sizes of a piece: a part of a page, a page, and pages with an odd end."""

ORDERS = {
    "FORWARDS": tuple(range(PIECES)),
    "BACKWARDS": tuple(reversed(range(PIECES))),
    "ALTERNATELY": (*range(0, PIECES, 2), *range(1, PIECES, 2)),
    "INWARDS": tuple(at for pair in zip(range(6), range(11, 5, -1), strict=True) for at in pair),
}
"""The order in which the pieces are filled."""


def orders(name, before, after):
    """Parametrize by ``order``; the cases are ``PSX-<name>-<order>``.

    ``before`` and ``after`` are mutants that change a piece in front of data, and behind data, and the orders
    in which there is such a piece.
    """
    return pytest.mark.parametrize(
        "order",
        [
            pytest.param(
                order,
                id=order.lower(),
                marks=pytest.mark.case(
                    f"PSX-{name}-{order}",
                    kills=tuple(mutant for mutant, of_orders in (before, after) if order in of_orders),
                ),
            )
            for order in ORDERS
        ],
    )


class Pieces:
    """An open file of pieces, and the bytes that it has to have."""

    def __init__(self, path, descriptor, size, wanted=b""):
        self.path, self.descriptor, self.size = path, descriptor, size
        self.data = pattern_bytes(PIECES * size)
        self.wanted = bytearray(wanted)

    def fill(self, at):
        """Write piece ``at``; the file grows if the piece is behind its end."""
        start, end = at * self.size, (at + 1) * self.size
        self.wanted += bytes(max(0, end - len(self.wanted)))
        self.wanted[start:end] = self.data[start:end]
        done = os.pwrite(self.descriptor, self.data[start:end], start)
        assert done == self.size, f"a write of {self.size} bytes at {start} returned {done}"

    def change(self, mode, at, count=1):
        """Call fallocate() with ``mode`` on ``count`` pieces from ``at`` on."""
        fallocate(self.descriptor, mode, at * self.size, count * self.size)

    def compare(self, after):
        """Assert the size and the contents, read by the descriptor and by a new open."""
        for how, found in (
            ("the descriptor", os.pread(self.descriptor, PIECES * self.size + PAGE, 0)),
            ("a new open", self.path.read_bytes()),
        ):
            assert len(found) == len(self.wanted), (
                f"{how} reads {len(found)} bytes after {after}; the file has {len(self.wanted)}"
            )
            wrong = first_difference(found, self.wanted)
            assert not wrong, f"{how} reads {wrong}, after {after} (pieces of {self.size} bytes)"


@orders("REFILL-HOLE", ("filled-before-data-clipped", ORDERS), ("filled-after-data-clipped", ORDERS))
@pytest.mark.case(
    section="fallocate(2): Deallocating file space; POSIX.1-2024 pwrite(): DESCRIPTION",
)
def test_holes_are_filled_again(client_dir, order):
    """A hole reads as zeroes until it is written, each piece of it by itself; its neighbours stay.

    The holes are made one by one, in the same order and synchronised, so that the file is at first all data
    and then all hole; then a piece of the data is written back, and another one punched again.
    """
    for size in SIZES:
        path = make_file(client_dir / str(size), pattern_bytes(PIECES * size))
        with open_fd(path) as descriptor:
            file = Pieces(path, descriptor, size, pattern_bytes(PIECES * size))
            for at in ORDERS[order]:
                file.change(FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, at)
                file.wanted[at * size : (at + 1) * size] = bytes(size)
                file.compare(f"a hole at piece {at}")
            os.fsync(descriptor)
            for at in ORDERS[order]:
                file.fill(at)
                os.fdatasync(descriptor)
                file.compare(f"a write into the hole at piece {at}")
            for at in ORDERS[order][::3]:
                file.change(FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, at)
                file.wanted[at * size : (at + 1) * size] = bytes(size)
                os.fdatasync(descriptor)
                file.fill(at)
                file.compare(f"a hole at piece {at} that was made and filled again")


@orders(
    "FILL-ALLOCATED",
    ("filled-before-data-clipped", ("BACKWARDS", "ALTERNATELY", "INWARDS")),
    ("filled-after-data-clipped", ("FORWARDS", "ALTERNATELY", "INWARDS")),
)
@pytest.mark.case(
    section="fallocate(2): Allocating disk space; POSIX.1-2024 pwrite(): DESCRIPTION",
)
def test_allocated_range_is_filled_by_pieces(client_dir, order):
    """An allocated range reads as zeroes where it is not written yet: in a file of its size, and beyond it.

    With FALLOC_FL_KEEP_SIZE the size grows by the writes alone.
    """
    for size in SIZES:
        for mode in (0, FALLOC_KEEP_SIZE):
            path = client_dir / f"{size}-{mode}"
            with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
                file = Pieces(path, descriptor, size, b"" if mode else bytes(PIECES * size))
                file.change(mode, 0, PIECES)
                file.compare(f"an allocation of mode {mode}")
                for at in ORDERS[order]:
                    file.fill(at)
                    os.fdatasync(descriptor)
                    file.compare(f"a write at piece {at} of a range that was allocated with mode {mode}")


@orders(
    "ALLOCATE-BY-PIECES",
    ("allocated-before-data-zeroes", ("BACKWARDS", "ALTERNATELY", "INWARDS")),
    ("allocated-after-data-zeroes", ("FORWARDS", "ALTERNATELY")),
)
@pytest.mark.case(section="fallocate(2): Allocating disk space")
def test_file_is_allocated_by_pieces(client_dir, order):
    """Allocations that meet each other and data change neither: each second piece is written at once.

    Data that were there before are left unchanged, and what had none reads as zeroes.
    """
    for size in SIZES:
        path = client_dir / str(size)
        with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
            file = Pieces(path, descriptor, size)
            for turn, at in enumerate(ORDERS[order]):
                file.change(0, at)
                file.wanted += bytes(max(0, (at + 1) * size - len(file.wanted)))
                file.compare(f"an allocation of piece {at}")
                if turn % 2:
                    file.fill(at)
                    os.fdatasync(descriptor)
                    file.compare(f"a write at piece {at}, which was allocated")
            file.change(0, 0, PIECES)
            file.compare("an allocation of all pieces")


@orders(
    "ZERO-BY-PIECES",
    ("zeroed-before-data-clears", ("FORWARDS", "ALTERNATELY", "INWARDS")),
    ("zeroed-after-data-clears", ("BACKWARDS", "ALTERNATELY", "INWARDS")),
)
@pytest.mark.case(section="fallocate(2): Zeroing file space")
def test_ranges_are_zeroed_and_filled_by_pieces(client_dir, order):
    """A range that is zeroed reads as zeroes until it is written again, and its neighbours stay."""
    for size in SIZES:
        path = make_file(client_dir / str(size), pattern_bytes(PIECES * size))
        with open_fd(path) as descriptor:
            file = Pieces(path, descriptor, size, pattern_bytes(PIECES * size))
            for at in ORDERS[order]:
                file.change(FALLOC_ZERO_RANGE, at)
                file.wanted[at * size : (at + 1) * size] = bytes(size)
                os.fdatasync(descriptor)
                file.compare(f"FALLOC_FL_ZERO_RANGE of piece {at}")
            for at in ORDERS[order]:
                file.fill(at)
                os.fdatasync(descriptor)
                file.compare(f"a write at piece {at}, which was zeroed")
