"""Stateids of open files, OPEN_DOWNGRADE and CLOSE (RFC 7530 9.1.4, RFC 8881 8.2)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import again, open_new, with_seqid
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    CURRENT,
    INVALID,
    READ_BYPASS,
    RESTOREFH,
    SAVEFH,
    close,
    op,
    putfh,
    read,
    unchecked,
)
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WRITE,
    OPEN4_SHARE_DENY_BOTH,
    OPEN4_SHARE_DENY_WRITE,
    FREE_STATEID4args,
    OPEN_DOWNGRADE4args,
    TEST_STATEID4args,
    nfs_argop4,
    nfsstat4,
    stateid4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

READ, WRITE, BOTH = OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_ACCESS_BOTH
BAD, OLD = nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_OLD_STATEID
DEVIATES = "NFS-Ganesha, the target of the mutants, breaks this rule itself"
SPECIAL = {"ANONYMOUS": ANONYMOUS, "BYPASS": READ_BYPASS}


@pytest.fixture
def upgraded(nfs, here) -> OpenFile:
    """Return a file that its owner opened for READ, and then for READ and WRITE."""
    file = open_new(nfs, here.handle, access=READ)
    again(file, here.handle, access=BOTH)
    return file


def downgrade(file: OpenFile, stateid: stateid4) -> nfs_argop4:
    """Return OPEN_DOWNGRADE to READ with this stateid."""
    return op("OPEN_DOWNGRADE", OPEN_DOWNGRADE4args(stateid, file.owner.seqid, READ, 0))


OPERATIONS = {
    "READ": lambda _file, stateid: read(stateid, 0, 10),
    "CLOSE": lambda file, stateid: close(stateid, file.owner.seqid),
    "DOWNGRADE": downgrade,
}


# OPEN_DOWNGRADE


@rule("OD-01", "16.19", "18.18.3", kills=("downgrade-refused", "downgrade-other", "downgrade-seqid"))
def test_a_downgrade_has_the_next_stateid(upgraded):
    before = upgraded.stateid
    ok(upgraded.downgrade(READ, 0))
    assert (upgraded.stateid.other, upgraded.stateid.seqid) == (before.other, before.seqid + 1)
    upgraded.close()


@rule(
    "OD-SHARE",
    "16.19",
    "18.18.3",
    kills=(
        "downgrade-keeps-write",
        "downgrade-access",
    ),
)
def test_a_downgrade_gives_up_access(nfs, here, upgraded):
    ok(upgraded.downgrade(READ, 0))
    open_new(nfs, here.handle, access=READ, deny=OPEN4_SHARE_DENY_WRITE).close()
    upgraded.close()


@rule("OD-DENY", "16.19", "18.18.3", kills=("downgrade-deny",))
def test_a_downgrade_gives_up_a_denial(nfs, here):
    file = open_new(nfs, here.handle, access=READ)
    again(file, here.handle, access=READ, deny=OPEN4_SHARE_DENY_WRITE)
    ok(file.downgrade(READ, 0))
    open_new(nfs, here.handle, access=WRITE).close()
    file.close()


@rule("OD-KEEPS", "16.19", "18.18.3", kills=("share-ignored", "share-error"))
def test_a_downgrade_keeps_the_rest(nfs, here, upgraded):
    ok(upgraded.downgrade(READ, 0))
    done = StateOwner(nfs).try_open(here.handle, b"file", access=WRITE, deny=OPEN4_SHARE_DENY_BOTH)
    refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    upgraded.close()


@rule(
    "OD-MORE", "16.19", "18.18.3", level="SHOULD", kills=("downgrade-inval",), over={"A": (3, 0), "D": (1, 2)}
)
def test_a_downgrade_to_more_is_invalid(nfs, here, what):
    file = open_new(nfs, here.handle, access=READ)
    refused(file.downgrade(*what), nfsstat4.NFS4ERR_INVAL)


@rule("OD-SUBSET", "16.19", "18.18.3", level="SHOULD", kills=("downgrade-inval",))
def test_a_downgrade_to_a_share_of_no_open_is_invalid(nfs, here):
    file = open_new(nfs, here.handle, access=BOTH)
    refused(file.downgrade(READ, 0), nfsstat4.NFS4ERR_INVAL)


@rule("OD-BITS", "", "18.18.3", kills=("downgrade-inval",), over={"A0": (0, 0), "D4": (1, 4)})
def test_a_downgrade_to_other_bits_is_invalid(upgraded, what):
    refused(upgraded.downgrade(*what), nfsstat4.NFS4ERR_INVAL)
    upgraded.close()


# CLOSE


@rule("CLOSE-01", "16.2", "18.2.3", kills=("close-refused",))
def test_a_file_is_closed(nfs, here):
    open_new(nfs, here.handle).close()


@rule("CLOSE-SHARE", "16.2", "18.2.3", kills=("close-keeps",))
def test_close_ends_the_share(nfs, here):
    open_new(nfs, here.handle, access=READ, deny=OPEN4_SHARE_DENY_BOTH).close()
    open_new(nfs, here.handle, access=BOTH).close()


@rule("CLOSE-OTHERS", "16.2", "18.2.3", kills=("share-ignored", "share-error"))
def test_close_leaves_the_opens_of_others(nfs, here):
    first, second = open_new(nfs, here.handle, access=READ), open_new(nfs, here.handle, access=READ)
    first.close()
    done = StateOwner(nfs).try_open(here.handle, b"file", access=READ, deny=OPEN4_SHARE_DENY_BOTH)
    refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    second.close()


@rule("CLOSE-SEQID", "", "18.2.3", kills=("close-seqid",))
def test_close_ignores_the_sequence_id_of_the_owner(nfs, here):
    file = open_new(nfs, here.handle)
    ok(file.on(close(file.stateid, 0xFFFFFFFF)))


@rule("CLOSE-NOFH", "16.2", "18.2.3", kills=("close-nofh",))
def test_close_needs_a_filehandle(nfs, here):
    file = open_new(nfs, here.handle)
    refused(nfs.compound(close(file.stateid, file.owner.seqid)), nfsstat4.NFS4ERR_NOFILEHANDLE)
    file.close()


@rule("CLOSE-OTHER-FH", "9.1.4", "8.2.4", kills=("bad-stateid",))
def test_close_of_another_file_is_refused(nfs, here):
    file, other = open_new(nfs, here.handle), here.file(b"other")
    done = nfs.compound(putfh(other), close(file.stateid, file.owner.seqid))
    refused(done, BAD)
    file.close()


@rule("CLOSE-RESULT", "", "18.2.4", level="SHOULD", kills=("close-stateid",))
def test_close_returns_the_invalid_stateid(nfs, here):
    assert open_new(nfs, here.handle).close()["CLOSE"] == INVALID


# Stateids


@rule("SID-FIRST", "", "8.2.2", kills=("open-seqid-first",))
def test_the_first_stateid_of_an_open_has_the_sequence_id_1(nfs, here):
    file = open_new(nfs, here.handle)
    assert file.stateid.seqid == 1
    file.close()


@rule("SID-OLD", "9.1.4", "8.2.4", kills=("old-stateid",), over=OPERATIONS)
def test_an_old_stateid_is_refused(upgraded, what):
    old = with_seqid(upgraded.stateid, upgraded.stateid.seqid - 1)
    refused(upgraded.on(what(upgraded, old)), OLD)


@rule("SID-FUTURE", "9.1.4", "8.2.4", kills=("bad-stateid",), over=OPERATIONS)
def test_a_stateid_of_the_future_is_bad(upgraded, what):
    future = with_seqid(upgraded.stateid, upgraded.stateid.seqid + 1)
    refused(upgraded.on(what(upgraded, future)), BAD)
    upgraded.close()


@rule(
    "SID-CLOSED",
    "9.1.4",
    "8.2.4",
    kills=("bad-stateid",),
    over={"READ": OPERATIONS["READ"], "DOWNGRADE": downgrade},
)
def test_the_stateid_of_a_closed_file_is_bad(upgraded, what):
    upgraded.close()
    refused(upgraded.on(what(upgraded, upgraded.stateid)), BAD)


@rule("CLOSE-AGAIN", "9.1.4", "8.2.4", no_mutant_reason=DEVIATES)
def test_a_file_is_not_closed_twice(upgraded):
    upgraded.close()
    refused(upgraded.on(close(upgraded.stateid, upgraded.owner.seqid)), BAD)


@rule("SID-SPECIAL-CLOSE", "9.1.4.3", "8.2.3", kills=("bad-stateid",), over=SPECIAL)
def test_close_with_a_special_stateid_is_refused(upgraded, what):
    refused(upgraded.on(close(what, upgraded.owner.seqid)), BAD)
    upgraded.close()


@rule("SID-SPECIAL-DOWNGRADE", "9.1.4.3", "8.2.3", kills=("bad-stateid",), over=SPECIAL)
def test_a_downgrade_with_a_special_stateid_is_refused(upgraded, what):
    refused(upgraded.on(downgrade(upgraded, what)), BAD)
    upgraded.close()


@rule("SID-INVALID", "", "8.2.3", kills=("bad-stateid",), over=OPERATIONS)
def test_the_invalid_stateid_is_refused(upgraded, what):
    refused(upgraded.on(what(upgraded, INVALID)), BAD)
    upgraded.close()


@rule("SID-ZERO", "", "8.2.2", kills=("zero-seqid",), over=OPERATIONS)
def test_a_stateid_with_the_sequence_id_0_is_the_latest(upgraded, what):
    ok(upgraded.on(what(upgraded, with_seqid(upgraded.stateid, 0))))


# The current stateid


@rule("SID-CURRENT-CLOSE", "", "16.2.3.1.2", kills=("current-stateid",))
def test_an_open_sets_the_current_stateid(nfs, here, owner):
    opening = owner.open_op(b"file", how=unchecked(), deny=OPEN4_SHARE_DENY_BOTH)
    ok(nfs.compound(putfh(here.handle), opening, read(CURRENT, 0, 10), close(CURRENT)))
    open_new(nfs, here.handle).close()


@rule("SID-CURRENT-NONE", "", "16.2.3.1.2", kills=("bad-stateid",), over={"PUTFH": True, "COMPOUND": False})
def test_a_new_current_filehandle_has_no_current_stateid(nfs, here, what):
    file = open_new(nfs, here.handle)
    before = [putfh(file.handle), read(file.stateid, 0, 10)] if what else []
    if not what:
        ok(file.on(read(file.stateid, 0, 10)))
    refused(nfs.compound(*before, putfh(file.handle), read(CURRENT, 0, 10)), BAD)
    file.close()


@rule("SID-CURRENT-SAVED", "", "16.2.3.1.2", kills=("current-stateid",))
def test_the_current_stateid_is_saved_and_restored(nfs, here, owner):
    opening = owner.open_op(b"file", how=unchecked())
    saved = [putfh(here.handle), opening, SAVEFH, putfh(here.handle), RESTOREFH]
    ok(nfs.compound(*saved, close(CURRENT)))


# TEST_STATEID and FREE_STATEID


@rule("TS-STATE", "", "18.48.3", kills=("ts-states",), over={"OLD": OLD, "FUTURE": BAD, "CLOSED": BAD})
def test_the_status_of_a_stateid_is_that_of_its_use(nfs, upgraded, what, request):
    name = request.node.callspec.id
    stateid = upgraded.stateid
    if "CLOSED" in name:
        upgraded.close()
    else:
        stateid = with_seqid(stateid, stateid.seqid + (1 if "FUTURE" in name else -1))
    found = ok(nfs.compound(op("TEST_STATEID", TEST_STATEID4args((stateid,)))))["TEST_STATEID"]
    assert found.tsr_status_codes == (what,)


@rule("FS-UNLOCKED", "", "18.38.3", kills=("fs-lock",))
def test_the_stateid_of_locks_that_are_released_is_freed(nfs, here):
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(file.lock(locker))
    ok(file.unlock(locker))
    ok(nfs.compound(op("FREE_STATEID", FREE_STATEID4args(file.locks[locker.name]))))
    file.close()


@rule(
    "FS-LOCKED",
    "",
    "18.38.3",
    kills=(
        "free-stateid-held",
        "fs-held",
    ),
)
def test_the_stateid_of_locks_that_are_held_is_not_freed(nfs, here):
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(file.lock(locker))
    done = nfs.compound(op("FREE_STATEID", FREE_STATEID4args(file.locks[locker.name])))
    refused(done, nfsstat4.NFS4ERR_LOCKS_HELD)
    ok(file.unlock(locker))
    file.close()
