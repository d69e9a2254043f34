"""fcntl() and open file description locks of one client; shared/ has those of two, test_flock.py flock()."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import struct
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, assert_errno, call_in_subprocess, record_observation
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-WRITE-WRITE"),
        section="POSIX.1-2024 fcntl(): F_SETLK",
    ),
]
ofd = "fcntl(2): Open file description locks"

READ, WRITE, FREE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
F_OFD_GETLK, F_OFD_SETLK = 36, 37  # <linux/fcntl.h>
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid


def lock(descriptor: int, kind: int, start: int, length: int, command: int = fcntl.F_SETLK) -> None:
    fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


def conflicting_lock(descriptor: int, kind: int, start: int, length: int, command: int = fcntl.F_GETLK):
    """Return (type, start, length, pid) of a conflicting lock; type is F_UNLCK if there is none."""
    found = fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, pid = _FLOCK.unpack(found)
    return kind, start, length, pid


def can_lock(path, kind: int, start: int, length: int) -> bool:
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
    # acquired, requested, whether it is granted to another process
    ("WRITE-WRITE", WRITE, WRITE, False),
    ("READ-READ", READ, READ, True),
    ("READ-WRITE", READ, WRITE, False),
    ("WRITE-READ", WRITE, READ, False),
]


@pytest.mark.parametrize(
    ("acquired", "requested", "granted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-LOCK-{name}"))
        for name, *rest in CONFLICTS
    ],
)
@pytest.mark.case(kills=("lock-range-ignored",))
def test_conflicting_locks_are_refused(client_dir, acquired, requested, granted):
    """[EACCES] or [EAGAIN] Another process has a conflicting lock; only shared locks are compatible."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, acquired, 10, 10)
        assert can_lock(client_dir / "f", requested, 10, 10) is granted
        assert can_lock(client_dir / "f", WRITE, 20, 10)


@pytest.mark.case("PSX-LOCK-RANGES", kills=("lock-range-ignored",))
def test_only_ranges_that_overlap_conflict(client_dir):
    """A lock covers exactly its bytes: locks of the bytes before and after it do not conflict."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 10)
        got = [can_lock(client_dir / "f", WRITE, start, 1) for start in (9, 10, 19, 20)]
    assert got == [True, False, False, True]


@pytest.mark.case("PSX-LOCK-TO-END", kills=("lock-end-cut", "lock-range-ignored"))
def test_length_zero_locks_to_the_largest_offset(client_dir):
    """If l_len is 0, the lock extends to the largest possible value of the file offset."""
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        lock(descriptor, WRITE, 5, 0)
        assert can_lock(client_dir / "f", WRITE, 0, 5)
        assert not can_lock(client_dir / "f", WRITE, 1 << 40, 1)


@pytest.mark.case("PSX-LOCK-PAST-END")
def test_range_past_the_end_can_be_locked(client_dir):
    """Locks may start and extend beyond the current end of a file."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        lock(descriptor, WRITE, 1000, 10)
        assert not can_lock(client_dir / "f", READ, 1005, 1)
        assert os.fstat(descriptor).st_size == 0


@pytest.mark.case(
    "PSX-LOCK-UNLOCK", kills=("lock-range-ignored", "unlock-ignored", "unlock-part-unlocks-all")
)
def test_unlock_in_the_middle_splits_a_lock(client_dir):
    """F_UNLCK unlocks its range; in the middle of a lock it leaves both ends locked."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 0, 30)
        lock(descriptor, FREE, 10, 10)
        got = [can_lock(client_dir / "f", WRITE, start, 10) for start in (0, 10, 20)]
    assert got == [False, True, False]


@pytest.mark.case("PSX-LOCK-REPLACE", kills=("lock-conversion-refused", "lock-write-only"))
def test_new_lock_replaces_a_lock_of_the_same_process(client_dir):
    """A process has one type of lock per byte: a new lock replaces the old one, also with a weaker type."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 0, 30)
        lock(descriptor, READ, 10, 10)
        assert can_lock(client_dir / "f", READ, 10, 10)
        assert not can_lock(client_dir / "f", WRITE, 10, 10)
        assert not can_lock(client_dir / "f", READ, 0, 10)


