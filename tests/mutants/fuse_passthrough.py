"""An honest pass-through: every request is done on a directory below, by the one who asked.

- A file is an inode and not a path: a node holds an ``O_PATH`` descriptor of it for as long as the kernel
  knows it. So two links are one file, and one that is unlinked while it is open is still there.
- Every request is done with the caller's file-system ids and groups (setfsuid(2)): it is the file system
  below that checks permissions, gives a new file its group and takes a set-user-ID bit away.
- Nothing is cached: names and attributes are asked for each time.

A mutant is a subclass of :class:`PassThrough` that overrides what it breaks.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuse_protocol import BTIME, Attributes, Call, Created, Entry, Init, Opened

ROOT = 1
"""The node of the directory that is mounted (FUSE_ROOT_ID)."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.getdents64.restype = ctypes.c_ssize_t
_DIRENT = struct.Struct("<QqHB")
_NOT_PASSED_ON = os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_NOCTTY | os.O_NOFOLLOW | 0o100000 | 0x20
"""Of open(2)'s flags: what the kernel has seen to, what a buffer of ours cannot keep, and FMODE_EXEC."""
GETFLAGS, SETFLAGS, GETXATTR, SETXATTR = 0x80086601, 0x40086602, 0x801C581F, 0x401C5820
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR (<linux/fs.h>)."""
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


Entries = list[tuple[int, int, int, bytes]]
"""Entries of a directory: inode, cookie of the next entry, type, name."""


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


@dataclass(slots=True)
class Node:
    """A file that the kernel knows: ``fd`` is its ``O_PATH`` descriptor, ``count`` its lookups."""

    id: int
    fd: int
    key: tuple[int, int]
    count: int = 0

    @property
    def path(self) -> str:
        """A path that leads to this very file, whatever it is called."""
        return f"/proc/self/fd/{self.fd}"


class PassThrough:
    """The honest file system. Every method is an operation of :mod:`fuse_protocol`."""

    init = Init()
    name_lasts = 0.0
    """For how many seconds the kernel may believe a name, and below, attributes."""
    attributes_last = 0.0

    def __init__(self, below: Path) -> None:
        fd = os.open(below, os.O_PATH | os.O_DIRECTORY)
        self.nodes = {ROOT: Node(ROOT, fd, _key(os.fstat(fd)), 1)}
        self._by_key = {one.key: one for one in self.nodes.values()}
        self._next = ROOT
        self._is: tuple[int, int, Sequence[int]] = (0, 0, ())

    # Names.

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        self.as_caller(call)
        return self.node_at(self.fd(parent), name)

    def entry(self, call: Call, node: int) -> Entry:
        return Entry(node, self.getattr(call, node, None), self.name_lasts, self.attributes_last)

    def forget(self, node: int, times: int) -> None:
        one = self.nodes[node]
        one.count -= times
        if one.count <= 0 and node != ROOT:
            del self.nodes[node], self._by_key[one.key]
            os.close(one.fd)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.as_caller(call, umask)
        os.mkdir(name, mode, dir_fd=self.fd(parent))
        return self.node_at(self.fd(parent), name)

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        self.as_caller(call, umask)
        os.mknod(name, mode, device, dir_fd=self.fd(parent))
        return self.node_at(self.fd(parent), name)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        self.as_caller(call)
        os.symlink(target, name, dir_fd=self.fd(parent))
        return self.node_at(self.fd(parent), name)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.as_caller(call)
        os.link(self.nodes[old].path, name, dst_dir_fd=self.fd(parent), follow_symlinks=True)
        return self.node_at(self.fd(parent), name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.as_caller(call)
        os.unlink(name, dir_fd=self.fd(parent))

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        self.as_caller(call)
        os.rmdir(name, dir_fd=self.fd(parent))

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.as_caller(call)
        _check(_libc.renameat2(self.fd(parent), old, self.fd(where), new, flags))

    def readlink(self, call: Call, node: int) -> bytes:
        self.as_caller(call)
        return os.readlink(b"", dir_fd=self.fd(node))

    # Attributes.

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        return attributes(os.fstat(self.fd(node)))

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.as_caller(call)
        os.chmod(self.nodes[node].path, mode)

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        self.as_caller(call)
        os.chown(self.nodes[node].path, uid, gid)

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.as_caller(call)
        if handle is None:
            os.truncate(self.nodes[node].path, size)
        else:
            os.ftruncate(handle, size)

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        """Set times: nanoseconds, "now", or None to leave one as it is."""
        self.as_caller(call)
        times = (_Timespec * 2)(_timespec(atime), _timespec(mtime))
        _check(_libc.utimensat(_AT_FDCWD, self.nodes[node].path.encode(), times, 0))

    def access(self, call: Call, node: int, mask: int) -> None:
        self.as_caller(call)
        if not os.access(self.nodes[node].path, mask, effective_ids=True):
            raise PermissionError(errno.EACCES, "access")

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        one = os.statvfs(self.fd(node))
        return {
            "blocks": one.f_blocks, "bfree": one.f_bfree, "bavail": one.f_bavail, "files": one.f_files,
            "ffree": one.f_ffree, "bsize": one.f_bsize, "namelen": one.f_namemax, "frsize": one.f_frsize,
        }  # fmt: skip

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        self.as_caller(call)
        os.setxattr(self.nodes[node].path, name, value, flags)

    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        self.as_caller(call)
        return os.getxattr(self.nodes[node].path, name)

    def listxattr(self, call: Call, node: int) -> list[bytes]:
        self.as_caller(call)
        return [os.fsencode(name) for name in os.listxattr(self.nodes[node].path)]

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        self.as_caller(call)
        os.removexattr(self.nodes[node].path, name)

    def fits(self, length: int, size: int) -> bool:
        """Whether a value or a list of names fits into a buffer of ``size`` bytes."""
        return length <= size

    def statx(self, call: Call, node: int, handle: int | None) -> Attributes:
        """Return the attributes to statx(2), if it asks for more than stat(2) does."""
        return self.getattr(call, node, handle)

    def birth(self, call: Call, node: int) -> int | None:
        """Return the time of birth in nanoseconds, None if the file system below has none (statx(2))."""
        buffer = ctypes.create_string_buffer(256)
        _check(_libc.statx(self.fd(node), b"", _AT_EMPTY_PATH, BTIME, buffer))
        (mask,), born = struct.unpack_from("<I", buffer), struct.unpack_from("<qI", buffer, 80)
        return born[0] * 10**9 + born[1] if mask & BTIME else None

    # Data.

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.as_caller(call)
        return Opened(os.open(self.nodes[node].path, flags & ~_NOT_PASSED_ON))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.as_caller(call, umask)
        kept = flags & (os.O_CREAT | os.O_EXCL) | os.O_NOFOLLOW
        opened = os.open(name, flags & ~_NOT_PASSED_ON | kept, mode, dir_fd=self.fd(parent))
        return self.node_at(self.fd(parent), name), Opened(opened)

    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        self.as_caller(call, umask)
        kept = os.O_TMPFILE | flags & os.O_EXCL
        opened = os.open(self.nodes[parent].path, flags & ~_NOT_PASSED_ON | kept, mode)
        return self.node_of(os.open(f"/proc/self/fd/{opened}", os.O_PATH)), Opened(opened)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return os.pread(handle, size, offset)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.as_caller(call)  # who may keep a set-user-ID bit is a question of who writes
        flags = fcntl.fcntl(handle, fcntl.F_GETFL)
        if call.appends or not flags & os.O_APPEND:
            return os.pwrite(handle, data, offset)
        # A mapping's write, or F_SETFL has cleared the flag; pwrite() would append (pwrite(2), BUGS).
        fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_APPEND)
        try:
            return os.pwrite(handle, data, offset)
        finally:
            fcntl.fcntl(handle, fcntl.F_SETFL, flags)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        os.close(os.dup(handle))  # the error that close(2) would return

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        os.close(handle)

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        (os.fdatasync if data_only else os.fsync)(handle)

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        self.as_caller(call)
        _check(_libc.fallocate64(handle, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))

    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        return os.lseek(handle, offset, whence)

    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        self.as_caller(call)
        return os.copy_file_range(source, sink, min(length, 1 << 30), start, to)

    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        """Return or set the flags of an inode (ioctl_iflags(2)); there are no other requests."""
        self.as_caller(call)
        if request in (GETFLAGS, GETXATTR):
            size = 4 if request == GETFLAGS else 28
            return int.from_bytes(fcntl.ioctl(handle, request, bytes(28))[:size], "little")
        if request not in (SETFLAGS, SETXATTR):
            raise OSError(errno.ENOTTY, "ioctl")
        fcntl.ioctl(handle, request, number.to_bytes(28 if request == SETXATTR else 8, "little"))
        return None

    # Directories.

    def opendir(self, call: Call, node: int) -> Opened:
        self.as_caller(call)
        return Opened(os.open(self.nodes[node].path, os.O_RDONLY | os.O_DIRECTORY))

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        """Return the entries from the one that ``offset`` is the cookie of."""
        os.lseek(handle, offset, os.SEEK_SET)
        return list(_entries(handle, min(size, 1 << 15)))

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        os.close(handle)

    def fsyncdir(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        (os.fdatasync if data_only else os.fsync)(handle)

    def interrupt(self, unique: int) -> None:
        """Nothing waits here."""

    # What mutants use, too.

    def fd(self, node: int) -> int:
        return self.nodes[node].fd

    def node_at(self, directory: int, name: bytes) -> int:
        """Return the node of ``name`` in a directory, and count one more lookup of the kernel."""
        return self.node_of(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory))

    def node_of(self, fd: int) -> int:
        key = _key(os.fstat(fd))
        one = self._by_key.get(key)
        if one is None:
            self._next += 1
            one = self.nodes[self._next] = self._by_key[key] = Node(self._next, fd, key)
        else:
            os.close(fd)
        one.count += 1
        return one.id

    def as_caller(self, call: Call, umask: int = 0) -> None:
        """Take on the caller's ids for the file system, and ``umask``."""
        os.umask(umask)
        groups = _groups(call.pid) if call.uid else ()
        if (call.uid, call.gid, groups) != self._is:
            self.reset_ids()
            if groups:
                os.setgroups(groups)
            _libc.setfsgid(call.gid)
            _libc.setfsuid(call.uid)
            self._is = (call.uid, call.gid, groups)

    def reset_ids(self) -> None:
        """Set the file system ids back to root."""
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        os.setgroups(())
        self._is = (0, 0, ())


