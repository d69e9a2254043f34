"""Broken rules of the POSIX extensions, over the server of the test kit: smbd 4.17 does not have them."""

import struct

from smb2_kit_mutants import KIT
from smb2_proxy_connection import (
    SmbProxyConnection,
    context_at,
    mutant,
    negotiate_context_at,
    put,
    requests,
)

from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2 import posix
from storagetest.wire.smb2.codes import ContextType, Dialect, Disposition, FsInfo, InfoType, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

GRANT = "POSIX-SMB2 2.2.3.1.8"
ASK = "POSIX-SMB2"
NAME_AT = 120
"""Where the name of a CREATE request begins."""


@mutant(f"posix-guid-other | {GRANT} | the grant names other extensions", kind=KIT)
def posix_guid_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = negotiate_context_at(message, ContextType.POSIX)
    return put(message.raw, at, b"\0") if at else message.raw


@mutant(f"posix-unasked | {GRANT} | every client gets the extensions", kind=KIT)
def posix_unasked(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_it = message.command == SmbCommand.NEGOTIATE and not message.is_error
    if not is_it or message["dialect"] != Dialect.SMB_3_1_1 or posix.GUID in message.raw:
        return message.raw
    added = bytes(-len(message.raw) % 8) + c.encode_negotiate([posix.available()])
    return message.encoded().override(context_count=message["context_count"] + 1).data + added


@mutant("posix-mode-other | POSIX-SMB2 2.2.14.2.16 | the create context has another mode", kind=KIT)
def posix_mode_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, posix.GUID)
    return put(message.raw, at + 16, bytes([message.raw[at + 16] ^ 1])) if at else message.raw


@mutant("posix-owner-other | POSIX-FSCC 2.3.1 | the create context has another owner", kind=KIT)
def posix_owner_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, posix.GUID)
    return put(message.raw, at + 36, bytes([message.raw[at + 36] ^ 1])) if at else message.raw


@mutant("posix-context-always | POSIX-SMB2 2.2.14.2.16 | every open has the create context", kind=KIT)
def posix_context_always(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_it = message.command == SmbCommand.CREATE and not message.is_error
    if not is_it or message["context_length"]:
        return message.raw
    sid = posix.encode_sid(21)
    added = c.encode_create([(posix.GUID, struct.pack("<III", 1, 0, 0o644) + sid + sid)])
    made = message.encoded().override(context_offset=152, context_length=len(added))
    return made.data[:152] + added


@mutant("posix-info-other | POSIX-FSCC 2.3 | the information of class 100 is another", kind=KIT)
def posix_info_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    is_it = message.command == SmbCommand.QUERY_INFO and not message.is_error and not message.status
    if not is_it or asked is None or asked["info_class"] != FsInfo.POSIX:
        return message.raw
    system = asked["info_type"] == InfoType.FILESYSTEM
    at = message["buffer_offset"] + (5 if system else 76)  # of the block size; the mode
    return put(message.raw, at, bytes([message.raw[at] ^ 1]))


def _name(message: SmbMessage) -> str:
    return message.buffer.decode("utf-16-le")


def _renamed(message: SmbMessage, name: str) -> bytes:
    return put(message.raw, NAME_AT, name.encode("utf-16-le"))


@requests(f"posix-case-ignored | {ASK} | a POSIX open ignores case", kind=KIT)
def posix_case_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or posix.GUID not in message.second:
        return message.raw
    return _renamed(message, _name(message).replace("NAME", "name"))


@requests(f"posix-name-changed | {ASK} | a POSIX open maps reserved characters", kind=KIT)
def posix_name_changed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or posix.GUID not in message.second:
        return message.raw
    return _renamed(message, _name(message).replace(":", "_").replace("\\", "_"))


@requests(f"posix-case-always | {ASK} | case counts on a connection with the extensions", kind=KIT)
def posix_case_always(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or posix.GUID in message.second:
        return message.raw
    names, name = talk.shared.setdefault("names", {""}), _name(message)
    if message["disposition"] != Disposition.OPEN:
        names.add(name)
    extended = posix.GUID in talk.asked[0].raw
    return message.raw if name in names or not extended else _renamed(message, name[:-1] + "?")
