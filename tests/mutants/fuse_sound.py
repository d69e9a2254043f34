"""Sound file systems with the choices that POSIX.1-2024, Linux's manual pages and RFC 1813 leave open."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator

from fuse_passthrough import Bending, Entries, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened


class NoLinks(PassThrough):
    """No hard links, as an NFS server that answers LINK by NFS3ERR_NOTSUPP (RFC 1813 3.3.15)."""

    refusal = errno.EOPNOTSUPP

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        raise OSError(self.refusal, "link")


class NoLinksByPermission(NoLinks):
    """No hard links: link(2), EPERM, "does not support the creation of hard links"."""

    refusal = errno.EPERM


class OnlyFiles(PassThrough):
    """Files and directories alone: EPERM of symlink(2) and mknod(2) for what a file system does not have.

    A directory with entries is refused by EEXIST, which POSIX.1-2024 rmdir() and rename() allow as well.
    """

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        raise OSError(errno.EPERM, "symlink")

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        if not stat.S_ISREG(mode):
            raise OSError(errno.EPERM, "mknod")
        return super().mknod(call, parent, name, mode, device, umask)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        with _exists():
            super().rmdir(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        with _exists():
            super().rename(call, parent, old, where, new, flags)


class NoModes(OnlyFiles):
    """No owners, modes, links and FIFOs, as FAT (``posix: false``): chmod() and chown() are EPERM."""

    def chmod(self, call: Call, node: int, mode: int) -> None:
        raise OSError(errno.EPERM, "chmod")

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        raise OSError(errno.EPERM, "chown")

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "mknod")
        return super().mknod(call, parent, name, mode, device, umask)


@contextlib.contextmanager
def _exists() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise OSError(errno.EEXIST, "not empty") from None
        raise


class NoSetIds(PassThrough):
    """chmod() ignores the set-ID bits of files, and lchown() is EOPNOTSUPP."""

    def chmod(self, call: Call, node: int, mode: int) -> None:
        regular = stat.S_ISREG(os.fstat(self.fd(node)).st_mode)
        super().chmod(call, node, mode & ~(stat.S_ISUID | stat.S_ISGID) if regular else mode)

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if stat.S_ISLNK(os.fstat(self.fd(node)).st_mode):
            raise OSError(errno.EOPNOTSUPP, "lchown")
        super().chown(call, node, uid, gid)


class NoSynchronisedIo(PassThrough):
    """O_SYNC and O_DSYNC are not supported (open() [EINVAL])."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.refuse(flags)
        return super().open(call, node, flags)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.refuse(flags)
        return super().create(call, parent, name, flags, mode, umask)

    def refuse(self, flags: int) -> None:
        if flags & os.O_SYNC:  # O_DSYNC is one of its bits
            raise OSError(errno.EINVAL, "open")


class ShortNames(PassThrough):
    """{NAME_MAX} is 60 (pathconf()), as of Minix's; file systems that encrypt names have 143."""

    longest = 60

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if len(name) > self.longest:
            raise OSError(errno.ENAMETOOLONG, "lookup")
        return super().lookup(call, parent, name)

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        return {**super().statfs(call, node), "namelen": self.longest}


class NoHoles(PassThrough):
    """lseek(2): SEEK_HOLE always returns the end of the file, SEEK_DATA always the offset."""

    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        size = os.fstat(handle).st_size
        if offset >= size:
            raise OSError(errno.ENXIO, "lseek")
        return size if whence == os.SEEK_HOLE else offset


