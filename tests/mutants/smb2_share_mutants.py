"""Broken rules of MS-SMB2, MS-FSA and MS-FSCC on shares, trees, sessions and volumes, of a list from their text."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct

from smb2_proxy_connection import MUTANTS, SmbProxyConnection, mutant, put, requests

from storagetest.wire.smb2.codes import Access, FsInfo, InfoType, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

_FREE = Access.EXECUTE | Access.APPEND_DATA
_COMPARED = Access.READ_DATA | Access.WRITE_DATA | Access.APPEND_DATA | Access.EXECUTE | Access.DELETE
_USES = (SmbCommand.CREATE, SmbCommand.READ, SmbCommand.CLOSE)


@requests(
    "share-execute-append-free | MS-FSA 2.1.5.1.2.2 | execution and appending alone are not compared with share modes"
)
def share_execute_append_free(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE:
        return message.raw
    access = message["access"]
    if not access & _FREE or access & _COMPARED & ~_FREE:
        return message.raw
    return message.encoded().override(access=access & ~_FREE | Access.READ_ATTRIBUTES).data


@mutant("tree-disconnect-all | MS-SMB2 3.3.5.8 | a TREE_DISCONNECT ends all trees of its session")
def tree_disconnect_all(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.raw


def _without_trees(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    session = message["session_id"]
    if message.command == SmbCommand.TREE_DISCONNECT:
        talk.shared[session] = True
    if message.command in _USES and session in talk.shared:
        return message.encoded().override(tree_id=0xFFFE).data
    return message.raw


MUTANTS["tree-disconnect-all"].request = _without_trees


@mutant("logoff-all | MS-SMB2 3.3.5.6 | a LOGOFF ends all sessions of its connection")
def logoff_all(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.raw


def _without_sessions(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.LOGOFF:
        talk.shared[id(talk)] = True
    if message.command in _USES and id(talk) in talk.shared:
        return message.encoded().override(session_id=0xFFFE).data
    return message.raw


MUTANTS["logoff-all"].request = _without_sessions


@mutant(
    "close-basic-of-open | MS-SMB2 3.3.5.10 | CLOSE states the attributes and the time of creation that the open stated"
)
def close_basic_of_open(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.is_error or message.status:
        return message.raw
    if message.command == SmbCommand.CREATE:
        talk.shared[message["file_id"]] = message["attributes"], message["creation_time"]
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.CLOSE or asked is None or not message["flags"] & 1:
        return message.raw
    attributes, created = talk.shared.get(asked["file_id"], (message["attributes"], message["creation_time"]))
    return message.encoded().override(attributes=attributes, creation_time=created).data


def _volume(name: str, number: FsInfo, at: int, words: str) -> None:
    """A mutant that counts in a field of four bytes at ``at`` of a file system class."""

    @mutant(f"{name} | MS-FSCC {words}")
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if message.command != SmbCommand.QUERY_INFO or message.is_error or message.status or asked is None:
            return message.raw
        if (asked["info_type"], asked["info_class"]) != (InfoType.FILESYSTEM, number):
            return message.raw
        talk.shared["looks"] = talk.shared.get("looks", 0) + 1
        start = message["buffer_offset"] + at
        (value,) = struct.unpack_from("<I", message.raw, start)
        return put(message.raw, start, struct.pack("<I", value ^ talk.shared["looks"] << 8))


_volume(
    "volume-serial-changes",
    FsInfo.VOLUME,
    8,
    "2.5.9 | VolumeSerialNumber differs from one query to the next",
)
_volume(
    "volume-attributes-change",
    FsInfo.ATTRIBUTE,
    0,
    "2.5.1 | FileSystemAttributes differ from one query to the next",
)
