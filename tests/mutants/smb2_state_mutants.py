"""Broken rules of replays, lock sequences, credits, extended attributes and encrypted shares."""

import struct

from smb2_proxy_connection import (
    SmbProxyConnection,
    accepts,
    asks,
    context_at,
    mutant,
    put,
    requests,
    same,
)

from storagetest.wire.smb2.codes import FileInfo, Flags, Fsctl, InfoType, SmbAttribute, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response
from storagetest.wire.smb2.stream import frame

SEALED = "sealed"
"""The kind of target: smbd's share that requires encryption."""

accepts("sealed-accepts-tree-connect", SmbCommand.TREE_CONNECT, "3.3.5.7", kind=SEALED)
mutant(
    "sealed-encryption-spoiled | MS-SMB2 3.1.4.3 | an encrypted response is not authentic",
    kind=SEALED,
    encrypted=True,
)(same)

# Durable handles


@mutant("durable-timeout-other | MS-SMB2 2.2.14.2.12 | the timeout is not the one that was requested")
def durable_timeout_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"DH2Q")
    return put(message.raw, at, bytes([message.raw[at] ^ 1])) if at else message.raw


def _asks_for_a_minute(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"DH2Q")
    if not at:
        return message.raw
    talk.shared["timeout"] = message.raw[at : at + 4]
    return put(message.raw, at, struct.pack("<I", 60_000))


@mutant(
    "durable-timeout-ignored | MS-SMB2 3.3.6.2 | a durable handle is kept for a minute",
    request=_asks_for_a_minute,
)
def durable_timeout_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"DH2Q")
    return put(message.raw, at, talk.shared["timeout"]) if at else message.raw


@mutant("durable-directory | MS-SMB2 3.3.5.9.6, 3.3.5.9.10 | an open of a directory is durable")
def durable_directory(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at, asked = context_at(message, b"MxAc"), talk.asked.get(message["message_id"])
    if not at or asked is None or not message["attributes"] & SmbAttribute.DIRECTORY:
        return message.raw
    return put(message.raw, at - 8, b"DH2Q" if context_at(asked, b"DH2Q") else b"DHnQ")


# Lock sequences

asks(
    "lock-sequence-ignored | MS-SMB2 3.3.5.14 | a replayed lock is executed again",
    SmbCommand.LOCK,
    lock_sequence=0,
)


def _repeats_failure(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    number = message["lock_sequence"] if message.command == SmbCommand.LOCK else 0
    if not number or number not in talk.shared.setdefault("failed", set()):
        return message.raw
    kept = {key: message.header[key] for key in ("message_id", "session_id", "tree_id")}
    talk.send_to_host(frame(response(SmbCommand.LOCK).override(credits=1, **kept).data))
    return None


@mutant(
    "lock-sequence-of-failure | MS-SMB2 3.3.5.14.2 | the sequence of a lock that failed counts as done",
    request=_repeats_failure,
)
def lock_sequence_of_failure(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command == SmbCommand.LOCK and message.is_error and asked is not None:
        talk.shared.setdefault("failed", set()).add(asked["lock_sequence"])
    return message.raw


# Credits


@mutant("credits-of-final | MS-SMB2 3.3.4.3 | the final response of an asynchronous request grants credits")
def credits_of_final(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.flags & Flags.ASYNC or message.is_interim:
        return message.raw
    return message.encoded().override(credits=3).data


@requests("cancel-answered | MS-SMB2 3.3.5.16 | a CANCEL is answered")
def cancel_answered(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.CANCEL:
        kept = {key: message.header[key] for key in ("message_id", "session_id")}
        made = response(SmbCommand.ECHO).override(command=int(SmbCommand.CANCEL), **kept)
        talk.send_to_host(frame(made.data))
    return message.raw


# Extended attributes and security descriptors


def _as_position(message: SmbMessage) -> bytes:
    """Set the position instead, which changes nothing."""
    made = message.encoded().override(
        info_type=int(InfoType.FILE), info_class=int(FileInfo.POSITION), buffer_length=8
    )
    return made.data


def _is_of_attributes(message: SmbMessage, command: SmbCommand) -> bool:
    is_file = message.command == command and message["info_type"] == InfoType.FILE
    return is_file and message["info_class"] == FileInfo.FULL_EA


@requests("ea-not-set | MS-FSA 2.1.5.15.5 | extended attributes are set the first time only")
def ea_not_set(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _is_of_attributes(message, SmbCommand.SET_INFO):
        return message.raw
    return _as_position(message)


@mutant("ea-value-other | MS-FSCC 2.4.15 | extended attributes have other values")
def ea_value_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    is_it = message.command == SmbCommand.QUERY_INFO and not message.status and asked is not None
    if not is_it or asked is None or not _is_of_attributes(asked, SmbCommand.QUERY_INFO):
        return message.raw
    at = message["buffer_offset"]
    value = at + 9 + message.raw[at + 5]
    return put(message.raw, value, bytes([message.raw[value] ^ 1]))


@requests("ea-context-ignored | MS-SMB2 3.3.5.9.1 | CREATE sets no extended attributes")
def ea_context_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"ExtA")
    return put(message.raw, at - 8, b"None") if at else message.raw


@requests("security-not-set | MS-SMB2 3.3.5.21.3 | a security descriptor is not set")
def security_not_set(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.SET_INFO or message["info_type"] != InfoType.SECURITY:
        return message.raw
    return _as_position(message)


# Headers of responses


def _header(row: str, command: SmbCommand, **flips: int) -> None:
    """A mutant that flips bits of a header's field in the successful responses to ``command``."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command or message.status or message.flags & Flags.ASYNC:
            return message.raw
        values = {name: message.header[name] ^ bits for name, bits in flips.items()}
        return message.encoded().override(**values).data


_header(
    "session-id-other | MS-SMB2 3.3.4.3 | a response has another SessionId", SmbCommand.CREATE, session_id=2
)
_header("tree-id-other | MS-SMB2 3.3.4.3 | a response has another TreeId", SmbCommand.CREATE, tree_id=2)


@mutant("async-id-zero | MS-SMB2 3.3.4.2 | asynchronous responses have no AsyncId")
def async_id_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.encoded().override(async_id=0).data if message.flags & Flags.ASYNC else message.raw


@mutant("async-id-other | MS-SMB2 3.3.4.3 | a final response has another AsyncId than the interim one")
def async_id_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.flags & Flags.ASYNC or message.is_interim:
        return message.raw
    return message.encoded().override(async_id=message["async_id"] + 1).data


@mutant("needed-size-other | MS-SMB2 2.2.2.2 | STATUS_BUFFER_TOO_SMALL comes with another size")
def needed_size_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.status != SmbStatus.BUFFER_TOO_SMALL or not message.buffer:
        return message.raw
    at = len(message.raw) - 4
    return put(message.raw, at, bytes([message.raw[at] ^ 1]))


@mutant("copy-accepted | MS-SMB2 3.3.5.15.6 | a server-side copy that is refused seems to succeed")
def copy_accepted(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_it = message.command == SmbCommand.IOCTL and message.status and not message.is_error
    if not is_it or message["control_code"] != Fsctl.SRV_COPYCHUNK:
        return message.raw
    return message.encoded().override(status=0).data
