"""Files for the bodies of cases: create, open, read, link; wait for the target's clock; make data."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.agent.fsutil import open_fd
from storagetest.agent.testlib.outcomes import skip

if TYPE_CHECKING:
    from socket import socket

__all__ = [
    "NO_VALUE_SPACE",
    "bind_socket",
    "fifo",
    "hard_link",
    "longest_name",
    "make_file",
    "node",
    "open_fd",
    "pattern_bytes",
    "read_at",
    "rename_onto_open_directory",
    "rmdir_open_directory",
    "set_id_mode",
    "symbolic_link",
    "wait_clock_tick",
]

NO_VALUE_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.E2BIG, errno.ERANGE)
"""How a file system refuses an attribute's value of more bytes than it has space for.

setxattr(2): ENOSPC and EDQUOT, ERANGE for "a filesystem-specific limit", E2BIG for that of the system.
"""

_PORTABLE = re.compile("[A-Za-z0-9._-]+")
"""POSIX.1-2024 Base Definitions: Portable Filename."""

_PATTERN_BLOCK = 10_000
"""Bytes after which the last four digits of the offsets of :func:`pattern_bytes` repeat: 625 lines of 16."""
_HIGH_DIGITS = b"@" * 11
"""Place of the other digits in a block."""

_TICK_TIMEOUT = 4.0
"""Timeout for a change of the target's clock, in seconds: the coarsest known time stamps have two seconds."""


def make_file(path: Path, data: bytes = b"", mode: int | None = None) -> Path:
    """Create a file with ``data``, and exactly ``mode`` if it is not None; return its path.

    Skips the case if the file system does not make files of this name, which is no portable filename: open()
    is then [EILSEQ].
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        with open_fd(path, flags, 0o644 if mode is None else mode) as descriptor:
            if data:
                assert os.write(descriptor, data) == len(data)
    except OSError as error:
        if error.errno != errno.EILSEQ or _PORTABLE.fullmatch(path.name):
            raise
        skip(f"no file can be called {path.name!r}, which is no portable filename (open(), EILSEQ)")
    if mode is not None and os.stat(path).st_mode & 0o7777 != mode:
        os.chmod(path, mode)
    return path


def set_id_mode(path: Path, mode: int) -> int:
    """Return what chmod() of ``mode`` has to leave of a regular file.

    "Additional implementation-defined restrictions may cause the S_ISUID and S_ISGID bits in mode to be
    ignored" (POSIX.1-2024 chmod()): of those in ``mode``, the ones count that a privileged process sets on a
    file of its own next to ``path``.
    """
    set_ids = stat.S_ISUID | stat.S_ISGID
    executable = set_ids | 0o711
    if not mode & set_ids:
        return mode
    probe = make_file(path.parent / ".set-id")
    os.chmod(probe, executable)
    kept = os.stat(probe).st_mode & set_ids
    os.unlink(probe)
    return mode & ~set_ids | mode & kept


def read_at(path: Path, size: int, offset: int = 0) -> bytes:
    """Open, read up to ``size`` bytes at ``offset``, close."""
    with open_fd(path, os.O_RDONLY) as descriptor:
        return os.pread(descriptor, size, offset)


def hard_link(
    source: str | Path,
    path: str | Path,
    *,
    src_dir_fd: int | None = None,
    follow_symlinks: bool = True,
) -> None:
    """Make a link as os.link does; skip the case if the file system has no hard links.

    That is legal: a server may answer LINK by NFS3ERR_NOTSUPP (RFC 1813 3.3.15), and link(2) has EPERM for a
    file system without links. If only this one link is refused, the error is raised.
    """
    try:
        os.link(source, path, src_dir_fd=src_dir_fd, follow_symlinks=follow_symlinks)
    except OSError as error:
        if error.errno in _NO_LINKS or (error.errno == errno.EPERM and not _has_links(path, source)):
            skip(f"the file system has no hard links: {os.strerror(error.errno)} (link(2), RFC 1813 3.3.15)")
        raise


_NO_LINKS = (errno.EOPNOTSUPP, errno.ENOSYS, 524)
"""How a file system without hard links refuses; 524 is Linux's ENOTSUPP, which NFS passes on."""


def _has_links(*paths: str | Path) -> bool:
    """Return whether a regular file of ours next to one of ``paths`` can have a second name."""
    for directory in (Path(path).parent for path in paths):
        probe, other = directory / ".linked", directory / ".link"
        try:
            make_file(probe)
        except OSError:
            continue  # no file can be made there
        try:
            os.link(probe, other)
        except OSError as error:
            # EPERM also refuses a link to another user's file (proc(5), protected_hardlinks), except to root.
            others = os.geteuid() not in (0, os.stat(probe).st_uid)
            return error.errno != errno.EPERM or others
        else:
            os.unlink(other)
            return True
        finally:
            os.unlink(probe)
    return True  # nothing is known: the error of the call itself counts


