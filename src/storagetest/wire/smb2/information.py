"""Structures of MS-FSCC: directory entries, changes, links, extended attributes, sizes of classes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import Dialect, FileInfo, FsInfo, SmbAttribute
from storagetest.wire.smb2.message import SmbMessage

FIXED_SIZES: Mapping[FileInfo, int] = {
    FileInfo.BASIC: 40,
    FileInfo.STANDARD: 24,
    FileInfo.INTERNAL: 8,
    FileInfo.EA: 4,
    FileInfo.ACCESS: 4,
    FileInfo.POSITION: 8,
    FileInfo.MODE: 4,
    FileInfo.ALIGNMENT: 4,
    FileInfo.NETWORK_OPEN: 56,
    FileInfo.ATTRIBUTE_TAG: 8,
}
"""Bytes of the classes of fixed size (MS-FSCC 2.4)."""

FS_SIZES: Mapping[FsInfo, int] = {FsInfo.SIZE: 24, FsInfo.FULL_SIZE: 32, FsInfo.DEVICE: 8}
"""Bytes of the classes of fixed size (MS-FSCC 2.5)."""

_NAME_AT: Mapping[FileInfo, tuple[int, int]] = {
    FileInfo.DIRECTORY: (60, 64),
    FileInfo.FULL_DIRECTORY: (60, 68),
    FileInfo.BOTH_DIRECTORY: (60, 94),
    FileInfo.NAMES: (8, 12),
    FileInfo.ID_BOTH_DIRECTORY: (60, 104),
    FileInfo.ID_FULL_DIRECTORY: (60, 80),
}
"""Offsets of FileNameLength and FileName by class (MS-FSCC 2.4)."""

_FILE_ID_AT: Mapping[int, int] = {FileInfo.ID_BOTH_DIRECTORY: 96, FileInfo.ID_FULL_DIRECTORY: 72}
"""Offset of FileId, by the classes that have one (MS-FSCC 2.4)."""

_EA_SIZE_AT = 64
"""Offset of EaSize; FileDirectoryInformation and FileNamesInformation have none (MS-FSCC 2.4)."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One entry of a listing; what its class does not have is 0: all but the name in a listing of names.

    ``times`` are those of creation, last access, last write and change.
    """

    name: str
    size: int
    attributes: int
    times: tuple[int, ...] = (0, 0, 0, 0)
    allocated: int = 0
    ea_size: int = 0
    file_id: int = 0

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return bool(self.attributes & SmbAttribute.DIRECTORY)

    @property
    def is_reparse_point(self) -> bool:
        """Whether it is a reparse point, as a symbolic link is."""
        return bool(self.attributes & SmbAttribute.REPARSE_POINT)


def directory_entries(data: bytes, info_class: int = FileInfo.ID_BOTH_DIRECTORY) -> list[DirectoryEntry]:
    """Read a listing. Raises :class:`RemoteProtocolError` if an entry is not within it."""
    length_at, name_at = _NAME_AT[FileInfo(info_class)]
    entries: list[DirectoryEntry] = []
    while data:
        step = int.from_bytes(data[:4], "little")
        length = int.from_bytes(data[length_at : length_at + 4], "little")
        end = step or len(data)
        if name_at + length > end or 0 < len(data) <= step or step % 8 or (0 < step < name_at):
            raise RemoteProtocolError(
                f"SMB2: a directory entry is not within its {end} bytes, or not at a multiple of 8 "
                f"(MS-FSCC 2.4): {hex_short(data)}"
            )
        name = data[name_at : name_at + length].decode("utf-16-le", "replace")
        entries.append(_entry(name, data, info_class))
        data = data[step:] if step else b""
    return entries


def _entry(name: str, data: bytes, info_class: int) -> DirectoryEntry:
    """Read the fixed part of an entry."""
    if info_class == FileInfo.NAMES:
        return DirectoryEntry(name, 0, 0)
    *times, size, allocated, attributes = struct.unpack_from("<6QI", data, 8)
    ea_size = file_id = 0
    if info_class != FileInfo.DIRECTORY:
        (ea_size,) = struct.unpack_from("<I", data, _EA_SIZE_AT)
    if at := _FILE_ID_AT.get(info_class):
        (file_id,) = struct.unpack_from("<Q", data, at)
    return DirectoryEntry(name, size, attributes, tuple(times), allocated, ea_size, file_id)


def notifications(data: bytes) -> list[tuple[int, str]]:
    """Read FILE_NOTIFY_INFORMATION (MS-FSCC 2.7.1): action and name of each change."""
    found = []
    while data:
        if len(data) < 12:
            raise RemoteProtocolError(
                f"SMB2: {len(data)} bytes of a change (MS-FSCC 2.7.1): {hex_short(data)}"
            )
        step, action, length = struct.unpack_from("<III", data)
        if 12 + length > len(data) or step > len(data) or 0 < step < 12:
            raise RemoteProtocolError(f"SMB2: a change is not whole (MS-FSCC 2.7.1): {hex_short(data)}")
        found.append((action, data[12 : 12 + length].decode("utf-16-le", "replace")))
        data = data[step:] if step else b""
    return found


SYMLINK_TAG = 0xA000000C
"""The reparse tag of symbolic links (MS-FSCC 2.1.2.1)."""


def symlink(target: str, *, relative: bool = True) -> bytes:
    """Return the reparse data of a symbolic link to ``target`` (MS-FSCC 2.1.2.4)."""
    name = target.encode("utf-16-le")
    body = struct.pack("<HHHHI", 0, len(name), len(name), len(name), relative) + name + name
    return struct.pack("<IHH", SYMLINK_TAG, len(body), 0) + body


@dataclass(frozen=True, slots=True)
class SymlinkError:
    """The error of an open that met a symbolic link (MS-SMB2 2.2.2.2.1); ``size`` is its own."""

    size: int
    length: int
    error_tag: int
    reparse_tag: int
    unparsed: int
    substitute: str
    relative: bool


def decode_symlink_error(message: SmbMessage, dialect: int) -> SymlinkError:
    """Read the error of a symbolic link; in dialect 3.1.1 it is in an error context (MS-SMB2 2.2.2.1).

    Raises :class:`RemoteProtocolError`.
    """
    data, count = message.buffer, int(message["context_count"])
    if dialect == Dialect.SMB_3_1_1:
        length = int.from_bytes(data[:4], "little")
        if count != 1 or len(data) < 8 + length:
            raise RemoteProtocolError(
                f"SMB2: the error of a symbolic link is not in one error context (2.2.2.1): {hex_short(data)}"
            )
        data = data[8 : 8 + length]
    elif count:
        raise RemoteProtocolError(f"SMB2: {count} error contexts in dialect {dialect:#x} (2.2.2)")
    if len(data) < 28:
        raise RemoteProtocolError(
            f"SMB2: {len(data)} bytes of a symbolic link (2.2.2.2.1): {hex_short(data)}"
        )
    length, tag, reparse, _, unparsed, at, size, _, _, flags = struct.unpack_from("<IIIHHHHHHI", data)
    name = data[28 + at : 28 + at + size]
    if len(name) < size:
        raise RemoteProtocolError(f"SMB2: the name of a link is not whole (2.2.2.2.1): {hex_short(data)}")
    text = name.decode("utf-16-le", "replace")
    return SymlinkError(len(data), length, tag, reparse, unparsed, text, bool(flags & 1))


def attribute_list(attributes: Iterable[tuple[str, bytes]]) -> bytes:
    """Return FILE_FULL_EA_INFORMATION of names and values (MS-FSCC 2.4.15)."""
    return _linked(
        struct.pack("<BBH", 0, len(name), len(value)) + name.encode("ascii") + b"\0" + value
        for name, value in attributes
    )


def attribute_names(names: Iterable[str]) -> bytes:
    """Return FILE_GET_EA_INFORMATION of names (MS-FSCC 2.4.15.1)."""
    return _linked(bytes([len(name)]) + name.encode("ascii") + b"\0" for name in names)


def _linked(entries: Iterable[bytes]) -> bytes:
    """Return entries, each behind the offset of the next one, which is a multiple of 4."""
    every = list(entries)
    out = b""
    for number, entry in enumerate(every):
        last = number + 1 == len(every)
        padded = entry + (b"" if last else bytes(-len(entry) % 4))
        out += struct.pack("<I", 0 if last else 4 + len(padded)) + padded
    return out


def attributes_of(data: bytes) -> dict[str, bytes]:
    """Read FILE_FULL_EA_INFORMATION. Raises :class:`RemoteProtocolError` if an entry is not whole."""
    found: dict[str, bytes] = {}
    while data:
        step = int.from_bytes(data[:4], "little")
        length, size = (data[5], data[6] | data[7] << 8) if len(data) > 8 else (len(data), 0)
        if 9 + length + size > (step or len(data)) or step > len(data) or step % 4:
            raise RemoteProtocolError(
                f"SMB2: an extended attribute is not whole, or not at a multiple of 4 (MS-FSCC 2.4.15): "
                f"{hex_short(data)}"
            )
        name = data[8 : 8 + length].decode("ascii", "replace")
        found[name] = data[9 + length : 9 + length + size]
        data = data[step:] if step else b""
    return found
