"""Leases (RFC 7530 9.5, 9.6, RFC 8881 8.3, 8.4): what renews one, and what is released after its end.

Each case waits for a lease of the server, so all of them are `slow`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.nfs4.conftest import Arranged
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.client import Nfs4Client, ok
from storagetest.wire.nfs4.operations import read
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_LEASE_TIME,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_DENY_BOTH,
    nfs_lock_type4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST"), pytest.mark.slow]

GONE = (
    nfsstat4.NFS4ERR_EXPIRED,
    nfsstat4.NFS4ERR_BAD_STATEID,
    nfsstat4.NFS4ERR_STALE_STATEID,
    nfsstat4.NFS4ERR_STALE_CLIENTID,
    nfsstat4.NFS4ERR_ADMIN_REVOKED,
    nfsstat4.NFS4ERR_BADSESSION,
)
"""Statuses of an operation with the state of an expired lease (RFC 7530 9.6.3, RFC 8881 8.4.3)."""
LONGEST = 120
"""The longest lease in seconds that the cases wait for (chosen)."""


@pytest.fixture
def lease(facts) -> float:
    """Return the lease time in seconds; skip if it is long."""
    found: float = facts.limits[FATTR4_LEASE_TIME]
    if found > LONGEST:
        pytest.skip(f"the lease of the server is {found:.0f} s; the cases wait for at most {LONGEST} s")
    return found


@pytest.fixture
def held(nfs, here) -> OpenFile:
    """Return a file that ``nfs`` has open, and denies to all others."""
    here.file(data=b"data")
    return StateOwner(nfs).open(here.handle, b"file", deny=OPEN4_SHARE_DENY_BOTH)


def opens(client: Nfs4Client, handle: bytes) -> nfsstat4:
    """Return the status of an OPEN by a new owner of another client; close the file if it was opened."""
    owner = StateOwner(client)
    done = owner.try_open(handle, b"file", access=OPEN4_SHARE_ACCESS_BOTH)
    if done.status == nfsstat4.NFS4_OK:
        owner.open(handle, b"file", access=OPEN4_SHARE_ACCESS_BOTH).close()
    return done.status


def after_expiry(condition: Callable[[], bool], lease: float, what: str, other: Nfs4Client) -> None:
    """Renew the lease of ``other`` until ``condition()`` holds. Raises AssertionError after 4 leases."""

    def holds() -> bool:
        ok(other.renew())
        return condition()

    try:
        wait_until(holds, 4 * lease, what, interval=min(0.5, lease / 4))
    except DeadlineExceeded as error:
        raise AssertionError(f"{error}: 4 leases of {lease:g} s") from None


def given_away(other: Nfs4Client, here: Arranged, lease: float) -> None:
    """Have another client open the file, which a silent client denies, and close it again."""
    opened = lambda: opens(other, here.handle) == nfsstat4.NFS4_OK  # noqa: E731
    after_expiry(opened, lease, "the end of the open of a silent client", other)


@rule("LEASE-RENEWED", "9.5", "8.3", kills=("lease-not-renewed",))
def test_state_is_kept_while_its_lease_is_renewed(bench, version, nfs, held, here, lease):
    other = bench.client(version)
    until = time.monotonic() + 2 * lease
    while time.monotonic() < until:
        ok(nfs.renew())
        ok(other.renew())
        time.sleep(lease / 4)
    assert opens(other, here.handle) == nfsstat4.NFS4ERR_SHARE_DENIED
    assert ok(held.on(read(held.stateid, 0, 4)))["READ"].data == b"data"


@rule("LEASE-READ", "9.5", "8.3", kills=("lease-not-renewed",))
def test_an_operation_with_a_stateid_renews_the_lease(bench, version, held, here, lease):
    """Not RENEW alone: with minor version 0 READ with a stateid of the client renews its lease, too."""
    other = bench.client(version)
    until = time.monotonic() + 2 * lease
    while time.monotonic() < until:
        ok(held.on(read(held.stateid, 0, 4)))
        ok(other.renew())
        time.sleep(lease / 4)
    assert opens(other, here.handle) == nfsstat4.NFS4ERR_SHARE_DENIED


@pytest.mark.usefixtures("held")
@rule("LEASE-EXPIRED-OPEN", "9.6.3", "8.4.3", level="SHOULD", kills=("lease-endless",))
def test_the_open_of_a_silent_client_is_in_no_way_after_its_lease(bench, version, here, lease):
    other = bench.client(version)
    assert opens(other, here.handle) == nfsstat4.NFS4ERR_SHARE_DENIED
    given_away(other, here, lease)


@rule("LEASE-EXPIRED-LOCK", "9.6.3", "8.4.3", level="SHOULD", kills=("lease-endless",))
def test_the_lock_of_a_silent_client_is_in_no_way_after_its_lease(bench, version, nfs, here, lease):
    here.file()
    file = StateOwner(nfs).open(here.handle, b"file")
    ok(file.lock(StateOwner(nfs), nfs_lock_type4.WRITE_LT, 0, 10))
    other = bench.client(version)
    owner = StateOwner(other).open(here.handle, b"file")
    locker = StateOwner(other)
    assert owner.lock(locker, nfs_lock_type4.WRITE_LT, 0, 10).status == nfsstat4.NFS4ERR_DENIED
    taken = lambda: owner.lock(locker, nfs_lock_type4.WRITE_LT, 0, 10).status == nfsstat4.NFS4_OK  # noqa: E731
    after_expiry(taken, lease, "the end of a lock", other)


@rule("LEASE-EXPIRED-STATE", "9.6.3", "8.4.3", kills=("lease-state-kept",))
def test_the_state_of_an_expired_lease_is_not_used_after_it_was_given_away(
    bench, version, held, here, lease, observe
):
    """Another client has opened the file, and closed it: the first client's open is gone."""
    other = bench.client(version)
    given_away(other, here, lease)
    done = held.on(read(held.stateid, 0, 4))
    observe(done.line)
    assert done.status in GONE, f"{done.line}: the open was released, and the file opened by another client"


@pytest.mark.usefixtures("held")
@rule("LEASE-EXPIRED-NEW", "9.6.3", "8.4.3", level="SHOULD", kills=("lease-endless",))
def test_a_client_whose_lease_has_expired_begins_again(bench, version, nfs, here, lease):
    """A new client id of the same owner opens the file that was given away."""
    other = bench.client(version)
    given_away(other, here, lease)
    again = bench.new(version, owner=nfs.owner)
    again.verifier = nfs.verifier
    again.establish()
    assert opens(again, here.handle) == nfsstat4.NFS4_OK
