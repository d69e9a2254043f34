"""Who has which lab: directories and locks, and nothing that could be left wrong by a crash.

A lab is alive as long as somebody holds the lock (flock(2)) on ``lock`` in its directory: first `up`, then
the keeper, who inherits the very same open file. The kernel lets go of it when the last holder ends, however
it ends. A directory whose lock nobody holds is litter, its machines died with the keeper, and whoever comes
across it removes it. Directories come and are pruned under one more lock, so that nobody takes a directory
between its making and its locking for litter.

Only processes that are known to be ours are ever signalled: the keeper's number stands in the lock file, and
it counts only while the lock is held.
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
from storagetest.lab.keeper import LOCK
from storagetest.lab.paths import state_root
from storagetest.polling import wait_until

__all__ = ["alive", "claimed", "end", "prune"]

_END = 30.0


@contextmanager
def _registry() -> Iterator[None]:
    """Hold the lock under which directories come and are pruned; never for long."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def alive(directory: Path) -> bool:
    """Whether a keeper, or an `up` that has not started one yet, holds the lab's lock."""
    try:
        with (directory / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def prune() -> None:
    """Remove what killed keepers left."""
    with _registry():
        _prune()


def _prune() -> None:
    for directory in state_root().iterdir():
        if directory.is_dir() and not alive(directory):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def claimed(directory: Path) -> Iterator[BinaryIO]:
    """Make a lab's directory and hold its lock; whoever inherits the lock goes on holding it.

    Raises :class:`FileExistsError` where the lab is alive. On an exception the directory goes.
    """
    with _registry():
        _prune()
        directory.mkdir(mode=0o700)
        lock = (directory / LOCK).open("w+b")
        fcntl.flock(lock, fcntl.LOCK_EX)  # at most somebody is just looking
    try:
        with lock:
            yield lock
    except BaseException:
        shutil.rmtree(
            directory, ignore_errors=True
        )  # a keeper, if there was one, has renamed it before it ended
        raise


def end(directory: Path) -> None:
    """Have the keeper end the lab, and wait until nothing is left of it."""
    wait_until(
        lambda: _keeper(directory) is not None or not alive(directory),
        _END,
        f"the keeper of lab {directory.name}",
        error=LabError,
    )
    number = _keeper(directory)
    if number is not None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(number)
            try:
                if alive(directory):  # still: so that number is the keeper's, and not a later process's
                    _signal(descriptor)
            finally:
                os.close(descriptor)
    prune()


def _keeper(directory: Path) -> int | None:
    try:
        return int((directory / LOCK).read_text())
    except (OSError, ValueError):
        return None


def _signal(keeper: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal.pidfd_send_signal(keeper, number)
        if select.select([keeper], [], [], _END)[0]:
            return
