"""The one module of sockets: a TCP connection with deadlines, a memory, and a limit.

Rules:

1. Every call has a deadline, in seconds from the call. When it passes, :class:`Silence` is raised and shows
   the last bytes that went each way.
2. How the peer closed is remembered (:attr:`Link.closed_how`). Sending to a peer that has gone is no error by
   itself: the next :meth:`Link.receive` gives ``b""``, after whatever the peer still had to say. So a case
   that provokes a peer reads its last words, not our own broken pipe.
3. At most ``limit`` bytes are received in all. A peer that floods ends in
   :class:`~storagetest.errors.RemoteProtocolError`; it can never fill our memory.
4. Everything sent and received is kept, with its time, in :attr:`Link.transcript`.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.wire.hexdump import hex_short

__all__ = ["Chunk", "Connector", "PeerClosed", "RecordedConnection", "ResponseTimeout"]

LIMIT = 64 * 1024 * 1024
"""Bytes that one link receives before it calls that a flood."""

_PIECE = 256 * 1024
_TAIL = 48

Connector = Callable[[str, int, float], socket.socket]
"""Connects to an address and a port within so many seconds: TLS, where the transport has it."""


class ResponseTimeout(RemoteProtocolError):  # what happened, in the case's words
    """The peer neither answered nor closed before the deadline (or took nothing of what we sent)."""


class PeerClosed(RemoteProtocolError):  # likewise
    """The peer closed the connection where an answer was due."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that went one way at once. ``time`` is seconds since the epoch."""

    time: float
    outgoing: bool
    data: bytes


class RecordedConnection:
    """One TCP connection. Make it with :meth:`connect`; use it as a context manager, or :meth:`close` it."""

    def __init__(self, sock: socket.socket, *, limit: int = LIMIT) -> None:
        self._socket = sock
        self._limit = limit
        self._received = 0
        self.transcript: list[Chunk] = []
        self.closed_how: Literal["fin", "rst"] | None = None
        self.peer = _name(sock)

    @classmethod
    def connect(
        cls, address: str, port: int, *, deadline: float, limit: int = LIMIT, dial: Connector | None = None
    ) -> RecordedConnection:
        """Connect within ``deadline`` seconds; :class:`TargetDead` where nobody listens or nobody answers.

        ``dial`` makes the connection in another way, and raises what it finds.
        """
        if dial is not None:
            return cls(dial(address, port, deadline), limit=limit)
        where = f"{address}:{port}"
        try:
            sock = socket.create_connection((address, port), timeout=deadline)
        except TimeoutError:
            raise TargetDead(
                f"{where}: no answer to a TCP connect within {deadline:g} s; is it up?"
            ) from None
        except OSError as error:
            raise TargetDead(f"{where}: cannot connect: {error.strerror or error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, limit=limit)

    def send(self, data: bytes, *, deadline: float = 10.0) -> None:
        """Send all of ``data``, unless the peer has gone (rule 2); :class:`Silence` if it takes it not."""
        if self.closed_how == "rst":
            return
        self.transcript.append(Chunk(time.time(), outgoing=True, data=bytes(data)))
        self._socket.settimeout(deadline)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._silence(deadline, f"took no more of {len(data)} bytes") from None
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN):
                raise RemoteProtocolError(f"{self.peer}: send failed: {error}") from None

    def receive(self, *, deadline: float, most: int = _PIECE) -> bytes:
        """Return some bytes, or ``b""`` once the peer has closed (see :attr:`closed_how`)."""
        if self.closed_how is not None:
            return b""
        self._socket.settimeout(max(deadline, 0.000001))
        try:
            data = self._socket.recv(most)
        except TimeoutError:
            raise self._silence(deadline, "neither answered nor closed") from None
        except OSError:
            self.closed_how = "rst"
            return b""
        if not data:
            self.closed_how = "fin"
            return b""
        self.transcript.append(Chunk(time.time(), outgoing=False, data=data))
        self._received += len(data)
        if self._received > self._limit:
            raise RemoteProtocolError(
                f"{self.peer}: sent more than {self._limit} bytes, which no case asks for; "
                f"last: {hex_short(data[-_TAIL:])}"
            )
        return data

    def shutdown_write(self) -> None:
        """Say that we send no more (FIN); the peer may still speak."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.closed_how = self.closed_how or "rst"

    def close(self) -> None:
        """Close. Safe to call twice."""
        self._socket.close()

    @property
    def is_open(self) -> bool:
        """Whether neither side is known to have closed."""
        return self.closed_how is None and self._socket.fileno() >= 0

    def last(self, *, outgoing: bool, most: int = _TAIL) -> bytes:
        """Return the last bytes that went that way."""
        tail = b""
        for chunk in reversed(self.transcript):
            if chunk.outgoing == outgoing:
                tail = chunk.data[-most:] + tail
                if len(tail) >= most:
                    break
        return tail[-most:]

    def _silence(self, deadline: float, what: str) -> ResponseTimeout:
        return ResponseTimeout(
            f"{self.peer}: {what} within {deadline:g} s; "
            f"last sent: {hex_short(self.last(outgoing=True))}; last received: {hex_short(self.last(outgoing=False))}"
        )

    def __enter__(self) -> RecordedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _name(sock: socket.socket) -> str:
    try:
        peer = sock.getpeername()
    except OSError:
        return "a peer that has gone"
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else (str(peer) or "a local peer")
