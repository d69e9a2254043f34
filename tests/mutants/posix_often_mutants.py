"""Mutants that do not clean up after a call that they refuse: it shows after hundreds of them.

The rule (POSIX.1-2024 XSH 2.3): a call that fails has no effect; open(), rename(), link() and others say so.
"""

import errno
from collections import Counter
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import mutant

MOST = 256
"""How many refused calls are without consequence."""


class _Counting(PassThrough):
    """``refused`` counts the calls of a kind that were refused; ``spent`` is whether they were too many."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.counts: Counter[str] = Counter()

    def refused(self, kind: str) -> None:
        self.counts[kind] += 1

    def spent(self, kind: str) -> bool:
        return self.counts[kind] > MOST


@mutant(
    "refused-exclusive-leaks | open(3p) [EEXIST] | each refused O_EXCL keeps one of 256 places for new files"
)
class RefusedExclusiveLeaks(_Counting):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if name == b"f":
            self.refused("exclusive")
        return super().lookup(call, parent, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if self.spent("exclusive"):
            raise OSError(errno.ENFILE, "create")
        return super().create(call, parent, name, flags, mode, umask)


@mutant("refused-open-leaks | open(3p) [EACCES] | each open without permission keeps one of 256 descriptors")
class RefusedOpenLeaks(_Counting):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if self.spent("open"):
            raise OSError(errno.EMFILE, "open")
        try:
            return super().open(call, node, flags)
        except PermissionError:
            self.refused("open")
            raise


@mutant("refused-rmdir-fills | rmdir(3p) [ENOTEMPTY] | a directory that was not empty 256 times never is")
class RefusedRmdirFills(_Counting):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        if self.spent(repr(name)):
            raise OSError(errno.ENOTEMPTY, "rmdir")
        try:
            super().rmdir(call, parent, name)
        except OSError:
            self.refused(repr(name))
            raise


@mutant("refused-unlink-counts | unlink(3p) [ENOENT] | after 256 names that did not exist no name is removed")
class RefusedUnlinkCounts(_Counting):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            self.refused("absent")
            raise

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if self.spent("absent"):
            raise OSError(errno.ENOMEM, "unlink")
        super().unlink(call, parent, name)


@mutant("refused-rename-leaks | rename(3p) [ENOTEMPTY] | after 256 refused ones no directory is renamed")
class RefusedRenameLeaks(_Counting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if self.spent("rename"):
            raise OSError(errno.ENOSPC, "rename")
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError:
            self.refused("rename")
            raise


@mutant("refused-link-counts | link(3p) [EEXIST] | after 256 refused ones link() is EMLINK")
class RefusedLinkCounts(_Counting):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if name == b"g":
            self.refused("link")
        return super().lookup(call, parent, name)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if self.spent("link"):
            raise OSError(errno.EMLINK, "link")
        return super().link(call, old, parent, name)


@mutant(
    "refused-xattr-fills | setxattr(2) [EEXIST] | what is refused takes space: after 256 times there is none"
)
class RefusedXattrFills(_Counting):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if self.spent("set") and not flags:
            raise OSError(errno.ENOSPC, "setxattr")
        try:
            super().setxattr(call, node, name, value, flags)
        except OSError:
            self.refused("set")
            raise


class _Keeping(Locking):
    whole = False
    """Whether it is locks of flock()."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.counts: Counter[int] = Counter()

    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        if found is not None and asked.whole == self.whole and asked.kind != FREE:
            self.counts[asked.node] += 1
        if found is None and asked.whole == self.whole and self.counts[asked.node] > MOST:
            return asked
        return found


@mutant("refused-lock-kept | fcntl(3p) F_SETLK | a file of which 256 locks were refused grants none")
class RefusedLockKept(_Keeping):
    pass


@mutant("refused-flock-kept | flock(2) | a file of which 256 locks were refused grants none")
class RefusedFlockKept(_Keeping):
    whole = True
