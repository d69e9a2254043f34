"""Mutants that break a rule of names and attributes in a detail: of one kind of file, from one length on."""

import errno
import os
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, mutant

MANY = 1_000
EXCHANGE = 2


@mutant(
    "rename-over-parent-times | rename() | over an existing name it leaves the times of the new directory"
)
class RenameOverParentTimes(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        existed = os.access(new, os.F_OK, dir_fd=self.fd(where), follow_symlinks=False)
        before = os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if existed and parent != where:
            self.reset_ids()
            os.utime(self.nodes[where].path, ns=(before.st_atime_ns, before.st_mtime_ns))


@mutant("rename-over-link-count | rename() | what is replaced keeps its count of links at its other name")
class RenameOverLinkCount(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.more: dict[int, int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            at = self.node_at(self.fd(where), new)
        except OSError:
            at = None
        super().rename(call, parent, old, where, new, flags)
        if at is not None and flags == 0 and os.fstat(self.fd(at)).st_nlink:
            self.more[at] = self.more.get(at, 0) + 1

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink += 0 if stat.S_ISDIR(found.mode) else self.more.get(node, 0)
        return found


@mutant("exchange-between-loses | renameat2(2) | RENAME_EXCHANGE between two directories is a plain rename")
class ExchangeBetweenLoses(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags & ~EXCHANGE if parent != where else flags)


@mutant("utimens-directory-seconds | utimensat() | times that a directory is given lose their nanoseconds")
class UtimensDirectorySeconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            atime, mtime = (one - one % 10**9 if isinstance(one, int) else one for one in (atime, mtime))
        super().utimens(call, node, atime, mtime)


@mutant("chmod-directory-sgid-sticky | chmod() | of a directory that is given 3777 the mode is 1777")
class ChmodDirectorySgidSticky(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        both = stat.S_ISGID | stat.S_ISVTX
        if mode & both == both and stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            mode &= ~stat.S_ISGID
        super().chmod(call, node, mode)


@mutant("chgrp-keeps-suid | chown() | set-user-ID survives that the owner changes the group alone")
class ChgrpKeepsSuid(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        before = os.fstat(self.fd(node)).st_mode
        super().chown(call, node, uid, gid)
        if uid in (-1, 0xFFFFFFFF) and stat.S_ISREG(before):
            self.reset_ids()
            os.chmod(self.nodes[node].path, stat.S_IMODE(before))


@mutant("ino-after-move | sys/stat.h | a directory that moved to another parent has another file number")
class InoAfterMove(Keeping):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if parent != where:
            self.__dict__.setdefault("moved", set()).add(self.node_at(self.fd(where), new))

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISDIR(found.mode) and node in self.__dict__.get("moved", ()):
            found.ino += 1 << 40
        return found


@mutant("symlink-size-255 | lstat() | st_size of a symlink of more than 255 bytes is 255")
class SymlinkSize255(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISLNK(found.mode):
            found.size = min(found.size, 255)
        return found


@mutant("readlink-again-cut | readlink() | from the second time on a target ends after 1,024 bytes")
class ReadlinkAgainCut(Keeping):
    def readlink(self, call: Call, node: int) -> bytes:
        seen: set[int] = self.__dict__.setdefault("seen", set())
        target = super().readlink(call, node)
        if node in seen:
            target = target[:1024]
        seen.add(node)
        return target


@mutant("namemax-lies | statvfs() | f_namemax is 1,024, and a name of 256 bytes is refused")
class NamemaxLies(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        return {**super().statfs(call, node), "namelen": 1024}


@mutant("access-no-groups | access() | supplementary groups do not count")
class AccessNoGroups(PassThrough):
    def access(self, call: Call, node: int, mask: int) -> None:
        one = os.fstat(self.fd(node))
        shift = 6 if call.uid == one.st_uid else 3 if call.gid == one.st_gid else 0
        if call.uid and mask & ~(one.st_mode >> shift) & 7:
            raise PermissionError(errno.EACCES, "access")
        super().access(call, node, mask)


@mutant(
    "create-no-groups | open(), EACCES | supplementary groups do not count for making a file in a directory"
)
class CreateNoGroups(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        one = os.fstat(self.fd(parent))
        shift = 6 if call.uid == one.st_uid else 3 if call.gid == one.st_gid else 0
        if call.uid and not one.st_mode >> shift & 2:
            raise PermissionError(errno.EACCES, "create")
        return super().create(call, parent, name, flags, mode, umask)


def _entries_of(files: PassThrough, node: int) -> int:
    """Return how many names a directory has."""
    files.reset_ids()
    return len(os.listdir(f"/proc/self/fd/{files.fd(node)}"))


@mutant("readdir-removed-skips | readdir() | who removes names while he reads > 1,000 of them misses as many")
class ReaddirRemovedSkips(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.large: set[int] = set()
        self.removed: dict[int, int] = {}

    def opendir(self, call: Call, node: int) -> Opened:
        if _entries_of(self, node) > MANY:
            self.large.add(node)
        self.removed[node] = 0
        return super().opendir(call, node)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        if parent in self.large:
            self.removed[parent] = self.removed.get(parent, 0) + 1

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        gone = self.removed.get(node, 0)
        self.removed[node] = 0
        return found[min(gone, max(0, len(found) - 1)) :]


@mutant("readdir-twice-at-buffer | readdir() | the last name of one buffer is the first of the next one")
class ReaddirTwiceAtBuffer(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        last: dict[int, tuple[int, int, int, bytes]] = self.__dict__.setdefault("last", {})
        before = last.pop(handle, None)
        if found and offset:
            last[handle] = found[-1]
        if found and not offset:
            last[handle] = found[-1]
        if before is not None and offset and found:
            return [before, *found] if before[1] == offset else found
        return found


@mutant("seekdir-one-later | seekdir() | after it the first name that is read is the next but one")
class SeekdirOneLater(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        ends: dict[int, set[int]] = self.__dict__.setdefault("ends", {})
        if offset == 0:
            ends[handle] = set()
        found = super().readdir(call, node, handle, offset, size)
        ends.setdefault(handle, set())
        sought = offset and os.lseek(handle, 0, os.SEEK_CUR) and offset in ends[handle]
        ends[handle].update(one[1] for one in found)
        where: dict[int, int] = self.__dict__.setdefault("where", {})
        followed = where.get(handle)
        where[handle] = found[-1][1] if found else offset
        if sought and followed is not None and offset != followed and len(found) > 1:
            return found[1:]
        return found


@mutant("rewinddir-old-state | rewinddir() | after it the directory is listed as it was at its opendir()")
class RewinddirOldState(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        lists: dict[int, Entries] = self.__dict__.setdefault("lists", {})
        if handle not in lists:
            lists[handle] = []
            at = 0
            while more := super().readdir(call, node, handle, at, 1 << 15):
                lists[handle] += more
                at = more[-1][1]
        entries = lists[handle]
        start = next((place + 1 for place, one in enumerate(entries) if one[1] == offset), 0)
        return entries[start:] if offset else entries

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self.__dict__.setdefault("lists", {}).pop(handle, None)
        super().releasedir(call, node, handle)


def _composed(name: bytes) -> bytes:
    try:
        return unicodedata.normalize("NFC", name.decode()).encode()
    except UnicodeDecodeError:
        return name


@mutant("names-normalised | open() | names that differ in their normalization alone (NFD, NFC) are one file")
class NamesNormalised(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(call, parent, _composed(name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, _composed(name), flags, mode, umask)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, _composed(name), mode, umask)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, _composed(name))


@mutant("odd-bytes-listed-as-marks | readdir() | of a name the bytes that are no UTF-8 are listed as '?'")
class OddBytesListedAsMarks(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [
            (ino, at, kind, name.decode(errors="replace").replace("�", "?").encode())
            for ino, at, kind, name in found
        ]


@mutant("rename-long-name-cut | rename() | a new name of 255 bytes loses its last byte")
class RenameLongNameCut(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new[:254], flags)


@mutant("rmdir-hidden-names | rmdir() | removes a directory of which all names begin with a dot")
class RmdirHiddenNames(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            self.reset_ids()
            directory = f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(name)}"
            inside = os.listdir(directory)
            if not all(one.startswith(".") for one in inside):
                raise
            if any(Path(directory, one).is_dir() for one in inside):
                raise
            for one in inside:
                Path(directory, one).unlink()
            Path(directory).rmdir()


@mutant("mkdir-sgid-bit-lost | mkdir(2) | in a set-group-ID directory a new one has the group, not the bit")
class MkdirSgidBitLost(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.reset_ids()
        path = self.nodes[node].path
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_ISGID)
        return node


@mutant("fifo-umask | mkfifo() | the file mode creation mask does not count for a FIFO")
class FifoUmask(PassThrough):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        return super().mknod(call, parent, name, mode, device, 0 if stat.S_ISFIFO(mode) else umask)


@mutant("link-symlink-copies | link(2) | a link to a symlink is a symlink of its own")
class LinkSymlinkCopies(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if stat.S_ISLNK(os.fstat(self.fd(old)).st_mode):
            return self.symlink(call, parent, name, os.readlink(b"", dir_fd=self.fd(old)))
        return super().link(call, old, parent, name)


@mutant("tmpfile-linked-mode | open(2), O_TMPFILE | a file without a name that is given one has no mode bits")
class TmpfileLinkedMode(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        nameless = os.fstat(self.fd(old)).st_nlink == 0
        node = super().link(call, old, parent, name)
        if nameless:
            self.reset_ids()
            os.chmod(self.nodes[node].path, 0)
        return node


@mutant("xattr-lost-rename-over | rename() | a file that replaces another loses its extended attributes")
class XattrLostRenameOver(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        existed = os.access(new, os.F_OK, dir_fd=self.fd(where), follow_symlinks=False)
        super().rename(call, parent, old, where, new, flags)
        node = self.nodes[self.node_at(self.fd(where), new)]
        if existed and flags == 0 and stat.S_ISREG(os.fstat(node.fd).st_mode):
            self.reset_ids()
            for name in os.listxattr(node.path):
                if name.startswith("user."):
                    os.removexattr(node.path, name)


@mutant("xattr-list-1k | listxattr(2) | names after the first 1,024 bytes are not listed")
class XattrList1k(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        kept, length = [], 0
        for name in super().listxattr(call, node):
            length += len(name) + 1
            if length <= 1024:
                kept.append(name)
        return kept


@mutant("acl-default-not-to-directories | acl(5) | a directory made below a default ACL has no default ACL")
class AclDefaultNotToDirectories(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.reset_ids()
        with suppress(OSError):
            os.removexattr(self.nodes[node].path, "system.posix_acl_default")
        return node


@mutant("nlink-8-bit | sys/stat.h | st_nlink of a file is kept in 8 bits")
class Nlink8Bit(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if not stat.S_ISDIR(found.mode):
            found.nlink &= 255
        return found


@mutant("unlinked-listed-in-large | unlink() | in a directory of > 1,000 a removed name is listed once more")
class UnlinkedListedInLarge(Keeping):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        large = _entries_of(self, parent) > MANY
        super().unlink(call, parent, name)
        if large:
            self.__dict__.setdefault("ghosts", {}).setdefault(parent, []).append(name)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        ghosts = self.__dict__.get("ghosts", {})
        if found and ghosts.get(node):
            ino, cookie, _, _ = found[0]
            name = ghosts.pop(node)[-1]
            if name not in {one[3] for one in found}:
                found.insert(1, (ino + 1, cookie, 8, name))
        return found
