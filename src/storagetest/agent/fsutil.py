"""Files and directories for the commands: trees, incompressible data, removal, page cache."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

_STRIDE = 4099  # a prime: consecutive blocks start at different offsets for a long time


class RandomDataPool:
    """Incompressible data, the same for the same seed; consecutive blocks differ."""

    def __init__(self, seed: int, size: int = 1 << 20) -> None:
        data = Random(seed).randbytes(size)  # noqa: S311  # not a secret
        self._data = memoryview(data + data)
        self._size = size
        self._offset = 0

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes; ``size`` is at most the pool's size."""
        self._offset = (self._offset + _STRIDE) % self._size
        return self._data[self._offset : self._offset + size]

    def at(self, offset: int, size: int) -> memoryview:
        """Return the ``size`` bytes for ``offset`` of a file; they do not depend on earlier calls."""
        start = offset // _STRIDE * 613 % self._size
        return self._data[start : start + size]


@contextmanager
def open_fd(
    path: str | bytes | os.PathLike[str],
    flags: int = os.O_RDWR,
    mode: int = 0o644,
    *,
    dir_fd: int | None = None,
) -> Iterator[int]:
    """Open a file for the with-block, and close it."""
    descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def entry_type(entry: os.DirEntry[str]) -> str:
    """Return the type that a listing has: symbolic link, directory, file, or other; it may ask the file."""
    if entry.is_symlink():
        return "symbolic link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def read_text(path: str) -> str | None:
    """Return the text of a small file, such as those in /proc and /sys; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None


def make_memory_directory(prefix: str) -> str:
    """Create a directory of mode 0700 in memory, or on disk without /dev/shm; return its path."""
    memory, disk = "/dev/shm", "/tmp"  # noqa: S108  # the name of the new directory is random
    parent = memory if os.access(memory, os.W_OK | os.X_OK) else disk
    path = f"{parent}/{prefix}-{os.urandom(6).hex()}"
    os.mkdir(path, 0o700)
    return path


def aligned(size: int) -> mmap.mmap:
    """Return a buffer for O_DIRECT: it starts on a page."""
    return mmap.mmap(-1, size)


def write_all(descriptor: int, data: memoryview | bytes | bytearray) -> None:
    """Write all of ``data``, with as many calls of write(2) as needed."""
    written = os.write(descriptor, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(descriptor, data)


def leaf_directories(root: bytes, depth: int, width: int) -> list[bytes]:
    """Return the directories of the lowest level of a tree; only ``root`` if ``depth`` is 0."""
    level = [root]
    for _ in range(depth):
        level = [b"%s/%d" % (parent, number) for parent in level for number in range(width)]
    return level


def make_tree(root: bytes, depth: int, width: int) -> None:
    """Create the tree, ``root`` included, whose lowest level is :func:`leaf_directories`."""
    os.mkdir(root)
    for level in range(1, depth + 1):
        for directory in leaf_directories(root, level, width):
            os.mkdir(directory)


def remove(path: bytes) -> None:
    """Remove a file or a directory tree; do nothing if it does not exist."""
    for _ in removal(path):
        pass


def removal(path: bytes) -> Iterator[None]:
    """Remove a file or a directory tree, and yield after each entry that was listed or removed."""
    try:
        scan = os.scandir(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    entries = []
    with scan:
        for entry in scan:
            entries.append(entry)
            yield
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
        elif not _rmdir(entry.path):  # most are empty, and a listing of each takes as long as its removal
            yield from removal(entry.path)
        yield
    os.rmdir(path)


def _rmdir(path: bytes) -> bool:
    """Remove an empty directory; return whether that succeeded."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def evict_page_cache(descriptor: int) -> None:
    """Write back a file's pages and drop them from the page cache, so that reads go to the target."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def drop_caches() -> None:
    """Drop the machine's clean pages, names and inodes; needs root."""
    os.sync()
    with open_fd("/proc/sys/vm/drop_caches", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"3\n")
