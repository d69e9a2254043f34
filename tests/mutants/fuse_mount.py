"""Mount a file system of :mod:`fuse_passthrough` in a ``with`` block; the mount is removed at its end.

The server is a process of its own (this module, run as a program). It ends, and takes its mount along,

- when the ``with`` does: its mount is detached and it is waited for, and killed where it does not end;
- when the process that started it is gone, however that came: its standard input is at its end then;
- and where it was killed itself: the next :func:`mounted` detaches what bears the name of a dead process.

Requests to a killed server end in ENOTCONN, so this also unmounts a file system that hangs.
Mounting needs root.
"""

import ctypes
import importlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DEVICE = "/dev/fuse"
_SOURCE = "storagetest-mutant:"
"""What the mounts are called, and then the process that serves them."""
_DETACH = 2  # MNT_DETACH
_libc = ctypes.CDLL(None, use_errno=True)


class FuseError(Exception):
    """The file system could not be mounted, or did not end."""


def why_not() -> str | None:
    """Return why nothing can be mounted here, or None."""
    if os.geteuid() != 0:
        return "mounting a FUSE file system with allow_other requires root"
    if not Path(DEVICE).exists():
        return f"there is no {DEVICE}: the kernel has no FUSE"
    return None


@contextmanager
def mounted(files: str, below: Path, at: Path, *, deadline: float = 120.0) -> Iterator[Path]:
    """Mount ``module:name`` (what makes a file system from the directory ``below``) on the directory ``at``.

    Raises :class:`FuseError` where it is not there within ``deadline`` seconds (a bound on a hang), not there
    at the end of the block (a case would have seen the directory ``at`` itself), or not gone afterwards.
    """
    sweep()
    argv = [sys.executable, "-E", __file__, files, str(below), str(at)]
    server = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _wait_ready(server, files, deadline)
        yield at
    finally:
        stderr = _end(server, at, deadline)
    if stderr:
        raise FuseError(f"{files}: {stderr}")


def sweep() -> None:
    """Detach every mount whose server is dead."""
    for point, pid in _mounts():
        if not Path(f"/proc/{pid}").exists():
            detach(point)


def detach(at: Path) -> None:
    """Detach the mount at ``at``, where there is one: it is nowhere to be seen then."""
    _libc.umount2(os.fsencode(at), _DETACH)


def is_mounted(at: Path) -> bool:
    return any(point == at for point, _ in _mounts())


def _mounts() -> list[tuple[Path, int]]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    fields = [line.split(" ") for line in lines if line.startswith(_SOURCE)]
    return [
        (Path(point.encode().decode("unicode_escape")), int(source.removeprefix(_SOURCE)))
        for source, point, *_ in fields
    ]


def _wait_ready(server: subprocess.Popen[bytes], files: str, deadline: float) -> None:
    assert server.stdout is not None
    readable, _, _ = select.select([server.stdout], [], [], deadline)
    if readable and server.stdout.readline() == b"ready\n":
        return
    server.kill()
    _, error = server.communicate(timeout=deadline)
    raise FuseError(f"{files} is not mounted after {deadline:g} s: {error.decode(errors='replace')[-2000:]}")


def _end(server: subprocess.Popen[bytes], at: Path, deadline: float) -> str:
    """End the server and its mount; return its error output, or that it had ended before."""
    lost = server.poll() is not None or not is_mounted(at)
    detach(at)
    with suppress(BrokenPipeError):
        server.stdin.close()  # type: ignore[union-attr]  # it is a pipe
    server.stdin = None
    try:
        _, error = server.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        server.kill()
        _, error = server.communicate(timeout=deadline)
    if is_mounted(at):
        return f"{at} is still mounted"
    printed = error.decode(errors="replace")[-4000:]
    return printed or (f"the server (exit code {server.returncode}) or its mount was lost" if lost else "")


# What follows runs in the server.


def _main(files: str, below: str, at: str) -> None:
    from fuse_protocol import serve

    _allow_many_files()
    module, _, name = files.partition(":")
    made = getattr(importlib.import_module(module), name)(Path(below))
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    source = f"{_SOURCE}{os.getpid()}"
    done = _libc.mount(source.encode(), os.fsencode(at), b"fuse.storagetest", 0, options.encode())
    if done != 0:
        raise OSError(ctypes.get_errno(), f"mount {at}")
    threading.Thread(target=_end_with_parent, args=(Path(at),), daemon=True).start()
    serve(device, made, ready=_report_ready)


def _report_ready() -> None:
    os.write(1, b"ready\n")


def _end_with_parent(at: Path) -> None:
    while os.read(0, 1):
        pass
    detach(at)
    os._exit(0)


def _allow_many_files() -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    _main(*sys.argv[1:])
