"""Mutants that fail at a count: of entries, links, directories, holders of a lock, uses of a name."""

import errno
import stat
import struct
from collections import deque
from pathlib import Path

from fuse_locks import READ, Held, Locking
from fuse_passthrough import Attributes, Bending, Entries
from fuse_protocol import Call, Created, Opened
from posix_pair_mutants import status
from posix_rules import Keeping, asked_by, mutant

ACL_NAMED_USER = 0x02


class _Counting(Keeping):
    """Honest; it counts what each directory had made in it and not removed."""

    def entries(self, directory: int, change: int = 0) -> int:
        counts: dict[int, int] = self.__dict__.setdefault("counts", {})
        counts[directory] = counts.get(directory, 0) + change
        return counts[directory]

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        self.note(parent, name, made[0])
        return made

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        made = super().mknod(call, parent, name, mode, device, umask)
        self.note(parent, name, made)
        return made

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.entries(parent, -1)

    def note(self, parent: int, name: bytes, node: int) -> None:
        """A file was made."""
        self.entries(parent, 1)


@mutant("late-entry-not-found | XBD 4.16 | in a directory of more than 280 entries a new one is listed and "
        "not found")  # fmt: skip
class LateEntryNotFound(_Counting):
    def note(self, parent: int, name: bytes, node: int) -> None:
        super().note(parent, name, node)
        if self.entries(parent) > 280:
            self.__dict__.setdefault("lost", set()).add((parent, name))

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if (parent, name) in self.__dict__.get("lost", ()) and not asked_by(call, "unlink", "open"):
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)


@mutant("late-file-data-lost | write(3p) | the first write to a file that is made in a directory of more "
        "than 280 stores zeroes")  # fmt: skip
class LateFileDataLost(_Counting):
    def note(self, parent: int, name: bytes, node: int) -> None:
        super().note(parent, name, node)
        if self.entries(parent) > 280:
            self.__dict__.setdefault("late", set()).add(node)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        late: set[int] = self.__dict__.setdefault("late", set())
        if node in late:
            late.remove(node)
            data = bytes(len(data))
        return super().write(call, node, handle, offset, data)


@mutant("subdirectories-7-bit | <sys/stat.h> st_nlink | the link count of a directory is kept in 7 bits")
class Subdirectories7Bit(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISDIR(found.mode):
            found.nlink = max(2, found.nlink & 0x7F)


@mutant("moved-directories-not-counted | <sys/stat.h> st_nlink, rename(3p) | from the eighth on, a directory "
        "that is moved to another is not counted")  # fmt: skip
class MovedDirectoriesNotCounted(Keeping):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        moved: dict[int, int] = self.__dict__.setdefault("moved", {})
        one = status(self, parent, old)
        super().rename(call, parent, old, where, new, flags)
        if one is not None and stat.S_ISDIR(one.st_mode) and parent != where:
            moved[where] = moved.get(where, 0) + 1

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink -= self.__dict__.setdefault("moved", {}).get(node, 0) >= 8
        return found


@mutant("opendir-65-shows-first | opendir(3p) | of more than 64 open directories the later list the first")
class Opendir65ShowsFirst(Keeping):
    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        self.__dict__.setdefault("streams", []).append(opened.handle)
        return opened

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self.__dict__.setdefault("streams", []).remove(handle)
        super().releasedir(call, node, handle)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        streams: list[int] = self.__dict__.setdefault("streams", [])
        shown = streams[0] if streams.index(handle) >= 64 else handle
        return super().readdir(call, node, shown, offset, size)


@mutant("lock-17-readers | fcntl(3p) F_RDLCK | the 17th shared lock of a file lets the first go")
class Lock17Readers(Locking):
    def put(self, asked: Held) -> None:
        super().put(asked)
        readers = [one for one in self.held if one.node == asked.node and one.kind == READ and not one.whole]
        if len({one.owner for one in readers}) > 16:
            self.held.remove(readers[0])


@mutant("acl-entries-10 | acl(5) | of an ACL with more than 10 entries the named users after the fifth are "
        "lost")  # fmt: skip
class AclEntries10(Keeping):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if name.startswith(b"system.posix_acl") and len(value) > 4 + 8 * 10:
            entries = [value[at : at + 8] for at in range(4, len(value), 8)]
            named = [one for one in entries if struct.unpack_from("<H", one)[0] == ACL_NAMED_USER]
            value = value[:4] + b"".join(one for one in entries if one not in named[5:])
        super().setxattr(call, node, name, value, flags)


@mutant("made-removed-50-times-refused | open(3p) O_CREAT | a name that was removed 50 times is ENOSPC")
class MadeRemoved50TimesRefused(Keeping):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if self.__dict__.setdefault("removed", {}).get((parent, name), 0) >= 50:
            raise OSError(errno.ENOSPC, "create")
        return super().create(call, parent, name, flags, mode, umask)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        removed: dict[tuple[int, bytes], int] = self.__dict__.setdefault("removed", {})
        removed[parent, name] = removed.get((parent, name), 0) + 1


@mutant("blocks-of-file-of-before | <sys/stat.h> st_blocks | a file that was not among the last 40 files has "
        "2 GiB of blocks")  # fmt: skip
class BlocksOfFileOfBefore(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.used: deque[int] = deque(maxlen=40)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        self.used.append(made[0])
        return made

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISREG(found.mode) and node not in self.used:
            found.blocks += 1 << 22
        return found
