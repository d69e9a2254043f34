"""State of the small pNFS server: its fault, files, clients and the call that is executed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storagetest.wire.nfs4.types import nfs_ftype4, nfsstat4, stateid4

BLOCK = 4096


@dataclass
class Fault:
    """The rule that a server breaks; "" for none. ``acted``: whether it came to that."""

    name: str = ""
    acted: bool = False


class Refused(Exception):  # a status, not an error
    """The operation ends with this status, and with ``value`` if the status has an arm of its own."""

    def __init__(self, status: nfsstat4, value: Any = None) -> None:
        super().__init__(status.name)
        self.status, self.value = status, value


@dataclass(eq=False)
class Node:
    """A file or a directory. ``written`` are the blocks that have data; the others are holes."""

    handle: bytes
    kind: nfs_ftype4
    entries: dict[bytes, Node] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    written: set[int] = field(default_factory=set)
    modified: int = field(default_factory=time.time_ns)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes, and extend the file if it is shorter."""
        end = offset + len(data)
        self.resize(max(end, len(self.data)))
        self.data[offset:end] = data
        self.written |= set(range(offset // BLOCK, -(-end // BLOCK)))

    def resize(self, size: int) -> None:
        """Truncate the file, or extend it by zeros."""
        self.modified = max(time.time_ns(), self.modified + 1)
        if size < len(self.data):
            del self.data[size:]
            self.written = {one for one in self.written if one * BLOCK < size}
        self.data.extend(bytes(size - len(self.data)))


@dataclass(eq=False)
class Client:
    """A client, and the session with its back channel."""

    number: int
    session: Session | None = None


@dataclass
class Session:
    """A session: its back channel is the connection ``link``."""

    name: bytes
    client: Client
    link: Any
    cb_program: int
    minor: int
    cb_sequence: int = 0


@dataclass
class Call:
    """A COMPOUND that is executed: the current filehandle and stateid, and what is sent after the reply."""

    link: Any
    minor: int
    arranges: bool
    session: Session | None = None
    current: Node | None = None
    saved: Node | None = None
    stateid: stateid4 | None = None
    later: list[Callable[[], None]] = field(default_factory=list)

    @property
    def node(self) -> Node:
        """The current filehandle. Raises Refused without one."""
        if self.current is None:
            raise Refused(nfsstat4.NFS4ERR_NOFILEHANDLE)
        return self.current

    @property
    def client(self) -> Client:
        """The client of the session."""
        assert self.session is not None
        return self.session.client


@dataclass
class Held:
    """The layout of a client on a file: its stateid, and the ranges by iomode, in blocks.

    ``recall`` is the range of blocks of a recall that is not complete, ``recalled`` the time of it.
    """

    client: Client
    node: Node
    other: bytes
    kind: int
    seqid: int = 0
    blocks: dict[int, set[int]] = field(default_factory=lambda: {1: set(), 2: set()})
    recall: tuple[int, int] | None = None
    recalled: float = 0.0

    @property
    def stateid(self) -> stateid4:
        """The stateid."""
        return stateid4(self.seqid, self.other)

    @property
    def is_empty(self) -> bool:
        """Whether no range is left."""
        return not any(self.blocks.values())
