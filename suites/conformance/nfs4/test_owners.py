"""What identifies an owner and its client: the session, a confirmed incarnation, the range of its lock."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import open_new
from storagetest.suites.conformance.nfs4.slots import restarted
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.operations import op, read, unchecked, write
from storagetest.wire.nfs4.state import WHOLE, StateOwner
from storagetest.wire.nfs4.types import LOCKT4args, nfs_lock_type4, nfsstat4, state_owner4

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

WRITE_LT = nfs_lock_type4.WRITE_LT
ALL_ONES = 0xFFFF_FFFF_FFFF_FFFF


class Named(StateOwner):
    """An owner that is sent with a client id of its own."""

    def __init__(self, client: Nfs4Client, clientid: int, name: bytes) -> None:
        super().__init__(client, name)
        self.clientid = clientid

    @property
    def wire(self) -> state_owner4:
        """The owner as it is sent."""
        return state_owner4(self.clientid, self.name)


@rule(
    "OWNER-CLIENTID",
    "",
    "18.10.3, 18.11.3, 18.16.3",
    kills=("owner-clientid-compared",),
    over={"ZERO": 0, "ONES": ALL_ONES, "OTHER": None},
)
def test_the_client_id_of_an_owner_is_that_of_the_session(bench, nfs, here, version, what):
    """A client can set the clientid field to any value, and the server MUST ignore it (18.16.3)."""
    other = bench.client(version)
    sent = other.clientid if what is None else what
    named = Named(nfs, sent, b"opener").open(here.handle, b"file", how=unchecked())
    again = Named(nfs, nfs.clientid, b"opener").open(here.handle, b"file")
    assert again.stateid.other == named.stateid.other, "one open owner of a session has two stateids"
    locker, same = Named(nfs, sent, b"locker"), Named(nfs, nfs.clientid, b"locker")
    ok(again.lock(locker, WRITE_LT, 0, 10))
    for owner in (locker, same):
        ok(again.test(owner, WRITE_LT, 0, 10))
    rival = StateOwner(other).open(here.handle, b"file")
    refused(rival.test(StateOwner(other, b"locker"), WRITE_LT, 0, 10), nfsstat4.NFS4ERR_DENIED)
    rival.close()
    ok(again.unlock(locker, 0, 10))
    again.close()


@rule("OWNER-OF-CLIENT", "9.1.1", "9.1.1", kills=("owner-of-any-client",))
def test_owners_with_one_name_of_two_clients_are_two(bench, nfs, here, version):
    """An owner is known by its client and its name: another client's owner of that name is another one."""
    other = bench.client(version)
    held = StateOwner(nfs, b"opener").open(here.handle, b"file", how=unchecked())
    rival = StateOwner(other, b"opener").open(here.handle, b"file")
    assert held.stateid.other != rival.stateid.other, "two clients have one stateid"
    ok(held.lock(StateOwner(nfs, b"locker"), WRITE_LT, 0, 10))
    locker = StateOwner(other, b"locker")
    refused(rival.test(locker, WRITE_LT, 0, 10), nfsstat4.NFS4ERR_DENIED)
    refused(rival.lock(locker, WRITE_LT, 0, 10), nfsstat4.NFS4ERR_DENIED)
    held.try_close()
    ok(rival.on(write(rival.stateid, 0, b"data")))
    rival.close()


@rule(
    "SCID-RESTART-HELD",
    "16.33",
    kills=("scid-drops-state",),
    over={one: one for one in ("READ", "WRITE", "LOCK", "CLOSE")},
)
def test_the_state_of_a_client_is_kept_until_its_new_incarnation_is_confirmed(bench, nfs, here, what):
    """SETCLIENTID makes an unconfirmed record; the confirmed one stays until it is confirmed (16.33.5)."""
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    for _ in range(2):
        ok(restarted(bench, nfs).setclientid())
    if what == "READ":
        ok(file.on(read(file.stateid, 0, 10)))
    elif what == "WRITE":
        ok(file.on(write(file.stateid, 0, b"data")))
    elif what == "LOCK":
        ok(file.lock(locker))
        ok(file.unlock(locker))
    file.close()


def holder_overlaps(bench, here, owner, version, at):
    """Lock a file to its end, and assert that the lock which denies another one at ``at`` overlaps it."""
    here.file(data=b"data")
    file, other = owner.open(here.handle, b"file"), StateOwner(bench.client(version))
    opened = other.open(here.handle, b"file")
    ok(file.lock(StateOwner(owner.client), WRITE_LT, 100, WHOLE))
    done = opened.on(op("LOCKT", LOCKT4args(WRITE_LT, at, 1, StateOwner(other.client).wire)))
    if done.status == nfsstat4.NFS4ERR_BAD_RANGE:
        pytest.skip(f"the server has no locks at offset {at} (NFS4ERR_BAD_RANGE)")
    found = refused(done, nfsstat4.NFS4ERR_DENIED).of("LOCKT").value
    length = found.length or WHOLE  # that 0 is wrong is the claim of LOCKT-HOLDER-END
    assert found.offset <= at, f"the lock that denies one at {at} begins at {found.offset}"
    assert length == WHOLE or found.offset + length > at, (
        f"the lock that denies one at {at} has the range {found.offset}+{found.length}"
    )


@rule(
    "LOCKT-HOLDER-FAR",
    "16.11.4",
    "18.11.3",
    kills=("lock-to-end-31",),
    over={"31": 1 << 31, "63": (1 << 63) - 2},
)
def test_the_range_that_denies_a_lock_overlaps_it(bench, here, owner, version, what):
    """Offset and length of the conflicting lock are returned."""
    holder_overlaps(bench, here, owner, version, what)


@rule(
    "LOCKT-HOLDER-LAST",
    "16.11.4",
    "18.11.3",
    level="SHOULD",  # a server may keep offsets of 63 bits
    kills=("lock-to-end-31", "lock-to-end-63"),
)
def test_the_range_that_denies_a_lock_of_the_last_byte_overlaps_it(bench, here, owner, version):
    holder_overlaps(bench, here, owner, version, ALL_ONES - 1)
