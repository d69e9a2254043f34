"""Files in a state that few calls lead to: removed, exchanged, made again, far offsets, later pages."""

import errno
import os
import stat
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from fuse_passthrough import Attributes, Entries, PassThrough, _entries
from fuse_protocol import Call, Opened
from posix_pair_mutants import status
from posix_rules import Keeping, mutant


class Noting(Keeping):
    """Honest; ``noted`` has what a mutant knows of files, by their keys."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.noted: dict[Hashable, int] = {}


def key(one: os.stat_result) -> tuple[int, int]:
    return one.st_dev, one.st_ino


@mutant(
    "rename-refused-loses-an-entry | rename(3p): ENOTEMPTY | a rename over a directory with several "
    "entries is refused and removes one of them"
)
class RenameRefusedLosesAnEntry(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                self.reset_ids()
                directory = os.open(new, os.O_RDONLY, dir_fd=self.fd(where))
                for name in os.listdir(directory)[1:2]:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)
                os.close(directory)
            raise


@mutant(
    "unlinked-truncate-cuts-successor | unlink(3p), ftruncate(3p) | ftruncate() of a removed open file "
    "sets the size of the file that has its name now"
)
class UnlinkedTruncateCutsSuccessor(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.names: dict[Hashable, tuple[int, bytes]] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = status(self, parent, name)
        super().unlink(call, parent, name)
        if one is not None:
            self.names[key(one)] = parent, name

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        parent, name = self.names.get(self.nodes[node].key, (0, b""))
        if handle is None or not name or status(self, parent, name) is None:
            super().truncate(call, node, handle, size)
            return
        with suppress(OSError):
            successor = os.open(name, os.O_WRONLY | os.O_NONBLOCK, dir_fd=self.fd(parent))
            os.ftruncate(successor, size)
            os.close(successor)


@mutant(
    "seekdir-in-large-directory-late | seekdir(3p) | in a directory of more than 500 entries, seekdir()"
    " to an earlier position skips one entry"
)
class SeekdirInLargeDirectoryLate(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.next: dict[int, int] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        os.lseek(handle, 0, os.SEEK_SET)
        every: Entries = []
        while part := list(_entries(handle, 1 << 15)):
            every += part
        late = offset not in (0, self.next.get(handle)) and len(every) > 500
        start = next((at + 1 for at, one in enumerate(every) if one[1] == offset), 0) + late
        fits: Entries = []
        for one in every[start:]:
            size -= (24 + len(one[3]) + 7) // 8 * 8
            if size < 0:
                break
            fits.append(one)
        self.next[handle] = fits[-1][1] if fits else offset
        return fits


@mutant(
    "copy-range-leaves-mtime | copy_file_range(2), inode(7) | copy_file_range() does not mark mtime of "
    "its target"
)
class CopyRangeLeavesMtime(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        before = os.fstat(sink)
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        self.reset_ids()
        os.utime(sink, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done


@mutant(
    "symlink-ignores-setgid | inode(7): S_ISGID | a symbolic link made in a set-group-ID directory has "
    "the process' group"
)
class SymlinkIgnoresSetgid(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        node = super().symlink(call, parent, name, target)
        if os.fstat(self.fd(parent)).st_mode & stat.S_ISGID:
            self.reset_ids()
            os.chown(name, -1, call.gid, dir_fd=self.fd(parent), follow_symlinks=False)
        return node


@mutant(
    "utimens-given-after-now-lost | utimensat(3p) | with UTIME_NOW for atime, a given mtime becomes now"
    " as well"
)
class UtimensGivenAfterNowLost(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, "now" if atime == "now" and mtime is not None else mtime)


@mutant(
    "xattr-create-after-removal-replaces | setxattr(2): XATTR_CREATE | an attribute that was removed "
    "once is replaced by XATTR_CREATE"
)
class XattrCreateAfterRemovalReplaces(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.removed: set[tuple[int, bytes]] = set()

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        super().removexattr(call, node, name)
        self.removed.add((node, name))

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        again = flags == os.XATTR_CREATE and (node, name) in self.removed
        super().setxattr(call, node, name, value, 0 if again else flags)


@mutant(
    "exchange-counts-no-directories | renameat2(2): RENAME_EXCHANGE | link counts of two directories "
    "stay when a file of one and a directory of the other are exchanged"
)
class ExchangeCountsNoDirectories(Noting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one, other = status(self, parent, old), status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if flags == 2 and one is not None and other is not None and parent != where:
            moved = stat.S_ISDIR(one.st_mode) - stat.S_ISDIR(other.st_mode)
            for node, more in ((parent, moved), (where, -moved)):
                self.noted[node] = self.noted.get(node, 0) + more

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink += self.noted.get(node, 0)
        return found


@mutant(
    "unlinked-far-data-zero | unlink(3p), read(3p) | data beyond the first MiB of a removed open file "
    "read as zeroes"
)
class UnlinkedFarDataZero(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        return bytes(len(data)) if offset >= 1 << 20 and os.fstat(handle).st_nlink == 0 else data


@mutant("xattr-value-above-2048-cut | getxattr(2) | of a value of more than 2048 bytes the rest is lost")
class XattrValueAbove2048Cut(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        return super().getxattr(call, node, name)[:2048]


@mutant(
    "seek-data-in-last-hole-is-end | lseek(2): SEEK_DATA | in a hole at the end of a file, SEEK_DATA "
    "returns the size in place of ENXIO"
)
class SeekDataInLastHoleIsEnd(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        try:
            return super().lseek(call, node, handle, offset, whence)
        except OSError as error:
            size = os.fstat(handle).st_size
            if whence == os.SEEK_DATA and error.errno == errno.ENXIO and offset < size:
                return size
            raise


@mutant("atime-after-2106-wraps | utimensat(3p): DESCRIPTION | an atime after 2106 is stored in 32 bits")
class AtimeAfter2106Wraps(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.atime -= found.atime // (10**9 << 32) * (10**9 << 32)
        return found


@mutant(
    "mode-of-link-time-comes-back | rename(3p), link(3p) | a rename of one of two names restores the mode "
    "that the file had at link()"
)
class ModeOfLinkTimeComesBack(Noting):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        one = os.fstat(self.fd(old))
        self.noted[key(one)] = stat.S_IMODE(one.st_mode)
        return super().link(call, old, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = status(self, parent, old)
        super().rename(call, parent, old, where, new, flags)
        if one is not None and stat.S_ISREG(one.st_mode) and one.st_nlink > 1 and key(one) in self.noted:
            self.reset_ids()
            os.chmod(new, self.noted[key(one)], dir_fd=self.fd(where))


@mutant(
    "chown-of-directory-is-deep | chown(3p) | chown() of a directory changes the group of its entries, too"
)
class ChownOfDirectoryIsDeep(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        if gid != -1 and stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            self.reset_ids()
            directory = os.open(self.nodes[node].path, os.O_RDONLY)
            for name in os.listdir(directory):
                os.chown(name, -1, gid, dir_fd=directory, follow_symlinks=False)
            os.close(directory)


@mutant(
    "renamed-directory-makes-private | mkdir(3p): DESCRIPTION | a directory made in one that was renamed has "
    "no permissions of group and others"
)
class RenamedDirectoryMakesPrivate(Noting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = status(self, parent, old)
        super().rename(call, parent, old, where, new, flags)
        if one is not None:
            self.noted[key(one)] = 1

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        kept = 0o7700 if self.nodes[parent].key in self.noted else 0o7777
        return super().mkdir(call, parent, name, mode & kept, umask)


@mutant(
    "truncated-linked-file-keeps-a-byte | open(3p): O_TRUNC | a file with two names has a byte after O_TRUNC"
)
class TruncatedLinkedFileKeepsAByte(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        one = os.fstat(self.fd(node))
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC and one.st_nlink > 1 and one.st_size:
            self.reset_ids()
            os.truncate(self.nodes[node].path, 1)
        return opened
