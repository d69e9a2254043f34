"""An RPC client on one recorded TCP connection (RFC 5531): calls, replies by transaction, and raw records.

:meth:`RpcConnection.call` is one call and its result. :meth:`RpcConnection.send` and
:meth:`RpcConnection.receive` are its halves, for calls that overlap, are repeated, or are changed after
encoding.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.rpc.message import AUTH_NONE, Reply, decode_message, decode_reply, encode_call
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.types import accept_stat, call_body, opaque_auth, reply_body
from storagetest.wire.tcp import PeerClosed, RecordedConnection
from storagetest.wire.xdr import Encoded, Procedure, Program

_xids = itertools.count(secrets.randbits(31))


class RpcError(RemoteProtocolError):
    """The server did not execute the call: it was denied, or accepted with another status than SUCCESS."""

    def __init__(self, call: str, reply: Reply) -> None:
        super().__init__(f"{call} ended with {reply.status}")
        self.reply = reply


def next_xid() -> int:
    """Return a transaction id that no other call of this process has."""
    return next(_xids) & 0xFFFF_FFFF


class Security(Protocol):
    """Encodes calls and decodes their replies: a context of RPCSEC_GSS (:mod:`storagetest.wire.rpc.gss`)."""

    def encode_call(
        self,
        program: Program,
        procedure: Procedure,
        argument: Any = None,  # noqa: ANN401  # of the procedure's type
        *,
        xid: int | None = None,
    ) -> Encoded:
        """Return a call."""

    def knows(self, xid: int) -> bool:
        """Whether the call with this xid was encoded here."""

    def decode_reply(self, record: bytes, procedure: Procedure) -> Reply:
        """Return the reply to a call that was encoded here. Raises RemoteProtocolError."""


class ReplyRules(Protocol):
    """What every reply has to keep, whatever its case is about. It sees each call and its reply."""

    def sent(self, call: bytes) -> None:
        """Note a call that is sent, as its bytes."""

    def faults(self, connection: RpcConnection, call: bytes, reply: Reply) -> Iterable[str]:
        """Return a sentence for each rule that the reply to ``call`` breaks."""


class RpcConnection:
    """Calls of ``program`` on one connection. ``cred`` is the credential of calls that name no other.

    With ``security`` the calls that name no credential are encoded by it.

    ``on_call`` receives each call of the server (a back channel, RFC 8881 2.10.3.1): its xid, its header and
    the bytes of its argument. It returns the bytes of the reply, or None for none.

    ``rules`` judges the replies to calls that no ``security`` encodes; what they break is in :attr:`faults`.
    """

    def __init__(
        self,
        link: RecordedConnection,
        program: Program,
        *,
        deadline: float = 10.0,
        cred: opaque_auth = AUTH_NONE,
        security: Security | None = None,
    ) -> None:
        self.link = link
        self.program = program
        self.deadline = deadline
        self.cred = cred
        self.security = security
        self.faults: list[str] = []
        self.on_call: Callable[[int, call_body, bytes], bytes | None] | None = None
        self.rules: ReplyRules | None = None
        self._calls: dict[int, bytes] = {}
        self._receiver = RecordReceiver()
        self._sent: dict[int, Procedure] = {}
        self._replies: dict[int, Reply] = {}

    def procedure(self, name: str) -> Procedure:
        """Return the program's procedure ``name``."""
        return self.program.procedure(name)

    def call(self, name: str, argument: Any = None, *, cred: opaque_auth | None = None) -> Any:  # noqa: ANN401
        """Call the procedure ``name``, return its result. Raises :class:`RpcError` if it was not executed."""
        return self.result(self.send(self.procedure(name), self.encode(name, argument, cred=cred)))

    def result(self, xid: int) -> Any:  # noqa: ANN401
        """Return the result of a call that was sent. Raises :class:`RpcError` if it was not executed."""
        procedure = self._sent.get(xid)
        reply = self.receive(xid)
        if reply.accepted != accept_stat.SUCCESS:
            raise RpcError(f"{self.program.name} {procedure.name if procedure else 'call'}", reply)
        return reply.result

    def ask(self, name: str, argument: Any = None, *, cred: opaque_auth | None = None) -> Reply:  # noqa: ANN401
        """Call the procedure ``name`` and return the reply, whatever its status is."""
        return self.receive(self.send(self.procedure(name), self.encode(name, argument, cred=cred)))

    def encode(
        self,
        name: str,
        argument: Any = None,  # noqa: ANN401
        *,
        cred: opaque_auth | None = None,
        xid: int | None = None,
    ) -> Encoded:
        """Return a call of the procedure ``name``, to be changed and sent."""
        if cred is None and self.security is not None:
            return self.security.encode_call(self.program, self.procedure(name), argument, xid=xid)
        chosen = self.cred if cred is None else cred
        return encode_call(
            self.program,
            self.procedure(name),
            argument,
            xid=next_xid() if xid is None else xid,
            cred=chosen,
        )

    def send(self, procedure: Procedure, call: Encoded | bytes, *, fragments: tuple[int, ...] = ()) -> int:
        """Send a call, in a record of one fragment unless ``fragments`` names their sizes; return its xid."""
        data = call.data if isinstance(call, Encoded) else call
        xid = int.from_bytes(data[:4], "big")
        self._sent[xid] = procedure
        if self.rules is not None and self.security is None:
            self._calls[xid] = data
            self.rules.sent(data)
        self.link.send(frame(data, *fragments), deadline=self.deadline)
        return xid

    def expect(self, procedure: Procedure, *xids: int) -> None:
        """Expect replies to calls of ``procedure`` whose bytes were sent on :attr:`link` itself."""
        self._sent.update(dict.fromkeys(xids, procedure))

    def receive(self, xid: int | None = None) -> Reply:
        """Return the reply to ``xid``, or the next one.

        Replies to other calls wait for their turn; a reply to no call at all is an error. Raises PeerClosed,
        ResponseTimeout and RemoteProtocolError.
        """
        until = time.monotonic() + self.deadline
        while xid not in self._replies if xid is not None else not self._replies:
            record = self.receive_record(until=until)
            message, source = decode_message(record.data)
            body = message.body.value
            if not isinstance(body, reply_body):
                self._serve(message.xid, body, source.take(source.remaining, "argument"))
                continue
            procedure = self._sent.pop(message.xid, None)
            if procedure is None:
                raise RemoteProtocolError(
                    f"{self.link.peer}: RFC 5531 9: a reply with xid {message.xid:#x}, which no open "
                    f"call has (open: {', '.join(f'{one:#x}' for one in self._sent) or 'none'})"
                )
            reply = self._decode(record.data, message.xid, procedure)
            self.faults += reply.faults
            call = self._calls.pop(message.xid, None)
            if self.rules is not None and call is not None:
                self.faults += self.rules.faults(self, call, reply)
            self._replies[message.xid] = reply
        return self._replies.pop(next(iter(self._replies)) if xid is None else xid)

    def receive_record(self, *, until: float | None = None) -> RpcRecord:
        """Return the next record. Raises PeerClosed if the server closes first, ResponseTimeout."""
        until = time.monotonic() + self.deadline if until is None else until
        while not isinstance(record := self._receiver.next_event(), RpcRecord):
            data = self.link.receive(deadline=until - time.monotonic())
            if not data:
                raise PeerClosed(
                    f"{self.link.peer}: closed the connection ({self.link.closed_how}) before a reply; "
                    f"last sent: {hex_short(self.link.last(outgoing=True))}"
                )
            self._receiver.receive_data(data)
        return record

    def _decode(self, record: bytes, xid: int, procedure: Procedure) -> Reply:
        if self.security is not None and self.security.knows(xid):
            return self.security.decode_reply(record, procedure)
        return decode_reply(record, procedure)

    def _serve(self, xid: int, body: call_body, argument: bytes) -> None:
        if self.on_call is None:
            raise RemoteProtocolError(f"{self.link.peer}: a call where a reply is due: {body}")
        answer = self.on_call(xid, body, argument)
        if answer is not None:
            self.link.send(frame(answer), deadline=self.deadline)
