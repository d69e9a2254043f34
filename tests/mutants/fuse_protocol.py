"""The kernel's side of a file system in user space: requests from ``/dev/fuse``, and the answers to them.

Every request is one ``read`` and every answer one ``write`` on the device (fuse(4)). The layouts are those of
``linux/fuse.h``, protocol 7.31, which every kernel since 5.4 speaks. :data:`OPERATIONS` maps an opcode to the
function that decodes its arguments, calls the method of the same name of a :class:`Files`, and encodes what
that returns. An :class:`OSError` is the answer's errno.

Why not a library: those with a permissive licence bind libfuse's high-level interface, where a file is a
path. Two links are two files there, an unlinked file that is open has no attributes to set, and the flags of
a rename are dropped: an honest file system made of it breaks promises of its own (docs/adr).
"""

import errno
import os
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

MAJOR, MINOR = 7, 31
LARGEST_WRITE = 1 << 20
BUFFER = LARGEST_WRITE + 4096

# FUSE_INIT flags that are asked for: they leave to the file system what another would leave to the kernel.
ASYNC_READ, POSIX_LOCKS, ATOMIC_O_TRUNC, BIG_WRITES, DONT_MASK = 1 << 0, 1 << 1, 1 << 3, 1 << 5, 1 << 6
FLOCK_LOCKS, AUTO_INVAL_DATA, ASYNC_DIO, PARALLEL_DIROPS = 1 << 10, 1 << 12, 1 << 15, 1 << 18
HANDLE_KILLPRIV, MAX_PAGES = 1 << 19, 1 << 22

KEEP_CACHE = 1 << 1
"""FOPEN_KEEP_CACHE: what is cached of the file stays so over an open."""
DIRECT_IO = 1 << 0
"""FOPEN_DIRECT_IO: nothing is cached of the file."""

# FATTR_*: which fields of a SETATTR count.
MODE, UID, GID, SIZE, ATIME, MTIME, HANDLE, ATIME_NOW, MTIME_NOW = (1 << bit for bit in range(9))

_HEADER = struct.Struct("<IIQQIIIHH")
_ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
_INIT = struct.Struct("<IIIIHHIIHHIIH22x")
_STATFS = struct.Struct("<QQQQQIIII24x")
_LOCK = struct.Struct("<QQQQIIII")
_STATX = struct.Struct("<IIQIIIHxxQQQQ")
_STATX_TIME = struct.Struct("<qI4x")
BASIC_STATS, BTIME = 0x7FF, 0x800
"""STATX_BASIC_STATS and STATX_BTIME of <linux/stat.h>: which fields of a STATX are valid."""


