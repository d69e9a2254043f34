"""Mutants between two clients: one acts on what it believes of a file, which the other has changed.

Those with locks have them below (:mod:`fuse_locks_below`), so that caches of two mounts meet under a lock.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuse_locks import FREE, READ, Held, Locking
from fuse_locks_below import LocksBelow
from fuse_passthrough import Attributes, Entries
from fuse_protocol import Call, Created, Opened
from posix_rules import asked_by
from posix_rules import mutant as enter
from shared_later_mutants import Kept
from shared_listed_mutants import MUTANTS as LISTED

MUTANTS = dict(LISTED)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)
PAGE = 4096


# Sizes, modes and times.


class _Believing(Kept):
    """Honest; it knows the attributes of each file that this mount saw first, or has set."""

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        known = {"size": found.size, "mode": found.mode & 0o7777, "mtime": found.mtime}
        self.__dict__.setdefault("known", {}).setdefault(node, known)
        return found

    def believed(self, node: int, field: str) -> int | None:
        """Return what is believed of a file, or None."""
        value: int | None = self.__dict__.setdefault("known", {}).get(node, {}).get(field)
        return value

    def unlearn(self, node: int) -> None:
        """Believe nothing of a file: this mount changes it itself."""
        self.__dict__.setdefault("known", {}).pop(node, None)


@apart("two-known-size-not-set | ftruncate() | a size that the client believes the file to have is not set")
class TwoKnownSizeNotSet(_Believing):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if not size or self.believed(node, "size") != size:
            self.unlearn(node)
            super().truncate(call, node, handle, size)


@apart("two-known-mode-not-set | chmod() | a mode that the client believes the file to have is not set")
class TwoKnownModeNotSet(_Believing):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if self.believed(node, "mode") != mode:
            self.unlearn(node)
            super().chmod(call, node, mode)


@apart("two-known-times-not-set | futimens() | times that the client believes the file to have are not set")
class TwoKnownTimesNotSet(_Believing):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if self.believed(node, "mtime") != mtime:
            self.unlearn(node)
            super().utimens(call, node, atime, mtime)


@apart("two-writer-own-mtime | RFC 7530 10.6 | who wrote a file reports the time of its own close as mtime")
class TwoWriterOwnMtime(Kept):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.__dict__.setdefault("written", set()).add(node)
        return super().write(call, node, handle, offset, data)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        if node in self.__dict__.get("written", ()):
            self.__dict__.setdefault("closed", {})[node] = time.time_ns()
            self.__dict__["written"].discard(node)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.mtime = max(found.mtime, self.__dict__.get("closed", {}).get(node, 0))
        return found


@apart("two-directory-mode-old | RFC 7530 10.6 | mode of a directory is that of the first look")
class TwoDirectoryModeOld(Kept):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISDIR(found.mode):
            found.mode = self.__dict__.setdefault("modes", {}).setdefault(node, found.mode)
        return found

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.__dict__.setdefault("modes", {}).pop(node, None)
        super().chmod(call, node, mode)


@apart("two-xattr-names-old | listxattr(2) | the names of attributes are those of the first look")
class TwoXattrNamesOld(Kept):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        found: list[bytes] = self.__dict__.setdefault("names", {}).setdefault(
            node, super().listxattr(call, node)
        )
        return found


# Appends.


class _OwnEnd(Kept):
    """``end`` of an append is chosen from where this mount's own last write ended, and the size."""

    def end(self, own: int, size: int) -> int:
        raise NotImplementedError

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        appends: set[int] = self.__dict__.setdefault("appends", set())
        (appends.add if flags & os.O_APPEND else appends.discard)(opened.handle)
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        ends: dict[int, int] = self.__dict__.setdefault("ends", {})
        if handle not in self.__dict__.setdefault("appends", set()):
            ends[node] = offset + len(data)
            return super().write(call, node, handle, offset, data)
        size = os.fstat(handle).st_size
        offset = self.end(ends.get(node, size), size)
        with Path(self.nodes[node].path).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, offset)
        ends[node] = offset + len(data)
        return len(data)


@apart("two-append-behind-the-cut | write() O_APPEND | an append is made at the own end, if another has cut")
class TwoAppendBehindTheCut(_OwnEnd):
    def end(self, own: int, size: int) -> int:
        return max(own, size)


@apart("two-append-at-own-end | write() O_APPEND | an append is made at the own end, if another has extended")
class TwoAppendAtOwnEnd(_OwnEnd):
    def end(self, own: int, size: int) -> int:
        return min(own, size)


# Names.


class _Unseen(Kept):
    """What ``calls`` make replaces a file whose name was absent when this mount looked."""

    calls: tuple[str, ...] = ()

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent: set[tuple[int, bytes]] = self.__dict__.setdefault("absent", set())
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            absent.add((parent, name))
            raise
        if (parent, name) in absent and asked_by(call, *self.calls):
            raise FileNotFoundError(2, "lookup")
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.__dict__.setdefault("absent", set()).discard((parent, name))
        return super().create(call, parent, name, flags, mode, umask)

    def make_free(self, parent: int, name: bytes) -> None:
        """Remove what has the name."""
        self.__dict__.setdefault("absent", set()).discard((parent, name))
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd(parent))


@apart("two-symlink-over-unseen | symlink() [EEXIST] | replaces a file whose name the client knew as absent")
class TwoSymlinkOverUnseen(_Unseen):
    calls = ("symlink",)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        self.make_free(parent, name)
        return super().symlink(call, parent, name, target)


