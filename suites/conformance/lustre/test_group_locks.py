"""Group locks: descriptors of one group share a file, all others wait (llapi_group_lock(3))."""

from __future__ import annotations

import errno
from os import O_CREAT, O_NONBLOCK, O_RDWR

import pytest

from storagetest.agent.testlib.lfs import GROUP_LOCK, GROUP_UNLOCK

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(level="MUST", section="llapi_group_lock(3): DESCRIPTION"),
]
errors = "llapi_group_lock(3): ERRORS"

WAITS = 2.0
"""Seconds after which a call is taken to wait (chosen); one that has to wait does so at any load."""
ENDS = 60.0
"""Seconds within which a call that may go on has to end."""


@pytest.fixture
def fds(a, b):
    """Return descriptors of one file, on both clients."""
    a.write_file("f", bytes(1000))
    return a.open("f", O_RDWR), b.open("f", O_RDWR)


def take(session, fd, group):
    """Take a group lock."""
    session.call("ioctl_number", fd, GROUP_LOCK, group)


def release(session, fd, group):
    """Release a group lock."""
    session.call("ioctl_number", fd, GROUP_UNLOCK, group)


@pytest.fixture
def take_at_once(recovery_timeout):
    """Return a function that takes a group lock without a wait, and returns its error number or 0."""

    def take_it(session, fd, group):
        pending = session.start(("ioctl_number", fd, GROUP_LOCK, group), deadline=2 * recovery_timeout)
        assert pending.done(within=recovery_timeout), "a group lock waits that nothing hinders"
        (result,) = pending.results()
        return result.errno if isinstance(result, OSError) else 0

    return take_it


