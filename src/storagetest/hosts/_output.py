"""What a command says while it runs, collected within bounds, and how the waiting for it may end."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "OUTPUT_LIMIT",
    "ConnectionLost",
    "DeadlinePassed",
    "ExitInfo",
    "OutputBuffer",
    "OutputTooLarge",
    "bounded",
]

OUTPUT_LIMIT = 64 << 20
"""Bytes that a command may write to stdout, and as many to stderr."""


class DeadlinePassed(Exception):  # never leaves this room
    """Our own deadline passed; our end of the line is cut already."""


class ConnectionLost(Exception):  # never leaves this room
    """The connection went away while a command ran; its text says which."""


class OutputTooLarge(Exception):  # never leaves this room
    """A command printed more than :data:`OUTPUT_LIMIT` bytes; its text says how many."""


class OutputBuffer:
    """What comes out of one stream: kept up to the limit, and handed on line by line."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self.overflowed = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes; ``on_line`` is called from here."""
        self._size += len(data)
        self.overflowed = self._size > OUTPUT_LIMIT
        if not self.overflowed:
            self._chunks.append(data)
        if self._on_line is not None:
            *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
            for line in lines:
                self._on_line(line)

    def finish(self) -> None:
        """Hand on a last line that had no end."""
        if self._on_line is not None and (rest := self._rest + self._decoder.decode(b"", final=True)):
            self._rest = ""
            self._on_line(rest)

    @property
    def data(self) -> bytes:
        """All bytes so far."""
        return b"".join(self._chunks)

    @property
    def text(self) -> str:
        """All text so far; what is not UTF-8 becomes U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a transport's command line ended: exit status, and seconds from its start as seen from here."""

    status: int
    seconds: float


def bounded(out: OutputBuffer, err: OutputBuffer) -> None:
    """Raise :class:`TooMuch` when either stream has passed its limit."""
    if out.overflowed or err.overflowed:
        raise OutputTooLarge(f"more than {OUTPUT_LIMIT >> 20} MiB")
