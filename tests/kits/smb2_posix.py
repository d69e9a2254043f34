"""The POSIX extensions of the kit's SMB server: contexts and classes of information."""

from __future__ import annotations

import struct

from smb2_store import Node

from storagetest.wire.smb2 import posix
from storagetest.wire.smb2.codes import FileInfo, FsInfo, InfoType

OWNERS = posix.encode_sid(21, 1000) + posix.encode_sid(21, 100)
BLOCKS, BLOCK = 1 << 20, 4096


def created(node: Node) -> bytes:
    """Return the create context of a response."""
    return struct.pack("<III", 1, 0, node.mode) + OWNERS


def info(node: Node) -> bytes:
    """Return FilePosixInformation of a file."""
    size = len(node.data)
    fixed = struct.pack("<32xQQIQIIIII", size, size, node.attributes, node.number, 1, 0, 1, 0, node.mode)
    return fixed + OWNERS


def listing(entries: list[tuple[str, Node]]) -> bytes:
    """Return FilePosixInformation of names and files."""
    out = b""
    for at, (name, node) in enumerate(entries):
        encoded = name.encode("utf-16-le")
        entry = info(node) + struct.pack("<I", len(encoded)) + encoded
        last = at + 1 == len(entries)
        entry += b"" if last else bytes(-(8 + len(entry)) % 8)
        out += struct.pack("<II", 0 if last else 8 + len(entry), 0) + entry
    return out


def classes(node: Node) -> dict[tuple[int, int], bytes]:
    """Return the classes of QUERY_INFO that the cases of the extensions compare."""
    system = struct.pack("<IIQQQQQQ", BLOCK, BLOCK, BLOCKS, BLOCKS // 2, BLOCKS // 2, 99, 9, 7)
    return {
        (InfoType.FILE, FileInfo.POSIX): info(node),
        (InfoType.FILESYSTEM, FsInfo.POSIX): system,
        (InfoType.FILESYSTEM, FsInfo.FULL_SIZE): struct.pack(
            "<QQQII", BLOCKS, BLOCKS // 2, BLOCKS // 2, BLOCK // 512, 512
        ),
    }


def found(children: dict[str, Node], name: str, *, exact: bool) -> str:
    """Return the name of a child; without ``exact``, one that differs in case is it, too."""
    if exact or name in children:
        return name
    return next((each for each in children if each.casefold() == name.casefold()), name)
