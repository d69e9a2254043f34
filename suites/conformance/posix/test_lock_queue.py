"""Waiting for locks: a request that waits holds up no other one that conflicts with no held lock."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
from contextlib import contextmanager

import pytest

from storagetest.agent.testlib import SubprocessCall, call_in_subprocess
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-WRITE-WRITE")),
]

READ, WRITE, FREE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (fcntl(2))."""


def lock(descriptor: int, kind: int, start: int, length: int = 10, *, waits: bool = False) -> None:
    """Lock ``length`` bytes from ``start`` on."""
    command = fcntl.F_SETLKW if waits else fcntl.F_SETLK
    fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


def waiter(path, kind: int, start: int, length: int = 10) -> SubprocessCall:
    """Return a process that waits for a lock, and ends when it has it."""

    def wait() -> str:
        with open_fd(path) as descriptor:
            lock(descriptor, kind, start, length, waits=True)
        return "granted"

    started = SubprocessCall(wait, [])
    started.is_blocked(fcntl.F_SETLKW, path)  # or it has the lock: the case finds that
    return started


@contextmanager
def held_by_another(path, kind: int, start: int):
    """Let another process hold a lock in the block."""
    is_held, held = os.pipe()
    is_over, over = os.pipe()

    def hold() -> None:
        with open_fd(path) as descriptor:
            lock(descriptor, kind, start)
            os.write(held, b"1")
            os.read(is_over, 1)

    other = SubprocessCall(hold, [])
    os.close(held)
    os.read(is_held, 1)
    try:
        yield
    finally:
        os.write(over, b"1")
        for pipe in (is_held, is_over, over):
            os.close(pipe)
        other.result()


@pytest.mark.case(
    "PSX-LOCK-QUEUE-READER",
    section="POSIX.1-2024 fcntl(): DESCRIPTION (F_RDLCK)",
    kills=("lock-reader-behind-waiter",),
)
def test_read_lock_is_granted_while_a_writer_waits(client_dir):
    """When a shared lock is set, other processes shall be able to set shared locks: a writer may wait."""
    path = make_file(client_dir / "f", bytes(100))

    def attempt() -> bool:
        with open_fd(path) as descriptor:
            try:
                lock(descriptor, READ, 0)
            except OSError as error:
                assert error.errno in (errno.EAGAIN, errno.EACCES), error
                return False
            return True

    with open_fd(path) as holder:
        lock(holder, READ, 0)
        writer = waiter(path, WRITE, 0)
        assert not writer.ended(within=0.3)
        granted = call_in_subprocess(attempt)
        lock(holder, FREE, 0)
        assert writer.result(within=12) == "granted"
    assert granted, "a shared lock is refused, where only a shared one is held"


@pytest.mark.case(
    "PSX-LOCK-QUEUE-RANGES", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-queue-in-order",)
)
def test_waiter_of_a_free_range_passes_one_that_must_wait(client_dir):
    """F_SETLKW waits until the request can be satisfied, whatever an earlier request waits for."""
    path = make_file(client_dir / "f", bytes(100))
    with open_fd(path) as holder:
        for start in (0, 20):
            lock(holder, WRITE, start)
        first = waiter(path, WRITE, 0)
        assert not first.ended(within=0.3)
        second = waiter(path, WRITE, 20)
        assert not second.ended(within=0.3)
        lock(holder, FREE, 20)
        assert second.result(within=12) == "granted"
        assert not first.ended(within=0)
        lock(holder, FREE, 0)
        assert first.result(within=12) == "granted"


