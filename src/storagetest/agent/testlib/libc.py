"""System calls that Python's standard library does not have, by ctypes; they raise OSError."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from dataclasses import dataclass

from storagetest.agent.testlib.outcomes import skip

# <linux/falloc.h>
FALLOC_KEEP_SIZE = 0x01
FALLOC_PUNCH_HOLE = 0x02
FALLOC_COLLAPSE_RANGE = 0x08
FALLOC_ZERO_RANGE = 0x10
FALLOC_INSERT_RANGE = 0x20

# <linux/fs.h>
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RENAME_WHITEOUT = 4

FS_APPEND = 0x20
FS_IMMUTABLE = 0x10
FS_NODUMP = 0x40
_GETFLAGS, _SETFLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, for a long of 8 bytes."""

XFLAG_IMMUTABLE = 0x08
XFLAG_APPEND = 0x10
XFLAG_NODUMP = 0x80
_FSGETXATTR, _FSSETXATTR = 0x801C581F, 0x401C5820
_FSXATTR = 28
"""FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, and the bytes of struct fsxattr; its first field are the flags."""

# <bits/stat.h>; instead of nanoseconds
UTIME_NOW = (1 << 30) - 1
UTIME_OMIT = (1 << 30) - 2

_AT_FDCWD = -100
_HANDLE_BYTES = 128
"""MAX_HANDLE_SZ of <linux/exportfs.h>."""
_C = ctypes.CDLL(None, use_errno=True)


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Allocate or free a range of a file.

    See fallocate(2). Skips the case if the file system does not support the mode.
    """
    lacking = {errno.EOPNOTSUPP, errno.ENOSYS}, f"this file system has no fallocate(2) of mode {mode:#x}"
    _call("fallocate", descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length), lacking=lacking)


def renameat2(old: os.PathLike[str], new: os.PathLike[str], flags: int) -> None:
    """Rename with flags.

    See renameat2(2). Skips the case if the file system does not support the flags (EINVAL).
    """
    lacking = {errno.EINVAL, errno.ENOSYS}, f"this file system has no renameat2(2) with flags {flags}"
    names = _AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new)
    _call("renameat2", *names, ctypes.c_uint(flags), lacking=lacking)


def syncfs(descriptor: int) -> None:
    """Write all changes of the descriptor's file system to its storage.

    See syncfs(2).
    """
    _call("syncfs", descriptor)


class FileHandle(ctypes.Structure):
    """A file handle of name_to_handle_at(2); only :func:`open_by_handle` uses what is in it."""

    _fields_ = [
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * _HANDLE_BYTES),
    ]


def file_handle(path: os.PathLike[str]) -> FileHandle:
    """Return the handle of a file; a symbolic link is not followed.

    See name_to_handle_at(2). Skips the case if the file system has no handles.
    """
    handle, mount = FileHandle(_HANDLE_BYTES), ctypes.c_int()
    lacking = {errno.EOPNOTSUPP, errno.ENOSYS}, "this file system has no file handles (name_to_handle_at(2))"
    name, places = os.fsencode(path), (ctypes.byref(handle), ctypes.byref(mount))
    _call("name_to_handle_at", _AT_FDCWD, name, *places, 0, lacking=lacking)
    return handle


def open_by_handle(directory: int, handle: FileHandle, flags: int) -> int:
    """Open the file of a handle, of the file system that ``directory`` is in; return the descriptor.

    See open_by_handle_at(2). Skips the case if the process does not have CAP_DAC_READ_SEARCH.
    """
    lacking = {errno.EPERM, errno.ENOSYS}, "the client does not open files by handle (open_by_handle_at(2))"
    return _call("open_by_handle_at", directory, ctypes.byref(handle), flags, lacking=lacking)


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def utimensat(path: os.PathLike[str], accessed: tuple[int, int], modified: tuple[int, int]) -> None:
    """Set a file's times, each as seconds and nanoseconds, UTIME_NOW or UTIME_OMIT.

    See utimensat(2); ``os.utime`` has neither constant.
    """
    times = (_Timespec * 2)(_Timespec(*accessed), _Timespec(*modified))
    _call("utimensat", _AT_FDCWD, os.fsencode(path), times, 0)


def inode_flags(descriptor: int) -> int:
    """Return the flags of an open file's inode.

    See ioctl_iflags(2). Skips the case if the file system has none.
    """
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _GETFLAGS, bytes(8))[:4], "little")
    except OSError as error:
        if error.errno in _NO_IOCTL:
            skip(f"this file system has no inode flags: {os.strerror(error.errno)} (ioctl_iflags(2))")
        raise


def set_inode_flags(descriptor: int, flags: int) -> None:
    """Set all flags of an open file's inode. See ioctl_iflags(2). Raises OSError."""
    fcntl.ioctl(descriptor, _SETFLAGS, flags.to_bytes(8, "little"))


