"""The back channel and delegations (RFC 8881 10.4, 18.6, 20): CB_SEQUENCE, CB_RECALL, DELEGRETURN.

A server grants a delegation if it wants to: without one, the cases are skipped with that reason.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.nfs4.conflicts import conflict
from storagetest.suites.conformance.nfs4.delegations import (
    DATA,
    Delegation,
    Refusals,
    delegated,
    holder,
    open_to_write,
)
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.slots import session_of, with_slots
from storagetest.wire.nfs4.callbacks import CallbackListener, Callbacks
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    INVALID,
    SAVEFH,
    link,
    putfh,
    read,
    remove,
    rename,
    setattr_,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_LEASE_TIME,
    FATTR4_SIZE,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
    CB_COMPOUND4args,
    nfs_argop4,
    nfs_cb_opnum4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

RECALL = nfs_cb_opnum4.OP_CB_RECALL


@pytest.fixture(scope="session")
def refusals(variant: object) -> Refusals:  # noqa: ARG001  # one for each target
    """Return the refusals of the target."""
    return Refusals()


@pytest.fixture
def callbacks() -> Callbacks:
    """Return callbacks that are answered as the standard requires."""
    return Callbacks()


@pytest.fixture
def held(bench, here, callbacks, version, refusals) -> Delegation:
    """Return a read delegation of the file ``file``, of a client with a back channel."""
    here.file(data=DATA)
    return delegated(holder(bench, version, callbacks), here, callbacks, refusals)


# Without a conflict


@rule("DELEG-READ", "", "10.4", kills=("deleg-stateid",))
def test_the_stateid_of_a_delegation_reads(held):
    done = held.nfs.compound(putfh(held.handle), read(held.stateid, 0, 100))
    assert ok(done)["READ"].data == DATA


@rule("DELEG-OWN", "", "8.2.1", kills=("deleg-same",))
def test_a_delegation_has_a_stateid_of_its_own(held):
    assert held.stateid.other != held.opened.other


@rule("DELEG-WRITE", "", "10.4", level="SHOULD", kills=("deleg-writes",))
def test_the_stateid_of_a_read_delegation_does_not_write(held):
    done = held.nfs.compound(putfh(held.handle), write(held.stateid, 0, b"new"))
    refused(done, nfsstat4.NFS4ERR_OPENMODE, nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_ACCESS)


@rule("DELEG-RETURN", "", "18.6.3", kills=("delegreturn-refused", "delegreturn-kept"))
def test_a_delegation_is_returned(held):
    ok(held.give_back())
    refused(held.give_back(), nfsstat4.NFS4ERR_BAD_STATEID)


@rule("DELEG-RETURN-BAD", "", "18.6.3", kills=("delegreturn-kept",))
def test_a_bad_stateid_is_not_returned(held):
    held.stateid = INVALID
    refused(held.give_back(), nfsstat4.NFS4ERR_BAD_STATEID)


@rule("DELEG-RETURN-OPEN", "", "18.6.3", kills=("delegreturn-closes",))
def test_the_open_stays_after_the_delegation_was_returned(held):
    ok(held.give_back())
    done = held.nfs.compound(putfh(held.handle), read(held.opened, 0, 100))
    assert ok(done)["READ"].data == DATA


@rule("DELEG-READERS", "", "10.4", level="SHOULD", kills=("deleg-readers",))
def test_a_second_reader_does_not_conflict(bench, held, here, version):
    other = bench.client(version)
    opening = StateOwner(other).open_op(b"file", access=OPEN4_SHARE_ACCESS_READ)
    ok(other.compound(putfh(here.handle), opening, retry=False))
    held.nfs.renew()
    assert not held.recalls


# CB_RECALL


@rule("RECALL-01", "", "10.4.4", kills=("recall-lost", "recall-late"))
def test_a_delegation_is_recalled_and_the_conflicting_open_succeeds_after_its_return(
    bench, held, here, version
):
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    held.wait_for_recall()
    ok(held.give_back())
    ok(waiting.end())


@rule("RECALL-WHAT", "", "20.2.3", kills=("recall-stateid", "recall-handle"))
def test_a_recall_names_the_delegation_and_the_file(bench, held, here, version):
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    found = held.wait_for_recall()
    assert found.stateid.other == held.stateid.other
    assert found.fh == held.handle
    ok(held.give_back())
    waiting.end()


@rule("RECALL-DELAY", "", "10.4.4", kills=("recall-delay",))
def test_a_conflicting_open_is_delayed_until_the_delegation_is_returned(bench, held, here, version):
    other = bench.client(version)
    with_slots(other, 2)
    ops = open_to_write(other, here.handle)
    waiting = conflict(other, *ops)
    held.wait_for_recall()
    for _ in range(3):
        session_of(other).next[1] = session_of(other).next.get(1, 1)
        done = other.compound(*ops, slot=1, retry=False)
        refused(done, nfsstat4.NFS4ERR_DELAY)
    ok(held.give_back())
    ok(waiting.end())


ANSWERS = {
    "BADHANDLE": nfsstat4.NFS4ERR_BADHANDLE,
    "BAD-STATEID": nfsstat4.NFS4ERR_BAD_STATEID,
    "SERVERFAULT": nfsstat4.NFS4ERR_SERVERFAULT,
}


@rule("RECALL-ANSWER", "", "20.2.4", kills=("recall-delay",), over=ANSWERS)
def test_a_recall_that_is_answered_wrongly_leaves_no_two_holders(bench, held, here, callbacks, version, what):
    callbacks.statuses = {RECALL: what}
    other = bench.client(version)
    with_slots(other, 2)
    ops = open_to_write(other, here.handle)
    waiting = conflict(other, *ops)
    held.wait_for_recall()
    opened = other.compound(*ops, slot=1, retry=False)
    if opened.status == nfsstat4.NFS4_OK:  # 20.2.4: such a reply completes the recall
        done = held.nfs.compound(putfh(held.handle), read(held.stateid, 0, 100))
        refused(done, nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_DELEG_REVOKED)
    else:
        refused(opened, nfsstat4.NFS4ERR_DELAY)
    held.give_back()
    ok(waiting.end())


CONFLICTS = {name: name for name in ("REMOVE", "RENAME", "LINK", "SETATTR")}


def conflicting(name: str, held: Delegation, here: Any) -> tuple[nfs_argop4, ...]:
    """Return operations of another client that change the file of a delegation."""
    made: dict[str, tuple[nfs_argop4, ...]] = {
        "REMOVE": (putfh(here.handle), remove(b"file")),
        "RENAME": (putfh(here.handle), SAVEFH, rename(b"file", b"renamed")),
        "LINK": (putfh(held.handle), SAVEFH, putfh(here.handle), link(b"link")),
        "SETATTR": (putfh(held.handle), setattr_({FATTR4_SIZE: 1}, ANONYMOUS)),
    }
    return made[name]


@rule(
    "RECALL-BY",
    "",
    "10.4.4",
    kills=("recall-lost",),
    over=CONFLICTS,
)
def test_an_operation_of_another_client_recalls_the_delegation(bench, held, here, version, what):
    other = bench.client(version)
    waiting = conflict(other, *conflicting(what, held, here))
    held.wait_for_recall()
    ok(held.give_back())
    ok(waiting.end())


@pytest.mark.slow
@rule(
    "RECALL-IGNORED", "", "10.4.5", no_mutant_reason="it waits for a lease, longer than a mutant's deadline"
)
def test_a_delegation_whose_recall_is_ignored_is_revoked(bench, held, here, facts, callbacks, version):
    callbacks.statuses = {RECALL: nfsstat4.NFS4ERR_DELAY}
    other = bench.client(version)
    with_slots(other, 2)
    ops = open_to_write(other, here.handle)
    renewed = time.monotonic()
    waiting = conflict(other, *ops)
    held.wait_for_recall()
    waiting.end(retry=False)

    def opened() -> bool:
        nonlocal renewed
        before, renewed = renewed, time.monotonic()
        if renewed - before > lease(facts):  # on a machine that is too slow
            pytest.skip(f"the lease was not renewed for {renewed - before:.0f} s: the server may end it")
        held.nfs.renew()
        return other.compound(*ops, retry=False).status == nfsstat4.NFS4_OK

    wait_until(
        opened, 4 * lease(facts), "the revocation of a delegation", interval=0.5, error=DeadlineExceeded
    )
    flags = ok(held.nfs.compound())["SEQUENCE"].sr_status_flags
    assert flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, f"18.46.3: sr_status_flags is {flags:#x}"


def lease(facts: Any) -> float:
    """Return the lease time in seconds."""
    found: float = facts.limits[FATTR4_LEASE_TIME]
    return found


# CB_SEQUENCE


@pytest.fixture
def recalled(bench, held, here, version) -> tuple[Delegation, list[CB_COMPOUND4args]]:
    """Return a delegation that was recalled and returned, and the CB_COMPOUNDs of it."""
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    held.wait_for_recall()
    ok(held.give_back())
    waiting.end()
    return held, held.callbacks.seen


@rule("CB-SEQUENCE-FIRST", "", "20.9.3", kills=("cb-not-first",))
def test_each_callback_begins_with_cb_sequence(recalled):
    _, calls = recalled
    for call in calls:
        found = [one.argop for one in call.argarray]
        assert found[0] == nfs_cb_opnum4.OP_CB_SEQUENCE
        assert found.count(nfs_cb_opnum4.OP_CB_SEQUENCE) == 1


@rule("CB-SEQUENCE-SESSION", "", "20.9.3", kills=("cb-session",))
def test_a_callback_is_in_the_session_of_its_connection(recalled):
    held, calls = recalled
    for call in calls:
        assert call.argarray[0].value.csa_sessionid == session_of(held.nfs).id


@rule("CB-SEQUENCE-SLOT", "", "20.9.3", kills=("cb-slot",))
def test_a_callback_is_on_a_slot_of_the_back_channel(recalled):
    held, calls = recalled
    for call in calls:
        sequence = call.argarray[0].value
        assert sequence.csa_slotid < session_of(held.nfs).back.ca_maxrequests
        assert sequence.csa_slotid <= sequence.csa_highest_slotid


@rule("CB-SEQUENCE-ID", "", "18.36.4", kills=("cb-sequence",))
def test_the_first_callback_on_a_slot_has_the_sequence_id_1(recalled):
    _, calls = recalled
    last: dict[int, int] = {}
    for call in calls:
        sequence = call.argarray[0].value
        assert sequence.csa_sequenceid == last.get(sequence.csa_slotid, 0) + 1
        last[sequence.csa_slotid] = sequence.csa_sequenceid


@rule("CB-MINOR", "", "19.2.3", kills=("cb-minor",))
def test_a_callback_has_the_minor_version_of_the_session(recalled):
    held, calls = recalled
    for call in calls:
        assert call.minorversion == held.nfs.minor


# Minor version 0


@rule(
    "CB40-RECALL",
    "10.4.4",
    no_mutant_reason="no target of the mutants grants a delegation in minor version 0",
)
def test_a_delegation_of_minor_version_0_is_recalled_over_a_connection_of_the_server(
    bench, here, callbacks, version, refusals
):
    here.file(data=DATA)
    nfs = bench.new(version)
    with CallbackListener(callbacks) as listener:
        given = ok(nfs.setclientid(callback=listener.netaddr))["SETCLIENTID"]
        nfs.confirm(given)
        held = delegated(nfs, here, callbacks, refusals)
        other = bench.client(version)
        opening = StateOwner(other).open_op(b"file", access=OPEN4_SHARE_ACCESS_BOTH)
        refused(other.compound(putfh(here.handle), opening, retry=False), nfsstat4.NFS4ERR_DELAY)
        held.wait_for_recall()
        ok(held.give_back())


@rule("CB40-NULL", "16.33.5", level="MAY")
def test_a_server_may_test_the_callback_address_of_minor_version_0(bench, callbacks, version, observe):
    nfs = bench.new(version)
    with CallbackListener(callbacks) as listener:
        nfs.confirm(ok(nfs.setclientid(callback=listener.netaddr))["SETCLIENTID"])
        nfs.renew()
        observe(f"{len(listener.links)} connections, {callbacks.nulls} CB_NULL")
