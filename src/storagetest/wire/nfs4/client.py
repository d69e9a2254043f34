# ruff: noqa: ANN401  # a result has the type of its operation
"""A client of NFSv4 on one connection: COMPOUNDs, the client id, a session (RFC 7530, RFC 8881, RFC 7862).

:meth:`Nfs4Client.compound` is what cases use. For minor version 0 it sends the operations as they are; for 1
and 2 it puts SEQUENCE first, on a slot of the session, and leaves SEQUENCE out of the results. A COMPOUND
that ends with NFS4ERR_DELAY or NFS4ERR_GRACE is resumed at the operation that ended so, until the deadline.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from storagetest.errors import LocalProtocolError
from storagetest.wire.nfs4.operations import op
from storagetest.wire.nfs4.resumption import filehandles, left
from storagetest.wire.nfs4.types import (
    COMPOUND4args,
    COMPOUND4res,
    CREATE_SESSION4args,
    DESTROY_CLIENTID4args,
    DESTROY_SESSION4args,
    EXCHANGE_ID4args,
    RECLAIM_COMPLETE4args,
    RENEW4args,
    SEQUENCE4args,
    SETCLIENTID4args,
    SETCLIENTID_CONFIRM4args,
    callback_sec_parms4,
    cb_client4,
    channel_attrs4,
    client_owner4,
    netaddr4,
    nfs_argop4,
    nfs_client_id4,
    nfs_impl_id4,
    nfs_opnum4,
    nfsstat4,
    nfstime4,
    state_protect4_a,
    state_protect_how4,
)
from storagetest.wire.rpc import RpcConnection, RpcError
from storagetest.wire.rpc.busy import while_busy
from storagetest.wire.rpc.types import accept_stat, auth_flavor
from storagetest.wire.xdr import Encoded, Union

FORE = channel_attrs4(0, 1 << 20, 1 << 20, 65536, 64, 16, ())
"""Attributes of the fore channel that are requested (RFC 8881 18.36.3): sizes of 1 MiB, 64 operations."""

BACK = channel_attrs4(0, 4096, 4096, 4096, 8, 1, ())
"""Attributes of the back channel that are requested."""

CB_PROGRAM = 0x4000_0000
"""The program number of callbacks, the first of the transient ones (RFC 5531 8.4)."""

NO_CALLBACK = netaddr4(b"tcp", b"0.0.0.0.0.0")
"""Where minor version 0 calls back: nowhere, so that no delegation is granted (RFC 7530 16.33.5)."""

_LATER = (nfsstat4.NFS4ERR_DELAY, nfsstat4.NFS4ERR_GRACE)

_AFTER_RECLAIMS = (
    nfs_opnum4.OP_OPEN,
    nfs_opnum4.OP_GET_DIR_DELEGATION,
    nfs_opnum4.OP_LAYOUTGET,
    nfs_opnum4.OP_RECLAIM_COMPLETE,
    nfs_opnum4.OP_WANT_DELEGATION,
)
"""Operations that a client may send only after RECLAIM_COMPLETE: they obtain state without an older one."""


@dataclass(frozen=True, slots=True)
class Done:
    """A reply to a COMPOUND. ``skipped`` results at the beginning belong to the session."""

    result: COMPOUND4res
    raw: bytes = b""
    skipped: int = 0

    @property
    def status(self) -> nfsstat4:
        """The status of the COMPOUND, which is that of its last operation."""
        return self.result.status

    @property
    def results(self) -> tuple[Any, ...]:
        """The results of the operations that were executed."""
        return self.result.resarray[self.skipped :]

    @property
    def statuses(self) -> list[nfsstat4]:
        """The status of each operation that was executed."""
        return [status_of(one) for one in self.results]

    def of(self, name: str) -> Any:
        """Return the result of the last operation ``name``. Raises AssertionError if there is none."""
        wanted = nfs_opnum4[f"OP_{name}"]
        found = [one.value for one in self.result.resarray if one.resop == wanted]
        assert found, f"there is no result of {name}: {self.line}"
        return found[-1]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a result: that of its NFS4_OK arm."""
        result = self.of(name)
        return getattr(result, "value", result)

    @property
    def line(self) -> str:
        """The operations and their statuses, for messages."""
        parts = (
            f"{one.resop.name.removeprefix('OP_')} {status_of(one).name}" for one in self.result.resarray
        )
        return ", ".join(parts) or self.status.name