@dataclass(slots=True)
class Attributes:
    """struct fuse_attr. Times in nanoseconds, ``blocks`` of 512 bytes; not frozen, so that it can be bent."""

    ino: int
    size: int
    blocks: int
    atime: int
    mtime: int
    ctime: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    blksize: int

    def encode(self) -> bytes:
        (atime, atime_ns), (mtime, mtime_ns), (ctime, ctime_ns) = (
            divmod(one, 1_000_000_000) for one in (self.atime, self.mtime, self.ctime)
        )
        seconds = (one & 0xFFFF_FFFF_FFFF_FFFF for one in (atime, mtime, ctime))
        return _ATTRIBUTES.pack(
            self.ino, self.size, self.blocks, *seconds, atime_ns, mtime_ns, ctime_ns,
            self.mode, self.nlink, self.uid, self.gid, self.rdev, self.blksize, 0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks: the ids of the thread whose system call waits for the answer.

    ``from_cache``: a WRITE is the kernel's own, of data written through a mapping. ``handle``: the open file
    that a lock is asked through. ``request``: all of the request, for :class:`Later`. ``appends``: the file
    of a WRITE has O_APPEND now (fcntl(2) F_SETFL can change it).
    """

    unique: int
    node: int
    uid: int
    gid: int
    pid: int
    from_cache: bool = False
    handle: int = 0
    request: bytes = b""
    appends: bool = False

    def waits_in(self) -> tuple[int, tuple[int, ...]]:
        """Return number and arguments of the system call that waits (proc(5), ``/proc/PID/syscall``).

        The kernel looks up a name before it sends the request that uses it. (-1, ()) if that is unknown.
        """
        try:
            number, *words = Path(f"/proc/{self.pid}/syscall").read_text(encoding="ascii").split()
            return int(number), tuple(int(word, 16) for word in words[:6])
        except (OSError, ValueError):
            return -1, ()

    def name_at(self, pointer: int) -> bytes:
        """Return the last part of the path that an argument points at, b"" where it cannot be read."""
        try:
            with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
                memory.seek(pointer)
                path = memory.read(4096).partition(b"\0")[0]
        except (OSError, ValueError, OverflowError):
            return b""
        return path.rstrip(b"/").rpartition(b"/")[2]


@dataclass(frozen=True, slots=True)
class Init:
    """What a file system asks of the kernel when it is mounted: more flags of FUSE_INIT."""

    flags: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file: its handle, and FOPEN_* flags."""

    handle: int
    flags: int = 0


Created = tuple[int, Opened]
"""The node of a new file, and the file that is open."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name that was found: what it names, and for how many seconds the kernel may believe that."""

    node: int
    attributes: Attributes
    name_lasts: float = 0.0
    attributes_last: float = 0.0

    def encode(self) -> bytes:
        name, attributes = (divmod(int(one * 1e9), 10**9) for one in (self.name_lasts, self.attributes_last))
        head = _ENTRY.pack(self.node, 0, name[0], attributes[0], name[1], attributes[1])
        return head + self.attributes.encode()


class Later(Exception):
    """Raised by a file system that answers this request another time (a lock that has to be waited for)."""


class Files(Protocol):
    """What is served. Methods are named after the operations; see :data:`OPERATIONS` for their arguments."""

    init: Init
    answer: Callable[[int, int], None]
    """Answers a request that was left for :class:`Later`, by its number: 0, or an errno."""
    carry_out: Callable[[bytes], None]
    """Carries out and answers such a request (:attr:`Call.request`)."""

    def entry(self, call: Call, node: int) -> Entry: ...


Operation = Callable[[Any, Call, bytes], bytes]
OPERATIONS: dict[int, Operation] = {}
_UNANSWERED = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET


def _operation(opcode: int) -> Callable[[Operation], Operation]:
    def note(function: Operation) -> Operation:
        OPERATIONS[opcode] = function
        return function

    return note


def serve(device: int, files: Any, *, ready: Callable[[], None]) -> None:
    """Answer what comes from ``device`` until it is unmounted; ``ready`` is called when INIT is answered."""
    files.answer = lambda unique, status: answer(device, unique, status)
    files.carry_out = lambda request: carry_out(device, files, request)
    while True:
        try:
            request = os.read(device, BUFFER)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):  # ENOENT: it was interrupted
                continue
            if error.errno in (errno.ENODEV, errno.ECONNABORTED):  # unmounted; before or during this read
                return
            raise
        _, opcode, unique, *_ = _HEADER.unpack_from(request)
        if opcode == 26:  # INIT
            answer(device, unique, 0, _init(files, request[_HEADER.size :]))
            ready()
            continue
        carry_out(device, files, request)


def carry_out(device: int, files: Any, request: bytes) -> None:
    """Let ``files`` carry out one request, and send the response unless it is for later."""
    _, opcode, unique, node, uid, gid, pid, *_ = _HEADER.unpack_from(request)
    call, body = Call(unique, node, uid, gid, pid, request=request), request[_HEADER.size :]
    try:
        status, data = 0, _decode(opcode)(files, call, body)
    except Later:
        return
    except OSError as error:
        status, data = error.errno or errno.EIO, b""
    except Exception:  # a bug of this module: print it, and send a response to the kernel
        traceback.print_exc(file=sys.stderr)
        status, data = errno.EIO, b""
    if opcode not in _UNANSWERED:
        answer(device, unique, status, data)


