"""Interactive process: a running command to which lines are sent and from which lines are read.

Theory. :meth:`Host.run` gives a command its whole input at once and waits for its end. A process that keeps a
file open or a lock acquired while something else happens needs its stdin open, to read one line at a time.

Rules:

1. The command is supervised as every other (:mod:`storagetest.hosts._supervised_host`): the host ends it at
   its deadline, and :meth:`Host.interactive_exec` kills its remaining processes at the end of the with-block.
2. Every line has its own deadline. No line in time is :class:`DeadlineExceeded`; the end of the command and a
   lost connection are :class:`HostError`, with the last lines of stderr.
3. Sending to a command that has ended is not an error: the next :meth:`InteractiveProcess.read_line` reports
   its end.
4. Lines of other sources (a banner, a warning) are returned too; the caller has to recognize them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from storagetest.errors import CommandEnded, DeadlineExceeded, HostError
from storagetest.hosts._output import OutputTooLarge, last_lines

MAX_LINE = 64 << 20
"""Maximum length of a line in bytes."""


class ChannelTimeout(Exception):  # internal to storagetest.hosts
    """The read or write timed out; the channel is still usable."""


class ChannelLost(Exception):  # internal to storagetest.hosts
    """The connection was lost; the text names the connection."""


class Channel(ABC):
    """The controller's end of a running command's streams. ``limit`` is a timeout in seconds.

    Every method but :meth:`close` and :meth:`close_stdin` raises :class:`ChannelTimeout` or
    :class:`ChannelLost`. ``duplex`` is set if one thread receives all the time while others send; otherwise
    :meth:`send` also reads the command's output, so that the command does not block.
    """

    duplex = False

    @abstractmethod
    def send(self, data: bytes, limit: float) -> None:
        """Write all of ``data`` to the command's stdin; do nothing if the command has closed it."""

    @abstractmethod
    def receive(self, limit: float) -> bytes:
        """Return the next bytes of the command's stdout; b"" at its end."""

    @abstractmethod
    def stderr_text(self) -> str:
        """Return what the command has written to stderr so far."""

    @abstractmethod
    def close_stdin(self) -> None:
        """Close the command's stdin."""

    @abstractmethod
    def status(self, limit: float) -> int:
        """Wait for the command's end and return its exit status."""

    @abstractmethod
    def close(self) -> None:
        """Close the channel."""

    def abandon(self) -> None:
        """Close the channel at once, so that threads that wait for it get an error."""
        self.close()


class InteractiveProcess:
    """A running command of :meth:`Host.interactive_exec`, for one thread; see :meth:`enable_full_duplex`."""

    def __init__(
        self,
        host: str,
        command: str,
        channel: Channel,
        *,
        explain: Callable[[int, str], None] = lambda *_: None,
    ) -> None:
        """``command`` is its name in messages.

        ``explain`` is called with status and stderr of a command that has ended; it may raise.
        """
        self._name = f"{host}: {command}"
        self._channel = channel
        self._explain = explain
        self._rest = b""
        self._lines: list[bytes] = []

    def send_line(self, line: bytes | str, *, deadline: float = 30.0) -> None:
        """Send a text and a newline, or bytes unchanged."""
        data = line if isinstance(line, bytes) else line.encode() + b"\n"
        try:
            self._channel.send(data, deadline)
        except ChannelTimeout:
            raise DeadlineExceeded(f"{self._name} did not read its stdin for {deadline:g} s") from None
        except ChannelLost as lost:
            raise HostError(f"{self._name}: {lost}") from None
        except OutputTooLarge as much:
            raise HostError(f"{self._name} printed {much}") from None

    def enable_full_duplex(self) -> None:
        """Switch to full duplex: one thread must read continuously; other threads may write."""
        self._channel.duplex = True

    def abandon(self) -> None:
        """Close the channel at once, without waiting for the command's end: the host does not respond."""
        self._channel.abandon()

    def read_line(self, deadline: float) -> str:
        """Return the next line, without its newline; bytes that are not UTF-8 become U+FFFD."""
        until = time.monotonic() + deadline
        while not self._lines:
            try:
                data = self._channel.receive(max(0.0, until - time.monotonic()))
                if not data:
                    raise self._ended(max(1.0, until - time.monotonic()))
            except ChannelTimeout:
                raise DeadlineExceeded(
                    f"{self._name} printed nothing for {deadline:g} s{self._tail()}"
                ) from None
            except ChannelLost as lost:
                raise HostError(f"{self._name}: {lost}{self._tail()}") from None
            except OutputTooLarge as much:
                raise HostError(f"{self._name} printed {much}") from None
            *self._lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_LINE:
                raise HostError(f"{self._name} printed a line of more than {MAX_LINE >> 20} MiB")
        return self._lines.pop(0).decode(errors="replace")

    def _ended(self, limit: float) -> CommandEnded:
        status = self._channel.status(limit)
        self._explain(status, self._channel.stderr_text())
        unfinished = self._rest.decode(errors="replace")[-200:]
        last = f"; its unfinished last line is {unfinished!r}" if unfinished else ""
        return CommandEnded(f"{self._name} ended unexpectedly with status {status}{last}{self._tail()}")

    def _tail(self) -> str:
        tail = last_lines(self._channel.stderr_text())
        return f":\n{tail}" if tail else ""
