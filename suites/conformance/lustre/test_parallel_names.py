"""Names that two clients create, remove and rename at the same time, and locks that wait for each other."""

from __future__ import annotations

import errno
from fcntl import F_UNLCK, F_WRLCK
from os import O_CREAT, O_EXCL, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 rename(): DESCRIPTION"),
]
FILES = 25
ENDS = 60.0
"""Seconds within which a lock request that may be granted, or is in a deadlock, has to end."""


def failures(results):
    """Return the errors among results."""
    return [result for result in results if isinstance(result, OSError)]


def assert_deadlock(request):
    """Assert that a lock request fails with EDEADLK."""
    assert request.done(within=ENDS), f"the deadlock is not detected within {ENDS:g} s"
    (result,) = request.results()
    assert isinstance(result, OSError), "the request was granted"
    assert result.errno == errno.EDEADLK, result


@pytest.mark.case("LUS-PDO-01", section="POSIX.1-2024 open(): O_CREAT", kills=("readdir-doubles",))
def test_both_create_files_in_one_directory(a, b, race):
    """Files that two clients create in one directory at the same time all exist, on both."""
    results = race(
        *([("write_file", f"{name}{number}", name.encode()) for number in range(FILES)] for name in "ab")
    )
    assert not failures(results[0] + results[1])
    names = sorted(f"{name}{number}" for name in "ab" for number in range(FILES))
    assert a.listdir() == b.listdir() == names


@pytest.mark.case("LUS-PDO-02", section="POSIX.1-2024 unlink(): DESCRIPTION", kills=("unlink-not-done",))
def test_both_remove_files_of_one_directory(a, b, race):
    """Files that two clients remove at the same time are gone, and the directory can be removed."""
    a.mkdir("d")
    a.each(
        [("write_file", f"d/{name}{number}", b"") for name in "ab" for number in range(FILES)], deadline=60
    )
    results = race(*([("unlink", f"d/{name}{number}") for number in range(FILES)] for name in "ab"))
    assert not failures(results[0] + results[1])
    assert a.listdir("d") == b.listdir("d") == []
    b.rmdir("d")


@pytest.mark.case("LUS-PDO-03", section="POSIX.1-2024 open(): O_EXCL", kills=("exclusive-not",))
def test_one_client_creates_each_name(race):
    """Of two clients that create one name with O_EXCL exactly one succeeds; the other gets EEXIST."""
    results = race(
        *([("open", f"f{number}", O_CREAT | O_EXCL | O_WRONLY) for number in range(FILES)] for _ in "ab")
    )
    for pair in zip(*results, strict=True):
        lost = failures(pair)
        assert [error.errno for error in lost] == [errno.EEXIST]


@pytest.mark.case(
    "LUS-PDO-04", section="POSIX.1-2024 mkdir(): ERRORS, EEXIST", kills=("mkdir-exists-accepted",)
)
def test_one_client_makes_each_directory(race):
    """Of two clients that make one directory exactly one succeeds; the other gets EEXIST."""
    results = race(*([("mkdir", f"d{number}") for number in range(FILES)] for _ in "ab"))
    for pair in zip(*results, strict=True):
        assert [error.errno for error in failures(pair)] == [errno.EEXIST]


@pytest.mark.case("LUS-PDO-05", kills=("rename-old-stays",))
def test_one_client_renames_each_file(a, race):
    """Of two clients that rename one file exactly one succeeds, and the file has one name."""
    a.each([("write_file", f"f{number}", b"") for number in range(FILES)], deadline=60)
    results = race(
        *([("rename", f"f{number}", f"{name}{number}") for number in range(FILES)] for name in "ab")
    )
    for pair in zip(*results, strict=True):
        assert [error.errno for error in failures(pair)] == [errno.ENOENT]
    names = a.listdir()
    assert len(names) == FILES
    assert sorted(name[1:] for name in names) == sorted(map(str, range(FILES)))


@pytest.mark.case("LUS-PDO-06", kills=("rename-old-stays",))
def test_files_are_exchanged_between_directories(a, b, race):
    """Clients that move files between two directories in opposite directions lose none, and do not hang."""
    for name in ("x", "y"):
        a.mkdir(name)
    a.each(
        [("write_file", f"{name}/{name}{number}", b"") for name in "xy" for number in range(FILES)],
        deadline=60,
    )
    results = race(
        [("rename", f"x/x{number}", f"y/x{number}") for number in range(FILES)],
        [("rename", f"y/y{number}", f"x/y{number}") for number in range(FILES)],
    )
    assert not failures(results[0] + results[1])
    assert (b.listdir("x"), a.listdir("y")) == (
        sorted(f"y{number}" for number in range(FILES)),
        sorted(f"x{number}" for number in range(FILES)),
    )


@pytest.mark.case("LUS-PDO-07", kills=("rename-not-atomic",))
def test_replaced_name_never_vanishes(a, race):
    """While one client replaces a file by renames, the other finds the name each time, with whole data."""
    a.write_file("f", b"0" * 100)
    calls = [
        call
        for number in range(1, 16)
        for call in (("write_file", "new", b"%d" % (number % 10) * 100), ("rename", "new", "f"))
    ]
    _, found = race(calls, [("read_file", "f")] * 30)
    assert not failures(found)
    assert all(len(data) == 100 and len(set(data)) == 1 for data in found)


