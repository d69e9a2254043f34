"""SEQUENCE (RFC 8881 18.46) and the reply cache (2.10.6): retries, order, limits, slots in parallel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.slots import OTHER_USER, send, session_of, with_slots
from storagetest.wire.nfs4.client import FORE, Done, Nfs4Client, ok, refused, status_of
from storagetest.wire.nfs4.harness import entries
from storagetest.wire.nfs4.operations import (
    GETFH,
    PUTROOTFH,
    create,
    getattr_,
    lookup,
    op,
    putfh,
    remove,
    unchecked,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_FILEID,
    SEQ4_STATUS_ADMIN_STATE_REVOKED,
    SEQ4_STATUS_DEVID_CHANGED,
    SEQ4_STATUS_DEVID_DELETED,
    SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED,
    SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED,
    SEQ4_STATUS_LEASE_MOVED,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
    SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
    COMPOUND4args,
    RECLAIM_COMPLETE4args,
    TEST_STATEID4args,
    nfs_opnum4,
    nfsstat4,
    secinfo_style4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

MISORDERED = nfsstat4.NFS4ERR_SEQ_MISORDERED
FALSE_RETRY = nfsstat4.NFS4ERR_SEQ_FALSE_RETRY
UNCACHED = nfsstat4.NFS4ERR_RETRY_UNCACHED_REP
LOST = (
    SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
    | SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED
    | SEQ4_STATUS_ADMIN_STATE_REVOKED
    | SEQ4_STATUS_RECALLABLE_STATE_REVOKED
    | SEQ4_STATUS_LEASE_MOVED
    | SEQ4_STATUS_RESTART_RECLAIM_NEEDED
    | SEQ4_STATUS_DEVID_CHANGED
    | SEQ4_STATUS_DEVID_DELETED
)
"""Status flags of a client that has lost something, or has something to do."""


def sequence_of(done: Done):
    """Return what SEQUENCE returned."""
    return ok(done)["SEQUENCE"]


def is_absent(nfs: Nfs4Client, directory: bytes, name: bytes) -> bool:
    """Whether no file of the directory has the name."""
    return nfs.compound(putfh(directory), lookup(name)).status == nfsstat4.NFS4ERR_NOENT


@rule("SEQ-RESULT", "", "18.46.3", kills=("sequence-slot-zero", "seq-session", "seq-slot", "seq-id"))
def test_sequence_returns_session_slot_and_sequence_id_of_the_request(nfs):
    for slot in range(min(2, session_of(nfs).fore.ca_maxrequests)):
        sequence = session_of(nfs).sequence(slot)
        found = sequence_of(send(nfs, sequence))
        assert found.sr_sessionid == sequence.sa_sessionid
        assert found.sr_slotid == sequence.sa_slotid
        assert found.sr_sequenceid == sequence.sa_sequenceid


@rule("SEQ-HIGHEST", "", "18.46.3", level="SHOULD", kills=("seq-highest",))
def test_the_highest_slot_is_not_below_that_of_the_request(nfs):
    last = session_of(nfs).fore.ca_maxrequests - 1
    found = sequence_of(send(nfs, replace(session_of(nfs).sequence(), sa_highest_slotid=last)))
    assert found.sr_highest_slotid >= last


@rule("SEQ-HIGHEST-USED", "", "18.46.3", kills=("seq-highest-more", "sequence-target-above"))
def test_the_highest_slot_that_is_returned_is_accepted(nfs):
    highest = sequence_of(send(nfs, session_of(nfs).sequence())).sr_highest_slotid
    ok(send(nfs, session_of(nfs).sequence(highest), PUTROOTFH))


@rule("SEQ-TARGET", "", "18.46.3", kills=("seq-target",))
def test_the_target_slot_that_is_returned_is_accepted(nfs):
    target = sequence_of(send(nfs, session_of(nfs).sequence())).sr_target_highest_slotid
    ok(send(nfs, session_of(nfs).sequence(target), PUTROOTFH))


@rule("SEQ-STATUS", "", "18.46.3", kills=("seq-status",))
def test_a_new_client_has_lost_no_state(nfs):
    found = sequence_of(send(nfs, session_of(nfs).sequence())).sr_status_flags
    assert not found & LOST, f"sr_status_flags is {found:#x}"


@rule("SEQ-BADSESSION", "", "18.46.3", kills=("seq-badsession",), over={"0": 0, "F": 0xFF, "A": 0x5A})
def test_a_session_that_does_not_exist_is_bad(nfs, what):
    wrong = replace(session_of(nfs).sequence(), sa_sessionid=bytes([what]) * 16)
    refused(send(nfs, wrong, PUTROOTFH), nfsstat4.NFS4ERR_BADSESSION)


@rule("SEQ-BADSLOT", "", "2.10.6.1", kills=("seq-badslot",), over={"NEXT": 0, "FAR": 1000, "MAX": None})
def test_a_slot_that_the_session_does_not_have_is_bad(nfs, what):
    slot = 0xFFFFFFFF if what is None else session_of(nfs).fore.ca_maxrequests + what
    wrong = replace(session_of(nfs).sequence(), sa_slotid=slot, sa_highest_slotid=slot, sa_sequenceid=1)
    refused(send(nfs, wrong, PUTROOTFH), nfsstat4.NFS4ERR_BADSLOT, nfsstat4.NFS4ERR_BAD_HIGH_SLOT)


@rule("SEQ-BADHIGH", "", "2.10.6.1", level="MAY")
def test_a_highest_slot_that_the_session_does_not_have(nfs, observe):
    highest = session_of(nfs).fore.ca_maxrequests + 1000
    done = send(nfs, replace(session_of(nfs).sequence(), sa_highest_slotid=highest), PUTROOTFH)
    observe(done.status.name)
    assert done.status in (nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_BAD_HIGH_SLOT)


@rule("SEQ-POS", "", "18.46.3", kills=("seq-pos",))
def test_sequence_is_the_first_operation(nfs):
    again = op("SEQUENCE", session_of(nfs).sequence(1))
    refused(nfs.compound(PUTROOTFH, again), nfsstat4.NFS4ERR_SEQUENCE_POS)


@rule("SEQ-POS-SECOND", "", "18.46.3", kills=("seq-pos",))
def test_sequence_does_not_follow_sequence(nfs):
    again = op("SEQUENCE", session_of(nfs).sequence(1))
    refused(nfs.compound(again, PUTROOTFH), nfsstat4.NFS4ERR_SEQUENCE_POS)


OPERATIONS = {
    "PUTROOTFH": PUTROOTFH,
    "PUTFH": putfh(b"handle"),
    "GETFH": GETFH,
    "GETATTR": getattr_(FATTR4_FILEID),
    "LOOKUP": lookup(b"name"),
    "REMOVE": remove(b"name"),
    "RECLAIM_COMPLETE": op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False)),
    "SECINFO_NO_NAME": op("SECINFO_NO_NAME", secinfo_style4.SECINFO_STYLE4_CURRENT_FH),
    "TEST_STATEID": op("TEST_STATEID", TEST_STATEID4args(())),
}


@rule("SEQ-NONE", "", "18.46.3", kills=("seq-none",), over=OPERATIONS)
def test_an_operation_without_sequence_is_not_in_a_session(bench, version, what):
    refused(bench.new(version).raw(what), nfsstat4.NFS4ERR_OP_NOT_IN_SESSION)


# Order


@rule(
    "SEQ-ORDER",
    "",
    "18.46.3",
    kills=("seq-misordered",),
    over={"SKIPPED": 2, "FAR": 1000, "OLD": -1, "HALF": 2**31},
)
def test_a_sequence_id_out_of_order_is_misordered(nfs, what):
    ok(nfs.compound(PUTROOTFH))
    last = session_of(nfs).next[0] - 1
    wrong = replace(session_of(nfs).sequence(), sa_sequenceid=(last + what) % 2**32)
    refused(send(nfs, wrong, PUTROOTFH), MISORDERED)


@rule("SEQ-ORDER-KEPT", "", "2.10.6.1.2", kills=("seq-misordered-counts",))
def test_a_sequence_that_fails_leaves_the_slot(nfs):
    session = session_of(nfs)
    before = session.sequence()
    wrong = replace(before, sa_sequenceid=before.sa_sequenceid + 5)
    refused(send(nfs, wrong, PUTROOTFH), MISORDERED)
    ok(send(nfs, before, PUTROOTFH))


@rule("SEQ-ORDER-EACH", "", "2.10.6.1", kills=("seq-one-counter",))
def test_each_slot_has_sequence_ids_of_its_own(nfs):
    session = with_slots(nfs, 2)
    for slot in (0, 1, 0, 0, 1):
        ok(send(nfs, session.sequence(slot), PUTROOTFH))


@rule("SEQ-ORDER-SLOTS", "", "18.46.3", kills=("seq-misordered-slots",))
def test_a_sequence_id_out_of_order_is_misordered_on_every_slot(nfs):
    session = session_of(nfs)
    for slot in {1, session.fore.ca_maxrequests - 1} - {0}:
        if slot >= session.fore.ca_maxrequests:
            pytest.skip("the session has one slot")
        for _ in range(2):
            ok(send(nfs, session.sequence(slot), PUTROOTFH))
        right = session.sequence(slot)
        for wrong in (right.sa_sequenceid + 1, right.sa_sequenceid + 1000, right.sa_sequenceid - 2):
            refused(send(nfs, replace(right, sa_sequenceid=wrong), PUTROOTFH), MISORDERED)
        ok(send(nfs, right, PUTROOTFH))


# Retries


@rule(
    "RETRY-CACHED",
    "",
    "2.10.6.1.3",
    kills=(
        "replay-misordered",
        "retry-executed",
    ),
)
def test_a_retry_returns_the_cached_reply(nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    first, again = (send(nfs, sequence, putfh(here.handle), create(b"made"), GETFH) for _ in range(2))
    assert ok(first).results[1:] == again.results[1:]
    assert again["SEQUENCE"].sr_sequenceid == sequence.sa_sequenceid


@rule("RETRY-REMOVE", "", "2.10.6.1.3", kills=("retry-executed",))
def test_a_retry_of_a_remove_succeeds_again(nfs, here):
    here.directory(b"made")
    sequence = session_of(nfs).sequence(cache=True)
    first, again = (send(nfs, sequence, putfh(here.handle), remove(b"made")) for _ in range(2))
    assert ok(first).results[1:] == ok(again).results[1:]


@rule("RETRY-FAILED", "", "2.10.6.1.3", kills=("false-retry-executed", "retry-other-error"))
def test_a_retry_of_a_request_that_failed_returns_its_error(nfs, here):
    """The request is not executed again: by then it would succeed."""
    sequence = session_of(nfs).sequence(cache=True)
    ops = putfh(here.handle), remove(b"absent")
    first = send(nfs, sequence, *ops)
    refused(first, nfsstat4.NFS4ERR_NOENT)
    here.file(b"absent")
    again = send(nfs, sequence, *ops)
    assert again.statuses == first.statuses, f"the first reply was {first.line}, the retry's is {again.line}"
    assert [one.name for one in entries(here.nfs, here.handle)] == [b"absent"], "the retry was executed"


@rule("RETRY-TWICE", "", "2.10.6.1.3", kills=("retry-executed",))
def test_a_reply_is_returned_as_often_as_it_is_requested(nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    replies = [send(nfs, sequence, putfh(here.handle), create(b"made")) for _ in range(4)]
    assert len({ok(one).results[1:] for one in replies}) == 1


@rule("RETRY-CONNECTION", "", "2.10.6.2", kills=("retry-executed",))
def test_a_request_is_retried_on_another_connection(bench, nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    ops = (putfh(here.handle), create(b"made"))
    first = ok(send(nfs, sequence, *ops))
    nfs.rpc.link.close()
    nfs.rpc = bench.rpc(name="reconnected")
    assert ok(send(nfs, sequence, *ops)).results[1:] == first.results[1:]


@rule("RETRY-ALONE", "", "2.10.6.1.1", kills=("retry-alone",))
def test_a_retry_of_sequence_alone_succeeds(nfs):
    sequence = session_of(nfs).sequence()
    for _ in range(2):
        assert sequence_of(send(nfs, sequence)).sr_sequenceid == sequence.sa_sequenceid


@rule("RETRY-UNCACHED", "", "2.10.6.1.3", kills=("retry-uncached-first",))
def test_a_retry_that_is_not_cached_is_not_executed_again(nfs, here, observe):
    sequence = session_of(nfs).sequence()
    ops = (putfh(here.handle), create(b"made"))
    first, again = ok(send(nfs, sequence, *ops)), send(nfs, sequence, *ops)
    assert again.statuses[0] == nfsstat4.NFS4_OK, f"{again.line}: SEQUENCE succeeds"
    if again.status == nfsstat4.NFS4_OK:
        observe("the reply is cached")
        assert again.results[1:] == first.results[1:]
    else:
        observe(again.status.name)
        assert again.statuses[1:] == [UNCACHED]


@rule("RETRY-SLOT-ON", "", "2.10.6.1", kills=("retry-ends-slot",))
def test_a_slot_goes_on_after_a_retry(nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    for _ in range(2):
        ok(send(nfs, sequence, putfh(here.handle), GETFH))
    ok(nfs.compound(PUTROOTFH))


@rule("RETRY-EACH-SLOT", "", "2.10.6.1", kills=("retry-last-slot-only",))
def test_each_slot_keeps_the_reply_of_its_last_request(nfs, here):
    """A slot has a cached reply of its own: requests on other slots do not replace it."""
    session = session_of(nfs)
    sent = []
    for slot in range(min(3, session.fore.ca_maxrequests)):
        sequence, name = session.sequence(slot, cache=True), b"made-%d" % slot
        ops = (putfh(here.handle), create(name), GETFH)
        sent.append((sequence, ops, ok(send(nfs, sequence, *ops))))
    for sequence, ops, first in sent:
        again = send(nfs, sequence, *ops)
        assert again.results[1:] == first.results[1:], f"slot {sequence.sa_slotid}: {again.line}"


@rule("FALSE-RETRY", "", "2.10.6.1.3.1", kills=("false-retry-executed",))
def test_another_request_with_the_sequence_id_of_the_last_one_is_not_executed(nfs, here, observe):
    sequence = session_of(nfs).sequence(cache=True)
    ok(send(nfs, sequence, putfh(here.handle), create(b"first")))
    done = send(nfs, sequence, putfh(here.handle), create(b"second"))
    observe(f"{done.line}")
    assert is_absent(nfs, here.handle, b"second")


@rule("FALSE-RETRY-REPLY", "", "2.10.6.1.3", kills=("false-retry-status",))
def test_a_false_retry_has_one_of_the_permitted_replies(nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    first = ok(send(nfs, sequence, putfh(here.handle), create(b"first")))
    done = send(nfs, sequence, putfh(here.handle), remove(b"first"))
    whole = done.results[1:] == first.results[1:]
    assert whole or done.statuses == [FALSE_RETRY] or done.statuses[1:] == [UNCACHED], done.line


@rule("FALSE-RETRY-USER", "", "2.10.6.1.3.1", kills=("false-retry-user",))
def test_a_retry_by_another_user_is_a_false_retry(bench, nfs, here):
    sequence = session_of(nfs).sequence(cache=True)
    ops = (putfh(here.handle), create(b"made"))
    ok(send(nfs, sequence, *ops))
    user = Nfs4Client(bench.rpc(cred=OTHER_USER, name="another user"), nfs.minor)
    refused(send(user, sequence, *ops), FALSE_RETRY)


# Limits


def limited(bench, version, **attributes: int) -> Nfs4Client:
    """Return a client whose session has these attributes of the fore channel, or what the server chose."""
    nfs = bench.new(version)
    nfs.exchange()
    nfs.create_session(fore=replace(FORE, **attributes))
    ok(nfs.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))
    return nfs


def handles(nfs: Nfs4Client, handle: bytes) -> list:
    """Return PUTFH, and as many GETFH as the session accepts, 200 at most."""
    return [putfh(handle)] + [GETFH] * (min(session_of(nfs).fore.ca_maxoperations, 202) - 2)


@rule("REQ-TOO-BIG", "", "2.10.6.4", kills=("req-too-big",))
def test_a_request_over_the_limit_is_too_big(bench, here, version):
    nfs = limited(bench, version, ca_maxrequestsize=2048)
    assert session_of(nfs).fore.ca_maxrequestsize <= 2048
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    done = file.on(write(file.stateid, 0, b"x" * 4096))
    refused(done, nfsstat4.NFS4ERR_REQ_TOO_BIG)
    assert all(one == nfsstat4.NFS4_OK for one in done.statuses[:-1])
    file.close()


@rule("REP-TOO-BIG", "", "2.10.6.4", kills=("rep-too-big",))
def test_a_reply_over_the_limit_is_too_big(bench, here, version):
    nfs = limited(bench, version, ca_maxresponsesize=1024, ca_maxresponsesize_cached=512)
    ops = handles(nfs, here.handle)
    if len(ops) * (len(here.handle) + 12) < 1024:
        pytest.skip(f"{len(ops)} operations, which the session accepts, have no reply over 1024 bytes")
    refused(send(nfs, session_of(nfs).sequence(), *ops), nfsstat4.NFS4ERR_REP_TOO_BIG)


@rule("REP-SIZE", "", "18.36.3", kills=("rep-size",))
def test_a_reply_has_at_most_the_size_that_was_agreed(bench, here, version):
    nfs = limited(bench, version, ca_maxresponsesize=1024, ca_maxresponsesize_cached=512)
    for count in (1, 8, 16, len(handles(nfs, here.handle))):
        done = send(nfs, session_of(nfs).sequence(), *handles(nfs, here.handle)[:count])
        assert len(done.raw) <= session_of(nfs).fore.ca_maxresponsesize


@rule("REP-TOO-BIG-TO-CACHE", "", "2.10.6.4", kills=("rep-too-big-to-cache",))
def test_a_reply_over_the_size_of_the_cache_is_refused_if_it_is_to_be_cached(bench, here, version):
    nfs = limited(bench, version, ca_maxresponsesize_cached=512)
    ops = handles(nfs, here.handle)
    if len(ops) * (len(here.handle) + 12) < 512:
        pytest.skip(f"{len(ops)} operations, which the session accepts, have no reply over 512 bytes")
    done = send(nfs, session_of(nfs).sequence(cache=True), *ops)
    refused(done, nfsstat4.NFS4ERR_REP_TOO_BIG_TO_CACHE)


@rule("REP-NOT-CACHED", "", "2.10.6.4", kills=("rep-not-cached",))
def test_a_reply_over_the_size_of_the_cache_is_sent_if_it_is_not_to_be_cached(bench, here, version):
    nfs = limited(bench, version, ca_maxresponsesize_cached=512)
    ok(send(nfs, session_of(nfs).sequence(), *handles(nfs, here.handle)[:16]))


@rule("TOO-MANY-OPS", "", "18.36.3", kills=("too-many-ops",))
def test_more_operations_than_agreed_are_too_many(bench, version):
    nfs = limited(bench, version, ca_maxoperations=8)
    most = session_of(nfs).fore.ca_maxoperations
    if most > 10_000:
        pytest.skip(f"the server accepts {most} operations, more than this case sends")
    done = send(nfs, session_of(nfs).sequence(), *[PUTROOTFH] * most)
    refused(done, nfsstat4.NFS4ERR_TOO_MANY_OPS)


@rule("MOST-OPS", "", "18.36.3", kills=("most-ops",))
def test_as_many_operations_as_agreed_are_executed(bench, version):
    nfs = limited(bench, version, ca_maxoperations=8)
    most = min(session_of(nfs).fore.ca_maxoperations, 1000)
    done = ok(send(nfs, session_of(nfs).sequence(), *[PUTROOTFH] * (most - 1)))
    assert len(done.results) == most


# Parallel slots


@rule("PARALLEL-01", "", "2.10.6.1", kills=("seq-slot", "parallel-mixed"))
def test_requests_on_all_slots_are_executed_at_the_same_time(nfs, here):
    session, rpc = session_of(nfs), nfs.rpc
    count = session.fore.ca_maxrequests
    sent = {}
    making = {slot: (putfh(here.handle), create(f"{slot}".encode()), GETFH) for slot in range(count)}
    for slot, ops in making.items():
        asked = COMPOUND4args(b"", nfs.minor, (op("SEQUENCE", session.sequence(slot)), *ops))
        sent[slot] = rpc.send(rpc.procedure("COMPOUND"), rpc.encode("COMPOUND", asked))
    for slot, xid in sent.items():
        done = Done(rpc.result(xid))
        if status_of(done.results[0]) == nfsstat4.NFS4_OK:
            assert done["SEQUENCE"].sr_slotid == slot
            session.advance(slot)
        if done.status == nfsstat4.NFS4ERR_DELAY:
            done = nfs.compound(*making[slot], slot=slot)
        assert here.find(f"{slot}".encode()) == ok(done)["GETFH"].object


@rule("PARALLEL-RETRY", "", "2.10.6.2", kills=("parallel-executed",))
def test_a_retry_before_the_reply_is_not_executed(nfs, here, observe):
    session, rpc = session_of(nfs), nfs.rpc
    ops = (op("SEQUENCE", session.sequence(cache=True)), putfh(here.handle), create(b"made"))
    argument = COMPOUND4args(b"", nfs.minor, ops)
    procedure = rpc.procedure("COMPOUND")
    xids = [rpc.send(procedure, rpc.encode("COMPOUND", argument)) for _ in range(3)]
    session.advance()
    replies = [rpc.result(xid) for xid in xids]
    observe(", ".join(sorted({one.status.name for one in replies})))
    done = [one for one in replies if one.status == nfsstat4.NFS4_OK]
    if not done and all(one.status == nfsstat4.NFS4ERR_DELAY for one in replies):
        pytest.skip("the server is busy (NFS4ERR_DELAY), and executes none of the three")
    assert done, "one of the three is executed"
    for one in replies:
        if status_of(one.resarray[0]) == nfsstat4.NFS4_OK:
            assert one.resarray[1:] == done[0].resarray[1:], "a retry has the reply of the first"
        else:
            assert one.status in (nfsstat4.NFS4ERR_DELAY, MISORDERED)


@rule("PARALLEL-SESSIONS", "", "2.10.1", kills=("seq-one-counter",))
def test_two_clients_use_the_same_slots(bench, nfs, version):
    other = bench.client(version)
    for _ in range(3):
        for client in (nfs, other):
            found = ok(client.compound(PUTROOTFH)).result.resarray[0]
            assert found.resop == nfs_opnum4.OP_SEQUENCE
            assert found.value.value.sr_sessionid == session_of(client).id
