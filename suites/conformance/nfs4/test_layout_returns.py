"""pNFS: LAYOUTRETURN, LAYOUTCOMMIT, LAYOUTSTATS and LAYOUTERROR (RFC 8881 12, 18.42, 18.44; RFC 7862 15).

The sections were compared with the text of RFC 5661, which RFC 8881 replaces with the same numbers.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.layouts import (
    ALL,
    READ,
    RW,
    device_of,
    extents,
    layoutcommit,
    layoutget,
    layoutreturn,
    pnfs_client,
    with_seqid,
)
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.sparse import served, size_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import ANONYMOUS, CURRENT, INVALID, op, putfh, read
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_SIZE,
    FATTR4_TIME_MODIFY,
    LAYOUTERROR4args,
    LAYOUTSTATS4args,
    device_error4,
    io_info4,
    layoutreturn_type4,
    layouttype4,
    layoutupdate4,
    nfs_opnum4,
    nfsstat4,
    nfstime4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

BLOCK = 4096
SIZE = 16 * BLOCK
BAD_STATEID, NO_GRACE = nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_NO_GRACE
WHOLE = {"FSID": layoutreturn_type4.LAYOUTRETURN4_FSID, "ALL": layoutreturn_type4.LAYOUTRETURN4_ALL}


# LAYOUTRETURN


@rule("LR-FILE", "", "18.44.3", kills=("lr-refused", "lr-present"))
def test_after_the_return_of_the_last_byte_there_is_no_stateid(laid):
    laid.get()
    ok(laid.try_return())
    assert laid.stateid is None, "lrs_present is TRUE, and nothing is left"


@rule("LR-FILE-DEAD", "", "12.5.3", kills=("lr-kept",))
def test_the_stateid_of_a_returned_layout_is_bad(laid):
    laid.get()
    known = laid.held
    ok(laid.try_return())
    refused(laid.try_return(stateid=known), BAD_STATEID)


@rule("LR-FILE-AGAIN", "", "12.5.2", kills=("lr-first",))
def test_after_a_return_the_next_layout_begins_with_the_sequence_id_1(laid):
    laid.get()
    ok(laid.try_return())
    laid.get()
    assert laid.held.seqid == 1


@rule("LR-PART", "", "18.44.3", kills=("lr-part", "lr-part-seq"))
def test_a_part_is_returned_and_the_rest_is_held(laid):
    laid.get(RW, 0, SIZE, SIZE)
    first = laid.held
    ok(laid.try_return(RW, 0, BLOCK))
    assert laid.stateid == with_seqid(first, first.seqid + 1), "the rest has not the next sequence id"
    laid.get(RW, 8 * BLOCK, BLOCK, BLOCK)


@rule("LR-NOT-HELD", "", "18.44.3", kills=("lr-not-held",))
def test_a_return_of_bytes_that_are_not_held_is_no_error(laid):
    laid.get(READ, 0, BLOCK, BLOCK)
    ok(laid.try_return(READ, 1 << 40, BLOCK))
    assert laid.stateid is not None, "lrs_present is FALSE, and a layout is held"


@rule("LR-IOMODE", "", "18.44.3", kills=("lr-iomode",))
def test_a_return_of_layouts_to_read_keeps_those_to_write(laid):
    laid.get(RW, 0, BLOCK, BLOCK)
    ok(laid.try_return(READ))
    assert laid.stateid is not None, "lrs_present is FALSE, and a layout to write is held"
    ok(laid.try_return(RW))
    assert laid.stateid is None


@rule("LR", "", "12.5.5.2.1.5", kills=("lr-bulk",), over=WHOLE)
def test_a_bulk_return_frees_the_stateids(laid, what):
    laid.get()
    ok(laid.return_all(what))
    refused(laid.try_get(), BAD_STATEID)


@rule("LR-EMPTY", "", "18.44.3", kills=("lr-empty",), over=WHOLE)
def test_a_bulk_return_of_nothing_is_no_error(laid, what):
    ok(laid.return_all(what))


@rule("LR-ALL-NOFH", "", "18.44.3", kills=("lr-all-nofh",))
def test_a_return_of_all_layouts_uses_no_filehandle(laid):
    laid.get()
    ok(laid.nfs.compound(layoutreturn(laid.kind, None, scope=WHOLE["ALL"])))


@rule("LR-NOFH", "", "18.44.3", kills=("lr-nofh",))
def test_a_return_of_a_file_needs_a_filehandle(laid):
    laid.get()
    done = laid.nfs.compound(layoutreturn(laid.kind, laid.held))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("LR-SEQ-ZERO", "", "18.44.3", kills=("lr-seq-zero",))
def test_a_return_with_the_sequence_id_0_is_bad(laid):
    laid.get()
    refused(laid.try_return(stateid=with_seqid(laid.held, 0)), BAD_STATEID)


@rule("LR-SEQ-FUTURE", "", "12.5.5.2.1.4", kills=("lr-seq-future",))
def test_a_return_with_a_sequence_id_of_the_future_is_refused(laid):
    laid.get()
    done = laid.try_return(stateid=with_seqid(laid.held, 7000))
    refused(done, nfsstat4.NFS4ERR_OLD_STATEID, BAD_STATEID)


@rule("LR-SEQ-PARALLEL", "", "12.5.5.2.1.4", kills=("lr-seq-old",))
def test_a_return_with_the_sequence_id_before_a_parallel_request_succeeds(laid):
    laid.get(READ, 0, BLOCK, BLOCK)
    first = laid.held
    laid.get(READ, BLOCK, BLOCK, BLOCK)
    ok(laid.try_return(READ, 0, BLOCK, stateid=first))
    assert laid.stateid == with_seqid(first, first.seqid + 2)


@rule("LR-SID-CLIENT", "", "8.2.4", kills=("lr-other-client",))
def test_the_layout_stateid_of_another_client_returns_nothing(bench, laid, version):
    laid.get()
    other = pnfs_client(bench, version)
    done = other.compound(putfh(laid.file.handle), layoutreturn(laid.kind, laid.held))
    refused(done, BAD_STATEID)
    ok(laid.try_return())


@rule("LR-SID", "", "18.44.3", kills=("lr-stateid",), over={"ANONYMOUS": ANONYMOUS, "INVALID": INVALID})
def test_a_special_stateid_returns_no_layout(laid, what):
    laid.get()
    refused(laid.try_return(stateid=what), BAD_STATEID)


@rule("LR-SID-OPEN", "", "18.44.3", kills=("lr-stateid",))
def test_the_stateid_of_an_open_returns_no_layout(laid):
    laid.get()
    refused(laid.try_return(stateid=laid.file.stateid), BAD_STATEID)


@rule("LR-RECLAIM", "", "18.44.3", kills=("lr-reclaim",))
def test_a_reclaimed_return_needs_a_grace_period(laid):
    laid.get()
    refused(laid.try_return(reclaim=True), NO_GRACE)


@rule("LR-RECLAIM", "", "18.44.3", kills=("lr-reclaim-bulk",), over=WHOLE)
def test_a_bulk_return_is_not_reclaimed(laid, what):
    done = laid.file.on(layoutreturn(laid.kind, None, scope=what, reclaim=True))
    refused(done, nfsstat4.NFS4ERR_INVAL, NO_GRACE)


@rule("LR-KIND", "", "15.2", kills=("lr-unknown-type",))
def test_a_layout_of_an_unknown_type_is_not_returned(laid):
    laid.get()
    done = laid.file.on(layoutreturn(0x7FFF_FFFF, laid.held))
    refused(done, nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE)


@rule("LR-CURRENT", "", "18.44.3", kills=("lr-current",))
def test_there_is_no_current_stateid_after_the_last_return(laid):
    laid.get()
    done = laid.file.on(layoutreturn(laid.kind, laid.held), read(CURRENT, 0, 1))
    assert done.statuses[:2] == [nfsstat4.NFS4_OK] * 2, done.line
    refused(done, BAD_STATEID)


@rule("LR-CURRENT-GET", "", "12.5.5.2.1.1", kills=("lr-current-get",))
def test_the_current_stateid_after_a_partial_return_gets_a_layout(laid):
    laid.get(RW, 0, SIZE, SIZE)
    part = layoutreturn(laid.kind, laid.held, RW, 0, BLOCK)
    ok(laid.file.on(part, layoutget(laid.kind, CURRENT, RW, 8 * BLOCK, BLOCK, BLOCK)))


# LAYOUTCOMMIT


@pytest.fixture
def writable(laid):
    """Return the file with a layout to write of all its bytes."""
    laid.get(RW, 0, SIZE, SIZE)
    return laid


@pytest.fixture
def extensible(laid, here):
    """Return a file of 10 bytes with a layout to write of its block, which is past its end, too."""
    here.file(b"short", b"0123456789")
    laid.file = StateOwner(laid.nfs).open(here.handle, b"short")
    laid.get(RW, 0, BLOCK, BLOCK)
    return laid


def extend(file):
    """LAYOUTCOMMIT of the block, with 90 bytes more. The server has initialized the whole block."""
    blocks = file.kind == layouttype4.LAYOUT4_BLOCK_VOLUME
    written = extents(file.granted.logr_layout)[:1] if blocks else ()
    return ok(file.commit(0, BLOCK, last=99, written=written))


@rule("LC-SIZE", "", "18.42.3", kills=("lc-refused", "lc-newsize", "lc-ignored"))
def test_the_last_write_offset_extends_the_file(extensible):
    done = extend(extensible)
    size = size_of(extensible.file)
    given = done["LAYOUTCOMMIT"].locr_newsize
    if given is None:  # 12.5.4.2: the server knows the size from elsewhere, and has not changed it
        assert size == 10, f"the size is {size} now, and the result has no new size"
    else:
        assert (given, size) == (100, 100)


@rule("LC-LESS", "", "12.5.4.2", kills=("lc-truncates",))
def test_a_last_write_offset_inside_the_file_does_not_truncate_it(writable):
    ok(writable.commit(last=0))
    assert size_of(writable.file) == SIZE


@rule("LC-NONE", "", "12.5.4.2", kills=("lc-none-size", "lc-none-newsize"))
def test_without_a_last_write_offset_the_size_stays(writable):
    done = ok(writable.commit())
    assert size_of(writable.file) == SIZE
    assert done["LAYOUTCOMMIT"].locr_newsize in (None, SIZE)


@rule("LC-KEEPS", "", "18.42.3", kills=("lc-returns",))
def test_the_layout_is_held_after_layoutcommit_with_the_same_stateid(writable):
    known = writable.held
    ok(writable.commit())
    ok(writable.try_return(RW, 0, BLOCK))
    assert writable.stateid == with_seqid(known, known.seqid + 1)


@rule("LC-RECLAIM", "", "18.42.3", kills=("lc-reclaim",))
def test_a_reclaimed_commit_needs_a_grace_period(writable):
    refused(writable.commit(reclaim=True), NO_GRACE)


@rule("LC-READ", "", "18.42.3", level="SHOULD", kills=("lc-read",))
def test_a_layout_to_read_is_not_committed(laid):
    found = laid.get(READ, 0, BLOCK, BLOCK)
    if found[0].lo_iomode == RW:
        pytest.skip("the server grants a layout to write where one to read was requested")
    refused(laid.commit(0, BLOCK), nfsstat4.NFS4ERR_BADIOMODE, nfsstat4.NFS4ERR_BADLAYOUT)


@rule("LC-OUTSIDE", "", "18.42.3", level="SHOULD", kills=("lc-outside",))
def test_a_range_without_a_layout_is_not_committed(laid):
    found = laid.get(RW, 0, BLOCK, BLOCK)
    if found[-1].lo_length == ALL:
        pytest.skip("the layout has no end")
    far = 1 << 40
    refused(laid.commit(far, BLOCK, last=far), nfsstat4.NFS4ERR_BADLAYOUT)


@rule("LC-OPEN", "", "12.5.4", kills=("lc-open",))
def test_without_a_layout_nothing_is_committed(laid):
    done = laid.commit(stateid=laid.file.stateid)
    refused(done, nfsstat4.NFS4ERR_BADLAYOUT, BAD_STATEID)


@rule("LC-RETURNED", "", "12.5.4", kills=("lc-open",))
def test_a_returned_layout_is_not_committed(writable):
    known = writable.held
    ok(writable.try_return())
    refused(writable.commit(stateid=known), nfsstat4.NFS4ERR_BADLAYOUT, BAD_STATEID)


@rule("LC-NOFH", "", "18.42.3", kills=("lc-nofh",))
def test_a_commit_needs_a_filehandle(writable):
    done = writable.nfs.compound(layoutcommit(writable.kind, writable.held))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("LC-TIME", "", "12.5.4.1", level="SHOULD", kills=("lc-time",))
def test_a_suggested_time_does_not_turn_time_back(writable, here):
    before = here.read(writable.file.handle, FATTR4_TIME_MODIFY)[FATTR4_TIME_MODIFY]
    ok(writable.commit(last=SIZE - 1, time=nfstime4(86400, 0)))
    after = here.read(writable.file.handle, FATTR4_TIME_MODIFY)[FATTR4_TIME_MODIFY]
    assert (after.seconds, after.nseconds) >= (before.seconds, before.nseconds)


@rule("LC-SEEN", "", "12.5.4", kills=("lc-unseen",))
def test_the_new_size_is_seen_by_another_client(extensible, here):
    done = extend(extensible)
    given = done["LAYOUTCOMMIT"].locr_newsize
    if given is None:
        pytest.skip("the server takes the size from elsewhere (RFC 8881 12.5.4.2)")
    assert here.read(extensible.file.handle, FATTR4_SIZE)[FATTR4_SIZE] == given


# LAYOUTSTATS and LAYOUTERROR (RFC 7862)


def stats(laid, device=bytes(16), *, stateid=None, count=1):
    """LAYOUTSTATS of one block; skip if it is not served."""
    traffic = io_info4(count, count * BLOCK)
    update = layoutupdate4(laid.kind, b"")
    asked = LAYOUTSTATS4args(0, BLOCK, stateid or laid.held, traffic, traffic, device, update)
    return served("LAYOUTSTATS", laid.file.on(op("LAYOUTSTATS", asked)))


def error(laid, *errors, stateid=None):
    """LAYOUTERROR; skip if it is not served."""
    asked = LAYOUTERROR4args(0, BLOCK, stateid or laid.held, errors)
    return served("LAYOUTERROR", laid.file.on(op("LAYOUTERROR", asked)))


COUNTS = {"NONE": 0, "ONE": 1, "MOST": 0xFFFF_FFFF_FFFF}


@rule("LS", v42="RFC 7862 15.7.3", kills=("ls-refused",), over=COUNTS)
def test_statistics_are_processed_without_an_error(laid, what):
    device = device_of(laid.get())
    ok(stats(laid, device, count=what))


@rule("LS-SID", v42="RFC 7862 15.7.3", level="MAY")
def test_statistics_with_the_anonymous_stateid(laid, observe):
    laid.get()
    observe(stats(laid, stateid=ANONYMOUS).status.name)


ERRORS = {
    "NXIO": (nfsstat4.NFS4ERR_NXIO, nfs_opnum4.OP_ILLEGAL),
    "IO": (nfsstat4.NFS4ERR_IO, nfs_opnum4.OP_WRITE),
    "BAD_STATEID": (nfsstat4.NFS4ERR_BAD_STATEID, nfs_opnum4.OP_READ),
}


@rule("LE", v42="RFC 7862 15.6.3", kills=("le-refused",), over=ERRORS)
def test_errors_are_processed_without_an_error(laid, what):
    device = device_of(laid.get())
    ok(error(laid, device_error4(device, *what)))


@rule("LE-DEVICE", v42="RFC 7862 15.6.3", kills=("le-refused",))
def test_an_error_of_an_unknown_device_is_processed_without_an_error(laid):
    laid.get()
    ok(error(laid, device_error4(b"\xa5" * 16, nfsstat4.NFS4ERR_NXIO, nfs_opnum4.OP_ILLEGAL)))


@rule("LE-RETURN", v42="RFC 7862 15.6.3", kills=("le-return",))
def test_errors_before_layoutreturn_add_no_error(laid):
    device = device_of(laid.get())
    failed = device_error4(device, nfsstat4.NFS4ERR_NXIO, nfs_opnum4.OP_ILLEGAL)
    reported = LAYOUTERROR4args(0, BLOCK, laid.held, (failed,))
    ops = (putfh(laid.file.handle), op("LAYOUTERROR", reported), layoutreturn(laid.kind, laid.held))
    ok(served("LAYOUTERROR", laid.nfs.compound(*ops)))
