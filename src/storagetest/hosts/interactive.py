"""A conversation with a command that goes on running: lines go in, lines come out.

Theory. :meth:`Host.run` gives a command all its input at once and waits for its end. What has to keep a file
open, or a lock held, while something happens elsewhere cannot be run like that. A conversation keeps the
command's stdin open; whoever speaks says a line and hears the next one that comes.

Rules:

1. A command in conversation is supervised as every other is (:mod:`storagetest.hosts._supervised_host`): the host
   ends it at its deadline, and what is left of it is ended when the conversation is over, however it is over.
2. Every word has a deadline of its own. That nobody answers is :class:`DeadlineExceeded`; that the command
   has ended, or that the connection is lost, is :class:`HostError`, with the last lines of what it
   complained about.
3. To say something to a command that has ended is no error: the next :meth:`Conversation.hear` says how it
   ended.
4. Whoever shares the line (a banner, a warning) is heard too: what a line means is the listener's to decide.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from storagetest.errors import CommandEnded, DeadlineExceeded, HostError

__all__ = ["Channel", "ChannelLost", "ChannelTimeout", "InteractiveProcess"]

LONGEST = 64 << 20
"""Bytes that one line may have."""

_TAIL_LINES = 8


class ChannelTimeout(Exception):  # never leaves this room
    """The time for this step is over; the line is as it was."""


class ChannelLost(Exception):  # never leaves this room
    """The connection went away; its text says which."""


class Channel(ABC):
    """Our end of a running command's streams, as a transport has it. ``limit`` is in seconds throughout.

    Every method but :meth:`close` and :meth:`close_stdin` raises :class:`LineLate` or :class:`LineLost`.
    ``duplex`` is set where one thread receives all the time while others send; else sending takes in what
    comes meanwhile.
    """

    duplex = False

    @abstractmethod
    def send(self, data: bytes, limit: float) -> None:
        """Write all of ``data`` to the command's stdin, unless nobody reads it any more."""

    @abstractmethod
    def receive(self, limit: float) -> bytes:
        """Return the next bytes of the command's stdout; none at its end."""

    @abstractmethod
    def stderr_text(self) -> str:
        """Return what the command has written to stderr so far."""

    @abstractmethod
    def close_stdin(self) -> None:
        """End the command's stdin."""

    @abstractmethod
    def status(self, limit: float) -> int:
        """Wait for the command's end and return its exit status."""

    @abstractmethod
    def close(self) -> None:
        """Let go of our end."""

    def abandon(self) -> None:
        """Cut the line, so that whoever waits for it learns at once that it is lost."""
        self.close()


class InteractiveProcess:
    """What :meth:`Host.converse` yields. For one thread, but see :meth:`speak_while_hearing`."""

    def __init__(
        self, host: str, command: str, line: Channel, *, explain: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        """``command`` is what messages call it.

        ``explain`` is called with status and stderr of a command that has ended; it may raise.
        """
        self._who = f"{host}: {command}"
        self._line = line
        self._explain = explain
        self._rest = b""
        self._lines: list[bytes] = []

    def send_line(self, words: bytes | str, *, deadline: float = 30.0) -> None:
        """Send ``words``, and a line's end after a text; bytes go as they are."""
        data = words if isinstance(words, bytes) else words.encode() + b"\n"
        try:
            self._line.send(data, deadline)
        except ChannelTimeout:
            raise DeadlineExceeded(f"{self._who} did not listen for {deadline:g} s") from None
        except ChannelLost as lost:
            raise HostError(f"{self._who}: {lost}") from None

    def enable_full_duplex(self) -> None:
        """Let one thread :meth:`hear` while another may :meth:`say`; from now on one always has to hear."""
        self._line.duplex = True

    def abandon(self) -> None:
        """Let go of our end at once: its host has fallen silent, and nobody waits for the command's end."""
        self._line.abandon()

    def read_line(self, deadline: float) -> str:
        """Return the next line, without its end; what is not UTF-8 becomes U+FFFD."""
        until = time.monotonic() + deadline
        while not self._lines:
            try:
                data = self._line.receive(max(0.0, until - time.monotonic()))
                if not data:
                    raise self._ended(max(1.0, until - time.monotonic()))
            except ChannelTimeout:
                raise DeadlineExceeded(f"{self._who} said nothing for {deadline:g} s{self._tail()}") from None
            except ChannelLost as lost:
                raise HostError(f"{self._who}: {lost}{self._tail()}") from None
            *self._lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > LONGEST:
                raise HostError(f"{self._who} said a line of more than {LONGEST >> 20} MiB")
        return self._lines.pop(0).decode(errors="replace")

    def _ended(self, limit: float) -> CommandEnded:
        status = self._line.status(limit)
        self._explain(status, self._line.stderr_text())
        unfinished = self._rest.decode(errors="replace")[-200:]
        word = f"; its last word was {unfinished!r}" if unfinished else ""
        return CommandEnded(f"{self._who} ended in mid-conversation with status {status}{word}{self._tail()}")

    def _tail(self) -> str:
        said = self._line.stderr_text().strip().splitlines()[-_TAIL_LINES:]
        return ":\n" + "\n".join(said) if said else ""
