"""Collect the output of a command up to a limit; the ways in which waiting for a command may end."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

_TAIL_LINES = 8
OUTPUT_LIMIT = 64 << 20
"""Bytes that a command may write to stdout, and as many to stderr."""


class DeadlinePassed(Exception):  # internal to storagetest.hosts
    """The controller's deadline has passed; the channel is closed already."""


class ConnectionLost(Exception):  # internal to storagetest.hosts
    """The connection was lost while a command ran; the text names the connection."""


class OutputTooLarge(Exception):  # internal to storagetest.hosts
    """A command printed more than :data:`OUTPUT_LIMIT` bytes; the text has the limit."""


class OutputBuffer:
    """The output of one stream: stored up to the limit, and passed on line by line."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self.overflowed = False

    def feed(self, data: bytes) -> None:
        """Add the next bytes, and call ``on_line`` for each complete line."""
        self._size += len(data)
        self.overflowed = self._size > OUTPUT_LIMIT
        if not self.overflowed:
            self._chunks.append(data)
        if self._on_line is not None:
            *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
            for line in lines:
                self._on_line(line)

    def finish(self) -> None:
        """Call ``on_line`` for a last line without a newline."""
        if self._on_line is not None and (rest := self._rest + self._decoder.decode(b"", final=True)):
            self._rest = ""
            self._on_line(rest)

    @property
    def data(self) -> bytes:
        """All bytes so far."""
        return b"".join(self._chunks)

    @property
    def text(self) -> str:
        """All text so far; bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """The end of a command: exit status, and seconds from its start as measured by the controller."""

    status: int
    seconds: float


def last_lines(*texts: str) -> str:
    """Return the last lines of the first of ``texts`` that is not empty, for messages."""
    text = next(filter(None, map(str.strip, texts)), "")
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def check_limit(*streams: OutputBuffer) -> None:
    """Raise :class:`OutputTooLarge` if one of the streams has passed its limit."""
    if any(stream.overflowed for stream in streams):
        raise OutputTooLarge(f"more than {OUTPUT_LIMIT >> 20} MiB")
