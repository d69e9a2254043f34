"""Mutants of access control lists: what they grant in each call, and what a change of one leaves alone."""

import errno
import os
import stat

from fuse_passthrough import Bending, PassThrough
from fuse_protocol import Attributes, Call, Opened
from posix_rules import mutant

ACCESS, DEFAULT = b"system.posix_acl_access", "system.posix_acl_default"


def may_by_mode(call: Call, one: os.stat_result, bits: int) -> bool:
    """Whether owner, group and mode give these permissions: without ACL and supplementary groups."""
    shift = 6 if call.uid == one.st_uid else 3 if call.gid == one.st_gid else 0
    return call.uid == 0 or one.st_mode >> shift & bits == bits


class ByMode(PassThrough):
    """Honest; knows whom the mode alone refuses."""

    def check(self, call: Call, node: int, bits: int) -> None:
        if not may_by_mode(call, os.fstat(self.fd(node)), bits):
            raise OSError(errno.EACCES, "by the mode")


class AclChanges(PassThrough):
    """Drops bits of the mode when an access ACL is set."""

    drops = 0

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        before = os.fstat(self.fd(node)).st_mode
        super().setxattr(call, node, name, value, flags)
        if name == ACCESS and before & self.drops:
            self.reset_ids()
            os.chmod(self.nodes[node].path, stat.S_IMODE(os.fstat(self.fd(node)).st_mode) & ~self.drops)


@mutant("acl-change-drops-set-id-bits | acl(5) | an ACL that is set clears S_ISUID and S_ISGID")
class AclChangeDropsSetIdBits(AclChanges):
    drops = stat.S_ISUID | stat.S_ISGID


@mutant("acl-change-drops-sticky-bit | acl(5) | an ACL that is set clears S_ISVTX")
class AclChangeDropsStickyBit(AclChanges):
    drops = stat.S_ISVTX


@mutant("acl-change-leaves-ctime | inode(7) ctime | an ACL that is set leaves ctime, whatever mode it sets")
class AclChangeLeavesCtime(Bending):
    left: dict[int, tuple[int, int]]

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        before = self.getattr(call, node, None).ctime
        super().setxattr(call, node, name, value, flags)
        if name == ACCESS:
            found = os.fstat(self.fd(node))
            self.left = {found.st_ino: (found.st_ctime_ns, before)}

    def bend(self, found: Attributes) -> None:
        real, before = getattr(self, "left", {}).get(found.ino, (0, 0))
        if found.ctime == real:
            found.ctime = before


def _has_default(self: PassThrough, parent: int) -> bool:
    self.reset_ids()
    return DEFAULT in os.listxattr(self.nodes[parent].path)


@mutant("mkdir-below-default-acl-loses-setgid | inode(7) S_ISGID | mkdir in a directory with a default ACL "
        "does not pass on S_ISGID")  # fmt: skip
class MkdirBelowDefaultAclLosesSetgid(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        made = super().mkdir(call, parent, name, mode, umask)
        if call.uid and _has_default(self, parent):
            found = stat.S_IMODE(os.fstat(self.fd(made)).st_mode)
            os.chmod(self.nodes[made].path, found & ~stat.S_ISGID)
        return made


@mutant("group-below-default-acl-of-process | inode(7) S_ISGID | mkdir in a directory with a default ACL and "
        "S_ISGID gives the group of the process")  # fmt: skip
class GroupBelowDefaultAclOfProcess(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        made = super().mkdir(call, parent, name, mode, umask)
        if _has_default(self, parent):
            found = stat.S_IMODE(os.fstat(self.fd(made)).st_mode)
            os.chown(self.nodes[made].path, -1, call.gid)
            os.chmod(self.nodes[made].path, found)
        return made


@mutant(
    "utimes-now-by-mode-bits | acl(5) | times are set to now by whom the mode permits to write, not the ACL"
)
class UtimesNowByModeBits(ByMode):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if atime == mtime == "now" and call.uid != os.fstat(self.fd(node)).st_uid:
            self.check(call, node, os.W_OK)
        super().utimens(call, node, atime, mtime)


@mutant("truncate-by-mode-bits | acl(5) | a file is truncated by whom the mode permits to write, not the ACL")
class TruncateByModeBits(ByMode):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None:
            self.check(call, node, os.W_OK)
        super().truncate(call, node, handle, size)


@mutant("access-by-mode-bits | acl(5) | access() is by the mode, not the ACL")
class AccessByModeBits(ByMode):
    def access(self, call: Call, node: int, mask: int) -> None:
        if call.uid:
            self.check(call, node, mask)


@mutant("unlink-by-mode-bits | acl(5) | unlink and rmdir are by the directory's mode, not its ACL")
class UnlinkByModeBits(ByMode):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.check(call, parent, os.W_OK | os.X_OK)
        super().unlink(call, parent, name)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        self.check(call, parent, os.W_OK | os.X_OK)
        super().rmdir(call, parent, name)


@mutant("rename-by-mode-bits | acl(5) | rename is by the mode of the directories, not their ACLs")
class RenameByModeBits(ByMode):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        for one in (parent, where):
            self.check(call, one, os.W_OK | os.X_OK)
        super().rename(call, parent, old, where, new, flags)


@mutant("list-by-mode-bits | acl(5) | a directory is opened by its mode, not its ACL")
class ListByModeBits(ByMode):
    def opendir(self, call: Call, node: int) -> Opened:
        self.check(call, node, os.R_OK)
        return super().opendir(call, node)
