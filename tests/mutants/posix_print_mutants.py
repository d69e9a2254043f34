"""Mutants of single sentences: unnamed files, long attributes, statvfs(), SEEK_DATA, contents of links.

The rules:

- open(2) O_TMPFILE: the file has no link, and needs write permission for the directory.
- setxattr(2): a value is of its own attribute, and one that is refused changes nothing.
- statvfs(3p), lseek(2), symlink(3p): see each class.
"""

import errno
import os
import stat
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuse_locks import Locking
from fuse_passthrough import PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant

_LONG = 1100


@mutant("tmpfile-counts-a-link | open(2) O_TMPFILE, <sys/stat.h> st_nlink | a file without a name has a link")
class TmpfileCountsALink(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._unnamed: set[int] = set()

    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().tmpfile(call, parent, flags, mode, umask)
        self._unnamed.add(node)
        return node, opened

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if node in self._unnamed:
            found.nlink = max(1, found.nlink)
        return found


@mutant("tmpfile-by-any-user | open(2) [EACCES] | without write permission an unnamed file is made")
class TmpfileByAnyUser(PassThrough):
    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        with suppress(PermissionError):
            return super().tmpfile(call, parent, flags, mode, umask)
        self.reset_ids()
        os.umask(umask)
        opened = os.open(self.nodes[parent].path, os.O_RDWR | os.O_TMPFILE, mode)
        os.fchown(opened, call.uid, call.gid)
        return self.node_of(os.open(f"/proc/self/fd/{opened}", os.O_PATH)), Opened(opened)


@mutant("xattr-long-values-share-a-block | setxattr(2) | a value over 1,100 bytes overwrites others as long")
class XattrLongValuesShareABlock(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags)
        if len(value) <= _LONG or not name.startswith(b"user."):
            return
        for other in self.listxattr(call, node):
            if other.startswith(b"user.") and len(self.getxattr(call, node, other)) == len(value):
                super().setxattr(call, node, other, value, 0)


@mutant("xattr-without-space-lost | setxattr(2) [ENOSPC] | a value that is refused removes the old one")
class XattrWithoutSpaceLost(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if len(value) <= 3500 or not name.startswith(b"user."):
            super().setxattr(call, node, name, value, flags)
            return
        with suppress(OSError):
            self.removexattr(call, node, name)
        raise OSError(errno.ENOSPC, "setxattr")


@mutant("statfs-of-files-none-free | fstatvfs(3p) | by a path of a file no block is free")
class StatfsOfFilesNoneFree(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        if stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            return found
        return {**found, "bfree": 0, "bavail": 0}


@mutant("seek-without-name-refused | lseek(2), unlink(3p) | SEEK_DATA of a file without a name is ENOENT")
class SeekWithoutNameRefused(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        if not os.fstat(handle).st_nlink:
            raise OSError(errno.ENOENT, "lseek")
        return super().lseek(call, node, handle, offset, whence)


@mutant("seek-marks-mtime | lseek(2), inode(7) mtime | a look for data marks the modification of the file")
class SeekMarksMtime(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        self.reset_ids()
        os.utime(self.nodes[node].path)
        return super().lseek(call, node, handle, offset, whence)


@mutant("symlink-dot-slash-stripped | symlink(3p) | ./ at the begin of a link's contents is left out")
class SymlinkDotSlashStripped(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target.removeprefix(b"./") or target)


@mutant("symlink-percent-decoded | symlink(3p) | %66 in a link's contents is f")
class SymlinkPercentDecoded(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, urllib.parse.unquote_to_bytes(target))


@mutant("byte-order-mark-zeroed | write(3p) | a UTF-8 byte order mark at the begin of a file is zeroes")
class ByteOrderMarkZeroed(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset == 0 and data.startswith(b"\xef\xbb\xbf"):
            data = bytes(3) + data[3:]
        return super().write(call, node, handle, offset, data)


@mutant("second-newline-is-a-space | write(3p) | the last of two newlines at an end is a space")
class SecondNewlineIsASpace(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if data.endswith(b"\n\n"):
            data = data[:-1] + b" "
        return super().write(call, node, handle, offset, data)


@mutant("user-sets-no-sticky-bit | chmod(3p) | S_ISVTX that a user sets for his directory is left out")
class UserSetsNoStickyBit(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode & ~stat.S_ISVTX if call.uid else mode)


@mutant("user-sets-no-directory-times | utimensat(3p) [EPERM] | a user cannot set the times of his directory")
class UserSetsNoDirectoryTimes(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if call.uid and stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            raise OSError(errno.EPERM, "utimensat")
        super().utimens(call, node, atime, mtime)


@mutant("user-gives-directory-no-group | chown(3p) [EPERM] | a user cannot set the group of his directory")
class UserGivesDirectoryNoGroup(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if call.uid and stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            raise OSError(errno.EPERM, "chown")
        super().chown(call, node, uid, gid)


@mutant("user-links-no-read-only-file | link(3p) [EPERM] | a user cannot link a file that he may not write")
class UserLinksNoReadOnlyFile(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if call.uid and not os.fstat(self.fd(old)).st_mode & stat.S_IWUSR:
            raise OSError(errno.EPERM, "link")
        return super().link(call, old, parent, name)


@mutant("readlink-by-owner-only | symlink(7) | the contents of another user's link are EACCES")
class ReadlinkByOwnerOnly(PassThrough):
    def readlink(self, call: Call, node: int) -> bytes:
        if call.uid not in (0, os.fstat(self.fd(node)).st_uid):
            raise OSError(errno.EACCES, "readlink")
        return super().readlink(call, node)


@mutant("lock-by-root-only | fcntl(3p) F_SETLK | a lock of a user without privilege is EPERM")
class LockByRootOnly(Locking):
    def setlk(self, call: Call, *arguments: Any, **named: Any) -> Any:
        if call.uid:
            raise OSError(errno.EPERM, "fcntl")
        return super().setlk(call, *arguments, **named)
