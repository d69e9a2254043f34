"""Directories of one sort that a change of a name does not mark, and removed ones that calls refuse."""

import contextlib
import errno
import os
import stat
import time

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created
from posix_rules import mutant


class _Unmarked(PassThrough):
    """Sets mtime of a directory back."""

    def set_back(self, node: int, before: os.stat_result) -> None:
        self.reset_ids()
        os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def has(self, node: int, prefix: str) -> bool:
        """Whether a directory has an attribute whose name begins with ``prefix``."""
        with contextlib.suppress(OSError):
            return any(name.startswith(prefix) for name in os.listxattr(self.nodes[node].path))
        return False


@mutant("sticky-directory-mkdir-unmarked | mkdir(3p) | mkdir() in a sticky directory leaves its mtime")
class StickyDirectoryMkdirUnmarked(_Unmarked):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        before = os.fstat(self.fd(parent))
        node = super().mkdir(call, parent, name, mode, umask)
        if before.st_mode & stat.S_ISVTX:
            self.set_back(parent, before)
        return node


@mutant("setgid-directory-create-unmarked | open(3p) O_CREAT | a new file in a set-group-ID directory leaves "
        "its mtime")  # fmt: skip
class SetgidDirectoryCreateUnmarked(_Unmarked):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        before = os.fstat(self.fd(parent))
        created = super().create(call, parent, name, flags, mode, umask)
        if before.st_mode & stat.S_ISGID:
            self.set_back(parent, before)
        return created


@mutant(
    "acl-directory-unlink-unmarked | unlink(3p) | unlink() in a directory with a default ACL keeps its mtime"
)
class AclDirectoryUnlinkUnmarked(_Unmarked):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        before = os.fstat(self.fd(parent))
        super().unlink(call, parent, name)
        if self.has(parent, "system.posix_acl_default"):
            self.set_back(parent, before)


@mutant(
    "xattr-directory-rename-unmarked | rename(3p) | a move into a directory with attributes leaves its mtime"
)
class XattrDirectoryRenameUnmarked(_Unmarked):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if parent != where and self.has(where, "user."):
            self.set_back(where, before)


@mutant("future-directory-keeps-mtime | XBD 4.12 | mtime of a directory that is later than now stays")
class FutureDirectoryKeepsMtime(_Unmarked):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        before = os.fstat(self.fd(parent))
        super().unlink(call, parent, name)
        if before.st_mtime > time.time() + 60:
            self.set_back(parent, before)


@mutant(
    "removed-directory-fsync-refused | fsync(3p) | an open directory that was removed is not synchronised"
)
class RemovedDirectoryFsyncRefused(PassThrough):
    def fsyncdir(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        if os.fstat(handle).st_nlink == 0:
            raise OSError(errno.ENOENT, "fsync")
        super().fsyncdir(call, node, handle, data_only=data_only)


@mutant(
    "removed-directory-chmod-refused | fchmod(3p) | the mode of an open directory that was removed is not set"
)
class RemovedDirectoryChmodRefused(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        one = os.fstat(self.fd(node))
        if one.st_nlink == 0 and stat.S_ISDIR(one.st_mode):
            raise OSError(errno.ENOENT, "chmod")
        super().chmod(call, node, mode)
