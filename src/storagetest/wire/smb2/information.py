"""Structures of MS-FSCC: directory entries, change notifications, sizes of information classes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import FileInfo, FsInfo, SmbAttribute

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


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One entry of a listing; ``size`` and ``attributes`` are 0 in a listing of names."""

    name: str
    size: int
    attributes: int

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
        if name_at + length > end or step > len(data) or step % 8 or (0 < step < name_at):
            raise RemoteProtocolError(
                f"SMB2: a directory entry is not within its {end} bytes, or not at a multiple of 8 "
                f"(MS-FSCC 2.4): {hex_short(data)}"
            )
        name = data[name_at : name_at + length].decode("utf-16-le", "replace")
        size = attributes = 0
        if info_class != FileInfo.NAMES:
            size, _, attributes = struct.unpack_from("<QQI", data, 40)
        entries.append(DirectoryEntry(name, size, attributes))
        data = data[step:] if step else b""
    return entries


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
