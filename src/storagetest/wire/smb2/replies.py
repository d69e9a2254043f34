"""What every response of SMB 2 and 3 has to keep, whatever its case is about (MS-SMB2 2.2 and 3.3, MS-FSCC).

:class:`SmbRules` sees each request of a connection and its final response, and each break notification. A
fault is a sentence that names the rule alone, so that one fault of a server is one red case.

Rules:

1. Only a response to a request that has a form is judged.
2. Names are compared with the pattern of their scan only where one open had a single pattern, and only those
   that are their own short names: others may be listed because their short name matches (MS-FSA 2.1.5.6.3).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    BREAK_ACK_REQUIRED,
    RETURN_SINGLE_ENTRY,
    SIGNING_ENABLED,
    Action,
    Disposition,
    FileInfo,
    Flags,
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


class SmbRules:
    """The rules, and what the requests of one connection have asked for."""

    def __init__(self) -> None:
        self._asked: dict[int, SmbMessage] = {}
        self._patterns: dict[bytes, set[str]] = {}

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
        named = asked["session_id"] and not asked.flags & Flags.RELATED
        if named and message["session_id"] != asked["session_id"]:
            found.append("MS-SMB2 3.3.4.3, 3.3.4.4: a response has another SessionId than its request")
        if message.is_error or message.status not in (0, SmbStatus.BUFFER_OVERFLOW):
            return found
        if message.command in _RULES:
            name = SmbCommand(message.command).name
            broken = _RULES[SmbCommand(message.command)](asked, message)
            found += [f"{section}: {name}: {text}" for section, text in broken]
        if message.command == SmbCommand.QUERY_DIRECTORY:
            found += self._listed(asked, message)
        return found

    def _listed(self, asked: SmbMessage, message: SmbMessage) -> list[str]:
        patterns = self._patterns.get(asked["file_id"], set())
        if asked["info_class"] not in _LISTED or len(patterns) != 1 or not message.buffer:
            return []
        pattern = next(iter(patterns))
        if set(pattern) & set('<>"[]') or not pattern:
            return []
        entries = directory_entries(message.buffer, asked["info_class"])
        names = {one.name.lower() for one in entries if _SHORT.fullmatch(one.name)}
        wrong = [name for name in names if not fnmatch.fnmatchcase(name, pattern.lower())]
        return ["MS-FSA 2.1.4.4: QUERY_DIRECTORY: an entry does not match the pattern"] if wrong else []


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
    return found


# The commands

_Broken = Iterator[tuple[str, str]]


def _negotiate(_asked: SmbMessage, message: SmbMessage) -> _Broken:
    if not message["security_mode"] & SIGNING_ENABLED:
        yield "MS-SMB2 3.3.5.4", "SecurityMode has no SIGNING_ENABLED"
    if not message["system_time"]:
        yield "MS-SMB2 2.2.4", "SystemTime is 0"


def _create(asked: SmbMessage, message: SmbMessage) -> _Broken:
    wanted = c.decode_create(asked.second) if asked.second else {}
    if not {c.DURABLE_RECONNECT, c.DURABLE_RECONNECT_V2} & set(wanted):
        allowed = _ACTIONS.get(asked["disposition"])
        if allowed is not None and message["action"] not in allowed:
            yield "MS-SMB2 2.2.14", "CreateAction is none that the disposition can have"
        is_directory = bool(message["attributes"] & SmbAttribute.DIRECTORY)
        if asked["options"] & Options.DIRECTORY_FILE and not is_directory:
            yield "MS-SMB2 2.2.14", "what is opened as a directory has not the attribute DIRECTORY"
        if asked["options"] & Options.NON_DIRECTORY_FILE and is_directory:
            yield "MS-SMB2 2.2.14", "what is opened as a file has the attribute DIRECTORY"
    granted, oplock = message["oplock"], asked["oplock"]
    if oplock in _ORDER and granted in _ORDER and _ORDER[granted] > _ORDER[oplock]:
        yield "MS-SMB2 3.3.5.9", "it grants a higher oplock than was asked for"
    if granted == Oplock.LEASE and oplock != Oplock.LEASE and not wanted:
        yield "MS-SMB2 3.3.5.9", "it grants a lease that was not asked for"
    lease = c.decode_create(message.second).get(c.LEASE) if message.second else None
    if lease is not None and c.LEASE in wanted and lease[:16] != wanted[c.LEASE][:16]:
        yield "MS-SMB2 2.2.14.2.10", "the lease has another key than was asked for"


def _read(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["buffer_length"] > asked["length"]:
        yield "MS-SMB2 3.3.5.12", "it returns more than was asked for"
    if asked["length"] and not message["buffer_length"]:
        yield "MS-SMB2 3.3.5.12", "it succeeds with no data, and not with END_OF_FILE"


def _write(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["count"] > asked["buffer_length"]:
        yield "MS-SMB2 2.2.22", "Count is more than the data"
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
    if asked["flags"] & RETURN_SINGLE_ENTRY and len(entries) > 1:
        yield "MS-SMB2 3.3.5.18", "it returns several entries for RETURN_SINGLE_ENTRY"


def _ioctl(asked: SmbMessage, message: SmbMessage) -> _Broken:
    if message["control_code"] != asked["control_code"]:
        yield "MS-SMB2 2.2.32", "CtlCode is not that of the request"
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


_RULES: Mapping[SmbCommand, Callable[[SmbMessage, SmbMessage], _Broken]] = {
    SmbCommand.NEGOTIATE: _negotiate,
    SmbCommand.CREATE: _create,
    SmbCommand.CLOSE: _close,
    SmbCommand.READ: _read,
    SmbCommand.WRITE: _write,
    SmbCommand.QUERY_DIRECTORY: _query_directory,
    SmbCommand.QUERY_INFO: _limited,
    SmbCommand.CHANGE_NOTIFY: _limited,
    SmbCommand.IOCTL: _ioctl,
}
