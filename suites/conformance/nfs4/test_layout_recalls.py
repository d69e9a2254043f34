"""pNFS: CB_LAYOUTRECALL (RFC 8881 12.5.5 and 20.3): what is recalled, and how a client answers.

A second client truncates the file, or removes it. Whether that recalls a layout is up to its type: for one of
blocks RFC 5663 2.3.6 requires it.
"""

from __future__ import annotations

import time

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.nfs4.conflicts import Conflict, conflict
from storagetest.suites.conformance.nfs4.layouts import (
    ANY,
    READ,
    RECALL,
    RW,
    UNAVAILABLE,
    layoutget,
    pnfs_client,
)
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.callbacks import Callbacks
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import ANONYMOUS, putfh, remove, setattr_
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_LEASE_TIME,
    FATTR4_SIZE,
    CB_COMPOUND4args,
    CB_COMPOUND4res,
    layoutrecall_type4,
    layouttype4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

BLOCK = 4096
SIZE = 16 * BLOCK
BAD_STATEID, DELAY = nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_DELAY
NO_MATCH = nfsstat4.NFS4ERR_NOMATCHING_LAYOUT


@pytest.fixture
def other(bench, version):
    """Return the client of the conflict."""
    return bench.client(version)


@pytest.fixture
def truncation(laid, other) -> Conflict:
    """Return a truncation by another client that recalls the layout of ``laid``; it was sent."""
    if laid.kind not in (layouttype4.LAYOUT4_BLOCK_VOLUME, layouttype4.LAYOUT4_SCSI):
        pytest.skip(f"a truncation need not recall a layout of the type {laid.kind.name}")
    laid.get(RW, 0, SIZE, SIZE)
    return conflict(other, putfh(laid.file.handle), setattr_({FATTR4_SIZE: 0}, ANONYMOUS))


@rule("LRC-TRUNCATE", "", "2.3.6", of="RFC 5663", kills=("lrc-lost",))
def test_a_truncation_by_another_client_recalls_the_layout(laid, truncation):
    recall = laid.wait_for_recalls()
    ok(laid.return_recalled(recall))
    ok(truncation.end())


HOLD = 2.0
"""Seconds for which a recalled layout is held while nothing may happen to the file (chosen).

A server waits for a lease period (RFC 8881 12.5.5), which is longer.
"""


def is_kept(laid, here, *, silent: bool = False) -> None:
    """Wait, and answer repeated recalls unless ``silent``; check that the file keeps its size."""
    until = time.monotonic() + HOLD
    while time.monotonic() < until:
        if not silent:
            laid.nfs.renew()
        time.sleep(0.1)
    size = here.read(laid.file.handle, FATTR4_SIZE)[FATTR4_SIZE]
    assert size == SIZE, f"the file has {size} bytes, and its layout was not returned"


@rule("LRC-HELD", "", "2.3.6", of="RFC 5663", kills=("lrc-early",))
def test_the_file_is_not_truncated_before_the_layout_is_returned(laid, truncation, here):
    recall = laid.wait_for_recalls()
    is_kept(laid, here)
    ok(laid.return_recalled(recall))
    ok(truncation.end())


@rule("LRC-SILENT", "", "12.5.5", kills=("lrc-silent",))
def test_a_client_that_has_answered_a_recall_keeps_its_layout_while_it_is_silent(laid, truncation, here):
    """The server waits for a lease period before it takes further action."""
    recall = laid.wait_for_recalls()
    is_kept(laid, here, silent=True)
    ok(laid.return_recalled(recall))
    ok(truncation.end())


@rule("LRC-TWICE", "", "2.3.6", of="RFC 5663", kills=("lrc-second",))
def test_a_second_truncation_does_not_end_the_recall_of_the_first(bench, laid, truncation, here, version):
    recall = laid.wait_for_recalls()
    third = bench.client(version)
    again = conflict(third, *truncation.ops)
    is_kept(laid, here)
    ok(laid.return_recalled(recall))
    ok(truncation.end())
    ok(again.end())


@rule("LRC-WHAT", "", "20.3.3", kills=("lrc-handle", "lrc-type", "lrc-range", "lrc-iomode"))
def test_a_recall_names_the_layout(laid, truncation):
    recall = laid.wait_for_recalls()
    assert recall.clora_type == laid.kind
    assert recall.clora_iomode in (RW, ANY)
    if recall.clora_recall.lor_recalltype == layoutrecall_type4.LAYOUTRECALL4_FILE:
        what = recall.clora_recall.value
        assert what.lor_fh == laid.file.handle
        assert what.lor_offset < BLOCK <= what.lor_length, "the freed blocks are not recalled"
    ok(laid.return_recalled(recall))
    truncation.end()


@rule("LRC-SEQ", "", "12.5.3", kills=("lrc-seq", "lrc-other"))
def test_a_recall_increments_the_sequence_id(laid, truncation):
    known = laid.held
    recall = laid.wait_for_recalls()
    if recall.clora_recall.lor_recalltype != layoutrecall_type4.LAYOUTRECALL4_FILE:
        pytest.skip("the recall is of more than the file, and has no stateid")
    given = recall.clora_recall.value.lor_stateid
    assert (given.seqid, given.other) == (known.seqid + 1, known.other)
    ok(laid.return_recalled(recall))
    truncation.end()


@rule("LRC-RETURNED", "", "12.5.3", kills=("lrc-kept",))
def test_after_the_return_of_what_was_recalled_the_stateid_is_bad(laid, truncation):
    recall = laid.wait_for_recalls()
    known = laid.held
    ok(laid.return_recalled(recall))
    ok(truncation.end())
    if laid.stateid is None:
        refused(laid.try_get(READ, 0, BLOCK, BLOCK, stateid=known), BAD_STATEID)


