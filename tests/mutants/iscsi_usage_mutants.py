"""Broken rules of what REPORT SUPPORTED OPERATION CODES returns for one command.

The rules, from the text (SPC-4):

- CDB USAGE DATA have a one for each bit that the device server evaluates, and a zero for each other one.
- SUPPORT of a command that is not supported is 001b.
- The allocation length cuts the data, and changes no length in them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_each_form_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_reported_length_mutants import OPERATION_CODES, changes
from iscsi_rules import check, ends

from storagetest.wire.iscsi.pdu import DataIn
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey

ONE_BYTE = {c.INQUIRY.opcode: 3, c.MODE_SENSE_10.opcode: 7, c.PERSISTENT_RESERVE_IN.opcode: 7}
"""Upper byte of the allocation length, by operation code."""
WITH_PAGE = (
    c.INQUIRY.opcode,
    c.MODE_SENSE_6.opcode,
    c.MODE_SENSE_10.opcode,
    c.PERSISTENT_RESERVE_OUT.opcode,
    c.REPORT_SUPPORTED_OPERATION_CODES.opcode,
)
"""Operation codes of commands whose byte 2 selects what is done."""


def _asks_for_one(block: bytes) -> bool:
    return block[:2] == OPERATION_CODES and bool(block[2] & 0x07)


def _allocation(block: bytes) -> int:
    return int.from_bytes(block[6:10], "big")


def usage(row: str, change: Any) -> None:
    """A mutant that changes CDB USAGE DATA: ``change(usage data)``."""

    def changed(data: bytes) -> bytes:
        size = int.from_bytes(data[2:4], "big")
        return data[:4] + change(data[4 : 4 + size]) + data[4 + size :]

    changes(row, _asks_for_one, changed)


def _without_upper_byte(data: bytes) -> bytes:
    at = ONE_BYTE.get(data[0], 0)
    return data[:at] + b"\0" + data[at + 1 :] if at else data


usage(
    "usage-of-operation-code | SPC-4 CDB USAGE DATA | they have the operation code, and zeroes",
    lambda data: data[:2] + bytes(len(data) - 2),
)
usage(
    "usage-of-low-address | SPC-4 CDB USAGE DATA | the upper half of an address of 64 bits has zeroes",
    lambda data: data[:2] + bytes(4) + data[6:] if len(data) == 16 else data,
)
usage(
    "usage-of-one-byte | SPC-4 CDB USAGE DATA | only the lower byte of an allocation length has ones",
    _without_upper_byte,
)
usage(
    "usage-of-all | SPC-4 CDB USAGE DATA | each bit of the CDB has a one",
    lambda data: data[:2] + b"\xff" * (len(data) - 2),
)


def _of(opcode: int, change: Any) -> Any:
    return lambda data: change(data) if data[0] == opcode else data


usage(
    "usage-of-start-stop-empty | SPC-4 CDB USAGE DATA | those of START STOP UNIT are zeroes",
    _of(c.START_STOP_UNIT.opcode, lambda data: bytes(len(data))),
)
usage(
    "usage-of-another-command | SPC-4 CDB USAGE DATA | those of VERIFY(10) begin with the code of WRITE(10)",
    _of(c.VERIFY_10.opcode, lambda data: bytes([c.WRITE_10.opcode]) + data[1:]),
)
usage(
    "usage-of-one-bit | SPC-4 CDB USAGE DATA | RDPROTECT of READ(16) has one of its three bits",
    _of(c.READ_16.opcode, lambda data: data[:1] + bytes([data[1] & 0x3F | 0x20]) + data[2:]),
)
usage(
    "usage-of-half-a-page-code | SPC-4 CDB USAGE DATA | PAGE CODE of INQUIRY has seven of its eight bits",
    _of(c.INQUIRY.opcode, lambda data: data[:2] + bytes([data[2] & 0x7F]) + data[3:]),
)
usage(
    "usage-without-flags | SPC-4 CDB USAGE DATA | byte 1 has no flag",
    lambda data: data[:1] + bytes([data[1] & 0xE0]) + data[2:],
)
usage(
    "usage-without-page | SPC-4 CDB USAGE DATA | byte 2 of commands without an address is zero",
    lambda data: data[:2] + b"\0" + data[3:] if data[0] in WITH_PAGE else data,
)
usage(
    "usage-without-code | SPC-4 CDB USAGE DATA | the requested operation code is not evaluated",
    _of(c.REPORT_SUPPORTED_OPERATION_CODES.opcode, lambda data: data[:3] + b"\0" + data[4:]),
)


@mutant(
    "unlisted-supported | SPC-4 REPORT SUPPORTED OPERATION CODES | SUPPORT of what is not supported is 011b",
    kind=KIND,
)
def unlisted_supported(talk: ProxyConnection, pdu: Any) -> Out:
    unsupported = isinstance(pdu, DataIn) and _asks_for_one(talk.cdb(pdu)) and pdu.data[1:2] == b"\x01"
    return replace(pdu, data=pdu.data[:1] + b"\x03" + pdu.data[2:]) if unsupported else pdu


@mutant(
    "one-command-cut-refused | SPC-4 allocation length | less than all data of one command is refused",
    kind=KIND,
)
def one_command_cut_refused(talk: ProxyConnection, pdu: Any) -> Out:
    block = talk.cdb(pdu)
    if not _asks_for_one(block) or _allocation(block) > 16:
        return pdu
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if ends(pdu) else None


@mutant(
    "one-command-cut-size | SPC-4 allocation length | CDB SIZE is that of the usage data that are returned",
    kind=KIND,
)
def one_command_cut_size(talk: ProxyConnection, pdu: Any) -> Out:
    data = getattr(pdu, "data", b"")
    if not _asks_for_one(talk.cdb(pdu)) or len(data) < 5 or getattr(pdu, "status", 0):
        return pdu
    return replace(pdu, data=data[:2] + (len(data) - 4).to_bytes(2, "big") + data[4:])
