"""The controller's own machine as a host."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from storagetest.hosts._output import OUTPUT_LIMIT, DeadlinePassed, ExitInfo, OutputBuffer, check_limit
from storagetest.hosts._supervised_host import SETTLE, SupervisedHost, Unreachable
from storagetest.hosts.interactive import Channel, ChannelTimeout

__all__ = ["LocalHost"]

_CHUNK = 1 << 16
_POLL = 0.25


class LocalHost(SupervisedHost):
    """This machine. Commands run in their own sessions, so Ctrl-C in the terminal does not signal them."""

    def __init__(self, name: str = "localhost") -> None:
        super().__init__(name)

    def close(self) -> None:
        """Close the host's resources; there is no connection."""
        self._close_resources()

    def _execute(
        self, argv: Sequence[str], *, stdin: bytes, out: OutputBuffer, err: OutputBuffer, limit: float
    ) -> ExitInfo:
        started = time.monotonic()
        process = self._popen(argv)
        streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream]
        try:
            _pump(process, stdin, out, err, started + limit)
            return ExitInfo(_status(process, started + limit), time.monotonic() - started)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()  # only the supervisor, which does not access the target
            raise
        finally:
            for stream in streams:
                with suppress(OSError):  # an unwritten rest of stdin
                    stream.close()

    def _start(self, argv: Sequence[str], limit: float) -> Channel:  # noqa: ARG002  # starting takes no time
        return _PipeChannel(self._popen(argv))

    def _popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._spawn(argv)

    def _spawn(
        self, argv: Sequence[str], *, stderr: int | IO[bytes] = subprocess.PIPE, pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=stderr, start_new_session=True, pass_fds=pass_fds
            )
        except OSError as error:
            raise Unreachable(f"{self.name}: cannot run `{argv[0]}`: {error.strerror}") from error


class _PipeChannel(Channel):
    """The three pipes of a child process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream]
        self._in, self._out, self._err = (stream.fileno() for stream in self._streams)
        self._received = self._stderr = b""
        self._ended = False
        self._poll = select.poll()
        for descriptor in (self._out, self._err):
            self._poll.register(descriptor, select.POLLIN)
        os.set_blocking(self._in, False)

    def send(self, data: bytes, limit: float) -> None:
        until, rest = time.monotonic() + limit, memoryview(data)
        if self.duplex:
            self._send_only(rest, until)
            return
        self._poll.register(self._in, select.POLLOUT)
        try:
            while rest:  # and read its output, or the command may block on stdout and not read
                if self._in in self._wait(until):
                    with suppress(BlockingIOError):
                        rest = rest[os.write(self._in, rest[:_CHUNK]) :]
        except BrokenPipeError:
            return
        finally:
            self._poll.unregister(self._in)

    def _send_only(self, rest: memoryview, until: float) -> None:
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        with suppress(BrokenPipeError):
            while rest:
                if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise ChannelTimeout
                with suppress(BlockingIOError):
                    rest = rest[os.write(self._in, rest[:_CHUNK]) :]

    def receive(self, limit: float) -> bytes:
        until = time.monotonic() + limit
        while not self._received and not self._ended:
            self._wait(until)
        data, self._received = self._received, b""
        return data

    def _wait(self, until: float) -> set[int]:
        """Wait for a ready stream, read the available output, and return the ready streams."""
        ready = {descriptor for descriptor, _ in self._poll.poll(max(0.0, until - time.monotonic()) * 1000)}
        if not ready:
            raise ChannelTimeout
        if self._err in ready and not self._read_stderr():
            self._poll.unregister(self._err)
        if self._out in ready:
            data = os.read(self._out, _CHUNK)
            self._received += data
            if not data:
                self._ended = True
                self._poll.unregister(self._out)
        return ready

    def _read_stderr(self) -> bool:
        data = os.read(self._err, _CHUNK)
        self._stderr = (self._stderr + data)[-OUTPUT_LIMIT:]
        return bool(data)

    def stderr_text(self) -> str:
        return self._stderr.decode(errors="replace")

    def close_stdin(self) -> None:
        with suppress(OSError):
            self._streams[0].close()

    def status(self, limit: float) -> int:
        try:
            status = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            raise ChannelTimeout from None
        os.set_blocking(self._err, False)
        with suppress(BlockingIOError):  # a daemon that it has started may keep it open
            while self._read_stderr():
                pass
        return status

    def abandon(self) -> None:
        with suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.abandon()
        self._process.wait()  # only the supervisor, which does not access the target
        for stream in self._streams:
            with suppress(OSError):
                stream.close()


def _pump(
    process: subprocess.Popen[bytes], stdin: bytes, out: OutputBuffer, err: OutputBuffer, until: float
) -> None:
    """Copy data until both outputs have ended, or the process has ended and there is no more output.

    Raises :class:`DeadlinePassed` at ``until`` (``time.monotonic``).
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    quiet_since: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        rest = memoryview(stdin)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while any(key.data for key in selector.get_map().values()):
            now = time.monotonic()
            if now >= until:
                raise DeadlinePassed
            ready = selector.select(min(_POLL, until - now))
            for key, _ in ready:
                stream: IO[bytes] = key.fileobj  # type: ignore[assignment]  # registered above
                if isinstance(key.data, OutputBuffer):
                    alive = _read(stream, key.data)
                else:
                    rest = _write(stream, rest)
                    alive = bool(rest)
                if not alive:
                    selector.unregister(stream)
                    stream.close()
            check_limit(out, err)
            if ready or process.poll() is None:
                quiet_since = None
            elif quiet_since is None:
                quiet_since = now
            elif now - quiet_since >= SETTLE:
                return


def _status(process: subprocess.Popen[bytes], until: float) -> int:
    try:
        return process.wait(max(until - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise DeadlinePassed from None


def _read(stream: IO[bytes], into: OutputBuffer) -> bool:
    data = os.read(stream.fileno(), _CHUNK)
    into.feed(data)
    return bool(data)


def _write(stream: IO[bytes], rest: memoryview) -> memoryview:
    """Write without blocking and return the rest; b"" if the process has closed its stdin."""
    try:
        return rest[os.write(stream.fileno(), rest[:_CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return memoryview(b"")
