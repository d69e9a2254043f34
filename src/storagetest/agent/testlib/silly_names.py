"""Names that a client gives to removed files that are open: ``.nfs`` or ``.fuse_hidden``, and digits.

NFS servers keep no file without a name (nfs(5), silly rename), nor do FUSE file systems that know files by
their paths (libfuse's ``hard_remove``): the client renames it until the last close. Such a name is listed,
counts as a link, and its removal marks the times of its directory and of the file.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

PREFIXES = ".nfs", ".fuse_hidden"

Inode = TypeVar("Inode", bound=Hashable)


class SillyNames(Generic[Inode]):
    """What a client may show of removed open files. ``Inode`` is a sequence's own record of a file.

    Nothing is allowed of other files: such a name that belongs to none of them is an entry as others.
    """

    def __init__(self) -> None:
        self._removed: dict[int, Inode] = {}
        self._names: dict[Inode, set[str]] = {}
        self._directories: dict[Inode, set[Inode]] = {}

    def remove(self, inode: Inode, ino: int) -> None:
        """Note that a name of a file that is open was removed; ``ino`` is its serial number."""
        self._removed[ino] = inode

    def listed(self, directory: Inode, entries: Iterable[os.DirEntry[str]]) -> set[str]:
        """Return those of the ``entries`` of a directory that are a client's names of removed open files."""
        found = set()
        for one in entries:
            inode = self._removed.get(one.inode()) if one.name.startswith(PREFIXES) else None
            if inode is None:
                continue
            found.add(one.name)
            self._names.setdefault(inode, set()).add(one.name)
            self._directories.setdefault(inode, set()).add(directory)
        return found

    def links(self, inode: Inode) -> int:
        """Return how many links a file may have beyond its names."""
        return len(self._names.get(inode, ()))

    def directories(self, inode: Inode) -> set[Inode]:
        """Return the directories in which a file had such a name."""
        return self._directories.get(inode, set())

    def touches(self, inode: Inode) -> bool:
        """Whether a file has such names, or a directory had one: the last close marks its times."""
        return inode in self._names or any(inode in one for one in self._directories.values())

    def may_hold(self, directory: Inode) -> bool:
        """Whether a directory that has no entries may have such a name."""
        return any(directory in one for one in self._directories.values())
