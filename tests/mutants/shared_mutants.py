"""What the suite of two clients is tried on: file systems that break a promise that one client has of
another.

Two hands on this machine are the clients. They meet in one mount, or each has a mount of its own on the
same directory (``apart``): what one client believes and another has changed is then two caches, which each
mutant keeps in its own server. What the posix mutants break between two processes (locks, O_EXCL, a rename
that is not atomic) is broken between two clients as well: their table is part of this one.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from fuse_locks import Held, Locking
from fuse_passthrough import ROOT, Attributes, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_mutants import MUTANTS as POSIX
from posix_rules import asked_by, overriding
from posix_rules import mutant as enter

MUTANTS = dict(POSIX)
mutant = partial(enter, table=MUTANTS, apart=True)


def _unlearned(files: RemembersContent, call: Call, node: int, *arguments: Any) -> tuple[Any, ...]:
    files.unlearn(node)
    return call, node, *arguments


@overriding(_unlearned, "write", "truncate", "utimens", "chmod")
class RemembersContent(PassThrough):
    """Honest; it knows what a file had in it, and its attributes, when this mount first looked."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.data: dict[int, bytes] = {}
        self.facts: dict[int, Attributes] = {}

    def remember(self, node: int) -> bytes:
        """Return what the file had in it when it was first looked at."""
        if node not in self.data:
            self.data[node] = Path(self.nodes[node].path).read_bytes()
        return self.data[node]

    def unlearn(self, node: int) -> None:
        """Forget it: this mount changes the file itself."""
        self.data.pop(node, None)
        self.facts.pop(node, None)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & os.O_TRUNC:
            self.unlearn(node)
        return super().open(call, node, flags)

    def forget(self, node: int, times: int) -> None:
        """Keep every node: what is remembered of it would be another's."""


@mutant("open-finds-old-data | RFC 7530 10.3.1 | data is cached forever after the first read")
class OpenFindsOldData(RemembersContent):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return self.remember(node)[offset : offset + size]


@mutant("open-finds-old-size | RFC 7530 10.3.1, 10.6 | a change of size by another client is not visible")
class OpenFindsOldSize(OpenFindsOldData):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if node in self.data:
            found.size = len(self.data[node])
        return found


@mutant("attributes-never-expire | RFC 7530 10.6; nfs(5) | attributes are cached forever")
class AttributesNeverExpire(RemembersContent):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        if not stat.S_ISREG(os.fstat(self.fd(node)).st_mode):
            return super().getattr(call, node, handle)
        return self.facts.setdefault(node, super().getattr(call, node, handle))


