"""Torn writes: data written under a lock are read completely, and neighbouring bytes are kept.

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


def _torn(results) -> list[bytes]:
    return [data for data in results if isinstance(data, bytes) and len(set(data)) > 1]


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
def test_read_under_a_lock_is_not_torn(a, b, fds, race, crossed_wire):
    """Each read returns one whole write, and one after all of them the last."""
    a.pwrite(fds[0], bytes(SIZE))
    a.fsync(fds[0])
    reads = [
        ("lock", fds[1], F_RDLCK, 0, SIZE, True),
        ("pread", fds[1], SIZE, 0),
        ("lock", fds[1], F_UNLCK, 0, SIZE, False),
    ]
    with crossed_wire(a, "lock"):
        _, results = race(_writes(fds[0], 1), reads * TIMES)
    assert not [result for result in results if isinstance(result, OSError)]
    assert {len(data) for data in results[1::3]} == {SIZE}
    assert not _torn(results), f"{len(_torn(results))} of {TIMES} reads were torn"
    # On a busy machine all reads may come before the first write.
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_RDLCK, 0, SIZE)
    last = b.pread(fds[1], SIZE)
    assert not _torn([last]), "the read after the last write was torn"
    assert last == bytes([TIMES]) * SIZE, f"the last write is of bytes {TIMES}, the read returned {last[0]}"


@pytest.mark.case("SHR-TORN-02")
def test_last_of_two_writers_under_a_lock_is_kept_completely(a, b, fds, race, crossed_wire):
    with crossed_wire(a, "lock"):
        race(_writes(fds[0], 1), _writes(fds[1], 101))
    a.close(fds[0])
    b.close(fds[1])
    data = a.read_file("f")
    assert len(data) == SIZE
    assert len(set(data)) == 1
    assert data[0] in (TIMES, 100 + TIMES)


@pytest.mark.case("SHR-TORN-03", kills=("writes-are-whole-pages",))
def test_writes_to_neighbours_in_one_page_are_all_kept(a, b, crossed_wire, observe):
    """The server has the bytes of both clients."""
    a.write_file("f", bytes(4096))
    fds = a.open("f", O_RDWR), b.open("f", O_RDWR)
    assert b.pread(fds[1], 4096) == bytes(4096)
    for part in range(8):
        session, fd = ((a, fds[0]), (b, fds[1]))[part % 2]
        with crossed_wire(session, "lock"):
            session.lock(fd, F_WRLCK, part * 512, 512)
        session.pwrite(fd, bytes([65 + part]) * 512, part * 512)
    wanted = b"".join(bytes([65 + part]) * 512 for part in range(8))
    for session, fd in ((a, fds[0]), (b, fds[1])):
        session.lock(fd, F_UNLCK)
        session.close(fd)
    current = [session.read_file("f") == wanted for session in (a, b)]
    # The server's data: a client may have cached the page when it locked other bytes of it.
    for session in (a, b):
        session.evict(session.open("f"))
        assert session.read_file("f") == wanted
    observe(
        "both clients read all bytes at once"
        if all(current)
        else "a client keeps its cached page with old bytes of the other"
    )


@pytest.mark.case("SHR-TORN-04", level="MAY", section="POSIX.1-2024 2.9.7; RFC 1813 4.11", kills=())
def test_read_without_a_lock_may_be_torn(a, fds, race, crossed_wire, observe):
    a.pwrite(fds[0], bytes(SIZE))
    a.fsync(fds[0])
    writes = [
        call
        for number in range(TIMES)
        for call in (("pwrite", fds[0], bytes([1 + number]) * SIZE, 0), ("fsync", fds[0]))
    ]
    with crossed_wire(a, "write"):
        _, results = race(writes, [("evict", fds[1]), ("pread", fds[1], SIZE, 0)] * TIMES)
    observe("without a lock reads were torn" if _torn(results) else "without a lock no read was torn")
