"""Several requests for a lock that wait: all that can be granted are, and an interrupted one locks nothing.

Sources: POSIX.1-2024 fcntl(), F_SETLKW: a signal that is caught ends the wait, and the lock operation is not
done; ERRORS, EINTR, EDEADLK. flock(2), EINTR. RFC 7530 9.4: a client that waits asks again, so one that has
stopped has no claim.
"""

from __future__ import annotations

from errno import EINTR, ETIMEDOUT, errorcode
from fcntl import F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN
from os import O_CREAT, O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 fcntl(): F_SETLKW; RFC 7530 9.4", level="MUST"),
]

PAUSE = 0.5
"""Seconds for a request to reach the server, and to be seen to wait (chosen)."""


class _Records:
    """Exclusive locks of fcntl(2) on the whole file."""

    waits = ("lock", F_WRLCK, 0, 0, True)
    waits_to_share = ("lock", F_RDLCK, 0, 0, True)

    @staticmethod
    def can(session, fd):
        return session.try_lock(fd, F_WRLCK)

    @staticmethod
    def free(session, fd):
        session.lock(fd, F_UNLCK)


class _Whole:
    """Exclusive locks of flock(2)."""

    waits = ("flock", LOCK_EX)
    waits_to_share = ("flock", LOCK_SH)

    @staticmethod
    def can(session, fd):
        return session.try_flock(fd, LOCK_EX)

    @staticmethod
    def free(session, fd):
        session.flock(fd, LOCK_UN)


def _interrupt(session, locker):
    result = session.call("interrupt_locker", locker)
    if result == ETIMEDOUT:
        pytest.skip("a wait for a lock is not interrupted by a signal here")
    assert result, "a lock is granted that another client has"
    assert result == EINTR, f"a wait for a lock ended with {errorcode[result]}, and not with EINTR"


def _kill(session, locker):
    assert session.call("end_locker", locker), "a process that waits for a lock cannot be killed"


def _each(*rows):
    return [
        pytest.param(*values, id=name, marks=pytest.mark.case(case, kills=kills))
        for case, name, kills, *values in rows
    ]


@pytest.mark.parametrize(
    ("locks", "stop"),
    _each(
        ("SHR-INTERRUPT-01", "fcntl-signal", ("interrupted-request-queued",), _Records, _interrupt),
        ("SHR-INTERRUPT-02", "flock-signal", ("interrupted-request-queued",), _Whole, _interrupt),
        ("SHR-INTERRUPT-03", "fcntl-kill", ("interrupted-request-queued",), _Records, _kill),
        ("SHR-INTERRUPT-04", "flock-kill", ("interrupted-request-queued",), _Whole, _kill),
    ),
)
def test_request_behind_an_interrupted_one_is_granted(
    a, b, fds, crossed_wire, visibility_timeout, locks, stop
):
    """Of two that wait the first is interrupted, or killed: the other has the lock after the unlock."""
    with crossed_wire(a, "lock"):
        assert locks.can(a, fds[0])
    first = a.call("start_locker", "f", [locks.waits])
    a.call("wait", PAUSE)
    name, *arguments = locks.waits
    second = b.start((name, fds[1], *arguments), deadline=3 * visibility_timeout)
    assert not second.done(within=PAUSE), "granted while the other was held"
    stop(a, first)
    assert not second.done(within=PAUSE), "granted while the other was held, when another request ended"
    locks.free(a, fds[0])
    assert second.done(within=visibility_timeout), (
        "not granted after the unlock: a request before it had ended"
    )
    second.result()
    assert not locks.can(a, fds[0]), "a lock is granted, where the one that waited is held"


@pytest.mark.parametrize(
    "locks",
    _each(
        ("SHR-INTERRUPT-05", "fcntl", ("interrupted-request-takes-others",), _Records),
        ("SHR-INTERRUPT-06", "flock", ("interrupted-request-takes-others",), _Whole),
    ),
)
def test_request_before_an_interrupted_one_is_granted(a, b, fds, crossed_wire, visibility_timeout, locks):
    """Of two that wait the second is interrupted: the first waits on, and has the lock after the unlock."""
    with crossed_wire(a, "lock"):
        assert locks.can(a, fds[0])
    name, *arguments = locks.waits
    first = b.start((name, fds[1], *arguments), deadline=3 * visibility_timeout)
    assert not first.done(within=PAUSE), "granted while the other was held"
    second = a.call("start_locker", "f", [locks.waits])
    a.call("wait", PAUSE)
    _interrupt(a, second)
    assert not first.done(within=PAUSE), "the wait ended with the one that was interrupted"
    locks.free(a, fds[0])
    assert first.done(within=visibility_timeout), "not granted after the unlock: another request had ended"
    first.result()
    assert not locks.can(a, fds[0]), "a lock is granted, where the one that waited is held"