@pytest.mark.case(
    "PSX-LOCK-GETLK",
    section="POSIX.1-2024 fcntl(): F_GETLK",
    kills=("getlk-reports-free", "getlk-wrong-range", "lock-writer-admits-shared"),
)
def test_getlk_describes_the_conflicting_lock(client_dir):
    """F_GETLK shall describe the conflicting lock: its type, range and process."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)

        def query():
            with open_fd(client_dir / "f") as mine:
                return conflicting_lock(mine, READ, 0, 0)

        kind, start, length, pid = call_in_subprocess(query)
        assert (kind, start, length) == (WRITE, 10, 20)
        record_observation(
            "F_GETLK names " + ("the holder" if pid == os.getpid() else "not the holder's process")
        )


@pytest.mark.case(
    "PSX-LOCK-GETLK-INSIDE",
    section="POSIX.1-2024 fcntl(): F_GETLK",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-GETLK"),
    kills=("getlk-cut-to-request",),
)
def test_getlk_of_a_part_describes_the_whole_lock(client_dir):
    """The lock that is found is described, with its own start and length, and not the part that was asked."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)

        def query():
            with open_fd(client_dir / "f") as mine:
                return [conflicting_lock(mine, READ, *part)[:3] for part in ((15, 5), (5, 10), (25, 50))]

        for part, found in zip(("inside", "its start", "its end"), call_in_subprocess(query)):
            assert tuple(found) == (WRITE, 10, 20), f"F_GETLK of a range with {part}: {found}"


@pytest.mark.case(
    "PSX-LOCK-GETLK-FREE", section="POSIX.1-2024 fcntl(): F_GETLK", kills=("lock-range-ignored",)
)
def test_getlk_of_an_unlocked_range(client_dir):
    """If no lock conflicts, l_type is set to F_UNLCK; locks of the same process do not conflict."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)
        assert conflicting_lock(descriptor, WRITE, 0, 0)[0] == FREE

        def query():
            with open_fd(client_dir / "f") as mine:
                return conflicting_lock(mine, WRITE, 30, 10)[0]

        assert call_in_subprocess(query) == FREE


@pytest.mark.case(
    "PSX-LOCK-CLOSE",
    section="POSIX.1-2024 fcntl(): DESCRIPTION",
    kills=("lock-ignored", "lock-kept-over-close", "lock-wrong-errno"),
)
def test_close_of_any_descriptor_releases_the_locks(client_dir):
    """All locks of a process on a file shall be removed when it closes any file descriptor for that file."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)
        assert not can_lock(client_dir / "f", WRITE, 0, 1)
        os.close(os.open(client_dir / "f", os.O_RDONLY))
        assert can_lock(client_dir / "f", WRITE, 0, 1)


@pytest.mark.case(
    "PSX-LOCK-EXIT", section="POSIX.1-2024 fcntl(): DESCRIPTION", kills=("lock-ignored", "lock-wrong-errno")
)
def test_locks_end_with_their_process(client_dir):
    """Locks are removed when their process terminates, however it terminates."""
    make_file(client_dir / "f", bytes(10))
    reader, writer = os.pipe()

    def hold():
        descriptor = os.open(client_dir / "f", os.O_RDWR)
        lock(descriptor, WRITE, 0, 0)
        os.write(writer, b"x")
        time.sleep(60)

    other = SubprocessCall(hold, [])
    assert os.read(reader, 1) == b"x"
    assert not can_lock(client_dir / "f", WRITE, 0, 1)
    other.kill()
    assert can_lock(client_dir / "f", WRITE, 0, 1)