class Bending(PassThrough):
    """``bend`` changes the attributes that are reported."""

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        self.bend(found)
        return found

    def bend(self, found: Attributes) -> None:
        raise NotImplementedError


def attributes(one: os.stat_result) -> Attributes:
    return Attributes(
        one.st_ino, one.st_size, one.st_blocks, one.st_atime_ns, one.st_mtime_ns, one.st_ctime_ns,
        one.st_mode, one.st_nlink, one.st_uid, one.st_gid, one.st_rdev, one.st_blksize,
    )  # fmt: skip


def _key(one: os.stat_result) -> tuple[int, int]:
    return one.st_dev, one.st_ino


def _groups(pid: int) -> tuple[int, ...]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    line = next((line for line in text.splitlines() if line.startswith("Groups:")), "Groups:")
    return tuple(map(int, line.removeprefix("Groups:").split()))


def _timespec(when: int | str | None) -> _Timespec:
    if when is None or isinstance(when, str):
        return _Timespec(0, _UTIME_OMIT if when is None else _UTIME_NOW)
    return _Timespec(*divmod(when, 10**9))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _entries(handle: int, size: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield what one getdents64(2) returns."""
    buffer = ctypes.create_string_buffer(size)
    length = _libc.getdents64(handle, buffer, ctypes.c_size_t(size))
    if length < 0:
        _check(-1)
    data, at = buffer.raw[:length], 0
    while at < length:
        ino, cookie, step, kind = _DIRENT.unpack_from(data, at)
        start = at + _DIRENT.size
        yield ino, cookie, kind, data[start : data.index(b"\0", start)]
        at += step


def kind_of(mode: int) -> int:
    """Return the type that a directory entry has for ``mode`` (readdir(3), ``d_type``)."""
    return stat.S_IFMT(mode) >> 12
