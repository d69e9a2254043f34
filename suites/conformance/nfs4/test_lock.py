"""LOCK, LOCKT and LOCKU (RFC 7530 16.10 to 16.12, RFC 8881 18.10 to 18.12)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import INVALID, op, read, setattr_, write
from storagetest.wire.nfs4.state import WHOLE, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_SIZE,
    OPEN4_SHARE_ACCESS_READ,
    LOCK4args,
    LOCKU4args,
    exist_lock_owner4,
    locker4,
    nfs_lock_type4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

READ, WRITE = nfs_lock_type4.READ_LT, nfs_lock_type4.WRITE_LT


@pytest.fixture
def file(here, owner):
    """Yield an open file without locks. CLOSE at the end may be refused if there are locks."""
    here.file(data=bytes(1000))
    opened = owner.open(here.handle, b"file")
    yield opened
    opened.try_close()


@pytest.fixture
def holder(nfs):
    """Return a lock owner of the client of ``file``."""
    return StateOwner(nfs)


@pytest.fixture
def other(bench, here, version):
    """Yield the same file, opened by another client."""
    opened = StateOwner(bench.client(version)).open(here.handle, b"file")
    yield opened
    opened.try_close()


@pytest.fixture
def rival(other):
    """Return a lock owner of the client of ``other``."""
    return StateOwner(other.client)


@rule(
    "LOCK-CONFLICT",
    "16.10.4",
    "18.10.3",
    kills=("lock-denied",),
    over={"RW": (READ, WRITE), "WR": (WRITE, READ), "WW": (WRITE, WRITE)},
)
def test_a_lock_that_conflicts_is_denied(file, holder, other, rival, what):
    ok(file.lock(holder, what[0], 100, 50))
    refused(other.lock(rival, what[1], 149, 1), nfsstat4.NFS4ERR_DENIED)


@rule(
    "LOCK-DENIED",
    "16.10.4",
    "18.10.3",
    level="SHOULD",
    kills=("denied-offset", "denied-length", "denied-type", "denied-owner"),
)
def test_the_lock_that_conflicts_is_described(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 50))
    denied = refused(other.lock(rival, READ, 120, 10), nfsstat4.NFS4ERR_DENIED)["LOCK"]
    assert (denied.offset, denied.length) == (100, 50)
    assert denied.locktype == WRITE
    assert denied.owner.owner == holder.name


@rule("LOCK-SHARED", "16.10.4", "18.10.3", kills=("lock-refused",))
def test_read_locks_do_not_conflict(file, holder, other, rival):
    ok(file.lock(holder, READ, 100, 50))
    ok(other.lock(rival, READ, 100, 50))


@rule(
    "LOCK-ADJACENT",
    "16.10.4",
    "18.10.3",
    level="SHOULD",  # a server may support offsets of 32 bits only (BAD_RANGE)
    kills=("lock-whole",),
    over={"BEFORE": (99, 1), "AFTER": (150, WHOLE)},
)
def test_ranges_that_do_not_overlap_do_not_conflict(file, holder, other, rival, what):
    ok(file.lock(holder, WRITE, 100, 50))
    ok(other.lock(rival, WRITE, *what))


@rule(
    "LOCK-RANGE",
    "16.10.4",
    "18.10.3",
    kills=("lock-inval",),
    over={"ZERO": (0, 0), "OVERFLOW": (WHOLE, 2), "LONG": (2, WHOLE - 1)},
)
def test_an_invalid_range_is_not_locked(file, holder, what):
    refused(file.lock(holder, WRITE, *what), nfsstat4.NFS4ERR_INVAL, nfsstat4.NFS4ERR_BAD_RANGE)


@rule(
    "LOCKT-RANGE", "16.11.4", "18.11.3", kills=("lock-inval",), over={"ZERO": (0, 0), "OVERFLOW": (WHOLE, 2)}
)
def test_an_invalid_range_is_not_tested(file, holder, what):
    refused(file.test(holder, WRITE, *what), nfsstat4.NFS4ERR_INVAL)


@rule(
    "LOCKU-RANGE", "16.12.4", "18.12.3", kills=("lock-inval",), over={"ZERO": (0, 0), "OVERFLOW": (WHOLE, 2)}
)
def test_an_invalid_range_is_not_unlocked(file, holder, what):
    ok(file.lock(holder, WRITE, 100, 50))
    refused(file.unlock(holder, *what), nfsstat4.NFS4ERR_INVAL)


@rule("LOCKT", "16.11.4", "18.11.3", kills=("lock-denied",))
def test_lockt_finds_a_lock_of_another_owner_and_none_of_its_own(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 50))
    ok(file.test(holder, WRITE, 100, 50))
    refused(other.test(rival, READ, 149, 1), nfsstat4.NFS4ERR_DENIED)


@rule("LOCKU", "16.12.4", "18.12.3", kills=("unlock-less",))
def test_another_client_locks_what_was_unlocked(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 50))
    ok(file.unlock(holder, 100, 50))
    ok(other.lock(rival, WRITE, 100, 50))


@rule(
    "LOCKU-KIND",
    "16.12.4",
    "18.12.3",
    kills=("locku-kind-compared",),
    over={kind.name.removesuffix("_LT"): kind for kind in nfs_lock_type4},
)
def test_the_kind_in_an_unlock_has_no_effect(file, holder, other, rival, what):
    """A server accepts any legal value, whatever the kind of the lock is."""
    for kind in (READ, WRITE):
        ok(file.lock(holder, kind, 100, 50))
        ok(file.unlock(holder, 100, 50, kind=what))
        ok(other.lock(rival, WRITE, 100, 50))
        ok(other.unlock(rival, 100, 50))


@rule("LOCK-SEQID", "9.1.4.2", "8.2.2", kills=("lock-seqid",))
def test_each_lock_increments_the_seqid_of_the_stateid(file, holder):
    first = ok(file.lock(holder, WRITE, 0, 10))["LOCK"].lock_stateid
    second = ok(file.lock(holder, WRITE, 20, 10))["LOCK"].lock_stateid
    assert second.other == first.other
    assert second.seqid == first.seqid + 1


@rule("LOCK-OPENMODE", "16.10.5", "18.10.4", kills=("lock-openmode",))
def test_a_write_lock_through_an_open_for_reading_is_granted_or_refused_with_openmode(here, owner, holder):
    here.file()
    opened = owner.open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    locked = opened.lock(holder, WRITE, 0, 10)
    if locked.status != nfsstat4.NFS4_OK:  # a server may grant it
        refused(locked, nfsstat4.NFS4ERR_OPENMODE)
    opened.try_close()


# Upgrades, parts of a range


def done_if_supported(done, *refusals):
    """Assert that ``done`` succeeded; skip the case if it ended with one of ``refusals``."""
    if done.status in refusals:
        pytest.skip(f"the server does not support it: {done.status.name}")
    return ok(done)


@rule(
    "LOCK-UPGRADE",
    "9.3",
    "9.3",
    kills=(
        "lock-upgrade-read",
        "lock-reads",
    ),
)
def test_a_read_lock_becomes_a_write_lock(file, holder, other, rival):
    ok(file.lock(holder, READ, 100, 50))
    done_if_supported(file.lock(holder, WRITE, 100, 50), nfsstat4.NFS4ERR_LOCK_NOTSUPP)
    refused(other.lock(rival, READ, 100, 50), nfsstat4.NFS4ERR_DENIED)


@rule("LOCK-UPGRADE-CONFLICT", "9.3", "9.3", kills=("lock-denied", "lock-reads"))
def test_a_read_lock_that_another_owner_shares_does_not_become_a_write_lock(file, holder, other, rival):
    ok(file.lock(holder, READ, 100, 50))
    ok(other.lock(rival, READ, 100, 50))
    refusals = nfsstat4.NFS4ERR_DENIED, nfsstat4.NFS4ERR_DEADLOCK, nfsstat4.NFS4ERR_LOCK_NOTSUPP
    refused(file.lock(holder, WRITE, 100, 50), *refusals)


@rule("LOCK-DOWNGRADE", "9.3", "9.3", kills=("lock-writes",))
def test_a_write_lock_becomes_a_read_lock(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 50))
    done_if_supported(file.lock(holder, READ, 100, 50), nfsstat4.NFS4ERR_LOCK_NOTSUPP)
    ok(other.lock(rival, READ, 100, 50))


@rule(
    "LOCK-DENIED-KIND",
    "16.10.4",
    "18.10.3",
    level="SHOULD",
    kills=("denied-type-first",),
    over={"UP": (READ, WRITE), "DOWN": (WRITE, READ)},
)
def test_a_denial_has_the_kind_that_the_lock_was_changed_to(file, holder, other, rival, what):
    """The lock that conflicts is described as it is, and not as it was first."""
    for kind in what:
        done_if_supported(file.lock(holder, kind, 100, 50), nfsstat4.NFS4ERR_LOCK_NOTSUPP)
    denied = refused(other.lock(rival, WRITE, 100, 50), nfsstat4.NFS4ERR_DENIED)["LOCK"]
    assert denied.locktype == what[1]


@rule("LOCKU-PART", "9.2", "9.2", kills=("unlock-less", "unlock-all", "locku-middle-all"))
def test_a_part_of_a_range_is_unlocked_and_the_rest_stays(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 300))
    done_if_supported(file.unlock(holder, 200, 100), nfsstat4.NFS4ERR_LOCK_RANGE)
    ok(other.lock(rival, WRITE, 200, 100))
    refused(other.lock(rival, READ, 199, 1), nfsstat4.NFS4ERR_DENIED)
    refused(other.lock(rival, READ, 300, 1), nfsstat4.NFS4ERR_DENIED)


@rule("LOCKU-OVER", "9.2", "9.2", kills=("unlock-less",))
def test_two_locks_are_unlocked_as_one_range(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 100, 100))
    ok(file.lock(holder, WRITE, 200, 100))
    done_if_supported(file.unlock(holder, 100, 200), nfsstat4.NFS4ERR_LOCK_RANGE)
    ok(other.lock(rival, WRITE, 100, 200))


@rule("LOCK-AGAIN", "9.2", "9.2", kills=("lock-once",))
def test_an_owner_locks_its_own_range_again(file, holder):
    ok(file.lock(holder, WRITE, 100, 50))
    done_if_supported(file.lock(holder, WRITE, 120, 100), nfsstat4.NFS4ERR_LOCK_RANGE)


BLOCKING = {"READW": nfs_lock_type4.READW_LT, "WRITEW": nfs_lock_type4.WRITEW_LT}


@rule("LOCK-BLOCKING", "9.4", "9.6", kills=("lock-denied",), over=BLOCKING)
def test_a_blocking_lock_that_conflicts_is_denied(file, holder, other, rival, what):
    ok(file.lock(holder, WRITE, 100, 50))
    refused(other.lock(rival, what, 149, 1), nfsstat4.NFS4ERR_DENIED)


# State


@rule("LOCK-BAD-STATEID", "16.10.5", "18.10.4", kills=("lock-bad-stateid",))
def test_a_lock_through_an_unknown_open_is_refused(file, holder):
    refused(file.lock(holder, WRITE, 0, 10, stateid=INVALID), nfsstat4.NFS4ERR_BAD_STATEID)


@rule("LOCKU-OLD", "9.1.4.2", "8.2.2", kills=("lock-old-stateid",))
def test_a_stateid_of_an_earlier_lock_is_old(file, holder):
    first = ok(file.lock(holder, WRITE, 0, 10))["LOCK"].lock_stateid
    ok(file.lock(holder, WRITE, 20, 10))
    refused(file.unlock(holder, 0, 10, stateid=first), nfsstat4.NFS4ERR_OLD_STATEID)


@rule("LOCK-CLOSE", "16.2.4", "18.2.3", kills=("close-locks",))
def test_a_close_releases_the_locks_or_is_refused(here, file, holder):
    again = StateOwner(file.client).open(here.handle, b"file")
    ok(file.lock(holder, WRITE, 100, 50))
    closed = file.try_close()
    if closed.status != nfsstat4.NFS4ERR_LOCKS_HELD:
        ok(closed)
        ok(again.lock(StateOwner(file.client), WRITE, 100, 50))
    again.try_close()


# Sequence ids of minor version 0


def locking(file, holder, offset, *, more=0):
    """Return LOCK of 10 bytes by an owner that has a lock; ``more`` is added to the next sequence id."""
    locker = locker4(False, exist_lock_owner4(file.locks[holder.name], holder.seqid + more))
    return op("LOCK", LOCK4args(WRITE, False, offset, 10, locker))


def unlocking(file, holder, *, more=0):
    """Return LOCKU of the first 10 bytes; ``more`` is added to the next sequence id."""
    return op("LOCKU", LOCKU4args(WRITE, holder.seqid + more, file.locks[holder.name], 0, 10))


@rule("LOCK-REPLAY", "9.1.7", kills=("replay-lock",))
def test_a_retransmitted_lock_has_the_same_result(file, holder):
    ok(file.lock(holder, WRITE, 0, 10))
    lock = locking(file, holder, 20)
    first, second = (ok(file.on(lock))["LOCK"].lock_stateid for _ in range(2))
    assert first == second


@rule("LOCKU-REPLAY", "9.1.7", kills=("replay-unlock",))
def test_a_retransmitted_unlock_has_the_same_result(file, holder):
    ok(file.lock(holder, WRITE, 0, 10))
    unlock = unlocking(file, holder)
    first, second = (ok(file.on(unlock))["LOCKU"] for _ in range(2))
    assert first == second


@rule("LOCK-REPLAY-DENIED", "9.1.7", kills=("replay-denied",))
def test_a_retransmitted_lock_that_was_denied_is_denied_again(file, holder, other, rival):
    ok(file.lock(holder, WRITE, 0, 10))
    ok(other.lock(rival, WRITE, 20, 10))
    lock = locking(file, holder, 20)
    refused(file.on(lock), nfsstat4.NFS4ERR_DENIED)
    ok(other.unlock(rival, 20, 10))
    refused(file.on(lock), nfsstat4.NFS4ERR_DENIED)


@rule("LOCK-BAD-SEQID", "9.1.7", kills=("lock-bad-seqid",), over={"NEXT": 1, "FAR": 1000})
def test_a_lock_and_an_unlock_with_another_sequence_id_are_refused(file, holder, what):
    ok(file.lock(holder, WRITE, 0, 10))
    refused(file.on(locking(file, holder, 20, more=what)), nfsstat4.NFS4ERR_BAD_SEQID)
    refused(file.on(unlocking(file, holder, more=what)), nfsstat4.NFS4ERR_BAD_SEQID)


# I/O with the stateid of locks


@rule("LOCK-IO", "9.1.5", "8.2.5", kills=("lock-stateid-no-io",), over={"READ": 0, "WRITE": 1, "SETATTR": 2})
def test_the_stateid_of_locks_is_one_for_io(file, holder, what):
    """READ, WRITE and SETATTR of a size accept the stateid of a LOCK, and of a later LOCKU."""

    def accepted():
        stateid = file.locks[holder.name]
        made = read(stateid, 0, 10), write(stateid, 0, b"0123456789"), setattr_({FATTR4_SIZE: 500}, stateid)
        ok(file.on(made[what]))

    ok(file.lock(holder, WRITE, 0, 10))
    accepted()
    ok(file.lock(holder, WRITE, 20, 10))
    accepted()
    ok(file.unlock(holder, 20, 10))
    accepted()
    ok(file.unlock(holder))
