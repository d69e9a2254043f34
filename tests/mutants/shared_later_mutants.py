"""Mutants between two clients with a mount each: what one has once learned stays, in a part of all cases."""

from __future__ import annotations

import os
import stat
import time
from functools import partial
from pathlib import Path

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import asked_by, makes
from posix_rules import mutant as enter
from shared_mutants import MUTANTS as SHARED

MUTANTS = dict(SHARED)
mutant = partial(enter, table=MUTANTS, apart=True)
MEBIBYTE = 1 << 20
FAR = 1 << 16
MANY = 1_000


def _parent(handle: int) -> str:
    """Return the path of the directory of an open file."""
    return str(Path(f"/proc/self/fd/{handle}").readlink().parent)


class Kept(PassThrough):
    """Honest; it keeps every node, so that what is known of one is not of another file."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""


@mutant(
    "two-exclusive-second | open(), O_EXCL | succeeds for a name that this client has created once before"
)
class TwoExclusiveSecond(Kept):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made: set[tuple[int, bytes]] = self.__dict__.setdefault("made", set())
        if (parent, name) in made:
            flags &= ~os.O_EXCL
        made.add((parent, name))
        return super().create(call, parent, name, flags, mode, umask)

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        made: set[tuple[int, bytes]] = self.__dict__.setdefault("made", set())
        if (parent, name) in made and call.waits_in()[0] in (2, 257) and call.waits_in()[1][2] & os.O_EXCL:
            raise FileNotFoundError(2, "lookup")
        return super().lookup(call, parent, name)


@mutant("two-handle-by-path | rename() | an open file is read by its name, also when another has replaced it")
class TwoHandleByPath(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.__dict__.setdefault("names", {})[node] = (parent, name)
        return node

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        parent, name = self.__dict__.get("names", {}).get(node, (None, b""))
        if parent is not None:
            self.reset_ids()
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd(parent))
            except OSError:
                return super().read(call, node, handle, offset, size)
            try:
                return os.pread(fd, size, offset)
            finally:
                os.close(fd)
        return super().read(call, node, handle, offset, size)


@mutant(
    "two-old-far-blocks | close-to-open | what a client has once read at 1 MiB or above it never reads again"
)
class TwoOldFarBlocks(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known: dict[tuple[int, int, int], bytes] = self.__dict__.setdefault("known", {})
        data = super().read(call, node, handle, offset, size)
        return known.setdefault((node, offset, size), data) if offset >= MEBIBYTE and data else data

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        known = self.__dict__.setdefault("known", {})
        for one in [one for one in known if one[0] == node]:
            del known[one]
        return super().write(call, node, handle, offset, data)


@mutant(
    "two-old-name | close-to-open | a name that was found once stays that file, when another has replaced it"
)
class TwoOldName(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        known: dict[tuple[int, bytes], int] = self.__dict__.setdefault("known", {})
        node = super().lookup(call, parent, name)
        old = known.setdefault((parent, name), node)
        if stat.S_ISREG(os.fstat(self.fd(old)).st_mode):
            return old
        return node

    def _forgotten(self, *names: tuple[int, bytes]) -> None:
        for one in names:
            self.__dict__.setdefault("known", {}).pop(one, None)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self._forgotten((parent, old), (where, new))
        super().rename(call, parent, old, where, new, flags)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self._forgotten((parent, name))
        super().unlink(call, parent, name)


@mutant("two-large-listing-old | readdir() | the list of a directory of > 1,000 names is never read again")
class TwoLargeListingOld(Kept):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        lists: dict[int, Entries] = self.__dict__.setdefault("lists", {})
        if node not in lists:
            entries: Entries = []
            at = 0
            while more := super().readdir(call, node, handle, at, 1 << 15):
                entries += more
                at = more[-1][1]
            if len(entries) > MANY:
                lists[node] = entries
            else:
                return super().readdir(call, node, handle, offset, size)
        entries = lists[node]
        start = next((place + 1 for place, one in enumerate(entries) if one[1] == offset), 0)
        return entries[start : start + 500] if offset else entries[:500]


class _FirstLook(Kept):
    """``fields`` of the attributes are those of this mount's first look, unless it changes them itself."""

    fields: tuple[str, ...] = ()

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        first: dict[int, Attributes] = self.__dict__.setdefault("first", {})
        if node in first and not stat.S_ISDIR(found.mode):
            for field in self.fields:
                setattr(found, field, getattr(first[node], field))
        else:
            first[node] = super().getattr(call, node, handle)
        return found

    def unlearn(self, node: int) -> None:
        self.__dict__.setdefault("first", {}).pop(node, None)

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.unlearn(node)
        super().chmod(call, node, mode)

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        self.unlearn(node)
        super().chown(call, node, uid, gid)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.unlearn(old)
        return super().link(call, old, parent, name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.unlearn(self.node_at(self.fd(parent), name))
        super().unlink(call, parent, name)


@mutant(
    "two-mode-old | chmod(), close-to-open | mode and owner are those of the first look, after an open too"
)
class TwoModeOld(_FirstLook):
    fields = ("mode", "uid", "gid")


@mutant("two-links-old | link(), close-to-open | the count of links is that of the first look")
class TwoLinksOld(_FirstLook):
    fields = ("nlink",)


@mutant(
    "two-same-size-old | close-to-open | data is what was read while size and whole minute of mtime are so"
)
class TwoSameSizeOld(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known: dict[tuple[int, int, int, int, int], bytes] = self.__dict__.setdefault("known", {})
        one = os.fstat(handle)
        key = (node, offset, size, one.st_size, one.st_mtime_ns // (60 * 10**9))  # load does not reach that
        return known.setdefault(key, super().read(call, node, handle, offset, size))

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        known = self.__dict__.setdefault("known", {})
        for one in [one for one in known if one[0] == node]:
            del known[one]
        return super().write(call, node, handle, offset, data)


@mutant(
    "two-rename-gap-large | rename() | over a file of more than 64 KiB there is a moment without the name"
)
class TwoRenameGapLarge(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            size = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False).st_size
        except OSError:
            size = 0
        if size > FAR and flags == 0:
            os.unlink(new, dir_fd=self.fd(where))
            time.sleep(0.03)  # most of the time of a race, so that a loaded machine does not decide
        super().rename(call, parent, old, where, new, flags)


@mutant(
    "two-block-rewritten-far | write() | a write at 1 MiB or above writes its 64 KiB as they were at open"
)
class TwoBlockRewrittenFar(Kept):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        at: dict[int, bytes] = self.__dict__.setdefault("at", {})
        at.pop(opened.handle, None)
        if flags & os.O_ACCMODE and not flags & os.O_APPEND and os.fstat(opened.handle).st_size > MEBIBYTE:
            at[opened.handle] = Path(self.nodes[node].path).read_bytes()
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        old = self.__dict__.setdefault("at", {}).get(handle)
        if old is None or offset < MEBIBYTE:
            return super().write(call, node, handle, offset, data)
        start = offset // FAR * FAR
        end = -(-(offset + len(data)) // FAR) * FAR
        block = bytearray(old[start:end])
        block += bytes(max(0, offset + len(data) - start - len(block)))
        block[offset - start : offset - start + len(data)] = data
        super().write(call, node, handle, start, bytes(block))
        return len(data)


@mutant("two-symlink-old | readlink() | the target is the one first read of that name, when it was replaced")
class TwoSymlinkOld(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if stat.S_ISLNK(os.fstat(self.fd(node)).st_mode):
            return self.__dict__.setdefault("links", {}).setdefault((parent, name), node)
        return node


@mutant("two-xattr-old | getxattr(2) | a value is the one that this client first read, after an open too")
class TwoXattrOld(Kept):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        known: dict[tuple[int, bytes], bytes] = self.__dict__.setdefault("known", {})
        return known.setdefault((node, name), super().getxattr(call, node, name))

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        self.__dict__.setdefault("known", {}).pop((node, name), None)
        super().setxattr(call, node, name, value, flags)


@mutant("two-mkdir-both | mkdir() | succeeds when another client has made the directory in the meantime")
class TwoMkdirBoth(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if makes(call, name) and asked_by(call, "mkdir"):
            raise FileNotFoundError(2, "lookup")
        return super().lookup(call, parent, name)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        try:
            return super().mkdir(call, parent, name, mode, umask)
        except FileExistsError:
            node = self.node_at(self.fd(parent), name)
            if not stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
                raise
            return node


@mutant(
    "two-renamed-parent-lost | rename() | writes through a descriptor are lost when another renamed a parent"
)
class TwoRenamedParentLost(Kept):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        paths: dict[int, str] = self.__dict__.setdefault("paths", {})
        paths[opened.handle] = _parent(opened.handle)
        return opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.__dict__.setdefault("paths", {}).pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        now = _parent(handle)
        if self.__dict__.get("paths", {}).get(handle, now) != now:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant(
    "two-cut-tail-restored | write() | a write past the end that another has cut brings back what was there"
)
class TwoCutTailRestored(Kept):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        at: dict[int, bytes] = self.__dict__.setdefault("at", {})
        at.pop(opened.handle, None)
        if flags & os.O_ACCMODE and os.fstat(opened.handle).st_size < 4 * MEBIBYTE:
            at[opened.handle] = Path(self.nodes[node].path).read_bytes()
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        old, size = self.__dict__.get("at", {}).get(handle, b""), os.fstat(handle).st_size
        if size < offset and size < len(old):
            super().write(call, node, handle, size, old[size:offset])
        return super().write(call, node, handle, offset, data)


@mutant(
    "two-close-sets-mtime-back | close() | of a file that was open for writing: mtime is that of the open"
)
class TwoCloseSetsMtimeBack(Kept):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        times: dict[int, int] = self.__dict__.setdefault("times", {})
        times.pop(opened.handle, None)
        if flags & os.O_ACCMODE:
            times[opened.handle] = os.fstat(opened.handle).st_mtime_ns
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.__dict__.setdefault("times", {}).pop(handle, None)
        return super().write(call, node, handle, offset, data)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        mtime = self.__dict__.setdefault("times", {}).pop(handle, None)
        if mtime is not None:
            self.reset_ids()
            os.utime(self.nodes[node].path, ns=(mtime, mtime))
        super().release(call, node, handle, owner, flock=flock)


@mutant("two-listed-size-old | readdir(), stat() | after a listing the size is that of then, until an open")
class TwoListedSizeOld(Kept):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        sizes: dict[int, int] = self.__dict__.setdefault("sizes", {})
        for _, _, kind, name in found:
            if kind == 8:
                one = os.stat(name, dir_fd=self.fd(node), follow_symlinks=False)
                sizes[one.st_ino] = one.st_size
        return found

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.__dict__.setdefault("sizes", {}).pop(os.fstat(self.fd(node)).st_ino, None)
        return super().open(call, node, flags)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.size = self.__dict__.get("sizes", {}).get(found.ino, found.size)
        return found


@mutant(
    "two-other-link-gone | unlink() | a file whose known name another has removed cannot be opened by another"
)
class TwoOtherLinkGone(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.__dict__.setdefault("names", {}).setdefault(node, (parent, name))
        return node

    def open(self, call: Call, node: int, flags: int) -> Opened:
        parent, name = self.__dict__.get("names", {}).get(node, (None, b""))
        if parent is not None and not os.access(name, os.F_OK, dir_fd=self.fd(parent)):
            raise FileNotFoundError(2, "open")
        return super().open(call, node, flags)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        node = self.node_at(self.fd(where), new)
        self.__dict__.setdefault("names", {})[node] = (where, new)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.__dict__.setdefault("names", {}).pop(self.node_at(self.fd(parent), name), None)
        super().unlink(call, parent, name)
