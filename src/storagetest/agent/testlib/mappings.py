"""Mappings of files; a file system need not support them."""

from __future__ import annotations

import errno
import mmap

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
