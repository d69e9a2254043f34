"""One port in front of NFS-Ganesha's: a connection goes to that of the program of its first call."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from ganesha import Ganesha, ganesha

from storagetest.wire.nfs3.mount import MOUNT_V3
from storagetest.wire.nfs3.nlm import NLM4_VERS
from storagetest.wire.nfs3.nsm import SM_VERS

_HEADER = 20
"""Bytes up to the program's number: the fragment header, xid, message type, RPC version, program."""


class GaneshaFront:
    """A context manager that listens on ``port``. What is no call goes to NFS."""

    def __init__(self, server: Ganesha) -> None:
        here = "127.0.0.1"
        self._places = {MOUNT_V3.number: (here, server.mount), NLM4_VERS.number: (here, server.lock)}
        if server.status[1]:
            self._places[SM_VERS.number] = server.status
        self._nfs = (here, server.nfs)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> GaneshaFront:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._sockets.append(self._listener)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            _shut(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        start = b""
        with contextlib.suppress(OSError):
            while len(start) < _HEADER:
                near.settimeout(0.2 if start else None)
                try:
                    data = near.recv(_HEADER - len(start))
                except TimeoutError:
                    break
                if not data:
                    break
                start += data
            near.settimeout(None)
            far = socket.create_connection(self._places.get(int.from_bytes(start[16:20], "big"), self._nfs))
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(far)
            far.sendall(start)
            threading.Thread(target=_pump, args=(far, near), daemon=True).start()
            _pump(near, far)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(256 * 1024):
            sink.sendall(data)
    _shut(sink)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


@contextlib.contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha with a front; yield host and port."""
    with ganesha() as server, GaneshaFront(server) as front:
        yield "127.0.0.1", front.port
