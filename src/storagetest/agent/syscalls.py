"""The system calls of a syscall session: each is one call, unless its docstring has another list.

A call is a method of :class:`Syscalls`, or one of the functions in the two tables. Names are relative to the
directory of :meth:`Syscalls.chdir`. Descriptors are those of this process; :meth:`Syscalls.close_all` closes
all of them. A call returns a JSON value or bytes, and raises the OSError of the system call.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.locker import FLOCK, Locker

_OFD_SETLK, _OFD_SETLKW = 37, 38  # fcntl(2), open file description locks; not in Python 3.9

_AT_FDCWD = -100  # <fcntl.h>

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAM_SECONDS = 15.0
"""Timeout in seconds for the end of a program whose stdin is closed (chosen)."""

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "copy_file_range": os.copy_file_range,
    "evict": fsutil.evict_page_cache,
    "flock": fcntl.flock,
    "fsync": os.fsync,
    "ftruncate": os.ftruncate,
    "pread": os.pread,
    "pwrite": os.pwrite,
    "read": os.read,
    "seek": os.lseek,
    "sync": os.sync,
    "wait": time.sleep,
    "write": os.write,
}
"""Calls that take no name; their arguments are those of the function."""

_FUNCTIONS_OF_NAMES: Mapping[str, Callable[..., Any]] = {
    "access": os.access,
    "chmod": os.chmod,
    "getxattr": os.getxattr,
    "listxattr": os.listxattr,
    "mkdir": os.mkdir,
    "readlink": os.readlink,
    "removexattr": os.removexattr,
    "rmdir": os.rmdir,
    "setxattr": os.setxattr,
    "truncate": os.truncate,
    "unlink": os.unlink,
}
"""Calls whose first argument is a name."""


class Syscalls:
    """The calls of one process, its open descriptors and its maps."""

    def __init__(self) -> None:
        self._root = ""
        self._open: set[int] = set()
        self._maps: dict[int, mmap.mmap] = {}
        self._programs: dict[int, Any] = {}
        self._lockers: dict[int, Locker] = {}

    def perform(self, name: str, arguments: list[Any]) -> Any:  # noqa: ANN401  # any call's result
        """Make the call ``name``; ENOSYS if there is none."""
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*arguments)
        if name in _FUNCTIONS_OF_NAMES:
            return _FUNCTIONS_OF_NAMES[name](self._path(arguments[0]), *arguments[1:])
        if name.startswith("_") or name == "perform" or not hasattr(self, name):
            raise OSError(errno.ENOSYS, f"unknown system call {name!r}")
        return getattr(self, name)(*arguments)

    def chdir(self, root: str) -> None:
        """Make names relative to ``root``; no system call."""
        self._root = root

    def close_all(self) -> None:
        """Close all descriptors and maps, and end all programs and lockers: one call for each."""
        for number in list(self._lockers):
            self.end_locker(number)
        for number in list(self._programs):
            self.end_program(number)
        for number in list(self._maps):
            self._maps.pop(number).close()
        for descriptor in list(self._open):
            self.close(descriptor)

    # Whole files: several calls each.

    def write_file(self, name: str, data: bytes, flags: int = os.O_CREAT | os.O_TRUNC) -> None:
        """Open for writing, write all of ``data``, close."""
        with fsutil.open_fd(self._path(name), os.O_WRONLY | flags, 0o666) as descriptor:
            fsutil.write_all(descriptor, data)

    def read_file(self, name: str, size: int = 1 << 20) -> bytes:
        """Open, read up to ``size`` bytes to the end, close."""
        content = b""
        with fsutil.open_fd(self._path(name), os.O_RDONLY) as descriptor:
            while data := os.read(descriptor, size - len(content)):
                content += data
        return content

    def remove(self, name: str) -> None:
        """Remove a file or a tree; do nothing if it does not exist."""
        fsutil.remove(self._path(name).encode())

    # Open files.

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """open(2); returns the descriptor."""
        return self._noted(os.open(self._path(name), flags, mode))

    def open_at(self, directory: int, name: str, flags: int, mode: int = 0o666) -> int:
        """openat(2): ``name`` is relative to an open directory; returns the descriptor."""
        return self._noted(os.open(name, flags, mode, dir_fd=directory))

    def dup(self, descriptor: int) -> int:
        """dup(2); returns the new descriptor."""
        return self._noted(os.dup(descriptor))

    def close(self, descriptor: int) -> None:
        """close(2)."""
        self._open.discard(descriptor)
        os.close(descriptor)

    def read_direct(self, descriptor: int, size: int, offset: int) -> bytes:
        """pread(2) into memory that starts on a page, as O_DIRECT requires."""
        with mmap.mmap(-1, size) as buffer:
            with memoryview(buffer) as view:
                got = os.preadv(descriptor, [view], offset)
            return buffer[:got]

    def write_direct(self, descriptor: int, data: bytes, offset: int) -> int:
        """pwrite(2) from memory that starts on a page, as O_DIRECT requires."""
        with mmap.mmap(-1, len(data)) as buffer:
            buffer[:] = data
            with memoryview(buffer) as view:
                return os.pwritev(descriptor, [view], offset)

    def fallocate(self, descriptor: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2); posix_fallocate(3) may be emulated by writes, which know the client's size alone."""
        _call_libc("fallocate", descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length))

    def ioctl(self, descriptor: int, request: int, data: bytes) -> list[Any]:
        """ioctl(2); returns the call's result and the changed ``data``."""
        buffer = bytearray(data)
        returned = fcntl.ioctl(descriptor, request, buffer, True)
        return [returned, bytes(buffer)]

    def ioctl_number(self, descriptor: int, request: int, argument: int) -> int:
        """ioctl(2) of a request whose argument is a number."""
        return fcntl.ioctl(descriptor, request, argument)

    def fstat(self, descriptor: int) -> dict[str, int]:
        """fstat(2)."""
        return _stat_fields(os.fstat(descriptor))

    # Names.

    def stat(self, name: str) -> dict[str, int]:
        """lstat(2)."""
        return _stat_fields(os.lstat(self._path(name)))

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""
        os.rename(self._path(old), self._path(new))

    def rename_with(self, old: str, new: str, flags: int) -> None:
        """renameat2(2)."""
        names = _AT_FDCWD, os.fsencode(self._path(old)), _AT_FDCWD, os.fsencode(self._path(new))
        _call_libc("renameat2", *names, ctypes.c_uint(flags))

    def link(self, old: str, new: str) -> None:
        """link(2)."""
        os.link(self._path(old), self._path(new), follow_symlinks=False)

    def symlink(self, text: str, name: str) -> None:
        """symlink(2)."""
        os.symlink(text, self._path(name))

    def listdir(self, name: str = ".") -> list[str]:
        """Read a whole directory (open, getdents, close); sorted, without ``.`` and ``..``."""
        return sorted(os.listdir(self._path(name)))

    def scan(self, name: str = ".") -> list[list[Any]]:
        """Read a whole directory like :meth:`listdir`; return name, d_ino and type of each entry.

        Where d_type is DT_UNKNOWN (readdir(3)), the type is that of lstat(2).
        """
        with os.scandir(self._path(name)) as entries:
            return sorted([entry.name, entry.inode(), fsutil.entry_type(entry)] for entry in entries)

    def utime(self, name: str, access: int, modification: int) -> None:
        """utimensat(2), in nanoseconds since the epoch."""
        os.utime(self._path(name), ns=(access, modification))

    # Locks.

    def lock(self, descriptor: int, kind: int, start: int, length: int, wait: bool) -> None:
        """fcntl(2), F_SETLK, or F_SETLKW to ``wait``; ``kind`` is F_RDLCK, F_WRLCK or F_UNLCK."""
        request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        fcntl.fcntl(descriptor, fcntl.F_SETLKW if wait else fcntl.F_SETLK, request)

    def ofd_lock(self, descriptor: int, kind: int, start: int, length: int, wait: bool) -> None:
        """fcntl(2), F_OFD_SETLK or F_OFD_SETLKW."""
        request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        fcntl.fcntl(descriptor, _OFD_SETLKW if wait else _OFD_SETLK, request)

    def getlk(self, descriptor: int, kind: int, start: int, length: int) -> list[int]:
        """fcntl(2), F_GETLK; returns type, start and length of a conflicting lock (type F_UNLCK: none)."""
        request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        conflict = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        return [conflict[0], conflict[2], conflict[3]]

    def start_locker(self, name: str, requests: list[list[Any]]) -> int:
        """Start a process that requests locks of a file (:class:`Locker`); returns a number for it."""
        number = max(self._lockers, default=0) + 1
        self._lockers[number] = Locker(self._path(name), requests)
        return number

    def interrupt_locker(self, number: int) -> int:
        """Interrupt the request that the process waits in; returns its errno (:meth:`Locker.interrupt`)."""
        return self._lockers[number].interrupt()

    def has_locked(self, number: int, seconds: float) -> bool:
        """Return whether the process is granted all requests within ``seconds``."""
        return self._lockers[number].has_locked(seconds)

    def end_locker(self, number: int) -> bool:
        """Kill the process; returns whether it has ended."""
        return self._lockers.pop(number).end()

    # Memory.

    def map(self, descriptor: int, size: int) -> int:
        """mmap(2), shared, to read and write; returns a number for the map."""
        number = len(self._maps) + 1
        self._maps[number] = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        return number

    def peek(self, number: int, offset: int, size: int) -> bytes:
        """Read from a map."""
        return self._maps[number][offset : offset + size]

    def poke(self, number: int, offset: int, data: bytes) -> None:
        """Write into a map."""
        self._maps[number][offset : offset + len(data)] = data

    def msync(self, number: int) -> None:
        """msync(2), MS_SYNC."""
        self._maps[number].flush()

    def unmap(self, number: int) -> None:
        """munmap(2)."""
        self._maps.pop(number).close()

    # Programs.

    def run_program(self, argv: list[str], seconds: float) -> list[Any]:
        """Run a program of the client to its end, in the directory; return its status, stdout and stderr.

        A program that does not end within ``seconds`` is killed: ETIMEDOUT.
        """
        import subprocess  # noqa: PLC0415  # slow, and most sessions start no program

        environment = {**os.environ, "PATH": _PATH, "LC_ALL": "C"}
        try:
            done = subprocess.run(
                argv, cwd=self._root or "/", capture_output=True, text=True, errors="replace",
                timeout=seconds, check=False, env=environment,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise OSError(errno.ETIMEDOUT, f"{argv[0]} did not end within {seconds:g} s") from None
        return [done.returncode, done.stdout, done.stderr]

    def start_program(self, name: str) -> int:
        """Execute the file ``name``, which must end when its stdin is closed; returns a number for it.

        It ends with :meth:`end_program`, or with this process.
        """
        import subprocess  # noqa: PLC0415  # as above

        process = subprocess.Popen([self._path(name)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        number = process.pid
        self._programs[number] = process
        return number

    def end_program(self, number: int) -> int:
        """Close the program's stdin and wait for its end; returns its exit status."""
        process = self._programs.pop(number)
        process.stdin.close()
        return int(process.wait(timeout=_PROGRAM_SECONDS))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _noted(self, descriptor: int) -> int:
        """Note a new descriptor for :meth:`close_all`, and return it."""
        self._open.add(descriptor)
        return descriptor


def _stat_fields(result: os.stat_result) -> dict[str, int]:
    fields = ("ino", "mode", "nlink", "size", "blocks", "atime_ns", "mtime_ns", "ctime_ns")
    return {name: getattr(result, f"st_{name}") for name in fields}


def _call_libc(name: str, *arguments: object) -> None:
    """Call a function of the C library that Python does not have; raise its OSError, ENOSYS without it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    number = errno.ENOSYS if call is None else ctypes.get_errno() if call(*arguments) == -1 else 0
    if number:
        raise OSError(number, os.strerror(number))
