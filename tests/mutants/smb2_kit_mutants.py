"""Broken rules of compression, persistent handles and symbolic links, over the server of the test kit.

smbd offers none of the three, so these mutants have a kind of target of their own.
"""

import struct

from smb2_proxy_connection import (
    SmbProxyConnection,
    accepts,
    context_at,
    mutant,
    negotiate_context_at,
    other_status,
    put,
    requests,
    same,
    sets,
)

from storagetest.wire.smb2 import compression
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    Compression,
    ContextType,
    Flags,
    Fsctl,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage

KIT = "kit"
"""The kind of target: tests/kits/smb2_server.py."""

accepts("kit-accepts-negotiate", SmbCommand.NEGOTIATE, "3.3.5.4", kind=KIT)
accepts("kit-accepts-create", SmbCommand.CREATE, "3.3.5.9", kind=KIT)
other_status("kit-status-create", SmbCommand.CREATE, "3.3.5.9", kind=KIT)
mutant(
    "kit-close-hidden | MS-SMB2 3.3.5.2.1.2 | the connection stays open where it ends",
    kind=KIT,
    keeps_open=True,
)(same)
mutant(
    "kit-encryption-spoiled | MS-SMB2 3.1.4.3 | an encrypted response is not authentic",
    kind=KIT,
    encrypted=True,
)(same)

# Compression


def _in_context(row, at, value):
    """A mutant that sets two bytes of the compression context of a NEGOTIATE response."""

    @mutant(row, kind=KIT)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        where = negotiate_context_at(message, ContextType.COMPRESSION)
        return put(message.raw, where + at, struct.pack("<H", value)) if where else message.raw


_in_context(
    "compression-other | MS-SMB2 2.2.4.1.3 | the first algorithm was not offered", 8, int(Compression.LZ4)
)
_in_context("compression-chained-always | MS-SMB2 3.3.5.4 | chained compression is always chosen", 4, 1)


