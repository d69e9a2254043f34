"""Broken rules of MS-FSA, MS-FSCC and MS-SMB2 that act with a second handle, name, query or pattern.

They are of a list that was written from the text before a look for their cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, context_at, mutant, put, requests

from storagetest.wire.smb2.codes import (
    FileInfo,
    Flags,
    FsInfo,
    InfoType,
    Lock,
    Options,
    SmbAttribute,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbMessage, response


def _is(message: SmbMessage | None, command: SmbCommand, number: FileInfo) -> bool:
    """Whether the request is QUERY_INFO or SET_INFO of a class of a file."""
    if message is None or message.command != command:
        return False
    return bool(message["info_type"] == InfoType.FILE and message["info_class"] == number)


def _succeeds(message: SmbMessage) -> bool:
    return not message.is_error and not message.status


@requests(
    "directory-shares-ignored | MS-FSA 2.1.5.1.2.2 | the share mode of an open of a directory is ignored"
)
def directory_shares_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or not message["options"] & Options.DIRECTORY_FILE:
        return message.raw
    return message.encoded().override(share=7).data


@mutant("position-of-all | MS-FSCC 2.4.39 | all opens of a connection have one position")
def position_of_all(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if asked is None or not _succeeds(message):
        return message.raw
    if _is(asked, SmbCommand.SET_INFO, FileInfo.POSITION):
        talk.shared["position"] = asked.buffer[:8]
    elif _is(asked, SmbCommand.QUERY_INFO, FileInfo.POSITION) and "position" in talk.shared:
        return put(message.raw, message["buffer_offset"], talk.shared["position"])
    return message.raw


@requests("attributes-zero-clear | MS-FSA 2.1.5.15.2 | FileAttributes 0 clears the attributes")
def attributes_zero_clear(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _is(message, SmbCommand.SET_INFO, FileInfo.BASIC) or message.buffer[32:36] != bytes(4):
        return message.raw
    return put(message.raw, message["buffer_offset"] + 32, struct.pack("<I", SmbAttribute.NORMAL))


@requests("link-never-replaces | MS-FSA 2.1.5.15.6 | ReplaceIfExists of a link is ignored")
def link_never_replaces(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _is(message, SmbCommand.SET_INFO, FileInfo.LINK):
        return message.raw
    return put(message.raw, message["buffer_offset"], b"\0")


@mutant("rename-case-collides | MS-FSA 2.1.5.15.11 | a rename that changes case alone collides")
def rename_case_collides(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if asked is None or not _succeeds(message):
        return message.raw
    if message.command == SmbCommand.CREATE:
        talk.shared[message["file_id"]] = asked.buffer.decode("utf-16-le", "replace")
    if not _is(asked, SmbCommand.SET_INFO, FileInfo.RENAME):
        return message.raw
    old, new = talk.shared.get(asked["file_id"], ""), asked.buffer[20:].decode("utf-16-le", "replace")
    if old == new or old.lower() != new.lower():
        return message.raw
    kept = {
        key: message.header[key]
        for key in ("credit_charge", "credits", "message_id", "session_id", "tree_id")
    }
    return response(SmbCommand.SET_INFO, status=SmbStatus.OBJECT_NAME_COLLISION).override(**kept).data


@requests('dos-wildcards-literal | MS-FSA 2.1.4.4 | the wildcards <, > and " stand for themselves')
def dos_wildcards_literal(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY:
        return message.raw
    pattern = message.buffer.decode("utf-16-le", "replace")
    literal = pattern.translate(str.maketrans('<>"', "!!!"))
    return put(message.raw, message["buffer_offset"], literal.encode("utf-16-le"))


@mutant(
    "file-system-name-length-cut | MS-FSA 2.1.5.13.5 | FileSystemNameLength of a name that is cut is what is returned of it"
)
def file_system_name_length_cut(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if (
        asked is None
        or message.command != SmbCommand.QUERY_INFO
        or message.status != SmbStatus.BUFFER_OVERFLOW
    ):
        return message.raw
    if (asked["info_type"], asked["info_class"]) != (InfoType.FILESYSTEM, FsInfo.ATTRIBUTE):
        return message.raw
    return put(message.raw, message["buffer_offset"] + 8, struct.pack("<I", len(message.buffer) - 12))


_ALL_LINKS = 56
"""Where NumberOfLinks is in FileAllInformation, behind FileBasicInformation (MS-FSCC 2.4.2)."""


@mutant("all-links-one | MS-FSCC 2.4.2 | FileAllInformation states one link")
def all_links_one(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _succeeds(message) or not _is(asked, SmbCommand.QUERY_INFO, FileInfo.ALL):
        return message.raw
    return put(message.raw, message["buffer_offset"] + _ALL_LINKS, struct.pack("<I", 1))


# Of a list of state, order and second use

_NAMES = SmbNotify.FILE_NAME | SmbNotify.DIR_NAME
_KEPT = "credit_charge", "credits", "message_id", "session_id", "tree_id"


@requests("unlock-first-of-two | MS-SMB2 3.3.5.14.1 | an unlock of several ranges unlocks the first alone")
def unlock_first_of_two(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.LOCK or message["lock_count"] < 2:
        return message.raw
    (flags,) = struct.unpack_from("<I", message.raw, message.layout.end + 16)
    return message.encoded().override(lock_count=1).data if flags & Lock.UNLOCK else message.raw


@mutant(
    "compound-unrelated-fails | MS-SMB2 3.3.5.2.7.1 | unrelated requests of a compound fail after one that failed"
)
def compound_unrelated_fails(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    more, failed = message.header["next_command"], talk.shared.get(id(talk), 0)
    talk.shared[id(talk)] = (failed or message.status) if more else 0
    if not failed or message.flags & Flags.RELATED:
        return message.raw
    kept = {key: message.header[key] for key in _KEPT}
    data = response(SmbCommand(message.command), status=failed).override(**kept).data
    data += bytes(-len(data) % 8)
    return put(data, 20, struct.pack("<I", len(data) if more else 0))


@mutant("error-no-credits | MS-SMB2 3.3.1.2 | a response with an error grants no credit")
def error_no_credits(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.is_error or message.is_interim:
        return message.raw
    return message.encoded().override(credits=0).data


@mutant("lease-ends-with-one | MS-SMB2 3.3.4.7 | the close of one of its opens ends a lease")
def lease_ends_with_one(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    keys, ended = talk.shared.setdefault("keys", {}), talk.shared.setdefault("ended", set())
    if message.is_lease_break:
        return None if message["lease_key"] in ended else message.raw
    asked, at = talk.asked.get(message["message_id"]), context_at(message, b"RqLs")
    if at:
        keys[message["file_id"]] = message.raw[at : at + 16]
    elif asked is not None and message.command == SmbCommand.CLOSE and _succeeds(message):
        ended.add(keys.pop(asked["file_id"], b""))
    return message.raw


@mutant("rename-stated-old | MS-FSCC 2.4.2 | the name of an open is the one that it was opened by")
def rename_stated_old(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if asked is None or not _succeeds(message):
        return message.raw
    if message.command == SmbCommand.CREATE:
        talk.shared[message["file_id"]] = "\\".encode("utf-16-le") + asked.buffer
    if not _is(asked, SmbCommand.QUERY_INFO, FileInfo.ALL) or asked["file_id"] not in talk.shared:
        return message.raw
    name = talk.shared[asked["file_id"]]
    whole = message.buffer[:96] + struct.pack("<I", len(name)) + name
    head = message.encoded().override(buffer_length=len(whole)).data[: message["buffer_offset"]]
    return head + whole


@mutant("reconnect-locks-free | MS-SMB2 3.3.5.9.12 | the locks of an open that was reconnected deny nothing")
def reconnect_locks_free(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if asked is not None and message.command == SmbCommand.CREATE and _succeeds(message):
        talk.shared["again"] = talk.shared.get("again") or b"DH2C" in asked.second
        return message.raw
    if not talk.shared.get("again") or message.command != SmbCommand.LOCK:
        return message.raw
    if message.status != SmbStatus.LOCK_NOT_GRANTED:
        return message.raw
    return response(SmbCommand.LOCK).override(**{key: message.header[key] for key in _KEPT}).data


@requests("notify-names-only | MS-SMB2 2.2.35 | changes of attributes, sizes and times are not reported")
def notify_names_only(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CHANGE_NOTIFY:
        return message.raw
    return message.encoded().override(filter=message["filter"] & _NAMES).data


def _resized(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if _is(message, SmbCommand.SET_INFO, FileInfo.END_OF_FILE):
        talk.shared["resized"] = True
    return message.raw


@mutant("lease-break-resize-lost | MS-FSA 2.1.5.15.4 | a change of size breaks no lease", request=_resized)
def lease_break_resize_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    return None if message.is_lease_break and "resized" in talk.shared else message.raw
