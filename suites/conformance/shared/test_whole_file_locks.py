"""Whole-file locks, flock(2): NFS sends byte-range locks of the whole file, SMB its own locks.

Sources: flock(2), NOTES ("In Linux kernels up to 2.6.11, flock() does not lock files over NFS … Since Linux
2.6.12, NFS clients support flock() locks by emulating them as fcntl(2) byte-range locks on the entire
file").
"""

from __future__ import annotations

from fcntl import F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="flock(2)", level="MUST", kills=("flock-ignored",)),
]


@pytest.mark.case("SHR-FLOCK-01")
def test_exclusive_lock_excludes_others(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    assert not b.try_flock(fds[1], LOCK_EX)
    assert not b.try_flock(fds[1], LOCK_SH)


@pytest.mark.case("SHR-FLOCK-02", kills=("lock-shared-excludes",))
def test_shared_locks_are_compatible(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_SH)
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_SH)


@pytest.mark.case("SHR-FLOCK-03")
def test_shared_lock_excludes_an_exclusive_lock(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_SH)
    assert not b.try_flock(fds[1], LOCK_EX)


@pytest.mark.case("SHR-FLOCK-04", kills=("unlock-ignored",))
def test_unlock_releases_the_lock(a, b, fds, crossed_wire):
    a.flock(fds[0], LOCK_EX)
    assert not b.try_flock(fds[1], LOCK_EX)
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_UN)
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_EX)


@pytest.mark.case("SHR-FLOCK-05", kills=("lock-kept-over-close",))
def test_last_close_releases_the_lock(a, b, fds, crossed_wire):
    a.flock(fds[0], LOCK_EX)
    assert not b.try_flock(fds[1], LOCK_EX)
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_EX)


@pytest.mark.case("SHR-FLOCK-06", kills=("lock-kept-over-close",))
def test_exit_of_the_holder_releases_the_lock(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    assert not b.try_flock(fds[1], LOCK_EX)
    a.kill_worker()
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_EX)


@pytest.mark.case("SHR-FLOCK-07", level="MAY", section="flock(2), NOTES on NFS", kills=())
def test_flock_may_conflict_with_a_byte_range_lock(a, b, fds, crossed_wire, observe):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    conflicts = not b.try_lock(fds[1], F_WRLCK, 0, 1)
    observe(
        "flock and fcntl locks exclude each other" if conflicts else "flock and fcntl locks are independent"
    )


@pytest.mark.case("SHR-FLOCK-08", kills=("flock-first-close-unlocks",))
def test_close_of_a_duplicate_keeps_the_lock(a, b, fds, crossed_wire):
    """The lock is one of the open file description: the last of its descriptors releases it."""
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    a.close(a.dup(fds[0]))
    assert not b.try_flock(fds[1], LOCK_EX), "a lock is granted that another client holds"
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        assert b.try_flock(fds[1], LOCK_EX)


@pytest.mark.case(
    "SHR-FLOCK-09", section="flock(2), NOTES on NFS; RFC 7530 10.3.2", kills=("two-flock-reads-old",)
)
def test_lock_makes_the_data_of_the_last_holder_visible(a, b, fds, crossed_wire):
    """Data are flushed before LOCK_UN and read after the next lock, by a file that stays open: in turns."""
    sides = [(a, fds[0]), (b, fds[1])]
    assert b.pread(fds[1], 6) == a.pread(fds[0], 6) == bytes(6)
    for turn in range(4):
        (writer, target), (reader, source) = sides
        with crossed_wire(writer, "lock"):
            writer.flock(target, LOCK_EX)
        writer.pwrite(target, b"turn %d" % turn)
        writer.flock(target, LOCK_UN)
        with crossed_wire(reader, "lock"):
            reader.flock(source, LOCK_SH)
        assert reader.pread(source, 6) == b"turn %d" % turn
        reader.flock(source, LOCK_UN)
        sides.reverse()