class Small(PassThrough):
    """A file system of 1 GiB that stores no holes: a write far past the end of a file is ENOSPC."""

    size = 1 << 30
    full = errno.ENOSPC

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset + len(data) > self.size:
            raise OSError(self.full, "write")
        return super().write(call, node, handle, offset, data)

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        blocks = self.size // found["frsize"]
        return {**found, "blocks": blocks, "bfree": blocks // 2, "bavail": blocks // 2}


class SmallQuota(Small):
    """The same limit is a quota of the user (EDQUOT)."""

    full = errno.EDQUOT


class SmallFiles(PassThrough):
    """No file is larger than 2 GiB less one byte: write() [EFBIG], and what fits is written."""

    largest = (1 << 31) - 1

    def limit(self, size: int) -> None:
        if size > self.largest:
            raise OSError(errno.EFBIG, "size")

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.limit(offset + 1)
        return super().write(call, node, handle, offset, data[: self.largest - offset])

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.limit(size)
        super().truncate(call, node, handle, size)

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        self.limit(offset + length)
        super().fallocate(call, node, handle, offset, length, mode)


class CoarseTimes(Bending):
    """Times of two seconds' resolution (utimensat(): rounded to what the file system supports)."""

    unit = 2 * 10**9

    def bend(self, found: Attributes) -> None:
        found.atime -= found.atime % self.unit
        found.mtime -= found.mtime % self.unit
        found.ctime -= found.ctime % self.unit


class FatTimes(CoarseTimes):
    """Times as FAT's: reads by days of another time zone, writes by two seconds, changes by 10 ms."""

    zone = 3600 * 10**9
    units = (86_400 * 10**9, 2 * 10**9, 10**7)

    def bend(self, found: Attributes) -> None:
        read, written, changed = self.units
        found.atime -= (found.atime + self.zone) % read
        found.mtime -= found.mtime % written
        found.ctime -= found.ctime % changed


class FineWrites(FatTimes):
    """Reads and writes are kept by 10 ms, changes by a second."""

    zone = 0
    units = (10**7, 10**7, 10**9)


class LeastLimits(PassThrough):
    """The least that the standards allow: 8 links, links of 255 bytes, portable names, short attributes.

    fsync() is not possible on a directory (EINVAL), and an open directory is in use (rmdir() [EBUSY]).
    """

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if os.fstat(self.fd(old)).st_nlink >= 8:
            raise OSError(errno.EMLINK, "link")
        return super().link(call, old, parent, name)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        if len(target) > 255:
            raise OSError(errno.ENAMETOOLONG, "symlink")
        return super().symlink(call, parent, name, target)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if not re.fullmatch(rb"[A-Za-z0-9._-]+", name):
            raise OSError(errno.EILSEQ, "create")
        return super().create(call, parent, name, flags, mode, umask)

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if len(value) > 1000:
            raise OSError(errno.ERANGE, "setxattr")
        super().setxattr(call, node, name, value, flags)

    def fsyncdir(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        raise OSError(errno.EINVAL, "fsync")

    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        self._opened()[opened.handle] = self.nodes[node].key
        return opened

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self._opened().pop(handle, None)
        super().releasedir(call, node, handle)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        if (one.st_dev, one.st_ino) in self._opened().values() and not os.listdir(
            f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(name)}"
        ):
            raise OSError(errno.EBUSY, "rmdir")
        super().rmdir(call, parent, name)

    def _opened(self) -> dict[int, tuple[int, int]]:
        opened: dict[int, tuple[int, int]] = self.__dict__.setdefault("opened", {})
        return opened


class SmallDirectories(PassThrough):
    """A directory has at most 112 entries, as FAT's root directory (open(), mkdir(), link() [ENOSPC])."""

    most = 112

    def require_place(self, parent: int, name: bytes) -> None:
        self.reset_ids()
        names = os.listdir(self.nodes[parent].path)
        if len(names) >= self.most and os.fsdecode(name) not in names:
            raise OSError(errno.ENOSPC, "directory")

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.require_place(parent, name)
        return super().mkdir(call, parent, name, mode, umask)

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        self.require_place(parent, name)
        return super().mknod(call, parent, name, mode, device, umask)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.require_place(parent, name)
        return super().create(call, parent, name, flags, mode, umask)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        self.require_place(parent, name)
        return super().symlink(call, parent, name, target)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.require_place(parent, name)
        return super().link(call, old, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if parent != where:
            self.require_place(where, new)
        super().rename(call, parent, old, where, new, flags)


class SmallAttributes(PassThrough):
    """The names and values of a file's attributes fit into 1 KiB (setxattr(2) [ENOSPC], xattr(7): ext4)."""

    space = 900

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        used = sum(
            len(other) + 20 + len(super(SmallAttributes, self).getxattr(call, node, other))
            for other in super().listxattr(call, node)
            if other != name
        )
        if name.startswith(b"user.") and used + len(name) + 20 + len(value) > self.space:
            raise OSError(errno.ENOSPC, "setxattr")
        super().setxattr(call, node, name, value, flags)


class FirstListing(PassThrough):
    """A descriptor lists the names that the directory had at its open (readdir(): later ones may miss)."""

    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        names: dict[int, set[bytes]] = self.__dict__.setdefault("names", {})
        names[opened.handle] = {os.fsencode(name) for name in os.listdir(opened.handle)} | {b".", b".."}
        return opened

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        names = self.__dict__["names"][handle]
        return [entry for entry in super().readdir(call, node, handle, offset, size) if entry[3] in names]


class NoBlocks(Bending):
    """stat() counts no blocks (sys/stat.h: the unit of st_blocks is not defined)."""

    def bend(self, found: Attributes) -> None:
        found.blocks = 0


class NoSizes(PassThrough):
    """statvfs() has no sizes (fstatvfs(): members without meaningful values), as libfuse's default."""

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        none = dict.fromkeys(("blocks", "bfree", "bavail", "files", "ffree"), 0)
        return {**super().statfs(call, node), **none}


class DirectRefused(PassThrough):
    """O_DIRECT opens, and I/O with it is EINVAL (open(2), NOTES)."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return self._noted(super().open(call, node, flags), flags)

    def create(
        self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int
    ) -> tuple[int, Opened]:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        return node, self._noted(opened, flags)

    def _noted(self, opened: Opened, flags: int) -> Opened:
        direct: set[int] = self.__dict__.setdefault("direct", set())
        (direct.add if flags & os.O_DIRECT else direct.discard)(opened.handle)
        return opened

    def _check(self, handle: int) -> None:
        if handle in self.__dict__.get("direct", ()):
            raise OSError(errno.EINVAL, "O_DIRECT")

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        self._check(handle)
        return super().read(call, node, handle, offset, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self._check(handle)
        return super().write(call, node, handle, offset, data)


class SillyRename(PassThrough):
    """A removed file that is open is called ``.nfs`` and digits until its last close, as on NFS clients."""

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if not self.hidden(call, parent, name):
            super().unlink(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        same = _inode(self.fd(parent), old) == _inode(self.fd(where), new)
        if not flags and not same and _inode(self.fd(parent), old):
            self.hidden(call, where, new)
        super().rename(call, parent, old, where, new, flags)

    def hidden(self, call: Call, parent: int, name: bytes) -> bool:
        """Rename a file that is open; return whether it was."""
        node = next((one for one in self.nodes.values() if one.key == _inode(self.fd(parent), name)), None)
        if node is None or self._open().get(node.id, 0) <= 0:
            return False
        kept: dict[int, list[tuple[int, bytes]]] = self.__dict__.setdefault("kept", {})
        silly = b".nfs%08x%04x" % (node.id, len(kept.setdefault(node.id, [])))
        super().rename(call, parent, name, parent, silly, 0)
        kept[node.id].append((os.dup(self.fd(parent)), silly))
        return True

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._open()[node] = self._open().get(node, 0) + 1
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._open()[node] = self._open().get(node, 0) + 1
        return node, opened

    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().tmpfile(call, parent, flags, mode, umask)
        self._open()[node] = self._open().get(node, 0) + 1
        return node, opened

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        """Take it for the last close of a descriptor: the kernel sends RELEASE some time after close(2)."""
        super().flush(call, node, handle, owner)
        self._open()[node] = self._open().get(node, 0) - 1
        if self._open()[node] <= 0:
            self.reset_ids()
            for directory, name in self.__dict__.get("kept", {}).pop(node, ()):
                os.unlink(name, dir_fd=directory)
                os.close(directory)

    def _open(self) -> dict[int, int]:
        """Return how often each node is open."""
        counts: dict[int, int] = self.__dict__.setdefault("counts", {})
        return counts


def _inode(directory: int, name: bytes) -> tuple[int, int] | None:
    """Return what a name that is no directory names, or None."""
    try:
        one = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return None if stat.S_ISDIR(one.st_mode) else (one.st_dev, one.st_ino)
