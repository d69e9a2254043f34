"""Mutants that fail in one form of a value: struct fsxattr, wide groups, attributes that differ little."""

import errno
import os
import stat
from pathlib import Path

from fuse_passthrough import GETXATTR, SETXATTR, Entries, PassThrough
from fuse_protocol import Call, Created
from posix_iflags_mutants import flags_of, set_flags
from posix_rules import mutant

XFLAG_IMMUTABLE, XFLAG_APPEND, XFLAG_NODUMP = 0x08, 0x10, 0x80


@mutant(
    "fsxattr-without-append | ioctl_xfs_fsgetxattr(2) | FS_IOC_FSGETXATTR does not return FS_XFLAG_APPEND"
)
class FsxattrWithoutAppend(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        found = super().ioctl(call, node, handle, request, number)
        return found if found is None or request != GETXATTR else found & ~XFLAG_APPEND


@mutant("fsxattr-others-shown | ioctl_xfs_fsgetxattr(2) | an immutable file has FS_XFLAG_NODUMP, too")
class FsxattrOthersShown(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        found = super().ioctl(call, node, handle, request, number)
        if found is None or request != GETXATTR or not found & XFLAG_IMMUTABLE:
            return found
        return found | XFLAG_NODUMP


@mutant("fsxattr-not-stored | ioctl_xfs_fsgetxattr(2) | FS_IOC_FSSETXATTR succeeds and sets nothing")
class FsxattrNotStored(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        return None if request == SETXATTR else super().ioctl(call, node, handle, request, number)


@mutant("fsxattr-clears-nothing | ioctl_xfs_fsgetxattr(2) | FS_IOC_FSSETXATTR never clears a flag")
class FsxattrClearsNothing(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        if request != SETXATTR:
            return super().ioctl(call, node, handle, request, number)
        self.reset_ids()
        before = flags_of(handle)
        super().ioctl(call, node, handle, request, number)
        self.reset_ids()
        set_flags(handle, flags_of(handle) | before)
        return None


class _CutGroup(PassThrough):
    """What is made in a set-group-ID directory has its group in ``mask`` bits."""

    mask = 0

    def cut(self, parent: int, name: bytes) -> None:
        directory = os.fstat(self.fd(parent))
        group = directory.st_gid & self.mask
        if directory.st_mode & stat.S_ISGID and group != directory.st_gid:
            self.reset_ids()
            os.chown(name, -1, group, dir_fd=self.fd(parent), follow_symlinks=False)

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        made = super().mknod(call, parent, name, mode, device, umask)
        self.cut(parent, name)
        return made


@mutant("setgid-group-16-bit | inode(7): S_ISGID | a new file has the low 16 bits of its directory's group")
class SetgidGroup16Bit(_CutGroup):
    mask = 0xFFFF

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        self.cut(parent, name)
        return made


@mutant("setgid-group-31-bit | inode(7): S_ISGID | mknod() keeps 31 bits of the directory's group")
class SetgidGroup31Bit(_CutGroup):
    mask = 0x7FFFFFFF


class _Comparing(PassThrough):
    """setxattr() leaves a value of the same length if ``part`` of it is the same."""

    part = slice(None)

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if name.startswith(b"user.") and not flags & os.XATTR_CREATE:
            try:
                old = os.getxattr(self.nodes[node].path, name)
            except OSError:
                old = b""
            if old and len(old) == len(value) and old[self.part] == value[self.part]:
                return
        super().setxattr(call, node, name, value, flags)


@mutant("xattr-compared-in-part | setxattr(2) | a value that begins with the same 8 bytes is not replaced")
class XattrComparedInPart(_Comparing):
    part = slice(0, 8)


@mutant("xattr-tail-compared-only | setxattr(2) | a value that ends with the same 4 bytes is not replaced")
class XattrTailComparedOnly(_Comparing):
    part = slice(-4, None)


@mutant(
    "xattr-change-shared-by-files | setxattr(2) | files of one value share it: a change is of all of them"
)
class XattrChangeSharedByFiles(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        files: dict[tuple[bytes, bytes], set[int]] = self.__dict__.setdefault("files", {})
        sharing = next((one for (of, _), one in files.items() if of == name and node in one), set())
        super().setxattr(call, node, name, value, flags)
        for other in sharing - {node}:
            if other in self.nodes:
                super().setxattr(call, other, name, value, 0)
        if not sharing:
            files.setdefault((name, value), set()).add(node)


class _EmptyForRmdir(PassThrough):
    """rmdir() removes a directory whose entries are all ``ignored``."""

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            self.reset_ids()
            directory = Path(f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(name)}")
            inside = list(directory.iterdir())
            if not all(self.ignored(os.fsencode(one.name)) and one.is_file() for one in inside):
                raise
            for one in inside:
                one.unlink()
            directory.rmdir()

    def ignored(self, name: bytes) -> bool:
        raise NotImplementedError


@mutant("rmdir-takes-two-bytes-for-dots | rmdir(3p) [ENOTEMPTY] | a name of two bytes, a dot first, is as ..")
class RmdirTakesTwoBytesForDots(_EmptyForRmdir):
    def ignored(self, name: bytes) -> bool:
        return len(name) == 2 and name.startswith(b".")


@mutant("rmdir-takes-dots-for-dots | rmdir(3p) [ENOTEMPTY] | a name of three dots is as ..")
class RmdirTakesDotsForDots(_EmptyForRmdir):
    def ignored(self, name: bytes) -> bool:
        return not name.strip(b".")


class _LongerNames(PassThrough):
    """``longer`` returns the longest name in a directory that begins with ``name``."""

    def longer(self, parent: int, name: bytes) -> bytes:
        self.reset_ids()
        found = os.listdir(f"/proc/self/fd/{self.fd(parent)}")
        return max((one for one in map(os.fsencode, found) if one.startswith(name)), key=len, default=name)


@mutant("unlink-takes-longer-name | XBD 4.16 | unlink() removes the longest name that begins with its own")
class UnlinkTakesLongerName(_LongerNames):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, self.longer(parent, name))


@mutant("rmdir-takes-longer-name | XBD 4.16 | rmdir() removes the longest name that begins with its own")
class RmdirTakesLongerName(_LongerNames):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(call, parent, self.longer(parent, name))


@mutant("rename-takes-longer-name | XBD 4.16 | rename() moves the longest name that begins with the old one")
class RenameTakesLongerName(_LongerNames):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, self.longer(parent, old), where, new, flags)


@mutant(
    "lookup-finds-longer-name | XBD 4.16 | a name that is not there is found if a longer one begins with it"
)
class LookupFindsLongerName(_LongerNames):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            return super().lookup(call, parent, self.longer(parent, name))


@mutant("readdir-later-types-file | readdir(3) d_type | entries behind the first reply are regular files")
class ReaddirLaterTypesFile(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        regular = stat.S_IFREG >> 12
        return [(ino, cookie, regular, name) for ino, cookie, _, name in found] if offset else found


@mutant(
    "readdir-later-types-shifted | readdir(3) d_type | behind the first reply each has the type of the next"
)
class ReaddirLaterTypesShifted(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        if not offset or len(found) < 2:
            return found
        kinds = [one[2] for one in found[1:]] + [found[0][2]]
        return [(ino, cookie, kind, name) for (ino, cookie, _, name), kind in zip(found, kinds, strict=True)]
