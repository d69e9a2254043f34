"""Broken rules of what an open is granted: MAXIMUM_ALLOWED, and opens of files that become read-only."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, mutant, requests

from storagetest.wire.smb2.codes import Access, Action, FileInfo, SmbAttribute, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response

READS = Access.READ_DATA | Access.READ_EA | Access.READ_ATTRIBUTES | Access.READ_CONTROL | Access.SYNCHRONIZE


@requests(
    "maximum-allowed-reads | MS-SMB2 2.2.13.1.1 | MAXIMUM_ALLOWED grants what reading needs, and no more"
)
def maximum_allowed_reads(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or not message["access"] & Access.MAXIMUM_ALLOWED:
        return message.raw
    access = message["access"] & ~Access.MAXIMUM_ALLOWED | READS
    return message.encoded().override(access=int(access)).data


@requests(
    "maximum-allowed-with-others-lost | MS-SMB2 2.2.13.1.1 | MAXIMUM_ALLOWED with other rights grants these alone"
)
def maximum_allowed_with_others_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or not message["access"] & Access.MAXIMUM_ALLOWED:
        return message.raw
    others = message["access"] & ~Access.MAXIMUM_ALLOWED
    return (
        message.encoded().override(access=int(others | Access.READ_ATTRIBUTES)).data
        if others
        else message.raw
    )


def _denied(message: SmbMessage) -> bytes:
    keys = ("credit_charge", "credits", "message_id", "session_id")
    kept = {key: message.header[key] for key in keys}
    return response(SmbCommand(message.command), status=SmbStatus.ACCESS_DENIED).override(**kept).data


def _not_written(row: str, *, made: bool) -> None:
    """Register a mutant that writes no read-only file, by how the file became read-only."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if asked is None or message.is_error or message.status:
            return message.raw
        names, marked = talk.shared.setdefault("names", {}), talk.shared.setdefault("marked", set())
        if message.command == SmbCommand.CREATE:
            at = asked["buffer_offset"]
            name = asked.raw[at : at + asked["buffer_length"]]
            names[bytes(message["file_id"])] = name
            is_new = message["action"] == Action.CREATED
            if made and is_new and asked["attributes"] & SmbAttribute.READONLY:
                marked.add(name)
        if message.command == SmbCommand.SET_INFO and asked["info_class"] == FileInfo.BASIC:
            name = names.get(bytes(asked["file_id"]))
            (attributes,) = struct.unpack_from("<I", asked.buffer, 32)
            if not made and attributes & SmbAttribute.READONLY:
                marked.add(name)
        is_write = message.command == SmbCommand.WRITE and not message.header["next_command"]
        return _denied(message) if is_write and names.get(bytes(asked["file_id"])) in marked else message.raw


_not_written(
    "readonly-made-not-written | MS-SMB2 3.3.5.13 | the open that makes a read-only file may not write it",
    made=True,
)
_not_written(
    "readonly-set-not-written | MS-SMB2 3.3.5.13 | an open for writing may not write once its file is read-only",
    made=False,
)
