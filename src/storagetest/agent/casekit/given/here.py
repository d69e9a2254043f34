"""``here``: an empty directory of the case's own on the mount, as a :class:`pathlib.Path`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["BESIDE", "give"]

BESIDE = 4
"""Cases at once: while one waits for the server, another may use the client."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextmanager
def give(path: str, case: dict[str, Any]) -> Iterator[Path]:
    """Make the directory, and remove it with all that is in it."""
    os.umask(0o022)
    here = Path(path, case["name"])
    here.mkdir(mode=0o755)
    yield here
    os.umask(0o022)
    os.chdir("/")
    parent = os.open(path, _DIRECTORY)
    try:
        _remove(here.name, parent)
    finally:
        os.close(parent)


def _remove(name: str, parent: int) -> None:
    """Remove a directory step by step: what is in it may have a longer path than any call takes."""
    try:
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_directory in found:
            if is_directory:
                _remove(entry, directory)
            else:
                with suppress(FileNotFoundError):  # NFS's .nfs files go when the last user does
                    os.unlink(entry, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)
