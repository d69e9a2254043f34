"""A port mapper on a local socket that accepts every registration, for a server that does not start without.

It speaks RFC 1833 with the codecs of the suite. ``registered`` has what it was given.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from storagetest.wire.rpc.message import decode_message, encode_reply, encode_status
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.rpcbind import PMAP_VERS, RPCBVERS
from storagetest.wire.rpc.types import accept_stat, accepted_data, call_body

PROGRAMS = {2: PMAP_VERS, 3: RPCBVERS}


class RpcbindServer:
    """A context manager that listens on ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registered: list[tuple[int, int]] = []

    def __enter__(self) -> RpcbindServer:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(timeout=5)
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        receiver = RecordReceiver()
        with contextlib.suppress(OSError):
            while data := sock.recv(65536):
                receiver.receive_data(data)
                while isinstance(record := receiver.next_event(), RpcRecord):
                    sock.sendall(frame(self._reply(record.data)))

    def _reply(self, record: bytes) -> bytes:
        message, source = decode_message(record)
        body = message.body.value
        assert isinstance(body, call_body)
        program = PROGRAMS.get(body.vers)
        procedure = program.procedures.get(body.proc) if program else None
        if procedure is None or procedure.name not in ("NULL", "SET", "UNSET"):
            return encode_status(message.xid, accepted_data(accept_stat.PROC_UNAVAIL)).data
        argument = procedure.argument.unpack(source)
        if procedure.name == "SET" and body.vers == 3:
            self.registered.append((argument.r_prog, argument.r_vers))
        result = None if procedure.name == "NULL" else True
        return encode_reply(message.xid, procedure, result).data