def status_of(result: Any) -> nfsstat4:
    """Return the status of an operation's result, the first field of each."""
    value = result.value
    name = value.DISCRIMINANT[0] if isinstance(value, Union) else value.FIELDS[0][0]
    found: nfsstat4 = getattr(value, name)
    return found


def ok(done: Done) -> Done:
    """Return ``done``. Raises AssertionError unless every operation succeeded."""
    if done.status != nfsstat4.NFS4_OK:  # no assert statement, which pytest explains in four more lines
        raise AssertionError(f"{done.line}, not NFS4_OK")
    return done


def refused(done: Done, *statuses: nfsstat4) -> Done:
    """Return ``done``. Raises AssertionError unless the COMPOUND ended with one of ``statuses``."""
    wanted = " or ".join(one.name for one in statuses)
    if done.status not in statuses:
        raise AssertionError(f"{done.line}, not {wanted}")
    return done


def _has(ops: Iterable[nfs_argop4], *numbers: nfs_opnum4) -> bool:
    return any(one.argop in numbers for one in ops)


@dataclass
class Session:
    """A session: its id, the attributes that the server chose, and the next sequence id of each slot."""

    id: bytes
    fore: channel_attrs4
    back: channel_attrs4
    flags: int
    next: dict[int, int] = field(default_factory=dict)

    def sequence(self, slot: int = 0, *, cache: bool = False) -> SEQUENCE4args:
        """Return the arguments of the next SEQUENCE on ``slot``."""
        return SEQUENCE4args(self.id, self.next.get(slot, 1), slot, max(slot, *self.next, 0), cache)

    def advance(self, slot: int = 0) -> None:
        """Count a SEQUENCE on ``slot`` that was executed."""
        self.next[slot] = self.next.get(slot, 1) % 0xFFFFFFFF + 1


class TooManyOperations(LocalProtocolError):
    """A COMPOUND has more operations than the session accepts (ca_maxoperations, RFC 8881 18.36.3)."""

    def __init__(self, count: int, most: int) -> None:
        super().__init__(f"a COMPOUND of {count} operations, and the session accepts {most}")


