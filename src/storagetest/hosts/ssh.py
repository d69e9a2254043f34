"""A host over SSH: one connection, opened at the first use; one channel per command.

Rules:

1. One connection per host, shared by all threads. Opening a channel also checks the connection: if that
   fails, nothing has been started, so the host reconnects and tries once more. A command that ran when the
   connection was lost is never repeated.
2. sshd accepts ten sessions per connection (MaxSessions, sshd_config(5)); one is reserved for ending
   commands.
3. Nothing blocks for ever: every wait has a timeout, and a watchdog closes a channel on which a command does
   not start.
4. A connection that is no longer trusted is retired, not closed: other threads may still use it.
"""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from storagetest.errors import DeadlineExceeded
from storagetest.hosts._output import ConnectionLost, DeadlinePassed
from storagetest.hosts._paramiko import paramiko
from storagetest.hosts._ssh_connect import TimeBudget, authenticate, tcp_connect
from storagetest.hosts._ssh_settings import Endpoint, SshSettings, resolve
from storagetest.hosts._stream_channel import CHUNK, POLL, StreamChannel
from storagetest.hosts._supervised_host import SupervisedHost, Unreachable
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout
from storagetest.polling import wait_until

_REAP_TIMEOUT = 5.0
_SESSIONS = 9
_BROKEN = (paramiko.SSHException, EOFError, OSError)
_NO_STATUS = -1


def without_close_errors(channel: paramiko.Channel) -> paramiko.Channel:
    """Return ``channel`` with a ``close`` that raises nothing if its connection is already lost.

    paramiko's thread of a connection over ``channel`` closes it last, outside its own error handling.
    """
    close = channel.close

    def close_quietly() -> None:
        with suppress(*_BROKEN):
            close()

    channel.close = close_quietly  # type: ignore[method-assign]
    return channel


class SshHost(SupervisedHost):
    """A host over SSH. It needs a login shell that runs ``sh -c '…'``, coreutils, grep and /proc."""

    expensive_exec = True

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._lock = threading.Lock()
        self._transport: paramiko.Transport | None = None
        self._retired: list[paramiko.Transport] = []
        self._endpoint: Endpoint | None = None
        self._jump: SshHost | None = None

    def close(self) -> None:
        """Close every connection, the jump hosts' included."""
        self._close_resources()
        with self._lock:
            for transport in [*self._retired, *filter(None, [self._transport])]:
                transport.close()
            self._retired.clear()
            self._transport = None
        if self._jump is not None:
            self._jump.close()

    @contextmanager
    def _session_slot(self, deadline: float) -> Iterator[None]:
        if not self._sessions.acquire(timeout=deadline):
            raise DeadlineExceeded(
                f"{self.name}: {_SESSIONS} commands, the limit of a connection, ran for {deadline:g} s"
            )
        try:
            yield
        finally:
            self._sessions.release()

    def _distrust_connection(self) -> None:
        super()._distrust_connection()
        if (transport := self._transport) is not None:
            self._retire_connection(transport)

    def _start(self, argv: Sequence[str], limit: float) -> Channel:
        channel = self._open_channel(self._session, timeout=limit)
        end = time.monotonic() + limit
        watchdog = threading.Timer(limit, channel.close)
        watchdog.daemon = True
        watchdog.start()
        try:
            channel.exec_command(shlex.join(argv))
        except _BROKEN as error:
            channel.close()
            if time.monotonic() >= end:
                raise DeadlinePassed(f"no response from {self._where()}") from None
            raise ConnectionLost(self._lost()) from error
        finally:
            watchdog.cancel()
        return _SshChannel(channel, self._lost())

    def _session(self, transport: paramiko.Transport, seconds: float) -> paramiko.Channel:
        refusals: list[paramiko.ChannelException] = []

        def opened() -> paramiko.Channel | None:
            try:
                return transport.open_session(timeout=seconds)
            except paramiko.ChannelException as error:
                refusals.append(error)
                return None

        # sshd counts a session until it has reaped its process, a little after the channel is closed.
        with suppress(DeadlineExceeded):
            channel = wait_until(opened, min(seconds, _REAP_TIMEOUT), "sshd to reap a session")
            if channel is not None:
                return channel
        where = f"{self.name}: {self._where()}"
        raise Unreachable(
            f"{where} accepts no more sessions ({refusals[-1].text}); see its MaxSessions"
        ) from refusals[-1]

    def open_tunnel(self, to: Endpoint, budget: TimeBudget) -> paramiko.Channel:
        """Connect from this host to ``to``, which is behind it (RFC 4254 section 7.2)."""

        def tunnel(transport: paramiko.Transport, seconds: float) -> paramiko.Channel:
            try:
                return transport.open_channel(
                    "direct-tcpip", (to.address, to.port), ("127.0.0.1", 0), timeout=seconds
                )
            except paramiko.ChannelException as error:
                raise Unreachable(
                    f"{to.name}: the jump host {self._where()} cannot connect to {to.where} ({error.text}); "
                    "is the address right as seen from there, is sshd up, and is AllowTcpForwarding on?"
                ) from error

        return without_close_errors(self._open_channel(tunnel, timeout=budget.left()))

    def _open_channel(
        self, opened: Callable[[paramiko.Transport, float], paramiko.Channel], *, timeout: float
    ) -> paramiko.Channel:
        """Return ``opened(transport, timeout)`` on the host's connection (rule 1)."""
        while True:
            transport, fresh = self._connected(timeout)
            # An older connection may be lost; a new one is not, so its sshd is slow at most.
            limit = self._settings.login_timeout if fresh else self._settings.connect_timeout
            try:
                return opened(transport, min(limit, timeout))
            except _BROKEN as error:
                self._retire_connection(transport)
                if fresh:
                    cause = str(error) or "the server closed it"
                    raise Unreachable(f"{self.name}: {self._lost()} right after opening ({cause})") from error

    def _connected(self, timeout: float) -> tuple[paramiko.Transport, bool]:
        """Return the connection, and whether it was made just now."""
        with self._lock:
            if self._transport is not None and self._transport.is_active():
                return self._transport, False
            if self._transport is not None:
                self._transport.close()
                self._transport = None
            self._transport = self._connect(timeout)
            return self._transport, True

    def _connect(self, timeout: float) -> paramiko.Transport:
        endpoint = self._endpoint = self._endpoint or resolve(self._settings)
        end = time.monotonic() + timeout
        allowed, jump = endpoint.connect_timeout, endpoint.jump
        stream: socket.socket | paramiko.Channel
        if jump is None:
            stream = tcp_connect(endpoint, TimeBudget(endpoint, min(allowed, timeout)))
        else:
            # The jump host may have to be connected first.
            allowed += jump.connect_timeout + jump.login_timeout
            self._jump = self._jump or SshHost(jump)
            stream = self._jump.open_tunnel(endpoint, TimeBudget(endpoint, min(allowed, timeout)))
        left = max(0.0, end - time.monotonic())
        return authenticate(endpoint, stream, TimeBudget(endpoint, min(endpoint.login_timeout, left)))

    def _retire_connection(self, transport: paramiko.Transport) -> None:
        with self._lock:
            self._retired.append(transport)
            if self._transport is transport:
                self._transport = None

    def _where(self) -> str:
        return self._endpoint.where if self._endpoint else self._settings.address

    def _lost(self) -> str:
        return f"connection to {self._where()} lost"


