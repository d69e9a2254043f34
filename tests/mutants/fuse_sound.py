"""Sound file systems with the choices that POSIX.1-2024, Linux's manual pages and RFC 1813 leave open."""

import errno
import os

from fuse_passthrough import Bending, PassThrough
from fuse_protocol import Attributes, Call, Opened


class NoLinks(PassThrough):
    """No hard links, as an NFS server that answers LINK by NFS3ERR_NOTSUPP (RFC 1813 3.3.15)."""

    refusal = errno.EOPNOTSUPP

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        raise OSError(self.refusal, "link")


class NoLinksByPermission(NoLinks):
    """No hard links: link(2), EPERM, "does not support the creation of hard links"."""

    refusal = errno.EPERM


class ShortNames(PassThrough):
    """{NAME_MAX} is 143 (pathconf()), as of file systems that encrypt names."""

    longest = 143

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

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset + len(data) > self.size:
            raise OSError(errno.ENOSPC, "write")
        return super().write(call, node, handle, offset, data)

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        blocks = self.size // found["frsize"]
        return {**found, "blocks": blocks, "bfree": blocks // 2, "bavail": blocks // 2}


class NoBlocks(Bending):
    """stat() counts no blocks (sys/stat.h: the unit of st_blocks is not defined)."""

    def bend(self, found: Attributes) -> None:
        found.blocks = 0


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