@mutant("compression-unasked | MS-SMB2 3.3.5.4 | a client without compression gets a context of it", kind=KIT)
def compression_unasked(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_it = message.command == SmbCommand.NEGOTIATE and not message.is_error and message["dialect"] == 0x0311
    if not is_it or negotiate_context_at(message, ContextType.COMPRESSION):
        return message.raw
    kind, data = c.compression([Compression.LZ77])
    added = bytes(-len(message.raw) % 8) + struct.pack("<HHI", kind, len(data), 0) + data
    return message.encoded().override(context_count=message["context_count"] + 1).data + added


def _frame(row, **how):
    mutant(row, kind=KIT, **how)(same)


_frame(
    "compressed-spoiled | MS-SMB2 3.3.5.2.1.2 | a compressed request is not what was sent",
    compressed_request=lambda data: data[:-1] + bytes([data[-1] ^ 1]),
)
_frame(
    "compressed-size-other | MS-SMB2 2.2.42 | a compressed response states another size",
    compressed=lambda data: put(data, 4, struct.pack("<I", int.from_bytes(data[4:8], "little") + 1)),
)
_frame(
    "compressed-cut | MS-SMB2 3.1.4.4 | a compressed response lacks its last byte",
    compressed=lambda data: data[:-1],
)
_frame(
    "compressed-never | MS-SMB2 3.1.4.4 | no response is compressed",
    compressed=lambda data: compression.decompress(data, tuple(Compression), chained=True, largest=1 << 24),
)
PATTERN_AT = 8 + 8 + 80 + 8
"""Where the kit's server has the repeated byte: behind the header, and a first payload of 80 bytes."""
_frame(
    "compressed-pattern-other | MS-SMB2 2.2.42.2.2 | a pattern is of another byte",
    compressed=lambda data: put(data, PATTERN_AT, bytes([data[PATTERN_AT] ^ 1])),
)

# Persistent handles


def _granted(row, change):
    """A mutant that changes the context of a durable handle in a response: ``change(raw, at)``."""

    @mutant(row, kind=KIT)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        at = context_at(message, b"DH2Q")
        return change(message.raw, at) if at else message.raw


_granted(
    "persistent-lost | MS-SMB2 3.3.5.9.10 | the response has no persistent handle",
    lambda raw, at: put(raw, at - 8, b"None"),
)
_granted(
    "persistent-flag-lost | MS-SMB2 2.2.14.2.12 | no handle is persistent",
    lambda raw, at: put(raw, at + 4, bytes(4)),
)
_granted(
    "persistent-timeout-zero | MS-SMB2 2.2.14.2.12 | the timeout of a persistent handle is 0",
    lambda raw, at: put(raw, at, bytes(4)),
)


def _reconnect(row, change):
    """A mutant that changes the context of a reconnect in a request: ``change(talk, data)``."""

    @requests(row, kind=KIT)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if at := context_at(message, b"DH2Q"):
            talk.shared["guid"] = message.raw[at + 16 : at + 32]
        at = context_at(message, b"DH2C")
        return put(message.raw, at, change(talk, message.raw[at : at + 36])) if at else message.raw


_reconnect(
    "persistent-refused | MS-SMB2 3.3.5.9.12 | no persistent handle is found at a reconnect",
    lambda _talk, data: b"\x77" * 32 + data[32:],
)
_reconnect(
    "persistent-guid-unknown | MS-SMB2 3.3.5.9.12 | a persistent handle is not found by its create GUID",
    lambda _talk, data: data[:16] + b"\x77" * 16 + data[32:],
)
_reconnect(
    "persistent-guid-not-compared | MS-SMB2 3.3.5.9.12 | a create GUID is not compared",
    lambda talk, data: data[:16] + talk.shared["guid"] + data[32:],
)
_reconnect(
    "persistent-flag-ignored | MS-SMB2 3.3.5.9.12 | a persistent handle is taken over without the flag",
    lambda _talk, data: data[:32] + struct.pack("<I", c.DURABLE_PERSISTENT),
)


@requests("persistent-replay-ignored | MS-SMB2 3.3.5.9.10 | the flag of a replay is ignored", kind=KIT)
def persistent_replay_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.encoded().override(header_flags=int(message.flags & ~Flags.REPLAY)).data


# Symbolic links


def _symlink(row, change):
    """A mutant that changes the error of a symbolic link: ``change(raw, at)``, ``at`` is its first byte."""

    @mutant(row, kind=KIT)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.status != SmbStatus.STOPPED_ON_SYMLINK:
            return message.raw
        return change(message.raw, 72 + (8 if message["context_count"] else 0))


def _flip(raw, at):
    return put(raw, at, bytes([raw[at] ^ 1]))


_symlink("symlink-length-other | MS-SMB2 2.2.2.2.1 | SymLinkLength is another", _flip)
_symlink(
    "symlink-tag-other | MS-SMB2 2.2.2.2.1 | SymLinkErrorTag is another", lambda raw, at: _flip(raw, at + 4)
)
_symlink(
    "symlink-unparsed-other | MS-SMB2 2.2.2.2.1 | UnparsedPathLength is another",
    lambda raw, at: put(raw, at + 14, bytes([raw[at + 14] ^ 2])),
)
_symlink(
    "symlink-name-other | MS-SMB2 2.2.2.2.1 | the link leads elsewhere", lambda raw, at: _flip(raw, at + 28)
)
_symlink(
    "symlink-form-other | MS-SMB2 2.2.2 | the error is in the form of another dialect",
    lambda raw, _at: _flip(raw, 66),
)
sets(
    "symlink-attribute-lost | MS-FSCC 2.6 | an open has not the attribute of a reparse point",
    SmbCommand.CREATE,
    kind=KIT,
    attributes=lambda message: message["attributes"] & ~SmbAttribute.REPARSE_POINT,
)


@mutant("reparse-data-other | MS-FSA 2.1.5.10.14 | FSCTL_GET_REPARSE_POINT returns other data", kind=KIT)
def reparse_data_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_it = message.command == SmbCommand.IOCTL and not message.status
    if not is_it or message["control_code"] != Fsctl.GET_REPARSE_POINT:
        return message.raw
    raw = message.raw
    for at in range(message["buffer_offset"] + 20, message["buffer_offset"] + message["buffer_length"], 2):
        raw = _flip(raw, at)
    return raw
