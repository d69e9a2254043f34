"""COPY and CLONE (RFC 7862 15.2, 15.13) between files of one server, synchronous or with CB_OFFLOAD."""

from __future__ import annotations

import time
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.sparse import BLOCK, content, has, served, size_of
from storagetest.wire.nfs4.callbacks import Callbacks
from storagetest.wire.nfs4.client import BACK, Done, Nfs4Client, ok, refused
from storagetest.wire.nfs4.operations import ANONYMOUS, INVALID, SAVEFH, op, putfh, unchecked, write
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    CB_OFFLOAD4args,
    CLONE4args,
    COPY4args,
    OFFLOAD_STATUS4args,
    RECLAIM_COMPLETE4args,
    nfsstat4,
    stateid4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

DEVIATES = "NFS-Ganesha has no COPY, and the lab's knfsd breaks this rule itself"
UNSERVED = "neither NFS-Ganesha nor the lab's knfsd, the targets of the mutants, serves it"
SOURCE = b"".join(bytes([97 + at]) * 4096 for at in range(16))
"""The bytes of the source: each 4096 of them have another letter."""


@pytest.fixture
def nfs(bench, version) -> Nfs4Client:
    """Return a client with a back channel, over which the end of an asynchronous copy is reported."""
    made = bench.new(version)
    made.exchange()
    made.rpc.on_call = Callbacks()
    made.create_session(flags=CREATE_SESSION4_FLAG_CONN_BACK_CHAN, back=BACK)
    ok(made.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))
    return made


@pytest.fixture
def source(nfs, here) -> OpenFile:
    """Return an open file with :data:`SOURCE`."""
    file = StateOwner(nfs).open(here.handle, b"source", how=unchecked())
    file.write_all(0, SOURCE)
    return file


@pytest.fixture
def target(nfs, here) -> OpenFile:
    """Return an empty open file."""
    return StateOwner(nfs).open(here.handle, b"target", how=unchecked())


def between(source: OpenFile, target: OpenFile, operation: Any) -> Done:
    """Execute an operation with the source as the saved filehandle, and the target as the current one."""
    return source.client.compound(putfh(source.handle), SAVEFH, putfh(target.handle), operation)


def copy(
    source: OpenFile,
    target: OpenFile,
    start: int = 0,
    to: int = 0,
    count: int = len(SOURCE),
    *,
    synchronous: bool = True,
    stateids: tuple[stateid4, stateid4] | None = None,
) -> Done:
    """COPY, whatever the outcome; skip if it is not served, or not in the requested way."""
    first, second = stateids or (source.stateid, target.stateid)
    asked = COPY4args(first, second, start, to, count, True, synchronous, ())
    done = served("COPY", between(source, target, op("COPY", asked)))
    if done.status == nfsstat4.NFS4ERR_OFFLOAD_NO_REQS:
        pytest.skip("the server does not copy with these requirements (NFS4ERR_OFFLOAD_NO_REQS)")
    return done


def offloads(nfs: Nfs4Client) -> list[CB_OFFLOAD4args]:
    """Return the CB_OFFLOADs that were received."""
    seen = nfs.rpc.on_call.seen if isinstance(nfs.rpc.on_call, Callbacks) else []
    return [one.value for call in seen for one in call.argarray if isinstance(one.value, CB_OFFLOAD4args)]


def copied(source: OpenFile, target: OpenFile, start: int = 0, to: int = 0, count: int = len(SOURCE)) -> None:
    """Copy a range, in several COPYs if the server copies less than it."""
    at = 0
    while at < count:
        done = ok(copy(source, target, start + at, to + at, count - at))["COPY"].cr_response
        assert not done.wr_callback_id, "a synchronous COPY was requested"
        assert 0 < done.wr_count <= count - at, f"{done.wr_count} bytes are copied, of {count - at}"
        at += done.wr_count


@rule("COPY-WHOLE", v42="RFC 7862 15.2.3", kills=("copy-ignored", "copy-count", "copy-async"))
def test_a_file_is_copied(source, target):
    copied(source, target)
    assert has(target, SOURCE)


