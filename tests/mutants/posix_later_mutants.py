"""Mutants of what comes later: the second time, behind large sizes, after another operation."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import Bending, Entries, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant, overriding

BORDER = 1 << 32
MIB = 1 << 20
LONGEST = 254
"""Bytes of a name that count for the mutant of long names."""


class Remembering(Keeping):
    """``again`` counts an event and returns whether it happened before."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.times: Counter[Hashable] = Counter()

    def again(self, *what: Hashable) -> bool:
        self.times[what] += 1
        return self.times[what] > 1


class Redirecting(Keeping):
    """Reads of an open file that was replaced return another file's data: ``instead`` by node."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.instead: dict[int, int] = {}

    def node_named(self, parent: int, name: bytes) -> int | None:
        """Return the node of a regular file that the kernel knows."""
        try:
            one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        except FileNotFoundError:
            return None
        found = self._by_key.get((one.st_dev, one.st_ino))
        return found.id if found and stat.S_ISREG(one.st_mode) else None

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return super().read(call, node, self.instead.get(node, handle), offset, size)


@mutant("write-over-4gib-torn | write(3p) | of a write that crosses 4 GiB, the rest is stored at byte 0")
class WriteOver4GibTorn(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not offset < BORDER < offset + len(data):
            return super().write(call, node, handle, offset, data)
        cut = BORDER - offset
        super().write(call, node, handle, offset, data[:cut])
        super().write(call, node, handle, 0, data[cut:])
        return len(data)


@mutant("grown-again-shows-old | ftruncate(3p) | a file that grows the second time shows what was cut off")
class GrownAgainShowsOld(Remembering):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.tails: dict[int, tuple[int, bytes]] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        path = self.nodes[node].path
        with open(path, "rb") as file:  # a descriptor's path
            before = os.fstat(file.fileno()).st_size
            if size < before:
                self.tails[node] = (size, os.pread(file.fileno(), min(before - size, 1 << 16), size))
        super().truncate(call, node, handle, size)
        if size > before and self.again(node) and node in self.tails:
            at, tail = self.tails[node]
            self.reset_ids()
            fd = os.open(path, os.O_WRONLY)
            os.pwrite(fd, tail[: max(0, size - at)], at)
            os.close(fd)


@mutant("replaced-open-file-is-new | rename(3p) | an open file that rename replaced reads as the new one")
class ReplacedOpenFileIsNew(Redirecting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        node = None if flags else self.node_named(where, new)
        super().rename(call, parent, old, where, new, flags)
        if node is not None:
            self.reset_ids()
            self.instead[node] = os.open(new, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.fd(where))


@mutant(
    "replaced-link-still-counts | rename(3p) | the link count of a file keeps the name that rename replaced"
)
class ReplacedLinkStillCounts(Keeping, Bending):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.more: Counter[int] = Counter()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced = None
        try:
            one = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
            if not flags and one.st_nlink > 1 and not stat.S_ISDIR(one.st_mode):
                replaced = one.st_ino
        except FileNotFoundError:
            pass
        super().rename(call, parent, old, where, new, flags)
        if replaced is not None:
            self.more[replaced] += 1

    def bend(self, found: Attributes) -> None:
        found.nlink += self.more[found.ino]


@mutant("same-mode-keeps-ctime | chmod(3p) | chmod to the mode that a file has does not mark ctime")
class SameModeKeepsCtime(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if stat.S_IMODE(os.fstat(self.fd(node)).st_mode) != mode:
            super().chmod(call, node, mode)


class _Appending(Keeping):
    """Does what O_APPEND means itself: ``ends`` by handle."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[int, int | None] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags & ~os.O_APPEND)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = self.first_end(opened.handle)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags & ~os.O_APPEND, mode, umask)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = self.first_end(opened.handle)
        return node, opened

    def first_end(self, handle: int) -> int | None:
        return None

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.ends.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle not in self.ends or call.from_cache:
            return super().write(call, node, handle, offset, data)
        at = self.end(handle, self.ends[handle])
        done = super().write(call, node, handle, at, data)
        self.ends[handle] = at + done
        return done

    def end(self, handle: int, known: int | None) -> int:
        raise NotImplementedError


@mutant("append-at-last-own-end | open(3p) | O_APPEND writes at its own last end after another cut the file")
class AppendAtLastOwnEnd(_Appending):
    def end(self, handle: int, known: int | None) -> int:
        return max(known or 0, os.fstat(handle).st_size)


@mutant("append-at-own-end | open(3p) | O_APPEND writes at the end of when the file was opened")
class AppendAtOwnEnd(_Appending):
    def first_end(self, handle: int) -> int | None:
        return os.fstat(handle).st_size

    def end(self, handle: int, known: int | None) -> int:
        return known or 0


