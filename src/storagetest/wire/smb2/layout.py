"""The fixed part of every SMB2 message, as tables: each field's name, offset and size, little-endian.

A row is written ``name:size``; a name that begins with ``_`` is reserved (its value is 0). The offset counts
from the first byte of the header (2.2.1), as offsets on the wire do. StructureSize of a message is its fixed
size, and one more if a variable part follows (2.2.3 to 2.2.39).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import LocalProtocolError
from storagetest.wire.smb2.codes import SmbCommand

HEADER_SIZE = 64
"""Bytes of the header (2.2.1)."""

Value = int | bytes


@dataclass(frozen=True, slots=True)
class SmbField:
    """One field of ``size`` bytes at ``offset``; of 16 bytes and more, it is opaque."""

    name: str
    offset: int
    size: int

    def read(self, data: bytes) -> Value:
        """Return the value in ``data``, which is long enough."""
        piece = data[self.offset : self.offset + self.size]
        return piece if self.size >= 16 else int.from_bytes(piece, "little")

    def write(self, data: bytes, value: Value) -> bytes:
        """Return ``data`` with this field set. Raises :class:`LocalProtocolError` if it does not fit."""
        if isinstance(value, bytes):
            if len(value) != self.size:
                raise LocalProtocolError(f"{self.name}: {len(value)} bytes in a field of {self.size}")
            piece = value
        elif 0 <= value < 1 << 8 * self.size:
            piece = value.to_bytes(self.size, "little")
        else:
            raise LocalProtocolError(f"{self.name}: {value:#x} is no number of {self.size} bytes")
        return data[: self.offset] + piece + data[self.offset + self.size :]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one message's fixed part, and its StructureSize."""

    fields: Mapping[str, SmbField]
    end: int
    structure_size: int

    @property
    def reserved(self) -> tuple[SmbField, ...]:
        """The reserved fields."""
        return tuple(field for field in self.fields.values() if field.name.startswith("_"))


def layout(rows: str, *, start: int = HEADER_SIZE, variable: bool = False) -> Layout:
    """Return the layout of ``rows``; ``variable`` adds the one to StructureSize."""
    fields: dict[str, SmbField] = {}
    at = start
    for row in rows.split():
        name, size = row.split(":")
        fields[name] = SmbField(name, at, int(size))
        at += int(size)
    return Layout(fields, at, at - start + variable)


SYNC = layout(
    "protocol_id:4 header_size:2 credit_charge:2 status:4 command:2 credits:2 header_flags:4 next_command:4"
    " message_id:8 process_id:4 tree_id:4 session_id:8 signature:16",
    start=0,
)
"""The header of synchronous messages (2.2.1.2); bytes 8 to 11 of a request are the channel sequence."""

ASYNC = layout(
    "protocol_id:4 header_size:2 credit_charge:2 status:4 command:2 credits:2 header_flags:4 next_command:4"
    " message_id:8 async_id:8 session_id:8 signature:16",
    start=0,
)
"""The header of asynchronous messages (2.2.1.1)."""

_EMPTY = "structure_size:2 _reserved:2"
_FILE = "file_id:16"
_TIMES = "creation_time:8 last_access_time:8 last_write_time:8 change_time:8"
_SIZES = "allocation_size:8 end_of_file:8 attributes:4"

REQUESTS: Mapping[SmbCommand, Layout] = {
    SmbCommand.NEGOTIATE: layout(
        "structure_size:2 dialect_count:2 security_mode:2 _reserved:2 capabilities:4 client_guid:16"
        " context_offset:4 context_count:2 _reserved2:2"
    ),  # 2.2.3; the last three are ClientStartTime below 3.1.1
    SmbCommand.SESSION_SETUP: layout(
        "structure_size:2 flags:1 security_mode:1 capabilities:4 channel:4 buffer_offset:2 buffer_length:2"
        " previous_session:8",
        variable=True,
    ),  # 2.2.5
    SmbCommand.LOGOFF: layout(_EMPTY),  # 2.2.7
    SmbCommand.TREE_CONNECT: layout(
        "structure_size:2 flags:2 buffer_offset:2 buffer_length:2", variable=True
    ),
    SmbCommand.TREE_DISCONNECT: layout(_EMPTY),  # 2.2.11
    SmbCommand.CREATE: layout(
        "structure_size:2 security_flags:1 oplock:1 impersonation:4 create_flags:8 _reserved:8 access:4"
        " attributes:4 share:4 disposition:4 options:4 buffer_offset:2 buffer_length:2 context_offset:4"
        " context_length:4",
        variable=True,
    ),  # 2.2.13
    SmbCommand.CLOSE: layout(f"structure_size:2 flags:2 _reserved:4 {_FILE}"),  # 2.2.15
    SmbCommand.FLUSH: layout(f"structure_size:2 _reserved1:2 _reserved2:4 {_FILE}"),  # 2.2.17
    SmbCommand.READ: layout(
        f"structure_size:2 padding:1 flags:1 length:4 offset:8 {_FILE} minimum:4 channel:4 remaining:4"
        " buffer_offset:2 buffer_length:2",
        variable=True,
    ),  # 2.2.19
    SmbCommand.WRITE: layout(
        f"structure_size:2 buffer_offset:2 buffer_length:4 offset:8 {_FILE} channel:4 remaining:4"
        " channel_offset:2 channel_length:2 flags:4",
        variable=True,
    ),  # 2.2.21
    SmbCommand.LOCK: layout(f"structure_size:2 lock_count:2 lock_sequence:4 {_FILE}"),  # 2.2.26
    SmbCommand.IOCTL: layout(
        f"structure_size:2 _reserved:2 control_code:4 {_FILE} buffer_offset:4 buffer_length:4 max_input:4"
        " output_offset:4 output_length:4 max_output:4 flags:4 _reserved2:4",
        variable=True,
    ),  # 2.2.31
    SmbCommand.CANCEL: layout(_EMPTY),  # 2.2.30
    SmbCommand.ECHO: layout(_EMPTY),  # 2.2.28
    SmbCommand.QUERY_DIRECTORY: layout(
        f"structure_size:2 info_class:1 flags:1 file_index:4 {_FILE} buffer_offset:2 buffer_length:2"
        " output_length:4",
        variable=True,
    ),  # 2.2.33
    SmbCommand.CHANGE_NOTIFY: layout(
        f"structure_size:2 flags:2 output_length:4 {_FILE} filter:4 _reserved:4"
    ),
    SmbCommand.QUERY_INFO: layout(
        "structure_size:2 info_type:1 info_class:1 output_length:4 buffer_offset:2 _reserved:2"
        f" buffer_length:4 additional:4 flags:4 {_FILE}",
        variable=True,
    ),  # 2.2.37
    SmbCommand.SET_INFO: layout(
        "structure_size:2 info_type:1 info_class:1 buffer_length:4 buffer_offset:2 _reserved:2 additional:4"
        f" {_FILE}",
        variable=True,
    ),  # 2.2.39
    SmbCommand.OPLOCK_BREAK: layout(
        f"structure_size:2 oplock:1 _reserved:1 _reserved2:4 {_FILE}"
    ),  # 2.2.24.1
}
"""The requests; LOCK's first element and NEGOTIATE's dialects are in the variable part."""