class Nfs4Client:
    """COMPOUNDs of ``minor`` on ``rpc``. ``owner`` identifies the client; each instance has its own."""

    def __init__(self, rpc: RpcConnection, minor: int, *, owner: bytes | None = None) -> None:
        self.rpc = rpc
        self.minor = minor
        self.owner = b"storagetest-" + secrets.token_hex(8).encode() if owner is None else owner
        self.verifier = secrets.token_bytes(8)
        self.clientid = 0
        self.session: Session | None = None
        self.exchanged: Any = None
        self._reclaims_due = False
        self._opens = False

    # COMPOUND

    def raw(self, *ops: nfs_argop4, tag: bytes = b"", minor: int | None = None) -> Done:
        """Execute the operations as they are, without SEQUENCE; again if the first one is delayed."""
        return while_busy(
            lambda: self.send(*ops, tag=tag, minor=minor),
            lambda done: done.status == nfsstat4.NFS4ERR_DELAY and len(done.results) == 1,
            self.rpc.deadline,
        )

    def send(self, *ops: nfs_argop4, tag: bytes = b"", minor: int | None = None) -> Done:
        """Execute the operations once, as they are."""
        number = self.minor if minor is None else minor
        self._opens |= _has(ops, nfs_opnum4.OP_OPEN)
        reply = self.rpc.ask("COMPOUND", COMPOUND4args(tag, number, ops))
        if reply.accepted != accept_stat.SUCCESS:
            raise RpcError("COMPOUND", reply)
        return Done(reply.result, reply.raw)

    def compound(
        self, *ops: nfs_argop4, tag: bytes = b"", slot: int = 0, cache: bool = False, retry: bool = True
    ) -> Done:
        """Execute the operations, with SEQUENCE before them if there is a session.

        If NFS4ERR_DELAY or NFS4ERR_GRACE ends it, those that were executed are not executed again.
        """
        if not retry:
            return self._once(ops, tag, slot, cache)
        executed = list[Any]()

        def resume() -> Done:
            before = tuple(executed)
            here = filehandles(ops, before)
            part = self._once((*here, *left(ops, before)), tag, slot, cache)
            new = part.results[len(here) :]
            executed.extend(one for one in new if status_of(one) == nfsstat4.NFS4_OK)
            results = (*part.result.resarray[: part.skipped], *before, *new)
            return replace(part, result=replace(part.result, resarray=results))

        return self.repeated(resume)

    def repeated(self, execute: Callable[[], Done], *busy: nfsstat4) -> Done:
        """Execute again while the answer is one of ``busy``, until the deadline.

        By default these are NFS4ERR_DELAY and NFS4ERR_GRACE.
        """
        return while_busy(execute, lambda done: done.status in (busy or _LATER), self.rpc.deadline)

    def _once(self, ops: tuple[nfs_argop4, ...], tag: bytes, slot: int, cache: bool) -> Done:
        if self.session is None:
            return self.send(*ops, tag=tag)
        if len(ops) >= self.session.fore.ca_maxoperations:
            raise TooManyOperations(len(ops) + 1, self.session.fore.ca_maxoperations)
        self._complete_reclaims(ops)
        sequence = self.session.sequence(slot, cache=cache)
        done = self.send(op("SEQUENCE", sequence), *ops, tag=tag)
        if done.results and status_of(done.results[0]) == nfsstat4.NFS4_OK:
            self.session.next[slot] = sequence.sa_sequenceid % 0xFFFFFFFF + 1
        if not done.results or done.results[0].resop != nfs_opnum4.OP_SEQUENCE:
            return done
        return Done(done.result, done.raw, skipped=1)

    def encode(self, *ops: nfs_argop4, tag: bytes = b"", slot: int = 0) -> Encoded:
        """Return a call, with SEQUENCE if there is a session, to be changed; :meth:`execute` sends it.

        Its fields are ``tag``, ``minorversion``, ``argarray.length``, ``argarray[0].argop`` and so on.
        """
        self._opens |= _has(ops, nfs_opnum4.OP_OPEN)
        if self.session is not None:
            self._complete_reclaims(ops)
            ops = (op("SEQUENCE", self.session.sequence(slot)), *ops)
        return self.rpc.encode("COMPOUND", COMPOUND4args(tag, self.minor, ops))

    def execute(self, call: Encoded, *, slot: int = 0) -> Any:
        """Send a call of :meth:`encode` and return the RPC reply, whatever its status is."""
        reply = self.rpc.receive(self.rpc.send(self.rpc.procedure("COMPOUND"), call))
        if reply.result is not None and self.session is not None and reply.result.resarray:
            first = reply.result.resarray[0]
            if first.resop == nfs_opnum4.OP_SEQUENCE and status_of(first) == nfsstat4.NFS4_OK:
                self.session.advance(slot)
        return reply

    # Client id and session

    def establish(self, **attributes: Any) -> Nfs4Client:
        """Get a client id, and with minor version 1 or 2 a session.

        RECLAIM_COMPLETE precedes the first operation that needs it (RFC 8881 18.51.3). Most clients need
        none, and a server writes to stable storage then.
        """
        if self.minor == 0:
            self.confirm(ok(self.setclientid())["SETCLIENTID"])
            return self
        self.exchange()
        self.create_session(**attributes)
        self._reclaims_due = True
        return self

    def _complete_reclaims(self, ops: tuple[nfs_argop4, ...]) -> None:
        """Send RECLAIM_COMPLETE if it is due before ``ops``."""
        if self._reclaims_due and _has(ops, *_AFTER_RECLAIMS):
            self._reclaims_due = False
            ok(self.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))

    def setclientid(
        self, *, callback: netaddr4 = NO_CALLBACK, program: int = CB_PROGRAM, ident: int = 1
    ) -> Done:
        """SETCLIENTID (RFC 7530 16.33)."""
        client = nfs_client_id4(self.verifier, self.owner)
        asked = op("SETCLIENTID", SETCLIENTID4args(client, cb_client4(program, callback), ident))
        return self.repeated(lambda: self.raw(asked))

    def confirm(self, given: Any) -> None:
        """SETCLIENTID_CONFIRM (RFC 7530 16.34) of what SETCLIENTID returned."""
        argument = SETCLIENTID_CONFIRM4args(given.clientid, given.setclientid_confirm)
        ok(self.repeated(lambda: self.raw(op("SETCLIENTID_CONFIRM", argument))))
        self.clientid = given.clientid

    def exchange(self) -> Any:
        """EXCHANGE_ID (RFC 8881 18.35); keep the client id, and return the result."""
        self._reclaims_due = False  # of the client id before
        self.exchanged = ok(self.repeated(lambda: self.raw(self.exchange_id())))["EXCHANGE_ID"]
        self.clientid = self.exchanged.eir_clientid
        return self.exchanged

    def exchange_id(self, flags: int = 0) -> nfs_argop4:
        """Return EXCHANGE_ID of this client."""
        implementation = nfs_impl_id4(b"storagetest.invalid", b"storagetest", nfstime4(0, 0))
        return op(
            "EXCHANGE_ID",
            EXCHANGE_ID4args(
                client_owner4(self.verifier, self.owner),
                flags,
                state_protect4_a(state_protect_how4.SP4_NONE),
                (implementation,),
            ),
        )

    def new_session(
        self,
        sequence: int,
        *,
        fore: channel_attrs4 = FORE,
        back: channel_attrs4 = BACK,
        flags: int = 0,
        clientid: int | None = None,
    ) -> nfs_argop4:
        """Return CREATE_SESSION (RFC 8881 18.36) with callbacks by AUTH_NONE."""
        known = self.clientid if clientid is None else clientid
        security = (callback_sec_parms4(auth_flavor.AUTH_NONE),)
        return op(
            "CREATE_SESSION",
            CREATE_SESSION4args(known, sequence, flags, fore, back, CB_PROGRAM, security),
        )

    def create_session(self, **attributes: Any) -> Session:
        """CREATE_SESSION with the sequence id of EXCHANGE_ID; the session is used from now on."""
        asked = self.new_session(self.exchanged.eir_sequenceid, **attributes)
        made = ok(self.repeated(lambda: self.raw(asked)))["CREATE_SESSION"]
        self.session = Session(
            made.csr_sessionid, made.csr_fore_chan_attrs, made.csr_back_chan_attrs, made.csr_flags
        )
        return self.session

    def renew(self) -> Done:
        """RENEW (minor version 0), or SEQUENCE alone."""
        return self.compound(*([op("RENEW", RENEW4args(self.clientid))] if self.minor == 0 else []))

    def dispose(self) -> None:
        """Destroy the session and the client id; with minor version 0, the state, by another incarnation."""
        if self.minor == 0 and self.clientid and self._opens and self.rpc.link.is_open:
            self.verifier = secrets.token_bytes(8)
            self.establish()  # its confirmation releases all opens and locks (RFC 7530 16.34.5)
        if self.minor and self.session is not None and self.rpc.link.is_open:
            self.raw(op("DESTROY_SESSION", DESTROY_SESSION4args(self.session.id)))
            self.session = None
            self.raw(op("DESTROY_CLIENTID", DESTROY_CLIENTID4args(self.clientid)))