def answer(device: int, unique: int, status: int, data: bytes = b"") -> None:
    """Send the response to one request; ignore a request that was interrupted in the meantime."""
    try:
        os.write(device, _ANSWER.pack(_ANSWER.size + len(data), -status, unique) + data)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def _decode(opcode: int) -> Operation:
    try:
        return OPERATIONS[opcode]
    except KeyError:
        raise OSError(errno.ENOSYS, f"opcode {opcode}") from None


def _init(files: Files, body: bytes) -> bytes:
    _, _, readahead, offered = struct.unpack_from("<IIII", body)
    wanted = ASYNC_READ | ATOMIC_O_TRUNC | BIG_WRITES | DONT_MASK | AUTO_INVAL_DATA | ASYNC_DIO
    wanted |= PARALLEL_DIROPS | HANDLE_KILLPRIV | MAX_PAGES | files.init.flags
    pages = LARGEST_WRITE // 4096
    return _INIT.pack(MAJOR, MINOR, readahead, wanted & offered, 16, 12, LARGEST_WRITE, 1, pages, 0, 0, 0, 0)


def _name(body: bytes, start: int = 0) -> bytes:
    return body[start : body.index(b"\0", start)]


def _two(body: bytes, start: int = 0) -> tuple[bytes, bytes]:
    first = _name(body, start)
    return first, _name(body, start + len(first) + 1)


def _attributes(attributes: Attributes) -> bytes:
    return bytes(16) + attributes.encode()  # valid for no time: the kernel asks again


# How the result of a method is encoded.


def _nothing(files: Any, call: Call, result: None) -> bytes:
    return b""


def _data(files: Any, call: Call, data: bytes) -> bytes:
    return data


def _entry(files: Any, call: Call, node: int) -> bytes:
    return files.entry(call, node).encode()


def _opened(files: Any, call: Call, opened: Opened) -> bytes:
    return struct.pack("<QII", opened.handle, opened.flags, 0)


def _created(files: Any, call: Call, result: Created) -> bytes:
    node, opened = result
    return _entry(files, call, node) + _opened(files, call, opened)


def _number(files: Any, call: Call, number: int) -> bytes:
    return struct.pack("<Q", number)


def _lock(files: Any, call: Call, lock: tuple[int, int, int, int]) -> bytes:
    return struct.pack("<QQII", *lock)


_REGULAR = (
    # opcode, method, layout of its numbers, how many names follow, encoding of the result
    (1, "lookup", "<", 1, _entry),
    (5, "readlink", "<", 0, _data),
    (6, "symlink", "<", 2, _entry),
    (8, "mknod", "<III4x", 1, _entry),
    (9, "mkdir", "<II", 1, _entry),
    (10, "unlink", "<", 1, _nothing),
    (11, "rmdir", "<", 1, _nothing),
    (14, "open", "<I", 0, _opened),
    (15, "read", "<QQI", 0, _data),
    (24, "removexattr", "<", 1, _nothing),
    (25, "flush", "<Q8xQ", 0, _nothing),
    (27, "opendir", "<", 0, _opened),
    (29, "releasedir", "<Q", 0, _nothing),
    (31, "getlk", "<8xQQQI", 0, _lock),
    (34, "access", "<I", 0, _nothing),
    (35, "create", "<III4x", 1, _created),
    (43, "fallocate", "<QQQI", 0, _nothing),
    (46, "lseek", "<QQI", 0, _number),
    (47, "copy_file_range", "<QQQQQQ", 0, _number),
    (51, "tmpfile", "<III", 0, _created),
    (53, "copy_file_range", "<QQQQQQ", 0, _number),  # COPY_FILE_RANGE_64
)
"""The operations that are one call of a method: ``method(call, node, *names, *numbers)``."""


