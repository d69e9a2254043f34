"""Byte-range locks: what one client has locked, another may not lock.

Sources: fcntl(2) and POSIX.1-2024 fcntl(), "advisory record locking"; RFC 7530 9.2 to 9.4, 16.10 to 16.12
(RFC 8881 9.1 to 9.3, 18.10 to 18.12); for NFS version 3 the Network Lock Manager (XNFS, C702); MS-SMB2
3.3.5.14.

Both clients have the file open before anything is locked. That is not for convenience: a client that has a
file to itself (an SMB lease, an NFSv4 delegation) may lock it in its own tables, and then nothing is
tested.
"""

from __future__ import annotations

from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 16.10; fcntl(2)", level="MUST", kills=("lock-ignored",)),
]


@pytest.mark.case("SHR-LOCK-01")
def test_a_write_lock_keeps_another_write_lock_out(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-02", kills=("lock-ignored", "lock-writer-admits-shared"))
def test_a_write_lock_keeps_a_read_lock_out(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_RDLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-03", kills=("lock-ignored", "lock-shared-admits-writer"))
def test_a_read_lock_keeps_a_write_lock_out(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-04", kills=("lock-shared-excludes",))
def test_read_locks_are_held_together(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-05", section="RFC 7530 9.2", kills=("lock-range-ignored",))
def test_locks_of_neighbouring_ranges_do_not_meet(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 10, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)
        assert b.try_lock(fds[1], F_WRLCK, 20, 10)


@pytest.mark.case("SHR-LOCK-06", section="RFC 7530 9.2")
def test_one_byte_in_common_is_enough(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 10, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 1, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 19, 10)


@pytest.mark.case(
    "SHR-LOCK-07",
    section="RFC 7530 16.11; fcntl(2) F_GETLK",
    kills=("getlk-reports-free", "getlk-wrong-range"),
)
def test_the_lock_in_the_way_is_named(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 5, 20)
    with crossed_wire(b, "lock"):
        assert b.get_conflicting_lock(fds[1], F_RDLCK, 0, 100) == (F_WRLCK, 5, 20)


@pytest.mark.case("SHR-LOCK-08", section="RFC 7530 16.11; fcntl(2) F_GETLK", kills=("lock-range-ignored",))
def test_where_nothing_is_in_the_way_nothing_is_named(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 5, 20)
    with crossed_wire(b, "lock"):
        assert b.get_conflicting_lock(fds[1], F_WRLCK, 25, 100) is None


@pytest.mark.case("SHR-LOCK-09", section="RFC 7530 16.10; fcntl(2) l_len")
def test_a_lock_of_length_0_covers_what_is_yet_to_be_written(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 50, 0)
    with crossed_wire(a, "write"):
        a.pwrite(fds[0], b"x", 100_000)
        a.fsync(fds[0])
    assert not b.try_lock(fds[1], F_RDLCK, 100_000, 1)
    assert b.try_lock(fds[1], F_RDLCK, 0, 50)


@pytest.mark.case("SHR-LOCK-10", section="RFC 7530 9.2", kills=("unlock-part-unlocks-all",))
def test_an_unlock_in_the_middle_leaves_both_ends(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 30)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 10, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 9, 1)
    assert not b.try_lock(fds[1], F_WRLCK, 20, 1)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 10, 10)


@pytest.mark.case("SHR-LOCK-11", section="RFC 7530 9.3", kills=("lock-shared-admits-writer",))
def test_a_read_lock_becomes_no_write_lock_while_another_reads(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)
    with crossed_wire(a, "lock"):
        assert not a.try_lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "the first one's read lock was lost in the attempt"


@pytest.mark.case("SHR-LOCK-12", section="RFC 7530 9.3", kills=("lock-conversion-refused",))
def test_a_write_lock_that_becomes_a_read_lock_lets_others_read(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_RDLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_RDLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_RDLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-13", section="RFC 7530 16.12; fcntl(2)", kills=("unlock-ignored",))
def test_what_is_unlocked_may_be_locked(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-14", section="fcntl(2), close(2)", kills=("lock-kept-over-close",))
def test_a_close_releases_the_locks(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-15", section="fcntl(2), close(2)", kills=("lock-kept-over-close",))
def test_so_does_the_close_of_any_descriptor_of_the_file(a, b, fds, crossed_wire):
    a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.close(a.open("f", O_RDWR))
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-16", section="RFC 7530 9.4; fcntl(2) F_SETLKW", kills=("lock-wait-refused",))
def test_a_lock_that_waits_is_granted_when_the_other_is_released(a, b, fds, crossed_wire, visibility_timeout):
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
def test_a_lock_that_waits_is_granted_when_the_other_file_is_closed(
    a, b, fds, crossed_wire, visibility_timeout
):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    a.close(fds[0])
    assert waiting.done(within=visibility_timeout), "not granted when the other was closed"
    waiting.result()


@pytest.mark.case("SHR-LOCK-18", section="fcntl(2)", kills=("lock-kept-over-close",))
def test_the_death_of_the_holder_releases_its_locks(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    a.kill_worker()
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case(
    "SHR-LOCK-19", section="fcntl(2) F_SETLKW", kills=("lock-kept-over-close", "lock-wait-refused")
)
def test_the_death_of_the_holder_lets_the_one_that_waits_go_on(a, b, fds, crossed_wire, visibility_timeout):
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
def test_one_that_died_waiting_is_not_granted_the_lock(a, b, fds, crossed_wire, visibility_timeout):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * visibility_timeout)
    assert not waiting.done(within=0.5), "granted while the other was held"
    b.kill_worker()
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
        assert a.try_lock(fds[0], F_WRLCK, 0, 10), "a dead process was given the lock"


@pytest.mark.case("SHR-LOCK-21", section="RFC 7530 16.10", kills=("lock-end-cut",))
def test_offsets_have_64_bits(a, b, fds, crossed_wire):
    far = 1 << 40
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, far, 10)
    assert not b.try_lock(fds[1], F_WRLCK, far + 9, 1)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, far % (1 << 32), 10)


@pytest.mark.case("SHR-LOCK-22", section="RFC 7530 9.2", kills=("lock-ignored", "lock-range-ignored"))
def test_a_hundred_ranges_are_kept_apart(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        mine = a.each([("lock", fds[0], F_WRLCK, 2 * i, 1, False) for i in range(100)], deadline=60)
    assert mine == [None] * 100
    yours = b.each([("lock", fds[1], F_WRLCK, i, 1, False) for i in range(200)], deadline=60)
    granted = [number for number, answer in enumerate(yours) if answer is None]
    assert granted == list(range(1, 200, 2))


@pytest.mark.case("SHR-LOCK-23", section="RFC 7530 10.3.2", kills=("read-stale",))
def test_who_gets_the_lock_reads_what_its_last_holder_wrote(a, b, fds, crossed_wire):
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


@pytest.mark.case("SHR-LOCK-24", section="RFC 7530 10.3.2", kills=("read-stale",))
def test_a_counter_under_a_lock_loses_no_count(a, b, fds, crossed_wire):
    a.pwrite(fds[0], b"%04d" % 0)
    a.fsync(fds[0])
    for turn in range(30):
        hand, fd = ((a, fds[0]), (b, fds[1]))[turn % 2]
        with crossed_wire(hand, "lock"):
            hand.lock(fd, F_WRLCK, 0, 4)
        hand.pwrite(fd, b"%04d" % (int(hand.pread(fd, 4)) + 1))
        hand.lock(fd, F_UNLCK, 0, 4)
    a.lock(fds[0], F_RDLCK, 0, 4)
    assert a.pread(fds[0], 4) == b"0030"


@pytest.mark.case("SHR-LOCK-25", section="RFC 7530 16.10", kills=("link-copies",))
def test_a_lock_is_of_the_file_and_not_of_its_name(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    b.close(fds[1])
    b.link("f", "g")
    again = b.open("g", O_RDWR)
    assert not b.try_lock(again, F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-26", section="fcntl(2), open file description locks")
def test_a_lock_of_an_open_file_description_meets_one_of_a_process(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.call("ofd_lock", fds[0], F_WRLCK, 0, 10, False)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case("SHR-LOCK-27", level="MAY", section="fcntl(2) EDEADLK", kills=())
def test_who_would_wait_for_each_other_may_be_told(a, b, fds, crossed_wire, observe, visibility_timeout):
    a.lock(fds[0], F_WRLCK, 0, 1)
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_WRLCK, 1, 1)
    one = a.wait_for_lock(fds[0], F_WRLCK, 1, 1, deadline=2 * visibility_timeout)
    two = b.wait_for_lock(fds[1], F_WRLCK, 0, 1, deadline=2 * visibility_timeout)
    told = one.done(within=1.5) or two.done(within=1.5)
    observe("a deadlock of two clients is found" if told else "two clients wait for each other for ever")


@pytest.mark.case("SHR-LOCK-28", level="MAY", section="RFC 7530 9.1; MS-SMB2 3.3.5.12", kills=())
def test_locks_may_bind_those_who_do_not_ask(a, b, fds, crossed_wire, observe):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    try:
        b.evict(fds[1])
        b.pread(fds[1], 10)
    except OSError:
        observe("mandatory: nobody reads what another has locked for writing")
    else:
        observe("advisory: who does not ask for a lock may read")
