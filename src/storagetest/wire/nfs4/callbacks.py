"""Callbacks of NFSv4 (RFC 7530 10.2, RFC 8881 20): answers to CB_NULL and CB_COMPOUND, true or not.

With minor version 1 and 2 the calls arrive on a connection of the session: ``rpc.on_call = callbacks``. For
minor version 0 :class:`CallbackListener` accepts the server's connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.types import (
    NFS_CB,
    CB_COMPOUND4args,
    CB_COMPOUND4res,
    CB_SEQUENCE4args,
    CB_SEQUENCE4res,
    CB_SEQUENCE4resok,
    netaddr4,
    nfs_cb_opnum4,
    nfs_cb_resop4,
    nfsstat4,
)
from storagetest.wire.rpc.message import decode_message, encode_reply
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.types import call_body
from storagetest.wire.tcp import RecordedConnection, listen
from storagetest.wire.xdr import Union, decode

Answer = Callable[[CB_COMPOUND4args], CB_COMPOUND4res | None]
"""Returns the result that the server receives, or None for none."""


@dataclass
class Callbacks:
    """Keeps every CB_COMPOUND and answers it; an ``on_call`` of :class:`RpcConnection`.

    ``statuses`` are the statuses of operations that do not succeed. ``answer`` replaces the whole answer.
    """

    statuses: Mapping[nfs_cb_opnum4, nfsstat4] = field(default_factory=dict)
    answer: Answer | None = None
    silent: bool = False
    seen: list[CB_COMPOUND4args] = field(default_factory=list)
    nulls: int = 0

    def __call__(self, xid: int, body: call_body, argument: bytes) -> bytes | None:
        """Return the bytes of the reply to a call, or None. Raises RemoteProtocolError if it is malformed."""
        procedure = NFS_CB.procedures.get(body.proc)
        if procedure is None:
            raise RemoteProtocolError(f"RFC 8881 20: a callback of procedure {body.proc}")
        given = decode(procedure.argument, argument)
        if given is None:
            self.nulls += 1
            return None if self.silent else encode_reply(xid, procedure, None).data
        self.seen.append(given)
        result = (self.answer or self.execute)(given)
        if self.silent or result is None:
            return None
        return encode_reply(xid, procedure, result).data

    def execute(self, given: CB_COMPOUND4args) -> CB_COMPOUND4res:
        """Return the result of a CB_COMPOUND that stops at the first status of ``statuses``."""
        results: list[nfs_cb_resop4] = []
        status = nfsstat4.NFS4_OK
        for one in given.argarray:
            status = self.statuses.get(one.argop, nfsstat4.NFS4_OK)
            results.append(_result(one.argop, one.value, status))
            if status != nfsstat4.NFS4_OK:
                break
        return CB_COMPOUND4res(status, given.tag, tuple(results))


def _result(number: nfs_cb_opnum4, argument: Any, status: nfsstat4) -> nfs_cb_resop4:  # noqa: ANN401
    if number == nfs_cb_opnum4.OP_CB_SEQUENCE and status == nfsstat4.NFS4_OK:
        assert isinstance(argument, CB_SEQUENCE4args)
        done = CB_SEQUENCE4resok(
            argument.csa_sessionid,
            argument.csa_sequenceid,
            argument.csa_slotid,
            argument.csa_highest_slotid,
            argument.csa_highest_slotid,
        )
        return nfs_cb_resop4(number, CB_SEQUENCE4res(nfsstat4.NFS4_OK, done))
    made: Any = nfs_cb_resop4.ARMS[number]
    if issubclass(made, Union) and status == nfsstat4.NFS4_OK and made.ARMS.get(status) is not None:
        raise RemoteProtocolError(f"a callback {number.name}, for which `answer` has to give a result")
    return nfs_cb_resop4(number, made(status))


class CallbackListener:
    """Accepts connections of a server of minor version 0 and answers its callbacks; a context manager."""

    def __init__(self, callbacks: Callbacks, address: str = "127.0.0.1") -> None:
        self.callbacks = callbacks
        self.links: list[RecordedConnection] = []
        self._listener = listen(address)
        self.host, self.port = address, self._listener.port
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def netaddr(self) -> netaddr4:
        """The universal address of the listener (RFC 5665 5.2.3.3)."""
        high, low = divmod(self.port, 256)
        return netaddr4(b"tcp", f"{self.host}.{high}.{low}".encode())

    def __enter__(self) -> CallbackListener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for link in self.links:
            link.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while (link := self._listener.accept()) is not None:
            self.links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: RecordedConnection) -> None:
        receiver = RecordReceiver()
        try:
            while data := link.receive(deadline=60):
                receiver.receive_data(data)
                while isinstance(record := receiver.next_event(), RpcRecord):
                    message, source = decode_message(record.data)
                    body = message.body.value
                    if not isinstance(body, call_body):
                        return
                    argument = source.take(source.remaining, "argument")
                    reply = self.callbacks(message.xid, body, argument)
                    if reply is not None:
                        link.send(frame(reply))
        except (RemoteProtocolError, OSError):  # OSError: the listener was closed meanwhile
            link.close()


def lying(callbacks: Callbacks, **fields: Any) -> Answer:  # noqa: ANN401
    """Return an answer in which fields of CB_SEQUENCE's result differ from what the server sent."""

    def answer(given: CB_COMPOUND4args) -> CB_COMPOUND4res:
        done = callbacks.execute(given)
        first: Any = done.resarray[0].value
        changed = replace(done.resarray[0], value=replace(first, value=replace(first.value, **fields)))
        return replace(done, resarray=(changed, *done.resarray[1:]))

    return answer
