"""Model of a small tree of files: what stat(), readdir(), readlink(), read() and getxattr() have to return.

An :class:`Inode` is a file of any kind, whatever names and descriptors it has. :func:`differences` compares
one with what a system call returned.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from storagetest.agent.testlib.byte_model import ByteModel
from storagetest.agent.testlib.stat_effects import KEPT, MARKED, Effect

FILE, DIRECTORY, LINK, FIFO = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO
KINDS = {FILE: "a regular file", DIRECTORY: "a directory", LINK: "a symbolic link", FIFO: "a FIFO"}


@dataclass(eq=False)
class Inode:
    """One file. ``wanted``: the mtime that was set, in ns, or None; ``mtime``, ``ctime``: as found last."""

    kind: int
    mode: int = 0
    uid: int = 0
    gid: int = 0
    ino: int = 0
    nlink: int = 1
    target: str = ""
    data: ByteModel = field(default_factory=ByteModel)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, Inode] = field(default_factory=dict)
    mtime: int = 0
    ctime: int = 0
    wanted: int | None = None

    def take(self, one: os.stat_result) -> None:
        """Take what no model can know: serial number and times."""
        self.ino, self.mtime, self.ctime = one.st_ino, one.st_mtime_ns, one.st_ctime_ns

    @property
    def links(self) -> int:
        """What st_nlink has to be; of a directory, if the file system counts those in it."""
        if self.kind != DIRECTORY:
            return self.nlink
        return 2 + sum(1 for one in self.entries.values() if one.kind == DIRECTORY)

    @property
    def size(self) -> int | None:
        """What st_size has to be; None of a kind whose size no standard defines."""
        if self.kind == LINK:
            return len(os.fsencode(self.target))
        return self.data.size if self.kind == FILE else None


@dataclass(frozen=True)
class TreeName:
    """A name in a directory."""

    directory: Inode
    parent: str
    name: str
    at: int
    """A descriptor of the directory."""

    @property
    def path(self) -> str:
        """The path."""
        return f"{self.parent}/{self.name}"

    @property
    def inode(self) -> Inode | None:
        """What has the name, or None."""
        return self.directory.entries.get(self.name)

    @property
    def found(self) -> Inode:
        """What has the name, which exists."""
        return self.directory.entries[self.name]


def names_of(path: str, directory: Inode) -> Iterator[tuple[str, Inode]]:
    """Yield each path below ``path``, with its inode."""
    for name, inode in directory.entries.items():
        below = f"{path}/{name}"
        yield below, inode
        if inode.entries:
            yield from names_of(below, inode)


def differences(
    inode: Inode, one: os.stat_result, effect: Effect, tick: int, *, more_links: int | None
) -> list[str]:
    """Return how a stat() differs from the model, after a call with ``effect`` that was made after ``tick``.

    ``more_links``: how many links it may have beyond those of the model, None if the count is not compared.
    """
    wanted: list[tuple[str, object, object]] = [
        ("kind", KINDS.get(stat.S_IFMT(one.st_mode), "another kind"), KINDS[inode.kind]),
        ("serial number", one.st_ino, inode.ino),
        ("owner", one.st_uid, inode.uid),
        ("group", one.st_gid, inode.gid),
    ]
    if inode.kind != LINK:  # the mode of a symbolic link is unspecified (POSIX.1-2024 symlink())
        wanted.append(("mode", f"{stat.S_IMODE(one.st_mode):#o}", f"{inode.mode:#o}"))
    if inode.size is not None:
        wanted.append(("size", one.st_size, inode.size))
    if more_links is not None and not inode.links <= one.st_nlink <= inode.links + more_links:
        wanted.append(("link count", one.st_nlink, inode.links))
    found = [f"{name} {value} instead of {model}" for name, value, model in wanted if value != model]
    if inode.wanted is not None and one.st_mtime_ns not in (
        inode.wanted,
        inode.wanted // 10**9 * 10**9,
    ):
        found.append(f"mtime {one.st_mtime_ns} ns, set to {inode.wanted} ns")
    times = (
        ("mtime", inode.mtime, one.st_mtime_ns, effect.mtime),
        ("ctime", inode.ctime, one.st_ctime_ns, effect.ctime),
    )
    for name, was, now, what in times:
        if name == "mtime" and inode.wanted is not None:
            continue  # it was set, and compared above
        if what == KEPT and now != was:
            found.append(f"{name} changed by {(now - was) / 1e9:g} s, which has to stay")
        if what == MARKED and now <= tick:
            found.append(f"{name} not marked: {(tick - now) / 1e9:g} s before the call")
    return found