def symbolic_link(target: str | Path, path: str | Path, *, dir_fd: int | None = None) -> None:
    """Make a link as os.symlink does; skip the case if the file system has no symbolic links.

    That is legal: symlink(2) has EPERM for it, and a server may answer SYMLINK by NFS3ERR_NOTSUPP (RFC 1813
    3.3.10). If only this one link is refused, the error is raised.
    """
    try:
        os.symlink(target, path, dir_fd=dir_fd)
    except OSError as error:
        if _refuses_each(lambda probe: os.symlink("x", probe), error, path, dir_fd):
            skip(f"the file system has no symbolic links: {os.strerror(error.errno or 0)} (symlink(2))")
        raise


def fifo(path: str | Path, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
    """Make a FIFO as os.mkfifo does; skip the case if the file system has no FIFOs (mknod(2): EPERM)."""
    try:
        os.mkfifo(path, mode, dir_fd=dir_fd)
    except OSError as error:
        if _refuses_each(os.mkfifo, error, path, dir_fd):
            skip(f"the file system has no FIFOs: {os.strerror(error.errno or 0)} (mknod(2))")
        raise


def node(path: str | Path, mode: int, device: int = 0) -> None:
    """Make a node as os.mknod does; skip the case if the file system has no such nodes (mknod(2): EPERM)."""
    try:
        os.mknod(path, mode, device)
    except OSError as error:
        if _refuses_each(lambda probe: os.mknod(probe, mode, device), error, path, None):
            skip(f"the file system has no such nodes: {os.strerror(error.errno or 0)} (mknod(2))")
        raise


def bind_socket(one: socket, name: str) -> None:
    """Bind a socket of the domain AF_UNIX; skip the case if the file system has none (mknod(2): EPERM)."""
    try:
        one.bind(name)
    except OSError as error:
        if _refuses_each(lambda probe: os.mknod(probe, stat.S_IFSOCK | 0o666), error, name, None):
            skip(f"the file system has no sockets: {os.strerror(error.errno or 0)} (mknod(2))")
        raise


def _refuses_each(make: Callable[[Path], None], error: OSError, path: str | Path, dir_fd: int | None) -> bool:
    """Return whether the plainest object of a kind, next to ``path``, is refused by the same error."""
    if error.errno not in (errno.EPERM, *_NO_LINKS):
        return False
    directory = Path(path).parent if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}")
    probe = directory / ".plain"
    try:
        make(probe)
    except OSError as other:
        return other.errno == error.errno
    os.unlink(probe)
    return False


def rmdir_open_directory(path: Path) -> None:
    """Remove a directory that is open or a working directory; skip the case if it is in use for that.

    rmdir() [EBUSY]: it is "currently in use by the system or some process and the implementation considers
    this to be an error".
    """
    _unless_in_use(os.rmdir, path)


def rename_onto_open_directory(old: Path, new: Path) -> None:
    """Rename a directory onto an empty one that is open; skip the case if that is in use (EBUSY)."""
    _unless_in_use(os.rename, old, new)


def _unless_in_use(call: Callable[..., None], *paths: Path) -> None:
    try:
        call(*paths)
    except OSError as error:
        if error.errno == errno.EBUSY:
            skip(f"a directory that is open is in use, and {call.__name__}() of it is refused (EBUSY)")
        raise


def longest_name(directory: Path) -> int:
    """Return {NAME_MAX} of ``directory``, in bytes (POSIX.1-2024 pathconf()); 255 if there is no limit."""
    longest = os.pathconf(directory, "PC_NAME_MAX")
    return 255 if longest < 0 else longest


def wait_clock_tick(directory: Path, *, after: int | None = None) -> int:
    """Wait until the target's clock for time stamps has advanced; return its time before, in ns.

    Later time stamps are greater than all earlier ones: st_mtime and st_ctime, whose resolutions may differ.
    ``after``: the last time stamp, if the caller knows it. Raises AssertionError if the clock does not
    advance.
    """
    probe = directory / ".tick"
    before = _new_file_times(probe) if after is None else (after, after)
    until = time.monotonic() + _TICK_TIMEOUT
    while time.monotonic() < until:
        if all(now > then for now, then in zip(_new_file_times(probe), before)):
            os.unlink(probe)
            return before[0]
        time.sleep(0.002)
    raise AssertionError(f"the target's clock for time stamps did not advance within {_TICK_TIMEOUT:g} s")


def _new_file_times(probe: Path) -> tuple[int, int]:
    """Create the file again and return its modification and its status change time in ns."""
    if os.path.lexists(probe):
        os.unlink(probe)
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(descriptor)
    found = os.stat(probe)
    return found.st_mtime_ns, found.st_ctime_ns


@cache
def _pattern_block() -> bytes:
    return b"".join(_HIGH_DIGITS + b"%04d\n" % offset for offset in range(0, _PATTERN_BLOCK, 16))


def pattern_bytes(size: int) -> bytes:
    """Return ``size`` bytes of which each 16 contain their own offset, so that a shifted block differs."""
    blocks = -(-size // _PATTERN_BLOCK)
    return b"".join(_pattern_block().replace(_HIGH_DIGITS, b"%011d" % block) for block in range(blocks))[
        :size
    ]
