"""Mutants of open files, and of what holds for each call, name and size alike.

The rules:

- open(): permissions are checked once; F_SETFL changes O_APPEND; a mapping's stores are in their pages.
- link(), unlink(), rename(): what was set by one name of a file is the file's.
- XBD 4.12, pathconf(): each call that makes a name marks its directory and takes NAME_MAX bytes.
- open(), write(), mmap(), fallocate(): the same with 1,025 open files, without a name, and across 64 MiB.
- acl(5): the mode is that of the ACL that was set last; IDs have 32 bits; chmod() changes the access ACL.
"""

import errno
import os
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path

from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_border_mutants import WithFlags
from posix_historic_mutants import Historic, Unmarked
from posix_rules import mutant

_DEFAULT, _ACCESS = b"system.posix_acl_default", b"system.posix_acl_access"
_ENTRY = struct.Struct("<HHI")
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
"""Tags of entries, <linux/posix_acl.h>."""
_NOREPLACE, _PUNCH_HOLE = 1, 2
_TABLE = 1024
_PART = 64 << 20


@mutant("append-flag-of-open | fcntl(3p) F_SETFL | a file that was opened with O_APPEND appends for ever")
class AppendFlagOfOpen(WithFlags):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.flags[handle] & os.O_APPEND and not call.from_cache:
            offset = os.fstat(handle).st_size
        return super().write(call, node, handle, offset, data)


@mutant(
    "append-set-later-ignored | fcntl(3p) F_SETFL | O_APPEND that is set later appends to the own last write"
)
class AppendSetLaterIgnored(WithFlags):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._end: dict[int, int] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.appends and not self.flags[handle] & os.O_APPEND:
            offset = self._end.get(handle, 0)
        written = super().write(call, node, handle, offset, data)
        self._end[handle] = offset + written
        return written

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self._end.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant(
    "mapped-append | mmap(3p), open(3p) O_APPEND | a mapping of an appending descriptor stores at the end"
)
class MappedAppend(WithFlags):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and self.flags[handle] & os.O_APPEND:
            offset = os.fstat(handle).st_size
        return super().write(call, node, handle, offset, data)


