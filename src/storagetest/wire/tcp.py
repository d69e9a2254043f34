"""The one module of sockets: a TCP connection with deadlines, a transcript, and a limit on received bytes.

Rules:

1. Every call has a deadline, in seconds from the call. After it, :class:`ResponseTimeout` is raised; its text
   has the last bytes of each direction.
2. :attr:`RecordedConnection.closed_how` holds how the peer closed. Sending to a closed peer is no error by
   itself: :meth:`RecordedConnection.receive` returns what the peer still sent, and then ``b""``. So a case
   that provokes a peer sees the peer's last PDUs, not a local broken pipe.
3. At most ``limit`` bytes are received in total. More raise
   :class:`~storagetest.errors.RemoteProtocolError`, so that a peer cannot fill the memory.
4. :attr:`RecordedConnection.transcript` holds every byte sent and received, with its time, since the
   connection was made or :meth:`RecordedConnection.begin_transcript` was called.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.wire.hexdump import hex_short

LIMIT = 64 * 1024 * 1024
"""The most bytes that one connection receives; more are an error (chosen)."""

_PIECE = 256 * 1024
_TAIL = 48

Connector = Callable[[str, int, float], socket.socket]
"""``connector(address, port, timeout)``: return a connected socket, for example one with TLS."""


class ResponseTimeout(RemoteProtocolError):  # what happened, in the case's words
    """The peer neither responded nor closed before the deadline, or did not accept the sent data."""


class PeerClosed(RemoteProtocolError):  # likewise
    """The peer closed the connection before a response that was due."""


def is_connected(ask: Callable[[], object]) -> bool:
    """Whether the peer has not closed the connection on which ``ask`` sends a request.

    No response, and one that breaks the protocol, are no proof that it has.
    """
    try:
        ask()
    except PeerClosed:
        return False
    except RemoteProtocolError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one send or receive call. ``time`` is seconds since the epoch."""

    time: float
    outgoing: bool
    data: bytes