class _SshChannel(StreamChannel):
    """A channel of an SSH connection. ``lost`` is the error text for a lost connection."""

    def __init__(self, channel: paramiko.Channel, lost: str) -> None:
        super().__init__()
        self._channel = channel
        self._lost = lost

    def send(self, data: bytes, limit: float) -> None:
        until, rest = time.monotonic() + limit, memoryview(data)
        while rest:  # and read its output, or the command may block on stdout and not read
            while not self.duplex and self._channel.recv_ready():
                self._add(self._stdout, self._channel.recv(CHUNK))
            self._time_out(until)
            try:
                rest = rest[self._channel.send(rest[:CHUNK].tobytes()) :]
            except TimeoutError:
                self._read_stderr()
            except OSError:
                if self._is_active():
                    return  # the command has closed its stdin or has ended
                raise ChannelLost(self._lost) from None

    def _poll(self, until: float) -> bool:
        some = self._read_stderr()
        self._time_out(until)
        try:
            data: bytes = self._channel.recv(CHUNK)
        except TimeoutError:
            return some
        if not data and not self._is_active():
            raise ChannelLost(self._lost)
        self._at_end = not data
        self._add(self._stdout, data)
        return True

    def _time_out(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise ChannelTimeout
        self._channel.settimeout(min(left, POLL))

    def _read_stderr(self) -> bool:
        some = False
        while self._channel.recv_stderr_ready() and (data := self._channel.recv_stderr(CHUNK)):
            self._add(self._stderr, data)
            some = True
        return some

    def _is_active(self) -> bool:
        return bool(self._channel.get_transport().is_active())

    def _has_exited(self) -> bool:
        return self._channel.exit_status_ready()

    def stderr_text(self) -> str:
        self._read_stderr()
        return super().stderr_text()

    def close_stdin(self) -> None:
        with suppress(*_BROKEN):
            self._channel.shutdown_write()

    def status(self, limit: float) -> int:
        until = time.monotonic() + limit
        while not self._channel.status_event.wait(POLL):
            self._read_stderr()
            if not self._is_active():
                raise ChannelLost(self._lost)
            if time.monotonic() >= until:
                raise ChannelTimeout
        status: int = self._channel.exit_status
        if status == _NO_STATUS:
            self._channel.get_transport().join(POLL)  # the channel ends a little before the transport
            raise ChannelLost("its shell was killed" if self._is_active() else self._lost)
        return status

    def close(self) -> None:
        self._channel.close()