@rule(
    "COPY-RANGE",
    v42="RFC 7862 15.2.3",
    kills=("copy-ignored", "copy-start", "copy-more"),
    over={"BLOCK": (4096, 0, 4096), "ODD": (1001, 77, 9999), "FURTHER": (4096, BLOCK, 8192)},
)
def test_a_range_is_copied_and_nothing_else(source, target, what):
    start, to, count = what
    target.write_all(0, b"-" * BLOCK)
    copied(source, target, start, to, count)
    wanted = bytearray(b"-" * BLOCK + bytes(max(0, to + count - BLOCK)))
    wanted[to : to + count] = SOURCE[start : start + count]
    assert has(target, bytes(wanted))


@rule("COPY-REST", v42="RFC 7862 15.2.3", kills=("copy-ignored", "copy-to-end-nothing"))
def test_a_count_of_0_copies_up_to_the_end(source, target):
    done = ok(copy(source, target, 4096, 0, 0))["COPY"].cr_response
    assert has(target, SOURCE[4096:])
    assert done.wr_count == len(SOURCE) - 4096, f"wr_count is {done.wr_count}, and all is copied"


@rule("COPY-SIZE", v42="RFC 7862 15.2.3", kills=("copy-ignored", "copy-target-begin"))
def test_a_copy_past_the_end_sets_the_size(source, target):
    copied(source, target, 0, 3 * BLOCK, 4096)
    assert size_of(target) == 3 * BLOCK + 4096
    assert content(target, 0, 3 * BLOCK) == bytes(3 * BLOCK)


@rule("COPY-SOURCE", v42="RFC 7862 15.2.3", kills=("copy-truncates-source",))
def test_a_copy_leaves_the_source(source, target):
    copied(source, target)
    assert has(source, SOURCE)


@rule("COPY-VERIFIER", v42="RFC 7862 15.2.3", level="SHOULD", kills=("copy-verifier",))
def test_copies_have_the_same_verifier(source, target):
    first, again = (ok(copy(source, target))["COPY"].cr_response.wr_writeverf for _ in range(2))
    assert first == again, "the server did not restart"


@rule("COPY-PAST", v42="RFC 7862 15.2.3", no_mutant_reason=DEVIATES)
def test_a_source_offset_past_the_end_is_invalid(source, target):
    refused(copy(source, target, len(SOURCE) + 1, 0, 1), nfsstat4.NFS4ERR_INVAL)


@rule("COPY-PAST-COUNT", v42="RFC 7862 15.2.3", no_mutant_reason=DEVIATES)
def test_a_range_that_ends_past_the_source_is_invalid(source, target):
    refused(copy(source, target, 0, 0, len(SOURCE) + 1), nfsstat4.NFS4ERR_INVAL)


@rule("COPY-SAME", v42="RFC 7862 15.2.3", no_mutant_reason=DEVIATES)
def test_a_file_is_not_copied_to_itself(source):
    refused(copy(source, source, 0, len(SOURCE), 4096), nfsstat4.NFS4ERR_INVAL)


@rule("COPY-STATEID", v42="RFC 7862 15.2.3", kills=("copy-stateid",), over={"SOURCE": 0, "TARGET": 1})
def test_a_copy_with_an_invalid_stateid_fails(source, target, what):
    stateids = [source.stateid, target.stateid]
    stateids[what] = INVALID
    done = copy(source, target, stateids=(stateids[0], stateids[1]))
    refused(done, nfsstat4.NFS4ERR_BAD_STATEID)
    assert size_of(target) == 0


@rule("COPY-DIR", v42="RFC 7862 15.2.3", no_mutant_reason=DEVIATES)
def test_a_directory_is_not_copied(nfs, here, target):
    asked = COPY4args(ANONYMOUS, target.stateid, 0, 0, 1, True, True, ())
    done = nfs.compound(putfh(here.handle), SAVEFH, putfh(target.handle), op("COPY", asked))
    refused(served("COPY", done), nfsstat4.NFS4ERR_WRONG_TYPE)


