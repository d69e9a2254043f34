"""Broken rules of what an open states of a file that another open changes, of hidden files and compounds."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, context_at, mutant, put, requests

from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    Disposition,
    FileInfo,
    Flags,
    InfoType,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage, response

GENERIC = 0xF2000000
"""MAXIMUM_ALLOWED and the generic rights of an access mask (MS-SMB2 2.2.13.1)."""


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


@mutant(
    "close-size-of-own | MS-SMB2 3.3.5.10 | CLOSE states the size that the open itself left, and not the file's"
)
def close_size_of_own(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    sizes, asked = talk.shared.setdefault("sizes", {}), talk.asked.get(message["message_id"])
    if _succeeded(message, SmbCommand.CREATE):
        sizes[message["file_id"]] = message["end_of_file"]
    elif asked is None or asked.command not in (SmbCommand.WRITE, SmbCommand.CLOSE):
        return message.raw
    elif _succeeded(message, SmbCommand.WRITE):
        size = sizes.get(asked["file_id"], 0)
        sizes[asked["file_id"]] = max(size, asked["offset"] + message["count"])
    elif _succeeded(message, SmbCommand.CLOSE) and message["flags"]:
        size = sizes.get(asked["file_id"], message["end_of_file"])
        return message.encoded().override(end_of_file=size).data
    return message.raw


@mutant(
    "delete-pending-of-open | MS-FSCC 2.4.45 | DeletePending is TRUE only by the open that requested the deletion"
)
def delete_pending_of_open(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked, own = talk.asked.get(message["message_id"]), talk.shared.setdefault("requested", set())
    if asked is None or asked.command not in (SmbCommand.QUERY_INFO, SmbCommand.SET_INFO):
        return message.raw
    if asked["info_type"] != InfoType.FILE or message.is_error or message.status:
        return message.raw
    if asked.command == SmbCommand.SET_INFO:
        own |= {asked["file_id"]} if asked["info_class"] == FileInfo.DISPOSITION else set()
        return message.raw
    at = {FileInfo.STANDARD: 20, FileInfo.ALL: 60}.get(asked["info_class"])
    if at is None or asked["file_id"] in own:
        return message.raw
    return put(message.raw, message["buffer_offset"] + at, b"\0")


@requests(
    "overwrite-hidden | MS-FSA 2.1.5.1.2 | a hidden or system file is overwritten without these attributes"
)
def overwrite_hidden(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE:
        return message.raw
    both = SmbAttribute.HIDDEN | SmbAttribute.SYSTEM
    if message["disposition"] == Disposition.CREATE:
        talk.shared[bytes(message.buffer)] = message["attributes"] & both
        return message.raw
    if message["disposition"] not in (Disposition.OVERWRITE, Disposition.OVERWRITE_IF):
        return message.raw
    kept = talk.shared.get(bytes(message.buffer), 0)
    return message.encoded().override(attributes=message["attributes"] | kept).data


@mutant("maximal-is-granted | MS-SMB2 2.2.14.2.5 | MaximalAccess is the access that was asked for")
def maximal_is_granted(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked, at = talk.asked.get(message["message_id"]), context_at(message, c.MAXIMAL_ACCESS)
    if asked is None or not at or asked["access"] & GENERIC:
        return message.raw
    return put(message.raw, at + 4, struct.pack("<I", asked["access"]))


@mutant(
    "compound-later-closed | MS-SMB2 3.3.5.2.7.2 | the fourth and later related requests of a compound have no file"
)
def compound_later_closed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    before = 0
    while (asked := talk.asked.get(message["message_id"] - before)) and asked.flags & Flags.RELATED:
        before += 1
    if before < 3 or message.is_error or message.status:
        return message.raw
    kept = ("credit_charge", "credits", "message_id", "session_id", "tree_id", "next_command", "header_flags")
    refused = response(SmbCommand(message.command), status=SmbStatus.FILE_CLOSED)
    data = refused.override(**{name: message.header[name] for name in kept}).data
    return data.ljust(message.header["next_command"], b"\0")[: message.header["next_command"] or None]