@pytest.mark.case(
    "PSX-LOCK-NOT-INHERITED", section="POSIX.1-2024 fork(): DESCRIPTION", kills=("lock-inherited",)
)
def test_locks_are_not_inherited_by_fork(client_dir):
    """File locks set by the parent process shall not be inherited by the child process."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)
        assert_errno((errno.EAGAIN, errno.EACCES), call_in_subprocess, lock, descriptor, WRITE, 0, 1)


@pytest.mark.case(
    "PSX-LOCK-WAIT",
    section="POSIX.1-2024 fcntl(): F_SETLKW",
    kills=("lock-ignored", "lock-wait-hangs", "lock-wait-refused"),
)
def test_setlkw_waits_for_the_lock(client_dir):
    """With F_SETLKW the process shall wait until the request can be satisfied."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0)

        def wait():
            with open_fd(client_dir / "f") as mine:
                lock(mine, WRITE, 0, 0, fcntl.F_SETLKW)
                return "granted"

        waiting = SubprocessCall(wait, [])
        assert waiting.is_blocked(fcntl.F_SETLKW, client_dir), f"F_SETLKW does not wait: {waiting.result()}"
        assert not waiting.ended(within=0.3)
        lock(descriptor, FREE, 0, 0)
        assert waiting.result(within=12) == "granted"


@pytest.mark.case(
    "PSX-LOCK-DEADLOCK",
    section="POSIX.1-2024 fcntl(): ERRORS",
    level="MAY",
    kills=("lock-wait-refused", "lock-writer-admits-shared", "lock-wrong-errno"),
)
def test_deadlock_is_detected(client_dir):
    """[EDEADLK] Waiting would cause a deadlock, and the implementation detects that."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 1)

        def wait():
            with open_fd(client_dir / "f") as mine:
                lock(mine, WRITE, 1, 1)
                lock(mine, WRITE, 0, 1, fcntl.F_SETLKW)

        other = SubprocessCall(wait, [])
        until = time.monotonic() + 5.0
        while conflicting_lock(descriptor, READ, 1, 1)[0] == FREE and time.monotonic() < until:
            time.sleep(0.05)  # the other process has not made its first request yet
        assert not other.ended(within=0.2), (
            "F_SETLKW of a range that another process has locked returned, or F_SETLK of a free one failed"
        )
        try:
            mine = SubprocessCall(lambda: lock(descriptor, READ, 1, 1), [])
            assert_errno((errno.EAGAIN, errno.EACCES), mine.result)
            _with_alarm(lambda: assert_errno(errno.EDEADLK, lock, descriptor, WRITE, 1, 1, fcntl.F_SETLKW))
        finally:
            other.kill()


def _with_alarm(call):
    """Run ``call``; fail the case if it takes more than three seconds."""

    def fail(*_):
        raise AssertionError("the call waits in a deadlock for more than 3 s")

    signal.signal(signal.SIGALRM, fail)
    signal.alarm(3)
    try:
        call()
    finally:
        signal.alarm(0)


@pytest.mark.case("PSX-LOCK-EBADF", section="POSIX.1-2024 fcntl(): ERRORS")
def test_lock_requires_a_matching_open_mode(client_dir):
    """[EBADF] F_WRLCK requires a descriptor open for writing, F_RDLCK one open for reading."""
    make_file(client_dir / "f", bytes(10))
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        assert_errno(errno.EBADF, lock, descriptor, WRITE, 0, 1)
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        assert_errno(errno.EBADF, lock, descriptor, READ, 0, 1)


@pytest.mark.case("PSX-LOCK-EINVAL", section="POSIX.1-2024 fcntl(): ERRORS")
def test_lock_before_the_beginning_is_refused(client_dir):
    """[EINVAL] The lock is invalid: its range starts before the file, or its type does not exist."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        assert_errno(errno.EINVAL, lock, descriptor, WRITE, -1, 1)
        assert_errno(errno.EINVAL, lock, descriptor, 99, 0, 1)


