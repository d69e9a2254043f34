"""Broken rules of MS-SMB2, MS-FSA and MS-FSCC that bug reports of servers have."""

from __future__ import annotations

import struct

from smb2_proxy_connection import SmbProxyConnection, mutant, put, requests

from storagetest.wire.smb2.codes import FileInfo, Flags, InfoType, Lease, SmbCommand, SmbNotify, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response
from storagetest.wire.smb2.stream import frame

NAMES = SmbNotify.FILE_NAME | SmbNotify.DIR_NAME
KEPT = ("message_id", "session_id", "tree_id", "credits", "credit_charge")
LEASE = b"RqLs"
BROKEN = 2
"""SMB2_LEASE_FLAG_BREAK_IN_PROGRESS (2.2.14.2.10)."""


def _asked(talk: SmbProxyConnection, message: SmbMessage, command: SmbCommand) -> SmbMessage | None:
    """Return the request of a response to ``command``, unless that is an error."""
    if message.command != command or message.is_error or message.status:
        return None
    return talk.asked.get(message["message_id"])


def _with(message: SmbMessage, data: bytes) -> bytes:
    """Return the response with other data."""
    kept = {key: message.header[key] for key in KEPT if key in message.header}
    return response(SmbCommand(message.command), data).override(**kept).data


@requests("notify-directories-as-files | MS-SMB2 2.2.35 | a watch of names of files reports directories, too")
def notify_directories_as_files(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CHANGE_NOTIFY or message["filter"] & NAMES != SmbNotify.FILE_NAME:
        return message.raw
    return message.encoded().override(filter=message["filter"] | SmbNotify.DIR_NAME).data


@mutant(
    "short-buffer-ends-listing | MS-FSA 2.1.5.6.3 | a buffer that is too small for an entry ends the listing"
)
def short_buffer_ends_listing(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    short = (SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.BUFFER_OVERFLOW)
    if message.command != SmbCommand.QUERY_DIRECTORY or message.status not in short:
        return message.raw
    return message.encoded().override(status=SmbStatus.NO_MORE_FILES).data


@mutant("all-information-too-long | MS-FSCC 2.4.2 | FileAllInformation has 8 bytes behind its name")
def all_information_too_long(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message, SmbCommand.QUERY_INFO)
    if asked is None or (asked["info_type"], asked["info_class"]) != (InfoType.FILE, FileInfo.ALL):
        return message.raw
    return _with(message, message.buffer + bytes(8))


@mutant("lease-broken-by-own-rename | MS-FSA 2.1.4.12 | a rename by the open of a lease breaks it")
def lease_broken_by_own_rename(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    made = _asked(talk, message, SmbCommand.CREATE)
    if made is not None and (at := message.raw.find(LEASE, 64)) > 0:
        talk.shared[message["file_id"]] = message.raw[at + 8 : at + 24]
    asked = _asked(talk, message, SmbCommand.SET_INFO)
    if asked is not None and asked["info_class"] == FileInfo.RENAME and asked["file_id"] in talk.shared:
        talk.send_to_host(frame(_notification(talk.shared.pop(asked["file_id"]))))
    return message.raw


def _notification(key: bytes) -> bytes:
    """Return the notification that a lease of every kind of caching loses that of handles (2.2.23.2)."""
    now = Lease.READ | Lease.WRITE | Lease.HANDLE
    header = struct.pack(
        "<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 0, 0, 18, 0, 1, 0, 2**64 - 1, 0, 0, 0, bytes(16)
    )
    return header + struct.pack("<HHI16sIIIII", 44, 0, 1, key, now, now & ~Lease.HANDLE, 0, 0, 0)


def _flagged(row: str, *, broken: bool) -> None:
    """A mutant that sets or clears BREAK_IN_PROGRESS of every lease that is granted."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if _asked(talk, message, SmbCommand.CREATE) is None or (at := message.raw.find(LEASE, 64)) <= 0:
            return message.raw
        flags = struct.unpack_from("<I", message.raw, at + 28)[0]
        return put(message.raw, at + 28, struct.pack("<I", flags | BROKEN if broken else flags & ~BROKEN))


_flagged("lease-break-flag-always | MS-SMB2 2.2.14.2.10 | each lease is stated to be in a break", broken=True)
_flagged("lease-break-flag-never | MS-SMB2 2.2.14.2.10 | no lease is stated to be in a break", broken=False)


@mutant("directory-locked | MS-FSA 2.1.5.8 | a lock of a range of a directory is granted")
def directory_locked(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    refused = (SmbStatus.INVALID_PARAMETER, SmbStatus.INVALID_DEVICE_REQUEST)
    if message.command != SmbCommand.LOCK or message.status not in refused:
        return message.raw
    kept = {key: message.header[key] for key in KEPT if key in message.header}
    return response(SmbCommand.LOCK).override(**kept).data


@mutant(
    "charge-of-later-ignored | MS-SMB2 3.3.5.2.5 | a later READ of a compound is served whatever its charge"
)
def charge_of_later_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.READ or message.status != SmbStatus.INVALID_PARAMETER or asked is None:
        return message.raw
    if not asked.flags & Flags.RELATED:
        return message.raw
    return _with(message, bytes(asked["length"]))
