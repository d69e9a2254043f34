"""Names: rename, link, symlink, unlink and what a name may be made of."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
import unicodedata
from pathlib import Path
from typing import Any

from fuse_passthrough import Bending, PassThrough, attributes
from fuse_protocol import Attributes, Call
from posix_rules import asked_by, makes, mutant, opens_with, overriding


def _empty(path: str) -> None:
    for one in os.scandir(path):
        if one.is_dir(follow_symlinks=False):
            shutil.rmtree(one.path)
        else:
            Path(one.path).unlink()


def _renamed(files: Renaming, call: Call, *arguments: Any) -> tuple[Any, ...]:
    return call, *(files.renamed(each) if isinstance(each, bytes) else each for each in arguments)


@overriding(_renamed, "lookup", "create", "mkdir", "mknod", "link", "unlink", "rmdir", "rename")
class Renaming(PassThrough):
    """Every name of a request, as ``renamed`` has it: what is stored is not what was asked for."""

    def renamed(self, name: bytes) -> bytes:
        raise NotImplementedError

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, self.renamed(name), target)


@mutant("name-cut | pathconf(3p) _PC_NAME_MAX | only the first 200 bytes of a name are stored")
class NameCut(Renaming):
    def renamed(self, name: bytes) -> bytes:
        return name[:200]


@mutant("name-too-long-cut | open(3p) [ENAMETOOLONG] | a name over NAME_MAX is truncated instead of refused")
class NameTooLongCut(Renaming):
    def renamed(self, name: bytes) -> bytes:
        return name[:255]


@mutant("name-max-refused | pathconf(3p) _PC_NAME_MAX | a name of NAME_MAX bytes is refused")
class NameMaxRefused(Renaming):
    def renamed(self, name: bytes) -> bytes:
        if len(name) > 254:
            raise OSError(errno.ENAMETOOLONG, "name")
        return name


@mutant("name-normalised | XBD 4.13 | the NFC and NFD forms of a letter are one name")
class NameNormalised(Renaming):
    def renamed(self, name: bytes) -> bytes:
        text = name.decode(errors="surrogateescape")
        return unicodedata.normalize("NFC", text).encode(errors="surrogateescape")


@mutant("name-case-folded | XBD 3.170 | names are case-insensitive")
class NameCaseFolded(Renaming):
    def renamed(self, name: bytes) -> bytes:
        return name.lower()


@mutant(
    "name-odd-refused | XBD 3.170 | a name with a character that another operating system forbids is refused",
)
class NameOddRefused(Renaming):
    def renamed(self, name: bytes) -> bytes:
        if any(one in name for one in b'\\:*?"<>|') or any(one < 0x20 for one in name):
            raise OSError(errno.EINVAL, "name")
        return name


@mutant("name-space-stripped | XBD 3.170 | a space or a dot at the end of a name is removed")
class NameSpaceStripped(Renaming):
    def renamed(self, name: bytes) -> bytes:
        return name.rstrip(b" .") or name


@mutant("absent-wrong-errno | open(3p) [ENOENT] | a missing file is an input/output error")
class AbsentWrongErrno(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            if makes(call, name) or opens_with(call, os.O_CREAT) or asked_by(call, "rename"):
                raise  # it is to be made
            raise OSError(errno.EIO, "name") from None


@mutant("rename-not-atomic | rename(3p) | a name that a rename replaces is absent for a moment")
class RenameNotAtomic(PassThrough):
    ABSENT = 2.0

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.absent: dict[tuple[int, bytes], float] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        there = os.access(new, os.F_OK, dir_fd=self.fd(where), follow_symlinks=False)
        super().rename(call, parent, old, where, new, flags)
        if there:
            self.absent[where, new] = time.monotonic() + self.ABSENT

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.absent.get((parent, name), 0.0) > time.monotonic():
            raise FileNotFoundError(errno.ENOENT, "being renamed")
        return super().lookup(call, parent, name)


@mutant("rename-old-stays | rename(3p) | a renamed file also keeps its old name")
class RenameOldStays(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        mode = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISREG(mode) and flags == 0:
            os.link(new, old, src_dir_fd=self.fd(where), dst_dir_fd=self.fd(parent))


@mutant("rename-copies | rename(3p) | a renamed file is a new file")
class RenameCopies(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        source = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False)
        if not stat.S_ISREG(source.st_mode) or flags:
            super().rename(call, parent, old, where, new, flags)
            return
        copy = f"/proc/self/fd/{self.fd(parent)}/.copying"
        shutil.copy2(f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(old)}", copy)
        os.chown(copy, source.st_uid, source.st_gid)
        os.rename(b".copying", new, src_dir_fd=self.fd(parent), dst_dir_fd=self.fd(where))
        os.unlink(old, dir_fd=self.fd(parent))


@mutant("rename-full-directory | rename(3p) [ENOTEMPTY] | a rename replaces a directory that is not empty")
class RenameFullDirectory(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        target = f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}"
        if flags == 0 and Path(target).is_dir():
            _empty(target)
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-noreplace-ignored | renameat2(2) RENAME_NOREPLACE | RENAME_NOREPLACE replaces the target")
class RenameNoreplaceIgnored(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if asked_by(call, "renameat2"):
            _, words = call.waits_in()
            if len(words) > 4 and words[4] & 1 and call.name_at(words[3]) == name:
                raise FileNotFoundError(errno.ENOENT, "to be replaced")
        return super().lookup(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags & ~1)


@mutant("rename-exchange-moves | renameat2(2) RENAME_EXCHANGE | RENAME_EXCHANGE replaces the target")
class RenameExchangeMoves(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags & ~2)


@mutant("link-copies | link(3p) | link creates a copy")
class LinkCopies(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.as_caller(call)
        source = self.nodes[old].path
        if not stat.S_ISREG(os.stat(source).st_mode):
            return super().link(call, old, parent, name)
        copy = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self.fd(parent))
        os.close(copy)
        shutil.copy2(source, f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(name)}")
        return self.node_at(self.fd(parent), name)


@mutant("link-not-counted | link(3p), <sys/stat.h> st_nlink | the link count of every file is one")
class LinkNotCounted(Bending):
    def bend(self, found: Attributes) -> None:
        if not stat.S_ISDIR(found.mode):
            found.nlink = min(found.nlink, 1)


@mutant(
    "unlinked-still-counted | unlink(3p), <sys/stat.h> st_nlink | "
    "the link count of an unlinked open file is one"
)
class UnlinkedStillCounted(Bending):
    def bend(self, found: Attributes) -> None:
        found.nlink = max(found.nlink, 1)


@mutant("unlink-not-done | unlink(3p) | an unlinked name still exists")
class UnlinkNotDone(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.as_caller(call)
        os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)


def _still_linked(files: PassThrough, call: Call, node: int, *arguments: Any) -> tuple[Any, ...]:
    if os.fstat(files.fd(node)).st_nlink == 0:
        raise OSError(errno.ESTALE, "unlinked")
    return call, node, *arguments


@mutant("unlinked-open-stale | unlink(3p) | a file that is unlinked while open returns ESTALE")
@overriding(_still_linked, "read", "write")
class UnlinkedOpenStale(PassThrough):
    pass


@mutant("symlink-target-cut | readlink(3p) | a symbolic link's target is truncated after 100 bytes")
class SymlinkTargetCut(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target[:100])


@mutant("symlink-target-tidied | symlink(3p) | a symbolic link's target is normalized: a//b becomes a/b")
class SymlinkTargetTidied(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, os.path.normpath(target))


@mutant("symlink-size-zero | <sys/stat.h> st_size | a symbolic link's size differs from its target's length")
class SymlinkSizeZero(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISLNK(found.mode):
            found.size = 0


@mutant("fifo-is-a-file | mkfifo(3p) | mkfifo creates a regular file")
class FifoIsAFile(PassThrough):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        if stat.S_ISFIFO(mode):
            mode = stat.S_IMODE(mode) | stat.S_IFREG
        return super().mknod(call, parent, name, mode, device, umask)


@mutant("device-number-lost | mknod(3p) | a device node has the number 0")
class DeviceNumberLost(PassThrough):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        return super().mknod(call, parent, name, mode, 0, umask)


@mutant("inode-not-stable | <sys/stat.h> st_ino | st_ino changes with each call")
class InodeNotStable(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = attributes(os.fstat(self.fd(node)))
        found.ino += call.unique
        return found
