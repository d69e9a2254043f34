"""Write a file as a whole, and find out beforehand whether that is possible."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_PROBE = 65536  # bytes: more than a file system may keep in an inode


def replace_file(path: Path, content: str | bytes) -> None:
    """Write ``content`` (text as UTF-8) to ``path`` by one rename: readers see the old or the new content.

    Raises :class:`OSError`; ``path`` is unchanged then.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise :class:`OSError` if no data can be written to a file ``path``, whose directory is made.

    A regular file keeps its content: the data go to another file in its directory for a moment. To a device,
    such as /dev/stdout, an empty line is written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_char_device():
        with path.open("wb", buffering=0) as file:
            file.write(b"\n")
    elif path.is_file() or not path.exists():
        probe = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with probe.open("wb") as file:
                file.write(bytes(_PROBE))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
        if path.exists():
            path.open("ab").close()
