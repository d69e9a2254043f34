"""Broken rules of listings: a value of an entry is that of another entry, of an earlier look, or lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smb2_proxy_connection import SmbProxyConnection, mutant, put

from storagetest.wire.smb2.codes import RETURN_SINGLE_ENTRY, FileInfo, SmbAttribute, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

CREATED, ACCESSED, WRITTEN, CHANGED, ATTRIBUTES, EA_SIZE = 8, 16, 24, 32, 56, 64
"""Offsets in each entry of a listing, but in one of names; the first class has no EaSize (MS-FSCC 2.4)."""

FILE_ID = {FileInfo.ID_BOTH_DIRECTORY: 96, FileInfo.ID_FULL_DIRECTORY: 72}
"""Offset of FileId by class."""

NAME_LENGTH = 60
"""Offset of the length of the name."""

DIRECTORY = SmbAttribute.DIRECTORY

Entry = bytes
Change = Callable[[Entry, Entry, Any], Entry]
"""Takes an entry, the first file of the response, and what the connection keeps; returns the entry."""


def _is_special(entry: Entry) -> bool:
    """Whether an entry has the length of the name of the directory itself, or of its parent."""
    return int.from_bytes(entry[NAME_LENGTH : NAME_LENGTH + 4], "little") <= 4


def _split(data: bytes) -> list[Entry]:
    entries = []
    while data:
        step = int.from_bytes(data[:4], "little") or len(data)
        entries.append(data[:step])
        data = data[step:]
    return entries


def _entries(row: str, change: Callable[[int], Change | None], *, single: bool = False) -> None:
    """Register a mutant of entries; ``change`` of the class returns how they change, or None."""

    @mutant(row)
    def changed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if (
            message.command != SmbCommand.QUERY_DIRECTORY
            or message.is_error
            or message.status
            or asked is None
        ):
            return message.raw
        if asked["info_class"] == FileInfo.NAMES or (single and not asked["flags"] & RETURN_SINGLE_ENTRY):
            return message.raw
        of_class = change(asked["info_class"])
        entries = _split(message.buffer)
        files = [one for one in entries if not _is_special(one)]
        if of_class is None or not files:
            return message.raw
        kept = talk.shared.setdefault((asked["info_class"], asked["file_id"]), {})
        out = [one if _is_special(one) else of_class(one, files[0], kept) for one in entries]
        return put(message.raw, message["buffer_offset"], b"".join(out))


def _copies(at: int, size: int, source: int | None = None) -> Callable[[int], Change]:
    """Return a change: bytes of each entry are those of the first, or those at ``source`` of its own."""

    def change(entry: Entry, first: Entry, _kept: Any) -> Entry:
        start = at if source is None else source
        return put(entry, at, (first if source is None else entry)[start : start + size])

    return lambda _info_class: change


def _sticks(at: int, size: int) -> Change:
    """Return a change: bytes of an entry stay as they were at its first listing."""

    def change(entry: Entry, _first: Entry, kept: Any) -> Entry:
        key = at, int.from_bytes(entry[NAME_LENGTH : NAME_LENGTH + 4], "little")
        return put(entry, at, kept.setdefault(key, entry[at : at + size]))

    return change


def _without_id(at: int | None, change: Callable[[int], Change]) -> Change | None:
    return None if at is None else change(at)


def _of_directories(at: int, piece: bytes) -> Change:
    def change(entry: Entry, _first: Entry, _kept: Any) -> Entry:
        return put(entry, at, piece) if entry[ATTRIBUTES] & DIRECTORY else entry

    return change


def _masked(clear: int) -> Change:
    def change(entry: Entry, _first: Entry, _kept: Any) -> Entry:
        return put(entry, ATTRIBUTES, bytes([entry[ATTRIBUTES] & ~clear]))

    return change


_entries(
    "listed-created-written | MS-FSCC 2.4 | CreationTime of an entry is its LastWriteTime",
    _copies(CREATED, 8, WRITTEN),
)
_entries(
    "listed-accessed-written | MS-FSCC 2.4 | LastAccessTime of an entry is its LastWriteTime",
    _copies(ACCESSED, 8, WRITTEN),
)
_entries(
    "listed-changed-of-first | MS-FSCC 2.4 | ChangeTime of every entry is that of the first",
    _copies(CHANGED, 8),
)
_entries(
    "listed-times-of-directory | MS-FSCC 2.4 | CreationTime of a directory in a listing is 0",
    lambda _class: _of_directories(CREATED, bytes(8)),
)
_entries(
    "listed-id-of-first | MS-FSCC 2.4 | FileId of every entry of a response is that of the first",
    lambda one: _without_id(FILE_ID.get(FileInfo(one)), lambda at: _copies(at, 8)(one)),
)
_entries(
    "listed-id-32 | MS-FSCC 2.4 | FileId of an entry has its halves swapped",
    lambda one: _without_id(
        FILE_ID.get(FileInfo(one)),
        lambda at: lambda entry, _first, _kept: put(entry, at, entry[at + 4 : at + 8] + entry[at : at + 4]),
    ),
)
_entries(
    "listed-id-directory | MS-FSCC 2.4 | FileId of a directory in a listing is that of no file",
    lambda one: _without_id(FILE_ID.get(FileInfo(one)), lambda at: _of_directories(at, b"\x77" * 8)),
)
_entries(
    "listed-attributes-lost | MS-FSCC 2.6 | an entry has neither HIDDEN nor READONLY",
    lambda _class: _masked(SmbAttribute.HIDDEN | SmbAttribute.READONLY),
)
_entries(
    "listed-system-lost | MS-FSCC 2.6 | an entry does not have SYSTEM",
    lambda _class: _masked(SmbAttribute.SYSTEM),
)
_entries(
    "listed-ea-zero | MS-FSCC 2.4 | EaSize of an entry is 0",
    lambda one: (
        None if one == FileInfo.DIRECTORY else lambda entry, _first, _kept: put(entry, EA_SIZE, bytes(4))
    ),
)
_entries(
    "listed-ea-of-first | MS-FSCC 2.4 | EaSize of every entry is that of the first",
    lambda one: None if one == FileInfo.DIRECTORY else _copies(EA_SIZE, 4)(one),
)
_entries(
    "listed-single-times | MS-FSA 2.1.5.6.3 | LastWriteTime of an entry that comes alone is its CreationTime",
    _copies(WRITTEN, 8, CREATED),
    single=True,
)
_entries(
    "listed-stale-times | MS-FSA 2.1.5.6.3 | CreationTime of an entry is that of its first listing",
    lambda _class: _sticks(CREATED, 8),
)
_entries(
    "listed-stale-attributes | MS-FSA 2.1.5.6.3 | attributes of an entry are those of its first listing",
    lambda _class: _sticks(ATTRIBUTES, 4),
)
_entries(
    "listed-stale-id | MS-FSA 2.1.5.6.3 | FileId of an entry is that of its first listing",
    lambda one: _without_id(FILE_ID.get(FileInfo(one)), lambda at: _sticks(at, 8)),
)
