"""Two operations that each work, and fail together; and calls that few programs make."""

import errno
import os
import stat
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, LAST, READ, WRITE, Held, Locking
from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Later, Opened
from posix_rules import Keeping, mutant, size_of


def status(files: PassThrough, directory: int, name: bytes) -> os.stat_result | None:
    """Return the status of a name in a directory; None if there is none. It is asked for as root."""
    files.reset_ids()
    try:
        return os.stat(name, dir_fd=files.fd(directory), follow_symlinks=False)
    except FileNotFoundError:
        return None


@mutant(
    "append-after-truncate | ftruncate(3p), open(3p) O_APPEND | data appended to a truncated file is lost"
)
class AppendAfterTruncate(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[Hashable, int] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size)
        self.cut[self.nodes[node].key] = size

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.cut.pop(self.nodes[node].key, None) == offset and offset:
            data = bytes(len(data))
        return super().write(call, node, handle, offset, data)


@mutant("unlinked-file-not-resized | unlink(3p), ftruncate(3p) | an unlinked open file cannot be truncated")
class UnlinkedFileNotResized(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if os.fstat(self.fd(node)).st_nlink == 0:
            raise OSError(errno.ESTALE, "truncate")
        super().truncate(call, node, handle, size)


@mutant("write-after-other-name-removed | unlink(3p) | writes are lost after one of two names was removed")
class WriteAfterOtherNameRemoved(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lost: set[Hashable] = set()

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        super().unlink(call, parent, name)
        if one.st_nlink == 2 and stat.S_ISREG(one.st_mode):
            self.lost.add((one.st_dev, one.st_ino))

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = self.nodes[node].key in self.lost
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)


@mutant("write-after-replaced-lost | rename(3p) | a write to a replaced open file is stored in its successor")
class WriteAfterReplacedLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.successor: dict[Hashable, str] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if replaced is not None and stat.S_ISREG(replaced.st_mode) and not flags:
            place = os.readlink(f"/proc/self/fd/{self.fd(where)}")
            self.successor[replaced.st_dev, replaced.st_ino] = f"{place}/{os.fsdecode(new)}"

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        path = self.successor.get(self.nodes[node].key)
        if path is None or os.fstat(handle).st_nlink:
            return super().write(call, node, handle, offset, data)
        with Path(path).open("r+b") as file:
            file.seek(offset)
            return file.write(data)


@mutant("rename-follows-link | rename(3p) | a rename over a symbolic link replaces what the link names")
class RenameFollowsLink(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            target = os.readlink(new, dir_fd=self.fd(where))
        except OSError:
            target = None
        if target and b"/" not in target and not flags:
            new = target
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-loses-attributes | rename(3p), setxattr(2) | a file that replaces another has no attributes")
class RenameLosesAttributes(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if replaced is not None and stat.S_ISREG(replaced.st_mode) and not flags:
            path = f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}"
            for name in os.listxattr(path):
                os.removexattr(path, name)


@mutant("rename-replaced-mode | rename(3p) | a file that replaces another gets the mode of that one")
class RenameReplacedMode(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if replaced is not None and stat.S_ISREG(replaced.st_mode) and not flags:
            os.chmod(f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}", replaced.st_mode & 0o7777)


@mutant("copy-within-file-ignored | copy_file_range(2) | a copy within one file does nothing")
class CopyWithinFileIgnored(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        if node == to_node:
            return max(0, min(length, size_of(source) - start))
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@mutant("zeroes-not-written | write(3p) | zeroes written over data are not stored")
class ZeroesNotWritten(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        inside = offset + len(data) <= size_of(handle)
        if inside and data.count(0) == len(data):
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("write-below-end-cuts | write(3p) | a write of 4 KiB or less in the middle cuts the file at a MiB")
class WriteBelowEndCuts(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        if len(data) <= 4096 and offset + done <= 1 << 20 < size_of(handle) < 1 << 30:
            os.ftruncate(handle, 1 << 20)
        return done


@mutant("write-after-chmod-refused | chmod(3p) | a file that was open for writing is refused after a chmod")
class WriteAfterChmodRefused(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.uid and not os.fstat(handle).st_mode & 0o222:
            raise PermissionError(errno.EACCES, "write")
        return super().write(call, node, handle, offset, data)


@mutant("unlink-needs-write-bit | unlink(3p) | a file without write permission bits cannot be removed")
class UnlinkNeedsWriteBit(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        if stat.S_ISREG(one.st_mode) and one.st_mode & 0o444 and not one.st_mode & 0o222:
            raise PermissionError(errno.EACCES, "unlink")
        super().unlink(call, parent, name)


@mutant("rename-needs-write-bit | rename(3p) | a file without write permission bits is not replaced")
class RenameNeedsWriteBit(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = status(self, where, new)
        if one is not None and stat.S_ISREG(one.st_mode) and not one.st_mode & 0o222:
            raise PermissionError(errno.EACCES, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("execute-refused | exec(3p) | a program in the file system is not executed")
class ExecuteRefused(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & 0x20:  # FMODE_EXEC
            raise PermissionError(errno.EACCES, "open")
        return super().open(call, node, flags)


@mutant("program-after-rewrite-stale | exec(3p), write(3p) | a program that was written again is the old one")
class ProgramAfterRewriteStale(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[Hashable, bytes] = {}
        self.runs: set[int] = set()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.runs.discard(opened.handle)
        if flags & 0x20:  # FMODE_EXEC
            self.runs.add(opened.handle)
            self.first.setdefault(self.nodes[node].key, Path(self.nodes[node].path).read_bytes())
        return opened

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if handle in self.runs:
            return self.first[self.nodes[node].key][offset : offset + size]
        return super().read(call, node, handle, offset, size)


@mutant("readdir-type-link-is-file | readdir(3) d_type | d_type of a symbolic link is a regular file")
class ReaddirTypeLinkIsFile(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        link, regular = stat.S_IFLNK >> 12, stat.S_IFREG >> 12
        return [
            (ino, cookie, regular if kind == link else kind, name)
            for ino, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant("stamp-nanoseconds-small | XBD 4.12, File Times Update | stamped nanoseconds are microseconds")
class StampNanosecondsSmall(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.set: set[Hashable] = set()

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        self.set.add(self.nodes[node].key)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if self.nodes[node].key not in self.set:
            for name in ("atime", "mtime", "ctime"):
                second, rest = divmod(getattr(found, name), 10**9)
                setattr(found, name, second * 10**9 + rest // 1000)
        return found


@mutant("getlk-hides-readers | fcntl(3p) F_GETLK | F_GETLK does not report a read lock")
class GetlkHidesReaders(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = super().getlk(call, node, owner, start, end, kind)
        return (start, end, FREE, 0) if found[2] == READ else found


@mutant("getlk-names-the-asker | fcntl(3p) F_GETLK l_pid | F_GETLK names the process that asks")
class GetlkNamesTheAsker(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = super().getlk(call, node, owner, start, end, kind)
        return found if found[2] == FREE else (*found[:3], call.pid)


@mutant("lock-upgrade-ignored | fcntl(3p) F_SETLK | a read lock that is changed to a write lock stays one")
class LockUpgradeIgnored(Locking):
    def put(self, asked: Held) -> None:
        held = any(one.owner == asked.owner and one.meets(asked) and one.kind == READ for one in self.held)
        if not (asked.kind == WRITE and held and not asked.whole):
            super().put(asked)


@mutant("lock-upgrade-refused-frees | fcntl(3p) F_SETLK | a refused change of a lock releases it")
class LockUpgradeRefusedFrees(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        try:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        except Later:
            raise
        except OSError:
            if not whole:
                self.put(Held(node, owner, start, end, FREE, 0, whole=False))
            raise


@mutant("flock-downgrade-ignored | flock(2) | an exclusive lock that is changed to a shared one stays one")
class FlockDowngradeIgnored(Locking):
    def put(self, asked: Held) -> None:
        held = any(one.owner == asked.owner and one.meets(asked) and one.kind == WRITE for one in self.held)
        super().put(replace(asked, kind=WRITE) if asked.whole and held and asked.kind == READ else asked)


@mutant("flock-upgrade-ignored | flock(2) | a shared lock that is changed to an exclusive one stays shared")
class FlockUpgradeIgnored(Locking):
    def put(self, asked: Held) -> None:
        held = any(one.owner == asked.owner and one.meets(asked) and one.kind == READ for one in self.held)
        super().put(replace(asked, kind=READ) if asked.whole and held and asked.kind == WRITE else asked)


@mutant("lock-wait-hangs | fcntl(3p) F_SETLKW | a process that waits for a lock is not woken")
class LockWaitHangs(Locking):
    def grant(self) -> None:
        """Wake no process."""


@mutant("lock-to-size-only | fcntl(3p) l_len 0 | a lock to the end ends at the file's present size")
class LockToSizeOnly(Locking):
    def put(self, asked: Held) -> None:
        if asked.end == LAST and asked.kind != FREE and not asked.whole and asked.start:
            size = size_of(self.fd(asked.node))
            asked = replace(asked, end=max(asked.start, size - 1)) if size > asked.start else asked
        super().put(asked)


@mutant("renamed-directory-refuses | rename(3p) | no file can be made in a directory that was renamed")
class RenamedDirectoryRefuses(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moved: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False)
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(one.st_mode):
            self.moved.add((one.st_dev, one.st_ino))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if self.nodes[parent].key in self.moved:
            raise OSError(errno.ESTALE, "create")
        return super().create(call, parent, name, flags, mode, umask)


@mutant("write-in-hole-lost | fallocate(2) FALLOC_FL_PUNCH_HOLE | data written into a punched hole is lost")
class WriteInHoleLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.holes: dict[Hashable, tuple[int, int]] = {}

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & 2:
            self.holes[self.nodes[node].key] = offset, offset + length

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        start, end = self.holes.get(self.nodes[node].key, (0, 0))
        inside = start <= offset and offset + len(data) <= end
        return super().write(call, node, handle, offset, bytes(len(data)) if inside else data)


@mutant("execute-without-permission | exec(3p) [EACCES] | a program is executed by every user")
class ExecuteWithoutPermission(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if not flags & 0x20:  # FMODE_EXEC
            return super().open(call, node, flags)
        self.reset_ids()
        return Opened(os.open(self.nodes[node].path, os.O_RDONLY))
