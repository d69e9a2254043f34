"""The machine we run on, as a host."""

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

from storagetest.hosts._output import OUTPUT_LIMIT, DeadlinePassed, ExitInfo, OutputBuffer, bounded
from storagetest.hosts._supervised_host import SETTLE, SupervisedHost, Unreachable
from storagetest.hosts.interactive import Channel, ChannelTimeout

__all__ = ["LocalHost"]

_CHUNK = 1 << 16
_POLL = 0.25


class LocalHost(SupervisedHost):
    """This machine. Commands run in sessions of their own, so a Ctrl-C reaches them only through us."""

    def __init__(self, name: str = "localhost") -> None:
        super().__init__(name)

    def close(self) -> None:
        """Nothing else to let go of."""
        self._close_kept()

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
            process.wait()  # of our supervisor alone, which no target can hold up
            raise
        finally:
            for stream in streams:
                with suppress(OSError):  # an unwritten rest of stdin
                    stream.close()

    def _start(self, argv: Sequence[str], limit: float) -> Channel:  # noqa: ARG002  # nothing is far
        return _Pipes(self._popen(argv))

    def _popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except OSError as error:
            msg = f"{self.name}: cannot run `{argv[0]}`: {error.strerror}"
            raise Unreachable(msg) from error


class _Pipes(Channel):
    """The three pipes of a child process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._streams = [one for one in (process.stdin, process.stdout, process.stderr) if one]
        self._in, self._out, self._err = (stream.fileno() for stream in self._streams)
        self._heard = self._said = b""
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
            while rest:  # and hear meanwhile: a command that waits to be heard would not listen
                if self._in in self._wait(until):
                    with suppress(BlockingIOError):
                        rest = rest[os.write(self._in, rest[:_CHUNK]) :]
        except BrokenPipeError:
            return
        finally:
            self._poll.unregister(self._in)

    def _send_only(self, rest: memoryview, until: float) -> None:
        room = select.poll()
        room.register(self._in, select.POLLOUT)
        with suppress(BrokenPipeError):
            while rest:
                if not room.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise ChannelTimeout
                with suppress(BlockingIOError):
                    rest = rest[os.write(self._in, rest[:_CHUNK]) :]

    def receive(self, limit: float) -> bytes:
        until = time.monotonic() + limit
        while not self._heard and not self._ended:
            self._wait(until)
        heard, self._heard = self._heard, b""
        return heard

    def _wait(self, until: float) -> set[int]:
        """Wait until something can be done, take in what was said, and return the streams that were ready."""
        ready = {one for one, _ in self._poll.poll(max(0.0, until - time.monotonic()) * 1000)}
        if not ready:
            raise ChannelTimeout
        if self._err in ready and not self._complain():
            self._poll.unregister(self._err)
        if self._out in ready:
            data = os.read(self._out, _CHUNK)
            self._heard += data
            if not data:
                self._ended = True
                self._poll.unregister(self._out)
        return ready

    def _complain(self) -> bool:
        data = os.read(self._err, _CHUNK)
        self._said = (self._said + data)[-OUTPUT_LIMIT:]
        return bool(data)

    def stderr_text(self) -> str:
        return self._said.decode(errors="replace")

    def close_stdin(self) -> None:
        with suppress(OSError):
            self._streams[0].close()

    def status(self, limit: float) -> int:
        try:
            status = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            raise ChannelTimeout from None
        os.set_blocking(self._err, False)
        with suppress(BlockingIOError):  # a daemon that it left behind may hold it open
            while self._complain():
                pass
        return status

    def abandon(self) -> None:
        with suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.abandon()
        self._process.wait()  # of our supervisor alone, which no target can hold up
        for stream in self._streams:
            with suppress(OSError):
                stream.close()


def _pump(
    process: subprocess.Popen[bytes], stdin: bytes, out: OutputBuffer, err: OutputBuffer, until: float
) -> None:
    """Move bytes until both outputs have ended, or the process has and is quiet; :class:`Overrun` then."""
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
            bounded(out, err)
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
    """Write what fits and return what is left; nothing, when nobody reads any more."""
    try:
        return rest[os.write(stream.fileno(), rest[:_CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return memoryview(b"")
