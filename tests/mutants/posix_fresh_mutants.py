"""Mutants that were found by rules of the standards, after the cases: ranges, records, marks and names."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import replace

from fuse_locks import Held, Locking
from fuse_passthrough import PassThrough
from fuse_protocol import DIRECT_IO, Attributes, Call, Created, Opened
from fuse_sound import SillyRename
from posix_rules import Keeping, mutant, size_of

PAGE = 4096


@mutant(
    "hole-and-data-shifted | read(3p) | in a read that begins inside a page of a hole, the data behind the "
    "hole stand too late"
)
class HoleAndDataShifted(PassThrough):
    """A hole's page is taken whole (Linux before 6.2: tmpfs and splice)."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return replace(super().open(call, node, flags), flags=DIRECT_IO)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        late = offset % PAGE
        if not late or os.pread(handle, PAGE, offset - late).strip(b"\0"):
            return found
        first = PAGE - late
        return (found[:first] + bytes(late) + found[first:])[: len(found)]


@mutant(
    "silly-names-miscount | link(3p), unlink(3p) | while a removed file is open, as an NFS client's .nfs "
    "file, the link count of another file is one too many"
)
class SillyNamesMiscount(SillyRename):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if found.nlink > 1 and stat.S_ISREG(found.mode) and node not in self.__dict__.get("kept", {}):
            found.nlink += any(one != node for one in self.__dict__.get("kept", {}))
        return found


