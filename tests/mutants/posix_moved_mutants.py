"""Names that move, long names that are alike, listings after a change, and locks that others disturb.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- rename(): each time; a directory that is opened after it lists the new name and not the old one.
- renameat2(2) RENAME_EXCHANGE: each exchange exchanges.
- rename(): a symbolic link that is renamed has its contents, in another directory, too.
- XBD 4.8 pathname resolution: names that differ in any byte are two names.
- readdir(): after removals, all of what is left is returned, once, however many entries there were.
- fcntl() locks are of the file: no change of its names, its size or its mode ends them.
- fcntl(): any number of ranges; the unlocked middle of a range leaves both its ends; neighbours that are one
  range then hold no byte more; each waiting process gets the lock in the end.
"""

# ruff: noqa: E501  # a mutant is a row of a table

import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from fuse_locks import FREE, LAST, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call, Created
from posix_directory_mutants import DOTS
from posix_pair_mutants import status
from posix_rules import Keeping, mutant

EXCHANGE = 2


@mutant(
    "rename-not-listed | rename(3p), readdir(3p) | a listing has the name before the second rename of a file"
)
class RenameNotListed(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.renames: Counter[Hashable] = Counter()
        self.shown: dict[Hashable, bytes] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = status(self, where, new)
        assert one is not None
        self.renames[one.st_ino] += 1
        if self.renames[one.st_ino] == 2 and stat.S_ISREG(one.st_mode):
            self.shown[self.nodes[where].key, new] = old

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        key = self.nodes[node].key
        found = super().readdir(call, node, handle, offset, size)
        return [(ino, at, kind, self.shown.pop((key, name), name)) for ino, at, kind, name in found]


@mutant(
    "exchange-second-ignored | renameat2(2) RENAME_EXCHANGE | the second exchange of two names does nothing"
)
class ExchangeSecondIgnored(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.times: Counter[Hashable] = Counter()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        names = frozenset((old, new))
        self.times[names] += bool(flags & EXCHANGE)
        if not flags & EXCHANGE or self.times[names] != 2:
            super().rename(call, parent, old, where, new, flags)


@mutant("link-moved-loses-target | rename(3p), symlink(3p) | a symbolic link that is moved to another directory names "
        "what it is called")  # fmt: skip
class LinkMovedLosesTarget(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = status(self, where, new)
        if parent != where and one is not None and stat.S_ISLNK(one.st_mode):
            os.unlink(new, dir_fd=self.fd(where))
            os.symlink(old, new, dir_fd=self.fd(where))


class _FirstOfName(PassThrough):
    """Names are compared by their first 250 bytes: what exists is found by them."""

    alike = 250

    def found(self, parent: int, name: bytes) -> bytes:
        if len(name) <= self.alike:
            return name
        self.reset_ids()
        with os.scandir(f"/proc/self/fd/{self.fd(parent)}") as entries:
            names = [os.fsencode(one.name) for one in entries]
        like = [one for one in names if one[: self.alike] == name[: self.alike]]
        return name if name in like or not like else like[0]


@mutant("long-names-alike | XBD 4.8 | names that differ after 250 bytes are one name")
class LongNamesAlike(_FirstOfName):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(call, parent, self.found(parent, name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, self.found(parent, name), flags & ~os.O_EXCL, mode, umask)


@mutant("removed-entry-hides-next | readdir(3p) | in a directory of more than 40 entries, the one after the fifth that "
        "is removed is not listed")  # fmt: skip
class RemovedEntryHidesNext(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.removed: Counter[Hashable] = Counter()

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.removed[self.nodes[parent].key] += 1

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        listed = [one for one in found if one[3] not in DOTS]
        if self.removed[self.nodes[node].key] >= 5 and offset == 0 and len(listed) > 40:
            found.remove(listed[-2])
        return found


class _Freeing(Keeping, Locking):
    def free(self, key: Hashable) -> None:
        """Release all locks of a file."""
        self.held = [one for one in self.held if self.nodes[one.node].key != key]
        self.grant()


@mutant("lock-lost-on-unlink | fcntl(3p), unlink(3p) | the locks of a file end when its name is removed")
class LockLostOnUnlink(_Freeing):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = status(self, parent, name)
        super().unlink(call, parent, name)
        if one is not None:
            self.free((one.st_dev, one.st_ino))


@mutant("lock-lost-on-rename | fcntl(3p), rename(3p) | the locks of a file end when it is renamed")
class LockLostOnRename(_Freeing):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = status(self, parent, old)
        super().rename(call, parent, old, where, new, flags)
        if one is not None:
            self.free((one.st_dev, one.st_ino))


@mutant(
    "lock-lost-on-truncate | fcntl(3p), ftruncate(3p) | locks beyond the new end of a file end when it is cut"
)
class LockLostOnTruncate(_Freeing):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size)
        key = self.nodes[node].key
        self.held = [
            one for one in self.held if self.nodes[one.node].key != key or one.start < size or one.whole
        ]


@mutant(
    "lock-of-64-only | fcntl(3p) F_SETLK | of more than 64 ranges that a process locks, the first is released"
)
class LockOf64Only(Locking):
    def put(self, asked: Held) -> None:
        super().put(asked)
        mine = [one for one in self.held if one.owner == asked.owner and one.node == asked.node]
        if len(mine) > 64:
            self.held.remove(mine[0])


@mutant("unlock-middle-frees-tail | fcntl(3p) F_UNLCK | to unlock the middle of a range frees its tail")
class UnlockMiddleFreesTail(Locking):
    def put(self, asked: Held) -> None:
        before = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        super().put(asked)
        for one in before:
            if asked.kind == FREE and one.start < asked.start and asked.end < one.end:
                self.held = [
                    tail for tail in self.held
                    if not (tail.owner == one.owner and tail.start == asked.end + 1 and tail.node == one.node)
                ]  # fmt: skip


@mutant("lock-neighbours-grow | fcntl(3p) F_SETLK | two locked neighbours also hold the byte after them")
class LockNeighboursGrow(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        if found is not None or asked.whole or not asked.start:
            return found
        ends = Held(asked.node, asked.owner, asked.start - 1, asked.start - 1, asked.kind, 0, whole=False)
        last = super().conflict(ends)
        if last is None or last.start == 0 or last.end == LAST:
            return None
        before = Held(asked.node, asked.owner, last.start - 1, last.start - 1, asked.kind, 0, whole=False)
        return super().conflict(before)


@mutant("lock-wakes-one | fcntl(3p) F_SETLKW | of two processes that wait for shared locks, one is woken")
class LockWakesOne(Locking):
    at = 0

    def put(self, asked: Held) -> None:
        self.at = asked.node
        super().put(asked)

    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if asked.node == self.at and self.conflict(asked) is None:
                self.waiting.remove((unique, asked))
                self.held.append(asked)
                self.answer(unique, 0)
                return