def extended_flags(descriptor: int) -> tuple[int, bytes]:
    """Return the flags of an open file as struct fsxattr has them, and all of that structure.

    See ioctl_xfs_fsgetxattr(2). Skips the case if the file system has none.
    """
    try:
        found = fcntl.ioctl(descriptor, _FSGETXATTR, bytes(_FSXATTR))
    except OSError as error:
        if error.errno in _NO_IOCTL:
            skip(f"this file system has no FS_IOC_FSGETXATTR: {os.strerror(error.errno)}")
        raise
    return int.from_bytes(found[:4], "little"), found


def set_extended_flags(descriptor: int, flags: int, attributes: bytes) -> None:
    """Set the flags of a struct fsxattr and leave its other fields. See ioctl_xfs_fsgetxattr(2)."""
    fcntl.ioctl(descriptor, _FSSETXATTR, flags.to_bytes(4, "little") + attributes[4:])


_NO_IOCTL = (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""How a file system without an ioctl(2) request refuses it."""


@dataclass(frozen=True)
class Statx:
    """Result of statx(2): its fields by the names of ``os.stat_result``, and ``birth`` in nanoseconds.

    ``birth`` is None if STATX_BTIME is not in ``stx_mask``.
    """

    mask: int
    fields: dict[str, int]
    birth: int | None


_STATX = struct.Struct("<II8xIIIH2xQQQ8x")
_STATX_TIME = struct.Struct("<qI4x")
STATX_BASIC_STATS = 0x7FF
STATX_BTIME = 0x800
_SYMLINK_NOFOLLOW = 0x100
_EMPTY_PATH = 0x1000


def statx(path: os.PathLike[str] | int, mask: int = STATX_BASIC_STATS | STATX_BTIME) -> Statx:
    """Return the status of a path or an open file, by that call; a symbolic link is not followed."""
    buffer = ctypes.create_string_buffer(256)
    where, flags = (path, _EMPTY_PATH) if isinstance(path, int) else (_AT_FDCWD, _SYMLINK_NOFOLLOW)
    name = b"" if isinstance(path, int) else os.fsencode(path)
    lacking = {errno.ENOSYS}, "the client's kernel has no statx(2)"
    _call("statx", where, name, flags, ctypes.c_uint(mask), buffer, lacking=lacking)
    found, _, nlink, uid, gid, mode, ino, size, blocks = _STATX.unpack_from(buffer)
    atime, birth, ctime, mtime = (
        seconds * 10**9 + nanoseconds
        for seconds, nanoseconds in (_STATX_TIME.unpack_from(buffer, 64 + 16 * at) for at in range(4))
    )
    fields = {
        "st_mode": mode, "st_nlink": nlink, "st_uid": uid, "st_gid": gid, "st_ino": ino, "st_size": size,
        "st_blocks": blocks, "st_atime_ns": atime, "st_mtime_ns": mtime, "st_ctime_ns": ctime,
    }  # fmt: skip
    return Statx(found, fields, birth if found & STATX_BTIME else None)


def _call(name: str, *arguments: object, lacking: tuple[set[int], str] = (set(), "")) -> int:
    """Call a function of the C library and return its result.

    Raises OSError, or skips the case for the errors in ``lacking``.
    """
    call = getattr(_C, name, None)
    if call is None:
        skip(f"the client's C library has no {name}()")
    result = int(call(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        if number in lacking[0]:
            skip(lacking[1])
        raise OSError(number, os.strerror(number))
    return result
