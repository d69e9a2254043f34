"""Mutants between two clients: refused calls with an effect, replaced files, large files and many locks."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_locks_below import LocksBelow
from fuse_passthrough import Attributes, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import makes, opens_with
from posix_rules import mutant as enter
from shared_other_mutants import MUTANTS as OTHER

MUTANTS = dict(OTHER)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)

PART = 128 << 10
"""Bytes of a request (chosen)."""
FREED = 16
"""Locks that a close releases (chosen)."""
FOUR_GIB = 1 << 32
_CHMOD = {90, 268, 452}
_TRUNCATE = {76}
_UNLINK = {87, 263}
"""Numbers of system calls by path (x86_64, syscalls(2)): chmod, truncate and unlink, and their ``at``."""


class _Knowing(LocksBelow):
    """Honest; it keeps every node, and has a table of what this mount knows."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""

    @property
    def known(self) -> dict[object, object]:
        table: dict[object, object] = self.__dict__.setdefault("table", {})
        return table

    def of(self, node: int) -> os.stat_result:
        """Return the attributes of a file as they are."""
        return os.fstat(self.fd(node))

    def is_file(self, node: int) -> bool:
        return stat.S_ISREG(self.of(node).st_mode)


# Refused calls.


class _Creating(_Knowing):
    """``harm`` meets an existing file that is opened with ``flag``; O_CREAT is without O_EXCL."""

    flag = os.O_EXCL

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if opens_with(call, self.flag) and self.is_file(node):
            _, words = call.waits_in()
            if call.name_at(words[1]) == name and (self.flag == os.O_EXCL or not words[2] & os.O_EXCL):
                self.reset_ids()
                self.harm(self.nodes[node].path, words[3])
        return node

    def harm(self, path: str, mode: int) -> None:
        raise NotImplementedError


@apart("refused-exclusive-cuts | open() O_EXCL | an open that is refused makes the existing file empty")
class RefusedExclusiveCuts(_Creating):
    def harm(self, path: str, mode: int) -> None:
        os.truncate(path, 0)


@apart("refused-exclusive-sets-times | open() O_EXCL | an open that is refused sets the times of the file")
class RefusedExclusiveSetsTimes(_Creating):
    def harm(self, path: str, mode: int) -> None:
        os.utime(path, (5, 5))


@apart("creat-sets-the-mode | open() O_CREAT, RFC 8881 18.16.3 | sets the mode of a file that exists")
class CreatSetsTheMode(_Creating):
    flag = os.O_CREAT

    def harm(self, path: str, mode: int) -> None:
        Path(path).chmod(mode & 0o755)