@pytest.mark.case("PSX-LOCK-NEGATIVE-LENGTH", kills=("lock-range-ignored",))
def test_negative_length_locks_the_range_before_start(client_dir):
    """If l_len is negative, the area affected starts at start+l_len and ends at start-1."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 20, -10)
        got = [can_lock(client_dir / "f", WRITE, start, 1) for start in (9, 10, 19, 20)]
    assert got == [True, False, False, True]


@pytest.mark.case("PSX-LOCK-OFD", section=ofd)
def test_open_file_description_locks_conflict_within_a_process(client_dir):
    """An open file description lock belongs to its description: two opens of one process conflict."""
    make_file(client_dir / "f", bytes(10))
    with open_fd(client_dir / "f") as first, open_fd(client_dir / "f") as second:
        lock(first, WRITE, 0, 0, F_OFD_SETLK)
        assert_errno((errno.EAGAIN, errno.EACCES), lock, second, WRITE, 0, 1, F_OFD_SETLK)
        lock(first, FREE, 0, 0, F_OFD_SETLK)
        lock(second, WRITE, 0, 1, F_OFD_SETLK)


@pytest.mark.case("PSX-LOCK-OFD-CLOSE", section=ofd)
def test_open_file_description_lock_ends_at_its_last_close(client_dir):
    """The last close of its description releases the lock; a close of another description does not."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        lock(descriptor, WRITE, 0, 0, F_OFD_SETLK)
        os.close(os.open(client_dir / "f", os.O_RDONLY))
        os.close(os.dup(descriptor))
        assert not can_lock(client_dir / "f", WRITE, 0, 1), "another close releases it"
    assert can_lock(client_dir / "f", WRITE, 0, 1), "the last close does not release it"


@pytest.mark.case(
    "PSX-LOCK-OFD-RECORD",
    section="fcntl(2): Open file description locks",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-OFD", "PSX-LOCK-WRITE-WRITE"),
    kills=("ofd-admits-over-record", "record-admits-over-ofd"),
)
def test_locks_of_processes_and_of_descriptions_conflict(client_dir):
    """A read and a write lock, or two write locks, of both sorts conflict, "even when they are acquired by
    the same process"; locks of other bytes, and two read locks, do not. Each query finds the other sort.
    """
    sorts = {"a lock of the process": fcntl.F_SETLK, "a lock of the description": F_OFD_SETLK}
    queries = {fcntl.F_SETLK: fcntl.F_GETLK, F_OFD_SETLK: F_OFD_GETLK}
    make_file(client_dir / "f", bytes(100))
    with open_fd(client_dir / "f") as one, open_fd(client_dir / "f") as two:
        for (held, first), (asked, second) in itertools.permutations(sorts.items()):
            for name, acquired, requested, granted in CONFLICTS:
                lock(one, acquired, 10, 20, first)
                free = conflicting_lock(two, requested, 15, 5, queries[second])[0] == FREE
                assert free == granted, (
                    f"{held} is held, {asked} is queried ({name}): "
                    f"it is reported as {'free' if free else 'locked'}"
                )
                try:
                    lock(two, requested, 15, 5, second)
                except OSError as error:
                    assert error.errno in (errno.EAGAIN, errno.EACCES), error
                    got = False
                else:
                    got = True
                assert got == granted, (
                    f"{held} is held, {asked} is requested ({name}): it is {'granted' if got else 'refused'}"
                )
                lock(two, WRITE, 40, 10, second)
                lock(two, FREE, 0, 0, second)
                lock(one, FREE, 0, 0, first)


