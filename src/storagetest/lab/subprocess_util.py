"""Helpers for child processes and Unix sockets.

A child that must not outlive its parent gets PR_SET_PDEATHSIG (prctl(2)), which works even if the parent is
killed with SIGKILL. The kernel sends the signal when the parent's *thread* ends, so such children are started
by a thread that lives as long as they do.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from storagetest.errors import LabError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)

# Tool -> Debian package.
_PACKAGES = {
    "as": "binutils",
    "depmod": "kmod",
    "ld": "binutils",
    "mksquashfs": "squashfs-tools",
    "unsquashfs": "squashfs-tools",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    "readelf": "binutils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


def require(tools: Iterable[str]) -> None:
    """Raise :class:`LabError` with the Debian packages to install unless all ``tools`` are on the PATH.

    The sbin directories are searched too, because a user's PATH often does not have them.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[tool] for tool in missing}))
        raise LabError(f"missing tools: {', '.join(missing)}. Run: apt-get install {packages}")


def die_with_parent(sig: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Return a ``preexec_fn`` that makes the kernel send ``sig`` to the child when its parent ends.

    It is safe in programs with threads: between fork and exec it makes only two system calls.
    """
    parent = os.getpid()

    def preexec() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(sig))
        if os.getppid() != parent:  # the parent ended before prctl: the signal would never be sent
            os._exit(1)

    return preexec


def run(argv: Sequence[str | os.PathLike[str]], *, timeout: float, stdin: bytes = b"") -> str:
    """Run ``argv`` and return its stdout. Raises :class:`LabError` with its stderr if it fails."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]} did not end within {timeout:g} s") from None
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        stderr = tail((done.stderr or done.stdout).decode(errors="replace"))
        raise LabError(f"{argv[0]}: exit status {done.returncode}: {stderr}")
    return done.stdout.decode(errors="replace")


def connect_unix(path: Path, timeout: float) -> socket.socket:
    """Return a connection to the Unix socket at ``path``; ``timeout`` in seconds applies to each operation.

    A socket's path has at most 107 bytes (unix(7)), so the path goes through the directory's descriptor.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
    except BaseException:
        connection.close()
        raise
    return connection


def tail(text: str | Path, lines: int = 5) -> str:
    """Return the last lines of a text, or of a file; an empty string if the file does not exist."""
    if isinstance(text, Path):
        try:
            text = text.read_text(errors="replace")
        except OSError:
            return ""
    return "\n".join(text.strip().splitlines()[-lines:])
