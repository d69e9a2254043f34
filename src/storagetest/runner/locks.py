"""Who may use which machine when, across processes: measuring cases alone, others beside each other.

Theory. A lock is flock(2) on a file of its own, exclusive or shared, so the kernel releases it when its
holder ends, however it ends. flock knows no queue: a stream of shared holders would keep an exclusive one
out for ever. So every lock has a *turnstile*, a second file, which everybody holds exclusively while
waiting for the lock itself: whoever waits longest is let in next, and those who come later wait behind.

Rules:

1. Several names are taken in sorted order, each with its turnstile first: a total order, hence no deadlock.
   Taking locks while holding others breaks that order: take all of a case's names in one call (:func:`mixed`
   where it wants some alone and others not).
2. The directory is /tmp/storagetest-UID, whatever the environment says: two processes of one user that saw
   different directories would not exclude each other. It must be a directory of ours that nobody else can
   enter; files in it are opened without following symbolic links.
3. A lock file is never removed while somebody may wait for it. Should a cleaner of /tmp remove one, whoever
   gets a lock on a file that has no name any more tries again.
4. What stands in a lock's file (process and purpose) is for messages only.

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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from storagetest.config.models import Machine
from storagetest.errors import DeadlineExceeded, HostError, InUse
from storagetest.polling import wait_until

__all__ = ["acquire", "exclusive", "lock_directory", "machine_id", "shared"]

_INTERVAL = 0.05


@contextmanager
def exclusive(names: Iterable[str], *, timeout: float, what: str) -> Iterator[None]:
    """Hold the machines ``names`` alone.

    ``what`` says to others what they wait for. Raises :class:`HostError` that names a holder when not all are
    free within ``timeout`` seconds; nothing is held then.
    """
    with acquire(alone=names, timeout=timeout, what=what):
        yield


@contextmanager
def shared(names: Iterable[str], *, timeout: float, what: str) -> Iterator[None]:
    """Hold the machines ``names`` together with other shared holders; otherwise like :func:`exclusive`."""
    with acquire(together=names, timeout=timeout, what=what):
        yield


@contextmanager
def acquire(
    *, alone: Iterable[str] = (), together: Iterable[str] = (), timeout: float, what: str
) -> Iterator[None]:
    """Hold some machines alone and others with other shared holders; otherwise like :func:`exclusive`."""
    modes = {**dict.fromkeys(together, fcntl.LOCK_SH), **dict.fromkeys(alone, fcntl.LOCK_EX)}
    with _hold(modes, timeout, what):
        yield


def machine_id(machine: Machine) -> str:
    """Return what tells a machine from others in any run here: not its name, which each file chooses."""
    if machine.transport == "local":
        return "local"
    if machine.transport == "slurm":
        return f"slurm:{machine.job or os.environ.get('SLURM_JOB_ID', '')}:{machine.node}"
    return f"{machine.ssh_config or ''}:{machine.address}:{machine.port or 22}"


def lock_directory() -> Path:
    """Return the directory of this user's locks; it is made if need be. Raises :class:`HostError`."""
    path = Path(f"/tmp/storagetest-{os.getuid()}")  # noqa: S108  # made safe below; see rule 2
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise HostError(f"{path} is not a directory that belongs to you alone: remove it, then start again")
    return path


@contextmanager
def _hold(modes: Mapping[str, int], timeout: float, what: str) -> Iterator[None]:
    end = time.monotonic() + timeout
    directory = os.open(lock_directory(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, directory)
        for name, mode in sorted(modes.items()):
            file = _file_name(name)
            with ExitStack() as waiting:
                try:
                    turnstile = _take(directory, f"{file}.turn", fcntl.LOCK_EX, end)
                    waiting.callback(os.close, turnstile)
                    lock = _take(directory, file, mode, end)
                except DeadlineExceeded:
                    raise _busy(directory, name, file, timeout, what) from None
                stack.callback(os.close, lock)
                _sign(lock, what)
        yield


def _file_name(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:60]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _take(directory: int, file: str, mode: int, end: float) -> int:
    """Return the descriptor of ``file``, locked; it is the caller's to close."""

    def attempt() -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600, dir_fd=directory)
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            if _is_current(directory, file, descriptor):
                taken, descriptor = descriptor, -1
                return taken
        except BlockingIOError:
            pass
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return None

    return wait_until(attempt, max(0.0, end - time.monotonic()), file, interval=_INTERVAL) or -1


def _is_current(directory: int, file: str, descriptor: int) -> bool:
    """Whether the locked file is still the one that the name leads to."""
    try:
        named = os.stat(file, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _sign(lock: int, what: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "what": what}).encode(), 0)


def _busy(directory: int, name: str, file: str, timeout: float, what: str) -> InUse:
    holder = "another process"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            signed = json.loads(os.read(descriptor, 1 << 16))
        finally:
            os.close(descriptor)
        os.kill(signed["pid"], 0)
        holder = f"process {signed['pid']} ({signed['what']})"
    advice = f"{what} waited {timeout:g} s for it. Let that end, or wait longer with --st-lock-timeout"
    return InUse(f"{name} is in use by {holder}", advice)
