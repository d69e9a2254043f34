"""Mappings of files; a file system need not support them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from storagetest.agent.testlib.outcomes import skip

READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def map_file(
    descriptor: int,
    length: int,
    flags: int = mmap.MAP_SHARED,
    protection: int = READ_WRITE,
    *,
    offset: int = 0,
) -> mmap.mmap:
    """Map a file. Skips the case if its file system has no such mappings (mmap(2): ENODEV)."""
    try:
        return mmap.mmap(descriptor, length, flags, protection, offset=offset)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        kind = "shared" if flags & mmap.MAP_SHARED else "private"
        skip(f"this file system has no {kind} mappings (mmap(2): ENODEV)")
        raise


def last_page(descriptor: int, size: int, flags: int = mmap.MAP_SHARED) -> bytes:
    """Map the last page of a file of ``size`` bytes and return all of it, also what is behind the end.

    Python's mmap has no bytes behind the end. Skips the case as :func:`map_file` does.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    library.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    start = (size - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    at = library.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, flags, descriptor, start)
    if at == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        if number == errno.ENODEV:
            skip("this file system has no such mappings (mmap(2): ENODEV)")
        raise OSError(number, os.strerror(number))
    try:
        return ctypes.string_at(at, mmap.PAGESIZE)
    finally:
        library.munmap(at, mmap.PAGESIZE)