@rule("LRC-LAYOUTGET", "", "18.43.3", kills=("lrc-recallconflict", "lrc-granted"))
def test_no_overlapping_layout_is_granted_while_a_recall_is_pending(laid, truncation):
    recall = laid.wait_for_recalls()
    done = laid.file.on(layoutget_again(laid))
    refused(done, nfsstat4.NFS4ERR_RECALLCONFLICT, *UNAVAILABLE, DELAY)
    ok(laid.return_recalled(recall))
    ok(truncation.end())


def layoutget_again(laid):
    """Return LAYOUTGET of the range that is recalled, with the stateid before the recall."""
    return layoutget(laid.kind, laid.held, RW, 0, SIZE, SIZE)


@rule("LRC-AGAIN", "", "12.5.2", kills=("lrc-never",))
def test_after_the_conflict_a_layout_is_granted_again(laid, truncation):
    ok(laid.return_recalled(laid.wait_for_recalls()))
    ok(truncation.end())
    if laid.stateid is not None:
        ok(laid.try_return())
    laid.get(READ, 0, BLOCK, 0)
    assert laid.held.seqid == 1


@rule("LRC-NOMATCHING", "", "20.3.3", kills=("lrc-nomatching",))
def test_a_client_that_holds_nothing_ends_the_recall_by_its_answer(laid, truncation):
    laid.callbacks.statuses = {RECALL: NO_MATCH}
    laid.wait_for_recalls()
    ok(truncation.end())


@rule("LRC-NOMATCHING-DEAD", "", "12.5.3", kills=("lrc-nomatching-kept",))
def test_a_layout_that_the_client_denied_is_gone(laid, truncation):
    laid.callbacks.statuses = {RECALL: NO_MATCH}
    laid.wait_for_recalls()
    ok(truncation.end())
    refused(laid.try_get(READ, 0, BLOCK, BLOCK), BAD_STATEID)


@rule("LRC-BUSY", "", "12.5.5.2.1.2", kills=("lrc-busy", "lrc-busy-fenced"))
def test_a_client_that_answers_delay_is_asked_again_and_keeps_its_layout(laid, truncation, here):
    laid.callbacks.answer = once(laid.callbacks)
    recall = laid.wait_for_recalls(2)
    is_kept(laid, here)
    ok(laid.return_recalled(recall))
    ok(truncation.end())


def once(callbacks: Callbacks):
    """Return an answer that ends the first recall with NFS4ERR_DELAY, and the others with success."""
    seen: list[int] = []

    def answer(given: CB_COMPOUND4args) -> CB_COMPOUND4res:
        recalls = RECALL in [one.argop for one in given.argarray]
        callbacks.statuses = {RECALL: DELAY} if recalls and not seen else {}
        seen.extend([1] if recalls else [])
        return callbacks.execute(given)

    return answer


@rule("LRC-PART", "", "18.44.3", kills=("lrc-part",))
def test_a_recall_is_not_complete_before_its_whole_range_is_returned(laid, truncation, here):
    recall = laid.wait_for_recalls()
    if recall.clora_recall.lor_recalltype != layoutrecall_type4.LAYOUTRECALL4_FILE:
        pytest.skip("the recall is of more than the file")
    what = recall.clora_recall.value
    ok(laid.try_return(recall.clora_iomode, what.lor_offset, BLOCK, stateid=what.lor_stateid))
    is_kept(laid, here)
    ok(laid.try_return(recall.clora_iomode, what.lor_offset, what.lor_length))
    ok(truncation.end())


@rule("LRC-REMOVE", "", "12.5.5", level="SHOULD", kills=("lrc-lost",))
def test_a_removal_of_a_closed_file_recalls_the_layout(laid, other, here):
    laid.get(RW, 0, SIZE, SIZE)
    if laid.granted.logr_return_on_close:
        pytest.skip("the layout is returned on CLOSE, and the removal is delayed until then")
    laid.file.close()
    waiting = conflict(other, putfh(here.handle), remove(b"file"))
    recall = laid.wait_for_recalls()
    ok(laid.return_recalled(recall))
    ok(waiting.end())


@rule("LRC-WRITER", "", "2.3.5", of="RFC 5663", level="MAY")
def test_a_second_client_wants_a_layout_to_write(bench, laid, here, version, observe):
    laid.get(RW, 0, SIZE, SIZE)
    second = pnfs_client(bench, version)
    file = StateOwner(second).open(here.handle, b"file")
    done = file.on(layoutget(laid.kind, file.stateid, RW, 0, SIZE, SIZE))
    laid.nfs.renew()
    observe(f"{done.status.name}, {len(laid.recalls)} recalls")
    file.close()


@pytest.mark.slow
@rule("LRC-IGNORED", "", "12.5.6", level="MAY")
def test_a_layout_whose_recall_is_ignored_may_be_revoked(laid, truncation, other, facts, observe):
    lease = facts.limits[FATTR4_LEASE_TIME]
    laid.wait_for_recalls()

    def truncated() -> bool:
        laid.nfs.renew()
        return other.compound(*truncation.ops, retry=False).status == nfsstat4.NFS4_OK

    truncation.end()
    try:
        wait_until(truncated, 3 * lease, "the end of the recall", interval=0.5, error=DeadlineExceeded)
    except DeadlineExceeded:
        observe("not revoked within three lease periods")
    else:
        observe(f"revoked; LAYOUTGET: {laid.try_get(READ, 0, BLOCK, BLOCK).status.name}")