@mutant("rewind-shows-old | rewinddir(3p) | after rewinddir, a directory is as it was when it was opened")
class RewindShowsOld(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.read_before: dict[tuple[int, int], Entries] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        if (handle, offset) not in self.read_before:
            self.read_before[handle, offset] = super().readdir(call, node, handle, offset, size)
        return self.read_before[handle, offset]

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self.read_before = {key: one for key, one in self.read_before.items() if key[0] != handle}
        super().releasedir(call, node, handle)


@mutant(
    "unlock-middle-drops-end | fcntl(3p) | an unlock in the middle of a lock gives up what is behind, too"
)
class UnlockMiddleDropsEnd(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and not asked.whole:
            inside = [
                one for one in self.held
                if one.owner == asked.owner and one.meets(asked) and one.start < asked.start
            ]  # fmt: skip
            asked = replace(asked, end=max([asked.end, *(one.end for one in inside)]))
        super().put(asked)


@mutant("close-of-another-keeps-locks | fcntl(3p) | a close of another descriptor keeps the process's locks")
class CloseOfAnotherKeepsLocks(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        if owner in self.through.get(handle, ()):
            super().flush(call, node, handle, owner)
        else:
            PassThrough.flush(self, call, node, handle, owner)


@mutant("new-file-is-the-unlinked | unlink(3p) | an unlinked open file reads as the new file of its name")
class NewFileIsTheUnlinked(Redirecting):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.gone: dict[tuple[int, bytes], int] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.node_named(parent, name)
        super().unlink(call, parent, name)
        if node is not None:
            self.gone[parent, name] = node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        old = self.gone.pop((parent, name), None)
        if old is not None:
            self.reset_ids()
            self.instead[old] = os.open(name, os.O_RDONLY, dir_fd=self.fd(parent))
        return made


@mutant(
    "moved-directory-old-parent | readdir(3p) | the entry .. of a moved directory has its old parent's inode"
)
class MovedDirectoryOldParent(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.parents: dict[tuple[int, int], int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False)
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(one.st_mode) and parent != where:
            self.parents[one.st_dev, one.st_ino] = os.fstat(self.fd(parent)).st_ino

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        old = self.parents.get(self.nodes[node].key)
        if old is None:
            return found
        return [(old if one[3] == b".." else one[0], *one[1:]) for one in found]


def _atime_too(
    self: PassThrough, call: Call, node: int, atime: int | str | None, mtime: int | str | None
) -> tuple[object, ...]:
    return call, node, mtime if atime is None else atime, mtime


@mutant("omitted-atime-set | utimensat(3p) | utimensat that omits atime sets it to mtime")
@overriding(_atime_too, "utimens")
class OmittedAtimeSet(PassThrough):
    pass


@mutant("set-id-kept-second-time | write(3p) | the second write to a program keeps S_ISUID and S_ISGID")
class SetIdKeptSecondTime(Remembering):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        mode = stat.S_IMODE(os.fstat(self.fd(node)).st_mode)
        done = super().write(call, node, handle, offset, data)
        if mode & 0o6000 and stat.S_IMODE(os.fstat(self.fd(node)).st_mode) != mode and self.again(node):
            self.reset_ids()
            os.chmod(self.nodes[node].path, mode)
        return done


@mutant("copy-first-mib-repeated | copy_file_range(2) | a copy of more than 1 MiB repeats the first MiB")
class CopyFirstMibRepeated(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        for at in range(MIB, done, MIB):
            os.copy_file_range(source, sink, min(MIB, done - at), start, to + at)
        return done


@mutant("exclusive-after-move | open(3p) | O_EXCL refuses a name that was renamed away")
class ExclusiveAfterMove(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moved: set[tuple[int, bytes]] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if not flags:
            self.moved.add((parent, old))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if flags & os.O_EXCL and (parent, name) in self.moved:
            self.moved.discard((parent, name))
            raise FileExistsError(errno.EEXIST, "create")
        return super().create(call, parent, name, flags, mode, umask)


@mutant("directory-made-again-old-mode | mkdir(3p) | a directory made again has the mode of the removed one")
class DirectoryMadeAgainOldMode(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.modes: dict[tuple[int, bytes], int] = {}

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        mode = stat.S_IMODE(os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False).st_mode)
        super().rmdir(call, parent, name)
        self.modes[parent, name] = mode

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        old = self.modes.pop((parent, name), None)
        if old is not None:
            self.reset_ids()
            os.chmod(self.nodes[node].path, old)
        return node


@mutant("link-count-modulo-32 | link(3p) | st_nlink is counted modulo 32")
class LinkCountModulo32(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISREG(found.mode):
            found.nlink %= 32


def _cut(name: bytes) -> bytes:
    return name[:LONGEST]


@mutant("longest-names-cut | <limits.h> NAME_MAX | of names of 255 bytes the last byte does not count")
class LongestNamesCut(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(call, parent, _cut(name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, _cut(name), flags, mode, umask)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, _cut(name), mode, umask)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, _cut(name))

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(call, parent, _cut(name))

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        return super().link(call, old, parent, _cut(name))

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, _cut(name), target)

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        return super().mknod(call, parent, _cut(name), mode, device, umask)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, _cut(old), where, _cut(new), flags)


@mutant("second-chown-clears-group | chown(3p) | the second chown that leaves the group sets it to 0")
class SecondChownClearsGroup(Remembering):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        if gid == -1 and self.again(node):
            self.reset_ids()
            os.chown(self.nodes[node].path, -1, 0)
