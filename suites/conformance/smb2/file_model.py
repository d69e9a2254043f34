"""A model of files in one directory, and of their opens and byte-range locks: pure (MS-FSA 2.1.5).

It states what a request has to return, and :class:`FileModel` changes only where that request succeeds. What
the standard leaves to the object store is not in it: times, allocation sizes, the order of a listing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storagetest.wire.smb2.codes import Access, Action, Disposition, SmbAttribute, SmbStatus

KINDS = SmbAttribute.HIDDEN | SmbAttribute.SYSTEM
"""The attributes that an overwrite has to name (MS-FSA 2.1.5.1.2)."""

REPLACES = (Disposition.SUPERSEDE, Disposition.OVERWRITE, Disposition.OVERWRITE_IF)
"""The dispositions that empty a file."""

_ACTIONS = {
    Disposition.SUPERSEDE: Action.SUPERSEDED,
    Disposition.OVERWRITE: Action.OVERWRITTEN,
    Disposition.OVERWRITE_IF: Action.OVERWRITTEN,
}


@dataclass(frozen=True, slots=True)
class ModelLock:
    """A byte-range lock from ``start`` to before ``end``."""

    start: int
    end: int
    exclusive: bool

    def overlaps(self, start: int, end: int) -> bool:
        """Whether it has a byte of a range."""
        return self.start < end and start < self.end


@dataclass(eq=False)
class ModelFile:
    """A file. ``kinds`` are its attributes of KINDS; ``deleted`` is that it is to be deleted.

    ``number`` is the IndexNumber that the server has stated first.
    """

    names: set[str]
    data: bytearray = field(default_factory=bytearray)
    kinds: int = 0
    deleted: bool = False
    opens: list[ModelOpen] = field(default_factory=list)
    number: int | None = None

    @property
    def links(self) -> int:
        """NumberOfLinks, in which a name that is to be deleted does not count (MS-FSA 2.1.5.12.27)."""
        return len(self.names) - self.deleted

    def write(self, offset: int, data: bytes) -> None:
        """Put ``data``; a gap before it is of zeroes."""
        if data:
            self.data.extend(bytes(max(0, offset - len(self.data))))
            self.data[offset : offset + len(data)] = data

    def resize(self, size: int) -> None:
        """Set the size."""
        self.data[:] = self.data[:size].ljust(size, b"\0")


@dataclass(eq=False)
class ModelOpen:
    """An open of a file by ``name``."""

    file: ModelFile
    name: str
    access: int
    deletes: bool = False
    """Whether it has FILE_DELETE_ON_CLOSE."""
    locks: list[ModelLock] = field(default_factory=list)

    def allows(self, access: int) -> bool:
        """Whether it was granted all of ``access``."""
        return self.access & access == access

    def conflicts(self, start: int, end: int, *, exclusive: bool, locks: bool = False) -> bool:
        """Whether a lock denies an access to a range (MS-FSA 2.1.4.10); ``locks``: it is a lock itself."""
        for other in self.file.opens:
            for lock in other.locks:
                if not lock.overlaps(start, end):
                    continue
                if lock.exclusive:
                    if other is not self or (exclusive and locks):
                        return True
                elif exclusive:
                    return True
        return False

    def read(self, offset: int, length: int, minimum: int = 0) -> tuple[SmbStatus, bytes]:
        """Return what a READ of at least one byte returns (MS-SMB2 3.3.5.12, MS-FSA 2.1.5.3)."""
        if not self.allows(Access.READ_DATA):
            return SmbStatus.ACCESS_DENIED, b""
        if self.conflicts(offset, offset + length, exclusive=False):
            return SmbStatus.FILE_LOCK_CONFLICT, b""
        data = bytes(self.file.data[offset : offset + length])
        if not data or len(data) < minimum:
            return SmbStatus.END_OF_FILE, b""
        return SmbStatus.SUCCESS, data

    def write_status(self, offset: int, length: int) -> SmbStatus:
        """Return the status of a WRITE (MS-SMB2 3.3.5.13, MS-FSA 2.1.5.4)."""
        if not self.allows(Access.WRITE_DATA):
            return SmbStatus.ACCESS_DENIED
        if length and self.conflicts(offset, offset + length, exclusive=True):
            return SmbStatus.FILE_LOCK_CONFLICT
        return SmbStatus.SUCCESS

    def lock(self, elements: list[ModelLock]) -> SmbStatus:
        """Take all of ``elements``, or none (MS-SMB2 3.3.5.14.2)."""
        held = list(self.locks)
        for one in elements:
            if self.conflicts(one.start, one.end, exclusive=one.exclusive, locks=True):
                self.locks = held
                return SmbStatus.LOCK_NOT_GRANTED
            self.locks.append(one)
        return SmbStatus.SUCCESS

    def unlock(self, ranges: list[tuple[int, int]]) -> SmbStatus:
        """Free ranges until one is not locked; those before it stay free (MS-SMB2 3.3.5.14.1)."""
        for start, end in ranges:
            found = [one for one in self.locks if (one.start, one.end) == (start, end)]
            if not found:
                return SmbStatus.RANGE_NOT_LOCKED
            self.locks.remove(next((one for one in found if one.exclusive), found[-1]))
        return SmbStatus.SUCCESS


@dataclass
class FileModel:
    """The files of a directory by their names."""

    names: dict[str, ModelFile] = field(default_factory=dict)

    def create_status(self, name: str, disposition: Disposition, kinds: int) -> SmbStatus:
        """Return the status of a CREATE of a file that shares all (MS-FSA 2.1.5.1)."""
        file = self.names.get(name)
        if file is None:
            absent = disposition in (Disposition.OPEN, Disposition.OVERWRITE)
            return SmbStatus.OBJECT_NAME_NOT_FOUND if absent else SmbStatus.SUCCESS
        if file.deleted:
            return SmbStatus.DELETE_PENDING
        if disposition == Disposition.CREATE:
            return SmbStatus.OBJECT_NAME_COLLISION
        if disposition in REPLACES and file.kinds & ~kinds:
            return SmbStatus.ACCESS_DENIED
        return SmbStatus.SUCCESS

    def create(
        self, name: str, disposition: Disposition, kinds: int, access: int, *, deletes: bool = False
    ) -> tuple[ModelOpen, Action]:
        """Make a CREATE that succeeds; return the open, and what was done."""
        file = self.names.get(name)
        action = Action.CREATED if file is None else _ACTIONS.get(disposition, Action.OPENED)
        if file is None:
            file = self.names[name] = ModelFile({name}, kinds=kinds)
        elif disposition in REPLACES:
            file.data.clear()
            file.kinds = kinds
        file.opens.append(ModelOpen(file, name, access, deletes))
        return file.opens[-1], action

    def close(self, opened: ModelOpen) -> None:
        """Close an open; the last close of a file that is to be deleted deletes it (MS-FSA 2.1.5.5)."""
        file = opened.file
        file.opens.remove(opened)
        file.deleted = file.deleted or opened.deletes
        if file.deleted and not file.opens:
            for name in file.names:
                del self.names[name]
            file.names = set()

    def rename_status(self, opened: ModelOpen, name: str, *, replace: bool) -> SmbStatus:
        """Return the status of a rename to another name (MS-FSA 2.1.5.15.11)."""
        target = self.names.get(name)
        if not opened.allows(Access.DELETE):
            return SmbStatus.ACCESS_DENIED
        if target is None:
            return SmbStatus.SUCCESS
        if not replace:
            return SmbStatus.OBJECT_NAME_COLLISION
        return SmbStatus.ACCESS_DENIED if target.opens else SmbStatus.SUCCESS

    def rename(self, opened: ModelOpen, name: str) -> None:
        """Rename the link of an open; what had the name before has it no more."""
        self._unlink(name)
        old, file = opened.name, opened.file
        del self.names[old]
        file.names = file.names - {old} | {name}
        self.names[name] = file
        for each in file.opens:
            each.name = name if each.name == old else each.name

    def link(self, opened: ModelOpen, name: str) -> None:
        """Give a file another name."""
        self._unlink(name)
        opened.file.names.add(name)
        self.names[name] = opened.file

    def _unlink(self, name: str) -> None:
        target = self.names.pop(name, None)
        if target is not None:
            target.names.discard(name)