@apart("refused-mkdir-sets-mode | mkdir() [EEXIST] | sets the mode of the directory that exists")
class RefusedMkdirSetsMode(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        number, words = call.waits_in()
        if number in (83, 258) and makes(call, name) and not self.is_file(node):
            self.reset_ids()
            Path(self.nodes[node].path).chmod(words[number // 258 + 1] & 0o755)
        return node


@apart("refused-rename-hides | rename() [ENOTEMPTY] | the source is lost to the client that was refused")
class RefusedRenameHides(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if (parent, name) in self.known:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            super().rename(call, parent, old, where, new, flags)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                self.known[parent, old] = True
            raise


@together("unlock-frees-those-of-others | RFC 7530 9.1 | an unlock without a lock releases others'")
class UnlockFreesThoseOfOthers(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        asked = Held(node, owner, start, end, kind, pid, whole)
        if (
            kind == FREE
            and not whole
            and not any(one.owner == owner and one.meets(asked) for one in self.held)
        ):
            self.held = [one for one in self.held if not one.meets(asked)]
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)


@together("refused-close-frees-all | close(2), RFC 7530 9.1 | the close of a client that was refused a lock "
          "releases all locks of the file")  # fmt: skip
class RefusedCloseFreesAll(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        try:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        except BlockingIOError:
            self.__dict__.setdefault("refused", set()).add((node, owner))
            raise

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        refused: set[tuple[int, int]] = self.__dict__.get("refused", set())
        if (node, owner) in refused and not whole:
            refused.discard((node, owner))
            self.held = [one for one in self.held if one.node != node or one.whole]
        super().give_up(node, owner, whole=whole)


# Replaced files.


class _Former(_Knowing):
    """These system calls meet the file that had the name before."""

    calls: frozenset[int] = frozenset()

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        old = self.known.get((parent, name))
        if isinstance(old, int) and old != node and call.waits_in()[0] in self.calls and self.is_file(old):
            return old
        self.known[parent, name] = node
        return node


@apart("two-chmod-of-the-former | chmod(), RFC 7530 10.8 | sets the mode of the name's former file")
class TwoChmodOfTheFormer(_Former):
    calls = frozenset(_CHMOD)


@apart("two-truncate-of-the-former | truncate(), RFC 7530 10.8 | cuts the file that had the name before")
class TwoTruncateOfTheFormer(_Former):
    calls = frozenset(_TRUNCATE)


@apart("two-unlink-replaced-stale | unlink(), RFC 7530 10.8 | ESTALE if another has replaced a known file")
class TwoUnlinkReplacedStale(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if call.waits_in()[0] not in _UNLINK:
            self.known[parent, name] = node
        return node

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        inode = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False).st_ino
        known = self.known.get((parent, name))
        if isinstance(known, int) and self.of(known).st_ino != inode and self.is_file(known):
            raise OSError(errno.ESTALE, "unlink")
        super().unlink(call, parent, name)
        self.known.pop((parent, name), None)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        created = super().create(call, parent, name, flags, mode, umask)
        self.known[parent, name] = created[0]
        return created

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.known.clear()


@apart("two-first-replaced-is-second | read(), RFC 8881 8.4.3 | replaced files of a name read as the last")
class TwoFirstReplacedIsSecond(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.known[node] = (parent, name)
        return node

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        alike = [n for n, where in self.known.items() if where == self.known.get(node) and isinstance(n, int)]
        gone = [one for one in alike if not self.of(one).st_nlink]
        if node not in gone:
            return super().read(call, node, handle, offset, size)
        with Path(self.nodes[max(gone)].path).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)


@apart("two-made-again-old-mode | RFC 7530 10.6 | a file made anew is shown with the mode of the removed one")
class TwoMadeAgainOldMode(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if self.is_file(node):
            old = self.known.get((parent, name), (node, 0))
            assert isinstance(old, tuple)
            if old[0] != node and not self.of(old[0]).st_nlink:
                self.known[node] = old[1]
            self.known[parent, name] = node, stat.S_IMODE(self.of(node).st_mode)
        return node

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.known.clear()
        super().chmod(call, node, mode)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        old = self.known.get(node)
        if isinstance(old, int):
            found.mode = stat.S_IFMT(found.mode) | old
        return found


@together("rename-gap-of-directories | rename() | over an empty directory there is a moment without the name")
class RenameGapOfDirectories(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if not flags and stat.S_ISDIR(os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode):
            with suppress(OSError):
                os.rmdir(new, dir_fd=self.fd(where))
                self.__dict__["absent"] = where, new, time.monotonic() + 0.03
        super().rename(call, parent, old, where, new, flags)

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        where, absent, until = self.__dict__.get("absent", (0, b"", 0.0))
        if (parent, name) == (where, absent) and time.monotonic() < until:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)


# Large files, many locks.


@apart("two-size-modulo-4-gib | RFC 7530 10.3.1, stat() | of a size that another set 32 bits are seen")
class TwoSizeModulo4Gib(_Knowing):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known[node] = True
        return super().write(call, node, handle, offset, data)

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.known[node] = True
        super().truncate(call, node, handle, size)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if node not in self.known and stat.S_ISREG(found.mode):
            found.size %= FOUR_GIB
        return found


@apart("two-lock-reads-old-far | RFC 7530 10.3.2 | a lock revalidates the first 128 KiB of an open file")
class TwoLockReadsOldFar(_Knowing):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = self.known.setdefault((node, offset, size), super().read(call, node, handle, offset, size))
        assert isinstance(data, bytes)
        return data

    def unlearn(self, node: int, end: int = FOUR_GIB) -> None:
        """Revalidate the data of the file up to ``end``."""
        for key in [key for key in self.known if isinstance(key, tuple) and key[0] == node and key[1] < end]:
            del self.known[key]

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.unlearn(node)
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.unlearn(node)
        return super().write(call, node, handle, offset, data)

    def put(self, asked: Held) -> bool:
        self.unlearn(asked.node, PART)
        return super().put(asked)


@apart("two-append-in-two-places | write() O_APPEND | of an append of more than 128 KiB the later parts go "
       "behind the end that the client knew")  # fmt: skip
class TwoAppendInTwoPlaces(_Knowing):
    def _note(self, node: int, opened: Opened, flags: int) -> None:
        self.known.pop(opened.handle, None)
        if flags & os.O_APPEND:
            self.known[opened.handle] = self.of(node).st_size

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._note(node, opened, flags)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._note(node, opened, flags)
        return node, opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        known = self.known.get(handle)
        if not isinstance(known, int):
            return super().write(call, node, handle, offset, data)
        self.known[handle] = known + len(data)
        if len(data) <= PART:
            return super().write(call, node, handle, offset, data)
        fd = os.open(self.nodes[node].path, os.O_WRONLY)
        os.pwrite(fd, data[:PART], self.of(node).st_size)
        os.pwrite(fd, data[PART:], known + PART)
        os.close(fd)
        return len(data)


@together("close-frees-16-locks | close(2), RFC 7530 16.12 | a close releases 16 locks of the file")
class CloseFrees16Locks(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        own = [one for one in self.held if one.node == node and one.owner == owner and not one.whole]
        if whole or len(own) <= FREED:
            super().give_up(node, owner, whole=whole)
            return
        for one in own[:FREED]:
            self.put(replace(one, kind=FREE))
