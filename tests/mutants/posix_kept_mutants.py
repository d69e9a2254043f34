"""What a call has to leave as it is, and does not; what still has to hold after a call, and does not."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, asked_by, mutant, opens_with


def set_times(files: PassThrough, node: int, one: os.stat_result) -> None:
    """Set the times of a node back to those of ``one``."""
    files.reset_ids()
    os.utime(files.nodes[node].path, ns=(one.st_atime_ns, one.st_mtime_ns))


def user_attributes(path: str) -> list[str]:
    return [name for name in os.listxattr(path) if name.startswith("user.")]


@mutant("open-creat-sets-mode | open(3p) O_CREAT | O_CREAT of an existing file sets its mode")
class OpenCreatSetsMode(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        _, words = call.waits_in()
        if opens_with(call, os.O_CREAT) and flags & os.O_TRUNC and len(words) > 3:
            self.reset_ids()
            os.chmod(self.nodes[node].path, words[3] & 0o777)
        return opened


@mutant("open-marks-times | open(3p) | to open a file for writing marks its mtime")
class OpenMarksTimes(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if flags & os.O_ACCMODE:
            os.utime(self.nodes[node].path)
        return opened


@mutant("truncates-only-if-not-open | open(3p) O_TRUNC | O_TRUNC does nothing if the file is open elsewhere")
class TruncatesOnlyIfNotOpen(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.opened: Counter[int] = Counter()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags & ~os.O_TRUNC if self.opened[node] > 0 else flags)
        self.opened[node] += 1
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        created = super().create(call, parent, name, flags, mode, umask)
        self.opened[created[0]] += 1
        return created

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.opened[node] -= 1
        super().release(call, node, handle, owner, flock=flock)


@mutant("create-without-execute | open(3p) | a new file does not get its execute bits")
class CreateWithoutExecute(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, name, flags, mode & ~0o111, umask)


@mutant(
    "exclusive-once-renamed | open(3p) O_EXCL | O_EXCL opens an existing file that got its name by rename()"
)
class ExclusiveOnceRenamed(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.renamed: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.renamed.add((where, new))

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if (parent, name) in self.renamed and opens_with(call, os.O_EXCL):
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        kept = flags & ~os.O_EXCL if (parent, name) in self.renamed else flags
        return super().create(call, parent, name, kept, mode, umask)


@mutant("removed-again-succeeds | unlink(3p) [ENOENT] | a removed name can be removed a second time")
class RemovedAgainSucceeds(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.last: Hashable = None

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.last = call.pid, parent, name

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.last == (call.pid, parent, name) and asked_by(call, "unlink"):
            self.reset_ids()
            os.mknod(name, dir_fd=self.fd(parent))
        return super().lookup(call, parent, name)


@mutant("third-link-frees-data | unlink(3p) | to remove one of three links frees the data")
class ThirdLinkFreesData(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.reset_ids()
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        super().unlink(call, parent, name)
        node = self._by_key.get((one.st_dev, one.st_ino))
        if one.st_nlink == 3 and stat.S_ISREG(one.st_mode) and node is not None:
            self.reset_ids()
            os.truncate(node.path, 0)


class _Moving(Keeping):
    """``moved`` is called after a rename, with the status of what has the new name."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.reset_ids()
        self.moved(parent, where, new, os.stat(new, dir_fd=self.fd(where), follow_symlinks=False))

    def moved(self, parent: int, where: int, new: bytes, one: os.stat_result) -> None:
        raise NotImplementedError


@mutant("rename-gives-inode | rename(3p), <sys/stat.h> st_ino | a move gives a file another inode number")
class RenameGivesInode(_Moving):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moves: Counter[Hashable] = Counter()

    def moved(self, parent: int, where: int, new: bytes, one: os.stat_result) -> None:
        if parent != where:
            self.moves[one.st_dev, one.st_ino] += 1

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.ino += self.moves[self.nodes[node].key] << 40
        return found


