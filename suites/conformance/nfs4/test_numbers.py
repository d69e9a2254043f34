"""Large offsets and counts, attributes that are set in pairs, and many entries, opens, locks and lock owners.

Sections are those of RFC 7530 16 and RFC 8881 18.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import open_new
from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries
from storagetest.wire.nfs4.operations import ANONYMOUS, op, putfh, read, readdir, setattr_, unchecked, write
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_MODE,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SIZE,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    LOCK4args,
    locker4,
    nfs_lock_type4,
    nfsstat4,
    nfstime4,
    open_to_lock_owner4,
    settime4,
    time_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

DEVIATES = "the server of the mutants breaks this rule itself"
FAR = {"OVER": (1 << 63) - 50, "63": 1 << 63, "64": (1 << 64) - 200}
"""Offsets of a READ of 100 bytes: it passes 2^63, or begins there or behind it."""


def check_nothing_there(nfs, here, offset):
    """Check that READ at ``offset``, which is behind the end, returns NFS4_OK, no data and eof."""
    found = ok(nfs.compound(putfh(here.file(data=b"0123456789")), read(ANONYMOUS, offset, 100)))["READ"]
    assert (found.data, found.eof) == (b"", True)


@rule("READ-FAR", "16.23.4", "18.22.3", over={"62": (1 << 63) - 200}, kills=("read-far-refused",))
def test_an_offset_has_more_than_62_bits(nfs, here, what):
    check_nothing_there(nfs, here, what)


@rule("READ-FAR", "16.23.4", "18.22.3", over=FAR, no_mutant_reason=DEVIATES)
def test_an_offset_has_64_bits_without_a_sign(nfs, here, what):
    """A READ behind the end returns no data and eof, however far behind it is."""
    check_nothing_there(nfs, here, what)


COUNTS = {"31": 1 << 31, "32": (1 << 32) - 1}
"""Counts whose highest bit is set: count4 is an unsigned number of 32 bits."""


@rule("READ-COUNT", "16.23.4", over=COUNTS, kills=("count-signed",))
def test_a_read_of_any_count_returns_what_there_is(nfs, here, what):
    """The server may return fewer bytes than the client asks for.

    In a session it may count them all as a reply, which is too big (RFC 8881 2.10.6.4).
    """
    found = ok(nfs.compound(putfh(here.file(data=b"0123456789")), read(ANONYMOUS, 0, what)))["READ"]
    assert found.data, "a READ of a file of 10 bytes returns nothing"
    assert b"0123456789".startswith(found.data)
    assert found.eof == (len(found.data) == 10)


@rule("READDIR-COUNT", "16.24.4", "18.23.3", over=COUNTS, kills=("count-signed",))
def test_a_readdir_of_any_count_lists_a_directory(nfs, here, what):
    """Maxcount is the most that the server may return, and dircount is a hint."""
    here.file()
    done = nfs.compound(putfh(here.handle), readdir(dircount=what, maxcount=what))
    if nfs.minor and done.status == nfsstat4.NFS4ERR_REP_TOO_BIG:
        pytest.skip("the server takes maxcount for the size of the reply (NFS4ERR_REP_TOO_BIG)")
    assert [one.name for one in ok(done)["READDIR"].reply.entries] == [b"file"]


MANY = 300
"""Entries of a directory of several pages and blocks (chosen)."""


@rule("READDIR-MANY", "16.24.4", "18.23.3", kills=("readdir-many-lost",))
def test_a_directory_of_many_entries_is_listed_whole(nfs, here):
    wanted = [b"entry-%04d" % at for at in range(MANY)]
    here.directories(wanted)
    found = [one.name for one in entries(nfs, here.handle)]
    assert len(found) == len(set(found)), "a name is listed twice"
    assert sorted(found) == wanted, f"{len(set(wanted) - set(found))} of {MANY} names are not listed"


THEN = nfstime4(1_100_000_000, 0)
SET = {
    FATTR4_MODE: 0o640,
    FATTR4_OWNER: b"4001",
    FATTR4_OWNER_GROUP: b"4002",
    FATTR4_SIZE: 7,
    FATTR4_TIME_MODIFY_SET: settime4(time_how4.SET_TO_CLIENT_TIME4, THEN),
}
GET = {FATTR4_TIME_MODIFY_SET: FATTR4_TIME_MODIFY}
"""Attributes that are read by another number than they are set by."""


@rule("SETATTR-PAIRS", "16.32.4", "18.30.3", kills=("setattr-owner-with-mode",))
def test_each_two_attributes_are_set_together(nfs, here, facts):
    """SETATTR changes one or more attributes, and states which it has set; the others stay as they were."""
    names = {one: SET[one] for one in SET if one in facts.supported[nfs.minor]}
    owners = {one: value for one, value in names.items() if one in (FATTR4_OWNER, FATTR4_OWNER_GROUP)}
    first = here.file(b"first")
    done = nfs.compound(putfh(first), setattr_(owners))
    if done.status != nfsstat4.NFS4_OK:
        refused(done, nfsstat4.NFS4ERR_BADOWNER, nfsstat4.NFS4ERR_INVAL, nfsstat4.NFS4ERR_PERM)
        pytest.skip(f"the server does not set the owner 4001 ({done.status.name})")
    stated = here.read(first, *owners)  # a number may have a name
    for at, pair in enumerate(combinations(names, 2)):
        file = here.file(b"file-%d" % at, data=b"0123456789")
        kept = [one for one in (FATTR4_MODE, *owners, FATTR4_SIZE) if one not in pair]
        wanted = here.read(file, *kept)
        wanted |= {GET.get(one, one): {**names, **stated, FATTR4_TIME_MODIFY_SET: THEN}[one] for one in pair}
        done = ok(nfs.compound(putfh(file), setattr_({one: names[one] for one in pair})))
        assert numbers_of(done["SETATTR"].attrsset) == tuple(sorted(pair))
        assert here.read(file, *wanted) == wanted, f"after a SETATTR of the attributes {pair}"


# Much state

OPENS, RANGES, LOCKERS = 40, 40, 12
"""Open files of one owner, ranges of one lock owner, and lock owners of one open file (chosen)."""
WRITE = nfs_lock_type4.WRITE_LT


def granted(done):
    """Return ``done``, which succeeded; skip if the server lacks resources for so much state."""
    if done.status in (nfsstat4.NFS4ERR_RESOURCE, nfsstat4.NFS4ERR_DELAY):
        pytest.skip(f"the server has no resources for so much state ({done.status.name})")
    return ok(done)


@pytest.fixture
def held(nfs, here):
    """Yield a new file, open to be locked."""
    file = open_new(nfs, here.handle)
    yield file
    file.try_close()


@pytest.fixture
def other(bench, here, version):
    """Yield the file as another client has opened it."""
    file = open_new(bench.client(version), here.handle)
    yield file
    file.try_close()


@rule("OPENS-MANY", "9.1.4.4", "8.2.4", kills=("opens-many-forgotten",))
def test_each_of_many_stateids_is_that_of_its_file(owner, here):
    """A stateid is valid until its locks are returned, however many the server has given after it."""
    files = [
        owner.opened(granted(owner.try_open(here.handle, b"file-%d" % at, how=unchecked())))
        for at in range(OPENS)
    ]
    assert len({one.stateid.other for one in files}) == OPENS, "two open files have one stateid"
    for at, one in enumerate(files):
        ok(one.on(write(one.stateid, 0, b"data of %d" % at)))
    for at, one in enumerate(files):
        assert ok(one.on(read(one.stateid, 0, 100)))["READ"].data == b"data of %d" % at
        one.close()


def check_locked(rival: OpenFile, ranges):
    """Check that a lock of each of ``ranges`` is denied to another client, and one between them is not."""
    tester = StateOwner(rival.client)
    for offset in ranges:
        found = refused(rival.test(tester, WRITE, offset, 1), nfsstat4.NFS4ERR_DENIED).of("LOCKT").value
        assert (found.offset, found.length) == (offset, 1)
        ok(rival.test(tester, WRITE, offset + 1, 1))


@rule("LOCK-MANY", "9.2", "9.2", kills=("lock-many-forgotten",))
def test_each_of_many_ranges_is_locked(nfs, held, other):
    locker, ranges = StateOwner(nfs), [10 * at for at in range(RANGES)]
    for offset in ranges:
        granted(held.lock(locker, WRITE, offset, 1))
    check_locked(other, ranges)
    for offset in ranges:
        ok(held.unlock(locker, offset, 1))
    ok(other.test(StateOwner(other.client)))


@rule("LOCKERS-MANY", "9.1.1", "9.1.1", kills=("lockers-many-forgotten",))
def test_each_of_many_lock_owners_has_its_range(nfs, held, other):
    lockers = {10 * at: StateOwner(nfs) for at in range(LOCKERS)}
    for offset, locker in lockers.items():
        granted(held.lock(locker, WRITE, offset, 1))
    assert len({one.other for one in held.locks.values()}) == LOCKERS, "two lock owners have one stateid"
    check_locked(other, lockers)
    for offset, locker in lockers.items():
        done = held.test(StateOwner(nfs), WRITE, offset, 1)
        assert refused(done, nfsstat4.NFS4ERR_DENIED).of("LOCKT").value.owner.owner == locker.name
    for offset, locker in lockers.items():
        ok(held.unlock(locker, offset, 1))


@rule("LOCK-NAMED-AGAIN", "", "18.10.3", kills=("lock-named-again",))
def test_a_lock_owner_that_has_locks_may_be_named_with_the_open(nfs, held, other):
    """A client that has no stateid of its locks at hand sends that of the open, and the lock owner."""
    locker = StateOwner(nfs)
    ok(held.lock(locker, WRITE, 0, 1))
    named = locker4(True, open_to_lock_owner4(0, held.stateid, 0, locker.wire))
    done = ok(held.on(op("LOCK", LOCK4args(WRITE, False, 10, 1, named))))
    assert done["LOCK"].lock_stateid.other == held.locks[locker.name].other, "the owner has a second stateid"
    check_locked(other, (0, 10))
    held.locks[locker.name] = done["LOCK"].lock_stateid
    ok(held.unlock(locker))


@rule("LOCK-TWO-OPENS", "", "9.5", no_mutant_reason=DEVIATES)
def test_a_lock_owner_locks_through_the_opens_of_two_open_owners(nfs, here, held, other):
    """A byte is locked as the last LOCK or LOCKU of its lock owner has it, through whichever open."""
    second, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(held.lock(locker, WRITE, 0, 10))
    done = second.lock(locker, WRITE, 5, 10)
    if done.status == nfsstat4.NFS4ERR_LOCK_RANGE:
        pytest.skip("the server locks no part of what its owner has locked (NFS4ERR_LOCK_RANGE)")
    ok(done)
    tester = StateOwner(other.client)
    for offset in (0, 9, 14):
        refused(other.test(tester, WRITE, offset, 1), nfsstat4.NFS4ERR_DENIED)
    ok(second.unlock(locker, 5, 10))
    ok(other.test(tester, WRITE, 5, 10))
    ok(held.unlock(locker, 0, 10))
    ok(other.test(tester))
    second.close()
