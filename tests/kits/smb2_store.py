"""The files and opens of the kit's SMB server, in memory."""

from __future__ import annotations

import itertools
import os
import struct
import threading
from dataclasses import dataclass, field

from storagetest.wire.smb2.codes import SmbAttribute

ids = itertools.count(1)
"""Numbers of files, opens, sessions and trees."""


@dataclass
class Node:
    """A file, or a directory if it has ``children``, or a symbolic link if it has ``link`` (reparse data)."""

    data: bytearray = field(default_factory=bytearray)
    children: dict[str, Node] | None = None
    link: bytes = b""
    number: int = field(default_factory=lambda: next(ids))
    mode: int = 0o644

    @property
    def attributes(self) -> int:
        kind = SmbAttribute.ARCHIVE if self.children is None else SmbAttribute.DIRECTORY
        return int(kind | (SmbAttribute.REPARSE_POINT if self.link else 0))


@dataclass
class Open:
    """An open of ``node``, which is ``name`` in ``parent``."""

    node: Node
    parent: Node
    name: str
    connection: object | None
    file_id: bytes = field(default_factory=lambda: struct.pack("<QQ", number := next(ids), number))
    guid: bytes = b""
    persistent: bool = False
    deletes: bool = False
    listed: bool = False
    lost_at: float = 0.0


@dataclass
class Store:
    """The share, and every open of it."""

    root: Node = field(default_factory=lambda: Node(children={}))
    opens: dict[bytes, Open] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    guid: bytes = field(default_factory=lambda: os.urandom(16))


def listing(entries: list[tuple[str, Node]]) -> bytes:
    """Return FileIdBothDirectoryInformation of names and files (MS-FSCC 2.4.21)."""
    out = b""
    for at, (name, node) in enumerate(entries):
        encoded = name.encode("utf-16-le")
        entry = struct.pack("<32xQQII", len(node.data), len(node.data), node.attributes, len(encoded))
        entry += struct.pack("<32xQ", node.number) + encoded
        last = at + 1 == len(entries)
        entry += b"" if last else bytes(-(8 + len(entry)) % 8)
        out += struct.pack("<II", 0 if last else 8 + len(entry), 0) + entry
    return out