@apart("two-link-over-unseen | link() [EEXIST] | replaces a file whose name the client knew as absent")
class TwoLinkOverUnseen(_Unseen):
    calls = ("link",)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.make_free(parent, name)
        return super().link(call, old, parent, name)


@apart("two-xattr-over-unseen | XATTR_CREATE | replaces an attribute that the client knew as absent")
class TwoXattrOverUnseen(Kept):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        try:
            return super().getxattr(call, node, name)
        except OSError:
            self.__dict__.setdefault("absent", set()).add((node, name))
            raise

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if (node, name) in self.__dict__.get("absent", ()):
            flags &= ~os.XATTR_CREATE
        super().setxattr(call, node, name, value, flags)


@apart("two-listing-of-the-name | readdir() | a new directory of a known name is listed as the former one")
class TwoListingOfTheName(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.__dict__.setdefault("names", {})[node] = (parent, name)
        return node

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        name = self.__dict__.get("names", {}).get(node)
        if offset or name is None:
            return found
        first, entries = self.__dict__.setdefault("lists", {}).setdefault(name, (node, found))
        return found if first == node else entries


# Data.


@apart(
    "two-copied-data-unseen | copy_file_range(2) | data that the client has read stay where another copied"
)
class TwoCopiedDataUnseen(Kept):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.marks = below.parent

    def mark(self, node: int) -> Path:
        """Return the file by which the other mount sees that data were copied into this one."""
        return self.marks / f"copied-{self.nodes[node].key[1]}"

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known: dict[tuple[int, int], bytes] = self.__dict__.setdefault("known", {})
        data = super().read(call, node, handle, offset, size)
        if not self.mark(node).exists():
            known[node, offset] = data
        return known.get((node, offset), data)

    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        self.reset_ids()
        self.mark(to_node).touch()
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@apart("two-copies-cached-source | copy_file_range(2) | what is copied is what the client has read before")
class TwoCopiesCachedSource(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        self.__dict__.setdefault("known", {}).setdefault((node, offset), data)
        return data

    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        known = self.__dict__.get("known", {}).get((node, start))
        if known:
            return os.pwrite(sink, known[:length], to)
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@apart(
    "two-allocated-hole-is-cleared | posix_fallocate() | what the client has read as zeroes is made zeroes"
)
class TwoAllocatedHoleIsCleared(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        zeroes: set[int] = self.__dict__.setdefault("zeroes", {}).setdefault(node, set())
        zeroes |= {offset + at for at in range(0, len(data), PAGE) if not data[at : at + PAGE].strip(b"\0")}
        return data

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        for start in self.__dict__.get("zeroes", {}).get(node, ()):
            if offset <= start and start + PAGE <= offset + length:
                os.pwrite(handle, bytes(PAGE), start)


# Locks.


class _LocksKept(LocksBelow):
    def forget(self, node: int, times: int) -> None:
        """Keep the node."""


class _SizeOfOpen(_LocksKept):
    """``seen`` is the size of an open file that is reported; ``old`` is that at its last open."""

    def seen(self, old: int, size: int) -> int:
        raise NotImplementedError

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.__dict__.setdefault("old", {})[node] = os.fstat(opened.handle).st_size
        return opened

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.__dict__.setdefault("old", {}).pop(node, None)
        super().truncate(call, node, handle, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.__dict__.setdefault("old", {}).pop(node, None)
        return super().write(call, node, handle, offset, data)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.size = self.seen(self.__dict__.get("old", {}).get(node, found.size), found.size)
        return found


@apart("two-lock-keeps-larger-size | RFC 7530 10.3.2 | under a lock a file that another cut has its old size")
class TwoLockKeepsLargerSize(_SizeOfOpen):
    def seen(self, old: int, size: int) -> int:
        return max(old, size)


@apart("two-lock-keeps-old-end | RFC 7530 10.3.2 | under a lock an extended file ends as at its open")
class TwoLockKeepsOldEnd(_SizeOfOpen):
    def seen(self, old: int, size: int) -> int:
        return min(old, size)


@together(
    "getlk-cuts-to-the-request | fcntl(2) F_GETLK | of the lock the part is reported that was asked for"
)
class GetlkCutsToTheRequest(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        first, last, found, pid = super().getlk(call, node, owner, start, end, kind)
        return (first, last, found, pid) if found == FREE else (max(first, start), min(last, end), found, pid)


@together("unlock-frees-shared-of-others | fcntl(2) | an unlock releases the read locks of all on its range")
class UnlockFreesSharedOfOthers(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and any(one.owner == asked.owner and one.meets(asked) for one in self.held):
            self.held = [one for one in self.held if one.kind != READ or not one.meets(asked)]
        super().put(asked)


@together("close-unlocks-other-files | close(2) | a close releases the process's locks of all files")
class CloseUnlocksOtherFiles(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        for other in {one.node for one in self.held if one.owner == owner}:
            self.give_up(other, owner, whole=False)


@together("lock-follows-the-name | rename() | locks of a file that is replaced are those of its successor")
class LockFollowsTheName(Locking):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = None
        with suppress(FileNotFoundError):
            replaced = self.node_at(self.fd(where), new)
        super().rename(call, parent, old, where, new, flags)
        if replaced is not None and flags == 0:
            successor = self.node_at(self.fd(where), new)
            self.held = [replace(one, node=successor) if one.node == replaced else one for one in self.held]
