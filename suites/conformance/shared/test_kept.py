"""Locks and open files are kept, whatever the other client makes of the file's name, size and mode.

Sources: POSIX.1-2024 fcntl() and RFC 7530 16.12 (a lock is one of the file, and ends at an unlock, a close or
the end of its owner), rename() (open descriptors are not affected), chmod() (it leaves that to the
implementation), flock(2) (conversion); RFC 7530 9.4 (a client that is refused a lock asks again for as long
as its program waits).
"""

from __future__ import annotations

from errno import EACCES, EAGAIN, EBUSY, EPERM, ETXTBSY
from fcntl import F_UNLCK, F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN
from os import O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(level="MUST"),
]

HELD = {EACCES, EAGAIN, EBUSY, EPERM, ETXTBSY}
"""Errors by which a protocol with share modes or mandatory locks (SMB) refuses to change an open file."""

LONG_WAIT = 8.0
"""Seconds that a lock is held: more than a client or server with a short timeout would wait (chosen)."""


def _renamed(b, _fd: int) -> None:
    b.rename("f", "g")


def _renamed_over(b, _fd: int) -> None:
    b.write_file("g", b"replaced")
    b.rename("f", "g")


def _cut(b, fd: int) -> None:
    b.ftruncate(fd, 0)


def _other_mode(b, _fd: int) -> None:
    b.chmod("f", 0o600)


def _other_link(b, _fd: int) -> None:
    b.link("f", "g")
    b.unlink("f")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=pytest.mark.case(number, kills=kills))
        for number, name, change, kills in (
            ("SHR-KEEP-01", "renamed", _renamed, ("lock-lost-at-rename",)),
            ("SHR-KEEP-02", "renamed-over", _renamed_over, ("lock-lost-at-rename",)),
            ("SHR-KEEP-03", "cut", _cut, ("lock-lost-on-truncate",)),
            ("SHR-KEEP-04", "other-mode", _other_mode, ("two-lock-lost-at-chmod",)),
            ("SHR-KEEP-05", "other-link", _other_link, ("lock-lost-on-unlink",)),
        )
    ],
)
@pytest.mark.case(section="RFC 7530 16.12; POSIX.1-2024 fcntl(): DESCRIPTION")
def test_lock_is_kept_while_the_other_client_changes_the_file(a, b, fds, crossed_wire, change):
    """The other client is refused the range before and after its change, and has it after the unlock."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    try:
        change(b, fds[1])
    except OSError as error:
        if error.errno not in HELD:
            raise
        pytest.skip(f"the change is refused while the file is open or locked: {error}")
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "the lock of the other client is lost"
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10), "an unlocked range stays locked"


@pytest.mark.slow
@pytest.mark.case(
    "SHR-KEEP-06", section="RFC 7530 9.4; POSIX.1-2024 fcntl(): F_SETLKW", kills=("two-wait-gives-up",)
)
def test_wait_for_a_lock_lasts_until_the_unlock(a, b, fds, crossed_wire, recovery_timeout):
    """F_SETLKW waits until the request can be satisfied, for as long as the other client has the lock."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=LONG_WAIT + recovery_timeout)
    assert not waiting.done(within=LONG_WAIT), f"ended while the lock is held: {waiting.results()[0]!r}"
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    assert waiting.done(within=recovery_timeout), "not granted after the unlock"
    waiting.result()


@pytest.mark.case("SHR-KEEP-07", section="flock(2): LOCK_SH, LOCK_EX", kills=("flock-upgrade-ignored",))
def test_shared_lock_that_becomes_exclusive_excludes_the_other_client(a, b, fds, crossed_wire):
    """A conversion that is granted is of the new kind for the other client, in both directions."""
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_SH)
    converted = a.try_flock(fds[0], LOCK_EX)
    if not converted:
        pytest.skip("the lock is not converted here: flock(2) permits that a conversion is refused")
    assert not b.try_flock(fds[1], LOCK_SH), "a shared lock is granted, where an exclusive one is held"
    converted = a.try_flock(fds[0], LOCK_SH)
    if not converted:
        pytest.skip("the lock is not converted back here: flock(2) permits that a conversion is refused")
    assert not b.try_flock(fds[1], LOCK_EX), "an exclusive lock is granted, where a shared one is held"
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_SH), "a shared lock is refused, where only a shared one is held"
    b.flock(fds[1], LOCK_UN)
    a.flock(fds[0], LOCK_UN)


def write_after_chmod(a, b, crossed_wire, *, skips: bool) -> None:
    """Write to an open file of ``a`` whose write permission ``b`` has taken; compare what both read.

    With ``skips``, the case is skipped where the write is refused.
    """
    a.write_file("f", b"nothing start")
    fd = a.open("f", O_RDWR)
    with crossed_wire(b, "change"):
        b.chmod("f", 0o400)
    try:
        try:
            with crossed_wire(a, "write"):
                a.pwrite(fd, b"written", 0)
                a.fsync(fd)
        except PermissionError as error:
            if not skips:
                raise
            pytest.skip(f"the write is refused after chmod(), which POSIX permits: {error.strerror}")
        assert a.pread(fd, 20) == b"written start"
        a.close(fd)
        assert b.read_file("f") == b"written start"
    finally:
        b.chmod("f", 0o600)


@pytest.mark.case(
    "SHR-KEEP-08",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    level="SHOULD",
    kills=("two-write-after-chmod-refused",),
)
def test_open_file_is_written_after_the_other_client_took_the_permission(a, b, crossed_wire):
    """What was opened for writing is written; the effect of chmod() on it is implementation-defined."""
    write_after_chmod(a, b, crossed_wire, skips=False)


@pytest.mark.case(
    "SHR-KEEP-09",
    section="POSIX.1-2024 fsync(), write(): DESCRIPTION",
    kills=("two-write-after-chmod-lost",),
)
def test_write_that_is_not_refused_after_the_other_clients_chmod_is_kept(a, b, crossed_wire):
    """A write to a file that has lost its write permission may be refused, and is not lost."""
    write_after_chmod(a, b, crossed_wire, skips=True)
