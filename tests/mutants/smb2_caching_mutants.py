"""Broken rules of leases, oplocks, durable handles and channel sequences."""

import struct

from smb2_proxy_connection import (
    SmbProxyConnection,
    asks,
    context_at,
    mutant,
    put,
    requests,
    sets,
)

from storagetest.wire.smb2.codes import Flags, Oplock, SmbCommand
from storagetest.wire.smb2.layout import LEASE_ACK, LEASE_BREAK
from storagetest.wire.smb2.message import NOTIFICATION, SmbMessage, encode, response
from storagetest.wire.smb2.stream import frame

KEY, STATE, EPOCH = 0, 16, 48
"""Offsets in a lease context (MS-SMB2 2.2.14.2.10, .11)."""


def _in_lease(row, change):
    """A mutant that changes the data of a lease context in a response: ``change(talk, data)``."""

    @mutant(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        at = context_at(message, b"RqLs")
        if not at:
            return message.raw
        size = int.from_bytes(message.raw[at - 12 : at - 8], "little")
        return put(message.raw, at, change(talk, message.raw[at : at + size]))


def _counted(talk: SmbProxyConnection) -> int:
    talk.shared["count"] = talk.shared.get("count", 0) + 1
    return talk.shared["count"]


def _epoch(data: bytes, value: int) -> bytes:
    return put(data, EPOCH, struct.pack("<H", value)) if len(data) == 52 else data


_in_lease(
    "lease-state-more | MS-SMB2 3.3.5.9.11 | every kind of caching is granted",
    lambda _talk, data: put(data, STATE, b"\x07"),
)
_in_lease(
    "lease-read-only | MS-SMB2 3.3.5.9.11 | no more than read caching is granted",
    lambda _talk, data: put(data, STATE, bytes([data[STATE] & 1])),
)
_in_lease(
    "lease-key-other | MS-SMB2 2.2.14.2.10 | the response has another key",
    lambda _talk, data: put(data, KEY, bytes([data[KEY] ^ 1])),
)
_in_lease(
    "lease-epoch-counts | MS-SMB2 3.3.1.4 | every open increments the epoch",
    lambda talk, data: _epoch(data, 100 + _counted(talk)),
)
_in_lease(
    "lease-epoch-stuck | MS-SMB2 2.2.14.2.11 | the epoch is always 5", lambda _talk, data: _epoch(data, 5)
)


@mutant("lease-state-reduced | MS-SMB2 3.3.5.9.11 | a smaller request reduces the lease")
def lease_state_reduced(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at, asked = context_at(message, b"RqLs"), talk.asked.get(message["message_id"])
    if not at or asked is None:
        return message.raw
    wanted = asked.raw[context_at(asked, b"RqLs") + STATE]
    return put(message.raw, at + STATE, bytes([message.raw[at + STATE] & wanted]))


@mutant("lease-level-other | MS-SMB2 3.3.5.9.11 | the oplock level of a lease is none")
def lease_level_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.encoded().override(oplock=0).data if context_at(message, b"RqLs") else message.raw


def _context_lost(row: str, *names: bytes) -> None:
    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        at = context_at(message, *names)
        return put(message.raw, at - 8, b"None") if at else message.raw


_context_lost("lease-context-lost | MS-SMB2 3.3.5.9.11 | the response has no lease", b"RqLs")
_context_lost(
    "durable-context-lost | MS-SMB2 3.3.5.9.10 | the response has no durable handle", b"DHnQ", b"DH2Q"
)


@mutant("lease-short | MS-SMB2 2.2.14.2.11 | a request of the second form has a response of the first")
def lease_short(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"RqLs")
    return put(message.raw, at - 12, b"\x20") if at else message.raw


@mutant("lease-break-own | MS-SMB2 3.3.5.9.11 | an open with the lease's own key breaks it")
def lease_break_own(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"RqLs")
    if at and _counted(talk) > 1:
        sent = encode(
            LEASE_BREAK, SmbCommand.OPLOCK_BREAK, b"", header_flags=Flags.RESPONSE, message_id=NOTIFICATION,
            lease_key=message.raw[at : at + 16], current_state=7, new_state=3, flags=1,
        )  # fmt: skip
        talk.send_to_host(frame(sent.data))
    return message.raw


@requests("lease-without-level | MS-SMB2 3.3.5.9.11 | a lease is granted to an open of another level")
def lease_without_level(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not context_at(message, b"RqLs"):
        return message.raw
    return message.encoded().override(oplock=int(Oplock.LEASE)).data


def _is_break(message: SmbMessage) -> bool:
    return message.command == SmbCommand.OPLOCK_BREAK and message["message_id"] == NOTIFICATION


def _break(row, *, lease, **fields):
    """A mutant that sets fields of break notifications; without fields it drops them."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
        if not _is_break(message) or message.is_lease_break != lease:
            return message.raw
        if not fields:
            return None
        return message.encoded().override(**{name: value(message) for name, value in fields.items()}).data


_break("lease-break-lost | MS-SMB2 3.3.4.7 | a lease is broken without a notification", lease=True)
_break(
    "lease-break-key-other | MS-SMB2 2.2.23.2 | the notification has another key",
    lease=True,
    lease_key=lambda _message: b"\x11" * 16,
)
_break(
    "lease-break-current-other | MS-SMB2 2.2.23.2 | the notification has another state before",
    lease=True,
    current_state=lambda _message: 1,
)
_break(
    "lease-break-new-other | MS-SMB2 2.2.23.2 | the notification's new state is the old one",
    lease=True,
    new_state=lambda message: message["current_state"],
)
_break(
    "lease-break-flag-other | MS-SMB2 2.2.23.2 | the notification asks for an acknowledgement if it must not",
    lease=True,
    flags=lambda message: message["flags"] ^ 1,
)
_break(
    "lease-break-epoch-other | MS-SMB2 2.2.23.2 | the notification has another epoch",
    lease=True,
    new_epoch=lambda message: message["new_epoch"] + 7,
)
_break("oplock-break-lost | MS-SMB2 3.3.4.6 | an oplock is broken without a notification", lease=False)
_break(
    "oplock-break-level-other | MS-SMB2 2.2.23.1 | the notification's level is that of a batch oplock",
    lease=False,
    oplock=lambda _message: 9,
)
_break(
    "oplock-break-file-other | MS-SMB2 2.2.23.1 | the notification has another FileId",
    lease=False,
    file_id=lambda _message: b"\x11" * 16,
)


@mutant("lease-ack-state-other | MS-SMB2 2.2.25.2 | the response to an acknowledgement has another state")
def lease_ack_state_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.layout is not LEASE_ACK:
        return message.raw
    return message.encoded().override(lease_state=message["lease_state"] ^ 4).data


@mutant("oplock-ack-level-other | MS-SMB2 2.2.25.1 | the response to an acknowledgement has another level")
def oplock_ack_level_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.OPLOCK_BREAK or _is_break(message) or message.is_error:
        return message.raw
    return message.raw if message.layout is LEASE_ACK else message.encoded().override(oplock=8).data


@mutant("open-not-held | MS-SMB2 3.3.4.6, 3.3.4.7 | an open does not wait for the acknowledgement of a break")
def open_not_held(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or not message.is_interim:
        return message.raw
    kept = {key: message.header[key] for key in ("credit_charge", "credits", "message_id", "session_id")}
    return response(SmbCommand.CREATE, file_id=b"\x22" * 16).override(**kept).data


sets(
    "oplock-level-other | MS-SMB2 3.3.5.9 | every open gets a batch oplock",
    SmbCommand.CREATE,
    oplock=lambda message: message["oplock"] if message["oplock"] == Oplock.LEASE else 9,
)
sets("oplock-level-lost | MS-SMB2 3.3.5.9 | no open gets an oplock", SmbCommand.CREATE, oplock=0)


@requests("stat-open-reads | MS-FSA 2.1.5.1.2 | an open for attributes breaks as one for reading does")
def stat_open_reads(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or message["access"] != 0x100080:
        return message.raw
    return message.encoded().override(access=0x80100080).data


# Durable handles


def _durable_field(row: str, at: int, value: int) -> None:
    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        where = context_at(message, b"DH2Q")
        return put(message.raw, where + at, struct.pack("<I", value)) if where else message.raw


_durable_field("durable-timeout-zero | MS-SMB2 2.2.14.2.12 | the timeout is 0", 0, 0)
_durable_field("durable-persistent-set | MS-SMB2 2.2.14.2.12 | every durable handle is persistent", 4, 2)


@requests("durable-without-oplock | MS-SMB2 3.3.5.9.6 | an open without handle caching is durable")
def durable_without_oplock(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not context_at(message, b"DHnQ", b"DH2Q"):
        return message.raw
    return message.encoded().override(oplock=int(Oplock.BATCH)).data


@requests("reconnect-refused | MS-SMB2 3.3.5.9.12 | no handle is found at a reconnect")
def reconnect_refused(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = context_at(message, b"DHnC", b"DH2C")
    return put(message.raw, at, b"\x77" * 16) if at else message.raw


@requests("create-guid-not-compared | MS-SMB2 3.3.5.9.12 | the create GUID of a reconnect is not compared")
def create_guid_not_compared(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if at := context_at(message, b"DH2Q"):
        talk.shared["guid"] = message.raw[at + 16 : at + 32]
    at = context_at(message, b"DH2C")
    return put(message.raw, at + 16, talk.shared["guid"]) if at else message.raw


@requests("replay-always | MS-SMB2 3.3.5.9.10 | a second CREATE with one GUID is a replay without the flag")
def replay_always(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not context_at(message, b"DH2Q"):
        return message.raw
    flags = int(message.flags | Flags.REPLAY)
    return message.encoded().override(header_flags=flags).data


asks(
    "replay-ignored | MS-SMB2 3.3.5.9.10 | the flag of a replay is ignored",
    SmbCommand.CREATE,
    header_flags=lambda message: int(message.flags & ~Flags.REPLAY),
)


@mutant("file-id-changes | MS-SMB2 3.3.5.9.10 | a replay returns another FileId")
def file_id_changes(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not context_at(message, b"DH2Q"):
        return message.raw
    return message.encoded().override(file_id=bytes([_counted(talk)]) * 16).data


@requests("sequence-ignored | MS-SMB2 3.3.5.2.10 | the channel sequence is ignored")
def sequence_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.encoded().override(status=0).data
