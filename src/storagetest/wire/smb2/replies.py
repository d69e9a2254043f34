"""What every response of SMB 2 and 3 has to keep, whatever its case is about (MS-SMB2 2.2 and 3.3, MS-FSCC).

:class:`SmbRules` sees each request of a connection and its final response, and each break notification. A
fault is a sentence that names the rule alone, so that one fault of a server is one red case.

Rules:

1. Only a response to a request that has a form is judged.
2. Names are compared with the pattern of their scan only where one open had a single pattern, and only those
   that are their own short names: others may be listed because their short name matches (MS-FSA 2.1.5.6.3).
3. What MS-FSA states of files is judged on trees of shares that are disks; a tree that was connected on
   another connection is of an unknown kind.
4. What a related request of a compound is about, its header does not state.
"""

from __future__ import annotations

import fnmatch
import re
import struct
from collections.abc import Callable, Iterator, Mapping

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    BREAK_ACK_REQUIRED,
    INDEX_SPECIFIED,
    REOPEN,
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    SIGNING_ENABLED,
    Access,
    Action,
    Disposition,
    FileInfo,
    Flags,
    FsInfo,
    InfoType,
    Lease,
    Oplock,
    Options,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import SmbMessage, decode

_ACTIONS: Mapping[int, tuple[Action, ...]] = {
    Disposition.SUPERSEDE: (Action.SUPERSEDED, Action.CREATED),
    Disposition.OPEN: (Action.OPENED,),
    Disposition.CREATE: (Action.CREATED,),
    Disposition.OPEN_IF: (Action.OPENED, Action.CREATED),
    Disposition.OVERWRITE: (Action.OVERWRITTEN,),
    Disposition.OVERWRITE_IF: (Action.OVERWRITTEN, Action.CREATED),
}
_Broken = Iterator[tuple[str, str]]
"""Sections and what is broken."""

_ORDER = {Oplock.NONE: 0, Oplock.LEVEL_II: 1, Oplock.EXCLUSIVE: 2, Oplock.BATCH: 3}
_LISTED = frozenset(
    {
        FileInfo.DIRECTORY,
        FileInfo.FULL_DIRECTORY,
        FileInfo.BOTH_DIRECTORY,
        FileInfo.NAMES,
        FileInfo.ID_BOTH_DIRECTORY,
        FileInfo.ID_FULL_DIRECTORY,
    }
)


SYNCHRONOUS = "MS-SMB2 3.3.4.3, 3.3.4.4: a response after an interim one is not asynchronous"
"""The fault of a final response without SMB2_FLAGS_ASYNC_COMMAND, although the interim one has it."""

_SHORT = re.compile(r"[\w-]{1,8}(\.[\w-]{1,3})?", re.ASCII)
"""Names of at most eight characters and three more, which a server does not shorten."""


DISK, PIPE, PRINTER = 1, 2, 3
"""Types of shares (2.2.10)."""

_SPECIFIC = Access(0x000F_01FF)
"""The rights of an access mask that are no generic ones, without SYNCHRONIZE (2.2.13.1)."""

_DATA_SIZES: Mapping[bytes, tuple[int, ...]] = {
    c.DURABLE: (8,),
    c.DURABLE_V2: (8,),
    c.MAXIMAL_ACCESS: (8,),
    c.ON_DISK_ID: (32,),
    c.LEASE: (32, 52),
}
"""Bytes of the data of create contexts in responses (2.2.14.2.3 to 2.2.14.2.12)."""


