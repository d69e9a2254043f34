"""Mutants between two clients: a second request, many changes of a file, changes by both at once."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial

from fuse_locks_below import LocksBelow
from fuse_passthrough import Attributes
from fuse_protocol import Call, Opened
from posix_rules import mutant as enter
from posix_rules import size_of
from shared_known_mutants import MUTANTS as KNOWN

MUTANTS = dict(KNOWN)
apart = partial(enter, table=MUTANTS, apart=True)

CHANGES = 20
"""Changes of a file that a client sees."""
SIZES = 3
"""Sizes of an open file that a client sees."""


class _Knowing(LocksBelow):
    """Honest; it keeps every node, and has one table of what this mount knows of each."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""

    @property
    def known(self) -> dict[object, object]:
        table: dict[object, object] = self.__dict__.setdefault("table", {})
        return table


@apart("two-access-old | access(3p), RFC 7530 10.6 | access() has the result that it had first for the file")
class TwoAccessOld(_Knowing):
    def access(self, call: Call, node: int, mask: int) -> None:
        key = node, mask, call.uid
        if key not in self.known:
            try:
                super().access(call, node, mask)
            except PermissionError:
                self.known[key] = False
            else:
                self.known[key] = True
        if not self.known[key]:
            raise PermissionError(errno.EACCES, "access")


@apart("two-third-size-unseen | fstat(3p) | of an open file three sizes are seen, and no later one")
class TwoThirdSizeUnseen(_Knowing):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        sizes = self.known.setdefault(node, [])
        assert isinstance(sizes, list)
        if found.size not in sizes[-1:] and len(sizes) < SIZES:
            sizes.append(found.size)
        found.size = sizes[-1]
        return found

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.known.pop(node, None)
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known.pop(node, None)
        return super().write(call, node, handle, offset, data)

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.known.pop(node, None)
        super().truncate(call, node, handle, size)


@apart(
    "two-close-sets-mode-back | close(3p), chmod(3p) | who has written gives the file the mode of its open"
)
class TwoCloseSetsModeBack(_Knowing):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.known[opened.handle] = stat.S_IMODE(os.fstat(opened.handle).st_mode)
        return opened

    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.known.clear()
        super().chmod(call, node, mode)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known["written", handle] = True
        return super().write(call, node, handle, offset, data)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        mode = self.known.pop(handle, None)
        if isinstance(mode, int) and self.known.pop(("written", handle), False):
            super().chmod(call, node, mode)


@apart("two-getlk-old | fcntl(3p) F_GETLK | of a range the lock is reported that was there first")
class TwoGetlkOld(_Knowing):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = super().getlk(call, node, owner, start, end, kind)
        first = self.known.setdefault((node, start, end, kind), found)
        assert isinstance(first, tuple)
        return first


@apart("two-allocation-cuts | posix_fallocate(3p) | an allocation behind the end that the client knows ends "
       "the file")  # fmt: skip
class TwoAllocationCuts(_Knowing):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.known[node] = size_of(opened.handle)
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known.pop(node, None)
        return super().write(call, node, handle, offset, data)

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        known = self.known.pop(node, None)
        if not mode and isinstance(known, int) and known < offset + length < size_of(handle):
            os.ftruncate(handle, offset + length)


@apart("two-unlink-frees-linked | unlink(3p) | to remove the name of a file that had one link frees its data")
class TwoUnlinkFreesLinked(_Knowing):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        self.known.setdefault(node, found.nlink)
        return found

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.known[old] = 2
        return super().link(call, old, parent, name)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        node = self.node_at(self.fd(parent), name)
        super().unlink(call, parent, name)
        one = os.fstat(self.fd(node))
        if self.known.get(node) == 1 and stat.S_ISREG(one.st_mode) and one.st_nlink:
            self.reset_ids()
            os.truncate(self.nodes[node].path, 0)


@apart("two-change-21-unseen | RFC 7530 10.3.1 | of the changes of a file by another 20 are seen")
class TwoChange21Unseen(_Knowing):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        seen = self.known.setdefault((node, offset, size), [])
        assert isinstance(seen, list)
        if data not in seen[-1:] and len(seen) < CHANGES:
            seen.append(data)
        last: bytes = seen[-1]
        return last

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known.clear()
        return super().write(call, node, handle, offset, data)
