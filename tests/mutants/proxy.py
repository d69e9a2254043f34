"""A TCP proxy that breaks one rule at a time between a suite and a real target.

It listens on loopback, connects each client on to the target, cuts both streams into PDUs with a splitter and
hands every PDU to a :class:`Rewrite`, one a connection. What the rewrite returns goes on. An honest proxy is
one whose rewrite returns what it was given.

Rules:

1. The proxy never judges: bytes that its splitter cannot cut go on as they came, from there to the end.
2. A direction that closes is closed onward, unless the rewrite says otherwise.
3. Nothing outlives the context manager: sockets are shut and threads joined.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Hangup", "Mutant", "Proxy", "Rewrite", "Splitter"]

Splitter = Callable[[bytes], list[bytes]]
"""Fed a direction's bytes, it returns the whole PDUs so far; raising ValueError means that it is lost."""


class Hangup(Exception):  # an instruction, not an error
    """Raised by a rewrite: close both sides now."""


class Rewrite:
    """One connection. Override what is to be broken; ``send_to_…`` speak out of turn."""

    send_to_host: Callable[[bytes], None]
    send_to_target: Callable[[bytes], None]
    acted: bool = False
    """Whether it has changed, added or held back anything yet; noted by the proxy."""
    over: bool = False
    """Whether the host has closed its side."""

    def to_host(self, pdu: bytes) -> Iterable[bytes]:
        """What the host gets for a PDU of the target's."""
        return (pdu,)

    def to_target(self, pdu: bytes) -> Iterable[bytes]:
        """What the target gets for a PDU of the host's."""
        return (pdu,)

    def passes_close(self, *, from_target: bool) -> bool:
        """Whether a close is passed on."""
        return True

    def changed(self, given: bytes, out: list[bytes]) -> bool:
        """Whether ``out`` is anything else than the PDU that was given."""
        return out != [given]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule: ``section`` says which, ``make`` makes the rewrite that breaks it on one connection."""

    name: str
    section: str
    description: str
    make: Callable[[], Rewrite]
    kind: str | None = None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Return ``make``: what these rewrites remember is of one connection."""
        return self.make


@dataclass
class Proxy:
    """A context manager; it listens on ``port``. ``splitter(from_target)`` makes one for a direction."""

    address: str
    target_port: int
    splitter: Callable[[bool], Splitter]
    make: Callable[[], Rewrite] = Rewrite
    port: int = 0
    _held: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Proxy:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        self._accepting.join(timeout=5)
        self.drop()

    def drop(self) -> None:
        """Close every connection; new ones are taken."""
        with self._held:
            sockets, self._sockets = self._sockets, []
            threads, self._threads = self._threads, []
        for sock in sockets:
            _shut(sock)
        for thread in threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while True:
            try:
                host, _ = self._listener.accept()
            except OSError:
                return
            try:
                target = socket.create_connection((self.address, self.target_port), timeout=10)
            except OSError:
                _shut(host)
                continue
            target.settimeout(None)
            for sock in (host, target):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rewrite, lock = self.make(), threading.Lock()
            sends = _whole_sends(host), _whole_sends(target)
            rewrite.send_to_host, rewrite.send_to_target = (_noting(rewrite, send) for send in sends)
            pumps = [
                threading.Thread(target=self._pump, args=args, daemon=True)
                for args in (
                    (target, host, rewrite, True, lock, sends[0]),
                    (host, target, rewrite, False, lock, sends[1]),
                )
            ]
            with self._held:
                self._sockets += [host, target]
                self._threads += pumps
                for pump in pumps:
                    pump.start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        rewrite: Rewrite,
        from_target: bool,
        lock: threading.Lock,
        send: Callable[[bytes], None],
    ) -> None:
        split: Splitter | None = self.splitter(from_target)
        change = rewrite.to_host if from_target else rewrite.to_target
        seen = b""  # of the stream, what no PDU has taken yet
        with contextlib.suppress(OSError):
            while data := source.recv(256 * 1024):
                pdus = [data]
                if split is not None:
                    seen += data
                    try:
                        pdus = split(data)
                        seen = seen[sum(map(len, pdus)) :]
                        with lock:  # one rewrite keeps state over both directions
                            pdus = [out for pdu in pdus for out in _noted(rewrite, pdu, change)]
                    except ValueError:
                        split, pdus = None, [seen]
                    except Hangup:
                        rewrite.acted = True
                        _shut(source)
                        _shut(sink)
                        return
                for pdu in pdus:
                    send(pdu)
            if split is not None and seen:
                send(seen)  # half a PDU, and then the end
        rewrite.over = rewrite.over or not from_target
        if rewrite.passes_close(from_target=from_target):
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            if from_target:
                _shut(sink)
                _shut(source)
        elif not rewrite.over:  # once the host has left there is nobody to be kept waiting
            rewrite.acted = True


def _noted(rewrite: Rewrite, pdu: bytes, change: Callable[[bytes], Iterable[bytes]]) -> list[bytes]:
    out = list(change(pdu))
    if rewrite.changed(pdu, out):
        rewrite.acted = True
    return out


def _noting(rewrite: Rewrite, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """What a rewrite says out of turn is something that it did."""

    def say(data: bytes) -> None:
        rewrite.acted = True
        send(data)

    return say


def _whole_sends(sock: socket.socket) -> Callable[[bytes], None]:
    """Both pumps may send to one side: never into the middle of each other's PDU."""
    lock = threading.Lock()

    def send(data: bytes) -> None:
        with lock:
            sock.sendall(data)

    return send


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
