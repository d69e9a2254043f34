"""Record locks of one client: fcntl(), open file description locks, flock(). Two clients are shared/'s."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, assert_errno, call_in_subprocess, record_observation
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 fcntl(): F_SETLK"),
]
ofd = "fcntl(2): Open file description locks"
whole = "flock(2): DESCRIPTION"

READ, WRITE, FREE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
F_OFD_GETLK, F_OFD_SETLK = 36, 37  # <linux/fcntl.h>
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid


def lock(descriptor: int, kind: int, start: int, length: int, command: int = fcntl.F_SETLK) -> None:
    fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


def holder(descriptor: int, kind: int, start: int, length: int, command: int = fcntl.F_GETLK):
    """Return (type, start, length, pid) of a lock that is in the way; type is F_UNLCK where none is."""
    found = fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, pid = _FLOCK.unpack(found)
    return kind, start, length, pid


def may_lock(path, kind: int, start: int, length: int) -> bool:
    """Whether another process gets this lock now."""

    def attempt() -> bool:
        with open_fd(path) as descriptor:
            try:
                lock(descriptor, kind, start, length)
            except OSError as error:
                assert error.errno in (errno.EAGAIN, errno.EACCES), error
                return False
            return True

    return call_in_subprocess(attempt)


CONFLICTS = [
    # held, asked, whether it is granted to another process
    ("READ-READ", READ, READ, True),
    ("READ-WRITE", READ, WRITE, False),
    ("WRITE-READ", WRITE, READ, False),
    ("WRITE-WRITE", WRITE, WRITE, False),
]


@pytest.mark.parametrize(
    ("held", "asked", "granted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-LOCK-{name}"))
        for name, *rest in CONFLICTS
    ],
)
@pytest.mark.case(kills=("lock-range-ignored",))
def test_shared_and_exclusive_locks(client_dir, held, asked, granted):
    """[EACCES] or [EAGAIN] Another process has the range locked; only shared locks go together."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, held, 10, 10)
        assert may_lock(client_dir / "f", asked, 10, 10) is granted
        assert may_lock(client_dir / "f", WRITE, 20, 10)


@pytest.mark.case("PSX-LOCK-RANGES", kills=("lock-range-ignored",))
def test_only_ranges_that_overlap_conflict(client_dir):
    """A lock covers its bytes and no other: to the last one, and not the next."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 10)
        got = [may_lock(client_dir / "f", WRITE, start, 1) for start in (9, 10, 19, 20)]
    assert got == [True, False, False, True]


@pytest.mark.case("PSX-LOCK-TO-END", kills=("lock-end-cut", "lock-range-ignored"))
def test_a_length_of_zero_locks_to_the_end_and_beyond(client_dir):
    """If l_len is 0, the lock extends to the largest possible value of the file offset."""
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        lock(descriptor, WRITE, 5, 0)
        assert may_lock(client_dir / "f", WRITE, 0, 5)
        assert not may_lock(client_dir / "f", WRITE, 1 << 40, 1)


@pytest.mark.case("PSX-LOCK-PAST-END")
def test_bytes_that_do_not_exist_can_be_locked(client_dir):
    """Locks may start and extend beyond the current end of a file."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        lock(descriptor, WRITE, 1000, 10)
        assert not may_lock(client_dir / "f", READ, 1005, 1)
        assert os.fstat(descriptor).st_size == 0


@pytest.mark.case(
    "PSX-LOCK-UNLOCK", kills=("lock-range-ignored", "unlock-ignored", "unlock-part-unlocks-all")
)
def test_an_unlocked_range_is_free(client_dir):
    """F_UNLCK frees the range, and where it is in the middle of a lock leaves its two ends locked."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 0, 30)
        lock(descriptor, FREE, 10, 10)
        got = [may_lock(client_dir / "f", WRITE, start, 10) for start in (0, 10, 20)]
    assert got == [False, True, False]


@pytest.mark.case("PSX-LOCK-REPLACE", kills=("lock-conversion-refused", "lock-write-only"))
def test_a_new_lock_replaces_the_processs_own(client_dir):
    """A process has one type of lock a byte: a new one replaces the old, also by a weaker type."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 0, 30)
        lock(descriptor, READ, 10, 10)
        assert may_lock(client_dir / "f", READ, 10, 10)
        assert not may_lock(client_dir / "f", WRITE, 10, 10)
        assert not may_lock(client_dir / "f", READ, 0, 10)


