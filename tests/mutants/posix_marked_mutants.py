"""Attributes that a call marks though it must not, leaves though it must mark, or passes on wrongly.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- chmod(), chown(), link(), rename(): mark the status change, and never the modification of a file's data.
- read(), readdir(): mark the access alone.
- unlink(), rename() over a file: mark the status change of a file that keeps another name, and its count.
- mkdir(), rmdir(), link(), symlink(), rename(): mark the directories that lose or get a name, each of them.
- utimensat(): the time is the greatest that the file system has and that is not later than the one asked for.
- write(): marks the times with the present, also where they were set to the future.
- mkdir(), open(): in a set-group-ID directory, at each depth, what is made has the directory's group.
- setxattr(2), getxattr(2), listxattr(2), removexattr(2): a value that is replaced is gone, whole.
- acl(5): chmod() changes the mask of an ACL; a default ACL that was removed is not inherited.
"""

# ruff: noqa: E501  # a mutant is a row of a table

import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created
from posix_attribute_mutants import _OldCtime
from posix_kept_mutants import set_times
from posix_pair_mutants import status
from posix_rules import Keeping, mutant, overriding


def touch(files: PassThrough, node: int) -> None:
    """Mark the modification of a node."""
    files.reset_ids()
    one = os.stat(files.nodes[node].path)
    os.utime(files.nodes[node].path, ns=(one.st_atime_ns, one.st_ctime_ns))


@mutant("chmod-marks-mtime | chmod(3p) | chmod marks the modification of the file")
class ChmodMarksMtime(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        touch(self, node)


@mutant("link-marks-mtime | link(3p) | link marks the modification of the file")
class LinkMarksMtime(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        made = super().link(call, old, parent, name)
        touch(self, made)
        return made


@mutant("rename-marks-mtime | rename(3p) | rename marks the modification of the file")
class RenameMarksMtime(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.reset_ids()
        one = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        if stat.S_ISREG(one.st_mode):
            os.utime(new, dir_fd=self.fd(where))


@mutant("setxattr-marks-mtime | setxattr(2), inode(7) | setxattr marks the modification of the file")
class SetxattrMarksMtime(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags)
        touch(self, node)


@mutant("read-marks-mtime | read(3p) | a read marks the modification of the file")
class ReadMarksMtime(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        self.reset_ids()
        os.utime(self.nodes[node].path)
        return data


@mutant("readdir-marks-mtime | readdir(3p) | reading a directory marks its modification")
class ReaddirMarksMtime(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        self.reset_ids()
        os.utime(self.nodes[node].path)
        return found


@mutant("unlink-leaves-ctime | unlink(3p) | unlink of one of two names leaves the file's status-change time")
class UnlinkLeavesCtime(_OldCtime):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.node_at(self.fd(parent), name)
        self.hold(node)
        super().unlink(call, parent, name)
        self.forget(node, 1)


@mutant(
    "replaced-name-still-counted | rename(3p) | a file with two names of which one is replaced has two links"
)
class ReplacedNameStillCounted(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.more: dict[Hashable, int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        gone = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if gone is not None and stat.S_ISREG(gone.st_mode) and gone.st_nlink > 1 and not flags:
            self.more[gone.st_dev, gone.st_ino] = self.more.get((gone.st_dev, gone.st_ino), 0) + 1

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink += self.more.get(self.nodes[node].key, 0)
        return found


@mutant("rmdir-leaves-parent-times | rmdir(3p) | rmdir leaves the times of the parent directory")
class RmdirLeavesParentTimes(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        before = os.fstat(self.fd(parent))
        super().rmdir(call, parent, name)
        set_times(self, parent, before)


@mutant(
    "rename-leaves-old-parent-times | rename(3p) | a rename to another directory leaves the times of the old one"
)
class RenameLeavesOldParentTimes(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = os.fstat(self.fd(parent))
        super().rename(call, parent, old, where, new, flags)
        if parent != where:
            set_times(self, parent, before)


@mutant(
    "rename-over-leaves-times | rename(3p) | a rename over an existing file leaves the times of its directory"
)
class RenameOverLeavesTimes(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        there, before = status(self, where, new), os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if there is not None and parent != where:
            set_times(self, where, before)


def _later(when: int | str | None) -> int | str | None:
    return -(-when // 1000) * 1000 if isinstance(when, int) else when


@mutant("utimens-rounds-microseconds | futimens(3p) | nanoseconds are rounded up to microseconds")
class UtimensRoundsMicroseconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, _later(atime), _later(mtime))


@mutant(
    "future-mtime-stays | write(3p) | a write does not mark a modification time that was set to the future"
)
class FutureMtimeStays(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        done = super().write(call, node, handle, offset, data)
        if before.st_mtime_ns > os.fstat(handle).st_mtime_ns:
            os.utime(handle, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done


@mutant("setgid-second-level-lost | mkdir(3p) S_ISGID | a directory two levels below a set-group-ID directory has the "
        "maker's group")  # fmt: skip
class SetgidSecondLevelLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: set[Hashable] = set()

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        if self.nodes[parent].key in self.first:
            self.reset_ids()
            os.chown(self.nodes[node].path, call.uid, call.gid)
        elif os.fstat(self.fd(node)).st_mode & stat.S_ISGID:
            self.first.add(self.nodes[node].key)
        return node


@mutant("xattr-shorter-keeps-tail | setxattr(2) | a shorter value leaves the end of the longer one")
class XattrShorterKeepsTail(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        try:
            old = os.getxattr(self.nodes[node].path, name)
        except OSError:
            old = b""
        if name.startswith(b"user.") and value and len(old) - len(value) > 16:
            value += old[len(value) :]
        super().setxattr(call, node, name, value, flags)


@mutant("xattr-longer-cut | setxattr(2) | a longer value is cut at 256 bytes if it replaces one")
class XattrLongerCut(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        path = self.nodes[node].path
        there = name.startswith(b"user.") and os.fsdecode(name) in os.listxattr(path)
        super().setxattr(call, node, name, value[:256] if there else value, flags)


@mutant("acl-removed-inherited | acl(5) | a default ACL that was removed is still inherited")
class AclRemovedInherited(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.removed: dict[Hashable, bytes] = {}

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        old = super().getxattr(call, node, name) if name == b"system.posix_acl_default" else b""
        super().removexattr(call, node, name)
        if old:
            self.removed[self.nodes[node].key] = old

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        old = self.removed.get(self.nodes[parent].key)
        if old:
            self.reset_ids()
            os.setxattr(self.nodes[node].path, "system.posix_acl_access", old)
        return node, opened


def _same_mode(files: Any, call: Call, node: int, mode: int) -> tuple[Any, ...]:
    old = stat.S_IMODE(os.fstat(files.fd(node)).st_mode)
    return call, node, mode & ~0o070 | old & 0o070 if files.has_acl(node) else mode


@mutant("acl-chmod-keeps-mask | acl(5), chmod(3p) | chmod does not change the mask of an ACL")
@overriding(_same_mode, "chmod")
class AclChmodKeepsMask(PassThrough):
    def has_acl(self, node: int) -> bool:
        return "system.posix_acl_access" in os.listxattr(self.nodes[node].path)
