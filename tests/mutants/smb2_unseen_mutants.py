"""Broken rules of MS-SMB2, MS-FSA and MS-FSCC that were written from their text, without a look at the suite."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable

from smb2_proxy_connection import (
    MUTANTS,
    SmbMutant,
    SmbProxyConnection,
    asks,
    context_at,
    mutant,
    put,
    requests,
    same,
    sets,
)

from storagetest.wire.smb2 import crypto
from storagetest.wire.smb2.codes import (
    FileInfo,
    Flags,
    Fsctl,
    InfoType,
    NotifyAction,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import NOTIFICATION, SmbMessage, response
from storagetest.wire.smb2.stream import frame

LARGE = 64 * 1024
LAST_WRITE_AT = 16
"""Offset of LastWriteTime in FileBasicInformation (MS-FSCC 2.4.7)."""


def _kept(message: SmbMessage) -> dict[str, int]:
    return {
        key: message.header[key] for key in ("message_id", "session_id", "tree_id") if key in message.header
    }


def _forged(talk: SmbProxyConnection, message: SmbMessage, command: SmbCommand, tail: bytes = b"") -> bytes:
    """Answer a request in the server's stead, which does not receive it."""
    made = response(command, tail).override(**_kept(message), credit_charge=1, credits=1)
    talk.send_to_host(frame(made.data))
    return b""


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


def _status(row: str, command: SmbCommand, status: SmbStatus, instead: SmbStatus) -> None:
    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command or message.status != status:
            return message.raw
        return message.encoded().override(status=instead).data


sets(
    "system-time-zero | MS-SMB2 2.2.4 | SystemTime of a NEGOTIATE is 0 below 3.1.1",
    SmbCommand.NEGOTIATE,
    system_time=lambda message: message["system_time"] if message["dialect"] == 0x311 else 0,
)
sets(
    "signing-not-enabled-302 | MS-SMB2 3.3.5.4 | 3.0.2 alone has no SIGNING_ENABLED",
    SmbCommand.NEGOTIATE,
    security_mode=lambda message: 0 if message["dialect"] == 0x302 else message["security_mode"],
)


