"""Helpers to start programs, and to connect to Unix sockets, for all modules of the lab.

Rules:

1. Every wait has a timeout.
2. A child that must not outlive its parent asks the kernel to see to that (PR_SET_PDEATHSIG, prctl(2)): it
   works where no handler of the parent's runs, on SIGKILL. The signal comes when the parent's *thread* ends,
   so such children are started from a thread that lives as long as they do.
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

__all__ = ["bound_to_parent", "connected", "require", "run", "tail"]

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

# Which Debian package brings which tool.
_PACKAGES = {
    "depmod": "kmod",
    "mksquashfs": "squashfs-tools",
    "unsquashfs": "squashfs-tools",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


def require(tools: Iterable[str]) -> None:
    """Raise :class:`LabError`, with the Debian packages to install, unless all ``tools`` are on the PATH.

    The sbin directories count: a user's PATH often lacks them.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[tool] for tool in missing}))
        raise LabError(f"the lab needs {', '.join(missing)}, not found here: apt-get install {packages}")


def bound_to_parent(sig: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Return a ``preexec_fn`` that has the child sent ``sig`` when its parent ends, however that ends.

    It may be used where there are threads: all it does between fork and exec is two system calls.
    """
    parent = os.getpid()

    def bind() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(sig))
        if os.getppid() != parent:  # it ended before the kernel knew: nothing would ever be sent
            os._exit(1)

    return bind


def run(argv: Sequence[str | os.PathLike[str]], *, timeout: float, stdin: bytes = b"") -> str:
    """Run ``argv`` to its end and return its stdout; :class:`LabError` says what it complained about."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]} did not end within {timeout:g} s") from None
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        complaint = tail((done.stderr or done.stdout).decode(errors="replace"))
        raise LabError(f"{argv[0]} exited {done.returncode}: {complaint}")
    return done.stdout.decode(errors="replace")


def connected(path: Path, timeout: float) -> socket.socket:
    """Return a connection to the Unix socket at ``path``; every operation on it has ``timeout`` seconds.

    A socket's path may have 107 bytes (unix(7)). By way of its directory's descriptor it always has few.
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
    """Return the last lines of a text or of a file that may not exist."""
    if isinstance(text, Path):
        try:
            text = text.read_text(errors="replace")
        except OSError:
            return ""
    return "\n".join(text.strip().splitlines()[-lines:])