@rule("COPY-NOSAVED", v42="RFC 7862 15.2.3", kills=("copy-nosaved",))
def test_a_copy_needs_a_saved_filehandle(source, target):
    asked = COPY4args(source.stateid, target.stateid, 0, 0, 1, True, True, ())
    done = served("COPY", target.on(op("COPY", asked)))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("COPY-ASYNC", v42="RFC 7862 15.2.3", kills=("copy-ignored", "offload-lost"))
def test_an_asynchronous_copy_ends_with_the_bytes_of_the_source(nfs, source, target, observe):
    done = ok(copy(source, target, synchronous=False))["COPY"].cr_response
    if not done.wr_callback_id:
        observe("synchronous")
        assert done.wr_count == len(SOURCE)
    else:
        observe("asynchronous")
        reported = wait_for_offload(nfs, target, done.wr_callback_id[0])
        assert reported.coa_fh == target.handle
        assert reported.coa_offload_info.coa_status == nfsstat4.NFS4_OK
    assert has(target, SOURCE)


def wait_for_offload(nfs: Nfs4Client, target: OpenFile, stateid: stateid4) -> CB_OFFLOAD4args:
    """Return the CB_OFFLOAD of a copy. Raises AssertionError if it does not arrive in time."""
    status = op("OFFLOAD_STATUS", OFFLOAD_STATUS4args(stateid))

    def arrived() -> list[CB_OFFLOAD4args]:
        target.on(status)  # callbacks are read while a reply is expected
        return [one for one in offloads(nfs) if one.coa_stateid.other == stateid.other]

    try:
        return wait_until(arrived, nfs.rpc.deadline, "CB_OFFLOAD")[0]
    except DeadlineExceeded as error:
        raise AssertionError(f"15.2.3: {error}") from None


@rule("OFFLOAD-STATUS", v42="RFC 7862 15.9.3", kills=("offload-status",))
def test_the_status_of_an_asynchronous_copy_is_that_of_the_copy(nfs, source, target):
    began = time.monotonic()
    done = ok(copy(source, target, synchronous=False))["COPY"].cr_response
    if not done.wr_callback_id:
        pytest.skip(f"the server copied synchronously, in {time.monotonic() - began:.3f} s")
    found = target.on(op("OFFLOAD_STATUS", OFFLOAD_STATUS4args(done.wr_callback_id[0])))
    if found.status == nfsstat4.NFS4_OK:
        assert found["OFFLOAD_STATUS"].osr_count <= len(SOURCE)
    else:  # the copy has ended, and the client answered CB_OFFLOAD
        refused(found, nfsstat4.NFS4ERR_BAD_STATEID)
    wait_for_offload(nfs, target, done.wr_callback_id[0])


# CLONE


def clone(source: OpenFile, target: OpenFile, start: int = 0, to: int = 0, count: int = 0) -> Done:
    """CLONE, whatever the outcome; skip if it is not served."""
    asked = CLONE4args(source.stateid, target.stateid, start, to, count)
    return served("CLONE", between(source, target, op("CLONE", asked)))


@rule("CLONE-WHOLE", v42="RFC 7862 15.13.3", no_mutant_reason=UNSERVED)
def test_a_file_is_cloned(source, target):
    ok(clone(source, target))
    assert has(target, SOURCE)


@rule("CLONE-APART", v42="RFC 7862 15.13.3", no_mutant_reason=UNSERVED)
def test_a_write_to_a_clone_leaves_the_source(source, target):
    ok(clone(source, target))
    ok(target.on(write(target.stateid, 100, b"new")))
    assert has(source, SOURCE)
    assert content(target, 99, 5) == SOURCE[99:100] + b"new" + SOURCE[103:104]


@rule("CLONE-PAST", v42="RFC 7862 15.13.3", no_mutant_reason=UNSERVED)
def test_a_clone_past_the_end_of_the_source_is_invalid(source, target):
    refused(clone(source, target, 0, 0, 2 * BLOCK), nfsstat4.NFS4ERR_INVAL)


@rule("CLONE-OVERLAP", v42="RFC 7862 15.13.3", no_mutant_reason=UNSERVED)
def test_overlapping_ranges_of_a_file_are_not_cloned(source):
    refused(clone(source, source, 0, 4096, 8192), nfsstat4.NFS4ERR_INVAL)
