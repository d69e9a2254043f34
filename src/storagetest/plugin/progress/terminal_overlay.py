"""Lines beneath what pytest is just writing, on a terminal that can move its cursor.

Theory. pytest leaves the cursor somewhere in a line of its own (after a dot, after a case's name), and goes
on there when the case ends. So our lines stand below that line: they are written with a newline before each,
and the cursor is then put back to where pytest left it. Before pytest writes anything they are taken away,
which is why its file is wrapped here.

While a case runs, pytest has its own stdout point elsewhere (capture), so a duplicate of it is made before.

The cursor is never hidden and no mode of the terminal is changed: whatever kills us leaves nothing to mend.
Sequences: ECMA-48 (CUU, CHA, ED).
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from typing import Any, TextIO, cast

import pytest

__all__ = ["TerminalOverlay", "duplicate"]


def duplicate(file: TextIO) -> TextIO:
    """Return a file that goes where ``file`` goes now; it is the caller's to close."""
    try:
        descriptor = os.dup(file.fileno())
    except OSError:  # it stands for no file of the system's
        return cast("TextIO", _BorrowedFile(file))
    encoding = getattr(file, "encoding", None)
    return open(descriptor, "w", encoding=encoding, errors="replace")  # noqa: PTH123  # a descriptor


class TerminalOverlay:
    """The lines that are shown now, and the lock under which anybody writes."""

    def __init__(self, writer: pytest.TerminalReporter) -> None:
        self.lock = threading.RLock()
        self._writer = writer._tw  # noqa: SLF001  # pytest offers its column in no other way
        self._file: TextIO = self._writer._file  # noqa: SLF001
        self._shown, self._column = 0, 0
        self._out = duplicate(self._file)
        self._writer._file = _InterceptedFile(self, self._file)  # noqa: SLF001

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._writer.fullwidth

    def show(self, lines: Sequence[str]) -> None:
        """Show ``lines``, each shorter than the screen is wide, instead of those that are shown."""
        with self.lock:
            width = self._writer.fullwidth
            column = self._writer.width_of_current_line
            if column and column % width == 0:
                return  # the cursor hangs over the edge, and could not be put back there
            self._column = column % width
            self._shown = len(lines)
            below = "".join(f"\n{line[: width - 1]}" for line in lines)
            self._write(f"\n\x1b[J\x1b[A{self._back()}{below}\x1b[{len(lines)}A{self._back()}")

    def hide(self) -> None:
        """Take the lines away."""
        with self.lock:
            if self._shown:
                self._shown = 0
                self._write(f"\n\x1b[J\x1b[A{self._back()}")

    def close(self) -> None:
        """Take the lines away and let pytest write to its file itself again."""
        with self.lock:
            self.hide()
            self._writer._file = self._file  # noqa: SLF001
            self._out.close()

    def _back(self) -> str:
        return f"\x1b[{self._column + 1}G"

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the terminal has gone: pytest will find that out for itself
            self._shown = 0


class _InterceptedFile:
    """pytest's file, before each write to which the lines are taken away."""

    def __init__(self, screen: TerminalOverlay, file: TextIO) -> None:
        self._screen, self._file = screen, file

    def write(self, text: str) -> int:
        with self._screen.lock:
            self._screen.hide()
            return self._file.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the file has
        return getattr(self._file, name)


class _BorrowedFile(io.TextIOBase):
    """Another's file, which closing this one leaves open."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str, /) -> int:
        return self._file.write(text)