class RecordedConnection:
    """One TCP connection, made with :meth:`connect`. Use it as a context manager, or :meth:`close` it."""

    def __init__(self, sock: socket.socket, *, limit: int = LIMIT) -> None:
        self._socket = sock
        self._limit = limit
        self._received = 0
        self.transcript: list[Chunk] = []
        self.closed_how: Literal["fin", "rst"] | None = None
        self.peer = _name(sock)

    @classmethod
    def connect(
        cls,
        address: str,
        port: int,
        *,
        deadline: float,
        limit: int = LIMIT,
        connector: Connector | None = None,
    ) -> RecordedConnection:
        """Connect within ``deadline`` seconds. Raises :class:`TargetDead` if that fails.

        ``connector`` replaces the plain TCP connect, and its errors propagate.
        """
        if connector is not None:
            return cls(connector(address, port, deadline), limit=limit)
        peer = f"{address}:{port}"
        try:
            sock = socket.create_connection((address, port), timeout=deadline)
        except TimeoutError:
            raise TargetDead(
                f"{peer}: no response to a TCP connect within {deadline:g} s. Check that the target is up."
            ) from None
        except OSError as error:
            raise TargetDead(f"{peer}: cannot connect: {error.strerror or error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, limit=limit)

    def send(self, data: bytes, *, deadline: float = 10.0) -> None:
        """Send all of ``data``, unless the peer has closed (rule 2). Raises :class:`ResponseTimeout`."""
        if self.closed_how == "rst":
            return
        self.transcript.append(Chunk(time.time(), outgoing=True, data=bytes(data)))
        self._socket.settimeout(deadline)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._timeout_error(deadline, f"did not accept all of {len(data)} bytes") from None
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN):
                raise RemoteProtocolError(f"{self.peer}: send failed: {error}") from None

    def receive(self, *, deadline: float, max_bytes: int = _PIECE) -> bytes:
        """Return some bytes, or ``b""`` once the peer has closed (see :attr:`closed_how`)."""
        if self.closed_how is not None:
            return b""
        self._socket.settimeout(max(deadline, 0.000001))
        try:
            data = self._socket.recv(max_bytes)
        except TimeoutError:
            raise self._timeout_error(deadline, "neither responded nor closed") from None
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
                f"{self.peer}: sent more than {self._limit} bytes, and no case requests that many; "
                f"last: {hex_short(data[-_TAIL:])}"
            )
        return data

    def begin_transcript(self) -> None:
        """Begin a new transcript; received bytes are counted from 0 (rule 3)."""
        self.transcript = []
        self._received = 0

    def start_tls(self, context: ssl.SSLContext, *, deadline: float) -> ssl.SSLSocket:
        """Do a TLS handshake as a client; what follows is encrypted, and in clear in the transcript.

        Raises RemoteProtocolError if the peer refuses it or closes, :class:`ResponseTimeout`.
        """
        self._socket.settimeout(deadline)
        try:
            made = context.wrap_socket(self._socket)
        except TimeoutError:
            raise self._timeout_error(deadline, "did not finish the TLS handshake") from None
        except OSError as error:
            self.closed_how = "rst"
            raise RemoteProtocolError(f"{self.peer}: the TLS handshake failed: {error}") from None
        self._socket = made
        return made

    def shutdown_write(self) -> None:
        """Send a FIN; the peer may still send."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.closed_how = self.closed_how or "rst"

    def close(self) -> None:
        """Close the socket. Safe to call twice."""
        self._socket.close()

    @property
    def is_open(self) -> bool:
        """Whether neither side is known to have closed."""
        return self.closed_how is None and self._socket.fileno() >= 0

    @property
    def local_address(self) -> str:
        """The address of this end."""
        address: str = self._socket.getsockname()[0]
        return address

    def abort(self) -> None:
        """End a :meth:`receive` that waits in another thread: it returns ``b""``."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def last(self, *, outgoing: bool, max_bytes: int = _TAIL) -> bytes:
        """Return the last bytes sent (``outgoing``) or received."""
        tail = b""
        for chunk in reversed(self.transcript):
            if chunk.outgoing == outgoing:
                tail = chunk.data[-max_bytes:] + tail
                if len(tail) >= max_bytes:
                    break
        return tail[-max_bytes:]

    def _timeout_error(self, deadline: float, failure: str) -> ResponseTimeout:
        return ResponseTimeout(
            f"{self.peer}: {failure} within {deadline:g} s; "
            f"last sent: {hex_short(self.last(outgoing=True))}; "
            f"last received: {hex_short(self.last(outgoing=False))}"
        )

    def __enter__(self) -> RecordedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_from_low_port(address: str, port: int, timeout: float) -> socket.socket:
    """Connect from a source port under 1024, which some NFS servers require; a :data:`Connector`.

    Raises :class:`TargetDead` if that is not possible, also for want of the privilege.
    """
    for source in random.sample(range(600, 1024), 424):
        try:
            sock = socket.create_connection((address, port), timeout, source_address=("", source))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                reason = f"cannot connect from a port under 1024: {error.strerror or error}"
                raise TargetDead(f"{address}:{port}: {reason}") from None
        else:
            # There are few such ports: a close resets the connection, so that its port is free at once.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return sock
    raise TargetDead(f"{address}:{port}: no source port under 1024 is free")


class Listener:
    """A listening socket, for a target that connects to the controller; made with :func:`listen`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.port: int = sock.getsockname()[1]

    def accept(self) -> RecordedConnection | None:
        """Return the next connection, or None once the listener is closed."""
        try:
            return RecordedConnection(self._socket.accept()[0])
        except OSError:
            return None

    def close(self) -> None:
        """Close the socket, and end an :meth:`accept` that waits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def listen(address: str, port: int = 0) -> Listener:
    """Listen on ``port`` of ``address``, or on a free one. Raises OSError if that is not possible."""
    return Listener(socket.create_server((address, port)))


def _name(sock: socket.socket) -> str:
    try:
        peer = sock.getpeername()
    except OSError:
        return "a disconnected peer"
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else (str(peer) or "a local peer")
