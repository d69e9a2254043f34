"""Mutants of calls that are refused and yet do something, and of rules that hold up to a number or a size."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call, Opened
from posix_rules import Keeping, mutant, size_of

FAR = 1 << 16
BLOCK = 4096


@mutant("read-odd-last-byte | read() | the last byte of a read of odd length above 64 KiB is zero")
class ReadOddLastByte(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        return data[:-1] + b"\0" if len(data) > FAR and len(data) % 2 else data


@mutant(
    "truncate-same-size-zeroes | truncate() | by its path to its present size zeroes the last partial page"
)
class TruncateSameSizeZeroes(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        same = os.stat(self.nodes[node].path).st_size == size
        super().truncate(call, node, handle, size)
        if same and handle is None and size % BLOCK:
            start = size - size % BLOCK
            with Path(self.nodes[node].path).open("r+b") as file:
                file.seek(start)
                file.write(bytes(size - start))


@mutant(
    "rmdir-refused-removes | rmdir(), ENOTEMPTY | refused, it has removed the first file in the directory"
)
class RmdirRefusedRemoves(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                self.reset_ids()
                inside = Path(f"/proc/self/fd/{self.fd(parent)}", os.fsdecode(name))
                for one in sorted(inside.iterdir())[:1]:
                    with suppress(OSError):
                        one.unlink()
            raise


@mutant("rename-refused-loses | rename(), ENOTEMPTY | refused, it has removed the old name of the directory")
class RenameRefusedLoses(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                self.reset_ids()
                with suppress(OSError):
                    os.rmdir(old, dir_fd=self.fd(parent))
            raise


@mutant("futimens-lost-at-close | futimens() | times set while a file that was written is open are lost then")
class FutimensLostAtClose(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.written: set[int] = set()
        self.set: set[int] = set()

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.written.add(handle)
        self.set.discard(node)
        return super().write(call, node, handle, offset, data)

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        self.set.add(node)
        super().utimens(call, node, atime, mtime)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        if handle in self.written and node in self.set:
            self.reset_ids()
            os.utime(self.nodes[node].path)
        self.written.discard(handle)
        super().release(call, node, handle, owner, flock=flock)


@mutant("symlink-trailing-slash | symlink() | the contents lose a slash at their end")
class SymlinkTrailingSlash(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target.rstrip(b"/") or target)


@mutant("directory-dirent-number | readdir() | d_ino of a directory is not its st_ino")
class DirectoryDirentNumber(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [
            (ino + (1 << 40) if kind == 4 and name not in (b".", b"..") else ino, at, kind, name)
            for ino, at, kind, name in found
        ]


@mutant("directory-xattr-lost | rename() | a directory that is renamed loses its extended attributes")
class DirectoryXattrLost(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        node = self.nodes[self.node_at(self.fd(where), new)]
        if stat.S_ISDIR(os.fstat(node.fd).st_mode):
            self.reset_ids()
            for name in os.listxattr(node.path):
                if name.startswith("user."):
                    os.removexattr(node.path, name)


@mutant("xattr-empty-removes | setxattr(2) | an empty value removes the attribute")
class XattrEmptyRemoves(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags)
        if not value:
            os.removexattr(self.nodes[node].path, name)


@mutant("mapped-hole-lost | mmap() | what is stored through a mapping where the file has a hole is lost")
class MappedHoleLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache:
            try:
                if os.lseek(handle, offset, os.SEEK_DATA) >= offset + len(data):
                    return len(data)
            except OSError:
                return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("fsync-read-only-refused | fsync() | is EBADF through a descriptor that may only read")
class FsyncReadOnlyRefused(PassThrough):
    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        flags = Path(f"/proc/self/fdinfo/{handle}").read_text().split("flags:")[1].split()[0]
        if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "fsync")
        super().fsync(call, node, handle, data_only=data_only)


@mutant("unlock-frees-next | fcntl() | to unlock a range without a lock frees the lock right behind it")
class UnlockFreesNext(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and not any(one.owner == asked.owner and one.meets(asked) for one in self.held):
            self.held = [
                one
                for one in self.held
                if one.node != asked.node or one.owner != asked.owner or one.start != asked.end + 1
            ]
        super().put(asked)


@mutant("lock-100-drops-first | fcntl() | the 100th lock on a file drops the first")
class Lock100DropsFirst(Locking):
    def put(self, asked: Held) -> None:
        super().put(asked)
        mine = [one for one in self.held if one.node == asked.node and not one.whole]
        if len(mine) >= 100:
            self.held.remove(mine[0])


@mutant("deep-directory-mode | mkdir() | from 32 levels on a new directory has mode 0700")
class DeepDirectoryMode(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        deep = os.readlink(self.nodes[parent].path).count("/") > 36
        return super().mkdir(call, parent, name, 0o700 if deep else mode, umask)


@mutant(
    "descriptor-65-reads-nothing | open() | of more than 64 descriptors of one file the last read nothing"
)
class Descriptor65ReadsNothing(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.opened: dict[int, int] = {}
        self.blind: set[int] = set()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if sum(one == node for one in self.opened.values()) >= 64:
            self.blind.add(opened.handle)
        self.opened[opened.handle] = node
        return opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.opened.pop(handle, None)
        self.blind.discard(handle)
        super().release(call, node, handle, owner, flock=flock)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return b"" if handle in self.blind else super().read(call, node, handle, offset, size)


@mutant("zeros-of-128k-skipped | write() | a write of 128 KiB or more of zeros over data is dropped")
class ZerosOf128kSkipped(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if len(data) >= 2 * FAR and not data.strip(b"\0") and offset + len(data) <= size_of(handle):
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant(
    "rename-directory-takes-mode | rename() | a directory that replaces an empty one gets the mode of that"
)
class RenameDirectoryTakesMode(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            replaced = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False).st_mode
        except OSError:
            replaced = 0
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(replaced) and not flags:
            self.reset_ids()
            os.chmod(self.nodes[self.node_at(self.fd(where), new)].path, stat.S_IMODE(replaced))


@mutant("chmod-drops-acl | acl(5) | chmod() of a file removes its access ACL")
class ChmodDropsAcl(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        self.reset_ids()
        with suppress(OSError):
            os.removexattr(self.nodes[node].path, "system.posix_acl_access")


@mutant("sticky-rename-by-others | rename(), EPERM | in a sticky directory any user renames others' files")
class StickyRenameByOthers(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError as error:
            if error.errno != errno.EPERM or not os.fstat(self.fd(parent)).st_mode & stat.S_ISVTX:
                raise
            self.reset_ids()
            os.rename(old, new, src_dir_fd=self.fd(parent), dst_dir_fd=self.fd(where))


@mutant("list-by-search | opendir(), EACCES | who may only search a directory can list it")
class ListBySearch(PassThrough):
    def opendir(self, call: Call, node: int) -> Opened:
        self.as_caller(call)
        if os.access(self.nodes[node].path, os.X_OK, effective_ids=True):
            self.reset_ids()
            return Opened(os.open(self.nodes[node].path, os.O_RDONLY | os.O_DIRECTORY))
        return super().opendir(call, node)
