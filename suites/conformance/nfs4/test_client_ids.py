"""Client ids of NFSv4.1: EXCHANGE_ID (RFC 8881 18.35) and DESTROY_CLIENTID (18.50)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.slots import (
    OTHER_USER,
    destroy_client,
    destroy_session,
    exchange,
    restarted,
)
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import PUTROOTFH, op, unchecked
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    EXCHGID4_FLAG_CONFIRMED_R,
    EXCHGID4_FLAG_MASK_PNFS,
    EXCHGID4_FLAG_UPD_CONFIRMED_REC_A,
    EXCHGID4_FLAG_USE_NON_PNFS,
    EXCHGID4_FLAG_USE_PNFS_MDS,
    RECLAIM_COMPLETE4args,
    nfsstat4,
    state_protect_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

UPDATE = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A


def is_confirmed(result) -> bool:
    """Whether EXCHANGE_ID returned a client id that is confirmed."""
    return bool(result.eir_flags & EXCHGID4_FLAG_CONFIRMED_R)


@rule("EXID-NEW", "", "18.35.3", kills=("exid-confirmed-new",))
def test_a_new_owner_has_a_client_id_that_is_not_confirmed(bench, version):
    assert not is_confirmed(bench.new(version).exchange())


@rule(
    "EXID-CONFIRMED",
    "",
    "18.35.4",
    kills=("exchange-id-again-other", "exid-confirmed-off", "exid-confirmed-other"),
)
def test_exchange_id_of_a_confirmed_owner_returns_its_client_id(nfs):
    again = ok(nfs.raw(nfs.exchange_id()))["EXCHANGE_ID"]
    assert again.eir_clientid == nfs.clientid
    assert is_confirmed(again)


@rule("EXID-CONFIRMED-SAME", "", "18.35.4", kills=("exid-result-changes",))
def test_exchange_id_of_a_confirmed_owner_returns_the_same_server(nfs):
    again = ok(nfs.raw(nfs.exchange_id()))["EXCHANGE_ID"]
    assert again.eir_server_owner.so_major_id == nfs.exchanged.eir_server_owner.so_major_id
    assert again.eir_server_scope == nfs.exchanged.eir_server_scope
    roles = EXCHGID4_FLAG_MASK_PNFS
    assert again.eir_flags & roles == nfs.exchanged.eir_flags & roles


@rule("EXID-UNCONFIRMED", "", "18.35.4", level="SHOULD", kills=("exid-unconfirmed-kept",))
def test_a_second_exchange_id_replaces_a_client_id_that_is_not_confirmed(bench, version):
    nfs = bench.new(version)
    first = nfs.exchange()
    assert nfs.exchange().eir_clientid != first.eir_clientid, "a new client id is generated"
    stale = nfs.new_session(first.eir_sequenceid, clientid=first.eir_clientid)
    refused(nfs.raw(stale), nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("EXID-RESTART", "", "18.35.3", kills=("exid-restart-same", "exid-confirmed-new"))
def test_a_new_incarnation_has_another_client_id(bench, nfs):
    found = restarted(bench, nfs).exchange()
    assert found.eir_clientid != nfs.clientid
    assert not is_confirmed(found)


@rule("EXID-RESTART-OLD", "", "18.35.4", kills=("restart-ends-old",))
def test_the_old_incarnation_stays_until_the_new_one_is_confirmed(bench, nfs):
    restarted(bench, nfs).exchange()
    ok(nfs.compound(PUTROOTFH))


@rule("EXID-RESTART-STATE", "", "18.36.4", kills=("restart-keeps-old",))
def test_the_sessions_of_the_old_incarnation_end_with_the_confirmation_of_the_new_one(bench, nfs):
    restarted(bench, nfs).establish()
    refused(nfs.compound(PUTROOTFH), nfsstat4.NFS4ERR_BADSESSION)


@rule("EXID-RESTART-OPEN", "", "18.35.4", level="SHOULD", kills=("restart-keeps-shares",))
def test_a_new_incarnation_releases_the_opens_of_the_old_one(bench, nfs, here):
    StateOwner(nfs).open(here.handle, b"file", how=unchecked(), deny=3)
    successor = restarted(bench, nfs).establish()
    StateOwner(successor).open(here.handle, b"file").close()


@rule("EXID-UPDATE", "", "18.35.4", kills=("exid-update",))
def test_a_confirmed_client_id_is_updated(nfs):
    done = ok(nfs.raw(nfs.exchange_id(UPDATE)))["EXCHANGE_ID"]
    assert done.eir_clientid == nfs.clientid
    assert is_confirmed(done), "EXCHGID4_FLAG_CONFIRMED_R is not set"


@rule("EXID-UPDATE-NOENT", "", "18.35.4", kills=("exid-update-noent",))
def test_an_update_without_a_record_finds_nothing(bench, version):
    nfs = bench.new(version)
    refused(nfs.raw(nfs.exchange_id(UPDATE)), nfsstat4.NFS4ERR_NOENT)


@rule("EXID-UPDATE-UNCONFIRMED", "", "18.35.4", kills=("exid-update-noent",))
def test_an_update_of_a_record_that_is_not_confirmed_finds_nothing(bench, version):
    nfs = bench.new(version)
    nfs.exchange()
    refused(nfs.raw(nfs.exchange_id(UPDATE)), nfsstat4.NFS4ERR_NOENT)
    nfs.create_session()


@rule("EXID-UPDATE-VERIFIER", "", "18.35.4", kills=("exid-update-verifier",))
def test_an_update_with_another_verifier_is_not_the_same(bench, nfs):
    other = restarted(bench, nfs)
    refused(other.raw(other.exchange_id(UPDATE)), nfsstat4.NFS4ERR_NOT_SAME)
    ok(nfs.compound(PUTROOTFH))


@rule("EXID-UPDATE-PRINCIPAL", "", "18.35.4", level="SHOULD", kills=("exid-update-principal",))
def test_an_update_by_another_principal_is_not_permitted(bench, nfs, version):
    other = bench.new(version, owner=nfs.owner, cred=OTHER_USER)
    other.verifier = nfs.verifier
    refused(other.raw(other.exchange_id(UPDATE)), nfsstat4.NFS4ERR_PERM)
    ok(nfs.compound(PUTROOTFH))


@rule("EXID-INUSE", "", "18.35.4", level="SHOULD", kills=("exid-inuse",))
def test_the_owner_of_a_client_with_state_is_in_use_for_another_principal(bench, nfs, here, version):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    other = bench.new(version, owner=nfs.owner, cred=OTHER_USER)
    refused(other.raw(other.exchange_id()), nfsstat4.NFS4ERR_CLID_INUSE)
    file.close()


@rule(
    "EXID-RESERVED",
    "",
    "18.35.3",
    kills=("exid-reserved",),
    over={"8": 0x8, "200": 0x200, "80000": 0x80000, "20000000": 0x2000_0000},
)
def test_a_flag_that_is_not_defined_is_invalid(bench, version, what):
    nfs = bench.new(version)
    refused(nfs.raw(nfs.exchange_id(what)), nfsstat4.NFS4ERR_INVAL)


@rule("EXID-RESERVED-CONFIRMED", "", "18.35.3", level="SHOULD", kills=("exid-reserved",))
def test_the_flag_of_a_confirmed_client_id_is_invalid_in_a_request(bench, version):
    nfs = bench.new(version)
    refused(nfs.raw(nfs.exchange_id(EXCHGID4_FLAG_CONFIRMED_R)), nfsstat4.NFS4ERR_INVAL)


@rule("EXID-ROLE", "", "18.35.3", kills=("exid-no-role", "exid-both-roles"))
def test_the_roles_of_pnfs_are_an_acceptable_combination(bench, version):
    flags = bench.new(version).exchange().eir_flags
    assert flags & EXCHGID4_FLAG_MASK_PNFS, "13.1: one of the roles is set"
    both = EXCHGID4_FLAG_USE_NON_PNFS | EXCHGID4_FLAG_USE_PNFS_MDS
    assert flags & both != both, "13.1: a metadata server is one of pNFS"


@rule("EXID-UPD-RESULT", "", "18.35.3", kills=("exid-upd-result",))
def test_the_flag_of_an_update_is_never_returned(nfs):
    for flags in (0, UPDATE):
        assert not ok(nfs.raw(nfs.exchange_id(flags)))["EXCHANGE_ID"].eir_flags & UPDATE


@rule("EXID-SP4-NONE", "", "18.35.3", kills=("exid-protects",))
def test_no_state_protection_is_enforced_if_none_is_requested(bench, version):
    assert bench.new(version).exchange().eir_state_protect.spr_how == state_protect_how4.SP4_NONE


@rule("EXID-IMPL", "", "18.35.3", kills=("exid-impl",))
def test_a_client_without_an_implementation_id_is_accepted(bench, version):
    nfs = bench.new(version)
    ok(nfs.raw(exchange(nfs, eia_client_impl_id=())))


@rule("EXID-SERVER", "", "18.35.3", level="SHOULD", kills=("exid-result-changes",))
def test_each_connection_to_a_server_has_the_same_server_owner_and_scope(bench, version):
    first, second = (bench.new(version).exchange() for _ in range(2))
    assert first.eir_server_owner.so_major_id == second.eir_server_owner.so_major_id
    assert first.eir_server_scope == second.eir_server_scope


@rule("EXID-UNIQUE", "", "18.35.3", kills=("exid-same-id",))
def test_two_owners_have_two_client_ids(bench, version):
    first, second = (bench.new(version).exchange() for _ in range(2))
    assert first.eir_clientid != second.eir_clientid


@rule("EXID-NOT-ONLY", "", "18.35.3", kills=("exid-not-only",))
def test_exchange_id_without_sequence_is_the_only_operation(bench, version):
    nfs = bench.new(version)
    refused(nfs.raw(nfs.exchange_id(), PUTROOTFH), nfsstat4.NFS4ERR_NOT_ONLY_OP)


@rule("EXID-IN-SESSION", "", "18.35.3", kills=("exid-in-session",))
def test_exchange_id_is_accepted_after_sequence(nfs):
    found = ok(nfs.compound(nfs.exchange_id(UPDATE)))["EXCHANGE_ID"]
    assert found.eir_clientid == nfs.clientid


@rule("DC-01", "", "18.50.3", kills=("dc-refused", "cs-stale"))
def test_a_client_id_is_destroyed(nfs):
    ok(nfs.raw(destroy_session(nfs)))
    ok(nfs.raw(destroy_client(nfs)))
    refused(nfs.raw(nfs.new_session(nfs.exchanged.eir_sequenceid + 1)), nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("DC-UNCONFIRMED", "", "18.50.3", kills=("dc-refused",))
def test_a_client_id_that_is_not_confirmed_is_destroyed(bench, version):
    nfs = bench.new(version)
    nfs.exchange()
    ok(nfs.raw(destroy_client(nfs)))


@rule("DC-STALE", "", "18.50.3", kills=("dc-stale",))
def test_a_client_id_that_the_server_does_not_have_is_stale(nfs):
    ok(nfs.raw(destroy_session(nfs)))
    ok(nfs.raw(destroy_client(nfs)))
    refused(nfs.raw(destroy_client(nfs)), nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("DC-BUSY-SESSION", "", "18.50.3", kills=("dc-busy",))
def test_a_client_id_with_a_session_is_busy(nfs):
    refused(nfs.raw(destroy_client(nfs)), nfsstat4.NFS4ERR_CLIENTID_BUSY)
    ok(nfs.compound(PUTROOTFH))


@rule("DC-BUSY-OPEN", "", "18.50.3", kills=("dc-busy-open",))
def test_a_client_id_with_an_open_file_is_busy(nfs, here):
    StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    sequence = nfs.exchanged.eir_sequenceid + 1
    ok(nfs.raw(destroy_session(nfs)))
    refused(nfs.raw(destroy_client(nfs)), nfsstat4.NFS4ERR_CLIENTID_BUSY)
    nfs.exchanged = replace(nfs.exchanged, eir_sequenceid=sequence)
    nfs.create_session()  # with which the harness disposes of the client


@rule("DC-SAME", "", "18.50.3", kills=("dc-busy",))
def test_the_client_id_of_the_session_of_sequence_is_busy(nfs):
    refused(nfs.compound(destroy_client(nfs)), nfsstat4.NFS4ERR_CLIENTID_BUSY)


@rule("DC-OTHER", "", "18.50.3", kills=("dc-refused",))
def test_a_client_id_is_destroyed_in_the_session_of_another_client(bench, nfs, version):
    other = bench.new(version)
    other.exchange()
    ok(nfs.compound(destroy_client(other)))


@rule("DC-NOT-ONLY", "", "18.50.3", kills=("dc-not-only",))
def test_destroy_clientid_without_sequence_is_the_only_operation(bench, version):
    nfs = bench.new(version)
    nfs.exchange()
    refused(nfs.raw(destroy_client(nfs), PUTROOTFH), nfsstat4.NFS4ERR_NOT_ONLY_OP)


@rule("RC-AGAIN", "", "18.51.4", kills=("rc-already",))
def test_a_second_reclaim_complete_is_refused(nfs):
    complete = op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))
    refused(nfs.compound(complete), nfsstat4.NFS4ERR_COMPLETE_ALREADY)
