"""COMPOUND (RFC 7530 15.2, RFC 8881 16.2): minor versions, tags, illegal operations, the first error."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.client import Done, ok, refused, status_of
from storagetest.wire.nfs4.operations import ANONYMOUS, GETFH, PUTROOTFH, create, getattr_, lookup, op, putfh
from storagetest.wire.nfs4.types import (
    FATTR4_TYPE,
    RECLAIM_COMPLETE4args,
    RELEASE_LOCKOWNER4args,
    RENEW4args,
    SEEK4args,
    SEQUENCE4args,
    SETCLIENTID_CONFIRM4args,
    data_content4,
    lock_owner4,
    nfs_opnum4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]


@rule(
    "MINOR",
    "15.2.4",
    "16.2.3",
    over={"3": 3, "99": 99, "MAX": 0xFFFFFFFF},
    kills=("minor-mismatch", "minor-results"),
)
def test_an_unknown_minor_version_is_a_mismatch_without_results(bench, version, what):
    done = bench.new(version).raw(PUTROOTFH, minor=what)
    refused(done, nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH)
    assert not done.results, "the array of results is empty"


@rule("EMPTY", "15.2", "16.2", level="MAY")
def test_a_compound_without_operations_has_no_results(bench, version, observe):
    done = bench.new(version).raw()
    observe(done.status.name)
    assert not done.results


@rule(
    "TAG",
    "15.2.4",
    "16.2.3",
    level="SHOULD",
    kills=("tag",),
    over={
        "EMPTY": b"",
        "ASCII": b"storagetest",
        "ODD": b"12345",
        "UTF8": "Größe".encode(),
        "65": b"x" * 65,
        "130": b"x" * 130,
    },
)
def test_the_tag_is_returned_as_it_was_sent(nfs, what):
    assert ok(nfs.compound(PUTROOTFH, tag=what)).result.tag == what


@rule("TAG-LONG", "15.2.4", "16.2.3", level="SHOULD", no_mutant_reason="NFS-Ganesha breaks this rule itself")
def test_a_tag_of_300_bytes_is_returned_as_it_was_sent(nfs, version, observe):
    """A tag has no limit of its own; minor version 0 may refuse a COMPOUND that takes too much."""
    done = nfs.compound(PUTROOTFH, tag=b"x" * 300)
    observe(done.status.name)
    if version or done.status != nfsstat4.NFS4ERR_RESOURCE:
        assert ok(done).result.tag == b"x" * 300


@rule("TAG-FAILED", "15.2.4", "16.2.3", level="SHOULD", kills=("tag",))
def test_the_tag_is_returned_with_an_error(nfs):
    assert refused(nfs.compound(GETFH, tag=b"failed"), nfsstat4.NFS4ERR_NOFILEHANDLE).result.tag == b"failed"


@rule("STATUS-01", "15.2.4", "16.2.4", kills=("compound-status",))
def test_the_status_is_that_of_the_last_operation(nfs, here):
    for done in (nfs.compound(PUTROOTFH, GETFH), nfs.compound(putfh(here.handle), lookup(b"absent"), GETFH)):
        assert done.status == done.statuses[-1]


@rule(
    "STOP-01",
    "15.2.4",
    "16.2.3",
    kills=(
        "results-after-failure",
        "goes-on",
    ),
)
def test_evaluation_stops_at_the_first_error(nfs, here):
    done = nfs.compound(putfh(here.handle), lookup(b"absent"), GETFH)
    assert done.statuses == [nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_NOENT]


@rule("STOP-02", "15.2.4", "16.2.3", kills=("goes-on-create",))
def test_what_follows_an_error_is_not_executed(nfs, here):
    refused(nfs.compound(putfh(here.handle), lookup(b"absent"), create(b"made")), nfsstat4.NFS4ERR_NOENT)
    refused(nfs.compound(putfh(here.handle), lookup(b"made")), nfsstat4.NFS4ERR_NOENT)


@rule("ORDER-01", "15.2.4", "16.2.3", kills=("result-order",))
def test_results_are_in_the_order_of_the_operations(nfs, here):
    done = ok(nfs.compound(putfh(here.handle), GETFH, getattr_(FATTR4_TYPE)))
    assert [one.resop for one in done.results] == [
        nfs_opnum4.OP_PUTFH,
        nfs_opnum4.OP_GETFH,
        nfs_opnum4.OP_GETATTR,
    ]


def last_argop(nfs, number):
    """Execute an operation of this number after PUTROOTFH, and return the reply."""
    at = 1 if nfs.session is None else 2

    def once():
        call = nfs.encode(PUTROOTFH, GETFH)
        return Done(nfs.execute(call.override(f"argarray[{at}].argop", number)).result)

    return nfs.repeated(once).result


@rule(
    "ILLEGAL",
    "16.38.3",
    "18.52.3",
    kills=("illegal-status", "illegal-op"),
    over={"0": 0, "1": 1, "2": 2, "200": 200, "10044": 10044, "MAX": 0x7FFFFFFF},
)
def test_an_undefined_operation_is_illegal(nfs, what):
    result = last_argop(nfs, what)
    assert result.status == nfsstat4.NFS4ERR_OP_ILLEGAL
    assert result.resarray[-1].resop == nfs_opnum4.OP_ILLEGAL
    assert status_of(result.resarray[-1]) == nfsstat4.NFS4ERR_OP_ILLEGAL


LATER = {
    "RECLAIM_COMPLETE": op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False)),
    "SEQUENCE": op("SEQUENCE", SEQUENCE4args(bytes(16), 1, 0, 0, False)),
    "SEEK": op("SEEK", SEEK4args(ANONYMOUS, 0, data_content4.NFS4_CONTENT_DATA)),
}


@rule("ILLEGAL-LATER", "16.38.3", kills=("illegal-later",), over=LATER)
def test_an_operation_of_a_later_minor_version_is_illegal(nfs, what):
    done = refused(nfs.compound(PUTROOTFH, what), nfsstat4.NFS4ERR_OP_ILLEGAL)
    assert done.results[-1].resop == nfs_opnum4.OP_ILLEGAL


OTHERS = {
    "RENEW": op("RENEW", RENEW4args(0)),
    "SETCLIENTID_CONFIRM": op("SETCLIENTID_CONFIRM", SETCLIENTID_CONFIRM4args(0, bytes(8))),
    "RELEASE_LOCKOWNER": op("RELEASE_LOCKOWNER", RELEASE_LOCKOWNER4args(lock_owner4(0, b"owner"))),
}


@rule("NOTSUPP", "", "18", kills=("notsupp",), over=OTHERS)
def test_an_operation_that_must_not_be_implemented_is_not_supported(nfs, what):
    refused(nfs.compound(PUTROOTFH, what), nfsstat4.NFS4ERR_NOTSUPP)