@pytest.mark.parametrize(
    "locks",
    _each(
        ("SHR-INTERRUPT-07", "fcntl", ("interrupted-request-granted-later",), _Records),
        ("SHR-INTERRUPT-08", "flock", ("interrupted-request-granted-later",), _Whole),
    ),
)
def test_interrupted_request_locks_nothing_later(a, b, fds, crossed_wire, locks):
    """After the unlock either client can lock, although the interrupted process has the file open."""
    with crossed_wire(a, "lock"):
        assert locks.can(a, fds[0])
    locker = b.call("start_locker", "f", [locks.waits])
    b.call("wait", PAUSE)
    _interrupt(b, locker)
    for session, fd in ((a, fds[0]), (b, fds[1]), (a, fds[0])):
        locks.free(a, fds[0])
        with crossed_wire(session, "lock"):
            assert locks.can(session, fd), "a request that was interrupted has been given the lock"
        locks.free(session, fd)


@pytest.mark.case("SHR-INTERRUPT-09", kills=("interrupted-request-unlocks",))
def test_interrupted_conversion_keeps_the_lock(a, b, fds, crossed_wire):
    """A read lock stays, if the request that would make it a write lock is interrupted."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    locker = b.call("start_locker", "f", [("lock", F_RDLCK, 0, 10, False), ("lock", F_WRLCK, 0, 10, True)])
    b.call("wait", PAUSE)
    _interrupt(b, locker)
    a.lock(fds[0], F_UNLCK, 0, 10)
    assert not a.try_lock(fds[0], F_WRLCK, 0, 10), "a read lock is lost: its conversion was interrupted"
    assert a.try_lock(fds[0], F_RDLCK, 0, 10), "a conversion that was interrupted has been carried out"
    a.lock(fds[0], F_UNLCK, 0, 10)
    _kill(b, locker)
    with crossed_wire(a, "lock"):
        assert a.try_lock(fds[0], F_WRLCK, 0, 10), "a lock outlives its process"


@pytest.mark.parametrize(
    "locks",
    _each(
        ("SHR-LOCK-56", "fcntl", ("unlock-grants-one",), _Records),
        ("SHR-FLOCK-14", "flock", ("unlock-grants-one",), _Whole),
    ),
)
@pytest.mark.case(section="RFC 7530 9.4; fcntl(2) F_SETLKW; flock(2) LOCK_SH")
def test_unlock_grants_all_that_wait_to_share(a, b, fds, crossed_wire, visibility_timeout, locks):
    """A process of each client waits for a shared lock: both have it after the unlock."""
    with crossed_wire(a, "lock"):
        assert locks.can(a, fds[0])
    locker = a.call("start_locker", "f", [locks.waits_to_share])
    a.call("wait", PAUSE)
    name, *arguments = locks.waits_to_share
    waiting = b.start((name, fds[1], *arguments), deadline=3 * visibility_timeout)
    assert not waiting.done(within=PAUSE), "granted while the other was held"
    locks.free(a, fds[0])
    assert waiting.done(within=visibility_timeout), (
        "not granted after the unlock: another request waited, too"
    )
    waiting.result()
    assert a.call("has_locked", locker, visibility_timeout), (
        "of two requests that share only the second is granted"
    )


@pytest.mark.case("SHR-LOCK-57", section="fcntl(2) EDEADLK", kills=("waiting-holder-is-a-deadlock",))
def test_wait_of_a_client_that_holds_other_locks_is_no_deadlock(a, b, fds, crossed_wire, visibility_timeout):
    """EDEADLK needs a cycle: who holds locks may wait for a lock of a client that waits for none."""
    other = b.open("g", O_RDWR | O_CREAT)
    b.lock(other, F_WRLCK)
    b.lock(fds[1], F_WRLCK, 50, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=3 * visibility_timeout)
    if waiting.done(within=PAUSE):
        try:
            waiting.result()
        except OSError as error:
            raise AssertionError(f"a wait without a cycle ends with {error}") from None
        raise AssertionError("granted while the other was held")
    a.lock(fds[0], F_UNLCK, 0, 10)
    assert waiting.done(within=visibility_timeout), "not granted when the other was released"
    waiting.result()
