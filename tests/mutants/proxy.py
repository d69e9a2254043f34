"""TCP proxy between a suite and a real target that breaks one rule at a time.

It listens on loopback, connects each client to the target, splits both streams into PDUs and passes every PDU
to the connection's :class:`Rewrite`. It forwards the PDUs that the rewrite returns. The rewrite of an honest
proxy returns its argument.

Rules:

1. The proxy checks nothing: if the splitter fails, the rest of that direction is forwarded unchanged.
2. A close of one side is forwarded to the other, unless the rewrite prevents it.
3. The context manager closes all sockets and joins all threads at its end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Splitter = Callable[[bytes], list[bytes]]
"""Takes bytes of one direction and returns the PDUs that they complete; ValueError: framing is lost."""


class Hangup(Exception):  # an instruction, not an error
    """Raised by a rewrite to close both sides."""


class Rewrite:
    """Rewrites the PDUs of one connection. Override a method; ``send_to_…`` sends additional PDUs."""

    send_to_host: Callable[[bytes], None]
    send_to_target: Callable[[bytes], None]
    acted: bool = False
    """Whether it has changed, added or delayed a PDU yet; set by the proxy."""
    over: bool = False
    """Whether the host has closed its side."""

    def to_host(self, pdu: bytes) -> Iterable[bytes]:
        """Return the PDUs that the host receives for a PDU of the target."""
        return (pdu,)

    def to_target(self, pdu: bytes) -> Iterable[bytes]:
        """Return the PDUs that the target receives for a PDU of the host."""
        return (pdu,)

    def passes_close(self, *, from_target: bool) -> bool:
        """Return whether a close is forwarded."""
        return True

    def changed(self, given: bytes, out: list[bytes]) -> bool:
        """Return whether ``out`` differs from the PDU ``given``."""
        return out != [given]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule with its ``section``; ``make`` returns the rewrite that breaks it on one connection."""

    name: str
    section: str
    description: str
    make: Callable[[], Rewrite]
    kind: str | None = None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Return ``make``, because these rewrites keep state of one connection only."""
        return self.make


@dataclass
class Proxy:
    """The proxy, a context manager that listens on ``port``. ``splitter(from_target)`` returns a Splitter."""

    address: str
    target_port: int
    splitter: Callable[[bool], Splitter]
    make: Callable[[], Rewrite] = Rewrite
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
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
        """Close every connection; new ones are still accepted."""
        with self._lock:
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
            rewrite.send_to_host, rewrite.send_to_target = (_record_sends(rewrite, send) for send in sends)
            pumps = [
                threading.Thread(target=self._pump, args=args, daemon=True)
                for args in (
                    (target, host, rewrite, True, lock, sends[0]),
                    (host, target, rewrite, False, lock, sends[1]),
                )
            ]
            with self._lock:
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
        pending = b""  # bytes that are not yet part of a PDU
        with contextlib.suppress(OSError):
            while data := source.recv(256 * 1024):
                pdus = [data]
                if split is not None:
                    pending += data
                    try:
                        pdus = split(data)
                        pending = pending[sum(map(len, pdus)) :]
                        with lock:  # one rewrite keeps state over both directions
                            pdus = [out for pdu in pdus for out in _noted(rewrite, pdu, change)]
                    except ValueError:
                        split, pdus = None, [pending]
                    except Hangup:
                        rewrite.acted = True
                        _shut(source)
                        _shut(sink)
                        return
                for pdu in pdus:
                    send(pdu)
            if split is not None and pending:
                send(pending)  # an incomplete PDU before a close
        rewrite.over = rewrite.over or not from_target
        if rewrite.passes_close(from_target=from_target):
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            if from_target:
                _shut(sink)
                _shut(source)
        elif not rewrite.over:  # a host that has closed does not wait
            rewrite.acted = True


def _noted(rewrite: Rewrite, pdu: bytes, change: Callable[[bytes], Iterable[bytes]]) -> list[bytes]:
    out = list(change(pdu))
    if rewrite.changed(pdu, out):
        rewrite.acted = True
    return out


def _record_sends(rewrite: Rewrite, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function that sends and records that the rewrite acted."""

    def send_additional(data: bytes) -> None:
        rewrite.acted = True
        send(data)

    return send_additional


def _whole_sends(sock: socket.socket) -> Callable[[bytes], None]:
    """Return a locked ``sendall``, because both pumps may send to one side."""
    lock = threading.Lock()

    def send(data: bytes) -> None:
        with lock:
            sock.sendall(data)

    return send


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
