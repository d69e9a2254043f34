"""The restart of a server in a case of NFSv4: what a client had before, how it returns, and the end of grace.

Grace is observed by connections that are no claim about the target (:data:`ARRANGES`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from storagetest.suites.conformance.nfs_restart import RestartableServer, Run, wait_for_end_of_grace
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import ARRANGES, Nfs4Facts, Nfs4Harness
from storagetest.wire.nfs4.operations import GETFH, PUTROOTFH, putfh, unchecked
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_LEASE_TIME,
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_DENY_NONE,
    nfs_lock_type4,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    open_delegation_type4,
)
from storagetest.wire.rpc import RpcConnection, auth_sys

PREVIOUS = open_claim4(open_claim_type4.CLAIM_PREVIOUS, open_delegation_type4.OPEN_DELEGATE_NONE)
GRACE = nfsstat4.NFS4ERR_GRACE
REFUSED_RECLAIM = (nfsstat4.NFS4ERR_NO_GRACE, nfsstat4.NFS4ERR_RECLAIM_BAD)
"""Statuses of a reclaim by a client without such state (RFC 7530 9.6.2, RFC 8881 8.4.2.1)."""
PROBE = b"grace-probe"
GRAIN = 1.0
"""Seconds by which a lease or a grace period may end early: servers count both in whole seconds."""


class Server(RestartableServer):
    """The server of a case, which can restart it."""

    def __init__(self, facts: Nfs4Facts, run: Run) -> None:
        super().__init__(run)
        self._facts = facts
        self._lease: float = facts.limits[FATTR4_LEASE_TIME]
        self._holders: list[Nfs4Client] = []

    def hold(
        self,
        client: Nfs4Client,
        directory: bytes,
        *,
        deny: int = OPEN4_SHARE_DENY_NONE,
        locks: bool = True,
    ) -> Held:
        """Open and lock the file ``file`` of ``directory``; the client's lease is renewed at a restart."""
        file = StateOwner(client).open(directory, b"file", deny=deny)
        locker = StateOwner(client)
        if locks:
            ok(file.lock(locker, nfs_lock_type4.WRITE_LT, 0, 10))
        self._holders.append(client)
        return Held(client, directory, file, locker)

    def connections(self, stack: ExitStack) -> Sequence[RpcConnection]:
        """Return a new connection to NFS."""
        bench = stack.enter_context(Nfs4Harness(self._facts.endpoint))
        return [bench.rpc(cred=auth_sys(machine=ARRANGES))]

    def renew(self) -> None:
        """Renew the leases of all clients that hold something: an expired one reclaims nothing."""
        for holder in self._holders:
            ok(holder.renew())

    def ask(self) -> None:
        """Ask NFS for its root."""
        with Nfs4Harness(self._facts.endpoint) as bench:
            ok(bench.arranger(self._facts.minors[-1]).compound(PUTROOTFH))

    def after_grace(self, *holders: Nfs4Client) -> None:
        """Renew the leases of ``holders`` until a new OPEN is granted.

        Raises AssertionError after ``nfs_restart.LONGEST`` seconds.
        """

        def opens() -> bool:
            for holder in holders:
                ok(holder.renew())
            return self._opens()

        wait_for_end_of_grace(opens)

    def _opens(self) -> bool:
        with Nfs4Harness(self._facts.endpoint) as bench:
            owner = StateOwner(bench.arranger(self._facts.minors[-1]))
            opening = owner.open_op(PROBE, how=unchecked())
            done = owner.client.compound(putfh(self._facts.directory), opening, retry=False)
        return done.status == nfsstat4.NFS4_OK

    def early(self, done: Done, *statuses: nfsstat4) -> Done:
        """Claim one of ``statuses`` of an operation within a lease after the restart; return ``done``.

        The grace period is at least as long as a lease (RFC 7530 9.6.2, RFC 8881 8.4.2.1), and begins after
        the control; what clients hold was renewed before that. The case is skipped if another status came
        when either may have ended.
        """
        took = self.took
        if done.status not in statuses and took > self._lease - GRAIN:
            pytest.skip(f"{done.line} came {took:.1f} s after the restart: a lease is {self._lease:g} s")
        return ok(done) if statuses == (nfsstat4.NFS4_OK,) else refused_or_ok(done, *statuses)


def refused_or_ok(done: Done, *statuses: nfsstat4) -> Done:
    """Return ``done`` if its status is one of ``statuses``. Raises AssertionError otherwise."""
    if done.status != nfsstat4.NFS4_OK or nfsstat4.NFS4_OK not in statuses:
        refused(done, *statuses)
    return done


@dataclass
class Held:
    """What a client has before a restart: an open file, and mostly a write lock of its first 10 bytes."""

    client: Nfs4Client
    directory: bytes
    file: OpenFile
    locker: StateOwner


def returned(bench: Nfs4Harness, client: Nfs4Client) -> Nfs4Client:
    """Return the same client with a new client id and session, whose reclaims are not complete."""
    again = bench.new(client.minor, owner=client.owner)
    again.verifier = client.verifier
    if again.minor == 0:
        again.confirm(ok(again.setclientid())["SETCLIENTID"])
    else:
        again.exchange()
        again.create_session()
    return again


def reconnected(bench: Nfs4Harness, client: Nfs4Client) -> Nfs4Client:
    """Return the same client on a new connection, with the client id and session of before the restart."""
    again = bench.new(client.minor, owner=client.owner)
    again.verifier, again.clientid, again.session = client.verifier, client.clientid, client.session
    return again


def reclaim(
    client: Nfs4Client,
    handle: bytes,
    owner: bytes,
    *,
    access: int = OPEN4_SHARE_ACCESS_BOTH,
    deny: int = OPEN4_SHARE_DENY_NONE,
) -> tuple[Done, StateOwner]:
    """Reclaim an open by its owner's name (OPEN with CLAIM_PREVIOUS), whatever the outcome."""
    again = StateOwner(client, owner)
    opening = again.open_op(b"", access=access, deny=deny, claim=PREVIOUS)
    done = patiently(client, putfh(handle), opening, GETFH)
    if len(done.statuses) > 1:
        again.bump(done.statuses[1])
    return done, again


def patiently(client: Nfs4Client, *ops: object) -> Done:
    """Execute a COMPOUND again while it ends with NFS4ERR_DELAY, and not after NFS4ERR_GRACE."""
    return client.repeated(
        lambda: client.compound(*ops, retry=False),  # type: ignore[arg-type]
        nfsstat4.NFS4ERR_DELAY,
    )


def reclaimed(
    server: Server, bench: Nfs4Harness, held: Held, *, deny: int = OPEN4_SHARE_DENY_NONE
) -> OpenFile:
    """Return the file of ``held`` after its client has returned and reclaimed its open."""
    done, owner = reclaim(returned(bench, held.client), held.file.handle, held.file.owner.name, deny=deny)
    server.early(done, nfsstat4.NFS4_OK)
    file = OpenFile(owner, done["GETFH"].object, done["OPEN"].stateid, done)
    if done["OPEN"].rflags & OPEN4_RESULT_CONFIRM:
        file.confirm()
    return file


def lock_again(file: OpenFile, held: Held, *, reclaims: bool = True) -> Done:
    """LOCK the range of ``held`` by its lock owner, as a reclaim."""
    locker = StateOwner(file.client, held.locker.name)
    return file.lock(locker, nfs_lock_type4.WRITE_LT, 0, 10, reclaim=reclaims)
