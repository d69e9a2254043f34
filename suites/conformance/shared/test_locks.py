"""Byte-range locks: a lock of one client excludes conflicting locks of another.

Sources: fcntl(2) and POSIX.1-2024 fcntl(), "advisory record locking"; RFC 7530 9.2 to 9.4, 16.10 to 16.12
(RFC 8881 9.1 to 9.3, 18.10 to 18.12); for NFS version 3 the Network Lock Manager (XNFS, C702); MS-SMB2
3.3.5.14.

Both clients open the file before any lock. A client with exclusive access (an SMB lease, an NFSv4 delegation)
may keep locks in its own tables, and the case would test nothing.
"""

from __future__ import annotations

import time
from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_RDWR

import pytest

IDLE = 8.0
"""Seconds for which a client does nothing (chosen: longer than attributes are cached for by default)."""

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 16.10; fcntl(2)", level="MUST", kills=("lock-ignored",)),
]


@pytest.mark.case("SHR-LOCK-01")
def test_write_lock_excludes_a_write_lock(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-02", kills=("lock-ignored", "lock-writer-admits-shared"))
def test_write_lock_excludes_a_read_lock(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_RDLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-03", kills=("lock-ignored", "lock-shared-admits-writer"))
def test_read_lock_excludes_a_write_lock(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-04", kills=("lock-shared-excludes",))
def test_read_locks_are_compatible(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-05", section="RFC 7530 9.2", kills=("lock-range-ignored",))
def test_locks_of_neighbouring_ranges_do_not_conflict(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 10, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)
        assert b.try_lock(fds[1], F_WRLCK, 20, 10)


@pytest.mark.case("SHR-LOCK-06", section="RFC 7530 9.2")
def test_locks_with_one_common_byte_conflict(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 10, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 1, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 19, 10)


@pytest.mark.case(
    "SHR-LOCK-07",
    section="RFC 7530 16.11; fcntl(2) F_GETLK",
    kills=("getlk-reports-free", "getlk-wrong-range"),
)
def test_getlk_describes_the_conflicting_lock(a, b, fds, crossed_wire):
    """F_GETLK returns type, start and length of the lock of the other client."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 5, 20)
    with crossed_wire(b, "lock"):
        assert b.get_conflicting_lock(fds[1], F_RDLCK, 0, 100) == (F_WRLCK, 5, 20)


@pytest.mark.case("SHR-LOCK-51", section="RFC 7530 16.11; fcntl(2) F_GETLK", kills=("two-getlk-old",))
def test_getlk_describes_the_lock_of_each_moment(a, b, fds, crossed_wire):
    """F_GETLK, asked again, returns the lock that the other client has now, of another kind and range."""
    for kind, start, length in ((F_WRLCK, 5, 20), (F_RDLCK, 40, 7), (F_WRLCK, 0, 90)):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], kind, start, length)
        with crossed_wire(b, "lock"):
            found = b.get_conflicting_lock(fds[1], F_WRLCK, 0, 100)
        assert found == (kind, start, length), "the lock of the other client"
        a.lock(fds[0], F_UNLCK)
        assert b.get_conflicting_lock(fds[1], F_WRLCK, 0, 100) is None, "after the unlock"


@pytest.mark.case("SHR-LOCK-08", section="RFC 7530 16.11; fcntl(2) F_GETLK", kills=("lock-range-ignored",))
def test_getlk_of_an_unlocked_range_finds_nothing(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 5, 20)
    with crossed_wire(b, "lock"):
        assert b.get_conflicting_lock(fds[1], F_WRLCK, 25, 100) is None


@pytest.mark.slow
@pytest.mark.case(
    "SHR-LOCK-49", section="RFC 7530 9.6; POSIX.1-2024 fcntl(): F_SETLK", kills=("idle-lock-expires",)
)
def test_lock_is_held_while_its_client_does_nothing(a, b, fds, crossed_wire):
    """A lock has no end of its own: the client keeps its lease, and no other gets the range."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 5, 20)
    time.sleep(IDLE)
    with crossed_wire(b, "lock"):
        assert not b.try_lock(fds[1], F_WRLCK, 10, 1)
    assert b.try_lock(fds[1], F_WRLCK, 30, 1)


@pytest.mark.case("SHR-LOCK-09", section="RFC 7530 16.10; fcntl(2) l_len")
def test_lock_of_length_0_covers_later_writes(a, b, fds, crossed_wire):
    """The lock extends to the end of the file, also after the file grew."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 50, 0)
    with crossed_wire(a, "write"):
        a.pwrite(fds[0], b"x", 100_000)
        a.fsync(fds[0])
    assert not b.try_lock(fds[1], F_RDLCK, 100_000, 1)
    assert b.try_lock(fds[1], F_RDLCK, 0, 50)


@pytest.mark.case("SHR-LOCK-10", section="RFC 7530 9.2", kills=("unlock-part-unlocks-all",))
def test_unlock_in_the_middle_keeps_both_ends_locked(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 30)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 10, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 9, 1)
    assert not b.try_lock(fds[1], F_WRLCK, 20, 1)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 10, 10)


@pytest.mark.case("SHR-LOCK-11", section="RFC 7530 9.3", kills=("lock-shared-admits-writer",))
def test_read_lock_is_not_upgraded_while_another_is_shared(a, b, fds, crossed_wire):
    """The upgrade fails, and the read lock remains."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)
    with crossed_wire(a, "lock"):
        assert not a.try_lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "the first client's read lock was lost by the attempt"


@pytest.mark.case("SHR-LOCK-12", section="RFC 7530 9.3", kills=("lock-conversion-refused", "relock-granted"))
def test_downgraded_write_lock_admits_read_locks(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_RDLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-13", section="RFC 7530 16.12; fcntl(2)", kills=("unlock-ignored",))
def test_unlocked_range_can_be_locked(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-14", section="fcntl(2), close(2)", kills=("lock-kept-over-close",))
def test_close_releases_the_locks(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-15", section="fcntl(2), close(2)", kills=("lock-kept-over-close",))
def test_close_of_another_descriptor_releases_the_locks(a, b, fds, crossed_wire):
    """A close of any descriptor of the file releases the locks of the process."""
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.close(a.open("f", O_RDWR))
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-16", section="RFC 7530 9.4; fcntl(2) F_SETLKW", kills=("lock-wait-refused",))
def test_waiting_lock_is_granted_after_the_unlock(a, b, fds, crossed_wire, visibility_timeout):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with crossed_wire(b, "lock"):
        waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * visibility_timeout)
        assert not waiting.done(within=1.0), "granted while the other was held"
        a.lock(fds[0], F_UNLCK, 0, 10)
        assert waiting.done(within=visibility_timeout), "not granted when the other was released"
        waiting.result()
    assert not a.try_lock(fds[0], F_WRLCK, 0, 10)


@pytest.mark.case(
    "SHR-LOCK-17",
    section="RFC 7530 9.4; fcntl(2) F_SETLKW",
    kills=("lock-kept-over-close", "lock-wait-refused"),
)
def test_waiting_lock_is_granted_after_the_close(a, b, fds, crossed_wire, visibility_timeout):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    a.close(fds[0])
    assert waiting.done(within=visibility_timeout), "not granted when the other was closed"
    waiting.result()


@pytest.mark.case("SHR-LOCK-18", section="fcntl(2)", kills=("lock-kept-over-close",))
def test_exit_of_the_holder_releases_its_locks(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.kill_worker()
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case(
    "SHR-LOCK-19", section="fcntl(2) F_SETLKW", kills=("lock-kept-over-close", "lock-wait-refused")
)
def test_waiting_lock_is_granted_after_the_exit_of_the_holder(a, b, fds, crossed_wire, visibility_timeout):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 0)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 0, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    a.kill_worker()
    assert waiting.done(within=visibility_timeout), "not granted when the other had died"
    waiting.result()


@pytest.mark.case(
    "SHR-LOCK-20", section="RFC 7530 9.4; fcntl(2) F_SETLKW", kills=("dead-waiters-are-granted",)
)
def test_lock_is_not_granted_to_a_waiter_that_exited(a, b, fds, crossed_wire, visibility_timeout):
    """After the unlock, the range is free for the other client."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    b.kill_worker()
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
        assert a.try_lock(fds[0], F_WRLCK, 0, 10), "a dead process was given the lock"


@pytest.mark.case("SHR-LOCK-21", section="RFC 7530 16.10", kills=("lock-end-cut",))
def test_lock_offsets_have_64_bits(a, b, fds, crossed_wire):
    """A lock at 1 TiB conflicts there, and not at the offset modulo 4 GiB."""
    offset = 1 << 40
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, offset, 10)
    assert not b.try_lock(fds[1], F_WRLCK, offset + 9, 1)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, offset % (1 << 32), 10)


@pytest.mark.case("SHR-LOCK-22", section="RFC 7530 9.2", kills=("lock-ignored", "lock-range-ignored"))
def test_a_hundred_ranges_are_locked_separately(a, b, fds, crossed_wire):
    """Of 200 bytes, the other client can lock exactly the 100 unlocked ones."""
    with crossed_wire(a, "lock"):
        results_a = a.each([("lock", fds[0], F_WRLCK, 2 * i, 1, False) for i in range(100)], deadline=60)
    assert results_a == [None] * 100
    results_b = b.each([("lock", fds[1], F_WRLCK, i, 1, False) for i in range(200)], deadline=60)
    granted = [number for number, result in enumerate(results_b) if result is None]
    assert granted == list(range(1, 200, 2))


@pytest.mark.case("SHR-LOCK-23", section="RFC 7530 10.3.2", kills=("read-stale", "two-relock-reads-old"))
def test_lock_makes_the_last_holders_data_visible(a, b, fds, crossed_wire):
    """Under the lock, a read through an open file returns the data written under the last lock."""
    assert b.pread(fds[1], 20) == bytes(20)
    for generation in range(10):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK, 0, 100)
        a.pwrite(fds[0], b"generation %02d" % generation)
        a.lock(fds[0], F_UNLCK, 0, 100)
        with crossed_wire(b, "lock"):
            b.lock(fds[1], F_RDLCK, 0, 100)
        assert b.pread(fds[1], 13) == b"generation %02d" % generation
        b.lock(fds[1], F_UNLCK, 0, 100)


@pytest.mark.case("SHR-LOCK-50", section="RFC 7530 10.3.2", kills=("two-unlock-keeps-far-data",))
def test_lock_makes_data_in_all_parts_of_the_file_visible(a, b, fds, crossed_wire):
    """Data are flushed before the unlock and read after the lock, beyond 1 MiB, too: in both directions."""
    offsets = (0, 70_000, (1 << 20) + 5, 5 << 20)
    sides = [(a, fds[0]), (b, fds[1])]
    for turn in range(4):
        (writer, target), (reader, source) = sides
        with crossed_wire(writer, "lock"):
            writer.lock(target, F_WRLCK)
        for offset in offsets:
            writer.pwrite(target, b"turn %d" % turn, offset)
        writer.lock(target, F_UNLCK)
        with crossed_wire(reader, "lock"):
            reader.lock(source, F_RDLCK)
        found = {offset: reader.pread(source, 6, offset) for offset in offsets}
        reader.lock(source, F_UNLCK)
        old = [offset for offset, data in found.items() if data != b"turn %d" % turn]
        assert not old, f"turn {turn}: the data that were written under the last lock are not at {old}"
        sides.reverse()


@pytest.mark.case("SHR-LOCK-24", section="RFC 7530 10.3.2", kills=("read-stale",))
def test_counter_under_a_lock_loses_no_increment(a, b, fds, crossed_wire):
    a.pwrite(fds[0], b"%04d" % 0)
    a.fsync(fds[0])
    for turn in range(30):
        session, fd = ((a, fds[0]), (b, fds[1]))[turn % 2]
        with crossed_wire(session, "lock"):
            session.lock(fd, F_WRLCK, 0, 4)
        session.pwrite(fd, b"%04d" % (int(session.pread(fd, 4)) + 1))
        session.lock(fd, F_UNLCK, 0, 4)
    a.lock(fds[0], F_RDLCK, 0, 4)
    assert a.pread(fds[0], 4) == b"0030"


@pytest.mark.case("SHR-LOCK-25", section="RFC 7530 16.10", kills=("link-copies",))
def test_lock_applies_to_all_links_of_the_file(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    b.close(fds[1])
    b.link("f", "g")
    linked = b.open("g", O_RDWR)
    assert not b.try_lock(linked, F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-26", section="fcntl(2), open file description locks")
def test_open_file_description_lock_conflicts_with_a_process_lock(a, b, fds, crossed_wire):
    """F_OFD_SETLK of one client excludes F_SETLK of the other."""
    with crossed_wire(a, "lock"):
        a.call("ofd_lock", fds[0], F_WRLCK, 0, 10, False)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-27", level="MAY", section="fcntl(2) EDEADLK", kills=())
def test_deadlock_of_two_clients_may_be_detected(a, b, fds, crossed_wire, observe, visibility_timeout):
    """One of two clients that wait for each other may get EDEADLK."""
    a.lock(fds[0], F_WRLCK, 0, 1)
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_WRLCK, 1, 1)
    waiting_a = a.wait_for_lock(fds[0], F_WRLCK, 1, 1, deadline=2 * visibility_timeout)
    waiting_b = b.wait_for_lock(fds[1], F_WRLCK, 0, 1, deadline=2 * visibility_timeout)
    detected = waiting_a.done(within=1.5) or waiting_b.done(within=1.5)
    observe(
        "a deadlock of two clients is detected" if detected else "two clients wait for each other for ever"
    )


@pytest.mark.case("SHR-LOCK-28", level="MAY", section="RFC 7530 9.1; MS-SMB2 3.3.5.12", kills=())
def test_locks_may_be_mandatory(a, b, fds, crossed_wire, observe):
    """A read without a lock of a range locked for writing may fail."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    try:
        b.evict(fds[1])
        b.pread(fds[1], 10)
    except OSError:
        observe("mandatory: a range locked for writing cannot be read by others")
    else:
        observe("advisory: a client without a lock may read")


@pytest.mark.case("SHR-LOCK-29", section="RFC 7530 16.11; fcntl(2) F_GETLK", kills=("getlk-wrong-kind",))
def test_getlk_reports_a_read_lock_as_one(a, b, fds, crossed_wire):
    """F_GETLK returns F_RDLCK if the lock that conflicts with a write lock is a read lock."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 5, 20)
    with crossed_wire(b, "lock"):
        found = b.get_conflicting_lock(fds[1], F_WRLCK, 0, 100)
    assert found is not None, "F_GETLK finds no lock"
    assert found[0] == F_RDLCK


@pytest.mark.case("SHR-LOCK-30", section="RFC 7530 9.4; fcntl(2) F_SETLKW", kills=("lock-part-wakes-none",))
def test_waiting_lock_is_granted_although_the_holder_has_another(a, b, fds, crossed_wire, visibility_timeout):
    """Of two locks of one client, the one that the other waits for is released."""
    a.lock(fds[0], F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 20, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 20, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    a.lock(fds[0], F_UNLCK, 20, 10)
    assert waiting.done(within=visibility_timeout), "not granted when the other was released"
    waiting.result()
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "the lock that was kept is lost"


@pytest.mark.case(
    "SHR-LOCK-31", section="RFC 7530 9.3, 9.4; fcntl(2) F_SETLKW", kills=("lock-downgrade-wakes-none",)
)
def test_waiting_read_lock_is_granted_after_the_downgrade(a, b, fds, crossed_wire, visibility_timeout):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_RDLCK, 0, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held for writing"
    a.lock(fds[0], F_RDLCK, 0, 10)
    assert waiting.done(within=visibility_timeout), "not granted when the other was downgraded"
    waiting.result()


@pytest.mark.case(
    "SHR-LOCK-32", section="fcntl(2), open file description locks", kills=("ofd-lock-any-close-unlocks",)
)
def test_close_of_another_descriptor_keeps_a_description_lock(a, b, fds, crossed_wire):
    """An open file description lock ends with its own description, and not with another one of the file."""
    with crossed_wire(a, "lock"):
        a.call("ofd_lock", fds[0], F_WRLCK, 0, 10, False)
    a.close(a.open("f"))
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "a lock is granted that another client holds"
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.parametrize(("start", "length"), [
    pytest.param(5, 20, id="end", marks=pytest.mark.case("SHR-LOCK-33")),
    pytest.param((1 << 33) + 5, 0, id="no-end", marks=pytest.mark.case("SHR-LOCK-34")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7530 16.11; fcntl(2) F_GETLK", kills=("getlk-cuts-to-the-request",))
def test_getlk_of_a_part_describes_the_whole_lock(a, b, fds, crossed_wire, start, length):
    """F_GETLK of one byte returns start and length of the lock; a lock without an end has length 0."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, start, length)
    with crossed_wire(b, "lock"):
        assert b.get_conflicting_lock(fds[1], F_RDLCK, start + 7, 1) == (F_WRLCK, start, length)


@pytest.mark.parametrize("size", [
    pytest.param(7, id="cut", marks=pytest.mark.case("SHR-LOCK-35", kills=("two-lock-keeps-larger-size",))),
    pytest.param(9000, id="grown", marks=pytest.mark.case("SHR-LOCK-36", kills=("two-lock-keeps-old-end",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7530 10.3.2; nfs(5), Using file locks with NFS", kills=())
def test_lock_makes_the_size_visible_that_the_last_holder_set(a, b, fds, crossed_wire, size):
    """Under the lock, fstat() and a read through an open file agree with ftruncate() under the last lock."""
    assert b.pread(fds[1], 200) == bytes(100)
    assert b.fstat(fds[1]).size == 100
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK)
    a.ftruncate(fds[0], size)
    a.lock(fds[0], F_UNLCK)
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_RDLCK)
    assert b.fstat(fds[1]).size == size
    assert b.pread(fds[1], 10_000) == bytes(size)


@pytest.mark.case("SHR-LOCK-37", section="RFC 7530 16.12; fcntl(2)", kills=("unlock-frees-shared-of-others",))
def test_unlock_of_a_read_lock_keeps_that_of_the_other_client(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_RDLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    assert not a.try_lock(fds[0], F_WRLCK, 0, 10), "the other client's read lock is lost"


@pytest.mark.case("SHR-LOCK-38", section="fcntl(2), close(2)", kills=("close-unlocks-other-files",))
def test_close_of_one_file_keeps_the_locks_of_another(a, b, fds, crossed_wire):
    a.write_file("g", bytes(100))
    other = a.open("g", O_RDWR)
    b.open("g", O_RDWR)  # a client that has a file alone may keep its locks to itself
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(other, F_WRLCK, 0, 10)
    a.close(other)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "the lock of a file that is still open is lost"


@pytest.mark.case(
    "SHR-LOCK-39", section="POSIX.1-2024 fcntl(), rename(): DESCRIPTION", kills=("lock-follows-the-name",)
)
def test_file_that_takes_the_name_of_a_locked_one_is_not_locked(a, b, fds, crossed_wire):
    """A lock is one of the file, which another client has replaced, and not of its name."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    b.close(fds[1])
    b.write_file("new", bytes(100))
    try:
        b.rename("new", "f")
    except OSError as error:
        pytest.skip(f"a file that is open cannot be replaced here: {error}")
    replaced = b.open("f", O_RDWR)
    assert b.try_lock(replaced, F_WRLCK, 0, 10), "the new file of the name is locked"
