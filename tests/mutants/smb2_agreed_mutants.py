"""Broken rules of SMB: values that another response states otherwise, requests on what has ended, access."""

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, accepts, context_at, mutant, put

from storagetest.wire.smb2.codes import (
    Access,
    Capability,
    Dialect,
    FileInfo,
    FsInfo,
    InfoType,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


def _is_of(talk: SmbProxyConnection, message: SmbMessage, kind: InfoType, number: int) -> bool:
    """Whether a message is the successful response to a query of a class."""
    asked = talk.asked.get(message["message_id"])
    if asked is None or not _succeeded(message, SmbCommand.QUERY_INFO) or not message.buffer:
        return False
    return (asked["info_type"], asked["info_class"]) == (kind, number)


def _unhashed(message: SmbMessage) -> bool:
    """Whether a message is a response to NEGOTIATE that no hash of 3.1.1 covers (3.3.5.4)."""
    return _succeeded(message, SmbCommand.NEGOTIATE) and message["dialect"] < Dialect.SMB_3_1_1


def _unasked(name: str, capability: Capability) -> None:
    """A mutant whose server has a capability that the client lacks."""

    @mutant(f"capability-unasked-{name} | MS-SMB2 3.3.5.4 | a client without {capability.name} gets it")
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if not _unhashed(message) or message["dialect"] < Dialect.SMB_3_0 or asked is None:
            return message.raw
        if asked.command != SmbCommand.NEGOTIATE or asked["capabilities"] & capability:
            return message.raw
        return message.encoded().override(capabilities=message["capabilities"] | capability).data


_unasked("multi-channel", Capability.MULTI_CHANNEL)
_unasked("persistent", Capability.PERSISTENT_HANDLES)
_unasked("directory-leasing", Capability.DIRECTORY_LEASING)


@mutant("system-time-sticks | MS-SMB2 3.3.5.4 | SystemTime is that of the first connection")
def system_time_sticks(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _unhashed(message):
        return message.raw
    first = talk.shared.setdefault("time", message["system_time"])
    return message.encoded().override(system_time=first).data


accepts("accepts-logoff", SmbCommand.LOGOFF, "3.3.5.2.9")
accepts("accepts-tree-disconnect", SmbCommand.TREE_DISCONNECT, "3.3.5.2.11")


@mutant("gone-file-closed | MS-SMB2 3.3.5.2.9, 3.3.5.2.11 | on a file of what has ended, FILE_CLOSED")
def gone_file_closed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    gone = (SmbStatus.NETWORK_NAME_DELETED, SmbStatus.USER_SESSION_DELETED)
    of_files = (SmbCommand.CLOSE, SmbCommand.FLUSH, SmbCommand.QUERY_INFO)
    if message.command not in of_files or message.status not in gone:
        return message.raw
    return message.encoded().override(status=SmbStatus.FILE_CLOSED).data


@mutant("disk-id-other | MS-SMB2 2.2.14.2.9 | DiskFileId is another number, the same each time")
def disk_id_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"QFid")
    return put(message.raw, at, bytes([message.raw[at] ^ 0x55])) if at else message.raw


READS, WRITES = 0x120089, 0x120116
"""What GENERIC_READ and GENERIC_WRITE stand for (MS-SMB2 2.2.13.1.1)."""


@mutant("maximal-access-granted | MS-SMB2 3.3.5.9.5 | MaximalAccess is what the open was granted")
def maximal_access_granted(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at, asked = context_at(message, b"MxAc"), talk.asked.get(message["message_id"])
    if not at or asked is None:
        return message.raw
    access = asked["access"]
    granted = access & 0x1FFFFF | READS * bool(access & Access.GENERIC_READ)
    granted |= WRITES * bool(access & Access.GENERIC_WRITE)
    return put(message.raw, at + 4, struct.pack("<I", granted))


@mutant("charge-one | MS-SMB2 3.3.4.1 | CreditCharge of a response other than of a READ is 1")
def charge_one(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.READ or message["credit_charge"] <= 1:
        return message.raw
    return message.encoded().override(credit_charge=1).data


@mutant("stream-allocation-zero | MS-FSCC 2.4.49 | StreamAllocationSize of the first stream is 0")
def stream_allocation_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _is_of(talk, message, InfoType.FILE, FileInfo.STREAM):
        return message.raw
    return put(message.raw, message["buffer_offset"] + 16, bytes(8))


def _halved(row: str, number: FsInfo, at: int, size: int) -> None:
    """A mutant that halves a number of a class of the file system."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if not _is_of(talk, message, InfoType.FILESYSTEM, number):
            return message.raw
        half = int.from_bytes(message.buffer[at : at + size], "little") // 2
        return put(message.raw, message["buffer_offset"] + at, half.to_bytes(size, "little"))


_halved(
    "volume-available-half | MS-FSA 2.1.5.13.8 | half of the available units are available to the caller",
    FsInfo.FULL_SIZE,
    8,
    8,
)
_halved(
    "sector-atomicity-half | MS-FSCC 2.5.7 | the sector of an atomic write is half of a logical one",
    FsInfo.SECTOR_SIZE,
    4,
    4,
)
_halved(
    "volume-name-length-short | MS-FSCC 2.5.1 | MaximumComponentNameLength is half of the longest name",
    FsInfo.ATTRIBUTE,
    4,
    4,
)


@mutant("stream-open-clears | MS-FSA 2.1.5.1.2 | an open of a stream clears HIDDEN and SYSTEM of its file")
def stream_open_clears(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if _succeeded(message, SmbCommand.CREATE) and asked is not None:
        if b":\0" in asked.buffer:
            talk.shared["opened"] = True
        return message.raw
    if _succeeded(message, SmbCommand.SET_INFO):
        talk.shared.pop("opened", None)  # the attributes were set again
    if "opened" not in talk.shared or not _is_of(talk, message, InfoType.FILE, FileInfo.BASIC):
        return message.raw
    kept = message.buffer[32] & ~(SmbAttribute.HIDDEN | SmbAttribute.SYSTEM)
    return put(message.raw, message["buffer_offset"] + 32, bytes([kept]))
