"""Mutants of what a name or a file was before (third blind set): most are faults that real file systems had.

The rules:

- unlink(), rename(), link(), mkdir(): what a path led to before is forgotten when it leads to another file.
- XBD 4.12: a call marks its times, whatever was called before and whether the file is open.
- read(): a change that leaves length and mtime is a change.
- setxattr(), acl(5), fallocate(), ftruncate(), fcntl(): what exists, whatever its value, place or name.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from fuse_locks import FREE, Locking
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant

_DEFAULT, _ACCESS = b"system.posix_acl_default", b"system.posix_acl_access"
_LARGEST = 1 << 20


class Historic(Keeping):
    """Honest; it knows which files are open, and can find what has a name."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.opened: dict[int, int] = {}
        """Handle → node."""

    def at(self, parent: int, name: bytes) -> int | None:
        """Return the node that has a name, or None."""
        with suppress(OSError):
            return self.node_at(self.fd(parent), name)
        return None

    def stat(self, node: int) -> os.stat_result:
        return os.fstat(self.fd(node))

    def is_kind(self, node: int | None, kind: int) -> bool:
        return node is not None and stat.S_IFMT(self.stat(node).st_mode) == kind

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.opened[opened.handle] = node
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.opened[opened.handle] = node
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.opened.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant(
    "removed-open-reads-successor | unlink(3p), rename(3p)"
    " | a removed open file reads as the file that is renamed to its name"
)
class RemovedOpenReadsSuccessor(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._removed: dict[tuple[int, bytes], int] = {}
        self._successor: dict[int, int] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.at(parent, name)
        super().unlink(call, parent, name)
        if node is not None and node in self.opened.values() and not self.stat(node).st_nlink:
            self._removed[parent, name] = node

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved = self.at(parent, old)
        super().rename(call, parent, old, where, new, flags)
        node = self._removed.pop((where, new), None)
        if node is not None and moved is not None:
            self._successor[node] = moved

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if node not in self._successor:
            return super().read(call, node, handle, offset, size)
        self.reset_ids()
        descriptor = os.open(self.nodes[self._successor[node]].path, os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)


@mutant(
    "former-name-takes-chmod | chmod(3p), unlink(3p), rename(3p)"
    " | chmod of a file that lost a name is of the new file of that name"
)
class FormerNameTakesChmod(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._removed: dict[tuple[int, bytes], int] = {}
        self._successor: dict[int, int] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.at(parent, name)
        super().unlink(call, parent, name)
        if node is not None and self.stat(node).st_nlink:
            self._removed[parent, name] = node

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        node = self.at(parent, old)
        super().rename(call, parent, old, where, new, flags)
        if node is not None and self.at(parent, old) is None:
            self._removed[parent, old] = node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made, opened = super().create(call, parent, name, flags, mode, umask)
        node = self._removed.pop((parent, name), None)
        if node is not None:
            self._successor[node] = made
        return made, opened

    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, self._successor.get(node, node), mode)


@mutant("link-made-again-not-replaced | link(3p), rename(3p) | a link that was made again cannot be replaced")
class LinkMadeAgainNotReplaced(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._linked: set[tuple[int, bytes]] = set()
        self._removed: set[tuple[int, bytes]] = set()
        self._again: set[tuple[int, bytes]] = set()

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        node = super().link(call, old, parent, name)
        (self._again if (parent, name) in self._removed else self._linked).add((parent, name))
        return node

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        if (parent, name) in self._linked:
            self._removed.add((parent, name))
        self._again.discard((parent, name))

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if (where, new) in self._again:
            raise OSError(errno.EIO, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant(
    "directory-made-again-has-old-files | mkdir(3p), rename(3p)"
    " | a directory with the former name of a renamed one finds the files of that"
)
class DirectoryMadeAgainHasOldFiles(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._renamed: dict[tuple[int, bytes], int] = {}
        self._former: dict[int, int] = {}
        self._found: set[tuple[int, bytes]] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved = self.at(parent, old)
        super().rename(call, parent, old, where, new, flags)
        if moved is not None and self.is_kind(moved, stat.S_IFDIR):
            self._renamed[parent, old] = moved

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        if (parent, name) in self._renamed:
            self._former[node] = self._renamed.pop((parent, name))
        return node

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            former = self._former.get(parent)
            if former is None or (former, name) not in self._found:
                raise
            return super().lookup(call, former, name)
        self._found.add((parent, name))
        return node


@mutant("replaced-directory-keeps-nlink | rename(3p), st_nlink | a replaced open directory keeps its count")
class ReplacedDirectoryKeepsNlink(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._kept: dict[int, int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        node = self.at(where, new)
        count = self.stat(node).st_nlink if node is not None else 0
        super().rename(call, parent, old, where, new, flags)
        if node is not None and not flags and self.is_kind(node, stat.S_IFDIR):
            self._kept[node] = count

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink = self._kept.get(node, found.nlink)
        return found


class Unmarked(Historic):
    """``leave`` lets a file keep time stamps that a call has marked, until the next call marks them."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._left: dict[int, tuple[int, int, int]] = {}

    def leave(self, node: int, before: os.stat_result, *, mtime: bool) -> None:
        now = self.stat(node)
        self._left[node] = (now.st_ctime_ns, before.st_ctime_ns, (before if mtime else now).st_mtime_ns)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        marked, ctime, mtime = self._left.get(node, (0, 0, 0))
        if found.ctime == marked:
            found.ctime, found.mtime = ctime, mtime
        return found


@mutant(
    "truncate-while-open-leaves-times | truncate(3p) | truncate() of a file that is open marks no time stamp"
)
class TruncateWhileOpenLeavesTimes(Unmarked):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        before = self.stat(node)
        super().truncate(call, node, handle, size)
        if handle is None and node in self.opened.values():
            self.leave(node, before, mtime=True)


@mutant(
    "link-after-utimens-leaves-ctime | link(3p) | after utimensat() of a file link() does not mark its ctime"
)
class LinkAfterUtimensLeavesCtime(Unmarked):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._given: set[int] = set()

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        if isinstance(mtime, int):
            self._given.add(node)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        before = self.stat(old)
        node = super().link(call, old, parent, name)
        if old in self._given:
            self.leave(old, before, mtime=False)
        return node


@mutant("same-length-and-time-stale | read(3p) | with length and mtime of the last read the data are those")
class SameLengthAndTimeStale(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._read: dict[int, tuple[int, int, bytes]] = {}

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        one = os.fstat(handle)
        if one.st_size > _LARGEST:
            return super().read(call, node, handle, offset, size)
        length, mtime, data = self._read.get(node, (0, 0, b""))
        if (length, mtime) != (one.st_size, one.st_mtime_ns):
            data = os.pread(handle, _LARGEST, 0)
            self._read[node] = (one.st_size, one.st_mtime_ns, data)
        return data[offset : offset + size]


@mutant(
    "xattr-replace-of-empty-refused | setxattr(2) XATTR_REPLACE | an attribute with an empty value is ENODATA"
)
class XattrReplaceOfEmptyRefused(Keeping):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if flags & os.XATTR_REPLACE and not os.getxattr(self.nodes[node].path, name):
            raise OSError(errno.ENODATA, "setxattr")
        super().setxattr(call, node, name, value, flags)


@mutant(
    "second-default-acl-is-access-acl | acl(5) ACL TYPES | a default ACL that replaces one is the access ACL"
)
class SecondDefaultAclIsAccessAcl(Keeping):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        with suppress(OSError):
            if name == _DEFAULT and os.getxattr(self.nodes[node].path, _DEFAULT):
                name = _ACCESS
        super().setxattr(call, node, name, value, flags)


@mutant(
    "allocation-zeroes-behind-hole | fallocate(2) | an allocation over data and a hole zeroes what is behind"
)
class AllocationZeroesBehindHole(Keeping):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        end, data = min(offset + length, os.fstat(handle).st_size), 0
        if mode in (0, 1):
            with suppress(OSError):
                data = os.lseek(handle, os.lseek(handle, offset, os.SEEK_HOLE), os.SEEK_DATA)
        super().fallocate(call, node, handle, offset, length, mode)
        if 0 < data < end:
            os.pwrite(handle, bytes(end - data), data)


@mutant(
    "cut-at-4-mib-returns | ftruncate(3p) | what was cut at a multiple of 4 MiB is back when the file grows"
)
class CutAt4MibReturns(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._rest: dict[int, tuple[int, bytes]] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        path = self.nodes[node].path
        self.reset_ids()
        descriptor = os.open(path, os.O_RDWR)
        try:
            before = os.fstat(descriptor).st_size
            is_cut = 0 < size < before and size % (4 << 20) == 0
            rest = os.pread(descriptor, _LARGEST, size) if is_cut else b""
            super().truncate(call, node, handle, size)
            at, kept = self._rest.pop(node, (0, b""))
            if before == at and size > at:
                os.pwrite(descriptor, kept[: size - at], at)
            elif rest:
                self._rest[node] = (size, rest)
        finally:
            os.close(descriptor)


@mutant("renamed-directory-keeps-1000 | rename(3p) | of a renamed directory the first 1000 entries are kept")
class RenamedDirectoryKeeps1000(Historic):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved = self.at(parent, old)
        super().rename(call, parent, old, where, new, flags)
        if moved is None or not self.is_kind(moved, stat.S_IFDIR):
            return
        self.reset_ids()
        path = self.nodes[moved].path
        for name in sorted(os.listdir(path))[1000:]:
            with suppress(OSError):
                os.unlink(f"{path}/{name}")


@mutant(
    "lock-of-removed-file-refused | fcntl(3p), flock(2) | an open file without a name is not locked: ESTALE"
)
class LockOfRemovedFileRefused(Locking):
    def setlk(
        self,
        call: Call,
        node: int,
        owner: int,
        start: int,
        end: int,
        kind: int,
        pid: int,
        *,
        waits: bool,
        whole: bool,
    ) -> None:
        if kind != FREE and not os.fstat(self.fd(node)).st_nlink:
            raise OSError(errno.ESTALE, "lock")
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
