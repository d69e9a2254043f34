"""Encoding and decoding of SMB2 messages, also compounded.

Rules:

1. A request is encoded with correct lengths and offsets first. :meth:`SmbEncoded.override` then changes any
   field of it by its name, whatever that breaks.
2. :func:`decode` is total: it returns a :class:`SmbMessage`, or raises
   :class:`~storagetest.errors.RemoteProtocolError` with the bytes in its text.
3. A reserved field that is set is no error of decoding: the receiver ignores it (1.6, 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import Flags, SmbCommand, SmbStatus
from storagetest.wire.smb2.layout import (
    ASYNC,
    ERROR,
    HEADER_SIZE,
    LEASE_ACK,
    LEASE_BREAK,
    REQUESTS,
    RESPONSES,
    SYNC,
    Layout,
    Value,
)

PROTOCOL_ID = b"\xfeSMB"
"""The first bytes of a message (2.2.1)."""

NOTIFICATION = 0xFFFFFFFFFFFFFFFF
"""The message id of a break notification, which no request asked for (2.2.23)."""

_CARRIES_DATA: Mapping[SmbStatus, frozenset[SmbCommand]] = {
    SmbStatus.MORE_PROCESSING_REQUIRED: frozenset({SmbCommand.SESSION_SETUP}),
    SmbStatus.BUFFER_OVERFLOW: frozenset({SmbCommand.QUERY_INFO, SmbCommand.READ, SmbCommand.IOCTL}),
    SmbStatus.INVALID_PARAMETER: frozenset({SmbCommand.IOCTL}),
    SmbStatus.NOTIFY_ENUM_DIR: frozenset({SmbCommand.CHANGE_NOTIFY}),
}
"""Statuses other than success with which these commands' responses are no error responses (3.3.4.4)."""

_SECOND: Mapping[tuple[SmbCommand, bool], tuple[str, str]] = {
    (SmbCommand.CREATE, True): ("context_offset", "context_length"),
    (SmbCommand.CREATE, False): ("context_offset", "context_length"),
    (SmbCommand.IOCTL, True): ("input_offset", "input_length"),
}
"""Offset and length of a second variable part, by command and whether it is a response."""


@dataclass(frozen=True, slots=True)
class SmbEncoded:
    """An encoded request or response before its signature."""

    data: bytes
    layout: Layout

    def override(self, **values: Value) -> SmbEncoded:
        """Return a copy with fields of header or body replaced; an unknown name is a LocalProtocolError."""
        data = self.data
        for name, value in values.items():
            header = ASYNC if name == "async_id" else SYNC
            field = self.layout.fields.get(name) or header.fields.get(name)
            if field is None:
                known = ", ".join([*header.fields, *self.layout.fields])
                raise LocalProtocolError(f"no field {name!r} in this message; its fields: {known}")
            data = field.write(data, value)
        return SmbEncoded(data, self.layout)


@dataclass(frozen=True, slots=True)
class SmbMessage:
    """A decoded message. ``fields`` are those of the body; ``buffer`` and ``second`` its variable parts."""

    raw: bytes
    header: Mapping[str, Any]
    fields: Mapping[str, Any]
    layout: Layout
    buffer: bytes = b""
    second: bytes = b""
    is_error: bool = False

    def __getitem__(self, name: str) -> Any:
        """Return a field of the body, or else of the header."""
        return self.fields[name] if name in self.fields else self.header[name]

    @property
    def command(self) -> int:
        """The command's number."""
        return int(self.header["command"])

    @property
    def status(self) -> int:
        """The status."""
        return int(self.header["status"])

    @property
    def flags(self) -> Flags:
        """The header's flags."""
        return Flags(self.header["header_flags"])

    @property
    def is_response(self) -> bool:
        """Whether the server sent it."""
        return bool(self.flags & Flags.RESPONSE)

    @property
    def is_interim(self) -> bool:
        """Whether it is an interim response: asynchronous and pending (3.3.4.2)."""
        return bool(self.flags & Flags.ASYNC) and self.status == SmbStatus.PENDING

    @property
    def is_lease_break(self) -> bool:
        """Whether it has the form of a lease break notification."""
        return self.layout is LEASE_BREAK

    def encoded(self) -> SmbEncoded:
        """Return the message as encoded, for a proxy that overrides fields."""
        return SmbEncoded(self.raw, self.layout)

    def summary(self) -> str:
        """Return one line: command, status or flags, ids, and the body's fields that are not zero."""
        name = (
            SmbCommand(self.command).name if self.command in SmbCommand.__members__.values() else self.command
        )
        parts = [f"{name} {'response' if self.is_response else 'request'} mid={self.header['message_id']:#x}"]
        if self.is_response:
            parts.append(SmbStatus.name_of(self.status))
        flags = self.flags & ~Flags.RESPONSE
        if flags:
            parts.append("|".join(flag.name or "" for flag in Flags if flag in flags))
        for key, value in self.fields.items():
            if value and key != "structure_size" and "offset" not in key:
                parts.append(f"{key}={value.hex() if isinstance(value, bytes) else value}")
        return " ".join(map(str, parts)) + (f" +{len(self.buffer)} bytes" if self.buffer else "")


def request(command: SmbCommand, tail: bytes = b"", **fields: Value) -> SmbEncoded:
    """Encode a request: its fields, and ``tail``, the variable part behind the fixed one.

    ``buffer_offset`` and ``buffer_length`` are set if the command has them and ``tail`` is not empty; a
    command whose variable part must not be absent gets a byte (2.2.5 to 2.2.39).
    """
    return encode(REQUESTS[command], command, tail, header_flags=0, **fields)


