"""Mutants of I/O of many pages, by O_DIRECT and by mappings, and of calls that are made many times.

The rules: each byte that is counted is stored or returned, and a call has its effect each time.
"""

import errno
import os
import stat
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, mutant

_SOME, _MORE = 128 * 1024, 512 * 1024
_TURN = 130
"""Which call of a file goes wrong (chosen: more than a signed byte counts)."""


class _Direct(Keeping):
    """Knows the handles that were opened with O_DIRECT."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.direct: set[int] = set()

    def _note(self, opened: Opened, flags: int) -> None:
        (self.direct.add if flags & os.O_DIRECT else self.direct.discard)(opened.handle)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._note(opened, flags)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._note(opened, flags)
        return node, opened


def _first(data: bytes, length: int) -> bytes:
    """Return the first bytes, and zeroes in place of the others."""
    return data[:length] + bytes(max(0, len(data) - length))


@mutant("direct-write-of-512-kib | open(2) O_DIRECT | of a direct write the first 512 KiB are stored")
class DirectWriteOf512KiB(_Direct):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = _first(data, _MORE) if handle in self.direct else data
        return super().write(call, node, handle, offset, kept)


@mutant("direct-read-of-128-kib | open(2) O_DIRECT | of a direct read what is behind 128 KiB is zeroes")
class DirectReadOf128KiB(_Direct):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        return _first(data, _SOME) if handle in self.direct else data


@mutant("direct-write-leaves-mtime | write(3p), open(2) O_DIRECT | a direct write does not mark mtime")
class DirectWriteLeavesMtime(_Direct):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        written = super().write(call, node, handle, offset, data)
        if handle in self.direct:
            self.reset_ids()
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return written


@mutant("direct-read-before-mapped-store | msync(3p) | a direct read returns what a mapping has overwritten")
class DirectReadBeforeMappedStore(_Direct):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._before: dict[int, tuple[int, bytes]] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self._before.pop(node, None)
        if call.from_cache:
            self.reset_ids()
            descriptor = os.open(self.nodes[node].path, os.O_RDONLY)
            self._before[node] = offset, os.pread(descriptor, len(data), offset)
            os.close(descriptor)
        return super().write(call, node, handle, offset, data)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        start, old = self._before.get(node, (0, b""))
        first, last = max(start, offset), min(start + len(old), offset + len(data))
        if handle not in self.direct or first >= last:
            return data
        return data[: first - offset] + old[first - start : last - start] + data[last - offset :]


@mutant(
    "mapped-pages-after-128-kib-lost | mmap(3p) MAP_SHARED | of pages stored together those after 128 KiB "
    "are zeroes"
)
class MappedPagesAfter128KiBLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = _first(data, _SOME) if call.from_cache else data
        return super().write(call, node, handle, offset, kept)


class _Counting(Keeping):
    """Counts calls of a sort by file."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._calls: dict[tuple[str, tuple[int, int]], int] = {}

    def count(self, what: str, key: tuple[int, int]) -> int:
        """Return the number of this call."""
        self._calls[what, key] = self._calls.get((what, key), 0) + 1
        return self._calls[what, key]


@mutant("chmod-130th-ignored | chmod(3p) | the 130th chmod of a file does nothing")
class Chmod130thIgnored(_Counting):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if self.count("chmod", self.nodes[node].key) != _TURN:
            super().chmod(call, node, mode)


@mutant("utimens-130th-ignored | utimensat(3p) | the 130th setting of a file's times does nothing")
class Utimens130thIgnored(_Counting):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if self.count("utimens", self.nodes[node].key) != _TURN:
            super().utimens(call, node, atime, mtime)


@mutant("fallocate-60th-ignored | fallocate(2) | the 60th request of a file does nothing")
class Fallocate60thIgnored(_Counting):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if self.count("fallocate", self.nodes[node].key) != 60:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("allocation-40th-zeroes | fallocate(2) | the 40th allocation of a file clears its first page")
class Allocation40thZeroes(_Counting):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode == 0 and self.count("fallocate", self.nodes[node].key) == 40:
            os.pwrite(handle, bytes(4096), 0)


@mutant("renamed-40-times-emptied | rename(3p) | a file that is renamed for the 40th time is empty")
class Renamed40TimesEmptied(_Counting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        if self.count("rename", (one.st_dev, one.st_ino)) == 40 and stat.S_ISREG(one.st_mode):
            self.reset_ids()
            os.close(os.open(new, os.O_WRONLY | os.O_TRUNC, dir_fd=self.fd(where)))


@mutant("mkdir-200th-refused | mkdir(3p) | a directory has had 199 directories: the next is EMLINK")
class Mkdir200thRefused(_Counting):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        if self.count("mkdir", self.nodes[parent].key) >= 200:
            raise OSError(errno.EMLINK, "mkdir")
        return super().mkdir(call, parent, name, mode, umask)


@mutant("symlink-200th-refused | symlink(3p) | a directory has had 199 links: the next is ENOSPC")
class Symlink200thRefused(_Counting):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        if self.count("symlink", self.nodes[parent].key) >= 200:
            raise OSError(errno.ENOSPC, "symlink")
        return super().symlink(call, parent, name, target)


@mutant("opendir-200th-refused | opendir(3p) | a directory is opened for the 200th time: EMFILE")
class Opendir200thRefused(_Counting):
    def opendir(self, call: Call, node: int) -> Opened:
        if self.count("opendir", self.nodes[node].key) >= 200:
            raise OSError(errno.EMFILE, "opendir")
        return super().opendir(call, node)


@mutant("readlink-200th-cut | readlink(3p) | the contents of a link that is read for the 200th time are cut")
class Readlink200thCut(_Counting):
    def readlink(self, call: Call, node: int) -> bytes:
        found = super().readlink(call, node)
        return found[:-1] if self.count("readlink", self.nodes[node].key) == 200 else found


@mutant("fsync-200th-refused | fsync(3p) | the 200th fsync of a file is EIO")
class Fsync200thRefused(_Counting):
    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        super().fsync(call, node, handle, data_only=data_only)
        if self.count("fsync", self.nodes[node].key) == 200:
            raise OSError(errno.EIO, "fsync")
