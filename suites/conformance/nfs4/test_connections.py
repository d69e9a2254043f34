"""Several connections of one client share its sessions, slots and state (RFC 8881 2.10.3, 2.10.5, 2.10.6)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.slots import destroy_session, send, session_of, with_slots
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import Nfs4Harness
from storagetest.wire.nfs4.operations import PUTROOTFH, create, op, putfh, read, unchecked, write
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import nfs_lock_type4, nfsstat4

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]


def also_on(bench: Nfs4Harness, nfs: Nfs4Client) -> Nfs4Client:
    """Return the same client, with its session, on a connection of its own; ``nfs`` disposes of both."""
    other = Nfs4Client(bench.rpc(name=f"NFS 4.{nfs.minor} again"), nfs.minor, owner=nfs.owner)
    other.verifier, other.clientid, other.session = nfs.verifier, nfs.clientid, nfs.session
    return other


@rule("CONN-SLOT", "", "2.10.6.1", kills=("conn-slots",), over={"FIRST": 0, "SECOND": 1})
def test_a_slot_goes_on_on_another_connection(bench, nfs, what):
    session, other = with_slots(nfs, what + 1), also_on(bench, nfs)
    for one in (nfs, other, nfs, other, other, nfs):
        ok(send(one, session.sequence(what), PUTROOTFH))


@rule("CONN-SLOT-ORDER", "", "2.10.6.1", kills=("conn-slots-anew",))
def test_a_slot_does_not_begin_anew_on_another_connection(bench, nfs, here):
    """The sequence id 1 is one of the past, and is no first one there."""
    session = session_of(nfs)
    for _ in range(3):
        first = session.sequence()
        ok(send(nfs, first, PUTROOTFH))
    past = type(first)(session.id, 1, 0, 0, False)
    refused(
        send(also_on(bench, nfs), past, putfh(here.handle), create(b"made")), nfsstat4.NFS4ERR_SEQ_MISORDERED
    )


@rule("CONN-SLOTS", "", "2.10.3.1", kills=("conn-second-slow",))
def test_requests_on_two_connections_are_answered_each_on_its_own(bench, nfs):
    """Both are sent before a reply is read, and the later one is read first."""
    session, other = with_slots(nfs, 2), also_on(bench, nfs)
    for one in (nfs, other):
        ok(send(one, session.sequence(), PUTROOTFH))
    sent = [
        (one, one.rpc.send(one.rpc.procedure("COMPOUND"), one.encode(PUTROOTFH, slot=slot)))
        for slot, one in enumerate((nfs, other))
    ]
    for one, xid in reversed(sent):
        assert one.rpc.result(xid).status == nfsstat4.NFS4_OK
    session.advance(0)
    session.advance(1)


@rule("CONN-STATE", "9.1", "2.10.3", kills=("conn-state",))
def test_the_state_of_a_client_is_used_on_another_connection(bench, nfs, here):
    other = also_on(bench, nfs)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    ok(other.compound(putfh(file.handle), write(file.stateid, 0, b"data")))
    assert ok(file.on(read(file.stateid, 0, 10)))["READ"].data == b"data"
    locks = StateOwner(nfs)
    ok(file.lock(locks, nfs_lock_type4.WRITE_LT, 0, 10))
    assert ok(other.compound(putfh(file.handle), read(file.stateid, 0, 10)))["READ"].data == b"data"


@rule("CONN-CLOSED", "9.1", "2.10.5.1", kills=("conn-closed",))
def test_a_connection_that_is_closed_ends_nothing_of_the_client(bench, nfs, here):
    """The connection of CREATE_SESSION or SETCLIENTID is closed while another one is in use."""
    other = also_on(bench, nfs)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    other.renew()
    first, nfs.rpc = nfs.rpc, other.rpc
    first.link.close()
    for _ in range(2):
        ok(nfs.compound(putfh(file.handle), write(file.stateid, 0, b"data")))
    file.close()


@rule("CONN-SESSIONS", "", "2.10.3", kills=("conn-one-session",))
def test_sessions_of_two_clients_share_a_connection(bench, nfs, here, version):
    second = bench.new(version)
    own, second.rpc = second.rpc, nfs.rpc
    second.establish()
    files = [
        StateOwner(one).open(here.handle, name, how=unchecked())
        for one, name in ((nfs, b"a"), (second, b"b"))
    ]
    for file in (*files, *files):
        ok(file.on(write(file.stateid, 0, b"data")))
    for file in files:
        file.close()
    second.rpc = own


@rule("CONN-CREATE", "", "18.36.3", kills=("conn-create",))
def test_a_session_is_created_on_another_connection_than_the_client_id(bench, version):
    nfs = bench.new(version)
    nfs.exchange()
    nfs.rpc.link.close()
    nfs.rpc = bench.rpc(name="second")
    nfs.create_session()
    ok(nfs.compound(PUTROOTFH))


@rule("CONN-DESTROYED", "", "18.37.3", kills=("conn-destroy",))
def test_a_session_that_is_destroyed_on_one_connection_ends_on_all(bench, nfs):
    other, third = also_on(bench, nfs), also_on(bench, nfs)
    for one in (nfs, other, third):
        ok(send(one, session_of(nfs).sequence(), PUTROOTFH))
    sequence = session_of(nfs).sequence()
    ok(other.raw(destroy_session(nfs)))
    for one in (nfs, third, other):
        refused(one.raw(op("SEQUENCE", sequence), PUTROOTFH), nfsstat4.NFS4ERR_BADSESSION)
    nfs.session = None
