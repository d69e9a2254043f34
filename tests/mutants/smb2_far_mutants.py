"""Broken rules of SMB that act in a file over 4 GiB: a size or an offset has 32 bits."""

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, mutant, put, requests, sets

from storagetest.wire.smb2.codes import FileInfo, Fsctl, InfoType, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

BITS_32 = 0xFFFF_FFFF


def low(data: bytes, at: int) -> bytes:
    """Return ``data`` with the low 32 bits of the eight bytes at ``at``."""
    return put(data, at + 4, bytes(4)) if len(data) >= at + 8 else data


def _end_of_file(message: SmbMessage) -> int:
    return int(message["end_of_file"]) & BITS_32


sets(
    "open-size-32 | MS-SMB2 2.2.14 | EndOfFile of CREATE has 32 bits",
    SmbCommand.CREATE,
    end_of_file=_end_of_file,
)


@mutant("listing-size-32 | MS-FSCC 2.4 | EndOfFile of a listing has 32 bits")
def listing_size_32(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.QUERY_DIRECTORY or message.status or asked is None:
        return message.raw
    if asked["info_class"] == FileInfo.NAMES:
        return message.raw
    out, at = message.raw, int(message["buffer_offset"])
    while True:
        out = low(out, at + 40)
        step = int.from_bytes(out[at : at + 4], "little")
        if not step:
            return out
        at += step


@requests("set-size-32 | MS-FSCC 2.4.14 | a size that is set has 32 bits")
def set_size_32(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = (InfoType.FILE, FileInfo.END_OF_FILE)
    if message.command != SmbCommand.SET_INFO or (message["info_type"], message["info_class"]) != wanted:
        return message.raw
    return low(message.raw, message["buffer_offset"])


def _control(row: str, code: int, *places: int) -> None:
    """Register a mutant that cuts numbers of an FSCTL's input; ``places`` are their offsets in it."""

    @requests(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        out = message.raw
        if message.command == SmbCommand.IOCTL and message["control_code"] == code:
            for at in places:
                out = low(out, message["buffer_offset"] + at)
        return out


_control(
    "copychunk-source-32 | MS-SMB2 2.2.31.1.1 | SourceOffset of the first chunk has 32 bits",
    Fsctl.SRV_COPYCHUNK,
    32,
)
_control(
    "copychunk-target-32 | MS-SMB2 2.2.31.1.1 | TargetOffset of the first chunk has 32 bits",
    Fsctl.SRV_COPYCHUNK,
    40,
)
_control(
    "zero-data-32 | MS-FSCC 2.3.67 | the offsets of FSCTL_SET_ZERO_DATA have 32 bits",
    Fsctl.SET_ZERO_DATA,
    0,
    8,
)


@mutant("allocated-ranges-32 | MS-FSCC 2.3.48 | FileOffset of an allocated range has 32 bits")
def allocated_ranges_32(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.IOCTL or message.is_error or message.status:
        return message.raw
    if message["control_code"] != Fsctl.QUERY_ALLOCATED_RANGES:
        return message.raw
    cut = [(at & BITS_32, length) for at, length in struct.iter_unpack("<QQ", message.buffer)]
    return put(message.raw, message["buffer_offset"], b"".join(struct.pack("<QQ", *one) for one in cut))
