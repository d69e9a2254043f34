"""Sessions (RFC 8881 18.36, 18.34, 18.37, 18.51): CREATE_SESSION, connections, what ends them, reclaims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.restart import patiently
from storagetest.suites.conformance.nfs4.slots import OTHER_USER, destroy_session, send, session_of
from storagetest.wire.nfs4.client import BACK, CB_PROGRAM, FORE, Nfs4Client, Session, ok, refused
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    CURRENT,
    GETFH,
    LOOKUPP,
    PUTROOTFH,
    create,
    getattr_,
    op,
    putfh,
    read,
    unchecked,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    CREATE_SESSION4_FLAG_CONN_RDMA,
    CREATE_SESSION4_FLAG_PERSIST,
    FATTR4_TYPE,
    BACKCHANNEL_CTL4args,
    BIND_CONN_TO_SESSION4args,
    FREE_STATEID4args,
    RECLAIM_COMPLETE4args,
    TEST_STATEID4args,
    callback_sec_parms4,
    channel_dir_from_client4,
    channel_dir_from_server4,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    open_delegation_type4,
    secinfo_style4,
)
from storagetest.wire.rpc.types import auth_flavor

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

LIMITS = ("ca_headerpadsize", "ca_maxrequestsize", "ca_maxresponsesize", "ca_maxresponsesize_cached")
BOTH = channel_dir_from_client4.CDFC4_FORE_OR_BOTH


def known(bench, version) -> Nfs4Client:
    """Return a client with a client id that is not confirmed."""
    nfs = bench.new(version)
    nfs.exchange()
    return nfs


def another_session(nfs: Nfs4Client, number: int = 1) -> Session:
    """Create one more session of a client; the client goes on with the one that it has."""
    created = ok(nfs.raw(nfs.new_session(nfs.exchanged.eir_sequenceid + number)))["CREATE_SESSION"]
    return Session(
        created.csr_sessionid, created.csr_fore_chan_attrs, created.csr_back_chan_attrs, created.csr_flags
    )


def bind(session: Session, direction: channel_dir_from_client4 = channel_dir_from_client4.CDFC4_FORE):
    """Return BIND_CONN_TO_SESSION."""
    return op("BIND_CONN_TO_SESSION", BIND_CONN_TO_SESSION4args(session.id, direction, False))


# CREATE_SESSION


@rule("CS-SEQUENCE", "", "18.36.3", kills=("cs-sequence",))
def test_create_session_returns_the_sequence_id_of_the_request(bench, version):
    nfs = known(bench, version)
    number = nfs.exchanged.eir_sequenceid
    assert ok(nfs.raw(nfs.new_session(number)))["CREATE_SESSION"].csr_sequence == number


@rule(
    "CS-REPLAY",
    "",
    "18.36.4",
    kills=(
        "create-session-again-other",
        "cs-replay",
    ),
)
def test_a_retry_of_create_session_returns_the_same_session(nfs):
    session = session_of(nfs)
    again = ok(nfs.raw(nfs.new_session(nfs.exchanged.eir_sequenceid)))["CREATE_SESSION"]
    assert again.csr_sessionid == session.id
    assert again.csr_fore_chan_attrs == session.fore
    assert again.csr_back_chan_attrs == session.back
    ok(nfs.compound(PUTROOTFH))


@rule("CS-REPLAY-CONNECTION", "", "18.36.4", kills=("cs-replay",))
def test_create_session_is_retried_on_another_connection(bench, nfs, version):
    other = bench.new(version)
    again = ok(
        other.raw(nfs.new_session(nfs.exchanged.eir_sequenceid, clientid=nfs.clientid)),
    )["CREATE_SESSION"]
    assert again.csr_sessionid == session_of(nfs).id


@rule(
    "CS-MISORDERED",
    "",
    "18.36.4",
    kills=("cs-misordered",),
    over={"BEFORE": -1, "NEXT": 1, "SECOND": 2, "FAR": 1000},
)
def test_a_first_create_session_with_another_sequence_id_is_misordered(bench, version, what):
    nfs = known(bench, version)
    number = nfs.exchanged.eir_sequenceid
    refused(nfs.raw(nfs.new_session((number + what) % 2**32)), nfsstat4.NFS4ERR_SEQ_MISORDERED)
    nfs.create_session()


@rule("CS-MISORDERED-LATER", "", "18.36.4", kills=("cs-misordered",), over={"SECOND": 2, "FAR": 1000})
def test_a_later_create_session_with_another_sequence_id_is_misordered(nfs, what):
    refused(nfs.raw(nfs.new_session(nfs.exchanged.eir_sequenceid + what)), nfsstat4.NFS4ERR_SEQ_MISORDERED)
    ok(nfs.raw(destroy_session(nfs, another_session(nfs))))


@rule("CS-NEXT", "", "18.36.4", kills=("cs-same-session",))
def test_each_session_of_a_client_has_an_id_of_its_own(nfs):
    sessions = [session_of(nfs), another_session(nfs, 1), another_session(nfs, 2)]
    assert len({one.id for one in sessions}) == 3
    for one in sessions[1:]:
        ok(nfs.raw(destroy_session(nfs, one)))


@rule("CS-STALE", "", "18.36.4", kills=("cs-stale",))
def test_a_session_of_a_client_id_that_does_not_exist_is_refused(nfs):
    absent = nfs.clientid ^ 0xFFFF_FFFF_FFFF_FFFF
    refused(nfs.raw(nfs.new_session(1, clientid=absent)), nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("CS-NOT-ONLY", "", "18.36.3", kills=("cs-not-only",))
def test_create_session_without_sequence_is_the_only_operation(bench, version):
    nfs = known(bench, version)
    request = nfs.new_session(nfs.exchanged.eir_sequenceid)
    refused(nfs.raw(request, PUTROOTFH), nfsstat4.NFS4ERR_NOT_ONLY_OP)


@rule("CS-IN-SESSION", "", "18.36.3", kills=("cs-in-session",))
def test_a_session_is_created_after_sequence(nfs):
    created = ok(nfs.compound(nfs.new_session(nfs.exchanged.eir_sequenceid + 1)))["CREATE_SESSION"]
    assert created.csr_sessionid != session_of(nfs).id
    ok(nfs.raw(destroy_session(nfs, replace(session_of(nfs), id=created.csr_sessionid))))


@rule("CS-PRINCIPAL", "", "18.36.4", level="SHOULD", kills=("cs-inuse",))
def test_another_principal_does_not_confirm_a_client_id(bench, version):
    nfs, other = known(bench, version), bench.new(version, cred=OTHER_USER)
    request = nfs.new_session(nfs.exchanged.eir_sequenceid)
    refused(other.raw(request), nfsstat4.NFS4ERR_CLID_INUSE)
    nfs.create_session()


@rule("CS-FORE", "", "18.36.3", kills=("cs-fore-larger",), over={name[3:].upper(): name for name in LIMITS})
def test_a_limit_of_the_fore_channel_is_not_increased(bench, version, what):
    nfs = known(bench, version)
    asked = replace(FORE, ca_maxrequestsize=16384, ca_maxresponsesize=16384, ca_maxresponsesize_cached=2048)
    assert getattr(nfs.create_session(fore=asked).fore, what) <= getattr(asked, what)


@rule("CS-BACK", "", "18.36.3", kills=("cs-back-larger",), over={name[3:].upper(): name for name in LIMITS})
def test_a_limit_of_the_back_channel_is_not_increased(bench, version, what):
    nfs = known(bench, version)
    assert getattr(nfs.create_session(back=BACK).back, what) <= getattr(BACK, what)


@rule(
    "CS-BACK-KEPT",
    "",
    "18.36.3",
    kills=("cs-back-changed",),
    over={"OPERATIONS": "ca_maxoperations", "REQUESTS": "ca_maxrequests"},
)
def test_operations_and_slots_of_the_back_channel_are_not_changed(bench, version, what):
    nfs = known(bench, version)
    asked = replace(BACK, ca_maxoperations=5, ca_maxrequests=3)
    assert getattr(nfs.create_session(back=asked).back, what) == getattr(asked, what)


@rule("CS-SMALL", "", "18.36.3", kills=("cs-no-slot",))
def test_a_session_with_small_limits_works(bench, version):
    nfs = known(bench, version)
    asked = replace(FORE, ca_maxrequestsize=2048, ca_maxresponsesize=2048, ca_maxresponsesize_cached=1024)
    session = nfs.create_session(fore=replace(asked, ca_maxoperations=4, ca_maxrequests=2))
    assert session.fore.ca_maxrequests >= 1, "there is a slot"
    assert session.fore.ca_maxoperations >= 1, "SEQUENCE can be sent"
    ok(nfs.compound(*[PUTROOTFH, GETFH][: session.fore.ca_maxoperations - 1]))


@rule("CS-TOOSMALL", "", "18.36.3", level="SHOULD", kills=("cs-toosmall",), over={"0": 0, "16": 16})
def test_a_reply_size_that_no_reply_fits_in_is_too_small(bench, version, what):
    nfs = known(bench, version)
    asked = replace(FORE, ca_maxresponsesize=what, ca_maxresponsesize_cached=0)
    request = nfs.new_session(nfs.exchanged.eir_sequenceid, fore=asked)
    refused(nfs.raw(request), nfsstat4.NFS4ERR_TOOSMALL)


@rule("CS-FLAG-BACK", "", "18.36.3", kills=("cs-flag-back",))
def test_a_back_channel_that_was_not_requested_is_not_announced(bench, version):
    assert not known(bench, version).create_session().flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN


@rule("CS-FLAG-RDMA", "", "18.36.3", kills=("cs-flag-rdma",))
def test_rdma_that_was_not_requested_is_not_announced(bench, version):
    assert not known(bench, version).create_session().flags & CREATE_SESSION4_FLAG_CONN_RDMA


@rule("CS-FLAG-UNKNOWN", "", "18.36.3", kills=("cs-flag-unknown",))
def test_only_requested_flags_are_announced(bench, version, observe):
    flags = CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN
    found = known(bench, version).create_session(flags=flags).flags
    observe(f"flags {found:#x} of {flags:#x}")
    assert not found & ~flags


@rule("CS-FIRST-ZERO", "", "18.36.3", kills=("cs-first-zero",))
def test_the_first_sequence_id_of_a_slot_is_not_0(bench, version):
    not_the_first(known(bench, version), 0)


@rule("CS-FIRST", "", "18.36.3", kills=("seq-misordered",), over={"2": 2, "MAX": 0xFFFFFFFF})
def test_the_first_sequence_id_of_a_slot_is_1(bench, version, what):
    not_the_first(known(bench, version), what)


def not_the_first(nfs: Nfs4Client, number: int) -> None:
    """Begin a slot with a wrong sequence id, and then with 1."""
    session = nfs.create_session()
    wrong = send(nfs, replace(session.sequence(), sa_sequenceid=number), PUTROOTFH)
    refused(wrong, nfsstat4.NFS4ERR_SEQ_MISORDERED)
    ok(send(nfs, session.sequence(), PUTROOTFH))


@rule("CS-SLOTS", "", "18.36.3", kills=("seq-refuses-slots",))
def test_each_slot_of_the_session_is_accepted(nfs):
    session = session_of(nfs)
    for slot in range(session.fore.ca_maxrequests):
        ok(send(nfs, session.sequence(slot), PUTROOTFH))


@rule("CS-KEEPS", "", "18.36.4", kills=("cs-ends-first",))
def test_a_second_session_leaves_the_first_one(nfs):
    second = another_session(nfs)
    for session in (session_of(nfs), second):
        ok(send(nfs, session.sequence(), PUTROOTFH))
        session.advance()
    ok(nfs.raw(destroy_session(nfs, second)))


@rule(
    "CS-STATE",
    "",
    "2.10.1",
    kills=(
        "second-session-gone",
        "other-session-state",
    ),
)
def test_state_belongs_to_all_sessions_of_a_client(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    second = another_session(nfs)
    ok(send(nfs, second.sequence(), putfh(file.handle), read(file.stateid, 0, 10)))
    ok(nfs.raw(destroy_session(nfs, second)))
    file.close()


@rule("CS-OTHER-CLIENT", "", "8.2.4", kills=("other-client-stateid",))
def test_a_stateid_of_another_client_is_bad(bench, nfs, here, version):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    other = bench.client(version)
    done = other.compound(putfh(file.handle), read(file.stateid, 0, 10))
    refused(done, nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_STALE_STATEID)
    file.close()


# Connections


@rule("BIND-FORE", "", "18.34.3", kills=("bind-direction", "bind-session"))
def test_a_connection_is_bound_to_the_fore_channel(bench, nfs, version):
    other = bench.new(version)
    found = ok(other.raw(bind(session_of(nfs))))["BIND_CONN_TO_SESSION"]
    assert found.bctsr_dir == channel_dir_from_server4.CDFS4_FORE
    assert found.bctsr_sessid == session_of(nfs).id
    ok(send(other, session_of(nfs).sequence(), PUTROOTFH))
    nfs.session.advance()


@rule(
    "BIND-DIRECTION",
    "",
    "18.34.3",
    kills=("bind-none",),
    over={
        "BACK": (channel_dir_from_client4.CDFC4_BACK, (2,)),
        "FORE-OR-BOTH": (channel_dir_from_client4.CDFC4_FORE_OR_BOTH, (1, 3)),
        "BACK-OR-BOTH": (channel_dir_from_client4.CDFC4_BACK_OR_BOTH, (2, 3)),
    },
)
def test_a_connection_is_bound_to_the_requested_channels(bench, nfs, version, what):
    direction, accepted = what
    other = bench.new(version)
    assert ok(other.raw(bind(session_of(nfs), direction)))["BIND_CONN_TO_SESSION"].bctsr_dir in accepted


@rule("BIND-RDMA", "", "18.34.3", kills=("bind-rdma",))
def test_a_bound_connection_is_in_rdma_mode_only_if_requested(bench, nfs, version):
    found = ok(bench.new(version).raw(bind(session_of(nfs), BOTH)))["BIND_CONN_TO_SESSION"]
    assert not found.bctsr_use_conn_in_rdma_mode


@rule("BIND-BADSESSION", "", "18.34.3", kills=("bind-badsession",))
def test_a_connection_is_not_bound_to_a_session_that_does_not_exist(bench, version):
    absent = Session(b"\xff" * 16, FORE, BACK, 0)
    refused(bench.new(version).raw(bind(absent)), nfsstat4.NFS4ERR_BADSESSION)


@rule("BIND-NOT-ONLY", "", "18.34.3", kills=("bind-not-only",))
def test_bind_conn_to_session_is_the_only_operation(bench, nfs, version):
    done = bench.new(version).raw(bind(session_of(nfs)), PUTROOTFH)
    refused(done, nfsstat4.NFS4ERR_NOT_ONLY_OP)


@rule("BIND-IN-SESSION", "", "18.34.3", level="SHOULD", kills=("bind-not-only",))
def test_bind_conn_to_session_does_not_follow_sequence(nfs):
    refused(nfs.compound(bind(session_of(nfs))), nfsstat4.NFS4ERR_NOT_ONLY_OP)


@rule("BIND-AGAIN", "", "18.34.3", kills=("bind-again",))
def test_a_connection_that_is_bound_already_is_accepted(bench, nfs, version):
    other = bench.new(version)
    for _ in range(2):
        ok(other.raw(bind(session_of(nfs))))


@rule("BIND-IMPLICIT", "", "18.34.3", kills=("seq-not-bound",))
def test_sequence_associates_a_connection_without_state_protection(bench, nfs, version):
    ok(send(bench.new(version), session_of(nfs).sequence(), PUTROOTFH))
    nfs.session.advance()


@rule("RECONNECT", "", "2.10.5.1", kills=("reconnect-ends",))
def test_a_session_and_its_state_survive_a_lost_connection(bench, nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    nfs.rpc.link.close()
    nfs.rpc = bench.rpc(name="reconnected")
    ok(file.on(read(file.stateid, 0, 10)))
    file.close()


# DESTROY_SESSION


@rule("DS-01", "", "18.37.3", kills=("ds-refused", "restart-keeps-old", "destroy-session-stays"))
def test_a_session_that_was_destroyed_does_not_exist(bench, nfs, version):
    sequence = session_of(nfs).sequence()
    ok(nfs.raw(destroy_session(nfs)))
    refused(bench.new(version).raw(op("SEQUENCE", sequence)), nfsstat4.NFS4ERR_BADSESSION)


@rule("DS-AGAIN", "", "18.37.3", kills=("ds-badsession",))
def test_a_session_is_not_destroyed_twice(nfs):
    second = another_session(nfs)
    ok(nfs.raw(destroy_session(nfs, second)))
    refused(nfs.raw(destroy_session(nfs, second)), nfsstat4.NFS4ERR_BADSESSION)


@rule("DS-LAST", "", "18.37.3", kills=("ds-in-session",))
def test_a_session_is_destroyed_as_the_last_operation_in_it(nfs):
    ok(nfs.compound(PUTROOTFH, destroy_session(nfs)))


@rule("DS-NOT-LAST", "", "18.37.3", kills=("ds-not-last",))
def test_a_session_is_not_destroyed_before_the_last_operation_in_it(nfs):
    done = nfs.compound(destroy_session(nfs), PUTROOTFH)
    assert done.status != nfsstat4.NFS4_OK, f"{done.line}: DESTROY_SESSION is not the final operation"
    assert len(done.statuses) == 1, "it is DESTROY_SESSION that is refused"
    ok(nfs.compound(PUTROOTFH))


@rule("DS-NOT-ONLY", "", "18.37.3", kills=("ds-not-only",))
def test_destroy_session_without_sequence_is_the_only_operation(nfs):
    refused(nfs.raw(destroy_session(nfs), PUTROOTFH), nfsstat4.NFS4ERR_NOT_ONLY_OP)
    ok(nfs.compound(PUTROOTFH))


@rule("DS-OTHER", "", "18.37.3", kills=("ds-in-session",))
def test_another_session_is_destroyed_in_any_position(nfs):
    ok(nfs.compound(PUTROOTFH, destroy_session(nfs, another_session(nfs)), GETFH))


@rule("DS-STATE", "", "18.37.3", kills=("ds-ends-state",))
def test_opens_survive_the_session_that_they_were_made_in(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    first, second = session_of(nfs), another_session(nfs)
    ok(nfs.raw(destroy_session(nfs, first)))
    nfs.session = second
    ok(file.on(read(file.stateid, 0, 10)))
    file.close()


# RECLAIM_COMPLETE


def not_reclaimed(bench, version) -> Nfs4Client:
    """Return a client with a session, without RECLAIM_COMPLETE."""
    nfs = known(bench, version)
    nfs.create_session()
    return nfs


@rule("RC-01", "", "18.51.3", kills=("rc-refused",))
def test_reclaim_complete_needs_no_filehandle(bench, version):
    nfs = not_reclaimed(bench, version)
    ok(nfs.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))


@rule("RC-GRACE", "", "18.51.3", kills=("rc-grace",))
def test_an_open_before_reclaim_complete_is_refused(bench, here, version):
    here.file()
    nfs = not_reclaimed(bench, version)
    opening = StateOwner(nfs).open_op(b"file")
    refused(patiently(nfs, putfh(here.handle), opening), nfsstat4.NFS4ERR_GRACE)


@rule("RC-NO-GRACE", "", "18.51.3", kills=("rc-no-grace",))
def test_nothing_is_reclaimed_after_reclaim_complete(nfs, here):
    handle = here.file()
    claim = open_claim4(open_claim_type4.CLAIM_PREVIOUS, open_delegation_type4.OPEN_DELEGATE_NONE)
    opening = StateOwner(nfs).open_op(b"", claim=claim)
    refused(nfs.compound(putfh(handle), opening), nfsstat4.NFS4ERR_NO_GRACE)


@rule("RC-ONE-FS", "", "18.51.3", level="MAY")
def test_reclaim_complete_of_one_file_system_is_accepted(nfs, here, observe):
    done = nfs.compound(putfh(here.handle), op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(True)))
    observe(done.status.name)


@rule("RC-ONE-FS-NOFH", "", "18.51.3", kills=("rc-nofh",))
def test_reclaim_complete_of_one_file_system_needs_a_filehandle(nfs):
    done = nfs.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(True)))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


# SECINFO_NO_NAME, BACKCHANNEL_CTL, TEST_STATEID, FREE_STATEID


@rule(
    "SNN",
    "",
    "18.45.3",
    kills=("snn-empty",),
    over={
        "CURRENT": secinfo_style4.SECINFO_STYLE4_CURRENT_FH,
        "PARENT": secinfo_style4.SECINFO_STYLE4_PARENT,
    },
)
def test_secinfo_no_name_lists_the_flavor_that_the_suite_uses(nfs, here, what):
    found = ok(nfs.compound(putfh(here.handle), op("SECINFO_NO_NAME", what)))["SECINFO_NO_NAME"]
    assert auth_flavor.AUTH_SYS in [one.flavor for one in found]


@rule("SNN-ROOT", "", "18.45.3", kills=("snn-noent",))
def test_the_parent_of_the_root_has_no_flavors(nfs):
    style = secinfo_style4.SECINFO_STYLE4_PARENT
    refused(nfs.compound(PUTROOTFH, op("SECINFO_NO_NAME", style)), nfsstat4.NFS4ERR_NOENT)


@rule("SNN-CONSUMES", "", "18.45.3", kills=("secinfo-keeps",))
def test_secinfo_no_name_consumes_the_current_filehandle(nfs, here):
    style = secinfo_style4.SECINFO_STYLE4_CURRENT_FH
    done = nfs.compound(putfh(here.handle), op("SECINFO_NO_NAME", style), GETFH)
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("SNN-NOFH", "", "18.45.3", kills=("nofilehandle",))
def test_secinfo_no_name_needs_a_filehandle(nfs):
    style = secinfo_style4.SECINFO_STYLE4_CURRENT_FH
    refused(nfs.compound(op("SECINFO_NO_NAME", style)), nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("BCTL", "", "18.33.3", kills=("bctl-refused",))
def test_the_program_of_the_back_channel_is_changed(bench, version):
    nfs = known(bench, version)
    nfs.create_session(flags=CREATE_SESSION4_FLAG_CONN_BACK_CHAN)
    security = (callback_sec_parms4(auth_flavor.AUTH_NONE),)
    ok(nfs.compound(op("BACKCHANNEL_CTL", BACKCHANNEL_CTL4args(CB_PROGRAM + 1, security))))


@rule("TS-01", "", "18.48.3", kills=("ts-bad",))
def test_the_stateid_of_an_open_is_valid(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    found = ok(nfs.compound(op("TEST_STATEID", TEST_STATEID4args((file.stateid,)))))["TEST_STATEID"]
    assert found.tsr_status_codes == (nfsstat4.NFS4_OK,)
    file.close()


@rule("TS-SPECIAL", "", "18.48.3", kills=("ts-valid",), over={"ANONYMOUS": ANONYMOUS, "CURRENT": CURRENT})
def test_a_special_stateid_is_not_valid(nfs, what):
    found = ok(nfs.compound(op("TEST_STATEID", TEST_STATEID4args((what,)))))["TEST_STATEID"]
    assert found.tsr_status_codes == (nfsstat4.NFS4ERR_BAD_STATEID,)


@rule("TS-MANY", "", "18.48.3", kills=("ts-short",))
def test_each_stateid_has_a_status(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    sent = (file.stateid, ANONYMOUS, file.stateid)
    found = ok(nfs.compound(op("TEST_STATEID", TEST_STATEID4args(sent))))["TEST_STATEID"]
    assert len(found.tsr_status_codes) == 3
    file.close()


@rule("FS-HELD", "", "18.38.3", kills=("fs-held",))
def test_the_stateid_of_an_open_file_is_not_freed(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    done = nfs.compound(op("FREE_STATEID", FREE_STATEID4args(file.stateid)))
    refused(done, nfsstat4.NFS4ERR_LOCKS_HELD)
    file.close()


@rule("FS-CLOSED", "", "18.38.3", kills=("fs-bad",))
def test_the_stateid_of_a_closed_file_is_bad(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked())
    file.close()
    done = nfs.compound(op("FREE_STATEID", FREE_STATEID4args(file.stateid)))
    refused(done, nfsstat4.NFS4ERR_BAD_STATEID)


@rule("CURRENT-FH", "", "16.2.3.1", kills=("current-fh-kept",))
def test_each_compound_begins_without_a_filehandle(nfs, here):
    ok(nfs.compound(putfh(here.handle), create(b"sub"), LOOKUPP))
    refused(nfs.compound(getattr_(FATTR4_TYPE)), nfsstat4.NFS4ERR_NOFILEHANDLE)
