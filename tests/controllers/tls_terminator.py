"""TLS 1.3 with one pre-shared key in front of a controller: an ``openssl s_server`` for each connection.

It listens on loopback; behind the TLS of each connection it speaks to ``port`` in clear.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field

from storagetest.wire.nvme_tcp.tls import TlsKey
from storagetest.wire.openssl_psk import psk_session


@dataclass
class TlsTerminator:
    """A context manager; it listens on ``listens``."""

    key: TlsKey
    port: int
    listens: int = 0
    early: int = 0
    """Bytes of early data that are accepted, against the rule."""
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> TlsTerminator:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.listens = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for child in self._children:
            child.kill()
            child.wait()
        for thread in list(self._threads):
            thread.join(5)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                host, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, host)

    def _serve(self, host: socket.socket) -> None:
        """Start a server for this connection; carry bytes: host ↔ its TLS, its clear side ↔ controller."""
        clear, inside = socket.socketpair()
        port = self._server(inside)
        inside.close()
        cipher = _connect(port)
        controller = socket.create_connection(("127.0.0.1", self.port))
        self._sockets += [host, cipher, clear, controller]
        for source, sink in ((host, cipher), (cipher, host), (clear, controller), (controller, clear)):
            self._start(_carry, source, sink)

    def _server(self, inside: socket.socket) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        reader, writer = os.pipe()
        os.write(writer, psk_session(self.key.key, self.key.hash.number, early=self.early))
        os.close(writer)
        program = shutil.which("openssl")
        assert program is not None
        argv = [program, "s_server", "-accept", f"127.0.0.1:{port}", "-naccept", "1", "-quiet", "-nocert"]
        argv += ["-tls1_3", "-psk_identity", self.key.identity, "-psk_session", f"/dev/fd/{reader}"]
        argv += ["-early_data"] if self.early else []
        try:
            self._children.append(
                subprocess.Popen(
                    argv, stdin=inside, stdout=inside, stderr=subprocess.DEVNULL, pass_fds=(reader,)
                )
            )
        finally:
            os.close(reader)
        return port


def _connect(port: int) -> socket.socket:
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
