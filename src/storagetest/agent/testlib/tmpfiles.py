"""Files for the bodies of cases: create, open and read a file, wait for the target's clock, make data."""

from __future__ import annotations

import os
import time
from pathlib import Path

from storagetest.agent.fsutil import open_fd

__all__ = ["make_file", "open_fd", "pattern_bytes", "read_at", "wait_clock_tick"]

_TICK_TIMEOUT = 4.0
"""Timeout for a change of the target's clock, in seconds: the coarsest known time stamps have two seconds."""


def make_file(path: Path, data: bytes = b"", mode: int | None = None) -> Path:
    """Create a file with ``data``, and exactly ``mode`` if it is not None; return its path."""
    with open_fd(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644 if mode is None else mode) as descriptor:
        if data:
            assert os.write(descriptor, data) == len(data)
    if mode is not None and os.stat(path).st_mode & 0o7777 != mode:
        os.chmod(path, mode)
    return path


def read_at(path: Path, size: int, offset: int = 0) -> bytes:
    """Open, read up to ``size`` bytes at ``offset``, close."""
    with open_fd(path, os.O_RDONLY) as descriptor:
        return os.pread(descriptor, size, offset)


def wait_clock_tick(directory: Path) -> int:
    """Wait until the target's clock for time stamps has advanced; return its time before, in ns.

    Later time stamps are greater than all earlier ones. Raises AssertionError if the clock does not advance.
    """
    probe = directory / ".tick"
    before = _new_file_mtime(probe)
    until = time.monotonic() + _TICK_TIMEOUT
    while time.monotonic() < until:
        if _new_file_mtime(probe) > before:
            os.unlink(probe)
            return before
        time.sleep(0.002)
    raise AssertionError(f"the target's clock for time stamps did not advance within {_TICK_TIMEOUT:g} s")


def _new_file_mtime(probe: Path) -> int:
    """Create the file again and return its modification time in ns."""
    if os.path.lexists(probe):
        os.unlink(probe)
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(descriptor)
    return os.stat(probe).st_mtime_ns


def pattern_bytes(size: int) -> bytes:
    """Return ``size`` bytes of which each 16 contain their own offset, so that a shifted block differs."""
    lines = b"".join(b"%015d\n" % offset for offset in range(0, size, 16))
    return lines[:size]
