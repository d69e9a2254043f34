"""The controller's own machine as a host."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from storagetest.hosts._stream_channel import CHUNK, POLL, StreamChannel
from storagetest.hosts._supervised_host import SupervisedHost, Unreachable
from storagetest.hosts.interactive import Channel, ChannelTimeout


class LocalHost(SupervisedHost):
    """This machine. Commands run in their own sessions, so Ctrl-C in the terminal does not signal them.

    ``environment`` is added to the environment of all commands. It may contain secrets: unlike ``env`` of
    :meth:`run`, it is not part of a command line, which every user of the machine can read. Commands run in
    ``directory``, by default in this process's.
    """

    def __init__(
        self,
        name: str = "localhost",
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        super().__init__(name)
        self._environment, self._directory = dict(environment or {}), directory

    def close(self) -> None:
        """Close the host's resources; there is no connection."""
        self._close_resources()

    def _start(self, argv: Sequence[str], limit: float) -> Channel:  # noqa: ARG002  # starting takes no time
        return PipeChannel(self._spawn(argv))

    def _spawn(
        self, argv: Sequence[str], *, stderr: int | IO[bytes] = subprocess.PIPE, pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(
                argv,
                stdin=pipe,
                stdout=pipe,
                stderr=stderr,
                start_new_session=True,
                pass_fds=pass_fds,
                env=os.environ | self._environment,
                cwd=self._directory,
            )
        except OSError as error:
            raise Unreachable(f"{self.name}: cannot run `{argv[0]}`: {error.strerror}") from error


class PipeChannel(StreamChannel):
    """The three pipes of a child process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._process = process
        self._pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe]
        self._in, self._out, self._err = (pipe.fileno() for pipe in self._pipes)
        self._readable = select.poll()
        for descriptor in (self._out, self._err):
            self._readable.register(descriptor, select.POLLIN)
        self._stderr_open = True
        os.set_blocking(self._in, False)

    def send(self, data: bytes, limit: float) -> None:
        """See :meth:`Channel.send`."""
        until, rest = time.monotonic() + limit, memoryview(data)
        writable = select.poll() if self.duplex else self._readable
        writable.register(self._in, select.POLLOUT)
        try:
            while rest:  # and read its output, or the command may block on stdout and not read
                if self._in in self._wait(writable, until):
                    with suppress(BlockingIOError):
                        rest = rest[os.write(self._in, rest[:CHUNK]) :]
        except BrokenPipeError:
            return
        finally:
            writable.unregister(self._in)

    def _poll(self, until: float) -> bool:
        return bool(self._wait(self._readable, until))

    def _wait(self, streams: select.poll, until: float) -> set[int]:
        """Wait for ready ``streams``, read the available output, and return those that are ready."""
        left = until - time.monotonic()
        ready = {descriptor for descriptor, _ in streams.poll(max(0.0, min(left, POLL)) * 1000)}
        if not ready and left <= 0:
            raise ChannelTimeout
        if self._err in ready and not self._read_stderr():
            self._readable.unregister(self._err)
            self._stderr_open = False
        if self._out in ready:
            data = os.read(self._out, CHUNK)
            self._add(self._stdout, data)
            if not data:
                self._at_end = True
                self._readable.unregister(self._out)
        return ready

    def _read_stderr(self) -> bool:
        data = os.read(self._err, CHUNK)
        self._add(self._stderr, data)
        return bool(data)

    def _has_exited(self) -> bool:
        return self._process.poll() is not None

    def close_stdin(self) -> None:
        """See :meth:`Channel.close_stdin`."""
        with suppress(OSError):
            self._pipes[0].close()

    def status(self, limit: float) -> int:
        """See :meth:`Channel.status`."""
        until = time.monotonic() + limit
        while self._stderr_open and not self._has_exited():
            self._wait(self._readable, until)
        try:
            status = self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ChannelTimeout from None
        os.set_blocking(self._err, False)
        with suppress(BlockingIOError):  # a daemon that it has started may keep it open
            while self._read_stderr():
                pass
        return status

    def abandon(self) -> None:
        """See :meth:`Channel.abandon`."""
        with suppress(ProcessLookupError):
            if not self._has_exited():
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """See :meth:`Channel.close`; the process is killed if it still runs."""
        self.abandon()
        self._process.wait()  # only the supervisor, which does not access the target
        for pipe in self._pipes:
            with suppress(OSError):  # an unwritten rest of stdin
                pipe.close()
