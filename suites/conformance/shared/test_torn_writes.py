"""Torn writes: what is written under a lock is seen whole or not at all, and no neighbour's bytes are lost
by it.

Sources: RFC 7530 10.3.2 (modified data are flushed before a lock is released; "must reflect the actual byte
ranges locked or unlocked. Rounding these up or down … will cause problems"); POSIX.1-2024 2.9.7 (reads and
writes are atomic with respect to each other), which no version of NFS promises between clients.
"""

from __future__ import annotations

from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.2", level="MUST", kills=("reads-are-torn",)),
]

SIZE = 3 * 4096
TIMES = 25


def _torn(found) -> list[bytes]:
    return [data for data in found if isinstance(data, bytes) and len(set(data)) > 1]


def _writes(fd: int, first: int) -> list[tuple]:
    return [
        call
        for number in range(TIMES)
        for call in (
            ("lock", fd, F_WRLCK, 0, SIZE, True),
            ("pwrite", fd, bytes([first + number]) * SIZE, 0),
            ("lock", fd, F_UNLCK, 0, SIZE, False),
        )
    ]


@pytest.mark.case("SHR-TORN-01")
def test_a_reader_under_a_lock_sees_one_writers_data_whole(a, fds, race, crossed_wire):
    a.pwrite(fds[0], bytes(SIZE))
    a.fsync(fds[0])
    reads = [
        ("lock", fds[1], F_RDLCK, 0, SIZE, True),
        ("pread", fds[1], SIZE, 0),
        ("lock", fds[1], F_UNLCK, 0, SIZE, False),
    ]
    with crossed_wire(a, "lock"):
        _, found = race(_writes(fds[0], 1), reads * TIMES)
    assert not [answer for answer in found if isinstance(answer, OSError)]
    assert {len(data) for data in found[1::3]} == {SIZE}
    assert not _torn(found), f"{len(_torn(found))} of {TIMES} reads were torn"


@pytest.mark.case("SHR-TORN-02")
def test_of_two_writers_under_a_lock_the_last_ones_data_stand_whole(a, b, fds, race, crossed_wire):
    with crossed_wire(a, "lock"):
        race(_writes(fds[0], 1), _writes(fds[1], 101))
    a.close(fds[0])
    b.close(fds[1])
    found = a.read_file("f")
    assert len(found) == SIZE
    assert len(set(found)) == 1
    assert found[0] in (TIMES, 100 + TIMES)


@pytest.mark.case("SHR-TORN-03", kills=("writes-are-whole-pages",))
def test_neighbours_in_one_page_do_not_overwrite_each_other(a, b, crossed_wire, observe):
    a.write_file("f", bytes(4096))
    fds = a.open("f", O_RDWR), b.open("f", O_RDWR)
    assert b.pread(fds[1], 4096) == bytes(4096)
    for part in range(8):
        hand, fd = ((a, fds[0]), (b, fds[1]))[part % 2]
        with crossed_wire(hand, "lock"):
            hand.lock(fd, F_WRLCK, part * 512, 512)
        hand.pwrite(fd, bytes([65 + part]) * 512, part * 512)
    wanted = b"".join(bytes([65 + part]) * 512 for part in range(8))
    for hand, fd in ((a, fds[0]), (b, fds[1])):
        hand.lock(fd, F_UNLCK)
        hand.close(fd)
    kept = [hand.read_file("f") == wanted for hand in (a, b)]
    # What the server has: a client may keep the page as it was when it got its own lock, of other bytes.
    for hand in (a, b):
        hand.forget(hand.open("f"))
        assert hand.read_file("f") == wanted
    observe("both see it at once" if all(kept) else "one keeps its page, with the other's bytes as they were")


@pytest.mark.case("SHR-TORN-04", level="MAY", section="POSIX.1-2024 2.9.7; RFC 1813 4.11", kills=())
def test_without_a_lock_a_reader_may_see_parts_of_two(a, fds, race, crossed_wire, observe):
    a.pwrite(fds[0], bytes(SIZE))
    a.fsync(fds[0])
    writes = [
        call
        for number in range(TIMES)
        for call in (("pwrite", fds[0], bytes([1 + number]) * SIZE, 0), ("fsync", fds[0]))
    ]
    with crossed_wire(a, "write"):
        _, found = race(writes, [("evict", fds[1]), ("pread", fds[1], SIZE, 0)] * TIMES)
    observe("without a lock reads were torn" if _torn(found) else "without a lock no read was torn")
