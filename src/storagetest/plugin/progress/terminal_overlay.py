"""Lines below pytest's current line, on a terminal with cursor control.

Model. pytest leaves the cursor in its current line (after a dot or a case's name), and continues there when
the case ends. The overlay's lines are below that line: each is written after a newline, then the cursor is
moved back. Before pytest writes, the lines are erased; for that its file is wrapped.

While a case runs, pytest redirects its own stdout (capture), so the file is duplicated before.

The cursor is never hidden and no terminal mode is changed, so a killed process leaves the terminal usable.
Sequences: ECMA-48 (CUU, CHA, ED).
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from typing import Any, TextIO, cast

import pytest


def duplicate(file: TextIO) -> TextIO:
    """Return a file with the same destination as ``file``, for the caller to close."""
    try:
        descriptor = os.dup(file.fileno())
    except OSError:  # no file of the operating system
        return cast("TextIO", _BorrowedFile(file))
    encoding = getattr(file, "encoding", None)
    return open(descriptor, "w", encoding=encoding, errors="replace")  # noqa: PTH123  # a descriptor


class TerminalOverlay:
    """The lines that are shown, and the lock for all output."""

    def __init__(self, writer: pytest.TerminalReporter) -> None:
        self.lock = threading.RLock()
        self._writer = writer._tw  # noqa: SLF001  # pytest offers its column in no other way
        self._file: TextIO = self._writer._file  # noqa: SLF001
        self._shown, self._column = 0, 0
        self._out = duplicate(self._file)
        self._writer._file = _InterceptedFile(self, self._file)  # noqa: SLF001

    @property
    def width(self) -> int:
        """The number of columns."""
        return self._writer.fullwidth

    def show(self, lines: Sequence[str]) -> None:
        """Replace the shown lines by ``lines``, each shorter than the width."""
        with self.lock:
            width = self._writer.fullwidth
            column = self._writer.width_of_current_line
            if column and column % width == 0:
                return  # the cursor is behind the last column, and cannot be moved back there
            self._column = column % width
            self._shown = len(lines)
            below = "".join(f"\n{line[: width - 1]}" for line in lines)
            self._write(f"\n\x1b[J\x1b[A{self._back()}{below}\x1b[{len(lines)}A{self._back()}")

    def hide(self) -> None:
        """Erase the lines."""
        with self.lock:
            if self._shown:
                self._shown = 0
                self._write(f"\n\x1b[J\x1b[A{self._back()}")

    def close(self) -> None:
        """Erase the lines and restore pytest's file."""
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
        except (OSError, ValueError):  # the terminal is closed: pytest reports it
            self._shown = 0


class _InterceptedFile:
    """pytest's file; each write erases the lines first."""

    def __init__(self, overlay: TerminalOverlay, file: TextIO) -> None:
        self._overlay, self._file = overlay, file

    def write(self, text: str) -> int:
        with self._overlay.lock:
            self._overlay.hide()
            return self._file.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as the file's
        return getattr(self._file, name)


class _BorrowedFile(io.TextIOBase):
    """A wrapper whose close() does not close the wrapped file."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str, /) -> int:
        return self._file.write(text)
