"""POSIX extensions of SMB 3.1.1: contexts of NEGOTIATE and CREATE, and the classes of information 100.

POSIX-SMB2 and POSIX-FSCC are the SMB3 POSIX Extensions Specification. A client asks for the extensions in
NEGOTIATE; each CREATE with the context of the same GUID has POSIX names and states the mode of a new file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import ContextType
from storagetest.wire.smb2.contexts import CreateContext, NegotiateContext

GUID = bytes.fromhex("93ad25509cb411e7b42383de968bcd7c")
"""Name of the create context, and data of the negotiate context (POSIX-SMB2 2.2.3.1.8)."""

PERMISSIONS = 0o7777
"""The bits of a mode that are not the type of the file (POSIX-FSCC 2.1.1)."""

_CREATED = struct.Struct("<III")
_INFO = struct.Struct("<QQQQQQIQIIIII")
_FS = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True, slots=True)
class PosixCreated:
    """The create context of a response: links, reparse tag, mode, and SIDs of owner and group."""

    links: int
    reparse_tag: int
    mode: int
    owner: bytes
    group: bytes


@dataclass(frozen=True, slots=True)
class PosixInfo:
    """FilePosixInformation: size and allocation in bytes; ``name`` is "" except in a listing."""

    size: int
    allocated: int
    attributes: int
    inode: int
    device: int
    links: int
    reparse_tag: int
    mode: int
    owner: bytes
    group: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class PosixFs:
    """FileFsPosixInformation: block size in bytes, counts of blocks and of files."""

    transfer_size: int
    block_size: int
    blocks: int
    free: int
    available: int
    files: int
    free_files: int
    identifier: int


def available(guid: bytes = GUID) -> NegotiateContext:
    """Return the context that asks for the extensions (POSIX-SMB2 2.2.3.1.8)."""
    return ContextType.POSIX, guid


def create(mode: int, *, name: bytes = GUID) -> CreateContext:
    """Return the create context with the mode of a new file."""
    return name, struct.pack("<I", mode)


def decode_created(data: bytes) -> PosixCreated:
    """Read the create context of a response. Raises RemoteProtocolError if it is not whole."""
    if len(data) < _CREATED.size:
        raise _cut("a POSIX create context", data)
    owner, group, end = _owners(data, _CREATED.size)
    if end != len(data):
        raise RemoteProtocolError(
            f"SMB2: {len(data) - end} bytes behind a POSIX create context: {hex_short(data)}"
        )
    links, tag, mode = _CREATED.unpack_from(data)
    return PosixCreated(links, tag, mode, owner, group)


def decode_info(data: bytes) -> PosixInfo:
    """Read FilePosixInformation of QUERY_INFO. Raises RemoteProtocolError if it is not whole."""
    return _info(data)[0]


def decode_listing(data: bytes) -> list[PosixInfo]:
    """Read FilePosixInformation of QUERY_DIRECTORY. Raises RemoteProtocolError if an entry is not whole."""
    return list(_entries(data))


def decode_fs(data: bytes) -> PosixFs:
    """Read FileFsPosixInformation. Raises RemoteProtocolError if its size is another."""
    if len(data) != _FS.size:
        raise _cut("FileFsPosixInformation", data)
    return PosixFs(*_FS.unpack(data))


def encode_sid(*authorities: int) -> bytes:
    """Return a SID of the NT authority (MS-DTYP 2.4.2.2)."""
    return struct.pack("<BB6s", 1, len(authorities), b"\0\0\0\0\0\x05") + b"".join(
        struct.pack("<I", each) for each in authorities
    )


def _entries(data: bytes) -> Iterator[PosixInfo]:
    while data:
        if len(data) < 8:
            raise _cut("an entry of a POSIX listing", data)
        step = int.from_bytes(data[:4], "little")
        if step > len(data) or step % 8:
            raise RemoteProtocolError(
                f"SMB2: the next entry of a POSIX listing is {step} bytes on, of {len(data)}: "
                f"{hex_short(data)}"
            )
        entry = data[8 : step or len(data)]
        found, end = _info(entry)
        length = int.from_bytes(entry[end : end + 4], "little")
        name = entry[end + 4 : end + 4 + length]
        if len(entry) < end + 4 or len(name) < length:
            raise _cut("a name of a POSIX listing", data)
        yield replace(found, name=name.decode("utf-16-le", "replace"))
        data = data[step:] if step else b""


def _info(data: bytes) -> tuple[PosixInfo, int]:
    """Return the information at the start of ``data``, and the place behind it."""
    if len(data) < _INFO.size:
        raise _cut("FilePosixInformation", data)
    _, _, _, _, size, allocated, attributes, inode, device, _, links, tag, mode = _INFO.unpack_from(data)
    owner, group, end = _owners(data, _INFO.size)
    return PosixInfo(size, allocated, attributes, inode, device, links, tag, mode, owner, group), end


def _owners(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return the SIDs of owner and group at ``at``, and the place behind them."""
    sids = []
    for _ in range(2):
        if at + 8 > len(data) or at + 8 + 4 * data[at + 1] > len(data):
            raise _cut("a SID of a file's owner", data)
        sids.append(data[at : at + 8 + 4 * data[at + 1]])
        at += len(sids[-1])
    return sids[0], sids[1], at


def _cut(what: str, data: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"SMB2: {what} is not whole (POSIX-FSCC): {len(data)} bytes: {hex_short(data)}"
    )
