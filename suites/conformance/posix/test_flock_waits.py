"""Processes that wait in flock(2): which of them a release serves, and what a wait that ends early leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, call_in_subprocess
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-FLOCK-EX-EX"),
        section="flock(2): DESCRIPTION",
    ),
]

SHARED, EXCLUSIVE, NOW = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB
KINDS = {SHARED: "LOCK_SH", EXCLUSIVE: "LOCK_EX"}
GRANTED = 12.0
"""Seconds within which a lock that is free is granted: a client may ask a server again (chosen)."""


def wait(path, kind, inherited=()):
    """Wait for a lock, by an open of its own, without the ``inherited`` descriptors; return how it ended."""
    for descriptor in inherited:
        os.close(descriptor)
    with open_fd(path) as mine:
        fcntl.flock(mine, kind)
    return "granted"


def waiter(path, kind, *holders):
    """Start a process that waits for a lock that the descriptors ``holders`` have; assert that it waits."""
    call = SubprocessCall(wait, (str(path), kind, holders))
    assert call.is_blocked(kind, path), (
        f"flock() with {KINDS[kind]} does not wait for a lock that conflicts: {call.result()} (flock(2))"
    )
    return call


def can_lock(path, kind):
    """Whether another process gets a lock now."""

    def attempt():
        with open_fd(path) as mine:
            try:
                fcntl.flock(mine, kind | NOW)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                return False
            return True

    return call_in_subprocess(attempt)


def granted(call, what):
    """Assert that a process that waits gets its lock."""
    assert call.ended(within=GRANTED), (
        f"a process that waits in flock() has no lock {GRANTED:g} s after {what}; required: a call blocks "
        "while an incompatible lock is held by another process (flock(2))"
    )
    assert call.result() == "granted"


def waits(call, what):
    """Assert that a process still waits."""
    assert not call.ended(within=0.3), (
        f"a process that waits in flock() for an incompatible lock has it after {what}; required: it waits "
        "until no such lock is held (flock(2))"
    )


def hold_in_process(path, kind, end):
    """Hold a lock in a process that ends by ``end`` when its pipe is written; return its id and the pipe."""
    ready, holding = os.pipe()
    go, release = os.pipe()
    child = os.fork()
    if not child:
        try:
            fcntl.flock(os.open(path, os.O_RDWR), kind)
            os.write(holding, b"x")
            os.read(go, 1)
            if end == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    os.close(holding)
    os.close(go)
    held = os.read(ready, 1)
    os.close(ready)
    assert held, "a process does not get a lock of a file that no other one has"
    return child, release


KILLS = {
    "unlock": ("flock-waiter-left-at-unlock",),
    "close": ("flock-waiter-left-at-close",),
    "duplicate": ("flock-waiter-left-at-close",),
    "exit": ("flock-waiter-left-at-close",),
    "kill": ("flock-waiter-left-at-close",),
}


def marked(name):
    return pytest.param(
        name, id=name, marks=pytest.mark.case(f"PSX-FLOCK-WAIT-{name.upper()}", kills=KILLS[name])
    )


@pytest.mark.parametrize("how", [marked(name) for name in KILLS])
def test_waiting_flock_is_granted_when_the_other_one_is_released(client_dir, how):
    """Each kind of lock waits for each that conflicts, and is granted at LOCK_UN and at the last close."""
    path = make_file(client_dir / "f", b"data")
    for held, asked in (
        (EXCLUSIVE, EXCLUSIVE),
        (EXCLUSIVE, SHARED),
        (SHARED, EXCLUSIVE),
        (EXCLUSIVE, EXCLUSIVE),
    ):
        what = f"a {KINDS[held]} was released by {how}"
        if how in ("exit", "kill"):
            child, release = hold_in_process(path, held, "is killed" if how == "kill" else "exits")
            call = waiter(path, asked)
            waits(call, "no release")
            os.write(release, b"x")
            os.close(release)
            os.waitpid(child, 0)
            granted(call, what)
            continue
        holder = os.open(path, os.O_RDWR)
        fcntl.flock(holder, held)
        duplicates = [os.dup(holder)] if how == "duplicate" else []
        call = waiter(path, asked, holder, *duplicates)
        if how == "unlock":
            fcntl.flock(holder, fcntl.LOCK_UN)
            granted(call, what)
            os.close(holder)
            continue
        os.close(holder)
        for duplicate in duplicates:
            waits(call, "the close of one of two duplicates of the descriptor")
            os.close(duplicate)
        granted(call, what)


@pytest.mark.case("PSX-FLOCK-WAIT-ALL", kills=("flock-grants-one-reader",))
def test_all_that_wait_for_a_shared_flock_get_it(client_dir):
    """Several processes may have a shared lock: when an exclusive one is released, all get theirs."""
    path = make_file(client_dir / "f", b"data")
    release, signalled = os.pipe()

    def hold():
        with open_fd(path) as mine:
            fcntl.flock(mine, SHARED)
            os.write(signalled, b"g")
            time.sleep(30)

    with open_fd(path) as holder:
        fcntl.flock(holder, EXCLUSIVE)
        calls = [SubprocessCall(hold, ()) for _ in range(4)]
        try:
            for call in calls:
                assert call.is_blocked(SHARED, path), "flock() with LOCK_SH does not wait for a LOCK_EX"
            fcntl.flock(holder, fcntl.LOCK_UN)
            got = 0
            os.set_blocking(release, False)
            until = time.monotonic() + GRANTED
            while got < len(calls) and time.monotonic() < until:
                try:
                    got += len(os.read(release, 10))
                except BlockingIOError:
                    time.sleep(0.02)
        finally:
            for call in calls:
                call.kill()
            os.close(release)
            os.close(signalled)
    assert got == len(calls), (
        f"{got} of {len(calls)} processes that wait for a LOCK_SH have it, {GRANTED:g} s after a LOCK_EX "
        "was released; required: more than one process may hold a shared lock at a given time (flock(2))"
    )


@pytest.mark.case("PSX-FLOCK-WAIT-LAST", kills=("flock-granted-at-first-release",))
def test_exclusive_flock_waits_for_the_last_shared_one(client_dir):
    """One process may have an exclusive lock: it is granted when the last of several others is released."""
    path = make_file(client_dir / "f", b"data")
    holders = [os.open(path, os.O_RDWR) for _ in range(3)]
    try:
        for holder in holders:
            fcntl.flock(holder, SHARED)
        call = waiter(path, EXCLUSIVE, *holders)
        while len(holders) > 1:
            os.close(holders.pop(0))
            waits(call, f"the release of one LOCK_SH; {len(holders)} are held")
        fcntl.flock(holders[0], fcntl.LOCK_UN)
        granted(call, "the last of three LOCK_SH was released")
    finally:
        for holder in holders:
            os.close(holder)


def end_wait(*_):
    """Handle SIGALRM: the call that waits is not repeated (PEP 475)."""
    raise InterruptedError(errno.EINTR, "SIGALRM")


def interrupted(path, kind, made):
    """Wait for a lock until SIGALRM ends the wait; say so by a file, and stay with the file open."""
    signal.signal(signal.SIGALRM, end_wait)
    with open_fd(path) as mine:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.4, 0.4)
            fcntl.flock(mine, kind)
        except InterruptedError:
            signal.setitimer(signal.ITIMER_REAL, 0)
            make_file(made)
        time.sleep(30)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("interrupted", id="interrupted", marks=pytest.mark.case(
            "PSX-FLOCK-WAIT-INTERRUPTED", section="flock(2): ERRORS [EINTR]",
            kills=("flock-interrupted-waits-on",))),
        pytest.param("killed", id="killed", marks=pytest.mark.case(
            "PSX-FLOCK-WAIT-KILLED", kills=("flock-interrupted-waits-on",))),
    ],
)  # fmt: skip
def test_flock_that_is_given_up_is_not_granted_later(client_dir, end):
    """[EINTR] and the end of a process end its wait: it has no lock when that is free; others can have it."""
    path = make_file(client_dir / "f", b"data")
    for turn, kind in enumerate((EXCLUSIVE, SHARED, EXCLUSIVE)):
        with open_fd(path) as holder:
            fcntl.flock(holder, EXCLUSIVE)
            made = client_dir / f"ended-{turn}"
            call = SubprocessCall(interrupted if end == "interrupted" else wait, (
                (path, kind, made) if end == "interrupted" else (str(path), kind)
            ))  # fmt: skip
            try:
                if end == "killed":
                    assert call.is_blocked(kind, path), "flock() does not wait for a lock that conflicts"
                else:
                    until = time.monotonic() + 6
                    while not made.exists() and time.monotonic() < until and not call.ended(within=0.02):
                        pass
                    assert made.exists(), (
                        "a signal does not end the wait in flock() within 6 s; required: EINTR"
                    )
                if end == "killed":
                    call.kill()
                fcntl.flock(holder, fcntl.LOCK_UN)
                got = any(can_lock(path, EXCLUSIVE) or time.sleep(0.1) for _ in range(20))
            finally:
                if end != "killed":
                    call.kill()
            assert got, (
                f"no process gets a lock after the wait for a {KINDS[kind]} was {end} and the other lock "
                "released; required: a wait that has ended gets no lock (flock(2))"
            )
