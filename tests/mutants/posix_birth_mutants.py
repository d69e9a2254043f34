"""Mutants of the time of birth, and of what statx(2) returns.

The rules, before any case (Linux's manual pages):

- inode(7), statx(2): the time of birth is set on file creation and not changed subsequently, by any call.
- statx(2): the fields that are in stx_mask are those of the file, as stat(2) returns them.
"""

import os
import stat
from pathlib import Path

from fuse_passthrough import Attributes, PassThrough
from fuse_protocol import Call, Created
from posix_rules import Keeping, mutant

SECOND = 10**9


class _Moving(Keeping):
    """Times of birth that ``move`` has changed."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moved: dict[int, int] = {}

    def move(self, node: int) -> None:
        """Let the file be born at its last change."""
        self.moved[node] = os.fstat(self.fd(node)).st_ctime_ns

    def birth(self, call: Call, node: int) -> int | None:
        return self.moved.get(node, super().birth(call, node))


@mutant("birth-moved-by-write | inode(7): Birth time | a write changes the time of birth")
class BirthMovedByWrite(_Moving):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        self.move(node)
        return done


@mutant("birth-moved-by-truncation | inode(7): Birth time | a file that is cut is born then")
class BirthMovedByTruncation(_Moving):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        cut = os.fstat(self.fd(node)).st_size > size
        super().truncate(call, node, handle, size)
        if cut:
            self.move(node)


@mutant("birth-is-ctime | inode(7): Birth time | the time of birth is that of the last status change")
class BirthIsCtime(PassThrough):
    def birth(self, call: Call, node: int) -> int | None:
        return os.fstat(self.fd(node)).st_ctime_ns


@mutant("birth-follows-earlier-times | inode(7): Birth time | an mtime before the time of birth changes that")
class BirthFollowsEarlierTimes(PassThrough):
    def birth(self, call: Call, node: int) -> int | None:
        found = super().birth(call, node)
        return None if found is None else min(found, os.fstat(self.fd(node)).st_mtime_ns)


@mutant("birth-moved-by-rename | inode(7): Birth time | a file that gets another directory is born then")
class BirthMovedByRename(_Moving):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if parent != where:
            node = self.node_at(self.fd(where), new)
            self.moved[node] = os.fstat(self.fd(where)).st_mtime_ns


@mutant("birth-of-name | inode(7): Birth time | the second file of a name has the first one's time of birth")
class BirthOfName(_Moving):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.names: dict[tuple[int, bytes], int] = {}

    def named(self, call: Call, parent: int, name: bytes, node: int) -> int:
        self.moved[node] = self.names.setdefault((parent, name), self.birth(call, node) or 0)
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        return self.named(call, parent, name, node), opened

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.named(call, where, new, self.node_at(self.fd(where), new))


@mutant("birth-of-parent | inode(7): Birth time | a directory has its parent's time of birth")
class BirthOfParent(_Moving):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.moved[node] = self.birth(call, parent) or 0
        return node


@mutant("birth-only-of-files | inode(7): Birth time | what is no regular file is born in 1970")
class BirthOnlyOfFiles(PassThrough):
    def birth(self, call: Call, node: int) -> int | None:
        found = super().birth(call, node)
        return found if stat.S_ISREG(os.fstat(self.fd(node)).st_mode) else 0


@mutant("statx-size-of-first-look | statx(2) | the size of a file is that of the first statx()")
class StatxSizeOfFirstLook(Keeping):
    def statx(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().statx(call, node, handle)
        found.size = self.__dict__.setdefault("sizes", {}).setdefault(node, found.size)
        return found


@mutant("statx-mtime-seconds | statx(2) | stx_mtime has no nanoseconds")
class StatxMtimeSeconds(PassThrough):
    def statx(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().statx(call, node, handle)
        found.mtime -= found.mtime % SECOND
        return found
