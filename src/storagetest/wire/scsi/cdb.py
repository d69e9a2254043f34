"""Command descriptor blocks, by table: name, operation code, service action, length, fields (SPC-4, SBC-3).

:func:`cdb` builds one from a :class:`CommandFormat` and its fields, :func:`describe` formats one as text. A
field takes any value that fits its bits. To set reserved bits, change the bytes afterwards (a CDB is plain
``bytes``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import LocalProtocolError
from storagetest.wire.bitfields import Field, Value, bitfield, flag, get, pack, put, uint


@dataclass(frozen=True, slots=True)
class CommandFormat:
    """Format of one command; ``service_action`` is in the low five bits of byte 1."""

    name: str
    opcode: int
    length: int
    fields: tuple[Field, ...] = ()
    service_action: int | None = None


_DPO, _FUA = flag("dpo", 1, 4), flag("fua", 1, 3)
_PROTECT = bitfield("protect", 1, 5, 3)
_SA = bitfield("service_action", 1, 0, 5)


def _at(lba: tuple[int, int], blocks: tuple[int, int]) -> tuple[Field, ...]:
    return (uint("lba", *lba), uint("blocks", *blocks))


_IO6 = (bitfield("lba_high", 1, 0, 5), uint("lba", 2, 2), uint("blocks", 4, 1))
_AT10, _AT12, _AT16 = _at((2, 4), (7, 2)), _at((2, 4), (6, 4)), _at((2, 8), (10, 4))
_IO10, _IO12, _IO16 = ((_PROTECT, _DPO, _FUA, *at) for at in (_AT10, _AT12, _AT16))
_VERIFY = (_PROTECT, _DPO, bitfield("bytchk", 1, 1, 2))
_SAME = (_PROTECT, flag("anchor", 1, 4), flag("unmap", 1, 3))
_MODE = (
    flag("llbaa", 1, 4),
    flag("dbd", 1, 3),
    bitfield("page_control", 2, 6, 2),
    bitfield("page", 2, 0, 6),
    uint("subpage", 3, 1),
)

TEST_UNIT_READY = CommandFormat("TEST UNIT READY", 0x00, 6)
REQUEST_SENSE = CommandFormat("REQUEST SENSE", 0x03, 6, (flag("desc", 1, 0), uint("allocation", 4, 1)))
READ_6 = CommandFormat("READ(6)", 0x08, 6, _IO6)
WRITE_6 = CommandFormat("WRITE(6)", 0x0A, 6, _IO6)
INQUIRY = CommandFormat(
    "INQUIRY",
    0x12,
    6,
    (flag("cmddt", 1, 1), flag("evpd", 1, 0), uint("page", 2, 1), uint("allocation", 3, 2)),
)
MODE_SELECT_6 = CommandFormat(
    "MODE SELECT(6)", 0x15, 6, (flag("pf", 1, 4), flag("sp", 1, 0), uint("allocation", 4, 1))
)
RESERVE_6 = CommandFormat("RESERVE(6)", 0x16, 6)
RELEASE_6 = CommandFormat("RELEASE(6)", 0x17, 6)
MODE_SENSE_6 = CommandFormat("MODE SENSE(6)", 0x1A, 6, (*_MODE, uint("allocation", 4, 1)))
START_STOP_UNIT = CommandFormat(
    "START STOP UNIT",
    0x1B,
    6,
    (flag("immed", 1, 0), bitfield("power_condition", 4, 4, 4), flag("loej", 4, 1), flag("start", 4, 0)),
)
SEND_DIAGNOSTIC = CommandFormat(
    "SEND DIAGNOSTIC",
    0x1D,
    6,
    (
        bitfield("code", 1, 5, 3),
        flag("pf", 1, 4),
        flag("selftest", 1, 2),
        flag("devoffl", 1, 1),
        flag("unitoffl", 1, 0),
        uint("allocation", 3, 2),
    ),
)
PREVENT_ALLOW_MEDIUM_REMOVAL = CommandFormat(
    "PREVENT ALLOW MEDIUM REMOVAL", 0x1E, 6, (bitfield("prevent", 4, 0, 2),)
)
READ_CAPACITY_10 = CommandFormat("READ CAPACITY(10)", 0x25, 10, (uint("lba", 2, 4), flag("pmi", 8, 0)))
READ_10 = CommandFormat("READ(10)", 0x28, 10, _IO10)
WRITE_10 = CommandFormat("WRITE(10)", 0x2A, 10, _IO10)
WRITE_AND_VERIFY_10 = CommandFormat("WRITE AND VERIFY(10)", 0x2E, 10, (*_VERIFY, *_AT10))
VERIFY_10 = CommandFormat("VERIFY(10)", 0x2F, 10, (*_VERIFY, *_AT10))
PRE_FETCH_10 = CommandFormat("PRE-FETCH(10)", 0x34, 10, (flag("immed", 1, 1), *_AT10))
SYNCHRONIZE_CACHE_10 = CommandFormat("SYNCHRONIZE CACHE(10)", 0x35, 10, (flag("immed", 1, 1), *_AT10))
WRITE_SAME_10 = CommandFormat("WRITE SAME(10)", 0x41, 10, (*_SAME, *_AT10))
UNMAP = CommandFormat("UNMAP", 0x42, 10, (flag("anchor", 1, 0), uint("allocation", 7, 2)))
LOG_SENSE = CommandFormat(
    "LOG SENSE",
    0x4D,
    10,
    (
        bitfield("page_control", 2, 6, 2),
        bitfield("page", 2, 0, 6),
        uint("subpage", 3, 1),
        uint("parameter_pointer", 5, 2),
        uint("allocation", 7, 2),
    ),
)
MODE_SELECT_10 = CommandFormat(
    "MODE SELECT(10)", 0x55, 10, (flag("pf", 1, 4), flag("sp", 1, 0), uint("allocation", 7, 2))
)
MODE_SENSE_10 = CommandFormat("MODE SENSE(10)", 0x5A, 10, (*_MODE, uint("allocation", 7, 2)))
PERSISTENT_RESERVE_IN = CommandFormat("PERSISTENT RESERVE IN", 0x5E, 10, (_SA, uint("allocation", 7, 2)))
PERSISTENT_RESERVE_OUT = CommandFormat(
    "PERSISTENT RESERVE OUT",
    0x5F,
    10,
    (_SA, bitfield("scope", 2, 4, 4), bitfield("type", 2, 0, 4), uint("allocation", 5, 4)),
)
READ_16 = CommandFormat("READ(16)", 0x88, 16, _IO16)
COMPARE_AND_WRITE = CommandFormat(
    "COMPARE AND WRITE", 0x89, 16, (_PROTECT, _DPO, _FUA, uint("lba", 2, 8), uint("blocks", 13, 1))
)
WRITE_16 = CommandFormat("WRITE(16)", 0x8A, 16, _IO16)
ORWRITE_16 = CommandFormat("ORWRITE(16)", 0x8B, 16, _IO16)
WRITE_AND_VERIFY_16 = CommandFormat("WRITE AND VERIFY(16)", 0x8E, 16, (*_VERIFY, *_AT16))
VERIFY_16 = CommandFormat("VERIFY(16)", 0x8F, 16, (*_VERIFY, *_AT16))
PRE_FETCH_16 = CommandFormat("PRE-FETCH(16)", 0x90, 16, (flag("immed", 1, 1), *_AT16))
SYNCHRONIZE_CACHE_16 = CommandFormat("SYNCHRONIZE CACHE(16)", 0x91, 16, (flag("immed", 1, 1), *_AT16))
WRITE_SAME_16 = CommandFormat("WRITE SAME(16)", 0x93, 16, (*_SAME, flag("ndob", 1, 0), *_AT16))
READ_CAPACITY_16 = CommandFormat(
    "READ CAPACITY(16)", 0x9E, 16, (uint("lba", 2, 8), uint("allocation", 10, 4)), 0x10
)
GET_LBA_STATUS = CommandFormat(
    "GET LBA STATUS", 0x9E, 16, (uint("lba", 2, 8), uint("allocation", 10, 4)), 0x12
)
REPORT_LUNS = CommandFormat("REPORT LUNS", 0xA0, 12, (uint("select", 2, 1), uint("allocation", 6, 4)))
REPORT_SUPPORTED_OPERATION_CODES = CommandFormat(
    "REPORT SUPPORTED OPERATION CODES",
    0xA3,
    12,
    (
        flag("rctd", 2, 7),
        bitfield("options", 2, 0, 3),
        uint("requested_opcode", 3, 1),
        uint("requested_action", 4, 2),
        uint("allocation", 6, 4),
    ),
    0x0C,
)
REPORT_TARGET_PORT_GROUPS = CommandFormat(
    "REPORT TARGET PORT GROUPS", 0xA3, 12, (uint("allocation", 6, 4),), 0x0A
)
REPORT_TASK_MANAGEMENT = CommandFormat(
    "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", 0xA3, 12, (uint("allocation", 6, 4),), 0x0D
)
READ_12 = CommandFormat("READ(12)", 0xA8, 12, _IO12)
WRITE_12 = CommandFormat("WRITE(12)", 0xAA, 12, _IO12)
WRITE_AND_VERIFY_12 = CommandFormat("WRITE AND VERIFY(12)", 0xAE, 12, (*_VERIFY, *_AT12))
VERIFY_12 = CommandFormat("VERIFY(12)", 0xAF, 12, (*_VERIFY, *_AT12))

COMMANDS: Mapping[tuple[int, int | None], CommandFormat] = {
    (command.opcode, command.service_action): command
    for command in list(globals().values())
    if isinstance(command, CommandFormat)
}
"""Every command by operation code and service action."""


NO_COMMAND = bytes((0x6B, *bytes(15)))
"""A CDB with an operation code that is reserved: 60h to 7Dh are, and C0h to FFh are the vendor's (SPC-4)."""

