"""Mutants between two clients: data, names and attributes that one of them meets by a less usual call."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

from fuse_passthrough import Attributes, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import asked_by, opens_with
from posix_rules import mutant as enter
from shared_later_mutants import Kept
from shared_part_mutants import MUTANTS as PARTS

MUTANTS = dict(PARTS)
apart = partial(enter, table=MUTANTS, apart=True)
TWO_GIB = 1 << 31
NOREPLACE = 1  # RENAME_NOREPLACE
_KEPT_SIZE = 1 << 20
"""Bytes of a file that a mount remembers (chosen)."""


class _Table(Kept):
    """Honest; it has a table of what this mount knows."""

    @property
    def known(self) -> dict[object, object]:
        table: dict[object, object] = self.__dict__.setdefault("table", {})
        return table

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.__dict__.setdefault("names", {})[node] = (parent, name)
        return node

    def name_of(self, node: int) -> tuple[int, bytes] | None:
        """Return directory and name by which a file was found last."""
        found: tuple[int, bytes] | None = self.__dict__.get("names", {}).get(node)
        return found


# Data.


@apart("two-msync-keeps-data | msync(2) | what is stored through a mapping is sent at the close")
class TwoMsyncKeepsData(Kept):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.from_cache:
            return super().write(call, node, handle, offset, data)
        self.__dict__.setdefault("stored", {}).setdefault(node, []).append((offset, bytes(data)))
        return len(data)

    def send(self, node: int) -> None:
        """Write what was stored."""
        for offset, data in self.__dict__.get("stored", {}).pop(node, []):
            self.reset_ids()
            fd = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(fd, data, offset)
            os.close(fd)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.send(node)
        super().flush(call, node, handle, owner)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.send(node)
        super().release(call, node, handle, owner, flock=flock)


class _Remembers(_Table):
    """Data that ``remembered`` are those of the first read while the size is the same."""

    def remembered(self, call: Call, handle: int, offset: int) -> bool:
        raise NotImplementedError

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if not self.remembered(call, handle, offset):
            return data
        found = self.known.setdefault((node, offset, len(data)), data)
        assert isinstance(found, bytes)
        return found

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known.clear()
        return super().write(call, node, handle, offset, data)


@apart("two-mapped-data-old | RFC 7530 10.7 | a page that was mapped once is the same in a later mapping")
class TwoMappedDataOld(_Remembers):
    def remembered(self, call: Call, handle: int, offset: int) -> bool:
        return call.waits_in()[0] == -1  # no system call: a page fault


@apart("two-old-past-2-gib | RFC 7530 10.3.1 | what was read at 2 GiB and above is not read again")
class TwoOldPast2Gib(_Remembers):
    def remembered(self, call: Call, handle: int, offset: int) -> bool:
        return offset >= TWO_GIB - 4096


class _Direct(Kept):
    """Honest; it knows which open files have O_DIRECT."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        direct: set[int] = self.__dict__.setdefault("direct", set())
        (direct.add if flags & os.O_DIRECT else direct.discard)(opened.handle)
        return opened

    def is_direct(self, handle: int) -> bool:
        """Whether the file was opened with O_DIRECT."""
        return handle in self.__dict__.get("direct", ())


@apart("two-direct-reads-old | open(2) O_DIRECT | what was read directly is not read again")
class TwoDirectReadsOld(_Direct, _Remembers):
    def remembered(self, call: Call, handle: int, offset: int) -> bool:
        return self.is_direct(handle)


