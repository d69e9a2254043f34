"""Connections with RPCSEC_GSS for the cases: a context of the environment's Kerberos credentials."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError, StoragetestError
from storagetest.wire.nfs4.client import Nfs4Client
from storagetest.wire.nfs4.harness import Nfs4Harness
from storagetest.wire.nfs4.operations import PUTROOTFH, getattr_
from storagetest.wire.nfs4.types import FATTR4_TYPE, NFS_V4, COMPOUND4args
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.gss import INTEGRITY, NONE, PRIVACY, GssContext, create_context
from storagetest.wire.rpc.kerberos import KerberosMechanism
from storagetest.wire.rpc.message import Reply
from storagetest.wire.rpc.types import accepted_reply
from storagetest.wire.tcp import ResponseTimeout
from storagetest.wire.xdr import Encoded

NULL, COMPOUND = NFS_V4.procedure("NULL"), NFS_V4.procedure("COMPOUND")
LOOK = COMPOUND4args(b"gss", 0, (PUTROOTFH, getattr_(FATTR4_TYPE)))
"""A COMPOUND that changes nothing. A server without minor version 0 executes it, with an error."""

QUIET = 0.3
"""Seconds in which a call that is to be discarded has no reply, after a later call had its own (chosen)."""

KRB5 = bytes.fromhex("2a864886f712010202")
"""1.2.840.113554.1.2.2, Kerberos 5, as the contents of a DER object identifier (RFC 7530 3.2.1)."""

SERVICES = {"NONE": NONE, "INTEGRITY": INTEGRITY, "PRIVACY": PRIVACY}


def services(identifier: str):
    """Mark a function as a case for each service; it has the parameter ``service``."""
    cells = [
        pytest.param(value, id=name.lower(), marks=pytest.mark.case(f"{identifier}-{name}"))
        for name, value in SERVICES.items()
    ]
    return pytest.mark.parametrize("service", cells)


def protected(identifier: str):
    """Mark a function as a case for integrity and one for privacy."""
    cells = [
        pytest.param(value, id=name.lower(), marks=pytest.mark.case(f"{identifier}-{name}"))
        for name, value in SERVICES.items()
        if value != NONE
    ]
    return pytest.mark.parametrize("service", cells)


class Secured:
    """One server and one principal: makes contexts, and connections that use them."""

    def __init__(self, bench: Nfs4Harness, service: str) -> None:
        self.bench = bench
        self.service = service

    def mechanism(self) -> KerberosMechanism:
        """Return the client's side of a new context; skip if this machine has no library or credentials."""
        try:
            return KerberosMechanism.initiate(self.service)
        except StoragetestError as error:
            pytest.skip(str(error))

    def context(self, service: int = NONE) -> GssContext:
        """Return a new context, made on a connection of its own."""
        return self.connect(service)[1]

    def connect(self, service: int = NONE) -> tuple[RpcConnection, GssContext]:
        """Return a connection and a context that was made on it, for calls with ``service``."""
        rpc = self.bench.rpc()
        rpc.security = context = create_context(rpc, self.mechanism(), service=service)
        return rpc, context

    def client(self, service: int = NONE) -> Nfs4Client:
        """Return COMPOUNDs of minor version 0 with a context of ``service``."""
        return Nfs4Client(self.connect(service)[0], 0)


def send(rpc: RpcConnection, context: GssContext, argument: Any = LOOK, **fields: Any) -> int:
    """Send a COMPOUND, or NULL if there is no argument, with these ``fields``; return its xid."""
    procedure = NULL if argument is None else COMPOUND
    return rpc.send(procedure, context.encode_call(rpc.program, procedure, argument, **fields))


def call(rpc: RpcConnection, context: GssContext, argument: Any = LOOK, **fields: Any) -> Reply:
    """Send as :func:`send` does, and return the reply."""
    return rpc.receive(send(rpc, context, argument, **fields))


def executed(reply: Reply) -> Reply:
    """Return a reply. Raises AssertionError unless its call was executed."""
    assert reply.status == "SUCCESS", f"{reply.status}: the call is valid"
    return reply


def denied(reply: Reply, *statuses: str) -> Reply:
    """Return a reply. Raises AssertionError unless its call was denied with one of ``statuses``."""
    wanted = [f"AUTH_ERROR {status}" for status in statuses]
    assert not isinstance(reply.body.value, accepted_reply), f"{reply.status}, not {' or '.join(wanted)}"
    assert reply.status in wanted, f"{reply.status}, not {' or '.join(wanted)}"
    return reply


def discarded(rpc: RpcConnection, context: GssContext, sent: Encoded) -> None:
    """Send a call that must have no reply, and check that the next call has its own, and no other comes."""
    first = rpc.send(COMPOUND, sent)
    send(rpc, context)
    reply = rpc.receive()
    if reply.xid == first:
        raise AssertionError(f"{reply.status}: a call to be discarded silently has a reply")
    executed(reply)
    try:
        rpc.link.receive(deadline=QUIET)
    except ResponseTimeout:
        return
    raise RemoteProtocolError("RFC 2203 5.3.3.1: a call to be discarded silently has a reply")
