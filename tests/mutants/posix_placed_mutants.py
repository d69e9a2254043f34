"""Mutants of where a file is put: unnamed, exchanged, moved and linked files (third blind set)."""

import ctypes
import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

from fuse_passthrough import Bending, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant

EXCHANGE = 2
"""RENAME_EXCHANGE (linux/fs.h)."""
BLOCK = 4096

_libc = ctypes.CDLL(None, use_errno=True)


def exists_as(directory: int, name: bytes) -> os.stat_result | None:
    """Return what a name in a directory is, None if there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


class Shifting(Bending, Keeping):
    """``shift`` changes the link count that is reported of an inode."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.shift: dict[int, int] = {}

    def bend(self, found: Attributes) -> None:
        found.nlink += self.shift.get(found.ino, 0)


@mutant(
    "replaced-directory-stays-counted | rename(3p) | the parent's link count keeps the place of a directory "
    "that another one replaced"
)
class ReplacedDirectoryStaysCounted(Shifting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = exists_as(self.fd(where), new)
        super().rename(call, parent, old, where, new, flags)
        if replaced and stat.S_ISDIR(replaced.st_mode) and not flags:
            inode = os.fstat(self.fd(where)).st_ino
            self.shift[inode] = self.shift.get(inode, 0) + 1


@mutant(
    "exchange-keeps-parent-nlink | rename(2): RENAME_EXCHANGE | a directory that is exchanged with a file "
    "stays in the link count of its old parent"
)
class ExchangeKeepsParentNlink(Shifting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = {node: os.fstat(self.fd(node)) for node in (parent, where)}
        super().rename(call, parent, old, where, new, flags)
        if flags & EXCHANGE:
            for node, was in before.items():
                lost = was.st_nlink - os.fstat(self.fd(node)).st_nlink
                self.shift[was.st_ino] = self.shift.get(was.st_ino, 0) + lost


@mutant(
    "exchange-moves-open-files | rename(2): RENAME_EXCHANGE | a descriptor that was open writes to the file "
    "that has its name after an exchange"
)
class ExchangeMovesOpenFiles(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.other: dict[int, str] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if flags & EXCHANGE:
            one, two = (
                self.nodes[self.node_at(self.fd(at), name)] for at, name in ((parent, old), (where, new))
            )
            self.other |= {one.id: two.path, two.id: one.path}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if node not in self.other:
            return super().write(call, node, handle, offset, data)
        descriptor = os.open(self.other[node], os.O_WRONLY)
        try:
            return os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)


@mutant(
    "exchange-sticky-ignored | rename(3p): ERRORS [S_ISVTX] | an exchange with another user's file is done"
)
class ExchangeStickyIgnored(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if flags & EXCHANGE and os.fstat(self.fd(where)).st_mode & stat.S_ISVTX:
            self.reset_ids()
            if _libc.renameat2(self.fd(parent), old, self.fd(where), new, flags):
                raise OSError(ctypes.get_errno(), "exchange")
            return
        super().rename(call, parent, old, where, new, flags)


@mutant("moved-gets-group | rename(3p) | a file that is moved to a set-group-ID directory gets its group")
class MovedGetsGroup(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        directory = os.fstat(self.fd(where))
        if directory.st_mode & stat.S_ISGID and parent != where:
            self.reset_ids()
            os.chown(new, -1, directory.st_gid, dir_fd=self.fd(where), follow_symlinks=False)


@mutant("linked-gets-group | link(3p) | a file that is linked in a set-group-ID directory gets its group")
class LinkedGetsGroup(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        node = super().link(call, old, parent, name)
        directory = os.fstat(self.fd(parent))
        if directory.st_mode & stat.S_ISGID:
            self.reset_ids()
            os.chown(name, -1, directory.st_gid, dir_fd=self.fd(parent), follow_symlinks=False)
        return node


@mutant("moved-gets-default-acl | acl(5) | a file that is moved gets the default ACL of the new directory")
class MovedGetsDefaultAcl(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        directory = self.nodes[where].path
        if parent != where and "system.posix_acl_default" in os.listxattr(directory):
            self.reset_ids()
            acl = os.getxattr(directory, "system.posix_acl_default")
            os.setxattr(os.path.join(os.fsencode(directory), new), "system.posix_acl_access", acl)


@mutant("mkdir-inherits-sticky | mkdir(2) | a new directory has the sticky bit of its parent")
class MkdirInheritsSticky(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, name, mode | os.fstat(self.fd(parent)).st_mode & 0o1000, umask)


@mutant("chmod-of-socket-ignored | chmod(3p) | the mode of a socket is not changed")
class ChmodOfSocketIgnored(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if not stat.S_ISSOCK(os.fstat(self.fd(node)).st_mode):
            super().chmod(call, node, mode)


@mutant("tmpfile-second-is-first | open(2): O_TMPFILE | two unnamed files of a directory are one file")
class TmpfileSecondIsFirst(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.unnamed: dict[int, int] = {}

    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        node = self.unnamed.get(parent)
        if node in self.nodes and not os.fstat(self.fd(node)).st_nlink:
            self.nodes[node].count += 1
            return node, Opened(os.open(self.nodes[node].path, os.O_RDWR))
        made = super().tmpfile(call, parent, flags, mode, umask)
        self.unnamed[parent] = made[0]
        return made


@mutant(
    "tmpfile-callers-group | open(2): O_TMPFILE; inode(7) | an unnamed file does not get the group of a "
    "set-group-ID directory"
)
class TmpfileCallersGroup(PassThrough):
    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().tmpfile(call, parent, flags, mode, umask)
        self.reset_ids()
        os.chown(self.nodes[node].path, -1, call.gid)
        return node, opened


@mutant("tmpfile-without-mask | open(2): O_TMPFILE; umask(2) | the mask is not used for an unnamed file")
class TmpfileWithoutMask(PassThrough):
    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        return super().tmpfile(call, parent, flags, mode, 0)


@mutant(
    "descriptor-cuts-by-name | ftruncate(3p) | ftruncate() cuts the file that now has the name by which the "
    "descriptor was made"
)
class DescriptorCutsByName(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.made_as: dict[int, tuple[int, bytes]] = {}

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.made_as[opened.handle] = parent, name
        return node, opened

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        parent, name = self.made_as.get(handle or 0, (0, b""))
        found = exists_as(self.fd(parent), name) if parent else None
        if found and stat.S_ISREG(found.st_mode):
            node, handle = self.node_at(self.fd(parent), name), None
        super().truncate(call, node, handle, size)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.made_as.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant("cut-by-path-returns | truncate(3p) | the rest of a block that truncate() cut is back after a write")
class CutByPathReturns(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[int, tuple[int, bytes]] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None:
            self.reset_ids()
            with open(self.nodes[node].path, "rb") as file:
                self.cut[node] = size, os.pread(file.fileno(), BLOCK - size % BLOCK, size)
        super().truncate(call, node, handle, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        size, rest = self.cut.pop(node, (0, b""))
        if os.fstat(handle).st_size == size < offset:
            os.pwrite(handle, rest[: offset - size], size)
        return super().write(call, node, handle, offset, data)


@mutant(
    "seek-misses-last-bytes | lseek(2): SEEK_DATA | a last block that is not full, behind a hole, is no data"
)
class SeekMissesLastBytes(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        size = os.fstat(handle).st_size
        last = size - size % BLOCK
        if whence == os.SEEK_DATA and offset < last <= found < size:
            raise OSError(errno.ENXIO, "no data")
        return found


@mutant(
    "truncate-by-owner-only | truncate(3p) | truncate() by a user who may write, and is not the owner, fails"
)
class TruncateByOwnerOnly(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None and call.uid not in (0, os.fstat(self.fd(node)).st_uid):
            raise PermissionError(errno.EACCES, "truncate")
        super().truncate(call, node, handle, size)


class TruncatesAsRoot(PassThrough):
    """``unchecked`` is whether truncate() by path asks a caller for no permission."""

    def unchecked(self, call: Call, one: os.stat_result) -> bool:
        raise NotImplementedError

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        as_root = handle is None and self.unchecked(call, os.fstat(self.fd(node)))
        super().truncate(replace(call, uid=0, gid=0) if as_root else call, node, handle, size)


@mutant("truncate-by-owner-unchecked | truncate(3p) | the owner sets the size without write permission")
class TruncateByOwnerUnchecked(TruncatesAsRoot):
    def unchecked(self, call: Call, one: os.stat_result) -> bool:
        return call.uid == one.st_uid


@mutant(
    "truncate-by-others-unchecked | truncate(3p) | any user but the owner sets the size without permission"
)
class TruncateByOthersUnchecked(TruncatesAsRoot):
    def unchecked(self, call: Call, one: os.stat_result) -> bool:
        return call.uid != one.st_uid


@mutant("others-read-only-kept | unlink(3p) | another user's read-only file is not removed or replaced")
class OthersReadOnlyKept(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.check(call, parent, name)
        super().unlink(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.check(call, where, new)
        super().rename(call, parent, old, where, new, flags)

    def check(self, call: Call, parent: int, name: bytes) -> None:
        one = exists_as(self.fd(parent), name)
        if one and stat.S_ISREG(one.st_mode) and not one.st_mode & 0o222 and call.uid not in (0, one.st_uid):
            raise PermissionError(errno.EACCES, "a read-only file")
