"""Directories as they are read: entries lost, doubled, stale or of the wrong kind."""

import os
import stat
from pathlib import Path

from fuse_passthrough import Bending, Entries, PassThrough
from fuse_protocol import Attributes, Call, Opened
from posix_rules import mutant

DOTS = (b".", b"..")


def whole(handle: int) -> Entries:
    """Return every entry, in the order that the file system below has."""
    from fuse_passthrough import _entries

    os.lseek(handle, 0, os.SEEK_SET)
    found: Entries = []
    while batch := list(_entries(handle, 1 << 15)):
        found += batch
    return found


def counted(entries: Entries, start: int) -> Entries:
    """Return the entries from number ``start``; the cookie of each is the number of the next."""
    return [(ino, start + at, kind, name) for at, (ino, _, kind, name) in enumerate(entries[start:], 1)]


@mutant(
    "readdir-cookie-is-index | readdir(3p) | "
    "the position in a directory is a count, so removed entries make a reader skip"
)
class ReaddirCookieIsIndex(PassThrough):
    MOST = 32

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return counted(whole(handle)[: offset + self.MOST], offset)


@mutant(
    "readdir-insertion-repeats | readdir(3p) | "
    "the position is a place in a sorted list, in which a name that is made moves those behind it"
)
class ReaddirInsertionRepeats(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        lists: dict[int, set[bytes]] = self.__dict__.setdefault("lists", {})
        now = {entry[3]: entry for entry in whole(handle)}
        known = lists[handle] = set(now) | (lists.get(handle, set()) if offset else set())
        return [
            (now[name][0], place, now[name][2], name)
            for place, name in enumerate(sorted(known), 1)
            if place > offset and name in now
        ]


@mutant("readdir-doubles | readdir(3p) | an entry is returned twice at the boundary of two responses")
class ReaddirDoubles(PassThrough):
    MOST = 32

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.last: dict[tuple[int, int], tuple[int, int, int, bytes]] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)[: self.MOST]
        again = self.last.get((handle, offset))
        if found:
            self.last[handle, found[-1][1]] = found[-1]
        if again is None or not found:
            return found
        return [(again[0], offset, again[2], again[3]), *found]


@mutant("readdir-loses | readdir(3p) | one entry of a large directory is not listed")
class ReaddirLoses(PassThrough):
    MOST = 64

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        every = [name for *_, name in whole(handle) if name not in DOTS]
        lost = every[self.MOST] if len(every) > self.MOST else None
        return [one for one in super().readdir(call, node, handle, offset, size) if one[3] != lost]


@mutant("readdir-ends-early | readdir(3p) | no more than 120 entries are listed")
class ReaddirEndsEarly(PassThrough):
    MOST = 120

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return counted(whole(handle)[: self.MOST], offset)


@mutant(
    "readdir-stale | readdir(3p), opendir(3p) | a listing always shows the directory as at its first open"
)
class ReaddirStale(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[int, Entries] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return counted(self.first.setdefault(node, whole(handle)), offset)


@mutant("rewind-stale | rewinddir(3p) | rewinddir does not refresh the listing")
class RewindStale(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[int, Entries] = {}

    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        self.first[opened.handle] = whole(opened.handle)
        return opened

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return counted(self.first[handle], offset)


@mutant("readdir-type-wrong | readdir(3) d_type | d_type of every entry is a regular file")
class ReaddirTypeWrong(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        regular = stat.S_IFREG >> 12
        return [
            (ino, cookie, kind if name in DOTS else regular, name)
            for ino, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant("readdir-ino-wrong | readdir(3p) d_ino | an entry's d_ino differs from st_ino")
class ReaddirInoWrong(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return [
            (ino + 1, cookie, kind, name)
            for ino, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant("readdir-name-cut | readdir(3p) d_name | a listed name is truncated after 100 bytes")
class ReaddirNameCut(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return [
            (ino, cookie, kind, name[:100])
            for ino, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant(
    "directory-links-not-counted | <sys/stat.h> st_nlink | "
    "mkdir and rmdir do not change the directory's link count"
)
class DirectoryLinksNotCounted(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISDIR(found.mode):
            found.nlink = 3
