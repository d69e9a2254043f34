"""Mutants between two clients that were written from the standards' text, without a look at the cases."""

from __future__ import annotations

import os
import stat
import time
from functools import partial

from fuse_locks import FREE, WRITE, Held, Locking
from fuse_passthrough import Attributes, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import mutant as enter
from shared_later_mutants import MUTANTS as LATER
from shared_later_mutants import Kept

MUTANTS = dict(LATER)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)


@together("getlk-wrong-kind | fcntl(2) F_GETLK | the lock that conflicts is reported as a write lock")
class GetlkWrongKind(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = super().getlk(call, node, owner, start, end, kind)
        return found if found[2] == FREE else (found[0], found[1], WRITE, found[3])


@together(
    "lock-part-wakes-none | fcntl(2) F_SETLKW | an unlock grants nothing while its owner has another lock"
)
class LockPartWakesNone(Locking):
    _is_quiet = False

    def put(self, asked: Held) -> None:
        own = [one for one in self.held if one.owner == asked.owner and one.node == asked.node]
        self._is_quiet = asked.kind == FREE and any(not one.meets(asked) for one in own)
        super().put(asked)
        self._is_quiet = False

    def grant(self) -> None:
        if not self._is_quiet:
            super().grant()


@together("unlinked-writes-lost | unlink(3p) | a write to a file that has no name any more is not stored")
class UnlinkedWritesLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if os.fstat(handle).st_nlink == 0:
            return len(data)
        return super().write(call, node, handle, offset, data)


@apart("two-old-directory | RFC 7530 10.8 | a name stays that directory, when another has replaced it")
class TwoOldDirectory(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        known: dict[tuple[int, bytes], int] = self.__dict__.setdefault("known", {})
        node = super().lookup(call, parent, name)
        old = known.setdefault((parent, name), node)
        return old if stat.S_ISDIR(os.fstat(self.fd(old)).st_mode) else node


@apart("two-moved-directory-stays | RFC 7530 10.8 | a directory that another moved is found by its old name")
class TwoMovedDirectoryStays(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        known: dict[tuple[int, bytes], int] = self.__dict__.setdefault("known", {})
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            old = known.get((parent, name))
            if old is None or os.fstat(self.fd(old)).st_nlink == 0:
                raise
            return old
        if stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            known[parent, name] = node
        return node


@apart(
    "two-moved-in-absent | RFC 7530 10.8 | an absent name stays absent, when another moves an old file there"
)
class TwoMovedInAbsent(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent: dict[tuple[int, bytes], int] = self.__dict__.setdefault("absent", {})
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            absent.setdefault((parent, name), time.time_ns())
            raise
        found = os.fstat(self.fd(node))
        if stat.S_ISREG(found.st_mode) and found.st_mtime_ns <= absent.get((parent, name), 0):
            raise FileNotFoundError(2, "lookup")
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.__dict__.setdefault("absent", {}).pop((parent, name), None)
        return super().create(call, parent, name, flags, mode, umask)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.__dict__.setdefault("absent", {}).pop((where, new), None)
        super().rename(call, parent, old, where, new, flags)


class _OldFields(Kept):
    """``fields`` of a file are those that this mount has seen first, unless it sets attributes itself."""

    fields: tuple[str, ...] = ()
    of_directories = False

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        first: dict[int, dict[str, int]] = self.__dict__.setdefault("first", {})
        if stat.S_ISDIR(found.mode) == self.of_directories:
            now = {one: getattr(found, one) for one in self.fields}
            for field, value in first.setdefault(node, now).items():
                setattr(found, field, value)
        return found

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        self.__dict__.setdefault("first", {}).pop(node, None)
        super().chown(call, node, uid, gid)

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        self.__dict__.setdefault("first", {}).pop(node, None)
        super().utimens(call, node, atime, mtime)


@apart("two-owner-old | RFC 7530 10.6 | owner and group of a file are those of the first look")
class TwoOwnerOld(_OldFields):
    fields = ("uid", "gid")


@apart("two-ctime-old | RFC 7530 10.6 | ctime of a file is that of the first look")
class TwoCtimeOld(_OldFields):
    fields = ("ctime",)


@apart("two-mode-old-to-stat | RFC 7530 10.6 | mode of a file is that of the first look since it was opened")
class TwoModeOldToStat(_OldFields):
    fields = ("mode",)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.__dict__.setdefault("first", {}).pop(node, None)
        return super().open(call, node, flags)

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.__dict__.setdefault("first", {}).pop(node, None)
        super().chmod(call, node, mode)


class _OldFieldsOfDirectories(_OldFields):
    of_directories = True

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.__dict__.setdefault("first", {}).pop(parent, None)
        return super().create(call, parent, name, flags, mode, umask)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.__dict__.setdefault("first", {}).pop(parent, None)
        return super().mkdir(call, parent, name, mode, umask)


@apart("two-directory-time-old | RFC 7530 10.6 | mtime of a directory is that of the first look")
class TwoDirectoryTimeOld(_OldFieldsOfDirectories):
    fields = ("mtime",)


@apart(
    "two-directory-links-old | RFC 7530 10.6 | the count of links of a directory is that of the first look"
)
class TwoDirectoryLinksOld(_OldFieldsOfDirectories):
    fields = ("nlink",)


@apart("two-zeroes-unseen | close-to-open | data that this client has read stays where another made zeroes")
class TwoZeroesUnseen(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known: dict[tuple[int, int], bytes] = self.__dict__.setdefault("known", {})
        data = super().read(call, node, handle, offset, size)
        old = known.get((node, offset), b"").ljust(len(data), b"\0")
        known[node, offset] = bytes(new or was for new, was in zip(data, old, strict=False))
        return known[node, offset]

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.__dict__.pop("known", None)
        return super().write(call, node, handle, offset, data)


@apart(
    "two-data-by-name | close-to-open | data of a file with two links is that first read through each name"
)
class TwoDataByName(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        self.__dict__["last"] = (parent, name)
        return super().lookup(call, parent, name)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.__dict__.setdefault("names", {})[opened.handle] = self.__dict__.get("last")
        return opened

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if os.fstat(handle).st_nlink < 2:
            return data
        key = self.__dict__.get("names", {}).get(handle), offset
        found: bytes = self.__dict__.setdefault("known", {}).setdefault(key, data)
        return found
