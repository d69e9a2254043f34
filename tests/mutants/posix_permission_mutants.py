"""Who may: each mutant does as root what the caller asks for, or keeps a bit that should go."""

from __future__ import annotations

import os
import stat

from fuse_passthrough import PassThrough
from fuse_protocol import Attributes, Call, Opened
from posix_rules import asked_by, mutant


def as_root(call: Call) -> Call:
    return Call(call.unique, call.node, 0, 0, call.pid)


@mutant("open-by-any-user", "open(3p) [EACCES]", "open succeeds without permission")
class OpenByAnybody(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        return super().open(as_root(call), node, flags)


@mutant("search-by-any-user", "open(3p) [EACCES]", "names are found in a directory without search permission")
class SearchByAnybody(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(as_root(call), parent, name)


@mutant(
    "create-by-any-user", "open(3p) [EACCES]", "files can be created in a directory without write permission"
)
class CreateByAnybody(PassThrough):
    def create(
        self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int
    ) -> tuple[int, Opened]:
        node, opened = super().create(as_root(call), parent, name, flags, mode, umask)
        os.chown(opened.handle, call.uid, call.gid)
        return node, opened


@mutant("mkdir-by-any-user", "mkdir(3p) [EACCES]", "directories can be created without write permission")
class MkdirByAnybody(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(as_root(call), parent, name, mode, umask)


@mutant("unlink-by-any-user", "unlink(3p) [EACCES]", "names can be removed without write permission")
class UnlinkByAnybody(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(as_root(call), parent, name)


@mutant("rename-by-any-user", "rename(3p) [EACCES]", "names can be changed without write permission")
class RenameByAnybody(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(as_root(call), parent, old, where, new, flags)


@mutant(
    "names-by-any-user", "mkdir(3p), unlink(3p) [EACCES]", "any user can create, remove or rename any name"
)
class NamesByAnybody(PassThrough):
    def create(
        self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int
    ) -> tuple[int, Opened]:
        return super().create(as_root(call), parent, name, flags, mode, umask)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(as_root(call), parent, name, mode, umask)

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        return super().mknod(as_root(call), parent, name, mode, device, umask)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(as_root(call), parent, name, target)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        return super().link(as_root(call), old, parent, name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(as_root(call), parent, name)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(as_root(call), parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(as_root(call), parent, old, where, new, flags)


@mutant("chmod-by-any-user", "chmod(3p) [EPERM]", "a user who does not own a file can change its mode")
class ChmodByAnybody(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(as_root(call), node, mode)


@mutant("chown-by-any-user", "chown(3p) [EPERM]", "an owner can give a file to another user")
class ChownByAnybody(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(as_root(call), node, uid, gid)


@mutant("utimens-by-any-user", "futimens(3p) [EPERM]", "a user who does not own a file can set its times")
class UtimensByAnybody(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(as_root(call), node, atime, mtime)


@mutant("truncate-by-any-user", "truncate(3p) [EACCES]", "a file can be truncated without permission")
class TruncateByAnybody(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(as_root(call), node, handle, size)


@mutant("readdir-by-any-user", "opendir(3p) [EACCES]", "a directory can be listed without permission")
class ReaddirByAnybody(PassThrough):
    def opendir(self, call: Call, node: int) -> Opened:
        return super().opendir(as_root(call), node)


@mutant("access-always", "access(3p) [EACCES]", "access succeeds for every user")
class AccessAlways(PassThrough):
    def access(self, call: Call, node: int, mask: int) -> None:
        """Permit the access."""


@mutant("xattr-by-any-user", "setxattr(2) [EACCES]", "attributes can be set without write permission")
class XattrByAnybody(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(as_root(call), node, name, value, flags)


@mutant("groups-ignored", "setgroups(2), XBD 4.7", "supplementary groups give no permission")
class GroupsIgnored(PassThrough):
    def as_caller(self, call: Call, umask: int = 0) -> None:
        # 0 is no process: it has no groups.
        super().as_caller(Call(call.unique, call.node, call.uid, call.gid, 0), umask)


@mutant(
    "sticky-ignored", "unlink(3p), rename(3p) [EPERM] S_ISVTX", "the sticky bit of a directory is ignored"
)
class StickyIgnored(PassThrough):
    """The kernel looks at the bit by itself: so it is kept from it while a name is to go."""

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if found.mode & stat.S_ISVTX and asked_by(call, "unlink", "rmdir", "rename"):
            found.mode &= ~stat.S_ISVTX
        return found

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(as_root(call), parent, name)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(as_root(call), parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(as_root(call), parent, old, where, new, flags)


@mutant("setuid-kept-on-chown", "chown(3p) S_ISUID", "chown does not clear the set-user-ID bit")
class SetuidKeptOnChown(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        path = self.nodes[node].path
        mode = os.stat(path).st_mode
        super().chown(call, node, uid, gid)
        if stat.S_ISREG(mode):
            self.reset_ids()
            os.chmod(path, stat.S_IMODE(mode))


@mutant(
    "setgid-kept-on-chmod",
    "chmod(3p) S_ISGID",
    "a user outside of a file's group can set its set-group-ID bit",
)
class SetgidKeptOnChmod(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        if mode & stat.S_ISGID:
            self.reset_ids()
            os.chmod(self.nodes[node].path, mode)


@mutant("acl-ignored", "acl(5)", "an access ACL is accepted and not stored")
class AclIgnored(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if name != b"system.posix_acl_access":
            super().setxattr(call, node, name, value, flags)


@mutant("acl-not-inherited", "acl(5)", "a default ACL is not inherited")
class AclNotInherited(PassThrough):
    def _drop(self, path: str) -> None:
        self.reset_ids()
        for name in os.listxattr(path):
            if name.startswith("system.posix_acl"):
                os.removexattr(path, name)

    def create(
        self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int
    ) -> tuple[int, Opened]:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._drop(self.nodes[node].path)
        return node, opened

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self._drop(self.nodes[node].path)
        return node


@mutant("acl-default-grants", "acl(5)", "permission depends on the mode only, not on the ACL")
class AclDefaultGrants(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        found = os.stat(self.nodes[node].path)
        wanted = {os.O_RDONLY: 4, os.O_WRONLY: 2, os.O_RDWR: 6}[flags & os.O_ACCMODE]
        if call.uid and not found.st_uid == call.uid and found.st_mode & wanted != wanted:
            raise PermissionError(13, "mode")
        return super().open(call, node, flags)
