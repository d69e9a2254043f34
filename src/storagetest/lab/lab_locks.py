"""Lab directories and their locks; no crash leaves a wrong state.

A lab is alive while a process holds the lock (flock(2)) on the file ``lock`` in its directory: first `up`,
then the supervisor, which inherits the open file. The kernel releases the lock when the last holder ends. A
directory without a lock holder is stale, because its machines ended with the supervisor; any process removes
it. A second lock serializes creation and removal, so that a directory is never removed between its creation
and its locking.

Only the supervisor of a lab gets signals: its pid is in the lock file and is valid only while the lock is
held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from storagetest.errors import LabError
from storagetest.lab.paths import state_root
from storagetest.lab.supervisor import LOCK
from storagetest.polling import wait_until

_END_TIMEOUT = 30.0  # seconds


@contextmanager
def _directories_lock() -> Iterator[None]:
    """Hold the lock for creation and removal of lab directories, for a short time only."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def alive(directory: Path) -> bool:
    """Return whether a supervisor, or an `up` that has not started one yet, holds the lab's lock."""
    try:
        with (directory / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def prune() -> None:
    """Remove stale lab directories."""
    with _directories_lock():
        _prune()


def _prune() -> None:
    for directory in state_root().iterdir():
        if directory.is_dir() and not alive(directory):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def create_locked(directory: Path) -> Iterator[BinaryIO]:
    """Create a lab's directory and hold its lock; a child that inherits the lock continues to hold it.

    Raises :class:`FileExistsError` if the lab is alive. Removes the directory on an exception.
    """
    with _directories_lock():
        _prune()
        directory.mkdir(mode=0o700)
        lock = (directory / LOCK).open("w+b")
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits only for a process in alive()
    try:
        with lock:
            yield lock
    except BaseException:
        # A supervisor, if one was started, renamed the directory before it ended.
        shutil.rmtree(directory, ignore_errors=True)
        raise


def end(directory: Path) -> None:
    """End the lab and wait until its supervisor has exited and its directory is removed."""
    wait_until(
        lambda: _supervisor(directory) is not None or not alive(directory),
        _END_TIMEOUT,
        f"the supervisor of lab {directory.name}",
        interval=0.05,
        error=LabError,
    )
    pid = _supervisor(directory)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if alive(directory):  # so the pid was not reused when the pidfd was opened
                    _terminate(descriptor)
            finally:
                os.close(descriptor)
    prune()


def _supervisor(directory: Path) -> int | None:
    try:
        return int((directory / LOCK).read_text())
    except (OSError, ValueError):
        return None


def _terminate(pidfd: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal.pidfd_send_signal(pidfd, number)
        if select.select([pidfd], [], [], _END_TIMEOUT)[0]:
            return
