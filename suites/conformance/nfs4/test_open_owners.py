"""Owners and client ids of minor version 0: sequence ids, OPEN_CONFIRM, SETCLIENTID (RFC 7530 9.1, 16.33)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import again, open_new
from storagetest.suites.conformance.nfs4.slots import OTHER_USER, restarted
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.operations import GETFH, close, op, putfh, unchecked
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_DENY_BOTH,
    OPEN_CONFIRM4args,
    OPEN_DOWNGRADE4args,
    RELEASE_LOCKOWNER4args,
    RENEW4args,
    SETCLIENTID_CONFIRM4args,
    nfs_argop4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

READ, BOTH = OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_BOTH
FLIPPED = 0xFFFF_FFFF_FFFF_FFFF
STALE, BAD_SEQID = nfsstat4.NFS4ERR_STALE_CLIENTID, nfsstat4.NFS4ERR_BAD_SEQID
GONE = (STALE, nfsstat4.NFS4ERR_EXPIRED)
"""What a server returns for a client id of its own that is not, or no longer, confirmed (RFC 7530 13.1.5)."""

DEVIATES = "NFS-Ganesha, the target of the mutants, breaks this rule itself"


def renew(clientid: int) -> nfs_argop4:
    """Return RENEW (RFC 7530 16.28)."""
    return op("RENEW", RENEW4args(clientid))


def confirmation(clientid: int, verifier: bytes) -> nfs_argop4:
    """Return SETCLIENTID_CONFIRM (RFC 7530 16.34)."""
    return op("SETCLIENTID_CONFIRM", SETCLIENTID_CONFIRM4args(clientid, verifier))


def release(owner: StateOwner) -> nfs_argop4:
    """Return RELEASE_LOCKOWNER (RFC 7530 16.37)."""
    return op("RELEASE_LOCKOWNER", RELEASE_LOCKOWNER4args(owner.wire))


def unconfirmed(nfs: Nfs4Client, directory: bytes):
    """Open a file as a new owner; return both. Skip if OPEN is not to be confirmed."""
    owner = StateOwner(nfs)
    done = ok(owner.try_open(directory, b"file", how=unchecked()))
    if not done["OPEN"].rflags & OPEN4_RESULT_CONFIRM:
        pytest.skip("the server has no owner confirm its first OPEN: OPEN4_RESULT_CONFIRM is not set")
    return owner, done


# OPEN_CONFIRM


@rule("OC-01", "16.18", kills=("confirm-refused", "confirm-stateid"))
def test_a_confirmation_has_the_next_stateid(nfs, here):
    owner, done = unconfirmed(nfs, here.handle)
    opened = done["OPEN"].stateid
    confirm = op("OPEN_CONFIRM", OPEN_CONFIRM4args(opened, owner.seqid))
    found = ok(nfs.compound(putfh(done["GETFH"].object), confirm))["OPEN_CONFIRM"].open_stateid
    assert (found.other, found.seqid) == (opened.other, opened.seqid + 1)


@rule("OC-SEQID", "16.18", kills=("bad-seqid",))
def test_a_confirmation_with_another_sequence_id_is_refused(nfs, here):
    owner, done = unconfirmed(nfs, here.handle)
    confirm = op("OPEN_CONFIRM", OPEN_CONFIRM4args(done["OPEN"].stateid, owner.seqid + 5))
    refused(nfs.compound(putfh(done["GETFH"].object), confirm), BAD_SEQID)


@rule("OC-ONCE", "9.1.11", level="SHOULD", kills=("open-confirm",))
def test_an_owner_is_confirmed_once(nfs, here):
    file = open_new(nfs, here.handle)
    done = ok(file.owner.try_open(here.handle, b"other", how=unchecked()))
    assert not done["OPEN"].rflags & OPEN4_RESULT_CONFIRM


# The sequence id of an owner


@rule("OO-REPLAY-OPEN", "9.1.9", kills=("replay-open",))
def test_a_retransmitted_open_has_the_same_result(nfs, here):
    file = open_new(nfs, here.handle)
    opening = file.owner.open_op(b"other", how=unchecked())
    first, second = (ok(nfs.compound(putfh(here.handle), opening, GETFH)) for _ in range(2))
    assert second["OPEN"] == first["OPEN"]
    assert second["GETFH"] == first["GETFH"]


@rule("OO-REPLAY-FAILED", "9.1.9", kills=("replay-failed",))
def test_a_retransmitted_open_that_failed_has_the_same_error(nfs, here):
    file = open_new(nfs, here.handle)
    opening = file.owner.open_op(b"absent")
    refused(nfs.compound(putfh(here.handle), opening), nfsstat4.NFS4ERR_NOENT)
    here.file(b"absent")
    refused(nfs.compound(putfh(here.handle), opening), nfsstat4.NFS4ERR_NOENT)


@rule("OO-REPLAY-DOWNGRADE", "9.1.9", kills=("replay-downgrade",))
def test_a_retransmitted_downgrade_has_the_same_result(nfs, here):
    file = open_new(nfs, here.handle, access=READ)
    again(file, here.handle, access=BOTH)
    downgrade = op("OPEN_DOWNGRADE", OPEN_DOWNGRADE4args(file.stateid, file.owner.seqid, READ, 0))
    first, second = (ok(file.on(downgrade))["OPEN_DOWNGRADE"] for _ in range(2))
    assert first == second


@rule("OO-REPLAY-CLOSE", "9.1.9", kills=("replay-close",))
def test_a_retransmitted_close_has_the_same_result(nfs, here):
    file = open_new(nfs, here.handle)
    closing = close(file.stateid, file.owner.seqid)
    first, second = (ok(file.on(closing))["CLOSE"] for _ in range(2))
    assert first == second


@rule("OO-BAD", "9.1.7", kills=("bad-seqid",), over={"NEXT": 1, "FAR": 1000, "BEFORE": -2})
def test_an_open_with_another_sequence_id_is_refused(nfs, here, what):
    owner = StateOwner(nfs)
    owner.seqid = 100
    file = owner.open(here.handle, b"file", how=unchecked())
    right = owner.seqid
    file.owner.seqid = (right + what) & 0xFFFFFFFF
    refused(nfs.compound(putfh(here.handle), file.owner.open_op(b"file")), BAD_SEQID)
    file.owner.seqid = right
    file.close()


@rule("OO-BAD-CLOSE", "9.1.7", kills=("bad-seqid",))
def test_a_close_with_another_sequence_id_is_refused(nfs, here):
    file = open_new(nfs, here.handle)
    refused(file.on(close(file.stateid, file.owner.seqid + 1)), BAD_SEQID)
    file.close()


@rule("OO-EACH", "9.1.7", kills=("open-refused",))
def test_owners_have_sequence_ids_of_their_own(nfs, here):
    first, second = open_new(nfs, here.handle), open_new(nfs, here.handle)
    again(first, here.handle, access=READ)
    again(first, here.handle, access=READ)
    again(second, here.handle, access=READ)
    first.close()
    second.close()


@rule("OO-NEXT", "9.1.7", kills=("open-error-seqid",))
def test_an_open_that_fails_has_a_sequence_id(nfs, here):
    file = open_new(nfs, here.handle)
    refused(file.owner.try_open(here.handle, b"absent"), nfsstat4.NFS4ERR_NOENT)
    again(file, here.handle, access=READ)
    file.close()


@rule("OO-NEXT-OLD", "9.1.7", no_mutant_reason=DEVIATES)
def test_a_close_with_an_old_stateid_has_a_sequence_id(nfs, here):
    file = open_new(nfs, here.handle)
    old = file.stateid
    again(file, here.handle, access=READ)
    refused(file.try_close(old), nfsstat4.NFS4ERR_OLD_STATEID)
    file.close()


# SETCLIENTID


@rule("SCID-NEW", "16.33", kills=("scid-same-id",))
def test_two_clients_have_two_client_ids(bench, version):
    first, second = (ok(bench.new(version).setclientid())["SETCLIENTID"] for _ in range(2))
    assert first.clientid != second.clientid


@rule("SCID-UNCONFIRMED", "16.33", kills=("stale-clientid",))
def test_a_client_id_that_is_not_confirmed_opens_nothing(bench, here, version):
    nfs = bench.new(version)
    nfs.clientid = ok(nfs.setclientid())["SETCLIENTID"].clientid
    refused(StateOwner(nfs).try_open(here.handle, b"file", how=unchecked()), *GONE)


@rule("SCID-VERIFIER", "16.34", no_mutant_reason=DEVIATES)
def test_a_confirmation_with_another_verifier_is_refused(bench, version):
    nfs = bench.new(version)
    given = ok(nfs.setclientid())["SETCLIENTID"]
    other = bytes(byte ^ 0xFF for byte in given.setclientid_confirm)
    refused(nfs.raw(confirmation(given.clientid, other)), STALE)
    nfs.confirm(given)


@rule("SCID-ABSENT", "16.34", kills=("stale-clientid",))
def test_a_confirmation_of_an_absent_client_id_is_refused(nfs):
    refused(nfs.raw(confirmation(nfs.clientid ^ FLIPPED, b"verifier")), STALE)


@rule("SCID-REPLAY", "16.34", kills=("scid-replay", "confirm-again-stale"))
def test_a_retransmitted_confirmation_succeeds(bench, version):
    nfs = bench.new(version)
    given = ok(nfs.setclientid())["SETCLIENTID"]
    for _ in range(2):
        nfs.confirm(given)


@rule("SCID-UPDATE", "16.33", kills=("scid-update",))
def test_a_client_that_sets_its_callback_again_has_the_same_client_id(nfs, here):
    file = open_new(nfs, here.handle)
    given = ok(nfs.setclientid(ident=2))["SETCLIENTID"]
    assert given.clientid == nfs.clientid
    nfs.confirm(given)
    file.close()


@rule("SCID-RESTART", "16.33", kills=("scid-restart-same",))
def test_a_new_incarnation_has_another_client_id(bench, nfs):
    successor = restarted(bench, nfs)
    assert ok(successor.setclientid())["SETCLIENTID"].clientid != nfs.clientid
    ok(nfs.raw(renew(nfs.clientid)))


@rule("SCID-RESTART-STATE", "16.34", kills=("scid-keeps-state",))
def test_the_state_of_an_old_incarnation_ends_with_the_confirmation_of_the_new_one(bench, nfs, here):
    open_new(nfs, here.handle, deny=OPEN4_SHARE_DENY_BOTH)
    successor = restarted(bench, nfs).establish()
    open_new(successor, here.handle).close()
    refused(nfs.raw(renew(nfs.clientid)), *GONE)


@rule("SCID-INUSE", "16.33", kills=("scid-inuse",))
def test_the_client_of_another_user_with_state_is_in_use(bench, nfs, here, version):
    file = open_new(nfs, here.handle)
    other = bench.new(version, owner=nfs.owner, cred=OTHER_USER)
    refused(other.setclientid(), nfsstat4.NFS4ERR_CLID_INUSE)
    file.close()


# RENEW and RELEASE_LOCKOWNER


@rule("RENEW-01", "16.28", kills=("renew-refused",))
def test_a_lease_is_renewed(nfs):
    ok(nfs.raw(renew(nfs.clientid)))


@rule("RENEW-STALE", "16.28", kills=("stale-clientid",))
def test_the_lease_of_an_absent_client_id_is_not_renewed(nfs):
    refused(nfs.raw(renew(nfs.clientid ^ FLIPPED)), STALE)


@rule("RENEW-UNCONFIRMED", "16.28", level="SHOULD", kills=("stale-clientid",))
def test_the_lease_of_an_unconfirmed_client_id_is_not_renewed(bench, version):
    nfs = bench.new(version)
    refused(nfs.raw(renew(ok(nfs.setclientid())["SETCLIENTID"].clientid)), *GONE)


@rule("RLO-01", "16.37", kills=("rlo-refused",))
def test_a_lock_owner_without_locks_is_released(nfs, here):
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(file.lock(locker))
    ok(file.unlock(locker))
    ok(nfs.raw(release(locker)))
    file.close()


@rule("RLO-HELD", "16.37", kills=("rlo-held",))
def test_a_lock_owner_with_locks_is_not_released(nfs, here):
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(file.lock(locker))
    refused(nfs.raw(release(locker)), nfsstat4.NFS4ERR_LOCKS_HELD)
    ok(file.unlock(locker))
    file.close()


@rule("RLO-UNKNOWN", "16.37", level="SHOULD", kills=("rlo-refused",))
def test_a_lock_owner_that_is_not_known_is_released(nfs):
    ok(nfs.raw(release(StateOwner(nfs))))