@pytest.mark.case(
    "PSX-LOCK-GETLK",
    section="POSIX.1-2024 fcntl(): F_GETLK",
    kills=("getlk-says-free", "getlk-wrong-range", "lock-writer-admits-shared"),
)
def test_getlk_says_who_is_in_the_way(client_dir):
    """The lock found shall be described: its type, its range and its process."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)

        def ask():
            with open_fd(client_dir / "f") as mine:
                return holder(mine, READ, 0, 0)

        kind, start, length, pid = call_in_subprocess(ask)
        assert (kind, start, length) == (WRITE, 10, 20)
        record_observation(
            "F_GETLK names " + ("the holder" if pid == os.getpid() else "not the holder's process")
        )


@pytest.mark.case(
    "PSX-LOCK-GETLK-FREE", section="POSIX.1-2024 fcntl(): F_GETLK", kills=("lock-range-ignored",)
)
def test_getlk_of_a_free_range(client_dir):
    """If no lock is found that would prevent this one, l_type is set to F_UNLCK; one's own are none."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)
        assert holder(descriptor, WRITE, 0, 0)[0] == FREE

        def ask():
            with open_fd(client_dir / "f") as mine:
                return holder(mine, WRITE, 30, 10)[0]

        assert call_in_subprocess(ask) == FREE


@pytest.mark.case(
    "PSX-LOCK-CLOSE",
    section="POSIX.1-2024 fcntl(): DESCRIPTION",
    kills=("lock-ignored", "lock-kept-over-close", "lock-wrong-errno"),
)
def test_closing_any_descriptor_of_the_file_frees_the_locks(client_dir):
    """All locks of a process on a file shall be removed when it closes any file descriptor for that file."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)
        assert not may_lock(client_dir / "f", WRITE, 0, 1)
        os.close(os.open(client_dir / "f", os.O_RDONLY))
        assert may_lock(client_dir / "f", WRITE, 0, 1)


@pytest.mark.case(
    "PSX-LOCK-EXIT",
    section="POSIX.1-2024 fcntl(): DESCRIPTION",
    kills=("lock-ignored", "lock-wrong-errno"),
)
def test_a_process_that_dies_leaves_no_lock(client_dir):
    """Locks are removed when the process that holds them terminates, however it does."""
    make_file(client_dir / "f", bytes(10))
    told, tell = os.pipe()

    def hold():
        descriptor = os.open(client_dir / "f", os.O_RDWR)
        lock(descriptor, WRITE, 0, 0)
        os.write(tell, b"x")
        time.sleep(60)

    other = SubprocessCall(hold, [])
    assert os.read(told, 1) == b"x"
    assert not may_lock(client_dir / "f", WRITE, 0, 1)
    other.kill()
    assert may_lock(client_dir / "f", WRITE, 0, 1)


@pytest.mark.case("PSX-LOCK-NOT-INHERITED", section="POSIX.1-2024 fork(): DESCRIPTION")
def test_a_child_has_none_of_its_parents_locks(client_dir):
    """File locks set by the parent process shall not be inherited by the child process."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)
        assert_errno((errno.EAGAIN, errno.EACCES), call_in_subprocess, lock, descriptor, WRITE, 0, 1)


@pytest.mark.case(
    "PSX-LOCK-WAIT", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-ignored", "lock-wait-refused")
)
def test_who_waits_for_a_lock_gets_it(client_dir):
    """With F_SETLKW the process shall wait until the request can be satisfied."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)

        def wait():
            with open_fd(client_dir / "f") as mine:
                lock(mine, WRITE, 0, 0, fcntl.F_SETLKW)
                return "got it"

        waiting = SubprocessCall(wait, [])
        assert not waiting.ended(within=0.3)
        lock(descriptor, FREE, 0, 0)
        assert waiting.result(within=20) == "got it"


@pytest.mark.case(
    "PSX-LOCK-DEADLOCK",
    section="POSIX.1-2024 fcntl(): ERRORS",
    level="MAY",
    kills=("lock-wait-refused", "lock-writer-admits-shared", "lock-wrong-errno"),
)
def test_two_who_wait_for_each_other(client_dir):
    """[EDEADLK] Waiting would cause a deadlock, and the implementation detects that."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 1)

        def wait():
            with open_fd(client_dir / "f") as mine:
                lock(mine, WRITE, 1, 1)
                lock(mine, WRITE, 0, 1, fcntl.F_SETLKW)

        other = SubprocessCall(wait, [])
        assert not other.ended(within=0.5)
        try:
            mine = SubprocessCall(lambda: lock(descriptor, READ, 1, 1), [])  # somebody third is no deadlock
            assert_errno((errno.EAGAIN, errno.EACCES), mine.result)
            _with_alarm(lambda: assert_errno(errno.EDEADLK, lock, descriptor, WRITE, 1, 1, fcntl.F_SETLKW))
        finally:
            other.kill()


