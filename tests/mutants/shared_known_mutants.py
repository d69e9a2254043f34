"""Mutants between two clients: what a client once knew of names and of many files; open and locked files."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from functools import partial
from pathlib import Path

from fuse_locks import Locking
from fuse_locks_below import LocksBelow
from fuse_passthrough import Attributes, Entries
from fuse_protocol import Call, Created, Later, Opened
from posix_rules import asked_by
from posix_rules import mutant as enter
from shared_believed_mutants import MUTANTS as BELIEVED
from shared_later_mutants import Kept

MUTANTS = dict(BELIEVED)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)

FEW = 100
"""Files whose data are read again."""
FAR = 1 << 20
"""Offset from which on data are sent late."""
SHORT_WAIT = 3.0
"""Seconds after which a wait for a lock is given up."""

Name = tuple[int, bytes]


@apart(
    "two-made-known-refused | open() O_EXCL, RFC 7530 10.8 | EEXIST for a name that this client made before"
)
class TwoMadeKnownRefused(Kept):
    def note(self, parent: int, name: bytes) -> None:
        made: set[Name] = self.__dict__.setdefault("made", set())
        if (parent, name) in made:
            raise FileExistsError(errno.EEXIST, "made before")
        made.add((parent, name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if flags & os.O_EXCL:
            self.note(parent, name)
        return super().create(call, parent, name, flags, mode, umask)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.note(parent, name)
        return super().mkdir(call, parent, name, mode, umask)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        self.note(parent, name)
        return super().symlink(call, parent, name, target)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.note(parent, name)
        return super().link(call, old, parent, name)


@apart("two-unlink-known-absent | unlink(), RFC 7530 10.8 | ENOENT for a name that was absent before")
class TwoUnlinkKnownAbsent(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent: set[Name] = self.__dict__.setdefault("absent", set())
        if (parent, name) in absent and asked_by(call, "unlink"):
            raise FileNotFoundError(errno.ENOENT, "lookup")
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            absent.add((parent, name))
            raise
        absent.discard((parent, name))
        return node


@apart("two-absent-in-replaced-directory | RFC 7530 10.8 | an absent name stays so in a replaced directory")
class TwoAbsentInReplacedDirectory(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent: dict[tuple[str, bytes], int] = self.__dict__.setdefault("absent", {})
        key = str(Path(self.nodes[parent].path).readlink()), name
        if absent.get(key, parent) != parent:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            absent.setdefault(key, parent)
            raise


@apart("two-stale-past-100 | RFC 7530 10.3.1 | of more than 100 files the later ones are not read again")
class TwoStalePast100(Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        places: dict[int, int] = self.__dict__.setdefault("places", {})
        known: dict[tuple[int, int, int], bytes] = self.__dict__.setdefault("known", {})
        data = super().read(call, node, handle, offset, size)
        if not data or places.setdefault(node, len(places)) < FEW:
            return data
        return known.setdefault((node, offset, size), data)


@apart("two-write-after-chmod-refused | chmod(), write() | is refused when the file has no write bit")
class TwoWriteAfterChmodRefused(Kept):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not os.fstat(handle).st_mode & 0o222:
            raise PermissionError(errno.EACCES, "write")
        return super().write(call, node, handle, offset, data)


@apart("two-write-after-chmod-lost | write(), fsync() | succeeds and is lost when the file has no write bit")
class TwoWriteAfterChmodLost(Kept):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not os.fstat(handle).st_mode & 0o222:
            return len(data)
        return super().write(call, node, handle, offset, data)


@together("two-lock-lost-at-chmod | fcntl(), chmod() | the locks of a file end when another changes its mode")
class TwoLockLostAtChmod(Locking):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        self.held = [one for one in self.held if one.node != node]
        self.grant()


@together("two-wait-gives-up | fcntl() F_SETLKW, RFC 7530 9.4 | a wait for a lock ends after 3 s")
class TwoWaitGivesUp(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        try:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        except Later:
            threading.Thread(target=self._end_wait, args=(call.unique,), daemon=True).start()
            raise

    def _end_wait(self, unique: int) -> None:
        time.sleep(SHORT_WAIT)
        for one in [one for one in self.waiting if one[0] == unique]:
            self.waiting.remove(one)
            self.answer(unique, errno.EAGAIN)


@apart("two-mapped-close-keeps-back | RFC 7530 10.3.1, 10.7 | mapped data is sent by fsync() alone")
class TwoMappedCloseKeepsBack(Kept):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.from_cache:
            return super().write(call, node, handle, offset, data)
        back: dict[int, list[tuple[int, bytes]]] = self.__dict__.setdefault("back", {})
        back.setdefault(handle, []).append((offset, data))
        return len(data)

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        for offset, data in self.__dict__.setdefault("back", {}).pop(handle, ()):
            os.pwrite(handle, data, offset)
        super().fsync(call, node, handle, data_only=data_only)


@apart(
    "two-size-only-grows | RFC 7530 10.6 | a size that is less than one that this client knew is not believed"
)
class TwoSizeOnlyGrows(Kept):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISREG(found.mode):
            sizes = self.sizes()
            found.size = sizes[node] = max(found.size, sizes.get(node, 0))
        return found

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size)
        self.sizes().pop(node, None)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & os.O_TRUNC:
            self.sizes().pop(node, None)
        return super().open(call, node, flags)

    def sizes(self) -> dict[int, int]:
        known: dict[int, int] = self.__dict__.setdefault("known", {})
        return known


@apart(
    "two-open-file-keeps-name | RFC 7530 10.8 | a name is that of the file that this client has open by it"
)
class TwoOpenFileKeepsName(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        known: dict[tuple[int, bytes], int] = self.__dict__.setdefault("known", {})
        node = known.get((parent, name), 0)
        if self.count().get(node, 0) > 0:
            self.nodes[node].count += 1
            return node
        known[parent, name] = super().lookup(call, parent, name)
        return known[parent, name]

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.count()[node] = self.count().get(node, 0) + 1
        return super().open(call, node, flags)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        if node in self.count():
            self.count()[node] -= 1

    def count(self) -> dict[int, int]:
        """Return how often each file is open."""
        counts: dict[int, int] = self.__dict__.setdefault("counts", {})
        return counts


@apart("two-open-directory-time-old | RFC 7530 10.6 | attributes of a directory stay while it is open here")
class TwoOpenDirectoryTimeOld(Kept):
    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        self.known()[node] = self.getattr(call, node, None)
        return opened

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        super().releasedir(call, node, handle)
        self.known().pop(node, None)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        return self.known().get(node) or super().getattr(call, node, handle)

    def known(self) -> dict[int, Attributes]:
        attributes: dict[int, Attributes] = self.__dict__.setdefault("attributes", {})
        return attributes


@apart(
    "two-listing-over-64-stays | RFC 7530 10.8 | names of a directory of more than 64 are those first listed"
)
class TwoListingOver64Stays(Kept):
    def opendir(self, call: Call, node: int) -> Opened:
        names = {os.fsencode(one.name) for one in Path(self.nodes[node].path).iterdir()}
        if len(names) > 64:
            self.first().setdefault(node, {b".", b"..", *names})
        return super().opendir(call, node)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        known = self.first().get(node)
        return found if known is None else [one for one in found if one[3] in known]

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.first().pop(parent, None)
        return super().create(call, parent, name, flags, mode, umask)

    def first(self) -> dict[int, set[bytes]]:
        names: dict[int, set[bytes]] = self.__dict__.setdefault("first_names", {})
        return names


@apart("two-second-replacement-unseen | RFC 7530 10.8 | a name that was replaced once stays the second file")
class TwoSecondReplacementUnseen(Kept):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if not stat.S_ISREG(os.fstat(self.fd(node)).st_mode):
            return node
        files: dict[Name, list[int]] = self.__dict__.setdefault("files", {})
        known = files.setdefault((parent, name), [])
        if node not in known and len(known) < 2:
            known.append(node)
        return node if node in known else known[-1]

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.__dict__.setdefault("files", {}).pop((parent, name), None)
        return super().create(call, parent, name, flags, mode, umask)


@apart("two-absent-parent-stays | RFC 7530 10.8 | no name is found in a directory made where none was")
class TwoAbsentParentStays(LocksBelow):
    def forget(self, node: int, times: int) -> None:
        """Keep the node."""

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent: set[Name] = self.__dict__.setdefault("absent", set())
        strange: set[int] = self.__dict__.setdefault("strange", set())
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            absent.add((parent, name))
            raise
        if (parent, name) in absent and stat.S_ISDIR(os.fstat(self.fd(node)).st_mode):
            strange.add(node)
        if parent in strange:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return node

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.__dict__.setdefault("absent", set()).discard((parent, name))
        return super().mkdir(call, parent, name, mode, umask)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.__dict__.setdefault("absent", set()).discard((where, new))
        super().rename(call, parent, old, where, new, flags)


@apart(
    "two-unlock-keeps-far-data | RFC 7530 10.3.2 | of locked data, those above 1 MiB are sent at the close"
)
class TwoUnlockKeepsFarData(LocksBelow):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset < FAR or not self.through.get(handle):
            return super().write(call, node, handle, offset, data)
        self.__dict__.setdefault("unsent", {}).setdefault(handle, []).append((offset, data))
        return len(data)

    def send(self, handle: int) -> None:
        for offset, data in self.__dict__.setdefault("unsent", {}).pop(handle, ()):
            os.pwrite(handle, data, offset)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        self.send(handle)
        return super().read(call, node, handle, offset, size)

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        self.send(handle)
        super().fsync(call, node, handle, data_only=data_only)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.send(handle)
        super().flush(call, node, handle, owner)


@apart("two-flock-reads-old | flock(2), RFC 7530 10.3.2 | under flock() an open file has its former data")
class TwoFlockReadsOld(LocksBelow):
    def forget(self, node: int, times: int) -> None:
        """Keep the node."""

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known = self.__dict__.setdefault("known", {}).setdefault(node, {})
        if (offset, size) not in known:
            known[offset, size] = super().read(call, node, handle, offset, size)
        data: bytes = known[offset, size]
        return data

    def unlearn(self, node: int) -> None:
        self.__dict__.setdefault("known", {}).pop(node, None)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.unlearn(node)
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.unlearn(node)
        return super().write(call, node, handle, offset, data)

    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        if not whole:
            self.unlearn(node)
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
