"""Files that one client has open, or executes, while the other removes, replaces or writes them."""

from __future__ import annotations

import errno
from os import O_APPEND, O_CREAT, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 unlink(): DESCRIPTION"),
]

RECORDS = 30


@pytest.mark.case("LUS-UNLINK-01", kills=("unlinked-open-stale",))
def test_unlinked_file_is_read_and_written_by_who_has_it_open(a, b):
    """A file that the other client unlinks exists until its last descriptor is closed."""
    a.write_file("f", b"before")
    fd = a.open("f", O_RDWR)
    b.unlink("f")
    assert not a.exists("f")
    assert a.pread(fd, 10) == b"before"
    a.pwrite(fd, b"after!")
    a.fsync(fd)
    assert a.pread(fd, 10) == b"after!"


@pytest.mark.case("LUS-UNLINK-02", kills=("unlink-not-done",))
def test_unlinked_file_has_no_links(a, b):
    """fstat() of an open file that the other client unlinked shows a link count of 0."""
    a.write_file("f", b"x")
    fd = a.open("f")
    b.unlink("f")
    assert a.fstat(fd).nlink == 0


@pytest.mark.case("LUS-UNLINK-03", kills=("unlinked-open-stale",))
def test_name_of_an_unlinked_open_file_is_free(a, b):
    """The name of an unlinked open file can be created again, as another file."""
    a.write_file("f", b"old")
    fd = a.open("f")
    b.unlink("f")
    b.write_file("f", b"new")
    assert a.pread(fd, 10) == b"old"
    assert a.read_file("f") == b"new"
    assert a.stat("f").ino != a.fstat(fd).ino


@pytest.mark.case(
    "LUS-UNLINK-04",
    section="POSIX.1-2024 rename(): DESCRIPTION",
    kills=(
        "open-finds-the-old-file",
        "unlinked-open-stale",
    ),
)
def test_replaced_file_is_read_by_who_has_it_open(a, b):
    """A file that the other client replaces by a rename can be read until it is closed."""
    a.write_file("f", b"old")
    fd = a.open("f")
    b.write_file("new", b"new")
    b.rename("new", "f")
    assert a.pread(fd, 10) == b"old"
    assert a.read_file("f") == b"new"


@pytest.mark.case(
    "LUS-UNLINK-05", section="POSIX.1-2024 rmdir(): DESCRIPTION", kills=("unlinked-open-stale",)
)
def test_directory_of_an_unlinked_open_file_can_be_removed(a, b):
    """A directory whose only file was unlinked is empty, though the other client has the file open."""
    a.mkdir("d")
    a.write_file("d/f", b"x")
    fd = a.open("d/f")
    b.unlink("d/f")
    b.rmdir("d")
    assert a.pread(fd, 10) == b"x"
    assert not a.exists("d")


@pytest.mark.case("LUS-UNLINK-06", kills=("unlink-not-done",))
def test_unlinked_file_of_a_killed_process_leaves_nothing(a, b):
    """When the process that has an unlinked file open is killed, nothing is left of the file."""
    a.mkdir("d")
    a.write_file("d/f", b"x")
    a.open("d/f", O_RDWR)
    b.unlink("d/f")
    a.kill_worker()
    a.restart_worker()
    assert b.listdir("d") == []
    b.rmdir("d")


@pytest.mark.case("LUS-UNLINK-07", kills=("unlinked-open-stale",))
def test_two_clients_have_an_unlinked_file_open(a, b):
    """Each client that has an unlinked file open sees what the other writes to it."""
    a.write_file("f", b"first")
    mine, theirs = a.open("f", O_RDWR), b.open("f", O_RDWR)
    b.unlink("f")
    a.pwrite(mine, b"from a")
    assert b.pread(theirs, 10) == b"from a"
    b.pwrite(theirs, b"from b")
    assert a.pread(mine, 10) == b"from b"


@pytest.mark.case("LUS-APPEND-01", section="POSIX.1-2024 write(): O_APPEND", kills=("append-ignored",))
def test_concurrent_appends_lose_no_record(a, b, race):
    """Records that two clients append at the same time, without a lock, are all in the file, whole."""
    a.write_file("f", b"")
    fds = [session.open("f", O_WRONLY | O_APPEND) for session in (a, b)]
    written = [[_record(name, number, 16) for number in range(RECORDS)] for name in (b"a", b"b")]
    race(*([("write", fd, record) for record in records] for fd, records in zip(fds, written, strict=True)))
    lines = b.read_file("f").splitlines(keepends=True)
    for records in written:
        assert [line for line in lines if line[:1] == records[0][:1]] == records
    assert len(lines) == 2 * RECORDS


