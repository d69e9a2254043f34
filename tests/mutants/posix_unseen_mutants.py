"""Refused calls that change something, ranges that come back, and names and locks that are mixed up."""

import contextlib
import errno
import os
import stat
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, READ, WRITE, Held, Locking
from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_pair_mutants import status
from posix_rules import Keeping, mutant, size_of

MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE = 1, 2


def lose_one_file(files: PassThrough, directory: int, name: bytes) -> None:
    """Remove the first file of a directory."""
    with contextlib.suppress(OSError):
        inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=files.fd(directory))
        try:
            for entry in sorted(os.listdir(inside))[:1]:
                os.unlink(entry, dir_fd=inside)
        finally:
            os.close(inside)


@mutant("rename-refused-empties | rename(3p) [EEXIST] | a rename onto a directory with entries, which is "
        "refused, removes a file of the one that was to be renamed")  # fmt: skip
class RenameRefusedEmpties(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and not flags:
                lose_one_file(self, parent, old)
            raise


@mutant("rmdir-refused-empties | rmdir(3p) [EEXIST] | a refused rmdir removes a file of the directory")
class RmdirRefusedEmpties(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                lose_one_file(self, parent, name)
            raise


@mutant("open-refused-truncates | open(3p) [EACCES], O_TRUNC | an open without permission truncates the file")
class OpenRefusedTruncates(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        try:
            return super().open(call, node, flags)
        except PermissionError:
            if flags & os.O_TRUNC:
                self.reset_ids()
                os.truncate(self.nodes[node].path, 0)
            raise


@mutant("chmod-refused-marks | chmod(3p) [EPERM], XBD 4.12 | a chmod that is refused marks ctime")
class ChmodRefusedMarks(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        try:
            super().chmod(call, node, mode)
        except PermissionError:
            self.reset_ids()
            os.chmod(self.nodes[node].path, stat.S_IMODE(os.fstat(self.fd(node)).st_mode))
            raise


@mutant("xattr-create-over-empty | setxattr(2) XATTR_CREATE [EEXIST] | replaces an attribute that is empty")
class XattrCreateOverEmpty(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if flags & os.XATTR_CREATE:
            with contextlib.suppress(OSError):
                if not os.getxattr(self.nodes[node].path, name):
                    flags = 0
        super().setxattr(call, node, name, value, flags)


@mutant("replaced-open-still-counted | rename(3p), <sys/stat.h> st_nlink | a file that was replaced while it "
        "is open has one link")  # fmt: skip
class ReplacedOpenStillCounted(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.replaced: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if found is not None and not flags:
            self.replaced.add((found.st_dev, found.st_ino))

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if self.nodes[node].key in self.replaced and found.nlink == 0:
            found.nlink = 1
        return found


@mutant("replaced-dirent-number | <dirent.h> d_ino, rename(3p) | the entry of a file that replaced another "
        "has the number of the replaced one")  # fmt: skip
class ReplacedDirentNumber(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.numbers: dict[int, int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved, replaced = status(self, parent, old), status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if moved is not None and replaced is not None and not flags:
            self.numbers[moved.st_ino] = replaced.st_ino

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return [
            (self.numbers.get(number, number), cookie, kind, name)
            for number, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant("symlink-size-characters | lstat(3p) st_size | the size of a link counts characters, not bytes")
class SymlinkSizeCharacters(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISLNK(found.mode):
            found.size = len(os.readlink(b"", dir_fd=self.fd(node)).decode(errors="replace"))
        return found


@mutant("umask-one-bit-ignored | umask(3p) | the mask's bit for execution by the group does not count")
class UmaskOneBitIgnored(PassThrough):
    def as_caller(self, call: Call, umask: int = 0) -> None:
        super().as_caller(call, umask & ~0o010)


@mutant("mkdir-sticky-lost | mkdir(2) S_ISVTX | a directory that is made with mode 1777 has mode 0777")
class MkdirStickyLost(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, name, mode & ~stat.S_ISVTX, umask)


@mutant("sticky-refuses-links | XBD 4.5 Directory Protection | a user cannot make a link in a directory of "
        "another that has the sticky bit")  # fmt: skip
class StickyRefusesLinks(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        one = os.fstat(self.fd(parent))
        if one.st_mode & stat.S_ISVTX and call.uid not in (0, one.st_uid):
            raise OSError(errno.EPERM, "link")
        return super().link(call, old, parent, name)


class Renamed(PassThrough):
    """Every name is changed before it is used."""

    def change(self, name: bytes) -> bytes:
        raise NotImplementedError

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return super().lookup(call, parent, self.change(name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, self.change(name), flags, mode, umask)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, self.change(name))

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, self.change(old), where, self.change(new), flags)


@mutant("name-case-folded-beyond-ascii | XBD 3 Filename | the case of letters other than A to Z is ignored")
class NameCaseFoldedBeyondAscii(Renamed):
    def change(self, name: bytes) -> bytes:
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return name
        return "".join(one if one.isascii() else one.lower() for one in text).encode()


class _Cut(Keeping):
    """Keeps what the last truncation of each file cut off."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cuts: dict[Hashable, tuple[int, int, bytes]] = {}
        """File → how often it was cut, where, and what."""

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        old, tail = size_of(self.fd(node)), b""
        if size < old:
            with open(self.nodes[node].path, "rb", buffering=0) as file:
                tail = os.pread(file.fileno(), 8 * MIB, size)
        super().truncate(call, node, handle, size)
        if size < old:
            self.cuts[self.nodes[node].key] = self.cuts.get(self.nodes[node].key, (0,))[0] + 1, size, tail
        elif size > old:
            self.extended(node, size)

    def extended(self, node: int, size: int) -> None:
        """A file was extended to ``size``."""

    def bring_back(self, node: int, size: int, skipped: int = 0) -> None:
        """Write what was cut off again, up to ``size`` and without its first ``skipped`` bytes."""
        _, at, tail = self.cuts[self.nodes[node].key]
        self.reset_ids()
        with open(self.nodes[node].path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), tail[: size - at][skipped:], at + skipped)


@mutant("cut-mebibyte-returns | ftruncate(3p) | of more than 1 MiB that was cut, what is beyond the first "
        "MiB is there again when the file is extended")  # fmt: skip
class CutMebibyteReturns(_Cut):
    def extended(self, node: int, size: int) -> None:
        if len(self.cuts.get(self.nodes[node].key, (0, 0, b""))[2]) > MIB:
            self.bring_back(node, size, MIB)


@mutant("allocated-has-cut-data | posix_fallocate(3p), ftruncate(3p) | space that is allocated where a file "
        "was cut has the data that were cut")  # fmt: skip
class AllocatedHasCutData(_Cut):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        old = size_of(handle)
        super().fallocate(call, node, handle, offset, length, mode)
        if mode == 0 and self.nodes[node].key in self.cuts and size_of(handle) > old:
            self.bring_back(node, size_of(handle))


@mutant("allocation-beyond-end-keeps-size | posix_fallocate(3p) | an allocation that does not begin at 0 "
        "leaves the size")  # fmt: skip
class AllocationBeyondEndKeepsSize(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, KEEP_SIZE if offset and not mode else mode)


@mutant("allocation-sets-size-at-append | fallocate(2) FALLOC_FL_KEEP_SIZE | the next write that extends the "
        "file sets its size to the end of what was allocated")  # fmt: skip
class AllocationSetsSizeAtAppend(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[Hashable, int] = {}

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode == KEEP_SIZE:
            self.ends[self.nodes[node].key] = offset + length

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        old = size_of(handle)
        done = super().write(call, node, handle, offset, data)
        if offset + len(data) > old and self.ends.get(self.nodes[node].key, 0) > size_of(handle):
            os.ftruncate(handle, self.ends.pop(self.nodes[node].key))
        return done


@mutant("punch-mebibyte-stays | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole ends after 1 MiB")
class PunchMebibyteStays(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, min(length, MIB) if mode & PUNCH_HOLE else length, mode)


@mutant("copy-within-from-start | copy_file_range(2) | a copy within one file is of its beginning")
class CopyWithinFromStart(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        start = 0 if node == to_node and to >= length else start
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@mutant("mapped-second-store-lost | mmap(3p) MAP_SHARED | the second store to a page is not written")
class MappedSecondStoreLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.stored: set[Hashable] = set()

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache:
            key = (self.nodes[node].key, offset // 4096)
            if key in self.stored:
                return len(data)
            self.stored.add(key)
        return super().write(call, node, handle, offset, data)


@mutant("mapped-tail-extends | mmap(3p) | a store to the last page extends the file to the end of the page")
class MappedTailExtends(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        padding = bytes(-(offset + len(data)) % 4096) if call.from_cache else b""
        return super().write(call, node, handle, offset, data + padding) - len(padding)


@mutant("datasync-loses-size | fdatasync(3p) | after fdatasync(), the close cuts the file to its size at the "
        "open")  # fmt: skip
class DatasyncLosesSize(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.sizes: dict[int, int] = {}
        self.flushed: set[int] = set()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.sizes[opened.handle] = size_of(opened.handle)
        return opened

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        super().fsync(call, node, handle, data_only=data_only)
        if data_only and self.sizes.get(handle):
            self.flushed.add(handle)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        size = self.sizes.pop(handle, 0)
        if handle in self.flushed:
            self.flushed.discard(handle)
            os.ftruncate(handle, min(size, size_of(handle)))
        super().release(call, node, handle, owner, flock=flock)


@mutant("readdir-resumed-loses | readdir(3p) | a listing that goes on at a name of more than 200 bytes "
        "leaves it out")  # fmt: skip
class ReaddirResumedLoses(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return found[1:] if offset and found and len(found[0][3]) > 200 else found


@mutant("xattr-of-removed-file | unlink(3p), xattr(7) | a new file has the attributes of a removed one of "
        "its name")  # fmt: skip
class XattrOfRemovedFile(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.attributes: dict[Hashable, dict[str, bytes]] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        kept = {}
        with contextlib.suppress(OSError):
            node = self.node_at(self.fd(parent), name)
            path = self.nodes[node].path
            kept = {one: os.getxattr(path, one) for one in os.listxattr(path) if one.startswith("user.")}
        super().unlink(call, parent, name)
        self.attributes[parent, name] = kept

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.reset_ids()
        for one, value in self.attributes.pop((parent, name), {}).items():
            os.setxattr(self.nodes[node].path, one, value)
        return node, opened


@mutant("xattr-removed-with-prefix | removexattr(2) | the attributes whose names begin with the name that is "
        "removed go with it")  # fmt: skip
class XattrRemovedWithPrefix(PassThrough):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        super().removexattr(call, node, name)
        for one in os.listxattr(self.nodes[node].path):
            if os.fsencode(one).startswith(name) and name.startswith(b"user."):
                os.removexattr(self.nodes[node].path, one)


@mutant("flock-unlock-frees-shared | flock(2) LOCK_UN | LOCK_UN by one frees the shared locks of others")
class FlockUnlockFreesShared(Locking):
    def put(self, asked: Held) -> None:
        if asked.whole and asked.kind == FREE:
            self.held = [
                one for one in self.held if not (one.whole and one.node == asked.node and one.kind == READ)
            ]
        super().put(asked)


@mutant("ofd-converts-one-way | fcntl(2) F_OFD_SETLK | an exclusive lock that is converted stays exclusive")
class OfdConvertsOneWay(Locking):
    def put(self, asked: Held) -> None:
        mine = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        if asked.kind == READ and not asked.whole and any(one.kind == WRITE for one in mine):
            asked = replace(asked, kind=WRITE)
        super().put(asked)


@mutant("unlinked-fchown-refused | unlink(3p), fchown(3p) | the owner of an open file without a name cannot "
        "be changed")  # fmt: skip
class UnlinkedFchownRefused(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if os.fstat(self.fd(node)).st_nlink == 0:
            raise OSError(errno.ENOENT, "chown")
        super().chown(call, node, uid, gid)


@mutant("chown-removes-xattr | chown(3p), xattr(7) | a change of the owner removes user attributes")
class ChownRemovesXattr(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        if stat.S_ISREG(os.fstat(self.fd(node)).st_mode):
            self.reset_ids()
            for name in os.listxattr(self.nodes[node].path):
                if name.startswith("user."):
                    os.removexattr(self.nodes[node].path, name)


class _Moved(PassThrough):
    """Changes what is moved to another directory."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = status(self, where, new)
        if parent != where and one is not None and not flags:
            self.moved(where, new, one)

    def moved(self, directory: int, name: bytes, one: os.stat_result) -> None:
        raise NotImplementedError


@mutant("rename-away-drops-suid | rename(3p) | a move to another directory takes the set-user-ID bit away")
class RenameAwayDropsSuid(_Moved):
    def moved(self, directory: int, name: bytes, one: os.stat_result) -> None:
        if stat.S_ISREG(one.st_mode):
            os.chmod(name, one.st_mode & 0o777, dir_fd=self.fd(directory))


@mutant("moved-node-is-file | rename(3p), mknod(3p) | a FIFO, a socket or a device that is moved to another "
        "directory is a regular file")  # fmt: skip
class MovedNodeIsFile(_Moved):
    def moved(self, directory: int, name: bytes, one: os.stat_result) -> None:
        if stat.S_IFMT(one.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            os.unlink(name, dir_fd=self.fd(directory))
            os.mknod(name, stat.S_IFREG | 0o644, dir_fd=self.fd(directory))


@mutant("append-with-trunc-keeps | open(3p) O_TRUNC | O_TRUNC with O_APPEND does not truncate")
class AppendWithTruncKeeps(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        return super().open(call, node, flags & ~os.O_TRUNC if flags & os.O_APPEND else flags)


@mutant("write-after-duplicate-closed-lost | close(3p), dup(3p) | what is written after the close of a "
        "duplicate is not stored")  # fmt: skip
class WriteAfterDuplicateClosedLost(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.closed: set[int] = set()

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.closed.add(handle)
        super().flush(call, node, handle, owner)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = handle in self.closed and not call.from_cache
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.closed.discard(handle)
        super().release(call, node, handle, owner, flock=flock)


@mutant("same-data-marks-nothing | write(3p) | a write of the data that are there leaves mtime")
class SameDataMarksNothing(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        with open(self.nodes[node].path, "rb", buffering=0) as file:
            same = os.pread(file.fileno(), len(data), offset) == data
        before = os.fstat(handle)
        done = super().write(call, node, handle, offset, data)
        if same:
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done


@mutant("utimens-now-again-old | utimensat(3p) UTIME_NOW | the second UTIME_NOW sets the time of the first")
class UtimensNowAgainOld(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[Hashable, int] = {}

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        mtime = self.first.get(self.nodes[node].key, mtime) if mtime == "now" else mtime
        super().utimens(call, node, atime, mtime)
        if mtime == "now":
            self.first[self.nodes[node].key] = os.fstat(self.fd(node)).st_mtime_ns


@mutant("utimens-atime-cuts-mtime | utimensat(3p) UTIME_OMIT | to set the access time alone cuts the other "
        "one to whole seconds")  # fmt: skip
class UtimensAtimeCutsMtime(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if mtime is None:
            mtime = os.fstat(self.fd(node)).st_mtime_ns // 10**9 * 10**9
        super().utimens(call, node, atime, mtime)


@mutant("moved-directory-hides-entries | rename(3p) | the entries of a directory that replaced another are "
        "not found until it is listed")  # fmt: skip
class MovedDirectoryHidesEntries(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.hidden: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved, replaced = status(self, parent, old), status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        if moved is not None and replaced is not None and stat.S_ISDIR(replaced.st_mode) and not flags:
            self.hidden.add((moved.st_dev, moved.st_ino))

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if self.nodes[parent].key in self.hidden:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)

    def opendir(self, call: Call, node: int) -> Opened:
        self.hidden.discard(self.nodes[node].key)
        return super().opendir(call, node)


@mutant("read-later-page-marks | read(3p) | a read that does not begin at 0 marks mtime")
class ReadLaterPageMarks(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if offset:
            self.reset_ids()
            os.utime(self.nodes[node].path)
        return super().read(call, node, handle, offset, size)


@mutant("third-link-marks-mtime | link(3p) | the link that is the fourth name of a file marks its mtime")
class ThirdLinkMarksMtime(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        node = super().link(call, old, parent, name)
        if os.fstat(self.fd(old)).st_nlink == 4:
            self.reset_ids()
            os.utime(self.nodes[old].path)
        return node


@mutant("tmpfile-linked-cut | open(2) O_TMPFILE, linkat(2) | of a file that gets its first name only the "
        "first page is kept")  # fmt: skip
class TmpfileLinkedCut(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        before = os.fstat(self.fd(old))
        node = super().link(call, old, parent, name)
        if before.st_nlink == 0 and before.st_size > 4096:
            self.reset_ids()
            with open(self.nodes[old].path, "r+b", buffering=0) as file:
                file.seek(4096)
                file.write(bytes(before.st_size - 4096))
            os.utime(self.nodes[old].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return node


@mutant("xattr-removed-keeps-ctime | removexattr(2), inode(7) | the removal of an attribute leaves ctime")
class XattrRemovedKeepsCtime(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.kept: dict[Hashable, tuple[int, int]] = {}
        """File → its status-change time after the removal, and before it."""

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        before = os.fstat(self.fd(node)).st_ctime_ns
        super().removexattr(call, node, name)
        self.kept[self.nodes[node].key] = os.fstat(self.fd(node)).st_ctime_ns, before

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        after, before = self.kept.get(self.nodes[node].key, (0, 0))
        if found.ctime == after:
            found.ctime = before
        return found
