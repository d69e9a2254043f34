"""Sense data, fixed and descriptor format (SPC-4, sense data). Decoding is total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.scsi.codes import Asc, SenseKey

_FIXED, _DESCRIPTOR = (0x70, 0x71), (0x72, 0x73)
_INFORMATION, _SPECIFIC = 0x00, 0x02
_LONGEST_CDB = 260
"""Bytes of the longest CDB (SPC-4 4.2.3)."""
_KEYS = {int(key): key.name for key in SenseKey}
_CODES = {int(code): code.name for code in Asc}


@dataclass(frozen=True, slots=True)
class Sense:
    """Decoded sense data. ``information`` is None if it is not valid; ``asc`` is ASC and ASCQ."""

    key: int
    asc: int
    information: int | None = None
    field_pointer: int | None = None
    field_in_cdb: bool = False
    deferred: bool = False
    descriptor: bool = False

    def __str__(self) -> str:
        key = _KEYS.get(self.key, f"sense key {self.key:#x}")
        asc = _CODES.get(self.asc, f"{self.asc:04x}")
        more = "" if self.information is None else f", information {self.information:#x}"
        return f"{key}, {asc} ({self.asc >> 8:02x}h/{self.asc & 0xFF:02x}h{more})"


def decode_sense(data: bytes) -> Sense:
    """Read sense data. Raises :class:`RemoteProtocolError` if it is too short or its format is unknown."""
    code = data[0] & 0x7F if data else 0
    if code in _FIXED and len(data) >= 8:
        return _fixed(data, code)
    if code in _DESCRIPTOR and len(data) >= 8:
        return _with_descriptors(data, code)
    raise RemoteProtocolError(f"SCSI: not sense data: {hex_short(data)}")


def _fixed(data: bytes, code: int) -> Sense:
    full = data.ljust(18, b"\0")
    known = bool(full[15] & 0x80)
    return Sense(
        key=full[2] & 0x0F,
        asc=int.from_bytes(full[12:14], "big"),
        information=int.from_bytes(full[3:7], "big") if full[0] & 0x80 else None,
        field_pointer=int.from_bytes(full[16:18], "big") if known else None,
        field_in_cdb=bool(known and full[15] & 0x40),
        deferred=code == _FIXED[1],
    )


def _with_descriptors(data: bytes, code: int) -> Sense:
    information, pointer, in_cdb = None, None, False
    rest = data[8 : 8 + data[7]]
    while len(rest) >= 2 and len(rest) >= 2 + rest[1]:
        body = rest[2 : 2 + rest[1]]
        if rest[0] == _INFORMATION and len(body) >= 10 and body[0] & 0x80:
            information = int.from_bytes(body[2:10], "big")
        elif rest[0] == _SPECIFIC and len(body) >= 5 and body[2] & 0x80:
            pointer, in_cdb = int.from_bytes(body[3:5], "big"), bool(body[2] & 0x40)
        rest = rest[2 + rest[1] :]
    return Sense(
        key=data[1] & 0x0F,
        asc=int.from_bytes(data[2:4], "big"),
        information=information,
        field_pointer=pointer,
        field_in_cdb=in_cdb,
        deferred=code == _DESCRIPTOR[1],
        descriptor=True,
    )


def layout_faults(data: bytes) -> list[str]:
    """Return a sentence for each rule of its format that whole sense data break (SPC-4, sense data).

    Fixed format has 18 bytes at least, and ADDITIONAL SENSE LENGTH counts those from byte 8. In descriptor
    format it counts the descriptors, which end with the data; none has its type twice.
    """
    code = data[0] & 0x7F if data else 0
    if code not in _FIXED + _DESCRIPTOR or len(data) < 8:
        return [f"no sense data: {hex_short(data)}"]
    faults = []
    if data[7] != len(data) - 8:
        faults.append(f"ADDITIONAL SENSE LENGTH is {data[7]}, and {len(data) - 8} bytes follow it")
    if code in _FIXED:
        return faults + ([f"{len(data)} bytes; fixed format has 18 at least"] if len(data) < 18 else [])
    if data[4] & 0x7F or any(data[5:7]):  # bit 7 of byte 4 is SDAT_OVFL
        faults.append(f"reserved bytes 4 to 6 are {data[4:7].hex()}")
    kinds, rest = [], data[8:]
    while len(rest) >= 2 and len(rest) >= 2 + rest[1]:
        kinds.append(rest[0])
        rest = rest[2 + rest[1] :]
    if rest:
        faults.append(f"the last descriptor ends past the data: {rest.hex()}")
    if len(set(kinds)) != len(kinds):
        faults.append(f"descriptor types {kinds}: one is there twice")
    return faults


_KEYS_OF: Mapping[int, frozenset[int]] = {
    **dict.fromkeys(
        (
            Asc.INVALID_COMMAND_OPERATION_CODE,
            Asc.LBA_OUT_OF_RANGE,
            Asc.INVALID_FIELD_IN_CDB,
            Asc.LOGICAL_UNIT_NOT_SUPPORTED,
            Asc.INVALID_FIELD_IN_PARAMETER_LIST,
            Asc.INVALID_RELEASE_OF_PERSISTENT_RESERVATION,
            Asc.PARAMETER_LIST_LENGTH_ERROR,
            Asc.SAVING_PARAMETERS_NOT_SUPPORTED,
            Asc.INSUFFICIENT_REGISTRATION_RESOURCES,
        ),
        frozenset({SenseKey.ILLEGAL_REQUEST}),
    ),
    **dict.fromkeys(
        (
            Asc.POWER_ON_OR_RESET,
            Asc.RESET_BY_LU_OR_TMF,
            Asc.I_T_NEXUS_LOSS,
            Asc.MODE_PARAMETERS_CHANGED,
            Asc.RESERVATIONS_PREEMPTED,
            Asc.RESERVATIONS_RELEASED,
            Asc.REGISTRATIONS_PREEMPTED,
            Asc.COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
        ),
        frozenset({SenseKey.UNIT_ATTENTION}),
    ),
    Asc.MISCOMPARE_DURING_VERIFY: frozenset({SenseKey.MISCOMPARE}),
}
"""Sense keys of the codes that the standards name with one key only (SPC-4, SAM-5 5.14, SBC-3).

