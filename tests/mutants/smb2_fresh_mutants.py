"""Broken rules of SMB of a second list, which was written from the documents' text before a look for cases."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, context_at, mutant, put, requests, sets

from storagetest.wire.smb2.codes import FileInfo, InfoType, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response

LARGE = 64 * 1024


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


sets(
    "write-count-16 | MS-SMB2 2.2.22 | Count of a WRITE has 16 bits",
    SmbCommand.WRITE,
    count=lambda message: message["count"] & 0xFFFF,
)


@mutant("read-padded | MS-FSA 2.1.5.3 | a read over the end of the file is padded with zeros")
def read_padded(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _succeeded(message, SmbCommand.READ) or asked is None or message.header["next_command"]:
        return message.raw
    missing = asked["length"] - message["buffer_length"]
    return message.encoded().override(buffer_length=asked["length"]).data + bytes(missing)


@mutant("open-if-created | MS-SMB2 2.2.14 | OPEN_IF of a file that exists states that it was created")
def open_if_created(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    wanted = _succeeded(message, SmbCommand.CREATE) and asked is not None and asked["disposition"] == 3
    return message.encoded().override(action=2).data if wanted else message.raw


@mutant("flush-read-only | MS-SMB2 3.3.5.11 | FLUSH of an open without write access succeeds")
def flush_read_only(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.FLUSH or message.status != SmbStatus.ACCESS_DENIED:
        return message.raw
    kept = {key: message.header[key] for key in ("message_id", "session_id", "tree_id")}
    return response(SmbCommand.FLUSH).override(**kept, credit_charge=1, credits=1).data


@mutant("close-size-of-open | MS-SMB2 3.3.5.10 | CLOSE states the size that the file had when it was opened")
def close_size_of_open(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if _succeeded(message, SmbCommand.CREATE):
        talk.shared[message["file_id"]] = message["end_of_file"]
    asked = talk.asked.get(message["message_id"])
    if not _succeeded(message, SmbCommand.CLOSE) or asked is None or not message["attributes"]:
        return message.raw
    size = talk.shared.get(asked["file_id"], message["end_of_file"])
    return message.encoded().override(end_of_file=size).data


def _information(message: SmbMessage, asked: SmbMessage | None, number: FileInfo) -> bool:
    return (
        _succeeded(message, SmbCommand.QUERY_INFO)
        and asked is not None
        and (asked["info_type"], asked["info_class"]) == (InfoType.FILE, number)
    )


@mutant("delete-pending-never | MS-FSCC 2.4.45 | DeletePending is never set")
def delete_pending_never(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _information(message, talk.asked.get(message["message_id"]), FileInfo.STANDARD):
        return message.raw
    return put(message.raw, message["buffer_offset"] + 20, b"\0")


@requests("shared-lock-exclusive | MS-SMB2 3.3.5.14.2 | a shared lock excludes shared locks")
def shared_lock_exclusive(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.LOCK:
        return message.raw
    out = message.raw
    for at in range(message["lock_count"]):
        where = 64 + 24 + 24 * at + 16
        flags = int.from_bytes(out[where : where + 4], "little")
        if flags & 1:
            out = put(out, where, (flags & ~1 | 2).to_bytes(4, "little"))
    return out


@mutant("notify-tree-last-component | MS-FSCC 2.7.1 | changes below a directory have no path")
def notify_tree_last_component(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.CHANGE_NOTIFY) or not message.buffer:
        return message.raw
    step, action, length = struct.unpack_from("<III", message.buffer)
    name = message.buffer[12 : 12 + length].decode("utf-16-le").rpartition("\\")[2].encode("utf-16-le")
    if step or len(name) == length:
        return message.raw
    body = struct.pack("<III", 0, action, len(name)) + name
    start = message["buffer_offset"]
    return message.encoded().override(buffer_length=len(body)).data[:start] + body


@mutant("maximal-access-second | MS-SMB2 2.2.14.2.5 | MaximalAccess of every second open is 0")
def maximal_access_second(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    where = context_at(message, b"MxAc")
    if not where or message.status:
        return message.raw
    talk.shared["opens"] = talk.shared.get("opens", 0) + 1
    return message.raw if talk.shared["opens"] % 2 else put(message.raw, where + 4, bytes(4))


@mutant(
    "network-open-size-sticks | MS-FSCC 2.4.33 | the size in FileNetworkOpenInformation stays as it was first"
)
def network_open_size_sticks(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _information(message, asked, FileInfo.NETWORK_OPEN) or asked is None:
        return message.raw
    at = message["buffer_offset"] + 40
    first = talk.shared.setdefault(asked["file_id"], message.raw[at : at + 8])
    return put(message.raw, at, first)
