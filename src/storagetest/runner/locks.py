"""Locks on hosts between processes: exclusive for measuring cases, shared for others.

Theory. A lock is flock(2) on a file of its own, exclusive or shared, so the kernel releases it when its
holder ends. flock has no queue: a series of shared holders would keep an exclusive one waiting for ever. So
every lock has a *turnstile*, a second file that each process locks exclusively while it waits for the lock
itself. The process that waits longest is next.

Rules:

1. Several names are locked in sorted order, each with its turnstile first: a total order, hence no deadlock.
   Locking while holding other locks breaks that order: lock all names of a case in one call (:func:`acquire`
   for a mix of exclusive and shared).
2. The directory is /tmp/storagetest-UID, independent of the environment: two processes of one user with
   different directories would not exclude each other. The directory must belong to the user and be
   inaccessible to others; files in it are opened without following symbolic links.
3. A lock file is never removed, because a process may wait for it. If a cleaner of /tmp removes one, the
   process that locks a file without a name tries again.
4. The content of a lock file (process and purpose) is for messages only.

Locks belong to open files: two threads exclude each other as two processes do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from storagetest.config.models import HostConfig
from storagetest.errors import DeadlineExceeded, HostError, InUse
from storagetest.polling import wait_until

_INTERVAL = 0.05
_SIZE = 1024
"""Least bytes of a lock file (chosen)."""


def exclusive(names: Iterable[str], *, timeout: float, purpose: str) -> AbstractContextManager[None]:
    """Lock the hosts ``names`` exclusively.

    ``purpose`` is shown to processes that wait. Raises :class:`InUse`, which names a holder, if not all are
    free within ``timeout`` seconds; nothing is locked then.
    """
    return acquire(exclusive=names, timeout=timeout, purpose=purpose)


def shared(names: Iterable[str], *, timeout: float, purpose: str) -> AbstractContextManager[None]:
    """Lock the hosts ``names`` shared; otherwise like :func:`exclusive`."""
    return acquire(shared=names, timeout=timeout, purpose=purpose)


@contextmanager
def acquire(
    *, exclusive: Iterable[str] = (), shared: Iterable[str] = (), timeout: float, purpose: str
) -> Iterator[None]:
    """Lock some hosts exclusively and others shared; otherwise like :func:`exclusive`."""
    modes = {**dict.fromkeys(shared, fcntl.LOCK_SH), **dict.fromkeys(exclusive, fcntl.LOCK_EX)}
    end = time.monotonic() + timeout
    directory = os.open(lock_directory(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, directory)
        for name, mode in sorted(modes.items()):
            file = _file_name(name)
            with ExitStack() as waiting:
                try:
                    turnstile = _lock_file(directory, f"{file}.turn", fcntl.LOCK_EX, end)
                    waiting.callback(os.close, turnstile)
                    lock = _lock_file(directory, file, mode, end)
                except DeadlineExceeded:
                    raise _in_use_error(directory, name, file, timeout, purpose) from None
                stack.callback(os.close, lock)
                _write_holder(lock, purpose)
        yield


def machine_id(machine: HostConfig) -> str:
    """Return the identity of a host across runs; its name is local to each targets file."""
    if machine.transport == "local":
        return "local"
    if machine.transport == "slurm":
        return f"slurm:{machine.job or os.environ.get('SLURM_JOB_ID', '')}:{machine.node}"
    return f"{machine.ssh_config or ''}:{machine.address}:{machine.port or 22}"


def lock_directory() -> Path:
    """Return the directory of this user's locks, which is created if missing. Raises :class:`HostError`."""
    path = Path(f"/tmp/storagetest-{os.getuid()}")  # noqa: S108  # made safe below; see rule 2
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise HostError(f"{path} is not a directory that only you can access. Remove it, then start again")
    return path


def _file_name(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:60]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _lock_file(directory: int, file: str, mode: int, end: float) -> int:
    """Return the descriptor of ``file``, locked; it is the caller's to close."""

    def attempt() -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600, dir_fd=directory)
        with ExitStack() as stack:
            stack.callback(os.close, descriptor)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
                if _is_current(directory, file, descriptor):
                    stack.pop_all()
                    return descriptor
        return None

    return wait_until(attempt, max(0.0, end - time.monotonic()), file, interval=_INTERVAL) or -1


def _is_current(directory: int, file: str, descriptor: int) -> bool:
    """Whether ``file`` still names the open file ``descriptor``."""
    try:
        named = os.stat(file, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _write_holder(lock: int, purpose: str) -> None:
    """Write it over what is there, with blanks after it.

    ext4 writes a file that was cut to nothing and written again to its disk when it is closed (auto_da_alloc,
    ext4(5)): a millisecond for each lock of each case.
    """
    content = json.dumps({"pid": os.getpid(), "purpose": purpose}).encode().ljust(_SIZE)
    os.pwrite(lock, content, 0)
    os.ftruncate(lock, len(content))


def _in_use_error(directory: int, name: str, file: str, timeout: float, purpose: str) -> InUse:
    holder = "another process"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            content = json.loads(os.read(descriptor, 1 << 16))
        finally:
            os.close(descriptor)
        os.kill(content["pid"], 0)
        holder = f"process {content['pid']} ({content['purpose']})"
    advice = (
        f"{purpose} waited {timeout:g} s for it. Wait until it ends, or wait longer with --st-lock-timeout"
    )
    return InUse(f"{name} is in use by {holder}", advice)
