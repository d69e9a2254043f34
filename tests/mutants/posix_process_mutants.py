"""Broken for several processes at the same time: one after the other, each call has its effect."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import Attributes, Entries
from fuse_protocol import Call, Created
from posix_rules import Keeping, asked_by, makes, mutant, opens_with, size_of

RECENTLY = 0.5
"""Seconds in which a call of another process is one of the same time."""
BLOCK = 1 << 16
NOREPLACE = 1


class Recent(Keeping):
    """Remembers which process called last, and when."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.calls: dict[object, tuple[int, float]] = {}

    def note(self, call: Call, what: object) -> None:
        self.calls[what] = call.pid, time.monotonic()

    def by_another(self, call: Call, what: object) -> bool:
        """Whether another process made the last call of ``what``, a moment ago."""
        pid, when = self.calls.get(what, (call.pid, 0.0))
        return pid != call.pid and time.monotonic() - when < RECENTLY


@mutant(
    "append-at-end-of-own-process | write(3p) O_APPEND | a process appends where its own last record ends"
)
class AppendAtEndOfOwnProcess(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[tuple[int, int], int] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.appends:
            return super().write(call, node, handle, offset, data)
        self.as_caller(call)
        size = size_of(handle)
        at = min(self.ends.get((node, call.pid), size), size)
        flags = fcntl.fcntl(handle, fcntl.F_GETFL)
        fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_APPEND)
        try:
            done = os.pwrite(handle, data, at)
        finally:
            fcntl.fcntl(handle, fcntl.F_SETFL, flags)
        self.ends[node, call.pid] = at + done
        return done


@mutant(
    "page-of-own-process | write(3p) | a write takes back what another process has just written next to it"
)
class PageOfOwnProcess(Recent):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.before: dict[int, tuple[int, bytes]] = {}
        """File → the place of its last write, and what was there."""

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.reset_ids()
        with open(self.nodes[node].path, "r+b", buffering=0) as file:
            old = os.pread(file.fileno(), len(data), offset)
            at, lost = self.before.get(node, (0, b""))
            if lost and at // BLOCK == offset // BLOCK and self.by_another(call, node):
                os.pwrite(file.fileno(), lost, at)
        self.before[node] = offset, old
        self.note(call, node)
        return super().write(call, node, handle, offset, data)


@mutant("data-of-other-process | write(3p) | a write has the data of one by another process to another file, "
        "at the same offset and as long")  # fmt: skip
class DataOfOtherProcess(Recent):
    last = 0, b""

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        other, found = self.last
        if other != node and len(found) == len(data) and self.by_another(call, offset):
            data = found
        self.note(call, offset)
        self.last = node, data
        return super().write(call, node, handle, offset, data)


@mutant("read-of-other-process | read(3p) | a read returns what another process has just read of the file")
class ReadOfOtherProcess(Recent):
    last = b""

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if self.by_another(call, node) and len(self.last) >= len(data):
            return self.last[: len(data)]
        self.note(call, node)
        self.last = data
        return data


class _MadeTwice(Recent):
    """A name that another process has just made is made again: the call succeeds."""

    def asks(self, call: Call, name: bytes) -> bool:
        """Whether a lookup is for a call that makes ``name``."""
        return makes(call, name)

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.by_another(call, (parent, name)) and self.asks(call, name):
            raise FileNotFoundError(2, "lookup")
        return super().lookup(call, parent, name)

    def made(self, call: Call, parent: int, name: bytes, make: Callable[[], int]) -> int:
        """Make a name, or find the one that another has made."""
        if self.by_another(call, (parent, name)):
            self.as_caller(call)
            return self.node_at(self.fd(parent), name)
        node = make()
        self.note(call, (parent, name))
        return node


@mutant("open-excl-for-two | open(3p) O_EXCL | a file that another process has just made is opened")
class OpenExclForTwo(_MadeTwice):
    def asks(self, call: Call, name: bytes) -> bool:
        return opens_with(call, os.O_EXCL)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        flags = flags & ~os.O_EXCL if self.by_another(call, (parent, name)) else flags
        created = super().create(call, parent, name, flags, mode, umask)
        self.note(call, (parent, name))
        return created


@mutant("mkdir-for-two | mkdir(3p) [EEXIST] | a directory that another process has just made is made again")
class MkdirForTwo(_MadeTwice):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        make = super().mkdir
        return self.made(call, parent, name, lambda: make(call, parent, name, mode, umask))


@mutant("link-for-two | link(3p) [EEXIST] | a link that another process has just made is made again")
class LinkForTwo(_MadeTwice):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        make = super().link
        return self.made(call, parent, name, lambda: make(call, old, parent, name))


@mutant("symlink-for-two | symlink(3p) [EEXIST] | a symbolic link that another process has just made is made "
        "again")  # fmt: skip
class SymlinkForTwo(_MadeTwice):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        make = super().symlink
        return self.made(call, parent, name, lambda: make(call, parent, name, target))