@mutant("negotiate-again-answered | MS-SMB2 3.3.5.4 | a second NEGOTIATE on a connection is answered")
def negotiate_again_answered(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if _succeeded(message, SmbCommand.NEGOTIATE) and not hasattr(talk, "negotiated"):
        talk.negotiated = message  # type: ignore[attr-defined]
    return message.raw


def _negotiate_again(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    first = getattr(talk, "negotiated", None)
    if message.command != SmbCommand.NEGOTIATE or first is None:
        return message.raw
    talk.send_to_host(frame(first.encoded().override(message_id=message["message_id"]).data))
    return b""


MUTANTS["negotiate-again-answered"].request = _negotiate_again


@mutant(
    "compound-second-signature | MS-SMB2 3.3.4.1.1 | the second response of a compound has a wrong signature",
    protected=True,
)
def compound_second_signature(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    later = talk.shared.get("later", False)
    talk.shared["later"] = bool(message.header["next_command"])
    if not later or not message.flags & Flags.SIGNED:
        return message.raw
    return put(message.raw, 48, bytes([message.raw[48] ^ 1]))


class _LargeSealed(SmbProxyConnection):
    def _frame(self, data: bytes) -> bytes:
        if data[:4] == crypto.TRANSFORM_ID and len(data) > LARGE // 2:
            return data[:-1] + bytes([data[-1] ^ 1])
        return data


class _LargeSealedMutant(SmbMutant):
    def rewrites(self) -> Callable[[], SmbProxyConnection]:
        return lambda: _LargeSealed(self, {})


MUTANTS["sealed-large-broken"] = _LargeSealedMutant(
    "sealed-large-broken",
    "MS-SMB2 3.1.4.3",
    "encrypted responses of more than 32 KiB cannot be decrypted",
    same,
)


def _grants_none(name: str, command: SmbCommand) -> None:
    @mutant(f"{name} | MS-SMB2 3.3.1.2 | a {command.name} of several credits is granted none")
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        wanted = message.command == command and message.header["credit_charge"] > 1
        if not wanted or message.status not in (SmbStatus.SUCCESS, SmbStatus.PENDING):
            return message.raw
        return message.encoded().override(credits=0).data  # an interim response grants for the final one


_grants_none("large-read-no-credits", SmbCommand.READ)
_grants_none("large-write-no-credits", SmbCommand.WRITE)
_grants_none("large-list-no-credits", SmbCommand.QUERY_DIRECTORY)


@mutant("charge-too-low-served | MS-SMB2 3.3.5.2.5 | a READ with a CreditCharge that is too low is served")
def charge_too_low_served(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.READ or message.status != SmbStatus.INVALID_PARAMETER or asked is None:
        return message.raw
    if asked["length"] <= LARGE * max(1, asked.header["credit_charge"]):
        return message.raw
    kept = {key: message.header[key] for key in ("message_id", "session_id", "tree_id", "credits")}
    made = response(SmbCommand.READ, bytes(asked["length"])).override(
        **kept, credit_charge=1, buffer_offset=80
    )
    return made.data


@mutant(
    "compound-failed-file-closed | MS-SMB2 3.3.5.2.7.2 | a related request after a failed CREATE ends with FILE_CLOSED"
)
def compound_failed_file_closed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    related = message.flags & Flags.RELATED or talk.shared.get("later", False)
    talk.shared["later"] = bool(message.header["next_command"])
    if message.is_error and related and message.command != SmbCommand.CREATE:
        return message.encoded().override(status=SmbStatus.FILE_CLOSED).data
    return message.raw


@mutant("compound-unaligned | MS-SMB2 3.3.4.1.3 | NextCommand of a response is not a multiple of 8")
def compound_unaligned(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    step = message.header["next_command"]
    return message.encoded().override(next_command=step + 4).data + bytes(4) if step else message.raw


@mutant("oplock-break-to-exclusive | MS-SMB2 2.2.23.1 | an oplock break goes to EXCLUSIVE")
def oplock_break_to_exclusive(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    notified = message["message_id"] == NOTIFICATION and message.command == SmbCommand.OPLOCK_BREAK
    return (
        message.encoded().override(oplock=8).data if notified and not message.is_lease_break else message.raw
    )


@mutant("lease-break-same-state | MS-SMB2 2.2.23.2 | a lease break leaves the lease as it is")
def lease_break_same_state(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.is_lease_break:
        return message.raw
    return message.encoded().override(new_state=message["current_state"]).data


def _second_lease(row: str, at: int, width: int, *, length: int) -> None:
    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        where = context_at(message, b"RqLs")
        if not where or message.status:
            return message.raw
        size = int.from_bytes(message.raw[where - 12 : where - 8], "little")
        key = message.raw[where : where + 16]
        again = key in talk.shared
        talk.shared[key] = True
        return put(message.raw, where + at, bytes(width)) if again and size >= length else message.raw


_second_lease(
    "lease-again-epoch-zero | MS-SMB2 2.2.14.2.11 | a second open with a lease key has epoch 0",
    48,
    2,
    length=52,
)
_second_lease(
    "lease-again-none | MS-SMB2 3.3.5.9.8 | a second open with a lease key has no lease", 16, 4, length=32
)


@mutant("durable-any-guid | MS-SMB2 3.3.5.9.12 | a reconnect with another CreateGuid gets the handle")
def durable_any_guid(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if _succeeded(message, SmbCommand.CREATE) and asked is not None:
        at = asked.raw.find(b"DH2Q")
        if at > 0:
            talk.shared[message["file_id"][:8]] = asked.raw[at + 24 : at + 40]
    return message.raw


def _any_guid(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    at = message.raw.find(b"DH2C")
    if message.command != SmbCommand.CREATE or at < 0:
        return message.raw
    guid = talk.shared.get(message.raw[at + 8 : at + 16])
    return put(message.raw, at + 24, guid) if guid else message.raw


MUTANTS["durable-any-guid"].request = _any_guid


@mutant("reconnect-size-zero | MS-SMB2 3.3.5.9.7 | the response to a reconnect has an EndofFile of 0")
def reconnect_size_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _succeeded(message, SmbCommand.CREATE) or asked is None:
        return message.raw
    if b"DHnC" not in asked.raw and b"DH2C" not in asked.raw:
        return message.raw
    return message.encoded().override(end_of_file=0).data


@mutant("notify-rename-old-only | MS-FSCC 2.7.1 | a change of a name is notified without the new name")
def notify_rename_old_only(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.CHANGE_NOTIFY) or not message.buffer:
        return message.raw
    data, entries, at = message.buffer, [], 0
    while True:
        step, action, length = struct.unpack_from("<III", data, at)
        if action != NotifyAction.RENAMED_NEW_NAME:
            entries.append(data[at + 4 : at + 12 + length])
        if not step:
            break
        at += step
    out = b""
    for number, one in enumerate(entries):
        body = one + bytes(-(len(one) + 4) % 4)
        out += (len(body) + 4 if number < len(entries) - 1 else 0).to_bytes(4, "little") + body
    start = message["buffer_offset"]
    return message.encoded().override(buffer_length=len(out)).data[:start] + out


@mutant(
    "notify-cleanup-lost | MS-SMB2 3.3.5.10 | a CHANGE_NOTIFY is not answered when its directory is closed"
)
def notify_cleanup_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    lost = message.command == SmbCommand.CHANGE_NOTIFY and message.status == SmbStatus.NOTIFY_CLEANUP
    return b"" if lost else message.raw


@requests("restart-second-ignored | MS-SMB2 3.3.5.18 | the second RESTART_SCANS of an open is ignored")
def restart_second_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY or not message["flags"] & 1:
        return message.raw
    key = message["file_id"]
    talk.shared[key] = talk.shared.get(key, 0) + 1
    if talk.shared[key] < 2:
        return message.raw
    return message.encoded().override(flags=message["flags"] & ~1).data


asks(
    "single-entry-ignored | MS-SMB2 3.3.5.18 | RETURN_SINGLE_ENTRY returns several entries",
    SmbCommand.QUERY_DIRECTORY,
    flags=lambda message: message["flags"] & ~2,
)
_status(
    "no-match-no-more-files | MS-SMB2 3.3.5.18 | a first query without a match ends with NO_MORE_FILES",
    SmbCommand.QUERY_DIRECTORY,
    SmbStatus.NO_SUCH_FILE,
    SmbStatus.NO_MORE_FILES,
)


@mutant("last-entry-next | MS-FSCC 2.4 | NextEntryOffset of the last directory entry is not 0")
def last_entry_next(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.QUERY_DIRECTORY) or not message.buffer:
        return message.raw
    at = 0
    while step := int.from_bytes(message.buffer[at : at + 4], "little"):
        at += step
    rest = len(message.buffer) - at
    return put(message.raw, message["buffer_offset"] + at, (rest + -rest % 8).to_bytes(4, "little"))


@requests("question-mark-is-star | MS-FSA 2.1.4.4 | ? in a pattern matches any number of characters")
def question_mark_is_star(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY or not message.buffer:
        return message.raw
    pattern = message.buffer.decode("utf-16-le").replace("?", "*").encode("utf-16-le")
    return put(message.raw, message["buffer_offset"], pattern)


@requests(
    "allocation-shrink-ignored | MS-FSA 2.1.5.15.1 | an allocation below the end of the file does nothing"
)
def allocation_shrink_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.SET_INFO or message["info_class"] != FileInfo.ALLOCATION:
        return message.raw
    return _forged(talk, message, SmbCommand.SET_INFO)


@requests("rename-always-replaces | MS-FSA 2.1.5.15.11 | a rename replaces what ReplaceIfExists forbids")
def rename_always_replaces(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = message.command == SmbCommand.SET_INFO and message["info_class"] == FileInfo.RENAME
    return put(message.raw, message["buffer_offset"], b"\1") if wanted else message.raw


asks(
    "lock-first-of-two | MS-SMB2 3.3.5.14 | a LOCK of two ranges locks the first alone",
    SmbCommand.LOCK,
    lock_count=1,
)


@mutant("unlock-not-locked | MS-SMB2 3.3.5.14.1 | an unlock of a range that is not locked succeeds")
def unlock_not_locked(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.LOCK or message.status != SmbStatus.RANGE_NOT_LOCKED:
        return message.raw
    return response(SmbCommand.LOCK).override(**_kept(message), credit_charge=1, credits=1).data


@mutant("copychunk-total-of-last | MS-SMB2 2.2.32.1 | TotalBytesWritten is that of the last chunk")
def copychunk_total_of_last(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _succeeded(message, SmbCommand.IOCTL) or asked is None or len(message.buffer) != 12:
        return message.raw
    if (
        asked["control_code"] not in (Fsctl.SRV_COPYCHUNK, Fsctl.SRV_COPYCHUNK_WRITE)
        or len(asked.buffer) < 80
    ):
        return message.raw
    return put(message.raw, message["buffer_offset"] + 8, asked.buffer[-8:-4])


asks(
    "ioctl-without-fsctl | MS-SMB2 3.3.5.15 | an IOCTL whose flags are 0 is served", SmbCommand.IOCTL, flags=1
)


@mutant("allocated-first-range | MS-FSCC 2.3.48 | the allocated ranges after the first are missing")
def allocated_first_range(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = _succeeded(message, SmbCommand.IOCTL) and message["control_code"] == Fsctl.QUERY_ALLOCATED_RANGES
    return (
        message.encoded().override(buffer_length=16).data
        if wanted and len(message.buffer) > 16
        else message.raw
    )


@mutant("stream-sizes-zero | MS-FSCC 2.4.49 | the sizes of named streams are 0")
def stream_sizes_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if not _succeeded(message, SmbCommand.QUERY_INFO) or asked is None or not message.buffer:
        return message.raw
    if asked["info_type"] != InfoType.FILE or asked["info_class"] != FileInfo.STREAM:
        return message.raw
    out, at = message.raw, 0
    while True:
        step, length = struct.unpack_from("<II", message.buffer, at)
        if message.buffer[at + 24 : at + 24 + length] != "::$DATA".encode("utf-16-le"):
            out = put(out, message["buffer_offset"] + at + 8, bytes(8))
        if not step:
            return out
        at += step


@requests("zero-time-is-set | MS-FSCC 2.4.7 | a LastWriteTime of 0 sets the time to 1970")
def zero_time_is_set(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = message.command == SmbCommand.SET_INFO and message["info_class"] == FileInfo.BASIC
    if not wanted or len(message.buffer) < 40 or any(message.buffer[LAST_WRITE_AT : LAST_WRITE_AT + 8]):
        return message.raw
    epoch = 116444736000000000
    return put(message.raw, message["buffer_offset"] + LAST_WRITE_AT, epoch.to_bytes(8, "little"))


_status(
    "bind-unknown-session | MS-SMB2 3.3.5.5 | a binding to a session that does not exist ends with ACCESS_DENIED",
    SmbCommand.SESSION_SETUP,
    SmbStatus.USER_SESSION_DELETED,
    SmbStatus.ACCESS_DENIED,
)
_status(
    "cancelled-notify-succeeds | MS-SMB2 3.3.5.16 | a CHANGE_NOTIFY that is cancelled ends with success",
    SmbCommand.CHANGE_NOTIFY,
    SmbStatus.CANCELLED,
    SmbStatus.SUCCESS,
)


@mutant(
    "final-async-id-other | MS-SMB2 3.3.4.1 | the final response has another AsyncId than the interim one"
)
def final_async_id_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not message.flags & Flags.ASYNC or message.status == SmbStatus.PENDING:
        return message.raw
    return message.encoded().override(async_id=message.header["async_id"] + 1).data


@mutant("final-synchronous | MS-SMB2 3.3.4.1 | the final response to a CHANGE_NOTIFY is synchronous")
def final_synchronous(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    is_final = message.flags & Flags.ASYNC and message.status != SmbStatus.PENDING
    if message.command != SmbCommand.CHANGE_NOTIFY or not is_final:
        return message.raw
    return message.encoded().override(header_flags=message.flags & ~Flags.ASYNC).data


@requests("tree-disconnect-ignored | MS-SMB2 3.3.5.8 | opens of a tree that is disconnected stay in use")
def tree_disconnect_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.TREE_DISCONNECT:
        return message.raw
    return _forged(talk, message, SmbCommand.TREE_DISCONNECT)


# Of the same families


class _LargeSigned(SmbProxyConnection):
    def _frame(self, data: bytes) -> bytes:
        signed = data[:4] == b"\xfeSMB" and int.from_bytes(data[16:20], "little") & Flags.SIGNED
        return put(data, 48, bytes([data[48] ^ 1])) if signed and len(data) > LARGE // 2 else data


class _LargeSignedMutant(SmbMutant):
    def rewrites(self) -> Callable[[], SmbProxyConnection]:
        return lambda: _LargeSigned(self, {})


MUTANTS["signed-large-broken"] = _LargeSignedMutant(
    "signed-large-broken", "MS-SMB2 3.1.4.1", "signatures of more than 32 KiB are wrong", same
)


@mutant("allocated-outside | MS-FSA 2.1.5.10.22 | allocated ranges begin before the range that was asked for")
def allocated_outside(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = _succeeded(message, SmbCommand.IOCTL) and message["control_code"] == Fsctl.QUERY_ALLOCATED_RANGES
    return put(message.raw, message["buffer_offset"], bytes(8)) if wanted and message.buffer else message.raw


@requests("zero-data-pages | MS-FSA 2.1.5.10.40 | SET_ZERO_DATA zeroes the whole pages that it touches")
def zero_data_pages(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = message.command == SmbCommand.IOCTL and message["control_code"] == Fsctl.SET_ZERO_DATA
    if not wanted or len(message.buffer) != 16:
        return message.raw
    start, end = struct.unpack("<QQ", message.buffer)
    return put(message.raw, message["buffer_offset"], struct.pack("<QQ", start & ~4095, end + -end % 4096))