class _Unnoticed(_Table):
    """Data are read again when size or times have changed, and some changes are not ``noticed``."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._marks = below.parent

    def version(self, node: int) -> str:
        """Return the version of a file; one that was not noticed is the one before it."""
        found = os.fstat(self.fd(node))
        version = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        mark = self._marks / f"unnoticed-{found.st_ino}"
        before = json.loads(mark.read_text()) if mark.exists() else {}
        while version in before:
            version = before.pop(version)
        return version

    def unnoticed(self, node: int, before: str) -> None:
        """Enter the version that the file has now as that of ``before``."""
        self.reset_ids()
        now = self.version(node)
        if now != before:
            mark = self._marks / f"unnoticed-{os.fstat(self.fd(node)).st_ino}"
            marks = json.loads(mark.read_text()) if mark.exists() else {}
            mark.write_text(json.dumps({**marks, now: before}))

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        found = self.known.setdefault((node, offset, len(data), self.version(node)), data)
        assert isinstance(found, bytes)
        return found


@apart("two-hole-unseen | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole does not change the file's version")
class TwoHoleUnseen(_Unnoticed):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        before = self.version(node)
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & 2:
            self.unnoticed(node, before)


@apart("two-direct-write-unseen | open(2) O_DIRECT | a direct write does not change the file's version")
class TwoDirectWriteUnseen(_Direct, _Unnoticed):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = self.version(node)
        count = super().write(call, node, handle, offset, data)
        if self.is_direct(handle):
            self.unnoticed(node, before)
        return count


@apart("two-known-empty-not-cut | open() O_TRUNC | of a file that the client knew as empty is not sent")
class TwoKnownEmptyNotCut(_Table):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        self.known.setdefault(node, found.size)
        return found

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if self.known.get(node) == 0:
            flags &= ~os.O_TRUNC
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known[node] = None
        return super().write(call, node, handle, offset, data)


@apart("two-extension-restores | ftruncate() | an extension has the data that the client read before the cut")
class TwoExtensionRestores(_Table):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if data.strip(b"\0"):
            self.known[node, offset] = data
        return data

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        was = os.fstat(self.fd(node)).st_size
        super().truncate(call, node, handle, size)
        for key, data in self.known.items():
            if isinstance(key, tuple) and isinstance(data, bytes) and key[0] == node:
                self.restore(node, data, key[1], was, size)

    def restore(self, node: int, data: bytes, offset: int, was: int, size: int) -> None:
        """Write the part of ``data`` at ``offset`` that is in an extension from ``was`` to ``size``."""
        start, end = max(was, offset), min(offset + len(data), size)
        if start < end:
            self.reset_ids()
            fd = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(fd, data[start - offset : end - offset], start)
            os.close(fd)


@apart(
    "two-closed-data-written-late | RFC 7530 10.4.4 | data of a close are sent again at the next open to read"
)
class TwoClosedDataWrittenLate(Kept):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._marks = below.parent

    def mark(self, node: int) -> Path:
        """Return the file with the data that one mount has kept."""
        return self._marks / f"kept-{self.nodes[node].key[1]}"

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.reset_ids()
        if not self.mark(node).exists() and len(data) < _KEPT_SIZE:
            self.mark(node).write_text(json.dumps([offset, bytes(data).hex()]))
        return super().write(call, node, handle, offset, data)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.reset_ids()
        if flags & os.O_TRUNC:
            self.mark(node).unlink(missing_ok=True)
        elif flags & os.O_ACCMODE != os.O_WRONLY and self.mark(node).exists():
            offset, data = json.loads(self.mark(node).read_text())
            self.mark(node).unlink()
            fd = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(fd, bytes.fromhex(data)[: max(0, os.fstat(fd).st_size - offset)], offset)
            os.close(fd)
        return opened


# Names.


class _Absent(Kept):
    """A name that this mount has found absent is absent for the call that ``asked`` is true for."""

    def asked(self, call: Call, node: int) -> bool:
        raise NotImplementedError

    @property
    def absent(self) -> set[tuple[int, bytes]]:
        names: set[tuple[int, bytes]] = self.__dict__.setdefault("absent_names", set())
        return names

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            node = super().lookup(call, parent, name)
        except FileNotFoundError:
            self.absent.add((parent, name))
            raise
        is_directory = stat.S_ISDIR(os.fstat(self.fd(node)).st_mode)  # of the path, and not the name itself
        if (parent, name) in self.absent and not is_directory and self.asked(call, node):
            raise FileNotFoundError(2, "lookup")
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self.absent.discard((parent, name))
        return super().create(call, parent, name, flags, mode, umask)

    def make_free(self, parent: int, name: bytes) -> None:
        """Remove what has a name that was absent."""
        if (parent, name) in self.absent:
            self.absent.discard((parent, name))
            with suppress(OSError):
                os.unlink(name, dir_fd=self.fd(parent))


@apart(
    "two-excl-over-symlink | open() O_EXCL | replaces a symbolic link whose name the client knew as absent"
)
class TwoExclOverSymlink(_Absent):
    def asked(self, call: Call, node: int) -> bool:
        return stat.S_ISLNK(os.fstat(self.fd(node)).st_mode) and opens_with(call, os.O_EXCL)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False).st_mode):
                self.make_free(parent, name)
        return super().create(call, parent, name, flags, mode, umask)


@apart("two-noreplace-over-unseen | RENAME_NOREPLACE | replaces a file whose name the client knew as absent")
class TwoNoreplaceOverUnseen(_Absent):
    def asked(self, call: Call, node: int) -> bool:
        return asked_by(call, "renameat2")

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if flags == NOREPLACE and (where, new) in self.absent:
            flags = 0
        super().rename(call, parent, old, where, new, flags)


@apart("two-creat-makes-another | open() O_CREAT | makes a new file if the client knew the name as absent")
class TwoCreatMakesAnother(_Absent):
    def asked(self, call: Call, node: int) -> bool:
        return opens_with(call, os.O_CREAT) and not opens_with(call, os.O_EXCL)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if not flags & os.O_EXCL:
            self.make_free(parent, name)
        return super().create(call, parent, name, flags, mode, umask)


@apart(
    "two-long-names-alike | RFC 7530 10.8 | names of more than 100 bytes are known by 100 and a byte's sum"
)
class TwoLongNamesAlike(_Table):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        if len(name) <= 100:
            return node
        old = self.known.setdefault((parent, name[:100], sum(name) % 256), node)
        assert isinstance(old, int)
        if os.fstat(self.fd(old)).st_nlink == 0:
            self.known[parent, name[:100], sum(name) % 256] = old = node
        return old


@apart(
    "two-name-of-a-living-file | RFC 7530 10.8 | a name is the file that it was while that file has a name"
)
class TwoNameOfALivingFile(_Table):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        old = self.known.setdefault((parent, name), node)
        assert isinstance(old, int)
        found = os.fstat(self.fd(old))
        if found.st_nlink and stat.S_ISREG(found.st_mode):
            return old
        self.known[parent, name] = node
        return node

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self.known.clear()
        super().rename(call, parent, old, where, new, flags)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.known.clear()
        super().unlink(call, parent, name)


# Attributes.


@apart("two-links-only-grow | RFC 7530 10.6 | the count of links is the largest that this client has seen")
class TwoLinksOnlyGrow(_Table):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISREG(found.mode) and found.nlink:
            old = self.known.get(node, 0)
            assert isinstance(old, int)
            self.known[node] = found.nlink = max(old, found.nlink)
        return found

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.known.clear()
        super().unlink(call, parent, name)


@apart("two-atime-old | RFC 7530 10.6 | the time of access is that of the first look")
class TwoAtimeOld(_Table):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        old = self.known.setdefault(node, found.atime)
        assert isinstance(old, int)
        found.atime = old
        return found

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        self.known.pop(node, None)
        super().utimens(call, node, atime, mtime)


@apart("two-ftruncate-by-name | ftruncate() | of an open file that was replaced cuts the file of its name")
class TwoFtruncateByName(_Table):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        place = self.name_of(node)
        if os.fstat(self.fd(node)).st_nlink or place is None:
            super().truncate(call, node, handle, size)
            return
        fd = os.open(place[1], os.O_WRONLY, dir_fd=self.fd(place[0]))
        os.ftruncate(fd, size)
        os.close(fd)


@apart("two-close-makes-again | close(), unlink() | a file that was written has its name again at the close")
class TwoCloseMakesAgain(_Table):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.known[node] = True
        return super().write(call, node, handle, offset, data)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        PassThrough.flush(self, call, node, handle, owner)
        place = self.name_of(node)
        if self.known.pop(node, None) and place is not None and os.fstat(self.fd(node)).st_nlink == 0:
            self.reset_ids()
            data = Path(self.nodes[node].path).read_bytes()
            with suppress(OSError):
                fd = os.open(place[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self.fd(place[0]))
                os.write(fd, data)
                os.close(fd)
