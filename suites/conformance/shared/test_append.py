"""Append: what two clients add to the end of one file.

Sources: POSIX.1-2024 write() ("If the O_APPEND flag … is set, the file offset shall be set to the end of
the file prior to each write"); open(2), O_APPEND: "may lead to corrupted files on NFS filesystems if more
than one process appends data to a file at once. This is because NFS does not support appending to a file,
so the client kernel has to simulate it, which can't be done without a race condition"; RFC 7530 10.3.2.
"""

from __future__ import annotations

from fcntl import F_UNLCK, F_WRLCK
from os import O_APPEND, O_CREAT, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 write()", level="MUST", kills=("append-ignored",)),
]

RECORDS = 40


def _record(who: str, number: int) -> bytes:
    return b"%s%06d\n" % (who.encode(), number)


@pytest.mark.case("SHR-APPEND-01")
def test_records_appended_in_turn_stand_in_their_order(a, b, crossed_wire):
    a.write_file("f", b"")
    for number in range(12):
        hand = (a, b)[number % 2]
        with crossed_wire(hand, "write"):
            hand.write_file("f", _record("x", number), O_APPEND)
    assert a.read_file("f") == b"".join(_record("x", number) for number in range(12))


@pytest.mark.case("SHR-APPEND-02", section="RFC 7530 10.3.2; POSIX.1-2024 write()")
def test_under_a_lock_no_record_is_lost_though_both_keep_the_file_open(a, b, crossed_wire):
    files = [(a, a.open("f", O_CREAT | O_WRONLY | O_APPEND)), (b, b.open("f", O_WRONLY | O_APPEND))]
    for number in range(12):
        hand, fd = files[number % 2]
        with crossed_wire(hand, "lock"):
            hand.lock(fd, F_WRLCK)
        hand.write(fd, _record("x", number))
        hand.lock(fd, F_UNLCK)
    for hand, fd in files:
        hand.close(fd)
    assert b.read_file("f") == b"".join(_record("x", number) for number in range(12))


@pytest.mark.case("SHR-APPEND-03", section="RFC 7530 10.3.2; POSIX.1-2024 write()")
def test_nor_when_both_are_at_it_at_once(a, b, race, crossed_wire):
    a.write_file("f", b"")
    fds = [hand.open("f", O_WRONLY | O_APPEND) for hand in (a, b)]

    def records(who: str, fd: int):
        for number in range(RECORDS):
            yield ("lock", fd, F_WRLCK, 0, 0, True)
            yield ("write", fd, _record(who, number))
            yield ("lock", fd, F_UNLCK, 0, 0, False)

    with crossed_wire(a, "lock"):
        answers = race(records("a", fds[0]), records("b", fds[1]))
    refused = [answer for side in answers for answer in side if isinstance(answer, OSError)]
    assert not refused, refused[0]
    for hand, fd in zip((a, b), fds, strict=True):
        hand.close(fd)
    found = b.read_file("f").splitlines(keepends=True)
    for who in ("a", "b"):
        mine = [line for line in found if line.startswith(who.encode())]
        assert mine == [_record(who, number) for number in range(RECORDS)]
    assert len(found) == 2 * RECORDS


@pytest.mark.case("SHR-APPEND-04", level="MAY", section="open(2), O_APPEND", kills=())
def test_without_a_lock_records_may_be_lost(a, b, race, crossed_wire, observe):
    a.write_file("f", b"")
    fds = [hand.open("f", O_WRONLY | O_APPEND) for hand in (a, b)]
    with crossed_wire(a, "write"):
        race(
            *(
                [("write", fd, _record(who, number)) for number in range(RECORDS)] + [("close", fd)]
                for who, fd in zip("ab", fds, strict=True)
            )
        )
    found = b.read_file("f")
    wanted = {_record(who, number) for who in "ab" for number in range(RECORDS)}
    kept = wanted.intersection(found.splitlines(keepends=True))
    observe("all records were kept" if kept == wanted else "records were lost")