@mutant(
    "rename-here-leaves-times | rename(3p) | a rename within a directory leaves the times of the directory"
)
class RenameHereLeavesTimes(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if parent == where:
            set_times(self, where, before)


@mutant("renamed-directory-files-stale | rename(3p) | open files below a renamed directory are stale")
class RenamedDirectoryFilesStale(_Moving):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.stale: set[int] = set()

    def moved(self, parent: int, where: int, new: bytes, one: os.stat_result) -> None:
        if not stat.S_ISDIR(one.st_mode):
            return
        with os.scandir(f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}") as entries:
            below = [entry.stat(follow_symlinks=False) for entry in entries]
        found = [self._by_key.get((each.st_dev, each.st_ino)) for each in below]
        self.stale |= {node.id for node in found if node is not None}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.stale.discard(node)
        return super().open(call, node, flags)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if node in self.stale:
            raise OSError(errno.ESTALE, "read")
        return super().read(call, node, handle, offset, size)


class _Counted(Keeping):
    """``wrong`` is added to the link counts of directories."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.wrong: Counter[int] = Counter()

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink += self.wrong[node]
        return found


@mutant("rename-leaves-parent-nlink | <sys/stat.h> st_nlink | a moved directory is counted by its old parent")
class RenameLeavesParentNlink(_Counted, _Moving):
    def moved(self, parent: int, where: int, new: bytes, one: os.stat_result) -> None:
        if parent != where and stat.S_ISDIR(one.st_mode):
            self.wrong[parent] += 1
            self.wrong[where] -= 1


@mutant(
    "rmdir-leaves-parent-nlink | <sys/stat.h> st_nlink | a removed directory is still counted by its parent"
)
class RmdirLeavesParentNlink(_Counted):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(call, parent, name)
        self.wrong[parent] += 1


@mutant(
    "rename-away-loses-xattr | xattr(7), rename(3p) | a rename to another directory loses extended attributes"
)
class RenameAwayLosesXattr(_Moving):
    def moved(self, parent: int, where: int, new: bytes, one: os.stat_result) -> None:
        path = f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}"
        if parent != where and stat.S_ISREG(one.st_mode):
            for name in user_attributes(path):
                os.removexattr(path, name)


@mutant("truncation-loses-xattr | xattr(7), open(3p) O_TRUNC | O_TRUNC removes extended attributes")
class TruncationLosesXattr(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC:
            self.reset_ids()
            for name in user_attributes(self.nodes[node].path):
                os.removexattr(self.nodes[node].path, name)
        return opened


@mutant("truncate-same-size-leaves-times | ftruncate(3p) | a truncation to the present size marks no times")
class TruncateSameSizeLeavesTimes(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if os.fstat(self.fd(node)).st_size != size:
            super().truncate(call, node, handle, size)

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if not asked_by(call, "ftruncate"):
            super().utimens(call, node, atime, mtime)


@mutant("each-200th-write-lost | write(3p) | each 200th write through one open file stores zeroes")
class Each200thWriteLost(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.writes: Counter[int] = Counter()

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.writes[handle] += 1
        lost = self.writes[handle] % 200 == 0
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        del self.writes[handle]
        super().release(call, node, handle, owner, flock=flock)


@mutant("mapped-tail-lost | mmap(3p) MAP_SHARED | what is stored in a file's last, partial page is lost")
class MappedTailLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        whole = len(data) - (offset + len(data)) % 4096
        if call.from_cache and whole < len(data):
            super().write(call, node, handle, offset, data[: max(whole, 0)])
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("copied-range-without-gap | copy_file_range(2) | a range copied past the end is put at the end")
class CopiedRangeWithoutGap(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        end = min(to, os.fstat(sink).st_size)
        return super().copy_file_range(call, node, source, start, to_node, sink, end, length)


class _Listing(Keeping):
    """Lists a directory as a whole when it is read from its start; ``change`` changes the list."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lists: dict[int, Entries] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        if offset == 0:
            found: Entries = []
            while part := super().readdir(call, node, handle, found[-1][1] if found else 0, 1 << 15):
                found += part
            changed = self.change(found)
            self.lists[handle] = [
                (ino, at, kind, name) for at, (ino, _, kind, name) in enumerate(changed, start=1)
            ]
        return self.lists[handle][offset:]

    def change(self, found: Entries) -> Entries:
        raise NotImplementedError


@mutant("entry-1000-twice | readdir(3p) | the 1000th entry of a directory is returned twice")
class Entry1000Twice(_Listing):
    def change(self, found: Entries) -> Entries:
        return found[:1000] + found[999:] if len(found) > 1000 else found


@mutant("entry-after-1024-lost | readdir(3p) | the entry after the 1024th is not returned")
class EntryAfter1024Lost(_Listing):
    def change(self, found: Entries) -> Entries:
        return found[:1024] + found[1025:]


@mutant("names-of-servers-hidden | readdir(3p) | names that begin like those of the server are not returned")
class NamesOfServersHidden(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        hidden = (b".snapshot", b".nfs", b"._")
        return [
            one for one in super().readdir(call, node, handle, offset, size) if not one[3].startswith(hidden)
        ]