def _regular(method: str, layout: str, names: int, encode: Callable[[Any, Call, Any], bytes]) -> Operation:
    numbers = struct.Struct(layout)

    def operation(files: Any, call: Call, body: bytes) -> bytes:
        found = body[numbers.size :].split(b"\0", names)[:names]
        result = getattr(files, method)(call, call.node, *found, *numbers.unpack_from(body))
        return encode(files, call, result)

    return operation


OPERATIONS |= {opcode: _regular(*row) for opcode, *row in _REGULAR}


@_operation(2)
def forget(files: Any, call: Call, body: bytes) -> bytes:
    files.forget(call.node, struct.unpack_from("<Q", body)[0])
    return b""


@_operation(42)
def batch_forget(files: Any, call: Call, body: bytes) -> bytes:
    for at in range(struct.unpack_from("<I", body)[0]):
        files.forget(*struct.unpack_from("<QQ", body, 8 + 16 * at))
    return b""


@_operation(36)
def interrupt(files: Any, call: Call, body: bytes) -> bytes:
    files.interrupt(struct.unpack_from("<Q", body)[0])
    return b""


@_operation(3)
def getattr_(files: Any, call: Call, body: bytes) -> bytes:
    flags, _, handle = struct.unpack_from("<IIQ", body)
    return _attributes(files.getattr(call, call.node, handle if flags & 1 else None))


@_operation(4)
def setattr_(files: Any, call: Call, body: bytes) -> bytes:
    valid, _, handle, size, _, *times, mode, _, uid, gid, _ = _SETATTR.unpack_from(body)
    opened = handle if valid & HANDLE else None
    if valid & MODE:
        files.chmod(call, call.node, mode & 0o7777)
    if valid & (UID | GID):
        files.chown(call, call.node, uid if valid & UID else -1, gid if valid & GID else -1)
    if valid & SIZE:
        files.truncate(call, call.node, opened, size)
    if valid & (ATIME | MTIME):
        now = "now"
        seconds = [one - (1 << 64) if one >> 63 else one for one in times[:2]]
        given = [second * 10**9 + nano for second, nano in zip(seconds, times[3:5], strict=True)]
        atime = None if not valid & ATIME else now if valid & ATIME_NOW else given[0]
        mtime = None if not valid & MTIME else now if valid & MTIME_NOW else given[1]
        files.utimens(call, call.node, atime, mtime)
    return _attributes(files.getattr(call, call.node, opened))


@_operation(12)
def rename(files: Any, call: Call, body: bytes) -> bytes:
    old, new = _two(body, 8)
    files.rename(call, call.node, old, struct.unpack_from("<Q", body)[0], new, 0)
    return b""


@_operation(45)
def rename2(files: Any, call: Call, body: bytes) -> bytes:
    old, new = _two(body, 16)
    where, flags = struct.unpack_from("<QI", body)
    files.rename(call, call.node, old, where, new, flags)
    return b""


@_operation(13)
def link(files: Any, call: Call, body: bytes) -> bytes:
    old = struct.unpack_from("<Q", body)[0]
    return files.entry(call, files.link(call, old, call.node, _name(body, 8))).encode()


@_operation(16)
def write(files: Any, call: Call, body: bytes) -> bytes:
    handle, offset, size, flags, _, of_file = struct.unpack_from("<QQIIQI", body)
    if flags & 1:  # FUSE_WRITE_CACHE
        call = replace(call, from_cache=True)
    elif of_file & os.O_APPEND:
        call = replace(call, appends=True)
    return struct.pack("<II", files.write(call, call.node, handle, offset, body[40 : 40 + size]), 0)


@_operation(17)
def statfs(files: Any, call: Call, body: bytes) -> bytes:
    one = files.statfs(call, call.node)
    counts = (one["blocks"], one["bfree"], one["bavail"], one["files"], one["ffree"])
    return _STATFS.pack(*counts, one["bsize"], one["namelen"], one["frsize"], 0)


