"""Mutants of sockets, devices and symbolic links: what a call does to files that are no regular ones.

The rules: chmod(), lchown(), utimensat(), link() and RENAME_NOREPLACE do to each kind of file what they do to
a regular one.
"""

import errno
import os
import stat
from pathlib import Path

from fuse_passthrough import Bending, PassThrough
from fuse_protocol import Attributes, Call
from posix_rules import Keeping, mutant


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


@mutant("chmod-of-device-ignored | chmod(3p) | the mode of a device is not changed")
class ChmodOfDeviceIgnored(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if not _is_device(os.fstat(self.fd(node)).st_mode):
            super().chmod(call, node, mode)


@mutant("chown-of-socket-ignored | chown(3p) | the owner of a socket is not changed")
class ChownOfSocketIgnored(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if not stat.S_ISSOCK(os.fstat(self.fd(node)).st_mode):
            super().chown(call, node, uid, gid)


@mutant("chown-of-device-ignored | chown(3p) | the owner of a device is not changed")
class ChownOfDeviceIgnored(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if not _is_device(os.fstat(self.fd(node)).st_mode):
            super().chown(call, node, uid, gid)


@mutant("utimens-of-socket-ignored | utimensat(3p) | the times of a socket are not set")
class UtimensOfSocketIgnored(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if not stat.S_ISSOCK(os.fstat(self.fd(node)).st_mode):
            super().utimens(call, node, atime, mtime)


@mutant("utimens-of-device-ignored | utimensat(3p) | the times of a device are not set")
class UtimensOfDeviceIgnored(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if not _is_device(os.fstat(self.fd(node)).st_mode):
            super().utimens(call, node, atime, mtime)


class _LinkKeepsCtime(Keeping):
    """Calls of ``hide`` leave the ctime that a symbolic link had."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._hidden: dict[int, tuple[int, int]] = {}

    def hide(self, node: int, before: os.stat_result) -> None:
        if stat.S_ISLNK(before.st_mode):
            shown = self._hidden.get(node, (0, before.st_ctime_ns))[1]
            self._hidden[node] = os.fstat(self.fd(node)).st_ctime_ns, shown

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        real, shown = self._hidden.get(node, (0, 0))
        if found.ctime == real:
            found.ctime = shown
        return found


@mutant("lchown-keeps-ctime | lchown(3p) | ctime of a symbolic link is not marked")
class LchownKeepsCtime(_LinkKeepsCtime):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        before = os.fstat(self.fd(node))
        super().chown(call, node, uid, gid)
        self.hide(node, before)


@mutant("utimens-of-link-keeps-ctime | utimensat(3p) | ctime of a symbolic link is not marked")
class UtimensOfLinkKeepsCtime(_LinkKeepsCtime):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        before = os.fstat(self.fd(node))
        super().utimens(call, node, atime, mtime)
        self.hide(node, before)


@mutant("link-of-link-keeps-ctime | link(3p) | a link of a symbolic link does not mark its ctime")
class LinkOfLinkKeepsCtime(_LinkKeepsCtime):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        before = os.fstat(self.fd(old))
        node = super().link(call, old, parent, name)
        self.hide(old, before)
        return node


@mutant("link-of-socket-refused | link(3p) | a socket cannot get a second name: EPERM")
class LinkOfSocketRefused(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if stat.S_ISSOCK(os.fstat(self.fd(old)).st_mode):
            raise OSError(errno.EPERM, "link")
        return super().link(call, old, parent, name)


@mutant("link-of-device-not-counted | link(3p), <sys/stat.h> st_nlink | a device has one link, ever")
class LinkOfDeviceNotCounted(Bending):
    def bend(self, found: Attributes) -> None:
        if _is_device(found.mode):
            found.nlink = 1


@mutant("noreplace-of-directory-refused | rename(2) RENAME_NOREPLACE | a directory is EINVAL")
class NoreplaceOfDirectoryRefused(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        kind = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode
        if flags == 1 and stat.S_ISDIR(kind):  # RENAME_NOREPLACE
            raise OSError(errno.EINVAL, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("noreplace-between-directories-copies | rename(2) RENAME_NOREPLACE | the old name stays, as a link")
class NoreplaceBetweenDirectoriesCopies(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        kind = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode
        if flags != 1 or parent == where or stat.S_ISDIR(kind):
            super().rename(call, parent, old, where, new, flags)
            return
        self.as_caller(call)
        os.link(old, new, src_dir_fd=self.fd(parent), dst_dir_fd=self.fd(where), follow_symlinks=False)