@pytest.mark.case(
    "PSX-LOCK-GETLK-PARTS",
    section="POSIX.1-2024 fcntl(): F_GETLK",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-GETLK"),
    kills=("getlk-first-range-only", "getlk-misses-end"),
)
def test_getlk_finds_each_part_of_what_is_locked(client_dir):
    """A lock is reported if one overlaps the range in any byte, and it is one that does."""
    held = [(10, 13, WRITE), (16, 19, WRITE), (30, 39, READ), (50, 59, WRITE), (80, 1 << 62, WRITE)]
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 10)
        lock(descriptor, FREE, 14, 2)
        for start, length, kind in ((30, 10, READ), (50, 10, WRITE), (80, 0, WRITE)):
            lock(descriptor, kind, start, length)
        edges = sorted(
            {edge + step for first, last, _ in held for edge in (first, last) for step in (-1, 0, 1)}
        )
        ranges = [(start, end) for start in edges for end in edges if start <= end < 1 << 62][::2]
        asked = [(kind, start, end) for kind in (READ, WRITE) for start, end in ranges]

        def query():
            with open_fd(client_dir / "f") as mine:
                return [
                    conflicting_lock(mine, kind, start, end - start + 1)[:3] for kind, start, end in asked
                ]

        for (kind, start, end), found in zip(asked, call_in_subprocess(query), strict=True):
            wanted = [
                [first, last]
                for first, last, old in held
                if first <= end and start <= last and WRITE in (kind, old)
            ]
            text = f"F_GETLK of type {kind} of the bytes {start} to {end}"
            if not wanted:
                assert found[0] == FREE, f"{text} finds {found}: those bytes are free"
                continue
            assert found[0] != FREE, f"{text} finds no lock: {wanted} are held"
            last = found[1] + found[2] - 1 if found[2] else end
            assert max(found[1], start) <= min(last, end), f"{text} finds the lock {found}, of other bytes"


@pytest.mark.case("PSX-LOCK-MANY")
def test_a_hundred_locks_of_one_process(client_dir):
    """Locks that do not touch are kept separately, and another process finds each."""
    with open_fd(make_file(client_dir / "f", bytes(400))) as descriptor:
        for start in range(0, 400, 4):
            lock(descriptor, WRITE, start, 2)

        def found():
            with open_fd(client_dir / "f") as mine:
                return [conflicting_lock(mine, WRITE, start, 4)[1:3] for start in range(0, 400, 40)]

        assert call_in_subprocess(found) == [[start, 2] for start in range(0, 400, 40)]


@pytest.mark.case(
    "PSX-LOCK-GETLK-READER", section="POSIX.1-2024 fcntl(): F_GETLK", kills=("getlk-hides-readers",)
)
def test_getlk_describes_a_shared_lock(client_dir):
    """F_GETLK for an exclusive lock describes a shared one; with a shared lock it does not conflict."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, READ, 10, 20)

        def query():
            with open_fd(client_dir / "f") as mine:
                return conflicting_lock(mine, WRITE, 0, 0)[:3], conflicting_lock(mine, READ, 0, 0)[0]

        assert call_in_subprocess(query) == [[READ, 10, 20], FREE]


@pytest.mark.case(
    "PSX-LOCK-GETLK-OWNER", section="POSIX.1-2024 fcntl(): F_GETLK", kills=("getlk-names-the-asker",)
)
def test_getlk_does_not_name_the_asking_process(client_dir):
    """l_pid is a process that holds the lock; a server may not know it, but it is not the asker."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 10, 20)

        def query():
            with open_fd(client_dir / "f") as mine:
                return conflicting_lock(mine, WRITE, 0, 0)[3], os.getpid()

        found, asker = call_in_subprocess(query)
        assert found != asker, "F_GETLK names the process that asks as the holder"


