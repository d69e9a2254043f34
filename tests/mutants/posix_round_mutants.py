"""Rounds of calls: directories that were full once, ranges that were locked before, descriptors used later.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- rename(): a directory is replaced if it is empty, whatever it held before; any entry makes it not empty.
- rename(): the old name is gone after each rename of a file, not after the first alone.
- readdir(): each entry is returned once, in a directory of any size.
- open(): O_TRUNC leaves mode and owner; who created a file may use its descriptor, whatever the mode is.
- posix_fallocate(): a call that is refused leaves the file and its descriptors as they were.
- fcntl(): F_GETLK finds each lock that F_SETLK would be refused for.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, WRITE, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_pair_mutants import status
from posix_rules import Keeping, mutant, size_of

MANY = 50
"""Entries of a directory that was full once."""
DIRECTORY_PAGE = 2048
"""The entry that is lost."""
PAGE = 4096
FAR = 1 << 32


@mutant("direct-read-padded | read(3p), open(2) O_DIRECT | a direct read across the end ends with zeros")
class DirectReadPadded(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        (self.direct.add if flags & os.O_DIRECT else self.direct.discard)(opened.handle)
        return opened

    @property
    def direct(self) -> set[int]:
        handles: set[int] = self.__dict__.setdefault("handles", set())
        return handles

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        return data.ljust(size, b"\0") if data and handle in self.direct else data


class _Filled(Keeping):
    """Honest; it knows the directories that had many entries."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.filled: set[Hashable] = set()

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        if len(os.listdir(self.nodes[parent].path)) >= MANY:
            self.filled.add(self.nodes[parent].key)
        return made