class SmbRules:
    """The rules, and what the requests of one connection have asked for."""

    def __init__(self) -> None:
        self._asked: dict[int, SmbMessage] = {}
        self._patterns: dict[bytes, set[str]] = {}
        self._listed_names: dict[bytes, set[str]] = {}
        self._shares: dict[tuple[int, int], tuple[int, int]] = {}

    def sent(self, data: bytes, *, related: bool) -> None:
        """Note a request as its bytes. That of a related one in a compound names no FileId of its own."""
        try:
            message = decode(data)
        except RemoteProtocolError:
            return
        self._asked[int(message["message_id"])] = message
        if message.command == SmbCommand.QUERY_DIRECTORY and not related:
            pattern = message.buffer.decode("utf-16-le", "replace")
            self._patterns.setdefault(message["file_id"], set()).add(pattern)

    def faults(self, message: SmbMessage, interim: SmbMessage | None) -> list[str]:
        """Return a sentence for each rule that a final response breaks."""
        found = []
        if interim is not None and not message.flags & Flags.ASYNC:
            found.append(SYNCHRONOUS)
        elif interim is not None and message["async_id"] != interim["async_id"]:
            found.append(
                "MS-SMB2 3.3.4.3, 3.3.4.4: a response has another AsyncId than the interim one before it"
            )
        asked = self._asked.pop(int(message["message_id"]), None)
        if asked is None or asked.command != message.command:
            return found
        found += _other_header(asked, message)
        if message.is_error or message.status not in (0, SmbStatus.BUFFER_OVERFLOW):
            return found
        name = SmbCommand(message.command).name
        try:
            broken = list(self._broken(asked, message))
        except RemoteProtocolError:
            broken = [("MS-SMB2 2.2, MS-FSCC 2.4", "a list in the response is malformed")]
        return found + [f"{section}: {name}: {text}" for section, text in broken]

    def _broken(self, asked: SmbMessage, message: SmbMessage) -> _Broken:
        kind, most = self._shares.get((asked["session_id"], asked.header.get("tree_id", 0)), (0, 0))
        if asked.flags & Flags.RELATED:
            kind = 0
        if message.command == SmbCommand.TREE_CONNECT and "tree_id" in message.header:
            key = message["session_id"], message["tree_id"]
            self._shares[key] = message["share_type"], message["maximal_access"]
        if message.command in _RULES:
            yield from _RULES[SmbCommand(message.command)](asked, message)
        if kind == DISK and message.command in _OF_FILES:
            yield from _OF_FILES[SmbCommand(message.command)](asked, message)
        if kind == DISK and message.command == SmbCommand.CREATE and asked["access"] & _SPECIFIC & ~most:
            yield "MS-SMB2 2.2.10", "it grants access that is not in MaximalAccess of the tree"
        if message.command == SmbCommand.CREATE:  # a server may give the FileId of a closed open again
            self._listed_names.pop(message["file_id"], None)
        if message.command == SmbCommand.QUERY_DIRECTORY and not asked.flags & Flags.RELATED:
            yield from self._listed(asked, message)

    def _listed(self, asked: SmbMessage, message: SmbMessage) -> _Broken:
        if asked["info_class"] not in _LISTED or not message.buffer:
            return
        entries = directory_entries(message.buffer, asked["info_class"])
        if asked["flags"] & (RESTART_SCANS | REOPEN | INDEX_SPECIFIED):
            self._listed_names.pop(asked["file_id"], None)
        before = self._listed_names.setdefault(asked["file_id"], set())
        if before & {one.name for one in entries}:
            yield "MS-FSA 2.1.5.6.3", "an entry comes again, and the scan was not restarted"
        before |= {one.name for one in entries}
        patterns = self._patterns.get(asked["file_id"], set())
        pattern = next(iter(patterns)) if len(patterns) == 1 else ""
        if set(pattern) & set('<>"[]') or not pattern:
            return
        names = {one.name.lower() for one in entries if _SHORT.fullmatch(one.name)}
        if any(not fnmatch.fnmatchcase(name, pattern.lower()) for name in names):
            yield "MS-FSA 2.1.4.4", "an entry does not match the pattern"


def _other_header(asked: SmbMessage, message: SmbMessage) -> list[str]:
    """Compare the header with that of the request, which it has to match (3.3.4.3, 3.3.4.4)."""
    found: list[str] = []
    if not asked["session_id"] or asked.flags & Flags.RELATED:
        return found
    if message["session_id"] != asked["session_id"]:
        found.append("MS-SMB2 3.3.4.3, 3.3.4.4: a response has another SessionId than its request")
    is_error = message.is_error or message.status
    if "tree_id" not in message.header or is_error or message.command == SmbCommand.TREE_CONNECT:
        return found
    if message["tree_id"] != asked.header.get("tree_id"):
        found.append("MS-SMB2 3.3.4.3: a response has another TreeId than its request")
    return found


