"""System calls that Python's standard library does not have, by ctypes; they raise OSError."""

from __future__ import annotations

import ctypes
import errno
import os

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
