"""Files of many GiB, with holes: write and resize them, or skip the case if no such file can be made."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

from storagetest.agent.testlib.outcomes import skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd


def allocated(descriptor: int) -> int:
    """Return the bytes of the file's blocks, after its changes were written to storage.

    Skips the case if st_blocks of a file with data is 0, too: PSX-SPARSE-BLOCKS-WRITTEN (SHOULD) tests that.
    """
    os.fsync(descriptor)
    blocks = os.fstat(descriptor).st_blocks
    if not blocks:
        _require_block_counts(Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent)
    return blocks * 512


def _require_block_counts(directory: Path) -> None:
    data = os.urandom(1 << 16)
    with open_fd(make_file(directory / ".blocks", data)) as descriptor:
        os.fsync(descriptor)
        blocks = os.fstat(descriptor).st_blocks
    os.unlink(directory / ".blocks")
    if not blocks:
        skip(f"st_blocks of a file with {len(data)} bytes of data is 0, so allocated space is not seen")


def put(descriptor: int, data: bytes, offset: int) -> None:
    """Write at a large offset; skip the case if no such file can be made.

    A write that meets the largest size stores what fits (write()), and the next one is refused.
    """
    try:
        stored = os.pwrite(descriptor, data, offset)
        if stored < len(data):
            os.pwrite(descriptor, data[stored:], offset + stored)
            raise AssertionError(f"of {len(data)} bytes at {offset} {stored} are written")
    except OSError as error:
        refuse(descriptor, offset + len(data), error)


def append(descriptor: int, data: bytes) -> None:
    """Write to a file that is open with O_APPEND, or skip the case as :func:`put` does."""
    try:
        stored = os.write(descriptor, data)
    except OSError as error:
        refuse(descriptor, os.fstat(descriptor).st_size + len(data), error)
    assert stored == len(data), f"of {len(data)} bytes {stored} are appended"


def resize(descriptor: int, size: int) -> None:
    """Set a large size, or skip the case as :func:`put` does."""
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        refuse(descriptor, size, error)


def refuse(descriptor: int, size: int, error: OSError) -> NoReturn:
    """Skip the case if the error is a limit that the file system reports; raise it otherwise.

    A largest size holds for write() and ftruncate(): if the size can be set after all, it is no limit.
    """
    space = os.fstatvfs(descriptor)
    full = error.errno == errno.ENOSPC and space.f_bavail * space.f_frsize <= size
    bits = os.fpathconf(descriptor, "PC_FILESIZEBITS") if error.errno == errno.EFBIG else 64
    if not full and error.errno != errno.EDQUOT and not 0 < bits <= size.bit_length():
        raise error
    if error.errno == errno.EFBIG:
        try:
            os.ftruncate(descriptor, size)
        except OSError as other:
            if other.errno != errno.EFBIG:
                raise error from None
        else:
            raise error
    skip(f"no file of {size} bytes, holes included, can be made: {error.strerror}")
