"""Parts of locks, and locks of one kind that become another: as the other client meets them.

Sources: fcntl(2) and POSIX.1-2024 fcntl() (a lock replaces what its owner has on the range; an unlock of any
range releases that range; l_len 0: to the largest offset); flock(2) (conversion, waiting); RFC 7530 9.2, 9.3,
16.10 and 16.12; 10.3.2 (data are flushed before a write lock ends, and revalidated when a lock is acquired).
"""

from __future__ import annotations

from fcntl import F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 9.2; fcntl(2)", level="MUST"),
]


@pytest.mark.case(
    "SHR-LOCK-40", section="RFC 7530 16.10; fcntl(2) l_len", kills=("two-lock-to-the-end-4-gib",)
)
def test_lock_of_length_0_has_no_end(a, b, fds, crossed_wire):
    """The lock extends to the largest offset: past 2 GiB, 4 GiB and 1 TiB, too."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 50, 0)
    for offset in (1 << 31, 1 << 32, (1 << 40) + 7, 1 << 62):
        assert not b.try_lock(fds[1], F_WRLCK, offset, 1), f"a lock at {offset} is granted"
        assert not b.try_lock(fds[1], F_RDLCK, offset, 0), f"a read lock from {offset} on is granted"
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 50)


@pytest.mark.case("SHR-LOCK-41", section="RFC 7530 9.3; fcntl(2)", kills=("lock-part-not-downgraded",))
def test_downgraded_part_of_a_write_lock_admits_read_locks(a, b, fds, crossed_wire):
    """Of a write lock the middle becomes a read lock: the other client reads there, and at no other byte."""
    a.lock(fds[0], F_WRLCK, 0, 30)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 10, 10)
    for offset in (0, 9, 20, 29):
        assert not b.try_lock(fds[1], F_RDLCK, offset, 1), f"byte {offset} of the write lock is free to read"
    assert not b.try_lock(fds[1], F_WRLCK, 10, 1), "a byte with a read lock is free to write"
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 10, 10), "the part that was downgraded is not free to read"


@pytest.mark.case("SHR-LOCK-42", section="RFC 7530 16.12; fcntl(2)", kills=("unlock-of-many-frees-one",))
def test_unlock_of_a_range_releases_all_locks_in_it(a, b, fds, crossed_wire):
    """One unlock ends three locks with gaps between them, and cuts the two at its ends."""
    for start in (0, 20, 40, 60, 80):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK, start, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 5, 80)
    for start, length in ((0, 5), (4, 1), (85, 5), (89, 1)):
        assert not b.try_lock(fds[1], F_WRLCK, start, length), f"{length} bytes at {start} are not locked"
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 5, 80), "a lock in an unlocked range is still held"


@pytest.mark.case(
    "SHR-LOCK-43", section="RFC 7530 9.4; fcntl(2) F_SETLKW", kills=("lock-wait-for-the-very-range",)
)
def test_waiting_lock_is_granted_when_the_part_is_free_that_conflicts(
    a, b, fds, crossed_wire, visibility_timeout
):
    """The range waited for and the range unlocked overlap in some bytes only."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 20)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 10, 30, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    a.lock(fds[0], F_UNLCK, 5, 100)
    assert waiting.done(within=visibility_timeout), "not granted when its range was free"
    waiting.result()
    assert not b.try_lock(fds[1], F_WRLCK, 0, 5), "the part of the lock that was kept is lost"
    assert not a.try_lock(fds[0], F_WRLCK, 39, 1), "the lock that was granted has another range"


@pytest.mark.case("SHR-LOCK-44", section="RFC 7530 10.3.2", kills=("two-second-lock-reads-old",))
def test_each_lock_makes_the_data_of_its_range_visible(a, b, fds, crossed_wire):
    """A client that has a lock reads under another lock of the file what was written there since."""
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_RDLCK, 0, 10)
    assert b.pread(fds[1], 100) == bytes(100)
    for turn in range(3):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK, 50, 10)
        a.pwrite(fds[0], b"turn %d" % turn, 50)
        a.lock(fds[0], F_UNLCK, 50, 10)
        with crossed_wire(b, "lock"):
            b.lock(fds[1], F_RDLCK, 50, 10)
        found = b.pread(fds[1], 6, 50)
        assert found == b"turn %d" % turn, f"{found!r} in turn {turn}, under a second lock of the client"
        b.lock(fds[1], F_UNLCK, 50, 10)