@_operation(18)
def release(files: Any, call: Call, body: bytes) -> bytes:
    handle, _, flags, owner = struct.unpack_from("<QIIQ", body)
    files.release(call, call.node, handle, owner, flock=bool(flags & 2))
    return b""


def _sync(files: Any, call: Call, body: bytes, *, method: str) -> bytes:
    handle, flags = struct.unpack_from("<QI", body)
    getattr(files, method)(call, call.node, handle, data_only=bool(flags & 1))
    return b""


OPERATIONS |= {20: partial(_sync, method="fsync"), 30: partial(_sync, method="fsyncdir")}


@_operation(21)
def setxattr(files: Any, call: Call, body: bytes) -> bytes:
    size, flags = struct.unpack_from("<II", body)
    name = _name(body, 8)
    start = 8 + len(name) + 1
    files.setxattr(call, call.node, name, body[start : start + size], flags)
    return b""


def _sized(files: Any, data: bytes, size: int) -> bytes:
    if size == 0:  # only the length was asked for
        return struct.pack("<II", len(data), 0)
    if not files.fits(len(data), size):
        raise OSError(errno.ERANGE, "xattr")
    return data


@_operation(22)
def getxattr(files: Any, call: Call, body: bytes) -> bytes:
    value = files.getxattr(call, call.node, _name(body, 8))
    return _sized(files, value, struct.unpack_from("<I", body)[0])


@_operation(23)
def listxattr(files: Any, call: Call, body: bytes) -> bytes:
    names = files.listxattr(call, call.node)
    return _sized(files, b"".join(name + b"\0" for name in names), struct.unpack_from("<I", body)[0])


@_operation(28)
def readdir(files: Any, call: Call, body: bytes) -> bytes:
    handle, offset, size = struct.unpack_from("<QQI", body)
    data = b""
    for ino, cookie, kind, name in files.readdir(call, call.node, handle, offset, size):
        record = struct.pack("<QqII", ino, cookie, len(name), kind) + name
        record += bytes(-len(record) % 8)
        if len(data) + len(record) > size:
            break
        data += record
    return data


@_operation(39)
def ioctl(files: Any, call: Call, body: bytes) -> bytes:
    """Of the requests that the kernel passes on, those that write or return one number."""
    handle, _, request, _, size, returned = struct.unpack_from("<QIIQII", body)
    number = int.from_bytes(body[32 : 32 + size], "little")
    result = files.ioctl(call, call.node, handle, request, number)
    return bytes(16) if result is None else bytes(16) + result.to_bytes(returned, "little")


@_operation(52)
def statx(files: Any, call: Call, body: bytes) -> bytes:
    """Encode the attributes, and the time of birth if the file system has one."""
    flags, handle = struct.unpack_from("<I4xQ", body)
    one = files.statx(call, call.node, handle if flags & 1 else None)
    born = files.birth(call, call.node)
    head = _STATX.pack(
        BASIC_STATS | (0 if born is None else BTIME), one.blksize, 0, one.nlink, one.uid, one.gid,
        one.mode, one.ino, one.size, one.blocks, 0,
    )  # fmt: skip
    times = (one.atime, born or 0, one.ctime, one.mtime)
    stamps = b"".join(_STATX_TIME.pack(*divmod(each, 1_000_000_000)) for each in times)
    numbers = struct.pack("<IIII", os.major(one.rdev), os.minor(one.rdev), 0, 0)
    return bytes(32) + head + stamps + numbers + bytes(8 * 14)


def _setlk(files: Any, call: Call, body: bytes, *, waits: bool) -> bytes:
    handle, owner, start, end, kind, pid, flags, _ = _LOCK.unpack_from(body)
    call, whole = replace(call, handle=handle), bool(flags & 1)  # FUSE_LK_FLOCK
    files.setlk(call, call.node, owner, start, end, kind, pid, waits=waits, whole=whole)
    return b""


OPERATIONS |= {32: partial(_setlk, waits=False), 33: partial(_setlk, waits=True)}