def response(command: SmbCommand, tail: bytes = b"", *, status: int = 0, **fields: Value) -> SmbEncoded:
    """Encode a response, as a server would; with an error status, the error response."""
    is_error = bool(status) and command not in _CARRIES_DATA.get(SmbStatus(status), ())
    table = ERROR if is_error else RESPONSES[command]
    return encode(table, command, tail, header_flags=Flags.RESPONSE, status=status, **fields)


def encode(table: Layout, command: int, tail: bytes, *, header_flags: int, **fields: Value) -> SmbEncoded:
    """Encode a message of the form ``table``; body fields by name."""
    size = 48 if table is REQUESTS[SmbCommand.LOCK] else table.structure_size
    out = SmbEncoded(bytes(table.end) + (tail or b"\0" * (size & 1)), table)
    out = out.override(
        protocol_id=int.from_bytes(PROTOCOL_ID, "little"),
        header_size=HEADER_SIZE,
        command=int(command),
        header_flags=int(header_flags),
    )
    lengths: dict[str, Value] = {}
    if tail and "buffer_length" in table.fields:
        lengths = {"buffer_length": len(tail)}
        if "buffer_offset" in table.fields:
            lengths["buffer_offset"] = table.end
    return out.override(structure_size=size, **{**lengths, **fields})


def split_compound(data: bytes) -> list[bytes]:
    """Return the messages of ``data`` (2.2.1: NextCommand). Raises RemoteProtocolError."""
    parts: list[bytes] = []
    while True:
        if len(data) < HEADER_SIZE or data[:4] != PROTOCOL_ID:
            raise RemoteProtocolError(f"SMB2: no header of an SMB2 message (2.2.1): {hex_short(data)}")
        step = int(SYNC.fields["next_command"].read(data))
        if not step:
            return [*parts, data]
        if step % 8 or step < HEADER_SIZE or step >= len(data):
            raise RemoteProtocolError(
                f"SMB2: NextCommand {step} in {len(data)} bytes; it is a multiple of 8 and leads to another "
                f"header (2.2.1.2): {hex_short(data)}"
            )
        parts.append(data[:step])
        data = data[step:]


def decode(data: bytes) -> SmbMessage:
    """Decode one message of a compound. Raises :class:`RemoteProtocolError`."""
    if len(data) < HEADER_SIZE + 2 or data[:4] != PROTOCOL_ID:
        raise RemoteProtocolError(f"SMB2: no header of an SMB2 message (2.2.1): {hex_short(data)}")
    flags = int(SYNC.fields["header_flags"].read(data))
    head = ASYNC if flags & Flags.ASYNC else SYNC
    header = {name: field.read(data) for name, field in head.fields.items()}
    if header["header_size"] != HEADER_SIZE:
        raise RemoteProtocolError("SMB2: StructureSize of the header is not 64 (2.2.1): " + hex_short(data))
    table, is_error = _table(header, data)
    if len(data) < table.end:
        raise RemoteProtocolError(
            f"SMB2: {len(data)} bytes of a message whose fixed part has {table.end}: {hex_short(data)}"
        )
    fields = {name: field.read(data) for name, field in table.fields.items()}
    buffer = _part(data, table, fields, "buffer_offset", "buffer_length")
    names = _SECOND.get((SmbCommand(int(header["command"])), bool(flags & Flags.RESPONSE)))
    second = _part(data, table, fields, *names) if names and not is_error else b""
    return SmbMessage(data, header, fields, table, buffer, second, is_error)


def _table(header: Mapping[str, Value], data: bytes) -> tuple[Layout, bool]:
    """Return the layout of the body, and whether it is that of an error response."""
    number, status = int(header["command"]), int(header["status"])
    if number not in set(SmbCommand):
        raise RemoteProtocolError(f"SMB2: there is no command {number} (2.2.1.2): {hex_short(data)}")
    command = SmbCommand(number)
    size = int.from_bytes(data[HEADER_SIZE : HEADER_SIZE + 2], "little")
    if not int(header["header_flags"]) & Flags.RESPONSE:
        table = REQUESTS.get(command)
        if command is SmbCommand.OPLOCK_BREAK and size == LEASE_ACK.structure_size:
            table = LEASE_ACK
        wanted = 48 if command is SmbCommand.LOCK else table.structure_size if table else 0
    else:
        carries = any(status == each and command in commands for each, commands in _CARRIES_DATA.items())
        table = RESPONSES.get(command)
        if command is SmbCommand.IOCTL and table and size == table.structure_size:
            carries = True  # a server-side copy that failed in part (3.3.5.15.6.1)
        if command is SmbCommand.OPLOCK_BREAK and size in (36, 44):
            table = LEASE_ACK if size == 36 else LEASE_BREAK
        if status and size == ERROR.structure_size and not (carries and table and table.structure_size == 9):
            return ERROR, True
        if status and not carries:
            raise RemoteProtocolError(
                f"SMB2: {command.name} ends in {SmbStatus.name_of(status)} without the error response, whose "
                f"StructureSize is 9 (2.2.2): {hex_short(data)}"
            )
        wanted = table.structure_size if table else 0
    if table is None or size != wanted:
        raise RemoteProtocolError(
            f"SMB2: {command.name} has StructureSize {size}, not {wanted} (2.2): {hex_short(data)}"
        )
    return table, False


def _part(data: bytes, table: Layout, fields: Mapping[str, Value], offset: str, length: str) -> bytes:
    """Return a variable part. Raises RemoteProtocolError if it is not within the message."""
    count = int(fields.get(length, 0))
    if not count or length not in fields:
        return b""
    start = int(fields[offset]) if offset in fields else table.end
    if start < table.end or start + count > len(data):
        raise RemoteProtocolError(
            f"SMB2: {count} bytes at offset {start} are not behind the fixed part within the message of "
            f"{len(data)} bytes: {hex_short(data)}"
        )
    return data[start : start + count]
