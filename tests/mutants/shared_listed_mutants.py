"""Mutants between two clients: listings, validators of cached data, descriptors of directories, closes."""

from __future__ import annotations

import os
from functools import partial

from fuse_locks import Locking
from fuse_passthrough import Entries
from fuse_protocol import Call, Created
from posix_rules import mutant as enter
from shared_fresh_mutants import MUTANTS as FRESH
from shared_later_mutants import Kept

MUTANTS = dict(FRESH)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)


@apart("two-listed-inode-old | readdir() | d_ino of a name is the one that this client listed first")
class TwoListedInodeOld(Kept):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        first: dict[tuple[int, bytes], int] = self.__dict__.setdefault("first", {})
        return [
            (first.setdefault((node, name), inode), cookie, kind, name)
            for inode, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@apart("two-listed-type-old | readdir() | d_type of a name is the one that this client listed first")
class TwoListedTypeOld(Kept):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        first: dict[tuple[int, bytes], int] = self.__dict__.setdefault("first", {})
        return [
            (inode, cookie, first.setdefault((node, name), kind), name)
            for inode, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@apart("two-same-mtime-old | RFC 7530 10.3.1 | data is what was read while size and mtime are the same")
class TwoSameMtimeOld(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known: dict[tuple[int, ...], bytes] = self.__dict__.setdefault("known", {})
        one = os.fstat(handle)
        key = (node, offset, size, one.st_size, one.st_mtime_ns)
        return known.setdefault(key, super().read(call, node, handle, offset, size))

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.__dict__.pop("known", None)
        return super().write(call, node, handle, offset, data)


@apart(
    "two-holes-old | lseek() SEEK_DATA | positions of data and holes are those that this client found first"
)
class TwoHolesOld(Kept):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        known: dict[tuple[int, ...], int | OSError] = self.__dict__.setdefault("known", {})
        if (node, offset, whence) not in known:
            try:
                known[node, offset, whence] = super().lseek(call, node, handle, offset, whence)
            except OSError as error:
                known[node, offset, whence] = error
        found = known[node, offset, whence]
        if isinstance(found, OSError):
            raise OSError(found.errno, "lseek")
        return found


class _Named(Kept):
    """Honest; it knows the first name of each directory."""

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.__dict__.setdefault("names", {}).setdefault(node, (parent, name))
        return node

    def successor(self, call: Call, node: int) -> int:
        """Return the directory that has the name of ``node`` now, or ``node`` if there is none."""
        parent, name = self.__dict__.setdefault("names", {}).get(node, (0, b""))
        if not parent:
            return node
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            return node


@apart("two-open-directory-by-path | open() | an open directory is the one that has its first name now")
class TwoOpenDirectoryByPath(_Named):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(call, self.successor(call, parent), name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, self.successor(call, parent), name, flags, mode, umask)


@apart("two-open-directory-made-again | open() | a file of a removed directory is made in one of its name")
class TwoOpenDirectoryMadeAgain(_Named):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        try:
            return super().create(call, parent, name, flags, mode, umask)
        except FileNotFoundError:
            return super().create(call, self.successor(call, parent), name, flags, mode, umask)


@together("flock-first-close-unlocks | flock(2) | the close of one of two descriptors releases the lock")
class FlockFirstCloseUnlocks(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        for one in self.through.get(handle, ()):
            self.give_up(node, one, whole=True)


@together("ofd-lock-any-close-unlocks | fcntl(2) F_OFD_SETLK | any close releases the process's locks")
class OfdLockAnyCloseUnlocks(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        self.__dict__.setdefault("owners", {}).setdefault(call.pid, set()).add(owner)
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        for one in self.__dict__.setdefault("owners", {}).get(call.pid, ()):
            self.give_up(node, one, whole=False)
