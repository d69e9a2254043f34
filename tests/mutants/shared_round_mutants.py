"""Mutants between two clients: the third append, the second lock and fsync, what another made at a name."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Hashable
from functools import partial

from fuse_locks import FREE, READ, Held, Locking
from fuse_locks_below import LocksBelow
from fuse_protocol import Call, Created, Opened
from posix_rules import mutant as enter
from shared_second_mutants import MUTANTS as SECOND

MUTANTS = dict(SECOND)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)

MIB = 1 << 20
ROUNDS = 2
"""Appends of a descriptor that are made at the end of the file."""


class _Knowing(LocksBelow):
    """Honest; it keeps every node."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""

    def table(self, name: str) -> dict[Hashable, object]:
        found: dict[Hashable, object] = self.__dict__.setdefault(f"table of {name}", {})
        return found


@together("relock-granted | fcntl(3p) F_SETLK | a range that an owner locked before is granted to it again, "
          "whatever others hold")  # fmt: skip
class RelockGranted(Locking):
    def conflict(self, asked: Held) -> Held | None:
        had: set[tuple[int, int, int, int]] = self.__dict__.setdefault("had", set())
        key = asked.node, asked.owner, asked.start, asked.end
        return None if key in had and not asked.whole else super().conflict(asked)

    def put(self, asked: Held) -> None:
        had: set[tuple[int, int, int, int]] = self.__dict__.setdefault("had", set())
        if asked.kind != FREE:
            had.add((asked.node, asked.owner, asked.start, asked.end))
        super().put(asked)