@pytest.mark.case(
    "LUS-PDO-08",
    section="POSIX.1-2024 rename(): ERRORS, EINVAL",
    no_mutant_reason="the kernel refuses it before it calls a file system in user space",
)
def test_directories_are_not_moved_into_each_other(a, race):
    """Of two clients that move two directories into each other one succeeds; no loop is made."""
    for number in range(8):
        a.mkdir(f"x{number}")
        a.mkdir(f"y{number}")
    results = race(
        [("rename", f"x{number}", f"y{number}/x") for number in range(8)],
        [("rename", f"y{number}", f"x{number}/y") for number in range(8)],
    )
    for number, pair in enumerate(zip(*results, strict=True)):
        assert len(failures(pair)) == 1, pair
        assert a.exists(f"x{number}") != a.exists(f"y{number}")


@pytest.mark.case("LUS-PDO-09", section="POSIX.1-2024 link(): DESCRIPTION", kills=("link-not-counted",))
def test_link_count_after_links_of_both(a, b, race):
    """After two clients have made and removed links at the same time the count is that of the names."""
    a.write_file("f", b"")
    results = race(*([("link", "f", f"{name}{number}") for number in range(FILES)] for name in "ab"))
    assert not failures(results[0] + results[1])
    assert a.stat("f").nlink == b.stat("f").nlink == 2 * FILES + 1
    race(*([("unlink", f"{name}{number}") for number in range(FILES)] for name in "ab"))
    assert a.stat("f").nlink == b.stat("f").nlink == 1


@pytest.mark.case("LUS-PDO-10", section="POSIX.1-2024 rmdir(): ERRORS, ENOTEMPTY", kills=("rmdir-full",))
def test_directory_is_removed_or_filled(a, b, race):
    """Of a client that removes an empty directory and one that creates a file in it one succeeds."""
    for number in range(12):
        a.mkdir(f"d{number}")
    removed, created = race(
        [("rmdir", f"d{number}") for number in range(12)],
        [("write_file", f"d{number}/f", b"x") for number in range(12)],
    )
    for number, pair in enumerate(zip(removed, created, strict=True)):
        assert len(failures(pair)) == 1, pair
        (lost,) = failures(pair)
        legal = (errno.ENOTEMPTY, errno.EEXIST) if lost is pair[0] else (errno.ENOENT,)
        assert lost.errno in legal, pair
        assert a.exists(f"d{number}/f") == b.exists(f"d{number}/f") == (lost is pair[0])
    # On a busy machine one client may have removed all before the other begins.
    a.mkdir("full")
    b.write_file("full/f", b"x")
    with pytest.raises(OSError, match=r"not empty|exists") as refused:
        a.rmdir("full")
    assert refused.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    assert a.read_file("full/f") == b"x"


@pytest.mark.needs("locks")
@pytest.mark.case(
    "LUS-FLOCK-01", section="POSIX.1-2024 fcntl(): ERRORS, EDEADLK", level="SHOULD", kills=("lock-ignored",)
)
def test_deadlock_of_two_clients_is_detected(a, b):
    """[EDEADLK] Two clients wait for each other's locks: one request fails, and the other is granted."""
    a.write_file("f", bytes(100))
    fds = [session.open("f", O_RDWR) for session in (a, b)]
    a.lock(fds[0], F_WRLCK, 0, 10)
    b.lock(fds[1], F_WRLCK, 50, 10)
    first = a.wait_for_lock(fds[0], F_WRLCK, 50, 10, deadline=2 * ENDS)
    assert not first.done(within=1.0)
    assert_deadlock(b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * ENDS))
    b.lock(fds[1], F_UNLCK, 50, 10)
    first.result()


@pytest.mark.needs("locks")
@pytest.mark.case(
    "LUS-FLOCK-02", section="POSIX.1-2024 fcntl(): ERRORS, EDEADLK", level="SHOULD", kills=("lock-ignored",)
)
def test_deadlock_over_two_files_is_detected(a, b):
    """[EDEADLK] The locks that wait for each other may be on two files."""
    for name in ("f", "g"):
        a.write_file(name, bytes(100))
    mine = [a.open(name, O_RDWR) for name in ("f", "g")]
    theirs = [b.open(name, O_RDWR) for name in ("f", "g")]
    a.lock(mine[0], F_WRLCK)
    b.lock(theirs[1], F_WRLCK)
    first = a.wait_for_lock(mine[1], F_WRLCK, deadline=2 * ENDS)
    assert not first.done(within=1.0)
    assert_deadlock(b.wait_for_lock(theirs[0], F_WRLCK, deadline=2 * ENDS))
    b.lock(theirs[1], F_UNLCK)
    first.result()


@pytest.mark.needs("locks")
@pytest.mark.case("LUS-FLOCK-03", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-ignored",))
def test_chain_of_waiting_locks_is_no_deadlock(a, b):
    """A lock that waits for one whose holder waits for nothing is granted when that is released."""
    a.write_file("f", bytes(100))
    fds = [session.open("f", O_RDWR) for session in (a, b)]
    a.lock(fds[0], F_WRLCK, 0, 10)
    b.lock(fds[1], F_WRLCK, 50, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * ENDS)
    assert not waiting.done(within=1.0)
    a.lock(fds[0], F_UNLCK, 0, 10)
    assert waiting.done(within=ENDS), "a lock whose holder has released it is not granted"
    waiting.result()


@pytest.mark.needs("locks")
@pytest.mark.case("LUS-FLOCK-04", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-ignored",))
def test_killed_holder_ends_the_wait(a, b):
    """A lock of a process that is killed is released, and a client that waits for it gets it."""
    a.write_file("f", bytes(100))
    fds = [session.open("f", O_RDWR) for session in (a, b)]
    a.lock(fds[0], F_WRLCK)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, deadline=2 * ENDS)
    assert not waiting.done(within=1.0)
    a.kill_worker()
    assert waiting.done(within=ENDS), "the lock of a killed process is still held"
    waiting.result()
    a.restart_worker()
