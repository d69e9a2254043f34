"""Files as the bodies of cases need them: made in a line, and a clock of the target's that moves on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["make_file", "open_fd", "pattern_bytes", "read_at", "wait_clock_tick"]

_TICKS = 4.0
"""Seconds after which a target's clock has moved on: the coarsest time stamps known are two seconds apart."""


def make_file(path: Path, data: bytes = b"", mode: int | None = None) -> Path:
    """Make a file that holds ``data``, of exactly that mode where one is given, and return its path."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644 if mode is None else mode)
    try:
        if data:
            assert os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)
    if mode is not None and os.stat(path).st_mode & 0o7777 != mode:
        os.chmod(path, mode)
    return path


@contextmanager
def open_fd(path: Path, flags: int = os.O_RDWR, mode: int = 0o644) -> Iterator[int]:
    """Open a file for the body, and close it."""
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(path: Path, size: int, offset: int = 0) -> bytes:
    """Open, read up to ``size`` bytes at ``offset``, close."""
    with open_fd(path, os.O_RDONLY) as descriptor:
        return os.pread(descriptor, size, offset)


def wait_clock_tick(here: Path) -> int:
    """Wait until the clock that stamps files has moved on; return its time before, in ns.

    What is stamped from now on has a later time than what was stamped before. AssertionError where the clock
    stands still.
    """
    probe = here / ".tick"
    before = _stamp(probe)
    until = time.monotonic() + _TICKS
    while time.monotonic() < until:
        if _stamp(probe) > before:
            os.unlink(probe)
            return before
        time.sleep(0.002)
    raise AssertionError(f"the clock that stamps files stood still for {_TICKS:g} s")


def _stamp(probe: Path) -> int:
    """Make a file anew and return the time that its making gave it."""
    if os.path.lexists(probe):
        os.unlink(probe)
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(descriptor)
    return os.stat(probe).st_mtime_ns


def pattern_bytes(size: int) -> bytes:
    """Return ``size`` bytes of which each 16 say their own offset, so that a shifted block is seen."""
    lines = b"".join(b"%015d\n" % offset for offset in range(0, size, 16))
    return lines[:size]
