"""Mutants that change what a call leaves alone, or require of a descriptor or a mode what is not required."""

import errno
import fcntl
import os
import re
import stat
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created
from posix_rules import asked_by, mutant


def _drop(self: PassThrough, node: int, bits: int) -> None:
    """Clear bits of the mode of a node."""
    mode = stat.S_IMODE(os.fstat(self.fd(node)).st_mode)
    if mode & bits:
        self.reset_ids()
        os.chmod(self.nodes[node].path, mode & ~bits)


@mutant("utimens-drops-set-id-bits | utimensat(3p) | S_ISUID and S_ISGID are cleared when times are set")
class UtimensDropsSetIdBits(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        _drop(self, node, stat.S_ISUID | stat.S_ISGID)


@mutant("chown-drops-sticky-bit | chown(3p) | chown of a directory clears S_ISVTX")
class ChownDropsStickyBit(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        if stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            _drop(self, node, stat.S_ISVTX)


@mutant("write-drops-sticky-bit | write(3p) | a user's write clears S_ISVTX with the set-ID bits")
class WriteDropsStickyBit(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        if call.uid:
            _drop(self, node, 0o7000)
        return done


def _opened_for_reading(call: Call) -> bool:
    """Whether the first argument of the system call is a descriptor that is open for reading only."""
    _, words = call.waits_in()
    try:
        text = Path(f"/proc/{call.pid}/fdinfo/{words[0]}").read_text(encoding="ascii")
    except (OSError, IndexError):
        return False
    found = re.search(r"flags:\s+([0-7]+)", text)
    return found is not None and int(found[1], 8) & os.O_ACCMODE == os.O_RDONLY


@mutant("fchmod-needs-writing | fchmod(3p) [EBADF] | EBADF for a descriptor that is open for reading")
class FchmodNeedsWriting(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if asked_by(call, "fchmod") and _opened_for_reading(call):
            raise OSError(errno.EBADF, "fchmod")
        super().chmod(call, node, mode)


@mutant("fchown-needs-writing | fchown(3p) [EBADF] | EBADF for a descriptor that is open for reading")
class FchownNeedsWriting(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if asked_by(call, "fchown") and _opened_for_reading(call):
            raise OSError(errno.EBADF, "fchown")
        super().chown(call, node, uid, gid)


@mutant("symlink-target-made-utf-8 | symlink(3p) | what is no UTF-8 becomes a replacement character")
class SymlinkTargetMadeUtf8(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target.decode(errors="replace").encode())


@mutant("symlink-target-stripped | symlink(3p) | white space at the end of the target is left out")
class SymlinkTargetStripped(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target.rstrip() or target)


class OwnersAttributes(PassThrough):
    """Knows whether the owner asks for a user attribute."""

    def is_owner(self, call: Call, node: int, name: bytes) -> bool:
        return name.startswith(b"user.") and call.uid == os.fstat(self.fd(node)).st_uid


@mutant("xattr-set-by-owner | xattr(7) | the owner sets user attributes, whatever the mode")
class XattrSetByOwner(OwnersAttributes):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if not self.is_owner(call, node, name):
            super().setxattr(call, node, name, value, flags)
            return
        self.reset_ids()
        os.setxattr(self.nodes[node].path, name, value, flags)


@mutant("xattr-read-by-owner | xattr(7) | the owner reads user attributes, whatever the mode")
class XattrReadByOwner(OwnersAttributes):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        if not self.is_owner(call, node, name):
            return super().getxattr(call, node, name)
        self.reset_ids()
        return os.getxattr(self.nodes[node].path, name)


@mutant(
    "xattr-removed-by-owner-only | xattr(7) | who may write and is not the owner removes no user attribute"
)
class XattrRemovedByOwnerOnly(OwnersAttributes):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        if call.uid and name.startswith(b"user.") and not self.is_owner(call, node, name):
            raise OSError(errno.EPERM, "removexattr")
        super().removexattr(call, node, name)


@mutant(
    "excl-needs-mode | open(3p) O_EXCL | EACCES to a user who makes a file of a mode without write permission"
)
class ExclNeedsMode(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        if flags & os.O_EXCL and flags & os.O_ACCMODE and call.uid and not mode & stat.S_IWUSR:
            os.close(made[1].handle)
            raise OSError(errno.EACCES, "open")
        return made


@mutant("fallocate-of-append-refused | fallocate(2) [EBADF] | EBADF for a descriptor with O_APPEND")
class FallocateOfAppendRefused(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_APPEND:
            raise OSError(errno.EBADF, "fallocate")
        super().fallocate(call, node, handle, offset, length, mode)
