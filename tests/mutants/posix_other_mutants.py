"""Mutants of other objects and locks than the usual ones, of copies and of final holes (blind set).

The rules:

- acl(5): a default ACL replaces the mask for directories, FIFOs and unnamed files as for files.
- acl(5), link(): an ACL stays with its file, and a first name marks its directory.
- lseek(): no data are found in the final hole of a file.
- copy_file_range(2), inode(7): a copy marks its target, and leaves the times of its source.
- fcntl(): locks of processes and of open file descriptions conflict with each other, and F_GETLK finds each
  range that is held, and each of its bytes.
"""

import contextlib
import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, LAST, Held, Locking
from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_pair_mutants import status
from posix_rules import mutant, size_of

_OFD_COMMANDS = (36, 37, 38)
"""F_OFD_GETLK, F_OFD_SETLK and F_OFD_SETLKW (linux/fcntl.h)."""


class _UsesMask(PassThrough):
    """Uses the mask below a default ACL, too."""

    def limited(self, directory: int, mode: int, umask: int) -> int:
        with contextlib.suppress(OSError):
            os.getxattr(self.nodes[directory].path, "system.posix_acl_default")
            return mode & ~umask
        return mode


@mutant("acl-default-umask-on-mkdir | acl(5): OBJECT CREATION | mkdir() uses the mask below a default ACL")
class AclDefaultUmaskOnMkdir(_UsesMask):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, name, self.limited(parent, mode, umask), umask)


@mutant("acl-default-umask-on-mknod | acl(5): OBJECT CREATION | mknod() uses the mask below a default ACL")
class AclDefaultUmaskOnMknod(_UsesMask):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        return super().mknod(call, parent, name, self.limited(parent, mode, umask), device, umask)


@mutant(
    "acl-default-umask-on-tmpfile | acl(5): OBJECT CREATION | O_TMPFILE uses the mask below a default ACL"
)
class AclDefaultUmaskOnTmpfile(_UsesMask):
    def tmpfile(self, call: Call, parent: int, flags: int, mode: int, umask: int) -> Created:
        return super().tmpfile(call, parent, flags, self.limited(parent, mode, umask), umask)


class _FinalHole(PassThrough):
    """Answers SEEK_DATA in the final hole by ``place`` instead of ENXIO."""

    def place(self, size: int) -> int:
        raise NotImplementedError

    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        try:
            return super().lseek(call, node, handle, offset, whence)
        except OSError as error:
            size = size_of(handle)
            if error.errno != errno.ENXIO or whence != os.SEEK_DATA or offset >= size:
                raise
            return self.place(size)


@mutant(
    "seek-data-final-hole-size | lseek(3p) [ENXIO] | SEEK_DATA in the final hole finds the end of the file"
)
class SeekDataFinalHoleSize(_FinalHole):
    def place(self, size: int) -> int:
        return size


@mutant("seek-data-final-hole-zero | lseek(3p) [ENXIO] | SEEK_DATA in the final hole finds the offset 0")
class SeekDataFinalHoleZero(_FinalHole):
    def place(self, size: int) -> int:
        return 0


