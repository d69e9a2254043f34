"""Who may: each mutant does as root what the caller asks for, or keeps a bit that should go."""

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuse_passthrough import PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, asked_by, mutant, overriding


def as_root(files: PassThrough, call: Call, *arguments: Any) -> tuple[Any, ...]:
    return Call(call.unique, call.node, 0, 0, call.pid), *arguments


@mutant("open-by-any-user | open(3p) [EACCES] | open succeeds without permission")
@overriding(as_root, "open")
class OpenByAnybody(PassThrough):
    pass


@mutant("search-by-any-user | open(3p) [EACCES] | names are found in a directory without search permission")
@overriding(as_root, "lookup")
class SearchByAnybody(PassThrough):
    pass


@mutant(
    "create-by-any-user | open(3p) [EACCES] | files can be created in a directory without write permission"
)
class CreateByAnybody(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(*as_root(self, call, parent, name, flags, mode, umask))
        os.chown(opened.handle, call.uid, call.gid)
        return node, opened


@mutant("mkdir-by-any-user | mkdir(3p) [EACCES] | directories can be created without write permission")
@overriding(as_root, "mkdir")
class MkdirByAnybody(PassThrough):
    pass


@mutant("unlink-by-any-user | unlink(3p) [EACCES] | names can be removed without write permission")
@overriding(as_root, "unlink")
class UnlinkByAnybody(PassThrough):
    pass


@mutant("rename-by-any-user | rename(3p) [EACCES] | names can be changed without write permission")
@overriding(as_root, "rename")
class RenameByAnybody(PassThrough):
    pass


@mutant("names-by-any-user | mkdir(3p), unlink(3p) [EACCES] | any user can create, remove or rename any name")
@overriding(as_root, "create", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename")
class NamesByAnybody(PassThrough):
    pass


@mutant("chmod-by-any-user | chmod(3p) [EPERM] | a user who does not own a file can change its mode")
@overriding(as_root, "chmod")
class ChmodByAnybody(PassThrough):
    pass


@mutant("chown-by-any-user | chown(3p) [EPERM] | an owner can give a file to another user")
@overriding(as_root, "chown")
class ChownByAnybody(PassThrough):
    pass


@mutant("utimens-by-any-user | futimens(3p) [EPERM] | a user who does not own a file can set its times")
@overriding(as_root, "utimens")
class UtimensByAnybody(PassThrough):
    pass


@mutant("truncate-by-any-user | truncate(3p) [EACCES] | a file can be truncated without permission")
@overriding(as_root, "truncate")
class TruncateByAnybody(PassThrough):
    pass


@mutant("readdir-by-any-user | opendir(3p) [EACCES] | a directory can be listed without permission")
@overriding(as_root, "opendir")
class ReaddirByAnybody(PassThrough):
    pass


@mutant("access-always | access(3p) [EACCES] | access succeeds for every user")
class AccessAlways(PassThrough):
    def access(self, call: Call, node: int, mask: int) -> None:
        """Permit the access."""


@mutant("xattr-by-any-user | setxattr(2) [EACCES] | attributes can be set without write permission")
@overriding(as_root, "setxattr")
class XattrByAnybody(PassThrough):
    pass


@mutant("groups-ignored | setgroups(2), XBD 4.7 | supplementary groups give no permission")
class GroupsIgnored(PassThrough):
    def as_caller(self, call: Call, umask: int = 0) -> None:
        # 0 is no process: it has no groups.
        super().as_caller(Call(call.unique, call.node, call.uid, call.gid, 0), umask)


@mutant("sticky-ignored | unlink(3p), rename(3p) [EPERM] S_ISVTX | the sticky bit of a directory is ignored")
@overriding(as_root, "unlink", "rmdir", "rename")
class StickyIgnored(PassThrough):
    """The kernel looks at the bit by itself: so it is kept from it while a name is to go."""

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if found.mode & stat.S_ISVTX and asked_by(call, "unlink", "rmdir", "rename"):
            found.mode &= ~stat.S_ISVTX
        return found


@mutant("setuid-kept-on-chown | chown(3p) S_ISUID | chown does not clear the set-user-ID bit")
class SetuidKeptOnChown(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        path = self.nodes[node].path
        mode = os.stat(path).st_mode
        super().chown(call, node, uid, gid)
        if stat.S_ISREG(mode):
            self.reset_ids()
            os.chmod(path, stat.S_IMODE(mode))


@mutant(
    "setgid-kept-on-chmod | chmod(3p) S_ISGID | a user outside of a file's group can set its set-group-ID bit"
)
class SetgidKeptOnChmod(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        if mode & stat.S_ISGID:
            self.reset_ids()
            os.chmod(self.nodes[node].path, mode)


@mutant("acl-ignored | acl(5) | an access ACL is accepted and not stored")
class AclIgnored(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if name != b"system.posix_acl_access":
            super().setxattr(call, node, name, value, flags)


@mutant("acl-not-inherited | acl(5) | a default ACL is not inherited")
class AclNotInherited(PassThrough):
    def _drop(self, path: str) -> None:
        self.reset_ids()
        for name in os.listxattr(path):
            if name.startswith("system.posix_acl"):
                os.removexattr(path, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._drop(self.nodes[node].path)
        return node, opened

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self._drop(self.nodes[node].path)
        return node


@mutant("acl-default-grants | acl(5) | permission depends on the mode only, not on the ACL")
class AclDefaultGrants(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        found = os.stat(self.nodes[node].path)
        wanted = {os.O_RDONLY: 4, os.O_WRONLY: 2, os.O_RDWR: 6}[flags & os.O_ACCMODE]
        if call.uid and not found.st_uid == call.uid and found.st_mode & wanted != wanted:
            raise PermissionError(13, "mode")
        return super().open(call, node, flags)


@mutant("chmod-by-group | chmod(3p) [EPERM] | members of the file's group can change its mode")
class ChmodByGroup(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if os.fstat(self.fd(node)).st_gid == call.gid:
            self.reset_ids()
            os.chmod(self.nodes[node].path, mode)
        else:
            super().chmod(call, node, mode)


@mutant("access-of-directories-always | access(3p) [EACCES] | access() of a directory always succeeds")
class AccessOfDirectoriesAlways(PassThrough):
    def access(self, call: Call, node: int, mask: int) -> None:
        if not stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            super().access(call, node, mask)


@mutant("times-by-owner-only | utimensat(3p) | with write permission alone the times cannot be set to now")
class TimesByOwnerOnly(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if call.uid not in (0, os.fstat(self.fd(node)).st_uid):
            raise PermissionError(errno.EPERM, "utimens")
        super().utimens(call, node, atime, mtime)


@mutant(
    "one-time-to-now-by-writer | utimensat(3p) [EPERM] | a writer sets one time to now and leaves the other"
)
class OneTimeToNowByWriter(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if {atime, mtime} == {"now", None} and os.fstat(self.fd(node)).st_mode & 0o002:
            call = replace(call, uid=0)
        super().utimens(call, node, atime, mtime)


@mutant(
    "one-time-to-now-by-owner-refused | utimensat(3p) | an owner without write permission is refused "
    "UTIME_NOW"
)
class OneTimeToNowByOwnerRefused(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if call.uid and "now" in (atime, mtime) and not os.fstat(self.fd(node)).st_mode & 0o200:
            raise PermissionError(errno.EACCES, "utimens")
        super().utimens(call, node, atime, mtime)


@mutant("opened-once-readable | open(3p) [EACCES] | a file that one user opened can be read by each")
class OpenedOnceReadable(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.opened: set[int] = set()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if node in self.opened and flags & os.O_ACCMODE == os.O_RDONLY:
            self.reset_ids()
            return Opened(os.open(self.nodes[node].path, os.O_RDONLY))
        opened = super().open(call, node, flags)
        self.opened.add(node)
        return opened


@mutant("searched-once-searchable | open(3p) [EACCES] | a user who found a name keeps search permission")
class SearchedOnceSearchable(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.searched: set[tuple[int, int]] = set()

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if (call.uid, parent) in self.searched:
            self.reset_ids()
            return self.node_at(self.fd(parent), name)
        found = super().lookup(call, parent, name)
        self.searched.add((call.uid, parent))
        return found
