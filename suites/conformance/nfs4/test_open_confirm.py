"""OPEN_CONFIRM of minor version 0: sequence ids, stateids and retransmission (RFC 7530 9.1.7, 9.1.9, 16.18).

16.18.5: a server holds the state of an OPEN that is not confirmed until OPEN_CONFIRM arrives "with the
appropriate sequence id and stateid", or another OPEN whose sequence id is out of order. An OPEN_CONFIRM with
another stateid, or an operation other than OPEN, ends with NFS4ERR_BAD_STATEID.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok, refused
from storagetest.wire.nfs4.operations import close, op, unchecked
from storagetest.wire.nfs4.state import WHOLE, OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    LOCK4args,
    OPEN_CONFIRM4args,
    OPEN_DOWNGRADE4args,
    locker4,
    nfs_argop4,
    nfs_lock_type4,
    nfsstat4,
    open_to_lock_owner4,
    stateid4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

BAD_SEQID, BAD_STATEID = nfsstat4.NFS4ERR_BAD_SEQID, nfsstat4.NFS4ERR_BAD_STATEID
FIRST = 100
"""The first sequence id of an owner here, so that one before it is no smaller than 0 (chosen)."""
DEVIATES = "NFS-Ganesha, the target of the mutants, breaks this rule itself"
SEQIDS = {"NEXT": 1, "FAR": 1000, "BEFORE": -2}
"""Distances from the next sequence id. -1 is left out: it is that of the last operation."""


def confirm(file: OpenFile, seqid: int, stateid: stateid4 | None = None) -> Done:
    """OPEN_CONFIRM, whatever the outcome."""
    held = file.stateid if stateid is None else stateid
    return file.on(op("OPEN_CONFIRM", OPEN_CONFIRM4args(held, seqid)))


def unconfirmed(nfs: Nfs4Client, directory: bytes, owner: StateOwner | None = None) -> OpenFile:
    """Open a file as a new owner, or again as ``owner``. Skip if the OPEN is not to be confirmed."""
    if owner is None:
        owner = StateOwner(nfs)
        owner.seqid = FIRST
    done = ok(owner.try_open(directory, b"file", how=unchecked()))
    if not done["OPEN"].rflags & OPEN4_RESULT_CONFIRM:
        pytest.skip("the server has no owner confirm its first OPEN: OPEN4_RESULT_CONFIRM is not set")
    return OpenFile(owner, done["GETFH"].object, done["OPEN"].stateid, done)


@rule("OC-REPLAY", "9.1.9", kills=("replay-confirm", "replay-confirm-refused"))
def test_a_retransmitted_confirmation_has_the_same_result(nfs, here):
    file = unconfirmed(nfs, here.handle)
    first, second = (ok(confirm(file, file.owner.seqid))["OPEN_CONFIRM"] for _ in range(2))
    assert second == first
    ok(file.on(close(first.open_stateid, file.owner.seqid + 1)))


@rule("OC-BAD", "9.1.7, 16.18", kills=("bad-seqid", "confirm-other-seqid"), over=SEQIDS)
def test_a_confirmation_with_another_sequence_id_is_refused(nfs, here, what):
    file = unconfirmed(nfs, here.handle)
    refused(confirm(file, file.owner.seqid + what), BAD_SEQID)


@rule("OC-LATER", "9.1.7", kills=("confirm-other-seqid",), over=SEQIDS)
def test_a_confirmation_of_a_confirmed_owner_with_another_sequence_id_is_refused(nfs, here, what):
    """Whether the stateid, which needs no confirmation, or the sequence id is looked at first is open."""
    owner = StateOwner(nfs)
    owner.seqid = FIRST
    file = owner.open(here.handle, b"file", how=unchecked())
    refused(confirm(file, owner.seqid + what), BAD_SEQID, BAD_STATEID)
    file.close()


STATEIDS = {
    "OTHER": lambda held: replace(held, other=held.other[:-1] + bytes([held.other[-1] ^ 0xFF])),
    "NEXT": lambda held: replace(held, seqid=held.seqid + 1),
    "ZEROS": lambda _: stateid4(0, bytes(12)),
    "ONES": lambda _: stateid4(0xFFFFFFFF, b"\xff" * 12),
}


@rule("OC-STATEID", "16.18.5", kills=("confirm-stateid-error", "confirm-any-stateid"), over=STATEIDS)
def test_a_confirmation_with_another_stateid_is_refused(nfs, here, what):
    file = unconfirmed(nfs, here.handle)
    refused(confirm(file, file.owner.seqid, what(file.stateid)), BAD_STATEID)


def _lock(file: OpenFile) -> nfs_argop4:
    first = open_to_lock_owner4(file.owner.seqid, file.stateid, 0, StateOwner(file.client).wire)
    return op("LOCK", LOCK4args(nfs_lock_type4.READ_LT, False, 0, WHOLE, locker4(True, first)))


BEFORE = {
    "CLOSE": lambda file: close(file.stateid, file.owner.seqid),
    "DOWNGRADE": lambda file: op(
        "OPEN_DOWNGRADE", OPEN_DOWNGRADE4args(file.stateid, file.owner.seqid, OPEN4_SHARE_ACCESS_BOTH, 0)
    ),
    "LOCK": _lock,
}


@rule("OC-BEFORE", "16.18.5", no_mutant_reason=DEVIATES, over=BEFORE)
def test_an_open_that_is_not_confirmed_has_no_other_operation(nfs, here, what):
    file = unconfirmed(nfs, here.handle)
    refused(file.on(what(file)), BAD_STATEID)


@rule("OC-SECOND", "16.18.5", no_mutant_reason=DEVIATES)
def test_another_open_replaces_one_that_is_not_confirmed(nfs, here):
    """Its sequence id is out of order: the first OPEN is taken for a replay, and its state is cancelled."""
    first = unconfirmed(nfs, here.handle)
    first.owner.seqid = 2 * FIRST
    second = unconfirmed(nfs, here.handle, first.owner)
    second.confirm()
    second.close()