@pytest.mark.case("SHR-LOCK-45", section="RFC 7530 9.3, 10.3.2", kills=("two-downgrade-keeps-data",))
def test_downgrade_makes_the_holders_data_visible(a, b, fds, crossed_wire):
    """What was written under a write lock is read under a read lock, when the first has become one."""
    assert b.pread(fds[1], 20) == bytes(20)
    for turn in range(3):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK, 0, 100)
        a.pwrite(fds[0], b"turn %d" % turn)
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_RDLCK, 0, 100)
        with crossed_wire(b, "lock"):
            b.lock(fds[1], F_RDLCK, 0, 100)
        found = b.pread(fds[1], 6)
        assert found == b"turn %d" % turn, f"{found!r} in turn {turn}, after the downgrade"
        b.lock(fds[1], F_UNLCK, 0, 100)
        a.lock(fds[0], F_UNLCK, 0, 100)


@pytest.mark.case("SHR-LOCK-58", section="RFC 7530 10.3.2; msync(2)", kills=("two-locked-msync-keeps-data",))
def test_lock_makes_data_visible_that_msync_has_written(a, b, fds, crossed_wire):
    """What is stored through a mapping under a lock, and synchronized, is read under the next lock."""
    mapping = a.call("map", fds[0], 100)
    assert b.pread(fds[1], 6, 50) == bytes(6)
    for turn in range(3):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK)
        a.call("poke", mapping, 50, b"turn %d" % turn)
        a.call("msync", mapping)
        a.lock(fds[0], F_UNLCK)
        with crossed_wire(b, "lock"):
            b.lock(fds[1], F_RDLCK)
        found = b.pread(fds[1], 6, 50)
        assert found == b"turn %d" % turn, f"{found!r} in turn {turn}, after msync() under the lock"
        b.lock(fds[1], F_UNLCK)


@pytest.mark.case(
    "SHR-FLOCK-10", section="flock(2): LOCK_EX; LOCK_NB", kills=("flock-shared-becomes-exclusive",)
)
def test_shared_lock_of_two_becomes_exclusive_for_neither(a, b, fds, crossed_wire):
    """A conversion is refused while the other client has a shared lock, and granted when it has none."""
    for session, fd in ((a, fds[0]), (b, fds[1])):
        with crossed_wire(session, "lock"):
            session.flock(fd, LOCK_SH)
    assert not a.try_flock(fds[0], LOCK_EX), "an exclusive lock is granted, where another client has a shared"
    # flock(2): a conversion that is refused may have lost the lock.
    with crossed_wire(b, "lock"):
        b.flock(fds[1], LOCK_UN)
    a.flock(fds[0], LOCK_UN)
    with crossed_wire(a, "lock"):
        assert a.try_flock(fds[0], LOCK_EX), "a lock is refused that conflicts with none"


@pytest.mark.parametrize(
    "release",
    [
        pytest.param("unlock", marks=pytest.mark.case("SHR-FLOCK-11", kills=("flock-unlock-wakes-none",))),
        pytest.param("close", marks=pytest.mark.case("SHR-FLOCK-12", kills=("flock-close-wakes-none",))),
        pytest.param("shared", marks=pytest.mark.case("SHR-FLOCK-13", kills=("flock-unlock-wakes-none",))),
    ],
)
@pytest.mark.case(section="flock(2): LOCK_EX, LOCK_UN")
def test_waiting_lock_is_granted_after_the_release(a, b, fds, crossed_wire, visibility_timeout, release):
    """flock() without LOCK_NB waits until the lock of the other client ends."""
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_SH if release == "shared" else LOCK_EX)
    waiting = b.start(("flock", fds[1], LOCK_EX), deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    if release == "close":
        a.close(fds[0])
    else:
        a.flock(fds[0], LOCK_UN)
    assert waiting.done(within=visibility_timeout), "not granted when the other was released"
    waiting.result()
    assert not a.try_flock(a.open("f"), LOCK_SH), "a lock is granted, where the one that waited is held"
