"""Broken rules of directories, information, notifications, names, locks and copies."""

import struct

from smb2_proxy_connection import SmbProxyConnection, asks, mutant, put, requests

from storagetest.wire.smb2.codes import FileInfo, Fsctl, InfoType, Lock, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage

LENGTH_AND_NAME = {1: (60, 64), 2: (60, 68), 3: (60, 94), 12: (8, 12), 37: (60, 104), 38: (60, 80)}
"""Offsets of FileNameLength and FileName in the entries of each class (MS-FSCC 2.4)."""


def _counted(talk: SmbProxyConnection) -> int:
    talk.shared["count"] = talk.shared.get("count", 0) + 1
    return talk.shared["count"]


# Directories


def _entries(row, change, *, sized=True):
    """A mutant that changes every entry of listings: ``change(raw, start, info_class)`` returns raw."""

    @mutant(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.QUERY_DIRECTORY or message.status:
            return message.raw
        number = talk.asked[message["message_id"]]["info_class"]
        raw, at = message.raw, message["buffer_offset"]
        if sized and number == FileInfo.NAMES:
            return raw
        while True:
            raw = change(raw, at, number)
            step = int.from_bytes(raw[at : at + 4], "little")
            if not step:
                return raw
            at += step


def _flip(raw: bytes, at: int, bits: int = 1) -> bytes:
    return put(raw, at, bytes([raw[at] ^ bits]))


_entries(
    "directory-name-other | MS-FSA 2.1.5.6.3 | names of a listing are others",
    lambda raw, at, number: _flip(raw, at + LENGTH_AND_NAME[number][1]),
    sized=False,
)
_entries(
    "directory-size-other | MS-FSCC 2.4 | sizes of a listing are others",
    lambda raw, at, _number: _flip(raw, at + 40),
)
_entries(
    "directory-attributes-other | MS-FSCC 2.6 | a listing's files are directories, and its directories files",
    lambda raw, at, _number: _flip(raw, at + 56, 0x10),
)


@mutant("directory-entry-lost | MS-FSA 2.1.5.6.3 | a listing lacks the last entry of each response")
def directory_entry_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY or message.status:
        return message.raw
    at, before = message["buffer_offset"], 0
    while step := int.from_bytes(message.raw[at : at + 4], "little"):
        before, at = at, at + step
    if not before:
        return message.raw
    cut = put(message.raw, before, bytes(4))
    return put(cut, 68, struct.pack("<I", at - message["buffer_offset"]))


asks(
    "single-ignored | MS-SMB2 3.3.5.18 | SMB2_RETURN_SINGLE_ENTRY is ignored",
    SmbCommand.QUERY_DIRECTORY,
    flags=lambda message: message["flags"] & ~2,
)
asks(
    "restart-ignored | MS-SMB2 3.3.5.18 | SMB2_RESTART_SCANS and SMB2_REOPEN are ignored",
    SmbCommand.QUERY_DIRECTORY,
    flags=lambda message: message["flags"] & ~0x11,
)


@requests("pattern-ignored | MS-FSA 2.1.4.4 | every name matches every pattern")
def pattern_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY:
        return message.raw
    return put(message.raw, message["buffer_offset"], b"*\0" * (message["buffer_length"] // 2))


@requests("length-ignored | MS-SMB2 3.3.5.18, 3.3.5.19, 3.3.5.20 | OutputBufferLength is ignored")
def length_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command not in (SmbCommand.QUERY_DIRECTORY, SmbCommand.QUERY_INFO, SmbCommand.CHANGE_NOTIFY):
        return message.raw
    return message.encoded().override(output_length=65536).data


# Information


@mutant("info-short | MS-FSCC 2.4 | a class is a byte shorter")
def info_short(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_INFO or message.status:
        return message.raw
    return message.encoded().override(buffer_length=message["buffer_length"] - 1).data


@mutant("info-value-other | MS-FSCC 2.4, 2.5 | the values of a class are others")
def info_value_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_INFO or message.status:
        return message.raw
    bits = _counted(talk) & 0x7F or 1
    return put(message.raw, message["buffer_offset"], bytes(one ^ bits for one in message.buffer))


@mutant("info-overflow-hidden | MS-SMB2 3.3.5.20.1 | a class that was cut ends in success")
def info_overflow_hidden(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_INFO or message.status != SmbStatus.BUFFER_OVERFLOW:
        return message.raw
    return message.encoded().override(status=0).data


@mutant("stream-size-other | MS-FSCC 2.4.49 | the size of a stream is another")
def stream_size_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = talk.asked.get(message["message_id"])
    if message.command != SmbCommand.QUERY_INFO or message.status or asked is None:
        return message.raw
    is_streams = (asked["info_type"], asked["info_class"]) == (InfoType.FILE, FileInfo.STREAM)
    return _flip(message.raw, message["buffer_offset"] + 8) if is_streams else message.raw


@requests("security-parts-lost | MS-SMB2 3.3.5.20.3 | a security descriptor lacks the requested part")
def security_parts_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_INFO or message["info_type"] != InfoType.SECURITY:
        return message.raw
    return message.encoded().override(additional=0).data


def _set_info(row, number, change):
    """A mutant that changes SET_INFO requests of a class: ``change(message)``."""

    @requests(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.SET_INFO or message["info_class"] != number:
            return message.raw
        return change(message)


def _as_position(message: SmbMessage) -> bytes:
    """Set the position instead, which changes nothing."""
    return message.encoded().override(info_class=int(FileInfo.POSITION), buffer_length=8).data


_set_info(
    "size-not-set | MS-FSA 2.1.5.15.4 | the end of a file is not set", FileInfo.END_OF_FILE, _as_position
)
_set_info("rename-ignored | MS-FSA 2.1.5.15.11 | a rename changes nothing", FileInfo.RENAME, _as_position)
_set_info(
    "rename-replaces | MS-FSA 2.1.5.15.11 | a rename replaces a file without the flag",
    FileInfo.RENAME,
    lambda message: put(message.raw, message["buffer_offset"], b"\1"),
)
_set_info(
    "attributes-not-set | MS-FSA 2.1.5.15.2 | basic information is not set",
    FileInfo.BASIC,
    lambda message: put(message.raw, message["buffer_offset"], bytes(36)),
)


def _special_as_time(message: SmbMessage) -> bytes:
    """Replace -1 and -2 by a time, as a server does that takes them for one."""
    data, at = message.raw, message["buffer_offset"]
    for place in range(at, at + 24, 8):
        if int.from_bytes(data[place : place + 8], "little", signed=True) in (-1, -2):
            data = put(data, place, (0x01D8_0000_0000_0000).to_bytes(8, "little"))
    return data


_set_info(
    "special-times-stored | MS-FSCC 2.4.7 | -1 and -2 are stored as times", FileInfo.BASIC, _special_as_time
)
_set_info(
    "disposition-ignored | MS-FSA 2.1.5.15.3 | a disposition is not set",
    FileInfo.DISPOSITION,
    lambda message: put(message.raw, message["buffer_offset"], b"\0"),
)

# CREATE

asks("share-ignored | MS-FSA 2.1.5.1.2.2 | every open shares everything", SmbCommand.CREATE, share=7)
asks(
    "access-more | MS-FSA 2.1.5.1 | every open gets every access",
    SmbCommand.CREATE,
    access=lambda message: message["access"] | 0x10000000,
)
asks(
    "delete-on-close-ignored | MS-FSA 2.1.5.1 | FILE_DELETE_ON_CLOSE is ignored",
    SmbCommand.CREATE,
    options=lambda message: message["options"] & ~0x1000,
)
asks(
    "type-ignored | MS-FSA 2.1.5.1 | FILE_DIRECTORY_FILE and FILE_NON_DIRECTORY_FILE are ignored",
    SmbCommand.CREATE,
    options=lambda message: message["options"] & ~0x41,
)
asks(
    "create-opens | MS-SMB2 2.2.13 | FILE_CREATE opens a file that exists",
    SmbCommand.CREATE,
    disposition=lambda message: 3 if message["disposition"] == 2 else message["disposition"],
)
asks(
    "open-creates | MS-SMB2 2.2.13 | FILE_OPEN creates a file that does not exist",
    SmbCommand.CREATE,
    disposition=lambda message: 3 if message["disposition"] == 1 else message["disposition"],
)
asks(
    "overwrite-keeps | MS-SMB2 2.2.13 | FILE_OVERWRITE and FILE_OVERWRITE_IF keep what is in the file",
    SmbCommand.CREATE,
    disposition=lambda message: {4: 1, 5: 3}.get(message["disposition"], message["disposition"]),
)

# READ, WRITE, CLOSE, LOCK

asks("read-offset-ignored | MS-SMB2 3.3.5.12 | READ begins at 0", SmbCommand.READ, offset=0)
asks("write-offset-ignored | MS-SMB2 3.3.5.13 | WRITE begins at 0", SmbCommand.WRITE, offset=0)
asks("minimum-ignored | MS-SMB2 3.3.5.12 | MinimumCount is ignored", SmbCommand.READ, minimum=0)
asks("close-flags-ignored | MS-SMB2 3.3.5.10 | CLOSE returns no attributes", SmbCommand.CLOSE, flags=0)


def _locks(row, change):
    """A mutant that changes the first element of LOCK: ``change(length, flags)``."""

    @requests(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.LOCK:
            return message.raw
        length, flags = struct.unpack_from("<QI", message.raw, 96)
        if flags & Lock.UNLOCK:
            return message.raw
        return put(message.raw, 96, struct.pack("<QI", *change(length, flags)))


_locks("lock-short | MS-SMB2 3.3.5.14.2 | one byte is locked", lambda _length, flags: (1, flags))
_locks(
    "lock-shared-always | MS-SMB2 3.3.5.14.2 | every lock is shared",
    lambda length, flags: (length, flags & ~Lock.EXCLUSIVE | Lock.SHARED),
)
_locks(
    "lock-exclusive-always | MS-SMB2 3.3.5.14.2 | every lock is exclusive",
    lambda length, flags: (length, flags & ~Lock.SHARED | Lock.EXCLUSIVE),
)
_locks(
    "lock-fails-at-once | MS-SMB2 3.3.5.14.2 | no lock waits",
    lambda length, flags: (length, flags | Lock.FAIL_IMMEDIATELY),
)

# CHANGE_NOTIFY


def _is_notified(message: SmbMessage) -> bool:
    return message.command == SmbCommand.CHANGE_NOTIFY and not message.is_interim


@mutant("notify-lost | MS-SMB2 3.3.4.1 | a change is not reported")
def notify_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
    return None if _is_notified(message) else message.raw


def _changes(row, at, bits):
    @mutant(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if not _is_notified(message) or message.status or not message.buffer:
            return message.raw
        raw, start = message.raw, message["buffer_offset"]
        while True:
            raw = _flip(raw, start + at, bits)
            step = int.from_bytes(raw[start : start + 4], "little")
            if not step:
                return raw
            start += step


_changes("notify-action-other | MS-FSCC 2.7.1 | a change is of another action", 4, 8)
_changes("notify-name-other | MS-FSCC 2.7.1 | a change is of another name", 12, 1)


@mutant("notify-status-other | MS-SMB2 3.3.4.1 | a watch ends with another status")
def notify_status_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _is_notified(message) or not message.status:
        return message.raw
    return message.encoded().override(status=SmbStatus.UNSUCCESSFUL).data


asks(
    "notify-filter-ignored | MS-SMB2 2.2.35 | CompletionFilter is ignored",
    SmbCommand.CHANGE_NOTIFY,
    filter=0x1F,
)
asks("notify-watches-tree | MS-SMB2 2.2.35 | every watch is of the tree", SmbCommand.CHANGE_NOTIFY, flags=1)
asks("notify-tree-ignored | MS-SMB2 2.2.35 | SMB2_WATCH_TREE is ignored", SmbCommand.CHANGE_NOTIFY, flags=0)

# IOCTL

asks(
    "ioctl-length-ignored | MS-SMB2 3.3.5.15 | MaxOutputResponse is ignored",
    SmbCommand.IOCTL,
    max_output=65536,
)


def _ioctl(row, code, change, *, status=0):
    """A mutant that changes the output of IOCTL responses: ``change(talk, buffer)``."""

    @mutant(row)
    def rewrite(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        is_it = message.command == SmbCommand.IOCTL and not message.is_error and message.status == status
        if not is_it or message["control_code"] != code:
            return message.raw
        return put(message.raw, message["buffer_offset"], change(talk, message.buffer))


_ioctl(
    "copy-limits-zero | MS-SMB2 3.3.5.15.6.2 | the limits of server-side copies are 0",
    Fsctl.SRV_COPYCHUNK,
    lambda _talk, data: bytes(len(data)),
    status=SmbStatus.INVALID_PARAMETER,
)
_ioctl(
    "resume-key-changes | MS-SMB2 3.3.5.15.5 | the resume key differs each time",
    Fsctl.SRV_REQUEST_RESUME_KEY,
    lambda talk, data: bytes([data[0] ^ _counted(talk)]) + data[1:],
)
_ioctl(
    "interfaces-cut | MS-SMB2 2.2.32.5 | an interface is of an unknown family",
    Fsctl.QUERY_NETWORK_INTERFACE_INFO,
    lambda _talk, data: put(data, 24, b"\x63"),
)
