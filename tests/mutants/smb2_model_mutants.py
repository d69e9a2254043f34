"""Broken rules of MS-SMB2 and MS-FSA that act between requests of several kinds on the same files.

They are of a list that was written from the text before a look at the cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, mutant, put, requests
from smb2_unseen_mutants import _succeeded

from storagetest.wire.smb2.codes import (
    RESTART_SCANS,
    Disposition,
    FileInfo,
    Flags,
    Fsctl,
    InfoType,
    Lock,
    NotifyAction,
    Options,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage, response

SIZE_AT = {FileInfo.STANDARD: 8, FileInfo.ALL: 48, FileInfo.NETWORK_OPEN: 40}
"""Offset of EndOfFile in the classes that have it (MS-FSCC 2.4)."""

CHANGES = (SmbCommand.WRITE, SmbCommand.SET_INFO, SmbCommand.IOCTL)


def _asked(talk: SmbProxyConnection, message: SmbMessage) -> SmbMessage | None:
    return talk.asked.get(message["message_id"])


def _failed(message: SmbMessage, status: SmbStatus) -> bytes:
    """Return the response with an error instead, in its place of a compound."""
    names = ("message_id", "session_id", "tree_id", "credit_charge", "credits", "header_flags")
    made = response(SmbCommand(message.command), status=status)
    data = made.override(**{name: message.header[name] for name in names}).data
    if not message.header["next_command"]:
        return data
    data += bytes(-len(data) % 8)
    return put(data, 20, struct.pack("<I", len(data)))


# Compounds


def _note_first(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.flags & Flags.RELATED:
        talk.shared["first"] = message.command
    elif talk.shared.get("first") != SmbCommand.CREATE and "file_id" in message.fields:
        talk.shared[talk, message["message_id"]] = True
    return message.raw


@mutant(
    "related-to-create-alone | MS-SMB2 3.3.5.2.7.2 | a related request has no FileId if the first one is no CREATE",
    request=_note_first,
)
def related_to_create_alone(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = not message.is_error and (talk, message["message_id"]) in talk.shared
    return _failed(message, SmbStatus.FILE_CLOSED) if wanted else message.raw


# What an open keeps although another one changes it


def _forget(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command in CHANGES:
        talk.shared.pop(message["file_id"], None)
    return message.raw


@mutant(
    "size-kept | MS-FSA 2.1.5.12.27 | an open states the size that it stated before another open changed it",
    request=_forget,
)
def size_kept(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None or not _succeeded(message, SmbCommand.QUERY_INFO):
        return message.raw
    where = SIZE_AT.get(asked["info_class"]) if asked["info_type"] == InfoType.FILE else None
    if where is None:
        return message.raw
    at = message["buffer_offset"] + where
    return put(message.raw, at, talk.shared.setdefault(asked["file_id"], message.raw[at : at + 8]))


@mutant(
    "data-kept | MS-FSA 2.1.5.3 | an open reads a range as it read it before another open changed it",
    request=_forget,
)
def data_kept(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None or not _succeeded(message, SmbCommand.READ) or not message.buffer:
        return message.raw
    kept = talk.shared.setdefault(asked["file_id"], {})
    data = kept.setdefault((asked["offset"], len(message.buffer)), message.buffer)
    return put(message.raw, message["buffer_offset"], data)


# Listings


@requests("restart-keeps-pattern | MS-SMB2 3.3.5.18 | RESTART_SCANS keeps the first pattern of an open")
def restart_keeps_pattern(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY or message.header["next_command"]:
        return message.raw
    first = talk.shared.setdefault(message["file_id"], message.buffer)
    if first == message.buffer or not message["flags"] & RESTART_SCANS or not first:
        return message.raw
    return message.encoded().override(buffer_length=len(first)).data[: message["buffer_offset"]] + first


# Other


def _one_byte(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.WRITE or message["buffer_length"] or message.header["next_command"]:
        return message.raw
    talk.shared[talk, message["message_id"]] = True
    return message.encoded().override(buffer_length=1, buffer_offset=message.layout.end).data


@mutant("write-none-is-one | MS-FSA 2.1.5.4 | a write of no bytes writes one", request=_one_byte)
def write_none_is_one(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.WRITE) or (talk, message["message_id"]) not in talk.shared:
        return message.raw
    return message.encoded().override(count=0).data


@requests(
    "delete-of-second-lost | MS-FSA 2.1.5.5 | FILE_DELETE_ON_CLOSE of an open of a file that was open before is lost"
)
def delete_of_second_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE:
        return message.raw
    name = message.buffer.lower()
    before = name in talk.shared
    talk.shared[name] = True
    if not before or message["disposition"] != Disposition.OPEN:
        return message.raw
    return message.encoded().override(options=message["options"] & ~Options.DELETE_ON_CLOSE).data


def _first_range(message: SmbMessage) -> tuple[int, int, int]:
    start, length, flags = struct.unpack_from("<QQI", message.raw, message.layout.end)
    return start, start + length, flags


@mutant(
    "unlocks-taken-back | MS-SMB2 3.3.5.14.1 | of several unlocks the first is taken back if the second fails"
)
def unlocks_taken_back(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None or message.command != SmbCommand.LOCK:
        return message.raw
    start, end, flags = _first_range(asked)
    if message.status == SmbStatus.RANGE_NOT_LOCKED and asked["lock_count"] > 1:
        talk.shared.setdefault("locked", []).append((start, end))
    again = any(start < last and first < end for first, last in talk.shared.get("locked", ()))
    wanted = not message.status and not flags & Lock.UNLOCK and again
    return _failed(message, SmbStatus.LOCK_NOT_GRANTED) if wanted else message.raw


# Requests that wait


@mutant(
    "notify-last-first | MS-SMB2 3.3.1.3 | of the CHANGE_NOTIFY that wait on an open the last one is answered first"
)
def notify_last_first(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None or message.command != SmbCommand.CHANGE_NOTIFY or not message.flags & Flags.ASYNC:
        return message.raw
    waiting = talk.shared.setdefault((talk, asked["file_id"]), [])
    own = message["message_id"], message.header["async_id"]
    if message.status == SmbStatus.PENDING:
        waiting.append(own)
        return message.raw
    if message.status or not waiting:
        return message.raw
    mid, async_id = waiting.pop()  # what the server answers next, gets the id that is the last one then
    return message.encoded().override(message_id=mid, async_id=async_id).data


@mutant(
    "notify-cleanup-of-first | MS-SMB2 3.3.5.10 | a close of a directory ends the first of its CHANGE_NOTIFY alone"
)
def notify_cleanup_of_first(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    asked = _asked(talk, message)
    if asked is None or message.status != SmbStatus.NOTIFY_CLEANUP:
        return message.raw
    again = asked["file_id"] in talk.shared
    talk.shared[asked["file_id"]] = True
    return None if again else message.raw


def _note_filter(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.CHANGE_NOTIFY:
        talk.shared.setdefault(message["file_id"], message["filter"])
    return message.raw


@mutant(
    "notify-filter-of-last | MS-SMB2 3.3.1.3 | a CHANGE_NOTIFY of another filter than the first one has its own",
    request=_note_filter,
)
def notify_filter_of_last(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    asked = _asked(talk, message)
    if asked is None or not _succeeded(message, SmbCommand.CHANGE_NOTIFY) or not message.buffer:
        return message.raw
    names = SmbNotify.FILE_NAME | SmbNotify.DIR_NAME
    own = asked["filter"] != talk.shared.get(asked["file_id"]) and not asked["filter"] & names
    return None if own and message.buffer[4] != NotifyAction.MODIFIED else message.raw


# Parts of a request


@requests(
    "chunks-reversed | MS-SMB2 3.3.5.15.6 | the chunks of a copy are copied from the last one to the first"
)
def chunks_reversed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    copies = (Fsctl.SRV_COPYCHUNK, Fsctl.SRV_COPYCHUNK_WRITE)
    if message.command != SmbCommand.IOCTL or message["control_code"] not in copies:
        return message.raw
    each = message.buffer[32:]
    pieces = [each[at : at + 24] for at in range(0, len(each) // 24 * 24, 24)]
    return put(message.raw, message["buffer_offset"] + 32, b"".join(reversed(pieces)))


@requests("query-input-refused | MS-SMB2 3.3.5.20 | QUERY_INFO with an input buffer is refused")
def query_input_refused(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    kinds = (InfoType.FILE, InfoType.FILESYSTEM)
    if message.command != SmbCommand.QUERY_INFO or message["info_type"] not in kinds:
        return message.raw
    if not message["buffer_length"] or message["info_class"] == FileInfo.FULL_EA:
        return message.raw
    return message.encoded().override(info_class=0).data


MIB = 1 << 20


@requests(
    "write-mib-lost | MS-SMB2 3.3.5.13 | of a WRITE of more than 1 MiB the byte behind the first MiB is another"
)
def write_mib_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.WRITE or len(message.buffer) <= MIB:
        return message.raw
    at = message["buffer_offset"] + MIB
    return put(message.raw, at, bytes([message.raw[at] ^ 0xFF]))


def _longer(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    """Note where the zeroes of FSCTL_SET_ZERO_DATA end."""
    if message.command == SmbCommand.IOCTL and message["control_code"] == Fsctl.SET_ZERO_DATA:
        talk.shared[message["file_id"]] = message.buffer[8:16]
    return message.raw


@mutant(
    "zero-extends | MS-FSA 2.1.5.10.40 | FSCTL_SET_ZERO_DATA beyond the end extends the file", request=_longer
)
def zero_extends(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None or not _succeeded(message, SmbCommand.QUERY_INFO):
        return message.raw
    if asked["info_class"] != FileInfo.STANDARD or asked["file_id"] not in talk.shared:
        return message.raw
    end, at = talk.shared[asked["file_id"]], message["buffer_offset"] + 8
    longer = int.from_bytes(end, "little") > int.from_bytes(message.raw[at : at + 8], "little")
    return put(message.raw, at, end) if longer else message.raw
