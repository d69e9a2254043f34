"""An RPC server on a listener (RFC 5531), for what calls a client back: each program is a function.

A thread accepts, and one thread serves each connection. A call of an unknown program, version or procedure,
or with an argument that cannot be decoded, is answered as RFC 5531 9 requires.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.rpc.message import decode_message, encode_reply, encode_status
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.types import accept_stat, accepted_data, call_body
from storagetest.wire.tcp import Listener, RecordedConnection
from storagetest.wire.xdr import Encoded, Program

Service = Callable[[str, Any], Any]
"""``service(procedure, argument)``: return the result. Raises LookupError for a procedure that it lacks."""

_IDLE = 3600.0
"""Seconds for which a connection may be idle (chosen); :meth:`RpcServer.close` ends it earlier."""


class RpcServer:
    """Serves ``services`` on ``listener``. A context manager; it closes the listener."""

    def __init__(self, listener: Listener, services: Mapping[Program, Service]) -> None:
        self.port = listener.port
        self._listener = listener
        self._services = {(one.number, one.version): (one, serve) for one, serve in services.items()}
        self._links: list[RecordedConnection] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Close the listener and all connections, and wait for their threads."""
        self._listener.close()
        for link in self._links:
            link.abort()
        for thread in self._threads:
            thread.join(timeout=5)

    def __enter__(self) -> RpcServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while (link := self._listener.accept()) is not None:
            self._links.append(link)
            self._threads.append(threading.Thread(target=self._serve, args=(link,), daemon=True))
            self._threads[-1].start()

    def _serve(self, link: RecordedConnection) -> None:
        receiver = RecordReceiver()
        with link, contextlib.suppress(RemoteProtocolError, OSError):
            while data := link.receive(deadline=_IDLE):
                receiver.receive_data(data)
                while isinstance(record := receiver.next_event(), RpcRecord):
                    link.send(frame(self._reply(record.data).data))

    def _reply(self, record: bytes) -> Encoded:
        message, source = decode_message(record)
        body = message.body.value
        if not isinstance(body, call_body):
            raise RemoteProtocolError("RFC 5531 9: a reply to no call")
        program, serve = self._services.get((body.prog, body.vers), (None, None))
        if program is None or serve is None:
            return encode_status(message.xid, accepted_data(accept_stat.PROG_UNAVAIL))
        procedure = program.procedures.get(body.proc)
        if procedure is None:
            return encode_status(message.xid, accepted_data(accept_stat.PROC_UNAVAIL))
        try:
            argument = procedure.argument.unpack(source)
        except RemoteProtocolError:
            return encode_status(message.xid, accepted_data(accept_stat.GARBAGE_ARGS))
        try:
            result = None if procedure.number == 0 else serve(procedure.name, argument)
        except LookupError:
            return encode_status(message.xid, accepted_data(accept_stat.PROC_UNAVAIL))
        return encode_reply(message.xid, procedure, result)
