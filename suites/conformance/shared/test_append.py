"""Append: two clients append to one file.

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


def _record(client: str, number: int) -> bytes:
    return b"%s%06d\n" % (client.encode(), number)


@pytest.mark.case("SHR-APPEND-01")
def test_alternate_appends_are_kept_in_order(a, b, crossed_wire):
    """Both clients find all records in the order of the writes."""
    a.write_file("f", b"")
    for number in range(12):
        session = (a, b)[number % 2]
        with crossed_wire(session, "write"):
            session.write_file("f", _record("x", number), O_APPEND)
    assert a.read_file("f") == b"".join(_record("x", number) for number in range(12))


@pytest.mark.case(
    "SHR-APPEND-02",
    section="RFC 7530 10.3.2; POSIX.1-2024 write()",
    kills=("append-ignored", "two-append-third-at-own-end"),
)
def test_alternate_appends_under_a_lock_with_open_files_lose_no_record(a, b, crossed_wire):
    files = [(a, a.open("f", O_CREAT | O_WRONLY | O_APPEND)), (b, b.open("f", O_WRONLY | O_APPEND))]
    for number in range(12):
        session, fd = files[number % 2]
        with crossed_wire(session, "lock"):
            session.lock(fd, F_WRLCK)
        session.write(fd, _record("x", number))
        session.lock(fd, F_UNLCK)
    for session, fd in files:
        session.close(fd)
    assert b.read_file("f") == b"".join(_record("x", number) for number in range(12))


@pytest.mark.case("SHR-APPEND-03", section="RFC 7530 10.3.2; POSIX.1-2024 write()")
def test_concurrent_appends_under_a_lock_lose_no_record(a, b, race, crossed_wire):
    """Every record is in the file once, each client's in its order."""
    a.write_file("f", b"")
    fds = [session.open("f", O_WRONLY | O_APPEND) for session in (a, b)]

    def records(client: str, fd: int):
        for number in range(RECORDS):
            yield ("lock", fd, F_WRLCK, 0, 0, True)
            yield ("write", fd, _record(client, number))
            yield ("lock", fd, F_UNLCK, 0, 0, False)

    with crossed_wire(a, "lock"):
        results = race(records("a", fds[0]), records("b", fds[1]))
    refused = [result for side in results for result in side if isinstance(result, OSError)]
    assert not refused, refused[0]
    for session, fd in zip((a, b), fds, strict=True):
        session.close(fd)
    lines = b.read_file("f").splitlines(keepends=True)
    for client in ("a", "b"):
        own_lines = [line for line in lines if line.startswith(client.encode())]
        assert own_lines == [_record(client, number) for number in range(RECORDS)]
    assert len(lines) == 2 * RECORDS


@pytest.mark.case("SHR-APPEND-04", level="MAY", section="open(2), O_APPEND", kills=())
def test_concurrent_appends_without_a_lock_may_lose_records(a, b, race, crossed_wire, observe):
    """A client may overwrite a record of the other."""
    a.write_file("f", b"")
    fds = [session.open("f", O_WRONLY | O_APPEND) for session in (a, b)]
    with crossed_wire(a, "write"):
        race(
            *(
                [("write", fd, _record(client, number)) for number in range(RECORDS)] + [("close", fd)]
                for client, fd in zip("ab", fds, strict=True)
            )
        )
    data = b.read_file("f")
    wanted = {_record(client, number) for client in "ab" for number in range(RECORDS)}
    retained = wanted.intersection(data.splitlines(keepends=True))
    observe("all records were kept" if retained == wanted else "records were lost")


@pytest.mark.parametrize("size", [
    pytest.param(10, id="cut", marks=pytest.mark.case("SHR-APPEND-05", kills=("two-append-behind-the-cut",))),
    pytest.param(5000, id="grown", marks=pytest.mark.case("SHR-APPEND-06", kills=("two-append-at-own-end",))),
])  # fmt: skip
@pytest.mark.case(section="POSIX.1-2024 write(), truncate(); RFC 7530 10.3.1", kills=())
def test_append_is_made_at_the_end_that_the_other_client_has_set(a, b, crossed_wire, size):
    """A client that appended, and opens the file again, appends where truncate() of the other ended it."""
    b.write_file("f", b"x" * 100)
    b.write_file("f", _record("b", 1), O_APPEND)
    with crossed_wire(a, "change"):
        a.truncate("f", size)
    with crossed_wire(b, "write"):
        b.write_file("f", _record("b", 2), O_APPEND)
    data = a.read_file("f")
    assert len(data) == size + 8, f"{len(data)} bytes after an append of 8 bytes to {size}"
    assert data[size:] == _record("b", 2)
    assert data[:10] == b"x" * 10
