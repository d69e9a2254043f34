"""A server that restarts (RFC 7530 9.6.2, RFC 8881 8.4.2): grace, reclaims, and what ends or remains.

Each case restarts the server by the target's control ``restart``, and waits for the end of its grace period.
So all of them are `slow`, and no other case runs on the server at that time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.restart import (
    GRACE,
    REFUSED_RECLAIM,
    Held,
    Server,
    lock_again,
    patiently,
    reclaim,
    reclaimed,
    reconnected,
    refused_or_ok,
    returned,
)
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    PUTROOTFH,
    SAVEFH,
    commit,
    getattr_,
    lookup,
    op,
    putfh,
    read,
    remove,
    rename,
    write,
)
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_PERSIST,
    EXCHGID4_FLAG_CONFIRMED_R,
    FATTR4_FH_EXPIRE_TYPE,
    FATTR4_FILEID,
    FH4_PERSISTENT,
    OPEN4_SHARE_DENY_BOTH,
    SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
    RECLAIM_COMPLETE4args,
    SETCLIENTID_CONFIRM4args,
    nfs_lock_type4,
    nfsstat4,
    stable_how4,
)

pytestmark = [
    pytest.mark.needs("nfs4-wire", "restart"),
    pytest.mark.case(level="MUST"),
    pytest.mark.slow,
    pytest.mark.exclusive,
]

OK = nfsstat4.NFS4_OK
DATA = b"data"


@pytest.fixture
def server(facts, restart_target) -> Iterator[Server]:
    """Yield the server, which is in no grace period after the case."""
    made = Server(facts, restart_target)
    yield made
    if made.was_restarted:
        made.after_grace()


@pytest.fixture
def held(server, nfs, here) -> Held:
    """Return a file that ``nfs`` has open and locked, while the server is in no grace period."""
    server.after_grace()
    here.file(data=DATA)
    return server.hold(nfs, here.handle)


def complete(client: Nfs4Client) -> Nfs4Client:
    """End the reclaims of a client, if its minor version has that."""
    if client.minor:
        ok(client.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))
    return client


# Operations in the grace period


@rule("GRACE-OPEN", "9.6.2", "8.4.2.1", kills=("grace-open", "grace-open-error"))
def test_a_new_open_waits_for_the_end_of_grace(bench, version, server, held):
    """The holder has reclaimed nothing yet, so the server cannot end its grace period before that."""
    server.restart()
    owner = StateOwner(bench.client(version))
    server.early(patiently(owner.client, putfh(held.directory), owner.open_op(b"file")), GRACE)


@rule("GRACE-LOCK", "9.6.2", "8.4.2.1", kills=("grace-lock", "grace-lock-error"))
def test_a_new_lock_waits_for_the_end_of_grace(bench, server, held):
    server.restart()
    file = reclaimed(server, bench, held)
    server.early(file.lock(StateOwner(file.client), nfs_lock_type4.WRITE_LT, 100, 10), GRACE)


@rule("GRACE-CONFLICT", "9.6.2", "8.4.2.1", kills=("grace-lock",))
def test_a_lock_that_is_not_yet_reclaimed_is_not_given_to_another_client(bench, version, server, held):
    other = bench.client(version)
    second = server.hold(other, held.directory, locks=False)
    server.restart()
    file = reclaimed(server, bench, second)
    done = file.lock(StateOwner(file.client), nfs_lock_type4.WRITE_LT, 0, 10)
    server.early(done, GRACE, nfsstat4.NFS4ERR_DENIED)
    server.early(lock_again(reclaimed(server, bench, held), held), OK)


@rule("GRACE-READ", "9.6.2", "8.4.2.1", kills=("grace-read", "grace-read-zero"))
def test_read_in_grace_returns_the_data_or_waits(bench, version, server, held):
    server.restart()
    done = patiently(bench.client(version), putfh(held.file.handle), read(ANONYMOUS, 0, 4))
    server.early(done, OK, GRACE)
    if done.status == OK:
        assert done["READ"].data == DATA


@pytest.mark.usefixtures("held")
@rule("GRACE-REMOVE", "9.6.2", "8.4.2.1", kills=("grace-names", "grace-names-forged"))
def test_remove_in_grace_removes_or_waits(bench, version, server, here, observe):
    here.directory(b"name")
    server.restart()
    other = bench.client(version)
    done = server.early(patiently(other, putfh(here.handle), remove(b"name")), OK, GRACE)
    observe(done.status.name)
    found = patiently(other, putfh(here.handle), lookup(b"name"))
    refused_or_ok(found, OK if done.status == GRACE else nfsstat4.NFS4ERR_NOENT)


@pytest.mark.usefixtures("held")
@rule("GRACE-RENAME", "9.6.2", "8.4.2.1", kills=("grace-names", "grace-names-forged"))
def test_rename_in_grace_renames_or_waits(bench, version, server, here, observe):
    here.directory(b"name")
    server.restart()
    other = bench.client(version)
    there = putfh(here.handle)
    done = server.early(patiently(other, there, SAVEFH, there, rename(b"name", b"other")), OK, GRACE)
    observe(done.status.name)
    for name, stays in ((b"name", done.status == GRACE), (b"other", done.status == OK)):
        refused_or_ok(patiently(other, there, lookup(name)), OK if stays else nfsstat4.NFS4ERR_NOENT)


@rule("GRACE-END", "9.6.2", "8.4.2.1", kills=("grace-endless",))
def test_what_had_to_wait_is_granted_after_grace(bench, version, server, held):
    server.restart()
    other = bench.client(version)
    owner = StateOwner(other)
    done = patiently(other, putfh(held.directory), owner.open_op(b"file"))
    server.early(done, GRACE)
    owner.bump(GRACE)
    server.after_grace(other)
    file = owner.open(held.directory, b"file")
    ok(file.lock(StateOwner(other), nfs_lock_type4.WRITE_LT, 0, 10))


# Reclaims


@rule("RECLAIM-OPEN", "9.6.2", "8.4.2.1", kills=("reclaim-open", "reclaim-open-lost"))
def test_an_open_is_reclaimed_and_denies_what_it_denied(bench, version, server, nfs, here):
    server.after_grace()
    here.file(data=DATA)
    held = server.hold(nfs, here.handle, deny=OPEN4_SHARE_DENY_BOTH)
    server.restart()
    holder = complete(reclaimed(server, bench, held, deny=OPEN4_SHARE_DENY_BOTH).client)
    server.after_grace(holder)
    done = StateOwner(bench.client(version)).try_open(here.handle, b"file")
    refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)


@rule("RECLAIM-LOCK", "9.6.2", "8.4.2.1", kills=("reclaim-lock", "reclaim-lock-lost"))
def test_a_lock_is_reclaimed_and_is_in_the_way_of_others(bench, version, server, held):
    server.restart()
    file = reclaimed(server, bench, held)
    server.early(lock_again(file, held), OK)
    server.after_grace(complete(file.client))
    other = bench.client(version)
    theirs = StateOwner(other).open(held.directory, b"file")
    refused(theirs.lock(StateOwner(other), nfs_lock_type4.WRITE_LT, 0, 10), nfsstat4.NFS4ERR_DENIED)


@rule("RECLAIM-DATA", "9.6.2", "8.4.2.1", kills=("grace-read", "grace-read-zero"))
def test_a_reclaimed_open_reads_the_data_of_before(bench, server, held):
    server.restart()
    file = reclaimed(server, bench, held)
    assert ok(file.on(read(file.stateid, 0, 4)))["READ"].data == DATA


@rule("RECLAIM-STRANGER", "9.6.2", "8.4.2.1", kills=("reclaim-granted", "reclaim-open-error"))
def test_a_client_that_had_no_state_reclaims_nothing(bench, version, server, held):
    server.restart()
    stranger = returned(bench, bench.new(version))
    done, _ = reclaim(stranger, held.file.handle, b"stranger")
    refused(done, *REFUSED_RECLAIM)


@rule("RECLAIM-LATE-OPEN", "9.6.2", "8.4.2.1", kills=("reclaim-granted", "reclaim-open-error"))
def test_an_open_is_not_reclaimed_after_grace(bench, server, held):
    server.restart()
    server.after_grace()
    done, _ = reclaim(returned(bench, held.client), held.file.handle, held.file.owner.name)
    refused(done, nfsstat4.NFS4ERR_NO_GRACE)


@rule("RECLAIM-LATE-LOCK", "9.6.2", "8.4.2.1", kills=("reclaim-lock-granted", "reclaim-lock-error"))
def test_a_lock_is_not_reclaimed_after_grace(bench, server, held):
    server.restart()
    file = reclaimed(server, bench, held)
    server.after_grace(complete(file.client))
    refused(lock_again(file, held), nfsstat4.NFS4ERR_NO_GRACE)


@rule("RECLAIM-COMPLETED", "", "18.51.3", kills=("reclaim-granted", "reclaim-open-error"))
def test_a_client_reclaims_nothing_after_its_reclaim_complete(bench, server, held):
    server.restart()
    again = complete(returned(bench, held.client))
    done, _ = reclaim(again, held.file.handle, held.file.owner.name)
    refused(done, nfsstat4.NFS4ERR_NO_GRACE)


@rule(
    "RECLAIM-NEEDED",
    "",
    "18.46.3",
    level="SHOULD",
    no_mutant_reason="the server of the mutants breaks this rule itself",
)
def test_sequence_states_that_a_client_has_to_reclaim_until_it_has_completed_that(bench, server, held):
    server.restart()
    again = returned(bench, held.client)

    def needed() -> int:
        flags: int = ok(again.compound(PUTROOTFH))["SEQUENCE"].sr_status_flags
        return flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED

    assert needed(), "SEQ4_STATUS_RESTART_RECLAIM_NEEDED is not set before RECLAIM_COMPLETE"
    complete(again)
    assert not needed(), "SEQ4_STATUS_RESTART_RECLAIM_NEEDED is set after RECLAIM_COMPLETE"


# What ends with the server


@rule("RESTART-CLIENTID-RENEW", "9.1.1", kills=("restart-clientid", "restart-clientid-kept"))
def test_renew_of_an_old_client_id_is_stale(bench, server, held):
    server.restart()
    refused(reconnected(bench, held.client).renew(), nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("RESTART-CLIENTID-CONFIRM", "9.1.1", kills=("restart-clientid", "restart-clientid-kept"))
def test_a_client_id_of_before_the_restart_is_not_confirmed(bench, version, server):
    nfs = bench.new(version)
    given = ok(nfs.setclientid())["SETCLIENTID"]
    server.restart()
    argument = SETCLIENTID_CONFIRM4args(given.clientid, given.setclientid_confirm)
    done = reconnected(bench, nfs).raw(op("SETCLIENTID_CONFIRM", argument))
    refused(done, nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("RESTART-CLIENTID-OPEN", "9.1.1", kills=("restart-clientid",))
def test_an_old_client_id_reclaims_no_open(bench, server, held):
    server.restart()
    done, _ = reclaim(reconnected(bench, held.client), held.file.handle, held.file.owner.name)
    refused(done, nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("RESTART-CLIENTID-SESSION", "", "18.36.3", kills=("restart-clientid",))
def test_an_old_client_id_makes_no_session(bench, server, held):
    server.restart()
    sequence = held.client.exchanged.eir_sequenceid + 1
    done = reconnected(bench, held.client).raw(held.client.new_session(sequence))
    refused(done, nfsstat4.NFS4ERR_STALE_CLIENTID)


@rule("RESTART-NEW-ID", "9.1.1", "2.4", kills=("restart-same-id",))
def test_a_client_has_another_client_id_after_a_restart(bench, version, server, held):
    server.restart()
    again = bench.new(version, owner=held.client.owner)
    again.verifier = held.client.verifier
    if version:
        assert again.exchange().eir_clientid != held.client.clientid
    else:
        assert ok(again.setclientid())["SETCLIENTID"].clientid != held.client.clientid


@rule("RESTART-CONFIRMED", "", "18.35.4", kills=("restart-confirmed",))
def test_a_client_id_is_not_confirmed_after_a_restart(bench, version, server, held):
    server.restart()
    again = bench.new(version, owner=held.client.owner)
    again.verifier = held.client.verifier
    assert not again.exchange().eir_flags & EXCHGID4_FLAG_CONFIRMED_R


@rule("RESTART-SERVER", "", "2.10.4", level="SHOULD", kills=("restart-owner", "restart-scope"))
def test_the_server_owner_and_scope_remain(bench, version, server, held):
    server.restart()
    again, before = bench.new(version).exchange(), held.client.exchanged
    assert again.eir_server_owner.so_major_id == before.eir_server_owner.so_major_id
    assert again.eir_server_scope == before.eir_server_scope


@rule("RESTART-SESSION", "", "8.4.2.1", kills=("restart-session",))
def test_an_old_session_is_gone(bench, server, held):
    session = held.client.session
    if session is not None and session.flags & CREATE_SESSION4_FLAG_PERSIST:
        pytest.skip("the session is persistent")
    server.restart()
    refused(reconnected(bench, held.client).compound(PUTROOTFH), nfsstat4.NFS4ERR_BADSESSION)


@rule("RESTART-STATEID-READ", "9.1.4.4", "8.2.4", kills=("restart-stateid",))
def test_an_old_stateid_reads_nothing(bench, version, server, held):
    server.restart()
    server.after_grace()
    done = bench.client(version).compound(putfh(held.file.handle), read(held.file.stateid, 0, 4))
    refused(done, nfsstat4.NFS4ERR_STALE_STATEID, *([nfsstat4.NFS4ERR_BAD_STATEID] if version else []))


@rule("RESTART-STATEID-CLOSE", "9.1.4.4", "8.2.4", kills=("restart-stateid",))
def test_an_old_stateid_closes_nothing(bench, server, held):
    server.restart()
    client = returned(bench, held.client)
    owner = StateOwner(client, held.file.owner.name)
    done = OpenFile(owner, held.file.handle, held.file.stateid, held.file.done).try_close()
    refused(done, nfsstat4.NFS4ERR_STALE_STATEID, *([nfsstat4.NFS4ERR_BAD_STATEID] if client.minor else []))


# Data and handles


@rule("RESTART-VERIFIER-WRITE", "16.36.4", "18.32.3", kills=("restart-verifier",))
def test_the_verifier_of_write_changes(bench, version, server, held):
    before, again = verifiers(bench, version, server, held)
    assert again[0] != before, "the verifier of WRITE is that of before the restart"


@rule("RESTART-VERIFIER-COMMIT", "16.3.4", "18.3.3", kills=("restart-verifier", "restart-commit-verifier"))
def test_the_verifier_of_commit_changes(bench, version, server, held):
    before, again = verifiers(bench, version, server, held)
    assert again[1] != before, "the verifier of COMMIT is that of WRITE before the restart"


def verifiers(bench, version, server, held) -> tuple[bytes, tuple[bytes, bytes]]:
    """Return the verifier of an UNSTABLE WRITE before a restart, and those of WRITE and COMMIT after it."""
    unstable = write(held.file.stateid, 0, DATA, stable_how4.UNSTABLE4)
    done = ok(held.file.on(unstable, commit()))
    server.restart()
    server.after_grace()
    other = bench.client(version)
    file = StateOwner(other).open(held.directory, b"file")
    again = ok(file.on(write(file.stateid, 0, DATA, stable_how4.UNSTABLE4), commit()))
    return done["WRITE"].writeverf, (again["WRITE"].writeverf, again["COMMIT"].writeverf)


@rule("RESTART-HANDLE", "4.2.2", "4.2.2", kills=("restart-handle",))
def test_a_persistent_filehandle_is_of_the_same_file(bench, version, server, here, held):
    about = here.read(held.file.handle, FATTR4_FH_EXPIRE_TYPE, FATTR4_FILEID)
    if about[FATTR4_FH_EXPIRE_TYPE] != FH4_PERSISTENT:
        pytest.skip(f"filehandles are volatile: fh_expire_type is {about[FATTR4_FH_EXPIRE_TYPE]:#x}")
    server.restart()
    done = ok(bench.client(version).compound(putfh(held.file.handle), getattr_(FATTR4_FILEID)))
    assert values(done)[FATTR4_FILEID] == about[FATTR4_FILEID]