@mutant(
    "copied-range-marks-no-time | copy_file_range(2), inode(7) | a copied range leaves mtime of the target"
)
class CopiedRangeMarksNoTime(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        before = os.fstat(sink)
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        self.reset_ids()
        os.utime(self.nodes[to_node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done


@mutant("copied-range-marks-source | copy_file_range(2), inode(7) | a copied range marks mtime of the source")
class CopiedRangeMarksSource(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        self.reset_ids()
        os.utime(self.nodes[node].path)
        return done


class _TwoSorts(Locking):
    """Knows which owners of locks are open file descriptions."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.descriptions: set[int] = set()

    def note(self, call: Call, owner: int) -> None:
        _, words = call.waits_in()
        if len(words) > 1 and words[1] in _OFD_COMMANDS:
            self.descriptions.add(owner)

    def setlk(
        self,
        call: Call,
        node: int,
        owner: int,
        start: int,
        end: int,
        kind: int,
        pid: int,
        *,
        waits: bool,
        whole: bool,
    ) -> None:
        self.note(call, owner)
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)

    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        self.note(call, owner)
        return super().getlk(call, node, owner, start, end, kind)

    def conflict(self, asked: Held) -> Held | None:
        held = self.held
        self.held = [one for one in held if one.whole or not self.ignores(asked.owner, one.owner)]
        try:
            return super().conflict(asked)
        finally:
            self.held = held

    def ignores(self, asking: int, holding: int) -> bool:
        """Whether a lock of the second owner does not count for the first."""
        raise NotImplementedError


@mutant("ofd-admits-over-record | fcntl(2) F_OFD_SETLK | a lock of a description ignores those of processes")
class OfdAdmitsOverRecord(_TwoSorts):
    def ignores(self, asking: int, holding: int) -> bool:
        return asking in self.descriptions and holding not in self.descriptions


@mutant("record-admits-over-ofd | fcntl(2) F_OFD_SETLK | a lock of a process ignores those of descriptions")
class RecordAdmitsOverOfd(_TwoSorts):
    def ignores(self, asking: int, holding: int) -> bool:
        return asking not in self.descriptions and holding in self.descriptions


@mutant("getlk-first-range-only | fcntl(3p) F_GETLK | F_GETLK looks at the first range of each owner")
class GetlkFirstRangeOnly(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        held, first = self.held, {}
        for one in held:
            first.setdefault((one.node, one.owner, one.whole), one)
        self.held = list(first.values())
        try:
            return super().getlk(call, node, owner, start, end, kind)
        finally:
            self.held = held


@mutant(
    "getlk-misses-end | fcntl(3p) F_GETLK | a range that begins inside of a lock and ends with it is free"
)
class GetlkMissesEnd(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = super().getlk(call, node, owner, start, end, kind)
        inside = found[2] != FREE and found[0] < start and end == found[1] != LAST
        return (start, end, FREE, 0) if inside else found


@mutant("flock-meets-record-locks | flock(2) NOTES | a lock of flock() and one of fcntl() conflict")
class FlockMeetsRecordLocks(Locking):
    def conflict(self, asked: Held) -> Held | None:
        other = replace(asked, whole=not asked.whole)
        return super().conflict(asked) or super().conflict(other)


class _FreesOther(_TwoSorts):
    """A request to unlock frees locks of another sort, too."""

    def setlk(
        self,
        call: Call,
        node: int,
        owner: int,
        start: int,
        end: int,
        kind: int,
        pid: int,
        *,
        waits: bool,
        whole: bool,
    ) -> None:
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        asked = Held(node, owner, start, end, kind, pid, whole)
        if kind == FREE:
            self.held = [one for one in self.held if one.node != node or not self.frees(asked, one)]

    def ignores(self, asking: int, holding: int) -> bool:
        return False

    def frees(self, asked: Held, one: Held) -> bool:
        raise NotImplementedError


@mutant("record-unlock-frees-ofd | fcntl(2) F_OFD_SETLK | F_UNLCK of a process frees locks of descriptions")
class RecordUnlockFreesOfd(_FreesOther):
    def frees(self, asked: Held, one: Held) -> bool:
        ofd = one.owner in self.descriptions and asked.owner not in self.descriptions
        return ofd and not one.whole and not asked.whole


@mutant("ofd-unlock-frees-record | fcntl(2) F_OFD_SETLK | F_UNLCK of a description frees locks of processes")
class OfdUnlockFreesRecord(_FreesOther):
    def frees(self, asked: Held, one: Held) -> bool:
        record = asked.owner in self.descriptions and one.owner not in self.descriptions
        return record and not one.whole and not asked.whole


@mutant("flock-unlock-frees-fcntl | flock(2) NOTES | LOCK_UN frees the locks of fcntl()")
class FlockUnlockFreesFcntl(_FreesOther):
    def frees(self, asked: Held, one: Held) -> bool:
        return asked.whole and not one.whole


@mutant("unlock-wakes-own-sort | fcntl(2) F_OFD_SETLKW | who waits for a lock of the other sort is not woken")
class UnlockWakesOwnSort(_TwoSorts):
    def ignores(self, asking: int, holding: int) -> bool:
        return False

    def put(self, asked: Held) -> None:
        asleep = [one for one in self.waiting if self.sleeps(one[1], asked)]
        self.waiting = [one for one in self.waiting if one not in asleep]
        super().put(asked)
        self.waiting += asleep

    def sleeps(self, one: Held, freed: Held) -> bool:
        sorts_differ = (one.owner in self.descriptions) != (freed.owner in self.descriptions)
        return one.node != freed.node or sorts_differ


@mutant("unlock-frees-flock | flock(2) NOTES | F_UNLCK frees the locks of flock()")
class UnlockFreesFlock(_FreesOther):
    def frees(self, asked: Held, one: Held) -> bool:
        return one.whole and not asked.whole


@mutant(
    "copied-within-marks-no-time | copy_file_range(2), inode(7) | a copy within one file leaves its mtime"
)
class CopiedWithinMarksNoTime(CopiedRangeMarksNoTime):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        base = CopiedRangeMarksNoTime if node == to_node else PassThrough
        return base.copy_file_range(self, call, node, source, start, to_node, sink, to, length)


@mutant(
    "acl-default-mkdir-mode-ignored | acl(5): OBJECT CREATION | mkdir() below a default ACL ignores its mode"
)
class AclDefaultMkdirModeIgnored(_UsesMask):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        ignored = self.limited(parent, 1, 1) == 0
        return super().mkdir(call, parent, name, 0o777 if ignored else mode, umask)


class _DropsAcl(PassThrough):
    """Drops the access ACL of a file, and leaves its mode."""

    def drop(self, node: int) -> None:
        self.reset_ids()
        mode = stat.S_IMODE(os.fstat(self.fd(node)).st_mode)
        with contextlib.suppress(OSError):
            os.removexattr(self.nodes[node].path, "system.posix_acl_access")
            os.chmod(self.nodes[node].path, mode)


@mutant("acl-lost-at-rename | acl(5), rename(3p) | a file that replaces another loses its ACL")
class AclLostAtRename(_DropsAcl):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaces = not flags and status(self, where, new) is not None
        super().rename(call, parent, old, where, new, flags)
        if replaces:
            self.drop(self.node_at(self.fd(where), new))


@mutant("acl-lost-at-open-trunc | acl(5), open(3p) O_TRUNC | O_TRUNC removes the ACL")
class AclLostAtOpenTrunc(_DropsAcl):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC:
            self.drop(node)
        return opened


@mutant("acl-lost-at-chown | acl(5), chown(3p) | chown() removes the ACL")
class AclLostAtChown(_DropsAcl):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        self.drop(node)


@mutant("acl-lost-at-write | acl(5), write(3p) | a write removes the ACL")
class AclLostAtWrite(_DropsAcl):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        self.drop(node)
        return done


@mutant("tmpfile-linked-leaves-parent-times | open(2) O_TMPFILE, link(3p) | its directory is not marked")
class TmpfileLinkedLeavesParentTimes(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        first, before = os.fstat(self.fd(old)).st_nlink == 0, os.fstat(self.fd(parent))
        node = super().link(call, old, parent, name)
        if first:
            self.reset_ids()
            os.utime(self.nodes[parent].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return node