def _with_alarm(call):
    """Make the call, and fail after three seconds."""

    def late(*_):
        raise AssertionError("it waits, deadlocked, for more than 3 s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(3)
    try:
        call()
    finally:
        signal.alarm(0)


@pytest.mark.case("PSX-LOCK-EBADF", section="POSIX.1-2024 fcntl(): ERRORS")
def test_the_descriptor_has_to_fit_the_lock(client_dir):
    """[EBADF] F_WRLCK wants a descriptor that is open for writing, F_RDLCK one for reading."""
    make_file(client_dir / "f", bytes(10))
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        assert_errno(errno.EBADF, lock, descriptor, WRITE, 0, 1)
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        assert_errno(errno.EBADF, lock, descriptor, READ, 0, 1)


@pytest.mark.case("PSX-LOCK-EINVAL", section="POSIX.1-2024 fcntl(): ERRORS")
def test_a_lock_before_the_beginning(client_dir):
    """[EINVAL] The data pointed to by arg are not valid: the range starts before the file."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        assert_errno(errno.EINVAL, lock, descriptor, WRITE, -1, 1)
        assert_errno(errno.EINVAL, lock, descriptor, 99, 0, 1)


@pytest.mark.case("PSX-LOCK-NEGATIVE-LENGTH", kills=("lock-range-ignored",))
def test_a_negative_length_locks_what_lies_before(client_dir):
    """If l_len is negative, the area affected starts at start+l_len and ends at start-1."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 20, -10)
        got = [may_lock(client_dir / "f", WRITE, start, 1) for start in (9, 10, 19, 20)]
    assert got == [True, False, False, True]


@pytest.mark.case("PSX-LOCK-OFD", section=ofd)
def test_open_file_description_locks_conflict_within_a_process(client_dir):
    """An open file description lock belongs to the open file description: two opens of a process conflict."""
    make_file(client_dir / "f", bytes(10))
    with open_fd(client_dir / "f") as one, open_fd(client_dir / "f") as two:
        lock(one, WRITE, 0, 0, F_OFD_SETLK)
        assert_errno((errno.EAGAIN, errno.EACCES), lock, two, WRITE, 0, 1, F_OFD_SETLK)
        lock(one, FREE, 0, 0, F_OFD_SETLK)
        lock(two, WRITE, 0, 1, F_OFD_SETLK)


@pytest.mark.case("PSX-LOCK-OFD-CLOSE", section=ofd)
def test_an_open_file_description_lock_lasts_till_its_last_close(client_dir):
    """It is released on the last close of its description, and by no other descriptor's of the file."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0, F_OFD_SETLK)
        os.close(os.open(client_dir / "f", os.O_RDONLY))
        os.close(os.dup(descriptor))
        assert not may_lock(client_dir / "f", WRITE, 0, 1)
    assert may_lock(client_dir / "f", WRITE, 0, 1)


FLOCKS = [
    ("SH-SH", fcntl.LOCK_SH, fcntl.LOCK_SH, True),
    ("SH-EX", fcntl.LOCK_SH, fcntl.LOCK_EX, False),
    ("EX-SH", fcntl.LOCK_EX, fcntl.LOCK_SH, False),
    ("EX-EX", fcntl.LOCK_EX, fcntl.LOCK_EX, False),
]


@pytest.mark.parametrize(
    ("held", "asked", "granted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-FLOCK-{name}"))
        for name, *rest in FLOCKS
    ],
)
@pytest.mark.case(section=whole)
def test_flock_shared_and_exclusive(client_dir, held, asked, granted):
    """More than one process may hold a shared lock; only one an exclusive one; EWOULDBLOCK with LOCK_NB."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        fcntl.flock(descriptor, held)

        def attempt():
            with open_fd(client_dir / "f") as mine:
                fcntl.flock(mine, asked | fcntl.LOCK_NB)

        if granted:
            call_in_subprocess(attempt)
        else:
            assert_errno(errno.EWOULDBLOCK, call_in_subprocess, attempt)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        call_in_subprocess(attempt)


@pytest.mark.case("PSX-FLOCK-DUP", section=whole, kills=("flock-ignored",))
def test_flock_belongs_to_the_open_file_description(client_dir):
    """Duplicate descriptors refer to the same lock, which is gone when all of them are closed."""
    descriptor = os.open(make_file(client_dir / "f", bytes(10)), os.O_RDWR)
    twin = os.dup(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)

    def attempt():
        with open_fd(client_dir / "f") as mine:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert_errno(errno.EWOULDBLOCK, call_in_subprocess, attempt)
    os.close(twin)
    call_in_subprocess(attempt)


@pytest.mark.case("PSX-LOCK-MANY")
def test_a_hundred_locks_of_one_process(client_dir):
    """Locks that do not touch are kept apart, and each is found by another process."""
    with open_fd(make_file(client_dir / "f", bytes(400))) as descriptor:
        for start in range(0, 400, 4):
            lock(descriptor, WRITE, start, 2)

        def found():
            with open_fd(client_dir / "f") as mine:
                return [holder(mine, WRITE, start, 4)[1:3] for start in range(0, 400, 40)]

        assert call_in_subprocess(found) == [[start, 2] for start in range(0, 400, 40)]
