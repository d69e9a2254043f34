"""Results of stat and statvfs: times, sizes, blocks, modes."""

import os
import stat
import time
from pathlib import Path
from typing import Any

from fuse_passthrough import Bending, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import mutant, overriding


class _KeepingTimes(PassThrough):
    """``keeping`` puts a file's own times back after what has been done to it."""

    def keeping(self, path: str, before: os.stat_result) -> None:
        self.reset_ids()
        os.utime(path, ns=(os.stat(path).st_atime_ns, before.st_mtime_ns))


@mutant("write-mtime-not-moved | write(3p) | a write does not update the modification time")
class WriteMtimeNotMoved(_KeepingTimes):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        done = super().write(call, node, handle, offset, data)
        self.keeping(self.nodes[node].path, before)
        return done


@mutant("truncate-mtime-not-moved | truncate(3p) | truncate does not update the modification time")
class TruncateMtimeNotMoved(_KeepingTimes):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        before = os.stat(self.nodes[node].path)
        super().truncate(call, node, handle, size)
        self.keeping(self.nodes[node].path, before)


@mutant(
    "directory-mtime-not-moved | open(3p), unlink(3p) | "
    "creating and removing names does not update the directory's times"
)
class DirectoryMtimeNotMoved(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[int, tuple[int, int]] = {}

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISDIR(found.mode):
            found.mtime, found.ctime = self.first.setdefault(node, (found.mtime, found.ctime))
        return found

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        self.first.pop(node, None)


class _OldCtime(PassThrough):
    """``hold`` keeps the status-change time that a file had when it is asked for first."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.held: dict[int, int] = {}

    def hold(self, node: int) -> None:
        self.held.setdefault(node, os.fstat(self.fd(node)).st_ctime_ns)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.ctime = self.held.get(node, found.ctime)
        return found


def _held(files: _OldCtime, call: Call, node: int, *arguments: Any) -> tuple[Any, ...]:
    files.hold(node)
    return call, node, *arguments


@mutant("chmod-ctime-not-moved | chmod(3p) | chmod does not update the status-change time")
@overriding(_held, "chmod")
class ChmodCtimeNotMoved(_OldCtime):
    pass


@mutant("chown-ctime-not-moved | chown(3p) | chown does not update the status-change time")
@overriding(_held, "chown")
class ChownCtimeNotMoved(_OldCtime):
    pass


@mutant("link-ctime-not-moved | link(3p), unlink(3p) | link does not update the status-change time")
class LinkCtimeNotMoved(_OldCtime):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.hold(old)
        return super().link(call, old, parent, name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.node_at(self.fd(parent), name)
        self.hold(node)
        super().unlink(call, parent, name)
        self.forget(node, 1)


@mutant("write-ctime-not-moved | write(3p) | a write does not update the status-change time")
@overriding(_held, "write")
class WriteCtimeNotMoved(_OldCtime):
    pass


@mutant("utimens-ctime-not-moved | futimens(3p) | setting times does not update the status-change time")
@overriding(_held, "utimens")
class UtimensCtimeNotMoved(_OldCtime):
    pass


def _seconds(when: int | str | None) -> int | str | None:
    return -(-when // 10**9) * 10**9 if isinstance(when, int) else when


@mutant("utimens-rounds | futimens(3p) | times are rounded up to the second")
class UtimensRounds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, _seconds(atime), _seconds(mtime))


@mutant("utimens-atime-ignored | futimens(3p) | the access time cannot be set")
class UtimensAtimeIgnored(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, None, mtime)


@mutant("utimens-now-ignored | futimens(3p) UTIME_NOW | UTIME_NOW does not change a time")
class UtimensNowIgnored(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, *(None if one == "now" else one for one in (atime, mtime)))


@mutant("utimens-now-sets-both | futimens(3p) UTIME_NOW | UTIME_NOW for one time sets both to now")
class UtimensNowSetsBoth(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        both = "now" in (atime, mtime) and None not in (atime, mtime)
        super().utimens(call, node, *(("now", "now") if both else (atime, mtime)))


@mutant("utimens-omit-is-now | futimens(3p) UTIME_OMIT | UTIME_OMIT sets a time to now")
class UtimensOmitIsNow(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, *("now" if one is None else one for one in (atime, mtime)))


@mutant("utimens-early-clamped | futimens(3p), XBD 4.16 | a time before 1970 becomes 1970")
class UtimensEarlyClamped(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        times = [max(one, 0) if isinstance(one, int) else one for one in (atime, mtime)]
        super().utimens(call, node, *times)


@mutant("attributes-stale | fstat(3p) | a file's attributes are stale for ten seconds")
class AttributesStale(PassThrough):
    LAST = 10.0

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.seen: dict[int, tuple[float, Attributes]] = {}

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        when, found = self.seen.get(node, (0.0, None))
        if found is None or time.monotonic() - when > self.LAST:
            found = super().getattr(call, node, handle)
            self.seen[node] = time.monotonic(), found
        return found


@mutant("size-stale | fstat(3p) st_size | a file's size is that at its open")
class SizeStale(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.sizes: dict[int, int] = {}

    def _note(self, node: int) -> None:
        self.sizes[node] = os.fstat(self.fd(node)).st_size

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._note(node)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._note(node)
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.sizes.pop(node, None)
        super().release(call, node, handle, owner, flock=flock)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.size = self.sizes.get(node, found.size)
        return found


@mutant("blocks-zero | <sys/stat.h> st_blocks | no file uses any block")
class BlocksZero(Bending):
    def bend(self, found: Attributes) -> None:
        found.blocks = 0


@mutant("blocks-full | <sys/stat.h> st_blocks | a hole uses as many blocks as data")
class BlocksFull(Bending):
    def bend(self, found: Attributes) -> None:
        found.blocks = max(found.blocks, found.size // 512)


@mutant("mode-bits-dropped | chmod(3p) S_ISUID, S_ISGID, S_ISVTX | chmod sets only the permission bits")
class ModeBitsDropped(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode & 0o777)


@mutant("chmod-ignored | chmod(3p) | chmod changes nothing")
class ChmodIgnored(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        """Change nothing."""


@mutant("chown-ignored | chown(3p) | chown changes nothing")
class ChownIgnored(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        """Change nothing."""


@mutant("chown-minus-one | chown(3p) | an id of -1 sets the id to 0")
class ChownMinusOne(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, max(uid, 0), max(gid, 0))


@mutant("statfs-more-free-than-all | fstatvfs(3p) | more blocks are free than the file system has")
class StatfsMoreFreeThanAll(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        return {**found, "bfree": found["blocks"] + 1, "bavail": found["blocks"] + 1}


@mutant("statfs-name-max | fstatvfs(3p) f_namemax | names can be longer than f_namemax")
class StatfsNameMax(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        return {**super().statfs(call, node), "namelen": 1000}


@mutant("statfs-zero | fstatvfs(3p) | the file system reports a size of 0")
class StatfsZero(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        return {**super().statfs(call, node), "blocks": 0, "bfree": 0, "bavail": 0, "bsize": 0, "frsize": 0}
