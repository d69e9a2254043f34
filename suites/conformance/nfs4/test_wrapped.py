"""Sequence ids of open and lock owners at the end of their 32 bits (RFC 7530 9.1.7): 0 follows 0xFFFFFFFF."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import again
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.operations import GETFH, close, op, putfh, unchecked
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN_DOWNGRADE4args,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST", builds_on=("NFS40-OO-EACH",))]

LAST = 0xFFFF_FFFF
BOTH, READ = OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ
BAD_SEQID = nfsstat4.NFS4ERR_BAD_SEQID


def at_last(nfs: Nfs4Client, here: Any) -> OpenFile:
    """Open ``file`` by a new owner, the next sequence id of which is 0xFFFFFFFF."""
    owner = StateOwner(nfs)
    owner.seqid = LAST - 2
    file = owner.open(here.handle, b"file", how=unchecked())
    while owner.seqid != LAST:
        again(file, here.handle, access=BOTH)
    return file


def opens(file: OpenFile, directory: bytes) -> None:
    """OPEN the file again."""
    again(file, directory, access=BOTH)


def fails(file: OpenFile, directory: bytes) -> None:
    """OPEN a name that does not exist, which counts too."""
    refused(file.owner.try_open(directory, b"absent"), nfsstat4.NFS4ERR_NOENT)


def downgrades(file: OpenFile, _directory: bytes) -> None:
    """OPEN_DOWNGRADE to what the file is open for."""
    ok(file.downgrade(BOTH, 0))


@rule(
    "OO-WRAP",
    "9.1.7",
    kills=("wrap-open-one",),
    over={"OPEN": opens, "FAILED": fails, "DOWNGRADE": downgrades},
)
def test_the_sequence_id_of_an_open_owner_goes_on_with_0(nfs, here, what):
    """The arithmetic of sequence ids is modulo 2^32: OPEN, OPEN_DOWNGRADE and CLOSE go on behind its end."""
    file = at_last(nfs, here)
    what(file, here.handle)
    assert file.owner.seqid == 0
    what(file, here.handle)
    file.close()


@rule("OO-WRAP-CLOSE", "9.1.7", kills=("wrap-open-one",))
def test_a_close_may_have_the_sequence_id_0(nfs, here):
    """CLOSE with the sequence id 0 succeeds after an OPEN with 0xFFFFFFFF."""
    file = at_last(nfs, here)
    again(file, here.handle, access=BOTH)
    ok(file.on(close(file.stateid, 0)))


@rule("OO-WRAP-FIRST", "9.1.7", kills=("wrap-open-one",))
def test_the_first_sequence_id_of_an_open_owner_may_be_the_last(nfs, here):
    """An owner that begins with 0xFFFFFFFF goes on with 0, be it with OPEN_CONFIRM or not."""
    owner = StateOwner(nfs)
    owner.seqid = LAST
    file = owner.open(here.handle, b"file", how=unchecked())
    file.close()


@rule("OO-WRAP-SKIPPED", "9.1.7", kills=("wrap-any",))
def test_no_sequence_id_is_left_out_behind_the_end(nfs, here):
    """1 is not the next one after 0xFFFFFFFF: BAD_SEQID."""
    file = at_last(nfs, here)
    again(file, here.handle, access=BOTH)
    file.owner.seqid = 1
    done = nfs.compound(putfh(here.handle), file.owner.open_op(b"file"))
    refused(done, BAD_SEQID)
    file.owner.seqid = 0
    file.close()


@rule("OO-WRAP-REPLAY", "9.1.9", kills=("wrap-replay-refused",))
def test_what_is_sent_again_behind_the_end_has_the_same_result(nfs, here):
    """An OPEN with 0xFFFFFFFF and an OPEN_DOWNGRADE with 0 have the same results if they are sent again."""
    file = at_last(nfs, here)
    opening = file.owner.open_op(b"file", access=BOTH)
    first, second = (ok(nfs.compound(putfh(here.handle), opening, GETFH))["OPEN"] for _ in range(2))
    assert first == second, "the OPEN with 0xFFFFFFFF has another result if it is sent again"
    downgrade = op("OPEN_DOWNGRADE", OPEN_DOWNGRADE4args(first.stateid, 0, BOTH, 0))
    results = [ok(file.on(downgrade))["OPEN_DOWNGRADE"].open_stateid for _ in range(2)]
    assert results[0] == results[1], "the OPEN_DOWNGRADE with 0 has another result if it is sent again"
    ok(file.on(close(results[0], 1)))


@rule("LOCK-WRAP", "9.1.7", kills=("wrap-lock-one",))
def test_the_sequence_id_of_a_lock_owner_goes_on_with_0(nfs, here):
    """LOCK and LOCKU go on with 0 and 1 after 0xFFFFFFFF."""
    owner, locker = StateOwner(nfs), StateOwner(nfs)
    file = owner.open(here.handle, b"file", how=unchecked())
    locker.seqid = LAST
    for at in range(2):
        ok(file.lock(locker, offset=at * 10, length=5))
    ok(file.unlock(locker))
    assert locker.seqid == 2
    ok(file.lock(locker, length=5))
    ok(file.unlock(locker))
    file.close()


@rule("LOCK-WRAP-BOTH", "9.1.7", kills=("wrap-open-one",))
def test_the_first_lock_has_the_last_sequence_ids_of_both_owners(nfs, here):
    """The first LOCK of a lock owner counts for the open owner too, which goes on with 0."""
    file, locker = at_last(nfs, here), StateOwner(nfs)
    locker.seqid = LAST
    ok(file.lock(locker, length=5))
    assert file.owner.seqid == 0
    ok(file.unlock(locker))
    file.close()