def notification_faults(message: SmbMessage) -> list[str]:
    """Return a sentence for each rule that a break notification breaks."""
    found = []
    if not message.is_lease_break:
        if message.header["status"] == 0 and message["oplock"] not in (Oplock.NONE, Oplock.LEVEL_II):
            found.append("MS-SMB2 2.2.23.1: an oplock break goes to another level than NONE and LEVEL_II")
        return found
    current, new = message["current_state"], message["new_state"]
    if new & ~current or new == current:
        found.append("MS-SMB2 2.2.23.2: a lease break does not take any state from the lease")
    if current & (Lease.HANDLE | Lease.WRITE) and not message["flags"] & BREAK_ACK_REQUIRED:
        found.append("MS-SMB2 3.3.4.7: a lease break from more than READ needs no acknowledgement")
    if current == Lease.READ and message["flags"] & BREAK_ACK_REQUIRED:
        found.append("MS-SMB2 3.3.4.7: a lease break from READ needs an acknowledgement")
    return found


# The commands


def _negotiate(_asked: SmbMessage, message: SmbMessage) -> _Broken:
    if not message["security_mode"] & SIGNING_ENABLED:
        yield "MS-SMB2 3.3.5.4", "SecurityMode has no SIGNING_ENABLED"
    if not message["system_time"]:
        yield "MS-SMB2 2.2.4", "SystemTime is 0"