@mutant("mkfifo-for-two | mkfifo(3p) [EEXIST] | a FIFO that another process has just made is made again")
class MkfifoForTwo(_MadeTwice):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        make = super().mknod
        return self.made(call, parent, name, lambda: make(call, parent, name, mode, device, umask))


class _RemovedTwice(Recent):
    """A name that another process has just removed is removed again: the call succeeds."""

    asks = ""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.gone: dict[tuple[int, bytes], int] = {}

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.by_another(call, (parent, name)) and asked_by(call, self.asks):
            node = self.gone[parent, name]
            self.nodes[node].count += 1
            return node
        return super().lookup(call, parent, name)

    def removed(self, call: Call, parent: int, name: bytes, remove: Callable[[], None]) -> None:
        """Remove a name, unless another has just done it."""
        if self.by_another(call, (parent, name)):
            return
        with contextlib.suppress(OSError):
            self.gone[parent, name] = self.node_at(self.fd(parent), name)
        remove()
        self.note(call, (parent, name))


@mutant(
    "unlink-for-two | unlink(3p) [ENOENT] | a file that another process has just removed is removed again"
)
class UnlinkForTwo(_RemovedTwice):
    asks = "unlink"

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        remove = super().unlink
        self.removed(call, parent, name, lambda: remove(call, parent, name))


@mutant(
    "rmdir-for-two | rmdir(3p) [ENOENT] | a directory that another process has just removed is removed again"
)
class RmdirForTwo(_RemovedTwice):
    asks = "rmdir"

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        remove = super().rmdir
        self.removed(call, parent, name, lambda: remove(call, parent, name))


@mutant(
    "rename-for-two | rename(3p) [ENOENT] | a file that another process has just renamed is renamed again"
)
class RenameForTwo(_RemovedTwice):
    asks = "rename"

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        rename = super().rename
        self.removed(call, parent, old, lambda: rename(call, parent, old, where, new, flags))


@mutant("noreplace-for-two | rename(2) RENAME_NOREPLACE | a name to which another process has just renamed a "
        "file is replaced")  # fmt: skip
class NoreplaceForTwo(Recent):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.by_another(call, (parent, name)) and asked_by(call, "renameat2"):
            raise FileNotFoundError(2, "lookup")
        return super().lookup(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        late = flags == NOREPLACE and self.by_another(call, (where, new))
        super().rename(call, parent, old, where, new, 0 if late else flags)
        if flags == NOREPLACE:
            self.note(call, (where, new))


@mutant(
    "entry-of-other-lost | readdir(3p) | a file that is made right after one of another process is not listed"
)
class EntryOfOtherLost(Recent):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lost: set[bytes] = set()

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if self.by_another(call, "create"):
            self.lost.add(name)
        self.note(call, "create")
        return super().create(call, parent, name, flags, mode, umask)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [one for one in found if one[3] not in self.lost]


@mutant("links-of-two-counted-once | link(3p), <sys/stat.h> st_nlink | of two links to a file that two "
        "processes make at the same time one is counted")  # fmt: skip
class LinksOfTwoCountedOnce(Recent):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lost: dict[int, int] = {}

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if self.by_another(call, old):
            self.lost[old] = self.lost.get(old, 0) + 1
        self.note(call, old)
        return super().link(call, old, parent, name)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink -= min(self.lost.get(node, 0), max(found.nlink - 2, 0))
        return found


@mutant("attribute-of-other-lost | setxattr(2) | an attribute that is set while another process sets one of "
        "the same file takes that one back")  # fmt: skip
class AttributeOfOtherLost(Recent):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.last: dict[int, tuple[bytes, bytes | None]] = {}
        """File → the attribute that was set last, and its value before."""

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        path = self.nodes[node].path
        old: bytes | None = None
        with contextlib.suppress(OSError):
            old = os.getxattr(path, name)
        super().setxattr(call, node, name, value, flags)
        if self.by_another(call, node):
            other, former = self.last[node]
            self.reset_ids()
            with contextlib.suppress(OSError):
                os.removexattr(path, other) if former is None else os.setxattr(path, other, former)
        self.last[node] = name, old
        self.note(call, node)


class _LockOfTwo(Locking):
    """A lock that another has just got does not conflict."""

    of_whole_files = False

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.since: dict[int, float] = {}

    def put(self, asked: Held) -> None:
        if asked.kind != FREE:
            self.since[asked.owner] = time.monotonic()
        super().put(asked)

    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        new = found is not None and time.monotonic() - self.since.get(found.owner, 0.0) < RECENTLY
        return None if new and asked.whole == self.of_whole_files else found


@mutant(
    "record-lock-of-two | fcntl(3p) F_SETLKW | a lock that another process has just got does not conflict"
)
class RecordLockOfTwo(_LockOfTwo):
    """Locks of ranges."""


@mutant("flock-of-two | flock(2) LOCK_EX | a lock that another process has just got does not conflict")
class FlockOfTwo(_LockOfTwo):
    of_whole_files = True