@mutant("read-after-chmod-refused | open(3p), read(3p) | the mode is checked at each read of an open file")
class ReadAfterChmodRefused(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        self.as_caller(call)
        if not os.access(self.nodes[node].path, os.R_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "read")
        return super().read(call, node, handle, offset, size)


@mutant(
    "mapped-after-chmod-lost | open(3p), mmap(3p) | stores are lost when the owner may not write any more"
)
class MappedAfterChmodLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and not os.fstat(handle).st_mode & stat.S_IWUSR:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("write-by-other-user-refused | open(3p), write(3p) | a write needs a permission of who writes")
class WriteByOtherUserRefused(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._opened_by: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._opened_by[opened.handle] = call.uid
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.as_caller(call)
        is_other = not call.from_cache and self._opened_by.get(handle, call.uid) != call.uid
        if is_other and not os.access(self.nodes[node].path, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "write")
        return super().write(call, node, handle, offset, data)


@mutant("noreplace-of-removed-name-refused | renameat2(2) RENAME_NOREPLACE | a removed name is EEXIST")
class NoreplaceOfRemovedNameRefused(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._removed: set[tuple[int, bytes]] = set()

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self._removed.add((parent, name))

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if flags & _NOREPLACE and (where, new) in self._removed:
            raise FileExistsError(errno.EEXIST, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("attribute-goes-with-name | link(3p), unlink(3p) | the removal of a name removes what was set by it")
class AttributeGoesWithName(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._found: dict[int, tuple[int, bytes]] = {}
        self._set: dict[tuple[int, tuple[int, bytes] | None], set[bytes]] = {}

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self._found[node] = (parent, name)
        return node

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags)
        if name.startswith(b"user."):
            self._set.setdefault((node, self._found.get(node)), set()).add(name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.at(parent, name)
        super().unlink(call, parent, name)
        self.reset_ids()
        if node is not None:
            for attribute in self._set.pop((node, (parent, name)), ()):
                with suppress(OSError):
                    os.removexattr(self.nodes[node].path, attribute)


Acl = list[tuple[int, int, int]]
"""Tag, permissions and ID of each entry."""


def _decoded(value: bytes) -> Acl:
    return list(_ENTRY.iter_unpack(value[4:]))


def _encoded(entries: Acl) -> bytes:
    return struct.pack("<I", 2) + b"".join(_ENTRY.pack(*one) for one in entries)


@mutant("acl-minimal-keeps-mask | acl(5) | an ACL without a mask leaves the group the former mask")
class AclMinimalKeepsMask(Historic):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        mask = None
        if name == _ACCESS and all(tag != _MASK for tag, _, _ in _decoded(value)):
            with suppress(OSError):
                before = _decoded(os.getxattr(self.nodes[node].path, _ACCESS))
                mask = next(bits for tag, bits, _ in before if tag == _MASK)
        super().setxattr(call, node, name, value, flags)
        if mask is not None:
            self.reset_ids()
            os.chmod(self.nodes[node].path, self.stat(node).st_mode & 0o7707 | mask << 3)


@mutant("acl-id-16-bits | acl(5) ACL ENTRIES | the ID of an entry has 16 bits")
class AclId16Bits(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if name in (_ACCESS, _DEFAULT):
            entries = _decoded(value)
            value = _encoded(
                [(tag, bits, one & 0xFFFF if tag in (_USER, _GROUP) else one) for tag, bits, one in entries]
            )
        super().setxattr(call, node, name, value, flags)


@mutant("chmod-changes-default-acl | acl(5), chmod(3p) | chmod() of a directory changes its default ACL, too")
class ChmodChangesDefaultAcl(Historic):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        self.reset_ids()
        with suppress(OSError):
            entries = _decoded(os.getxattr(self.nodes[node].path, _DEFAULT))
            group = _MASK if any(tag == _MASK for tag, _, _ in entries) else _GROUP_OBJ
            given = {_USER_OBJ: mode >> 6 & 7, group: mode >> 3 & 7, _OTHERS: mode & 7}
            changed = [(tag, given.get(tag, bits), one) for tag, bits, one in entries]
            os.setxattr(self.nodes[node].path, _DEFAULT, _encoded(changed))


@mutant("socket-leaves-parent-times | bind(3p) | a new socket marks no time of its directory")
class SocketLeavesParentTimes(Unmarked):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        before = self.stat(parent)
        node = super().mknod(call, parent, name, mode, device, umask)
        if stat.S_ISSOCK(mode):
            self.leave(parent, before, mtime=True)
        return node


@mutant(
    "link-long-name-cut | link(3p), XBD 3 Filename | a name of 255 bytes that link() makes loses the last"
)
class LinkLongNameCut(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        return super().link(call, old, parent, name[:254])


@mutant("second-msync-keeps-mtime | mmap(3p), msync(3p) | the first store through mappings alone marks mtime")
class SecondMsyncKeepsMtime(Historic):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._stored: set[int] = set()

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        written = super().write(call, node, handle, offset, data)
        if call.from_cache and node in self._stored:
            self.reset_ids()
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        elif call.from_cache:
            self._stored.add(node)
        return written


@mutant("unlinked-statvfs-refused | unlink(3p), fstatvfs(3p) | fstatvfs() of a file without a name is ENOENT")
class UnlinkedStatvfsRefused(Historic):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        if not self.stat(node).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "statfs")
        return super().statfs(call, node)


@mutant(
    "unlinked-copy-refused | unlink(3p), copy_file_range(2) | a copy from a file without a name is ENOENT"
)
class UnlinkedCopyRefused(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        if not os.fstat(source).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "copy_file_range")
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@mutant("unlinked-hole-ignored | unlink(3p), fallocate(2) | a hole in a file without a name keeps its data")
class UnlinkedHoleIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not mode & _PUNCH_HOLE or os.fstat(handle).st_nlink:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant(
    "future-directory-mtime-stays | XBD 4.12 | a directory's mtime in the future is not marked by new entries"
)
class FutureDirectoryMtimeStays(Unmarked):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._future: set[int] = set()

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        is_future = isinstance(mtime, int) and mtime > time.time_ns() and self.is_kind(node, stat.S_IFDIR)
        (self._future.add if is_future else self._future.discard)(node)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        before = self.stat(parent)
        created = super().create(call, parent, name, flags, mode, umask)
        if parent in self._future:
            self.leave(parent, before, mtime=True)
        return created


@mutant("listing-again-ends-at-1000 | rewinddir(3p) | after rewinddir() a stream ends at its 1000th entry")
class ListingAgainEndsAt1000(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._read: dict[int, tuple[int, int]] = {}
        """Open directory → its passes, and the entries of the last one."""

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self._read.pop(handle, None)
        super().releasedir(call, node, handle)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        passes, count = self._read.get(handle, (0, 0))
        if offset == 0:
            passes, count = passes + 1, 0
        entries: Entries = []
        left = size
        for entry in super().readdir(call, node, handle, offset, size):
            left -= 32 + len(entry[3])
            if left < 0 or (passes > 1 and count + len(entries) == 1000):
                break
            entries.append(entry)
        self._read[handle] = passes, count + len(entries)
        return entries


@mutant(
    "handle-1025-is-first | open(3p) | of more than 1,024 open files each reads that which is 1,024 before it"
)
class Handle1025IsFirst(Historic):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        handles = list(self.opened)
        if len(handles) > _TABLE and handle in (late := handles[_TABLE:]):
            handle = handles[late.index(handle)]
        return super().read(call, node, handle, offset, size)


class Across(PassThrough):
    """``cut`` is the part of ``length`` bytes at ``offset`` that lies before 64 MiB."""

    @staticmethod
    def cut(offset: int, length: int) -> int:
        return _PART - offset if offset < _PART < offset + length else length


@mutant("write-across-64-mib-cut | write(3p) | of a write across 64 MiB the part beyond is stored as zeroes")
class WriteAcross64MibCut(Across):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.from_cache and not call.appends:
            data = data[: self.cut(offset, len(data))].ljust(len(data), b"\0")
        return super().write(call, node, handle, offset, data)


@mutant("append-across-64-mib-cut | open(3p) O_APPEND | of an append across 64 MiB the part beyond is zeroes")
class AppendAcross64MibCut(Across):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.appends:
            data = data[: self.cut(offset, len(data))].ljust(len(data), b"\0")
        return super().write(call, node, handle, offset, data)


@mutant(
    "mapped-across-64-mib-lost | mmap(3p) | of mapped pages on both sides of 64 MiB the later is not stored"
)
class MappedAcross64MibLost(Across):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache:
            if offset == _PART:
                return len(data)
            super().write(call, node, handle, offset, data[: self.cut(offset, len(data))])
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("punch-across-64-mib-short | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole across 64 MiB ends there")
class PunchAcross64MibShort(Across):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & _PUNCH_HOLE:
            length = self.cut(offset, length)
        super().fallocate(call, node, handle, offset, length, mode)