def _tree_connect(_asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["share_type"] not in (DISK, PIPE, PRINTER):
        yield "MS-SMB2 2.2.10", "ShareType is none of DISK, PIPE and PRINT"


def _wanted(asked: SmbMessage) -> Mapping[bytes, bytes] | None:
    """Return the create contexts of a request; None if they are malformed."""
    try:
        return c.decode_create(asked.second) if asked.second else {}
    except RemoteProtocolError:
        return None


def _create(asked: SmbMessage, message: SmbMessage) -> _Broken:
    wanted = _wanted(asked)
    if message["oplock"] == Oplock.LEASE and wanted is not None and c.LEASE not in wanted:
        yield "MS-SMB2 3.3.5.9", "it grants a lease that was not asked for"
    if not message.second:
        return
    if message["context_offset"] % 8:
        yield "MS-SMB2 2.2.14", "the create contexts are not at a multiple of 8"
    data = message.second
    while step := int.from_bytes(data[:4], "little"):
        if step % 8:
            yield "MS-SMB2 2.2.13.2", "Next of a create context is not a multiple of 8"
        data = data[step:]
    contexts = c.decode_create(message.second)
    for name, size in _DATA_SIZES.items():
        if name in contexts and len(contexts[name]) not in size:
            yield "MS-SMB2 2.2.14.2", f"the data of the create context {name.decode()} has another size"
        if name in contexts and wanted is not None and name not in wanted:
            yield "MS-SMB2 2.2.14.2", f"the create context {name.decode()} was not asked for"
    lease = contexts.get(c.LEASE)
    if lease is not None and wanted and lease[:16] != wanted.get(c.LEASE, lease)[:16]:
        yield "MS-SMB2 2.2.14.2.10", "the lease has another key than was asked for"


def _create_file(asked: SmbMessage, message: SmbMessage) -> _Broken:
    wanted = _wanted(asked)
    if wanted is None or {c.DURABLE_RECONNECT, c.DURABLE_RECONNECT_V2} & set(wanted):
        return  # a reconnect opens nothing (3.3.5.9.7, 3.3.5.9.12)
    allowed = _ACTIONS.get(asked["disposition"])
    if allowed is not None and message["action"] not in allowed:
        yield "MS-SMB2 2.2.14", "CreateAction is none that the disposition can have"
    is_directory = bool(message["attributes"] & SmbAttribute.DIRECTORY)
    if asked["options"] & Options.DIRECTORY_FILE and not is_directory:
        yield "MS-SMB2 2.2.14", "what is opened as a directory has not the attribute DIRECTORY"
    if asked["options"] & Options.NON_DIRECTORY_FILE and is_directory:
        yield "MS-SMB2 2.2.14", "what is opened as a file has the attribute DIRECTORY"
    if message["action"] == Action.CREATED and not is_directory and message["end_of_file"]:
        yield "MS-SMB2 2.2.14", "a file that was created is not empty"
    granted, oplock = message["oplock"], asked["oplock"]
    if oplock in _ORDER and granted in _ORDER and _ORDER[granted] > _ORDER[oplock]:
        yield "MS-SMB2 3.3.5.9", "it grants a higher oplock than was asked for"


def _read(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["buffer_length"] > asked["length"]:
        yield "MS-SMB2 3.3.5.12", "it returns more than was asked for"
    if message["remaining"] and not asked["channel"]:
        yield "MS-SMB2 2.2.20", "DataRemaining is not 0, and no data are sent on a channel"


def _read_file(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if asked["length"] and not message["buffer_length"]:
        yield "MS-SMB2 3.3.5.12", "it succeeds with no data, and not with END_OF_FILE"


def _acknowledged(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if "lease_key" not in asked.fields or "duration" not in message.fields:
        return  # of an oplock
    if message["flags"] or message["duration"]:
        yield "MS-SMB2 2.2.25.2", "Flags or LeaseDuration of a lease break response is not 0"
    if message["lease_key"] != asked["lease_key"]:
        yield "MS-SMB2 2.2.25.2", "LeaseKey is not that of the acknowledgement"


def _write(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["count"] > asked["buffer_length"]:
        yield "MS-SMB2 2.2.22", "Count is more than the data"
    if any(message[name] for name in ("remaining", "channel_offset", "channel_length")):
        yield "MS-SMB2 2.2.22", "a reserved field is not 0"
    if asked["buffer_length"] and not message["count"]:
        yield "MS-SMB2 2.2.22", "it succeeds and has written nothing"


def _limited(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["buffer_length"] > asked["output_length"]:
        yield "MS-SMB2 3.3.5.18 to 3.3.5.20", "it returns more than OutputBufferLength"


def _query_directory(asked: SmbMessage, message: SmbMessage) -> _Broken:
    yield from _limited(asked, message)
    if asked["info_class"] not in _LISTED:
        return
    entries = directory_entries(message.buffer, asked["info_class"])
    if not entries:
        yield "MS-SMB2 3.3.5.18", "it succeeds without an entry"
    names = [one.name for one in entries]
    if len(set(names)) < len(names):
        yield "MS-FSA 2.1.5.6.3", "an entry is listed twice"
    if any(not name or set(name) & set("\\/\0") for name in names):
        yield "MS-FSCC 2.1.5", "an entry has a name that no file can have"
    if asked["flags"] & RETURN_SINGLE_ENTRY and len(entries) > 1:
        yield "MS-SMB2 3.3.5.18", "it returns several entries for RETURN_SINGLE_ENTRY"


def _ioctl(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["control_code"] != asked["control_code"]:
        yield "MS-SMB2 2.2.32", "CtlCode is not that of the request"
    if not asked.flags & Flags.RELATED and message["file_id"] != asked["file_id"]:
        yield "MS-SMB2 2.2.32", "FileId is not that of the request"
    if message["buffer_length"] > asked["max_output"]:
        yield "MS-SMB2 3.3.5.15", "it returns more than MaxOutputResponse"


def _close(asked: SmbMessage, message: SmbMessage) -> _Broken:
    # The creation time alone SHOULD be 0 (2.2.16).
    names = (
        "last_access_time",
        "last_write_time",
        "change_time",
        "end_of_file",
        "attributes",
    )
    if not asked["flags"] & 1 and any(message[name] for name in names):
        yield "MS-SMB2 3.3.5.10", "attributes that were not asked for are not 0"


def _query_info(asked: SmbMessage, message: SmbMessage) -> _Broken:
    yield from _limited(asked, message)
    if message.status or not message.buffer:
        return
    data, kind, number = message.buffer, asked["info_type"], asked["info_class"]
    if kind == InfoType.SECURITY and len(data) >= 20:
        parts = struct.unpack_from("<IIII", data, 4)
        if any(at and not asked["additional"] & bits for at, bits in zip(parts, _PARTS, strict=True)):
            yield "MS-SMB2 3.3.5.20.3", "a security descriptor has a part that was not asked for"
    if kind == InfoType.FILESYSTEM:
        yield from _file_system(number, data)


def _file_system(number: int, data: bytes) -> _Broken:
    if number == FsInfo.DEVICE and int.from_bytes(data[:4], "little") not in _DEVICES:
        yield "MS-FSCC 2.5.10", "DeviceType is that of no disk"
    if number in (FsInfo.SIZE, FsInfo.FULL_SIZE) and len(data) >= 24:
        total, free = struct.unpack_from("<QQ", data)
        sectors, size = struct.unpack_from("<II", data, 16 if number == FsInfo.SIZE else 24)
        if free > total:
            yield "MS-FSCC 2.5.4, 2.5.8", "more units are free than there are"
        if not sectors or not size:
            yield "MS-FSCC 2.5.4, 2.5.8", "a unit has no sector, or a sector no byte"
    at, start = _FS_NAME.get(number, (0, 0))
    if start and len(data) >= start:
        length = int.from_bytes(data[at : at + 4], "little")
        if length % 2 or not start + length <= len(data) < start + length + 8:
            yield "MS-FSCC 2.5.1, 2.5.9", "the length of a name is not that of what is returned"


_BACKUP = 0x10000
"""BACKUP_SECURITY_INFORMATION, which asks for all parts (MS-DTYP 2.4.7)."""

_PARTS = (0x1 | _BACKUP, 0x2 | _BACKUP, 0x8 | 0x10 | 0x20 | 0x40 | _BACKUP, 0x4 | _BACKUP)
"""What asks for the owner, the group, the SACL (also labels, attributes and scopes) and the DACL, in the
order of the offsets in a security descriptor (MS-DTYP 2.4.6, 2.4.7)."""

_DEVICES = (0x2, 0x7)
"""FILE_DEVICE_CD_ROM and FILE_DEVICE_DISK (MS-FSCC 2.5.10)."""

_FS_NAME: Mapping[int, tuple[int, int]] = {FsInfo.VOLUME: (12, 18), FsInfo.ATTRIBUTE: (8, 12)}
"""Offsets of the length of the name, and of the name (MS-FSCC 2.5.1, 2.5.9)."""


def _standard(asked: SmbMessage, message: SmbMessage) -> _Broken:
    wanted = asked["info_type"], asked["info_class"]
    if wanted != (InfoType.FILE, FileInfo.STANDARD) or len(message.buffer) < 24:
        return
    links, pending = struct.unpack_from("<IB", message.buffer, 16)
    if not links and not pending:
        yield "MS-FSCC 2.4.45", "a file that is not to be deleted has no link"


_RULES: Mapping[SmbCommand, Callable[[SmbMessage, SmbMessage], _Broken]] = {
    SmbCommand.NEGOTIATE: _negotiate,
    SmbCommand.CREATE: _create,
    SmbCommand.CLOSE: _close,
    SmbCommand.READ: _read,
    SmbCommand.WRITE: _write,
    SmbCommand.QUERY_DIRECTORY: _query_directory,
    SmbCommand.QUERY_INFO: _query_info,
    SmbCommand.CHANGE_NOTIFY: _limited,
    SmbCommand.IOCTL: _ioctl,
    SmbCommand.TREE_CONNECT: _tree_connect,
    SmbCommand.OPLOCK_BREAK: _acknowledged,
}

_OF_FILES: Mapping[SmbCommand, Callable[[SmbMessage, SmbMessage], _Broken]] = {
    SmbCommand.CREATE: _create_file,
    SmbCommand.READ: _read_file,
    SmbCommand.QUERY_INFO: _standard,
}
"""Rules of files and directories, which named pipes do not have."""