@pytest.mark.case("PSX-LOCK-UPGRADE", kills=("lock-upgrade-ignored",))
def test_shared_lock_becomes_exclusive(client_dir):
    """A process has one type of lock per byte: the new type applies, up and down, to its range only."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, READ, 0, 30)
        lock(descriptor, WRITE, 10, 10)
        assert [can_lock(client_dir / "f", READ, start, 10) for start in (0, 10, 20)] == [True, False, True]
        lock(descriptor, READ, 10, 10)
        assert can_lock(client_dir / "f", READ, 0, 30)
        assert not can_lock(client_dir / "f", WRITE, 10, 10)


@pytest.mark.case("PSX-LOCK-UPGRADE-REFUSED", kills=("lock-upgrade-refused-frees",))
def test_refused_upgrade_keeps_the_shared_lock(client_dir):
    """If the request cannot be satisfied, fcntl() returns -1: the locks are as before."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, READ, 0, 30)
        is_refused, refused = os.pipe()

        def upgrade():
            with open_fd(client_dir / "f") as mine:
                lock(mine, READ, 0, 30)
                assert_errno((errno.EAGAIN, errno.EACCES), lock, mine, WRITE, 0, 30)
                os.write(refused, b"1")
                time.sleep(60)

        other = SubprocessCall(upgrade, [])
        os.close(refused)
        assert os.read(is_refused, 1), other.result()
        os.close(is_refused)
        try:
            lock(descriptor, FREE, 0, 30)
            assert not can_lock(client_dir / "f", WRITE, 0, 30), (
                "the refused upgrade released the shared lock"
            )
        finally:
            other.kill()
        assert can_lock(client_dir / "f", WRITE, 0, 30)


@pytest.mark.case("PSX-LOCK-INSIDE-TO-END", kills=("lock-to-size-only",))
def test_lock_from_inside_to_the_end_covers_later_data(client_dir):
    """If l_len is 0, the lock extends to the largest offset, wherever the file ends, now or later."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 50, 0)
        got = [can_lock(client_dir / "f", WRITE, start, 1) for start in (49, 50, 99, 100, 5000)]
        assert got == [True, False, False, False, False]
        os.ftruncate(descriptor, 10)
        os.pwrite(descriptor, b"x", 200)
        for start in (150, 250):
            assert not can_lock(client_dir / "f", READ, start, 10), (
                f"bytes {start} to {start + 9} are free after ftruncate() and a write: the lock from byte 50 "
                "to the end covers them"
            )
        assert can_lock(client_dir / "f", WRITE, 0, 50), (
            "bytes 0 to 49 are locked; the lock begins at byte 50"
        )


@pytest.mark.case(
    "PSX-LOCK-WAIT-DOWN", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-downgrade-wakes-none",)
)
def test_waiting_reader_gets_the_lock_when_the_writer_downgrades(client_dir):
    """F_SETLKW waits until the request can be satisfied: also by a lock that becomes shared."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        lock(descriptor, WRITE, 0, 10)

        def wait():
            with open_fd(client_dir / "f") as mine:
                lock(mine, READ, 0, 10, fcntl.F_SETLKW)
            return "granted"

        waiting = SubprocessCall(wait, [])
        assert waiting.is_blocked(fcntl.F_SETLKW, client_dir), f"F_SETLKW does not wait: {waiting.result()}"
        assert not waiting.ended(within=0.3)
        lock(descriptor, READ, 0, 10)
        assert waiting.result(within=12) == "granted"


@pytest.mark.case("PSX-LOCK-EXIT-OPEN", kills=("lock-outlives-process",))
def test_locks_of_a_process_that_leaves_the_file_open_end_with_it(client_dir):
    """Locks are removed when their process terminates without a close(): by exit or by a signal."""
    make_file(client_dir / "f", bytes(100))

    def hold(end):
        descriptor = os.open(client_dir / "f", os.O_RDWR)
        lock(descriptor, WRITE, 0, 10)
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)

    for end in ("ended", "killed"):
        pid = os.fork()
        if not pid:
            hold(end)
        os.waitpid(pid, 0)
        with open_fd(client_dir / "f") as descriptor:
            lock(descriptor, WRITE, 0, 10)
