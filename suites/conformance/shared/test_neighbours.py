"""Neighbours: two clients write different bytes of one file at the same time, and all of them are kept.

Sources: RFC 8881 18.32.3 (WRITE stores data at its offset, and changes no other); RFC 7530 10.3.2 (locked
ranges are not rounded: a client that locks its bytes writes only those); MS-SMB2 3.3.5.13; POSIX.1-2024
write(). Each client locks the bytes that it writes, because without a lock a client may write back its whole
cached page.
"""

from __future__ import annotations

from fcntl import F_UNLCK, F_WRLCK
from os import O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(
        section="RFC 7530 10.3.2; RFC 8881 18.32.3", level="MUST", kills=("writes-rewrite-the-block",)
    ),
]

SLOTS = 12
GENERATIONS = 6


def _slot(number: int, generation: int, size: int) -> bytes:
    return bytes([1 + number + SLOTS * generation]) * size


def _writes(fd: int, first: int, generation: int, size: int):
    """Write each second slot, from number ``first`` on, each under its own lock."""
    for number in range(first, SLOTS, 2):
        yield ("lock", fd, F_WRLCK, number * size, size, True)
        yield ("pwrite", fd, _slot(number, generation, size), number * size)
        yield ("fsync", fd)
        yield ("lock", fd, F_UNLCK, number * size, size, False)


def _lost(data: bytes, generation: int, size: int) -> list[int]:
    """Return the numbers of the slots that do not have the data of ``generation``."""
    assert len(data) == SLOTS * size
    return [
        number
        for number in range(SLOTS)
        if data[number * size : (number + 1) * size] != _slot(number, generation, size)
    ]


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(4096, id="pages", marks=pytest.mark.case("SHR-NEIGHBOUR-01")),
        pytest.param(300, id="parts-of-a-page", marks=pytest.mark.case("SHR-NEIGHBOUR-02")),
    ],
)
def test_neighbours_written_at_the_same_time_are_all_kept(a, b, race, crossed_wire, size):
    """After each generation the file has its data in every slot, whichever client wrote it."""
    a.write_file("f", bytes(SLOTS * size))
    for generation in range(GENERATIONS):
        fds = a.open("f", O_RDWR), b.open("f", O_RDWR)
        with crossed_wire(a, "write"):
            results = race(_writes(fds[0], 0, generation, size), _writes(fds[1], 1, generation, size))
        refused = [result for side in results for result in side if isinstance(result, OSError)]
        assert not refused, refused[0]
        for session, fd in ((a, fds[0]), (b, fds[1])):
            session.close(fd)
        for session in (a, b):
            session.evict(session.open("f"))  # what the server has, not a page of the client's cache
            lost = _lost(session.read_file("f"), generation, size)
            assert not lost, f"of {SLOTS} slots of {size} bytes, these do not have the last data: {lost}"