RESPONSES: Mapping[SmbCommand, Layout] = {
    SmbCommand.NEGOTIATE: layout(
        "structure_size:2 security_mode:2 dialect:2 context_count:2 server_guid:16 capabilities:4"
        " max_transact:4 max_read:4 max_write:4 system_time:8 start_time:8 buffer_offset:2 buffer_length:2"
        " context_offset:4",
        variable=True,
    ),  # 2.2.4
    SmbCommand.SESSION_SETUP: layout(
        "structure_size:2 session_flags:2 buffer_offset:2 buffer_length:2", variable=True
    ),  # 2.2.6
    SmbCommand.LOGOFF: layout(_EMPTY),  # 2.2.8
    SmbCommand.TREE_CONNECT: layout(
        "structure_size:2 share_type:1 _reserved:1 share_flags:4 capabilities:4 maximal_access:4"
    ),  # 2.2.10
    SmbCommand.TREE_DISCONNECT: layout(_EMPTY),  # 2.2.12
    SmbCommand.CREATE: layout(
        f"structure_size:2 oplock:1 flags:1 action:4 {_TIMES} {_SIZES} _reserved2:4 {_FILE}"
        " context_offset:4 context_length:4",
        variable=True,
    ),  # 2.2.14
    SmbCommand.CLOSE: layout(f"structure_size:2 flags:2 _reserved:4 {_TIMES} {_SIZES}"),  # 2.2.16
    SmbCommand.FLUSH: layout(_EMPTY),  # 2.2.18
    SmbCommand.READ: layout(
        "structure_size:2 buffer_offset:1 _reserved:1 buffer_length:4 remaining:4 _reserved2:4", variable=True
    ),  # 2.2.20
    SmbCommand.WRITE: layout(
        "structure_size:2 _reserved:2 count:4 remaining:4 channel_offset:2 channel_length:2", variable=True
    ),  # 2.2.22
    SmbCommand.LOCK: layout(_EMPTY),  # 2.2.27
    SmbCommand.IOCTL: layout(
        f"structure_size:2 _reserved:2 control_code:4 {_FILE} input_offset:4 input_length:4 buffer_offset:4"
        " buffer_length:4 flags:4 _reserved2:4",
        variable=True,
    ),  # 2.2.32
    SmbCommand.ECHO: layout(_EMPTY),  # 2.2.29
    SmbCommand.QUERY_DIRECTORY: layout("structure_size:2 buffer_offset:2 buffer_length:4", variable=True),
    SmbCommand.CHANGE_NOTIFY: layout("structure_size:2 buffer_offset:2 buffer_length:4", variable=True),
    SmbCommand.QUERY_INFO: layout("structure_size:2 buffer_offset:2 buffer_length:4", variable=True),
    SmbCommand.SET_INFO: layout("structure_size:2"),  # 2.2.40
    SmbCommand.OPLOCK_BREAK: layout(
        f"structure_size:2 oplock:1 _reserved:1 _reserved2:4 {_FILE}"
    ),  # 2.2.25.1
}
"""The responses that carry no error."""

ERROR = layout("structure_size:2 context_count:1 _reserved:1 buffer_length:4", variable=True)
"""The error response (2.2.2)."""

LEASE_BREAK = layout(
    "structure_size:2 new_epoch:2 flags:4 lease_key:16 current_state:4 new_state:4 reason:4 access_hint:4"
    " share_hint:4"
)
"""The lease break notification (2.2.23.2)."""

LEASE_ACK = layout("structure_size:2 _reserved:2 flags:4 lease_key:16 lease_state:4 duration:8")
"""Lease break acknowledgement and response (2.2.24.2, 2.2.25.2)."""