@pytest.mark.case(
    "PSX-LOCK-QUEUE-TWO", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-waits-for-one",)
)
def test_waiter_is_granted_its_lock_when_the_last_conflicting_one_is_gone(client_dir):
    """F_SETLKW waits until the request can be satisfied: two processes are in the way, in either order."""
    path = make_file(client_dir / "f", bytes(100))
    with open_fd(path) as holder:
        for is_first in (True, False):
            if is_first:
                lock(holder, READ, 0)
            with held_by_another(path, READ, 20):
                if not is_first:
                    lock(holder, READ, 0)
                writer = waiter(path, WRITE, 0, 30)
                assert not writer.ended(within=0.3)
                lock(holder, FREE, 0)
                assert not writer.ended(within=0.3), "granted, and another process has a lock in its range"
            assert writer.result(within=12) == "granted"


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        pytest.param(READ, (0, 0, 0), id="shared", marks=pytest.mark.case("PSX-LOCK-QUEUE-SHARED")),
        pytest.param(WRITE, (0, 30, 60), id="apart", marks=pytest.mark.case("PSX-LOCK-QUEUE-APART")),
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 fcntl(): F_SETLKW",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-QUEUE-TWO"),
    kills=("lock-wakes-first-waiter",),
)
def test_one_unlock_grants_all_that_wait_for_it(client_dir, kind, starts):
    """F_SETLKW waits until the request can be satisfied: of three, each is while the others keep theirs."""
    path = make_file(client_dir / "f", bytes(100))
    is_granted, granted = os.pipe()
    is_over, over = os.pipe()

    def wait_and_hold(start: int) -> None:
        os.close(over)
        with open_fd(path) as descriptor:
            lock(descriptor, kind, start, waits=True)
            os.write(granted, b"1")
            os.read(is_over, 1)  # its end: the case closes the pipe

    waiting, count = [], 0
    try:
        with open_fd(path) as holder:
            lock(holder, WRITE, 0, 100)
            for start in starts:
                waiting.append(SubprocessCall(wait_and_hold, [start]))
                waiting[-1].is_blocked(fcntl.F_SETLKW, path)
            assert not select.select([is_granted], [], [], 0)[0], "granted while another holds the range"
            lock(holder, FREE, 0, 100)
            while count < len(starts) and select.select([is_granted], [], [], 10)[0]:
                count += len(os.read(is_granted, len(starts)))
    finally:
        for pipe in (is_granted, granted, is_over, over):
            os.close(pipe)
        for one in waiting:
            one.kill()
    assert count == len(starts), f"{count} of {len(starts)} waiting requests are granted by one unlock"


@pytest.mark.case(
    "PSX-LOCK-NO-DEADLOCK",
    section="POSIX.1-2024 fcntl(): F_SETLKW; ERRORS [EDEADLK]",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-QUEUE-TWO"),
    kills=("lock-chain-is-deadlock",),
)
def test_chain_of_waiting_processes_is_no_deadlock(client_dir):
    """[EDEADLK] is for a circle: who waits for one that waits for a third gets his lock when that is done.

    Of one file and of two.
    """
    for second in ("f", "g"):
        (client_dir / f"in-{second}").mkdir()
        paths = [client_dir / f"in-{second}" / name for name in ("f", second)]
        for path in set(paths):
            make_file(path, bytes(100))

        def hold_and_wait(held, wanted, paths=paths) -> str:
            with open_fd(paths[0]) as one, open_fd(paths[1]) as other:
                lock(one, WRITE, held)
                lock(one if wanted else other, WRITE, wanted or 20, waits=True)
            return "granted"

        waiting = []
        try:
            with open_fd(paths[1]) as holder:
                lock(holder, WRITE, 20)
                for held, wanted in ((40, 0), (60, 40), (80, 60)):
                    waiting.append(SubprocessCall(hold_and_wait, [held, wanted]))
                    waiting[-1].is_blocked(fcntl.F_SETLKW, paths[0])
                    if waiting[-1].ended(within=0.3):
                        number = len(waiting)
                        try:
                            text = waiting.pop().result()
                        except OSError as error:
                            text = error.strerror
                        raise AssertionError(
                            f"process {number} of a chain, each of which waits for the one before, ends with "
                            f"{text!r}; required: it waits, as the first waits for one that waits for none"
                        )
                lock(holder, FREE, 20)
                while waiting:
                    one = waiting.pop(0)
                    assert one.result(within=12) == "granted"
        finally:
            for one in waiting:
                one.kill()


@pytest.mark.case(
    "PSX-LOCK-QUEUE-KILLED", section="POSIX.1-2024 fcntl(): F_SETLKW", kills=("lock-granted-to-killed",)
)
def test_process_that_was_killed_while_it_waited_gets_no_lock(client_dir):
    """The locks of a process end with it: one that it waited for is free for the next."""
    path = make_file(client_dir / "f", bytes(100))
    with open_fd(path) as holder:
        lock(holder, WRITE, 0)
        writer = waiter(path, WRITE, 0)
        assert not writer.ended(within=0.3)
        writer.kill()
        lock(holder, FREE, 0)
        writer = waiter(path, WRITE, 0)
        granted = writer.ended(within=12)
        writer.kill()
    assert granted, "the lock is not free after its holder and a process that waited for it are gone"