NO_MODE_PAGE = 0x17
"""A reserved mode page code; 20h to 3Eh are the vendor's (SPC-4, mode page codes)."""


def cdb(command: CommandFormat, **values: Value) -> bytes:
    """Return the CDB; missing fields are zero. Raises :class:`LocalProtocolError` for an unknown field."""
    known = {place.name for place in command.fields}
    if not set(values) <= known:
        raise LocalProtocolError(f"{command.name} has no {', '.join(sorted(set(values) - known))}")
    filled: dict[str, Value] = {**dict.fromkeys(known, 0), **values}
    try:
        data = pack(command.length, command.fields, filled)
    except ValueError as error:
        raise LocalProtocolError(f"{command.name}: {error}") from None
    data = put(data, uint("opcode", 0, 1), command.opcode)
    return data if command.service_action is None else put(data, _SA, command.service_action)


def describe(data: bytes, command: CommandFormat | None = None) -> str:
    """Return one line with the command and its fields; an unknown CDB in hexadecimal. Never raises.

    ``command`` is the format of the CDB, if it is not in :data:`COMMANDS`.
    """
    if not data:
        return "no CDB"
    action = data[1] & 0x1F if len(data) > 1 else 0
    command = command or COMMANDS.get((data[0], action)) or COMMANDS.get((data[0], None))
    if command is None:
        return f"CDB {data.hex()}"
    shown = [f"{place.name}={get(data, place)!s}" for place in command.fields if get(data, place)]
    return " ".join([command.name, *shown])