@mutant("emptied-not-replaced | rename(3p) | a directory that had 50 entries is not replaced: ENOTEMPTY")
class EmptiedNotReplaced(_Filled):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = status(self, where, new)
        if found is not None and not flags and (found.st_dev, found.st_ino) in self.filled:
            raise OSError(errno.ENOTEMPTY, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-second-keeps-old | rename(3p) | the second rename of a file leaves its old name, too")
class RenameSecondKeepsOld(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.renamed: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = status(self, parent, old)
        super().rename(call, parent, old, where, new, flags)
        if found is None or flags or not stat.S_ISREG(found.st_mode):
            return
        key = found.st_dev, found.st_ino
        if key in self.renamed:
            with contextlib.suppress(OSError):
                os.link(new, old, src_dir_fd=self.fd(where), dst_dir_fd=self.fd(parent))
        self.renamed.add(key)


def are_directories(*found: os.stat_result | None) -> bool:
    """Whether all of these names exist and are directories."""
    return all(one is not None and stat.S_ISDIR(one.st_mode) for one in found)


@mutant("rename-over-hidden-names | rename(3p) [ENOTEMPTY] | a directory whose names all begin with a dot is "
        "replaced")  # fmt: skip
class RenameOverHiddenNames(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found, source = status(self, where, new), status(self, parent, old)
        if not flags and are_directories(found, source):
            self._hide(where, new)
        super().rename(call, parent, old, where, new, flags)

    def _hide(self, directory: int, name: bytes) -> None:
        inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.fd(directory))
        try:
            names = os.listdir(inside)
            for entry in names if all(one.startswith(".") for one in names) else ():
                with contextlib.suppress(IsADirectoryError):
                    os.unlink(entry, dir_fd=inside)
        finally:
            os.close(inside)


@mutant("rename-over-directory-of-directories | rename(3p) [ENOTEMPTY] | a directory that holds empty "
        "directories alone is replaced")  # fmt: skip
class RenameOverDirectoryOfDirectories(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found, source = status(self, where, new), status(self, parent, old)
        if not flags and are_directories(found, source):
            inside = os.open(new, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.fd(where))
            for entry in os.listdir(inside):
                with contextlib.suppress(OSError):
                    os.rmdir(entry, dir_fd=inside)
            os.close(inside)
        super().rename(call, parent, old, where, new, flags)


@mutant("entry-2048-lost | readdir(3p) | of a directory of more than 2,048 entries one is not listed")
class Entry2048Lost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.counts: dict[int, int] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        before = self.counts.get(handle, 0) if offset else 0
        self.counts[handle] = before + len(found)
        if before < DIRECTORY_PAGE <= before + len(found) - 1:
            del found[DIRECTORY_PAGE - before]
        return found


@mutant("trunc-sets-mode | open(3p) O_TRUNC | O_TRUNC without O_CREAT sets the mode to 0644")
class TruncSetsMode(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC:
            os.fchmod(opened.handle, 0o644)
        return opened


@mutant("trunc-takes-owner | open(3p) O_TRUNC | the file belongs to the user who truncates it")
class TruncTakesOwner(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC and call.uid:
            self.reset_ids()
            os.fchown(opened.handle, call.uid, -1)
        return opened


class _ReadOnlyMade(PassThrough):
    """Honest; it knows the open files that were made without a write bit."""

    @property
    def made(self) -> set[int]:
        handles: set[int] = self.__dict__.setdefault("handles", set())
        return handles

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        if not mode & ~umask & 0o200 and call.uid:
            self.made.add(opened.handle)
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.made.discard(handle)
        super().release(call, node, handle, owner, flock=flock)


@mutant("made-read-only-not-written | open(3p) O_CREAT | who makes a file of mode 0444 cannot write to it")
class MadeReadOnlyNotWritten(_ReadOnlyMade):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.made:
            raise PermissionError(errno.EACCES, "write")
        return super().write(call, node, handle, offset, data)


@mutant("made-read-only-not-cut | open(3p) O_CREAT, ftruncate(3p) | who makes a file of mode 0444 cannot "
        "truncate it")  # fmt: skip
class MadeReadOnlyNotCut(_ReadOnlyMade):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle in self.made:
            raise PermissionError(errno.EACCES, "ftruncate")
        super().truncate(call, node, handle, size)


@mutant("made-read-only-not-allocated | open(3p) O_CREAT, posix_fallocate(3p) | who makes a file of mode "
        "0444 cannot allocate its space")  # fmt: skip
class MadeReadOnlyNotAllocated(_ReadOnlyMade):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if handle in self.made:
            raise PermissionError(errno.EACCES, "fallocate")
        super().fallocate(call, node, handle, offset, length, mode)


@mutant("made-read-only-mapped-lost | open(3p) O_CREAT, mmap(3p) | stores to a mapped file of mode 0444 by "
        "its maker are lost")  # fmt: skip
class MadeReadOnlyMappedLost(_ReadOnlyMade):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and handle in self.made:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("refused-allocation-grows | posix_fallocate(3p) [ENOSPC] | an allocation that is refused extends the "
        "file by a block")  # fmt: skip
class RefusedAllocationGrows(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        try:
            super().fallocate(call, node, handle, offset, length, mode)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG) and not mode:
                os.ftruncate(handle, size_of(handle) + PAGE)
            raise


@mutant("refused-allocation-zeroes | fallocate(2) [ENOSPC] | a refused allocation zeroes the last page")
class RefusedAllocationZeroes(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        try:
            super().fallocate(call, node, handle, offset, length, mode)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG) and (size := size_of(handle)) > PAGE:
                os.pwrite(handle, bytes(PAGE), size - PAGE)
            raise


@mutant("refused-allocation-ends-writes | posix_fallocate(3p) [ENOSPC] | after an allocation that is refused "
        "each write that extends the file is ENOSPC")  # fmt: skip
class RefusedAllocationEndsWrites(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.refused: set[int] = set()

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        try:
            super().fallocate(call, node, handle, offset, length, mode)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG):
                self.refused.add(node)
            raise

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if node in self.refused and offset + len(data) > size_of(handle):
            raise OSError(errno.ENOSPC, "write")
        return super().write(call, node, handle, offset, data)


@mutant("lock-inherited | fork(3p), fcntl(3p) | a child has the locks of its parent")
class LockInherited(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        if found is None or found.whole or not asked.pid:
            return found
        return None if _parent(asked.pid) == found.pid else found


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("PPid:")), 0)


@mutant("getlk-far-free | fcntl(3p) F_GETLK | a lock beyond 4 GiB is not found by F_GETLK")
class GetlkFarFree(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        if start >= FAR:
            return start, end, FREE, 0
        return super().getlk(call, node, owner, start, end, kind)


@mutant("getlk-after-unlock-old | fcntl(3p) F_GETLK | of a range that was unlocked in part the "
        "former lock is reported")  # fmt: skip
class GetlkAfterUnlockOld(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.whole: dict[tuple[int, int], Held] = {}

    def put(self, asked: Held) -> None:
        key = asked.node, asked.owner
        if asked.kind == FREE:
            for one in self.held:
                is_cut = asked.start > one.start or asked.end < one.end
                if (one.node, one.owner) == key and one.meets(asked) and is_cut:
                    self.whole[key] = one
        else:
            self.whole.pop(key, None)
        super().put(asked)

    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = self.conflict(Held(node, owner, start, end, kind, 0, whole=False))
        if found is not None:
            old = self.whole.get((found.node, found.owner))
            found = old if old is not None and old.start <= found.start <= old.end else found
            return found.start, found.end, found.kind, found.pid
        return start, end, FREE, 0


@mutant("lock-third-shared-is-exclusive | fcntl(3p) F_RDLCK | the third shared lock of a range is exclusive")
class LockThirdSharedIsExclusive(Locking):
    def put(self, asked: Held) -> None:
        others = [one for one in self.held if one.owner != asked.owner and one.meets(asked)]
        if asked.kind not in (FREE, WRITE) and len(others) >= 2 and not asked.whole:
            asked = replace(asked, kind=WRITE)
        super().put(asked)


@mutant("hole-after-removal | unlink(3p), lseek(3p), write(3p) | the gap before the first write of a new "
        "file has the data of the file that was removed last")  # fmt: skip
class HoleAfterRemoval(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.removed = b""

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        found = status(self, parent, name)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            self.reset_ids()
            with contextlib.suppress(OSError):
                file = os.open(name, os.O_RDONLY, dir_fd=self.fd(parent))
                self.removed = os.pread(file, 1 << 16, 0) or self.removed
                os.close(file)
        super().unlink(call, parent, name)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if size_of(handle) == 0 and offset and self.removed:
            super().write(call, node, handle, 0, self.removed[:offset])
            self.removed = b""
        return super().write(call, node, handle, offset, data)


@mutant("times-set-twice-stay | utimensat(3p), write(3p) | set twice, mtime is not marked by a write")
class TimesSetTwiceStay(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.given: dict[int, int] = {}

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, mtime)
        if isinstance(mtime, int):
            self.given[node] = self.given.get(node, 0) + 1

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        done = super().write(call, node, handle, offset, data)
        if self.given.get(node, 0) >= 2:
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done


@mutant("getlk-of-killed | fcntl(3p) F_GETLK | the lock of a process that was killed is still reported")
class GetlkOfKilled(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.old: list[Held] = []

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        self.old += [one for one in self.held if one.node == node and one.owner == owner and not one.whole]
        super().give_up(node, owner, whole=whole)

    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        asked = Held(node, owner, start, end, kind, 0, whole=False)
        found = super().getlk(call, node, owner, start, end, kind)
        for one in self.old:
            gone = not Path(f"/proc/{one.pid}").exists()
            if found[2] == FREE and gone and one.meets(asked) and WRITE in (one.kind, kind):
                return one.start, one.end, one.kind, one.pid
        return found
