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


def _writes(fd: int, first: int, generation: int, size: int, base: int):
    """Write each second slot, from number ``first`` on, each under its own lock."""
    for number in range(first, SLOTS, 2):
        start = base + number * size
        yield ("lock", fd, F_WRLCK, start, size, True)
        yield ("pwrite", fd, _slot(number, generation, size), start)
        yield ("fsync", fd)
        yield ("lock", fd, F_UNLCK, start, size, False)


def _lost(data: bytes, generation: int, size: int) -> list[int]:
    """Return the numbers of the slots that do not have the data of ``generation``."""
    assert len(data) == SLOTS * size
    return [
        number
        for number in range(SLOTS)
        if data[number * size : (number + 1) * size] != _slot(number, generation, size)
    ]


@pytest.mark.parametrize(
    ("size", "base"),
    [
        pytest.param(4096, 0, id="pages", marks=pytest.mark.case("SHR-NEIGHBOUR-01")),
        pytest.param(300, 0, id="parts-of-a-page", marks=pytest.mark.case("SHR-NEIGHBOUR-02")),
        pytest.param(
            5000,
            (2 << 20) - 20_000,
            id="across-2-mib",
            marks=pytest.mark.case(
                "SHR-NEIGHBOUR-03", kills=("writes-rewrite-the-block", "two-block-rewritten-far")
            ),
        ),
    ],
)
def test_neighbours_written_at_the_same_time_are_all_kept(a, b, race, crossed_wire, size, base):
    """After each generation the file has its data in every slot, whichever client wrote it."""
    a.write_file("f", b"")
    a.truncate("f", base + SLOTS * size)
    for generation in range(GENERATIONS):
        fds = a.open("f", O_RDWR), b.open("f", O_RDWR)
        with crossed_wire(a, "write"):
            results = race(
                _writes(fds[0], 0, generation, size, base), _writes(fds[1], 1, generation, size, base)
            )
        refused = [result for side in results for result in side if isinstance(result, OSError)]
        assert not refused, refused[0]
        for session, fd in ((a, fds[0]), (b, fds[1])):
            session.close(fd)
        for session in (a, b):
            session.evict(session.open("f"))  # what the server has, not a page of the client's cache
            lost = _lost(session.call("read_file", "f", 1 << 23)[base:], generation, size)
            assert not lost, f"of {SLOTS} slots of {size} bytes, these do not have the last data: {lost}"