def number_of(call, *arguments):
    """Return the error number that a call raises, or 0."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


@pytest.mark.case("LUS-GROUP-01", kills=("group-unknown",))
def test_lock_is_taken_and_released(a, fds):
    """A group lock is taken, released, and taken again with another group."""
    for group in (1, 7):
        take(a, fds[0], group)
        release(a, fds[0], group)


@pytest.mark.case("LUS-GROUP-02", section=errors, kills=("group-zero",))
def test_group_zero_is_refused(a, fds):
    """[EINVAL] The group is 0."""
    assert number_of(take, a, fds[0], 0) == errno.EINVAL


@pytest.mark.case("LUS-GROUP-03", section=errors, kills=("group-twice", "group-same-twice"))
def test_second_lock_of_a_descriptor_is_refused(a, fds):
    """[EINVAL] The descriptor already has a group lock."""
    take(a, fds[0], 1)
    assert number_of(take, a, fds[0], 1) == errno.EINVAL
    assert number_of(take, a, fds[0], 2) == errno.EINVAL
    release(a, fds[0], 1)


@pytest.mark.case("LUS-GROUP-04", section=errors, kills=("group-unlock-without",))
def test_unlock_without_a_lock_is_refused(a, fds):
    """[EINVAL] The descriptor has no group lock."""
    assert number_of(release, a, fds[0], 1) == errno.EINVAL


@pytest.mark.case("LUS-GROUP-05", section=errors, kills=("group-unlock-any", "group-unlock-refused-ends"))
def test_unlock_of_another_group_is_refused(a, fds):
    """[EINVAL] The descriptor has the lock of another group, and keeps it."""
    take(a, fds[0], 1)
    assert number_of(release, a, fds[0], 2) == errno.EINVAL
    release(a, fds[0], 1)


@pytest.mark.case("LUS-GROUP-06", kills=("group-alone",))
def test_two_descriptors_of_one_client_share_a_group(a, fds):
    """Descriptors of one client with the same group have the lock at the same time."""
    other = a.open("f", O_RDWR)
    take(a, fds[0], 3)
    take(a, other, 3)
    release(a, other, 3)
    release(a, fds[0], 3)


@pytest.mark.case("LUS-GROUP-07", kills=("group-alone",))
def test_two_clients_share_a_group(a, b, fds):
    """Descriptors of two clients with the same group have the lock at the same time."""
    take(a, fds[0], 3)
    take(b, fds[1], 3)
    release(a, fds[0], 3)
    release(b, fds[1], 3)


@pytest.mark.case("LUS-GROUP-08", kills=("group-shared-by-all", "group-other-refused", "group-stays"))
def test_another_group_waits(a, b, fds, recovery_timeout):
    """A lock with another group waits until the first is released."""
    take(a, fds[0], 1)
    pending = b.start(("ioctl_number", fds[1], GROUP_LOCK, 2), deadline=2 * recovery_timeout)
    assert not pending.done(within=WAITS), "two groups have one file at the same time"
    release(a, fds[0], 1)
    assert pending.done(within=recovery_timeout), "the lock waits although the other group has released it"
    pending.result()
    release(b, fds[1], 2)


@pytest.mark.case(
    "LUS-GROUP-09",
    section="llapi_group_lock(3): DESCRIPTION, O_NONBLOCK",
    kills=("group-shared-by-all", "group-always-waits"),
)
def test_another_group_does_not_wait_without_blocking(a, take_at_once):
    """With O_NONBLOCK a lock with another group of the same client fails at once."""
    first = a.open("f", O_RDWR | O_CREAT)
    second = a.open("f", O_RDWR | O_NONBLOCK)
    take(a, first, 1)
    assert take_at_once(a, second, 2) in (errno.EAGAIN, errno.EWOULDBLOCK)
    release(a, first, 1)


@pytest.mark.case(
    "LUS-GROUP-10",
    no_mutant_reason="the kernel lets no second write of a file begin while one waits in user space",
)
def test_write_without_the_group_waits(a, b, fds):
    """A write of a client that is not of the group waits until the lock is released."""
    take(a, fds[0], 1)
    pending = b.start(("pwrite", fds[1], b"other", 0), ("fsync", fds[1]), deadline=ENDS)
    assert not pending.done(within=WAITS), "a client outside of the group wrote"
    a.pwrite(fds[0], b"group", 0)
    release(a, fds[0], 1)
    assert pending.results() == [5, None]
    assert a.pread(fds[0], 5) == b"other"


@pytest.mark.case("LUS-GROUP-11", kills=("group-read-by-others",))
def test_read_without_the_group_waits(a, b, fds):
    """A read of a client that is not of the group waits, and finds what the group has written."""
    take(a, fds[0], 1)
    a.pwrite(fds[0], b"group", 0)
    pending = b.start(("pread", fds[1], 5, 0), deadline=ENDS)
    assert not pending.done(within=WAITS), "a client outside of the group read"
    release(a, fds[0], 1)
    assert bytes(pending.result()) == b"group"


@pytest.mark.case("LUS-GROUP-12", kills=("group-close-keeps",))
def test_close_releases_the_lock(a, b, fds, take_at_once):
    """The last close of a descriptor releases its group lock."""
    take(a, fds[0], 1)
    a.close(fds[0])
    assert take_at_once(b, fds[1], 2) == 0
    release(b, fds[1], 2)


@pytest.mark.case("LUS-GROUP-13", kills=("group-close-keeps",))
def test_killed_holder_releases_the_lock(a, b, fds, take_at_once):
    """The lock of a process that is killed is released."""
    take(a, fds[0], 1)
    a.kill_worker()
    assert take_at_once(b, fds[1], 2) == 0
    release(b, fds[1], 2)
    a.restart_worker()


@pytest.mark.case("LUS-GROUP-14", kills=("group-loses-a-write",))
def test_data_of_a_group_are_all_in_the_file(a, b, fds, race):
    """What two clients of a group write at the same time, to ranges of their own, is all in the file."""
    for session, fd in zip((a, b), fds, strict=True):
        take(session, fd, 5)
    size = 64 * 1024
    race(
        [("pwrite", fds[0], b"a" * size, 2 * number * size) for number in range(6)],
        [("pwrite", fds[1], b"b" * size, (2 * number + 1) * size) for number in range(6)],
    )
    for session, fd in zip((a, b), fds, strict=True):
        session.fsync(fd)
        release(session, fd, 5)
    for session, fd in zip((a, b), fds, strict=True):
        found = [session.pread(fd, size, number * size) for number in range(12)]
        assert found == [b"a" * size, b"b" * size] * 6