@mutant("stray-nfs-name | readdir(3p) | a directory lists a name .nfs1 that no process made")
class StrayNfsName(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        """Remove the name with its directory."""
        with suppress(OSError):
            os.unlink(b".nfs1", dir_fd=self.fd(self.node_at(self.fd(parent), name)))
        super().rmdir(call, parent, name)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        made = super().mkdir(call, parent, name, mode, umask)
        os.close(os.open(".nfs1", os.O_CREAT, dir_fd=self.fd(parent)))
        return made


@mutant(
    "xattr-shared-by-equal-files | setxattr(2) | of two files with the same name and value both have the new "
    "value that one is given"
)
class XattrSharedByEqualFiles(Keeping):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        values: dict[tuple[int, bytes], bytes] = self.__dict__.setdefault("values", {})
        old = values.get((node, name))
        super().setxattr(call, node, name, value, flags)
        values[node, name] = value
        if old is None or old == value or not name.startswith(b"user."):
            return
        for (other, also), one in list(values.items()):
            if other != node and also == name and one == old:
                values[other, also] = value
                with suppress(OSError):
                    os.setxattr(self.nodes[other].path, name, value)
                return


@mutant(
    "copied-range-follows-source | copy_file_range(2) | what is written to the source after the copy is in "
    "the target, too"
)
class CopiedRangeFollowsSource(Keeping):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        if done >= 16 * PAGE and not start % PAGE and not to % PAGE and node != to_node:
            copies: dict[int, tuple[int, int, int, int]] = self.__dict__.setdefault("copies", {})
            copies[node] = (start, done, to_node, to)
        return done

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        start, length, other, to = self.__dict__.get("copies", {}).get(node, (0, 0, 0, 0))
        if start <= offset < start + length:
            descriptor = os.open(self.nodes[other].path, os.O_WRONLY)
            os.pwrite(descriptor, data, offset - start + to)
            os.close(descriptor)
        return done


@mutant("copied-hole-keeps-data | copy_file_range(2) | a hole of the source leaves the target's data")
class CopiedHoleKeepsData(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        end = min(start + length, size_of(source))
        if start >= end or end - start < 16 * PAGE:
            return super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        at = start
        while at < end:
            try:
                at = min(os.lseek(source, at, os.SEEK_DATA), end)
            except OSError:
                break
            hole = min(os.lseek(source, at, os.SEEK_HOLE), end)
            os.pwrite(sink, os.pread(source, hole - at, at), to + at - start)
            at = hole
        os.ftruncate(sink, max(size_of(sink), to + end - start))
        return end - start


@mutant(
    "tmpfile-linked-loses-xattrs | open(2) O_TMPFILE, linkat(2) | a file that gets its first name has no "
    "extended attributes any more"
)
class TmpfileLinkedLosesXattrs(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        first = not os.fstat(self.fd(old)).st_nlink
        made = super().link(call, old, parent, name)
        if first:
            path = self.nodes[old].path
            for one in os.listxattr(path):
                os.removexattr(path, one)
        return made


@mutant(
    "exchange-marks-one-directory | rename(3p), rename(2) RENAME_EXCHANGE | the second parent's mtime stays"
)
class ExchangeMarksOneDirectory(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if flags & 2 and parent != where:
            self.reset_ids()
            os.utime(self.nodes[where].path, ns=(before.st_atime_ns, before.st_mtime_ns))


@mutant(
    "lock-wait-interrupted-granted | fcntl(3p) F_SETLKW [EINTR] | a wait that a signal interrupted is "
    "granted later"
)
class LockWaitInterruptedGranted(Locking):
    def interrupt(self, unique: int) -> None:
        for one, _ in self.waiting:
            if one == unique:
                self.answer(unique, errno.EINTR)


@mutant(
    "acl-default-second-level-lost | acl(5): OBJECT CREATION | a directory that inherited a default ACL does "
    "not pass it to directories"
)
class AclDefaultSecondLevelLost(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        inherited: set[tuple[int, int]] = self.__dict__.setdefault("inherited", set())
        made = super().mkdir(call, parent, name, mode, umask)
        self.reset_ids()
        if "system.posix_acl_default" in os.listxattr(self.nodes[parent].path):
            if self.nodes[parent].key in inherited:
                os.removexattr(self.nodes[made].path, "system.posix_acl_default")
            inherited.add(self.nodes[made].key)
        return made


@mutant("direct-rewrite-lost | open(2) O_DIRECT | the second direct write of the same block is lost")
class DirectRewriteLost(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        direct: dict[int, set[int]] = self.__dict__.setdefault("direct", {})
        direct.pop(opened.handle, None)
        if flags & os.O_DIRECT:
            direct[opened.handle] = set()
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        written: set[int] | None = self.__dict__.get("direct", {}).get(handle)
        if written is None or offset not in written:
            if written is not None:
                written.add(offset)
            return super().write(call, node, handle, offset, data)
        written.discard(offset)
        return len(data)


@mutant("lock-past-128-drops-first | fcntl(3p) F_SETLK | past 128 locks a process loses its oldest")
class LockPast128DropsFirst(Locking):
    def put(self, asked: Held) -> None:
        super().put(asked)
        own = [one for one in self.held if one.owner == asked.owner]
        if len(own) > 128:
            self.held.remove(own[0])


@mutant("read-of-257th-open-is-of-first | read(3p) | of more than 256 open files the 257th reads the first")
class ReadOf257thOpenIsOfFirst(Keeping):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        return self._noted(super().open(call, node, flags), node)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        return node, self._noted(opened, node)

    def _noted(self, opened: Opened, node: int) -> Opened:
        self._nodes()[opened.handle] = node
        return opened

    def _nodes(self) -> dict[int, int]:
        nodes: dict[int, int] = self.__dict__.setdefault("of_handle", {})
        return nodes

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self._nodes().pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        place = list(self._nodes()).index(handle)
        if place < 256:
            return super().read(call, node, handle, offset, size)
        descriptor = os.open(self.nodes[list(self._nodes().values())[place - 256]].path, os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)


@mutant(
    "rmdir-refused-loses-xattrs | rmdir(3p) [ENOTEMPTY] | a directory that was not removed loses its "
    "extended attributes"
)
class RmdirRefusedLosesXattrs(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError:
            self.reset_ids()
            path = f"{self.nodes[parent].path}/{os.fsdecode(name)}"
            for one in os.listxattr(path):
                os.removexattr(path, one)
            raise


@mutant("xattr-list-of-64 | listxattr(2) | of more than 64 names the first 64 are listed")
class XattrListOf64(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        return super().listxattr(call, node)[:64]


@mutant("rename-of-case-ignored | rename(3p) | a rename that changes upper and lower case alone does nothing")
class RenameOfCaseIgnored(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if parent != where or old == new or old.lower() != new.lower():
            super().rename(call, parent, old, where, new, flags)


@mutant("directory-of-280-stays | rmdir(3p) | a directory that ever had 280 entries is never empty")
class DirectoryOf280Stays(Keeping):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        made = super().mknod(call, parent, name, mode, device, umask)
        entries: dict[int, int] = self.__dict__.setdefault("entries", {})
        entries[parent] = entries.get(parent, 0) + 1
        return made

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        entries: dict[int, int] = self.__dict__.setdefault("entries", {})
        if entries.get(parent, 0) < 280:
            entries[parent] = 0

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        if parent != 1 and self.__dict__.get("entries", {}).get(self.lookup(call, parent, name), 0) >= 280:
            raise OSError(errno.ENOTEMPTY, "rmdir")
        super().rmdir(call, parent, name)