A copy manager returns the code of what went wrong with COPY ABORTED.
"""
_RESERVED_KEY = 0x0C
"""The sense key that SPC-4 does not define."""
_NOT_DEFERRED = (SenseKey.ILLEGAL_REQUEST, SenseKey.UNIT_ATTENTION, SenseKey.MISCOMPARE)
"""Keys of errors of the command itself, which are current (SPC-4, deferred errors)."""


def sense_faults(data: bytes) -> list[str]:
    """Return a sentence for each rule that the sense data of a command that ended in CHECK CONDITION break.

    The form is that of :func:`layout_faults`, but zeros may follow: some targets send their whole buffer. The
    key is defined, fits the code, and is deferred only if an earlier command can have caused it; a field
    pointer into the CDB is within the longest one.
    """
    end = 8 + data[7] if len(data) >= 8 else len(data)
    faults = layout_faults(data if any(data[end:]) else data[:end])
    if len(data) < 8 or data[0] & 0x7F not in _FIXED + _DESCRIPTOR:
        return faults
    found = decode_sense(data)
    if found.key == _RESERVED_KEY:
        faults.append(f"the sense key is {found.key:X}h, which is reserved")
    if found.key not in {*_KEYS_OF.get(found.asc, {found.key}), SenseKey.COPY_ABORTED}:
        faults.append(f"this code does not belong to this key: {found}")
    if found.deferred and found.key in _NOT_DEFERRED:
        faults.append(f"a deferred error with {found}")
    if found.field_in_cdb and (found.field_pointer or 0) >= _LONGEST_CDB:
        faults.append(f"FIELD POINTER is {found.field_pointer}, past the CDB")
    return faults


def fixed_sense(key: int, asc: int, *, information: int | None = None) -> bytes:
    """Return 18 bytes of fixed-format sense data."""
    valid = 0x80 if information is not None else 0
    head = bytes((0x70 | valid, 0, key)) + (information or 0).to_bytes(4, "big") + b"\x0a"
    return head + bytes(4) + asc.to_bytes(2, "big") + bytes(4)