@pytest.mark.case(
    "PSX-LOCK-GETLK-ENDED",
    section="POSIX.1-2024 fcntl(): F_GETLK, DESCRIPTION (termination, close)",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-GETLK"),
    kills=("getlk-of-killed",),
)
def test_getlk_finds_no_lock_of_a_process_that_has_ended(client_dir):
    """F_GETLK reports a lock while its process holds it, and none when the process ended, in whatever way."""
    path = make_file(client_dir / "f", bytes(100))
    for end, ended in (
        (os.close, "closed the file and ended"),
        (lambda _: os._exit(0), "ended"),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), "was killed"),
    ):
        for kind in (WRITE, READ):
            pid, over = _holder(path, kind, end)
            with open_fd(path) as descriptor:
                request = _FLOCK.pack(WRITE, os.SEEK_SET, 0, 50, 0)
                found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
                os.write(over, b"1")
                os.close(over)
                os.waitpid(pid, 0)
                assert found[0] == kind, f"F_GETLK reports the type {found[0]} of a lock of type {kind}"
                found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
                assert found[0] == FREE, (
                    f"F_GETLK reports a lock of {found[3]} bytes at {found[2]}; its process {ended}"
                )
                lock(descriptor, WRITE, 0, 50)


def _holder(path, kind: int, end) -> tuple[int, int]:
    """Start a process that locks ten bytes, and ends when a byte is written to the pipe that is returned."""
    is_held, held = os.pipe()
    is_over, over = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            descriptor = os.open(path, os.O_RDWR)
            lock(descriptor, kind, 10)
            os.write(held, b"1")
            os.read(is_over, 1)
            end(descriptor)
        finally:
            os._exit(0)
    os.close(held)
    os.close(is_over)
    os.read(is_held, 1)
    os.close(is_held)
    return pid, over


@pytest.mark.case(
    "PSX-LOCK-GETLK-CHANGED",
    section="POSIX.1-2024 fcntl(): F_GETLK",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-GETLK"),
    kills=("getlk-after-unlock-old",),
)
def test_getlk_describes_a_lock_as_it_is_after_changes(client_dir):
    """The lock that is reported is held: of its type, and of no byte that was unlocked or converted.

    Adjacent locks may be one lock or several. A protocol that has no query reports the range of the request.
    """
    path = make_file(client_dir / "f", bytes(200))
    with open_fd(path) as descriptor:
        held: dict[int, int] = {}
        for kind, start, length in (
            (WRITE, 0, 100), (FREE, 0, 10), (FREE, 90, 10), (FREE, 40, 20), (READ, 60, 10), (WRITE, 30, 30),
            (FREE, 35, 1), (READ, 0, 150), (FREE, 100, 50), (WRITE, 99, 2), (FREE, 0, 99),
        ):  # fmt: skip
            lock(descriptor, kind, start, length)
            for byte in range(start, start + length):
                held[byte] = kind
            asked = [(at, size) for at in (0, 5, 10, 34, 35, 36, 59, 60, 65, 70, 89, 95, 99, 100, 120)
                     for size in (1, 7, 30)]  # fmt: skip
            change = f"after the lock of type {kind} of {length} bytes at {start}"
            for (at, size), found in zip(asked, _queried(path, asked), strict=True):
                _check_report(held, at, size, found, change)


def _queried(path, asked):
    """Return what F_GETLK of a write lock reports to another process, for each of ``asked``."""

    def query():
        with open_fd(path) as mine:
            requests = [_FLOCK.pack(WRITE, os.SEEK_SET, at, size, 0) for at, size in asked]
            return [_FLOCK.unpack(fcntl.fcntl(mine, fcntl.F_GETLK, request)) for request in requests]

    return call_in_subprocess(query)


def _check_report(held, at, size, found, change):
    kind, _, start, length, _ = found
    text = f"F_GETLK of {size} bytes at {at} {change}"
    locked = [byte for byte in range(at, at + size) if held.get(byte, FREE) != FREE]
    if kind == FREE or not locked:
        assert (kind == FREE) == (not locked), (
            f"{text} reports the type {kind}; {len(locked)} bytes are locked"
        )
        return
    if (start, length) == (at, size):
        assert any(held.get(byte, FREE) == kind for byte in locked), f"{text} reports the type {kind}"
        return
    reported = range(start, start + length) if length else range(start, 1000)
    wrong = [byte for byte in reported if held.get(byte, FREE) != kind]
    assert not wrong, (
        f"{text} reports a lock of type {kind} of {length} bytes at {start}; byte {wrong[0]} has none"
    )
    assert set(reported) & set(locked), f"{text} reports {length} bytes at {start}, which are others"