@pytest.mark.case(
    "LUS-APPEND-02",
    section="POSIX.1-2024 write(): O_APPEND",
    kills=("stripe-end-lost", "append-ignored"),
)
def test_concurrent_appends_over_stripes_are_whole(a, b, race, lfs):
    """A record larger than a stripe is contiguous, though the other client appends at the same time."""
    lfs(a, "setstripe", "-c", -1, "-S", "64K", "f")
    fds = [session.open("f", O_WRONLY | O_APPEND) for session in (a, b)]
    size = 100_000
    race(*([("write", fd, name * size)] * 4 for fd, name in zip(fds, (b"a", b"b"), strict=True)))
    assert b.stat("f").size == 8 * size
    data = b.read_file("f")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert sorted(pieces) == [b"a" * size] * 4 + [b"b" * size] * 4


@pytest.mark.case("LUS-APPEND-03", section="POSIX.1-2024 write(): O_APPEND", kills=("append-ignored",))
def test_append_after_a_truncation_by_the_other(a, b):
    """An append writes at the end that the other client has just set."""
    a.write_file("f", b"x" * 100)
    fd = a.open("f", O_WRONLY | O_APPEND)
    a.write(fd, b"one")
    b.truncate("f", 10)
    a.write(fd, b"two")
    assert b.read_file("f") == b"x" * 10 + b"two"


@pytest.fixture
def program(a):
    """Return a program in the case's directory that ends when its stdin is closed: a copy of cat(1)."""
    copy = ["sh", "-c", 'cp "$(command -v cat)" prog']
    status, output, errors = a.call("run_program", copy, 30.0, deadline=40)
    assert status == 0, output + errors
    return "prog"


@pytest.mark.case(
    "LUS-EXEC-01", section="POSIX.1-2024 open(): ERRORS, ETXTBSY", kills=("running-programs-unknown",)
)
def test_program_that_the_other_executes_is_not_opened_for_writing(a, b, program):
    """[ETXTBSY] The file is a program that another client executes; afterwards it can be written."""
    running = a.call("start_program", program)
    with pytest.raises(OSError) as refused:
        b.open(program, O_WRONLY)
    assert refused.value.errno == errno.ETXTBSY
    assert a.call("end_program", running) == 0
    b.close(b.open(program, O_WRONLY))


@pytest.mark.case(
    "LUS-EXEC-02", section="POSIX.1-2024 execve(): ERRORS, ETXTBSY", kills=("running-programs-unknown",)
)
def test_file_that_the_other_writes_is_not_executed(a, b, program):
    """[ETXTBSY] The file is open for writing on another client; afterwards it can be executed."""
    fd = b.open(program, O_WRONLY)
    with pytest.raises(OSError) as refused:
        a.call("start_program", program)
    assert refused.value.errno == errno.ETXTBSY
    b.close(fd)
    assert a.call("end_program", a.call("start_program", program)) == 0


@pytest.mark.case("LUS-EXEC-03", section="POSIX.1-2024 open(): DESCRIPTION", kills=("execute-refused",))
def test_program_is_read_and_executed_by_both(a, b, program):
    """A program that one client executes can be read and executed by the other."""
    running = a.call("start_program", program)
    other = b.call("start_program", program)
    assert b.pread(b.open(program), 4) == b"\x7fELF"
    assert (a.call("end_program", running), b.call("end_program", other)) == (0, 0)


@pytest.mark.case("LUS-EXEC-04", section="POSIX.1-2024 rename(): DESCRIPTION", kills=("execute-refused",))
def test_program_that_runs_is_replaced(a, b, program):
    """A new program takes the name of one that the other client executes, by a rename."""
    running = a.call("start_program", program)
    b.write_file("new", b"#!/bin/sh\nexit 3\n", O_CREAT | O_WRONLY)
    b.chmod("new", 0o755)
    b.rename("new", program)
    assert a.call("end_program", running) == 0
    assert a.call("end_program", a.call("start_program", program)) == 3


def _record(client: bytes, number: int, size: int) -> bytes:
    return (b"%s%d" % (client, number)).ljust(size - 1, b".") + b"\n"
