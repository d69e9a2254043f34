"""flock() locks of one client; shared/ has those of two."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from storagetest.agent.testlib import SubprocessCall, assert_errno, call_in_subprocess
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-FLOCK-EX-EX"),
        section="flock(2): DESCRIPTION",
    ),
]

FLOCKS = [
    ("SH-SH", fcntl.LOCK_SH, fcntl.LOCK_SH, True),
    ("SH-EX", fcntl.LOCK_SH, fcntl.LOCK_EX, False),
    ("EX-SH", fcntl.LOCK_EX, fcntl.LOCK_SH, False),
    ("EX-EX", fcntl.LOCK_EX, fcntl.LOCK_EX, False),
]


@pytest.mark.parametrize(
    ("acquired", "requested", "granted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-FLOCK-{name}"))
        for name, *rest in FLOCKS
    ],
)
def test_conflicting_flock_is_refused(client_dir, acquired, requested, granted):
    """Several processes may have a shared lock, only one an exclusive one; LOCK_NB gives EWOULDBLOCK."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        fcntl.flock(descriptor, acquired)

        def attempt():
            with open_fd(client_dir / "f") as mine:
                fcntl.flock(mine, requested | fcntl.LOCK_NB)

        if granted:
            call_in_subprocess(attempt)
        else:
            assert_errno(errno.EWOULDBLOCK, call_in_subprocess, attempt)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        call_in_subprocess(attempt)


@pytest.mark.case("PSX-FLOCK-DUP", kills=("flock-ignored",))
def test_flock_belongs_to_the_open_file_description(client_dir):
    """Duplicate descriptors refer to one lock, which ends when all of them are closed."""
    descriptor = os.open(make_file(client_dir / "f", bytes(10)), os.O_RDWR)
    duplicate = os.dup(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)

    def attempt():
        with open_fd(client_dir / "f") as mine:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert_errno(errno.EWOULDBLOCK, call_in_subprocess, attempt)
    os.close(duplicate)
    call_in_subprocess(attempt)


def can_flock(path, kind: int) -> bool:
    """Whether another process gets this lock of flock(2) now."""

    def attempt() -> bool:
        with open_fd(path) as mine:
            try:
                fcntl.flock(mine, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    return call_in_subprocess(attempt)


@pytest.mark.case("PSX-FLOCK-DOWN", kills=("flock-downgrade-ignored",))
def test_exclusive_flock_becomes_shared(client_dir):
    """An existing lock is converted to the new mode: a shared one admits other shared ones."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert not can_flock(client_dir / "f", fcntl.LOCK_SH)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert can_flock(client_dir / "f", fcntl.LOCK_SH)
        assert not can_flock(client_dir / "f", fcntl.LOCK_EX)


@pytest.mark.case("PSX-FLOCK-UP", kills=("flock-upgrade-ignored",))
def test_shared_flock_becomes_exclusive(client_dir):
    """An existing lock is converted to the new mode: an exclusive one admits no other."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert can_flock(client_dir / "f", fcntl.LOCK_SH)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert not can_flock(client_dir / "f", fcntl.LOCK_SH)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        assert can_flock(client_dir / "f", fcntl.LOCK_EX)


@pytest.mark.case("PSX-FLOCK-UP-REFUSED", kills=("flock-upgrade-over-shared",))
def test_shared_flock_that_others_share_does_not_become_exclusive(client_dir):
    """A conversion to an exclusive lock conflicts with the shared locks of others: [EWOULDBLOCK]."""
    with open_fd(make_file(client_dir / "f")) as descriptor, open_fd(client_dir / "f") as other:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        fcntl.flock(other, fcntl.LOCK_SH)
        assert_errno(errno.EWOULDBLOCK, fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not can_flock(client_dir / "f", fcntl.LOCK_SH)


@pytest.mark.case("PSX-FLOCK-WAIT-DOWN", kills=("flock-downgrade-wakes-none",))
def test_waiting_shared_flock_is_granted_when_the_exclusive_one_is_converted(client_dir):
    """A call blocks while an incompatible lock is held: a lock that becomes shared blocks no shared one."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

        def wait():
            with open_fd(client_dir / "f") as mine:
                fcntl.flock(mine, fcntl.LOCK_SH)
            return "granted"

        waiting = SubprocessCall(wait, [])
        assert waiting.is_blocked(fcntl.LOCK_SH, client_dir), f"flock() does not wait: {waiting.result()}"
        assert not waiting.ended(within=0.3)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert waiting.result(within=12) == "granted"