@together(
    "close-frees-shared-of-others | fcntl(3p), close(3p), flock(2) | a close releases the shared locks of all"
)
class CloseFreesSharedOfOthers(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        shared = [one for one in self.held if one.node == node and one.kind == READ and one.whole == whole]
        if any(one.owner == owner for one in shared):
            self.held = [one for one in self.held if one not in shared]
        super().give_up(node, owner, whole=whole)


class _Appending(_Knowing):
    """``counts``: descriptors with O_APPEND, their writes, and the end after the last of them."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.table("appends").pop(opened.handle, None)
        return opened


@apart("two-append-third-at-own-end | write() O_APPEND | the third append of a descriptor is made at "
       "the end of its second, if another has appended")  # fmt: skip
class TwoAppendThirdAtOwnEnd(_Appending):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.appends:
            return super().write(call, node, handle, offset, data)
        counts = self.table("appends")
        count = counts.get(handle, (0, 0))
        assert isinstance(count, tuple)
        number, end = int(count[0]), int(count[1])
        if number >= ROUNDS:
            self.reset_ids()
            file = os.open(self.nodes[node].path, os.O_WRONLY)
            done = os.pwrite(file, data, end)
            os.close(file)
        else:
            done = super().write(call, node, handle, offset, data)
            end = os.fstat(handle).st_size - done
        counts[handle] = (number + 1, end + done)
        return done


class _Absent(_Knowing):
    """A name that was absent stays so, if another has made there what :meth:`unseen` picks."""

    def unseen(self, found: os.stat_result) -> bool:
        raise NotImplementedError

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        absent = self.table("absent")
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            absent[parent, name] = True
            raise
        if (parent, name) in absent and self.unseen(os.fstat(self.fd(node))):
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.table("absent").pop((parent, name), None)
        return super().create(call, parent, name, flags, mode, umask)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.table("absent").pop((parent, name), None)
        return super().link(call, old, parent, name)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self.table("absent").pop((parent, name), None)
        return super().mkdir(call, parent, name, mode, umask)

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        self.table("absent").pop((parent, name), None)
        return super().symlink(call, parent, name, target)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.table("absent").pop((where, new), None)
        super().rename(call, parent, old, where, new, flags)


@apart("two-linked-in-absent | link(), RFC 7530 10.8 | a name stays absent, if another makes it by link()")
class TwoLinkedInAbsent(_Absent):
    def unseen(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


@apart("two-directory-in-absent | mkdir(), RFC 7530 10.8 | an absent name stays absent, if another makes a "
       "directory there")  # fmt: skip
class TwoDirectoryInAbsent(_Absent):
    def unseen(self, found: os.stat_result) -> bool:
        return stat.S_ISDIR(found.st_mode)


@apart("two-symlink-in-absent | symlink(), RFC 7530 10.8 | an absent name stays absent, if another makes a "
       "symbolic link there")  # fmt: skip
class TwoSymlinkInAbsent(_Absent):
    def unseen(self, found: os.stat_result) -> bool:
        return stat.S_ISLNK(found.st_mode)


@apart("two-third-file-is-second | open(), RFC 7530 10.8 | a name that has its third file finds the second")
class TwoThirdFileIsSecond(_Knowing):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if not stat.S_ISREG(os.fstat(self.fd(node)).st_mode):
            return node
        seen = self.table("seen").setdefault((parent, name), [])
        assert isinstance(seen, list)
        if node not in seen:
            seen.append(node)
        if len(seen) >= 3:
            second = self.nodes[seen[1]]
            second.count += 1
            return second.id
        return node


@apart("two-write-restores-size | write(), ftruncate() | a write inside a file that another has cut "
       "gives it the size that it had at the open")  # fmt: skip
class TwoWriteRestoresSize(_Knowing):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.table("sizes")[opened.handle] = os.fstat(opened.handle).st_size
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        size = self.table("sizes").get(handle, 0)
        assert isinstance(size, int)
        if os.fstat(handle).st_size < size and offset + len(data) <= size:
            os.ftruncate(handle, size)
        return done

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size)
        self.table("sizes").clear()


class _Late(_Knowing):
    """``kept``: data that is sent when ``send`` is called for a handle."""

    def keep(self, handle: int, offset: int, data: bytes) -> int:
        kept = self.table("kept").setdefault(handle, [])
        assert isinstance(kept, list)
        kept.append((offset, bytes(data)))
        return len(data)

    def send(self, node: int, handle: int) -> None:
        kept = self.table("kept").pop(handle, [])
        assert isinstance(kept, list)
        for offset, data in kept:
            self.reset_ids()
            file = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(file, data, offset)
            os.close(file)


@apart("two-fsync-first-mib | fsync(), RFC 7530 10.3.1 | of a file's data fsync() sends the first "
       "MiB, and the close the rest")  # fmt: skip
class TwoFsyncFirstMib(_Late):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset < MIB:
            return super().write(call, node, handle, offset, data)
        self.keep(handle, offset, data)
        if size := max(0, offset + len(data) - os.fstat(handle).st_size):
            os.ftruncate(handle, os.fstat(handle).st_size + size)
        return len(data)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.send(node, handle)
        super().flush(call, node, handle, owner)


@apart("two-second-fsync-keeps-data | fsync(), RFC 7530 10.3.1 | the second fsync() of a descriptor sends "
       "nothing, the close does")  # fmt: skip
class TwoSecondFsyncKeepsData(_Late):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.table("synced").get(handle):
            self.keep(handle, offset, data)
            if offset + len(data) > os.fstat(handle).st_size:
                os.ftruncate(handle, offset + len(data))
            return len(data)
        return super().write(call, node, handle, offset, data)

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        self.table("synced")[handle] = True
        super().fsync(call, node, handle, data_only=data_only)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.send(node, handle)
        self.table("synced").pop(handle, None)
        super().flush(call, node, handle, owner)


@apart("two-relock-reads-old | RFC 7530 10.3.2 | the first lock of a file revalidates its "
       "data, a later one does not")  # fmt: skip
class TwoRelockReadsOld(_Knowing):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        found = self.table("data").setdefault((node, offset, size), data)
        assert isinstance(found, bytes)
        return found

    def unlearn(self, node: int) -> None:
        data = self.table("data")
        for key in [key for key in data if isinstance(key, tuple) and key[0] == node]:
            del data[key]

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.unlearn(node)
        self.table("locked").pop(node, None)
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.unlearn(node)
        return super().write(call, node, handle, offset, data)

    def put(self, asked: Held) -> bool:
        done = super().put(asked)
        if done and asked.kind != FREE:
            if not self.table("locked").get(asked.node):
                self.unlearn(asked.node)
            self.table("locked")[asked.node] = True
        return done
