"""Broken rules of MS-SMB2, MS-FSA and MS-FSCC that earlier cases missed: what is stated after a change."""

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, context_at, mutant, put, requests, sets

from storagetest.wire.smb2.codes import (
    LEASE_PARENT_KEY_SET,
    Disposition,
    FileInfo,
    Fsctl,
    InfoType,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage

sets(
    "read-data-remaining | MS-SMB2 2.2.20 | DataRemaining of a READ response is not 0",
    SmbCommand.READ,
    remaining=lambda message: message["buffer_length"],
)


@requests("impersonation-ignored | MS-SMB2 3.3.5.9 | an ImpersonationLevel that is not defined is taken")
def impersonation_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or message["impersonation"] < 4:
        return message.raw
    return message.encoded().override(impersonation=2).data


@requests(
    "accepts-impersonation-2 | MS-SMB2 2.2.13 | an ImpersonationLevel other than Impersonation is refused"
)
def accepts_impersonation_2(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or message["impersonation"] == 2:
        return message.raw
    return message.encoded().override(impersonation=9).data


@mutant("maximal-access-status | MS-SMB2 2.2.14.2.5 | QueryStatus of MxAc is an error")
def maximal_access_status(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"MxAc")
    return put(message.raw, at, struct.pack("<I", SmbStatus.ACCESS_DENIED)) if at else message.raw


@mutant("lease-parent-flag-always | MS-SMB2 2.2.14.2.11 | each lease states a parent's key")
def lease_parent_flag_always(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"RqLs")
    if not at:
        return message.raw
    flags = int.from_bytes(message.raw[at + 20 : at + 24], "little") | LEASE_PARENT_KEY_SET
    return put(message.raw, at + 20, struct.pack("<I", flags))


@mutant("lease-parent-key-other | MS-SMB2 2.2.14.2.11 | a lease states another parent's key than the request")
def lease_parent_key_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"RqLs")
    if not at:
        return message.raw
    stated = put(message.raw, at + 20, struct.pack("<I", LEASE_PARENT_KEY_SET))
    return put(stated, at + 32, b"\x77" * 16)


@mutant("lease-ack-flags | MS-SMB2 2.2.25.2 | a lease break response has a flag")
def lease_ack_flags(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.OPLOCK_BREAK or message.is_error or "duration" not in message.fields:
        return message.raw
    return message.encoded().override(flags=2).data


# Information


def _about(talk: SmbProxyConnection, message: SmbMessage, *classes: FileInfo) -> SmbMessage | None:
    """Return the request if the message has file information of one of ``classes``."""
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.QUERY_INFO or message.is_error or message.status or asked is None:
        return None
    return asked if asked["info_type"] == InfoType.FILE and asked["info_class"] in classes else None


def _in_all(name: str, at: int, size: int) -> None:
    """A mutant of one part of FileAllInformation."""

    @mutant(f"all-{name}-other | MS-FSCC 2.4.2 | the {name} in FileAllInformation is another one")
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if _about(talk, message, FileInfo.ALL) is None or len(message.buffer) < at + size:
            return message.raw
        piece = bytes(one ^ 0x45 for one in message.buffer[at : at + size])
        return put(message.raw, message["buffer_offset"] + at, piece)


for _name, _at, _size in (
    ("ea", 72, 4),
    ("access", 76, 4),
    ("position", 80, 8),
    ("mode", 88, 4),
    ("alignment", 92, 4),
):
    _in_all(_name, _at, _size)


def _attributes(message: SmbMessage, at: int) -> bytes:
    found = int.from_bytes(message.raw[at : at + 4], "little") & ~SmbAttribute.SPARSE_FILE
    return put(message.raw, at, struct.pack("<I", found))


@mutant(
    "sparse-attribute-lost | MS-FSA 2.1.5.10.38 | FileBasicInformation of a sparse file lacks SPARSE_FILE"
)
def sparse_attribute_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if _about(talk, message, FileInfo.BASIC) is None:
        return message.raw
    return _attributes(message, message["buffer_offset"] + 32)


@requests("sparse-set-ignored | MS-FSA 2.1.5.10.38 | FSCTL_SET_SPARSE with FALSE makes a file sparse")
def sparse_set_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if (
        message.command != SmbCommand.IOCTL
        or message["control_code"] != Fsctl.SET_SPARSE
        or not message.buffer
    ):
        return message.raw
    return put(message.raw, message["buffer_offset"], b"\1")


@mutant("stream-end-of-file | MS-FSCC 2.4.45 | EndOfFile of a stream is that of the file")
def stream_end_of_file(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command == SmbCommand.CREATE and not message.is_error and asked is not None:
        name = asked.buffer.decode("utf-16-le", "replace")
        if ":" in name:
            talk.shared[message["file_id"]] = True
        return message.raw
    asked = _about(talk, message, FileInfo.STANDARD)
    if asked is None:
        return message.raw
    if asked["file_id"] in talk.shared:
        return put(message.raw, message["buffer_offset"] + 8, talk.shared.get("end", bytes(8)))
    talk.shared["end"] = message.buffer[8:16]
    return message.raw


@mutant("links-of-first-look | MS-FSCC 2.4.45 | NumberOfLinks of an open is what it was at the first look")
def links_of_first_look(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _about(talk, message, FileInfo.STANDARD)
    if asked is None:
        return message.raw
    first = talk.shared.setdefault(asked["file_id"], message.buffer[16:20])
    return put(message.raw, message["buffer_offset"] + 16, first)


# Listings and names


@mutant("listing-size-sticks | MS-FSA 2.1.5.6.3 | EndOfFile of an entry is that of its first listing")
def listing_size_sticks(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.QUERY_DIRECTORY or message.is_error or message.status or asked is None:
        return message.raw
    if asked["info_class"] == FileInfo.NAMES:
        return message.raw
    data, at = message.buffer, 0
    while True:
        length = int.from_bytes(data[at + 60 : at + 64], "little")
        key = asked["file_id"], asked["info_class"], length
        data = put(data, at + 40, talk.shared.setdefault(key, data[at + 40 : at + 48]))
        step = int.from_bytes(data[at : at + 4], "little")
        if not step:
            return put(message.raw, message["buffer_offset"], data)
        at += step


def _case(row: str, *dispositions: Disposition) -> None:
    """A mutant whose CREATE compares letters by case."""

    @requests(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.CREATE or not message.buffer:
            return message.raw
        name = message.buffer.decode("utf-16-le", "replace")
        known = talk.shared.setdefault("names", {})
        made = known.setdefault(name.lower(), name)
        if message["disposition"] not in dispositions or made == name:
            return message.raw
        at = message["buffer_offset"]
        other = "\x7e".encode("utf-16-le")  # a name that no file has
        return put(message.raw, at + message["buffer_length"] - 2, other)


_case(
    "open-case-lost | MS-FSA 2.1.5.1 | FILE_OPEN distinguishes letters by case, other operations do not",
    Disposition.OPEN,
)
_case(
    "create-case-lost | MS-FSA 2.1.5.1 | FILE_CREATE distinguishes letters by case, other operations do not",
    Disposition.CREATE,
)