@mutant(
    "close-keeps-data-back | RFC 7530 10.3.1 | written data stays in the client's cache after close and fsync"
)
class CloseKeepsDataBack(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.dirty: list[tuple[int, int, bytes]] = []

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.dirty.append((node, offset, bytes(data)))
        return len(data)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        for one, offset, data in self.dirty:
            fd = os.open(self.nodes[one].path, os.O_WRONLY)
            os.pwrite(fd, data, offset)
            os.close(fd)
        self.dirty.clear()
        return super().open(call, node, flags)

    def forget(self, node: int, times: int) -> None:
        """Keep every node: it may be dirty."""


def _forgotten(
    files: RemembersNames, call: Call, parent: int, name: bytes, *arguments: Any
) -> tuple[Any, ...]:
    files.known.pop((parent, name), None)
    return call, parent, name, *arguments


@overriding(_forgotten, "create", "mkdir", "symlink", "unlink")
class RemembersNames(PassThrough):
    """Honest; it knows which node every name once led to, or that there was none."""

    lost = False
    """Whether it remembers that there was none, too."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.known: dict[tuple[int, bytes], int | None] = {}

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        key = parent, name
        if key not in self.known:
            try:
                self.known[key] = super().lookup(call, parent, name)
            except FileNotFoundError:
                if self.lost:
                    self.known[key] = None
                raise
        node = self.known[key]
        if node is None:
            raise FileNotFoundError(2, "believed to be absent")
        self.nodes[node].count += 1
        return node

    def forget(self, node: int, times: int) -> None:
        """Keep every node."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        for key in ((parent, old), (where, new)):
            self.known.pop(key, None)
        super().rename(call, parent, old, where, new, flags)


@mutant("open-finds-the-old-file | RFC 7530 10.8 | the file of a name is cached forever")
class OpenFindsTheOldFile(RemembersNames):
    pass


@mutant("names-never-expire | RFC 7530 10.8; nfs(5) | existing and missing names are cached forever")
class NamesNeverExpire(RemembersNames):
    lost = True


def _noted(files: NamesAppearLate, call: Call, parent: int, name: bytes, *arguments: Any) -> tuple[Any, ...]:
    files.made.add((parent, name))
    return call, parent, name, *arguments


@mutant("names-appear-late | RFC 7530 10.8 | a name that another client created is not found at first")
@overriding(_noted, "mkdir", "create")
class NamesAppearLate(RemembersNames):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.late: dict[tuple[int, bytes], int] = {}
        self.made: set[tuple[int, bytes]] = set()

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        key = parent, name
        node = super().lookup(call, parent, name)
        self.late[key] = self.late.get(key, 0) + 1
        if parent != ROOT and self.late[key] < 3 and key not in self.made:
            raise FileNotFoundError(2, "not yet")
        return node


@mutant("listings-never-expire | RFC 7530 10.9; nfs(5) | a listing is cached forever")
class ListingsNeverExpire(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lists: dict[tuple[int, int], Entries] = {}

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return self.lists.setdefault((node, offset), super().readdir(call, node, handle, offset, size))

    def forget(self, node: int, times: int) -> None:
        """Keep every node."""


@mutant(
    "writes-are-whole-pages | RFC 7530 10.3.2 | "
    "a write of a part of a page writes the whole page from the client's cache"
)
class WritesAreWholePages(RemembersContent):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        page = bytearray(self.remember(node))
        page.extend(bytes(max(0, offset + len(data) - len(page))))
        page[offset : offset + len(data)] = data
        self.data[node] = bytes(page)
        os.pwrite(handle, page, 0)
        return len(data)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        self.remember(node)
        return super().read(call, node, handle, offset, size)


@mutant(
    "writes-rewrite-the-block | RFC 8881 18.32.3 | "
    "a write reads its block, and writes the whole block back a moment later"
)
class WritesRewriteTheBlock(PassThrough):
    BLOCK = 1 << 16

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        start = offset // self.BLOCK * self.BLOCK
        end = -(-(offset + len(data)) // self.BLOCK) * self.BLOCK
        with Path(self.nodes[node].path).open("r+b", buffering=0) as file:
            block = bytearray(os.pread(file.fileno(), end - start, start))
            block.extend(bytes(max(0, offset - start + len(data) - len(block))))
            time.sleep(0.01)  # the other client's server writes meanwhile
            block[offset - start : offset - start + len(data)] = data
            os.pwrite(file.fileno(), block, start)
        return len(data)


@mutant(
    "reads-are-torn | RFC 7530 10.3.2 | a read returns the second half as before the last write",
    apart=False,
)
class ReadsAreTorn(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.before: dict[int, bytes] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.before[node] = Path(self.nodes[node].path).read_bytes()
        return super().write(call, node, handle, offset, data)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        old = self.before.get(node, b"")[offset : offset + len(found)]
        return found[: len(found) // 2] + old[len(found) // 2 :] if len(old) == len(found) else found


@mutant(
    "writes-follow-the-name | POSIX.1-2024 rename() | a write goes to the file that has the name now",
    apart=False,
)
class WritesFollowTheName(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.names: dict[int, tuple[int, bytes]] = {}

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.names.setdefault(node, (parent, name))
        return node

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if node not in self.names:
            return super().write(call, node, handle, offset, data)
        parent, name = self.names[node]
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=self.fd(parent))
        try:
            return os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def forget(self, node: int, times: int) -> None:
        """Keep every node."""


@mutant("rename-empties-directories | POSIX.1-2024 rename() | a renamed directory is empty", apart=False)
class RenameEmptiesDirectories(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        tree = stat.S_ISDIR(os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode)
        super().rename(call, parent, old, where, new, flags)
        if tree:
            os.rename(new, b".lost" + new, src_dir_fd=self.fd(where), dst_dir_fd=self.fd(where))
            os.mkdir(new, dir_fd=self.fd(where))


@mutant(
    "removal-always-succeeds | POSIX.1-2024 unlink(), rmdir() [ENOENT] | removal of a missing name succeeds",
    apart=False,
)
class RemovalAlwaysSucceeds(PassThrough):
    """The kernel would return ENOENT itself: so it is given something to remove."""

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            if asked_by(call, "rmdir"):
                place = tempfile.mkdtemp()
                node = self.node_of(os.open(place, os.O_PATH | os.O_DIRECTORY))
                Path(place).rmdir()
                return node
            if asked_by(call, "unlink"):
                fd, place = tempfile.mkstemp()
                Path(place).unlink()
                node = self.node_of(os.open(f"/proc/self/fd/{fd}", os.O_PATH))
                os.close(fd)
                return node
            raise

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().unlink(call, parent, name)
        except FileNotFoundError:
            return

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except FileNotFoundError:
            return


@mutant(
    "removed-directories-take-files | POSIX.1-2024 open() [ENOENT] | "
    "files can be created in a removed directory"
)
class RemovedDirectoriesTakeFiles(RemembersNames):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        try:
            return super().create(call, parent, name, flags, mode, umask)
        except FileNotFoundError:
            fd, place = tempfile.mkstemp()
            Path(place).unlink()
            return self.node_of(os.open(f"/proc/self/fd/{fd}", os.O_PATH)), Opened(fd)


@mutant(
    "dead-waiters-are-granted | fcntl(2) F_SETLKW | a process that died while waiting gets the lock",
    apart=False,
)
class DeadWaitersAreGranted(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.dead: list[Held] = []

    def interrupt(self, unique: int) -> None:
        self.dead += [asked for one, asked in self.waiting if one == unique]
        super().interrupt(unique)

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        if owner not in {one.owner for one in self.dead}:
            super().give_up(node, owner, whole=whole)

    def grant(self) -> None:
        super().grant()
        for asked in [one for one in self.dead if self.conflict(one) is None and one not in self.held]:
            self.held.append(asked)


@mutant(
    "rename-copies-into-place | POSIX.1-2024 rename() | rename overwrites the replaced file's data",
    apart=False,
)
class RenameCopiesIntoPlace(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            target = os.open(new, os.O_WRONLY | os.O_TRUNC, dir_fd=self.fd(where))
        except (FileNotFoundError, IsADirectoryError):
            super().rename(call, parent, old, where, new, flags)
            return
        source = os.open(old, os.O_RDONLY, dir_fd=self.fd(parent))
        os.sendfile(target, source, 0, os.fstat(source).st_size)
        os.close(source)
        os.close(target)
        os.unlink(old, dir_fd=self.fd(parent))
