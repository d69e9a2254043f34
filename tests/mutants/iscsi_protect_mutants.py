"""Broken rules of SWP, of a power condition, of target port groups, and of a command that is asked for.

The rules, from the text (SPC-4 7.5.8, 6.35, 6.36; SBC-3 5.20), before any case:

- SWP of the Control mode page: each command that writes ends in DATA PROTECT, through each nexus; WP of the mode
  parameter header is 1. Reads go on, and it ends when SWP is cleared (MUST).
- START STOP UNIT: START and LOEJ are ignored if POWER CONDITION is not 0 (MUST).
- A group has a state that is defined and that it supports, and a STATUS CODE that is defined. Each port is in one
  group (MUST).
- MODE SELECT(10) with SP is refused if no values are saved (MUST).
- DESC selects the format of the data of REQUEST SENSE, whatever D_SENSE is (MUST).
- SUPPORT, not an error, states that a service action is not supported (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_full_unit import WRITERS
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import decode_sense

FULL, THIN = "full", "thin"
MAINTENANCE_IN, GROUPS = c.REPORT_TARGET_PORT_GROUPS.opcode, c.REPORT_TARGET_PORT_GROUPS.service_action
OPERATIONS = c.REPORT_SUPPORTED_OPERATION_CODES.service_action
LOEJ, START = 0x02, 0x01
PLAIN = {one.opcode for one in WRITERS}


def _protected(pdu: Any) -> bool:
    """Whether the PDU ends a command in DATA PROTECT."""
    return (
        isinstance(pdu, ScsiResponse)
        and bool(pdu.sense)
        and decode_sense(pdu.sense).key == SenseKey.DATA_PROTECT
    )


@mutant("swp-ignored | SPC-4 Control mode page, SWP | WRITE is executed", kind=FULL)
def swp_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if _protected(pdu) and talk.cdb(pdu)[0] in PLAIN else pdu


@mutant(
    "swp-of-writes-alone | SPC-4 Control mode page, SWP | WRITE is refused, and no other command", kind=FULL
)
def swp_of_writes_alone(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if _protected(pdu) and talk.cdb(pdu)[0] not in PLAIN else pdu


@mutant("swp-without-wp | SPC-4 Control mode page, SWP | WP of the header is 0", kind=FULL)
def swp_without_wp(talk: ProxyConnection, pdu: Pdu) -> Out:
    at = {c.MODE_SENSE_6.opcode: 2, c.MODE_SENSE_10.opcode: 3}.get(talk.cdb(pdu)[0])
    if at is None or not isinstance(pdu, DataIn) or len(pdu.data) <= at:
        return pdu
    return replace(pdu, data=pdu.data[:at] + bytes((pdu.data[at] & 0x7F,)) + pdu.data[at + 1 :])


@mutant("swp-stays | SPC-4 Control mode page, SWP | blocks are protected after SWP was cleared", kind=FULL)
def swp_stays(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == c.MODE_SELECT_6.opcode and not pdu.status:  # type: ignore[attr-defined]
        talk.shared["selected"] = talk.shared.get("selected", 0) + 1
    again = ends(pdu) and block[0] == c.WRITE_16.opcode and talk.shared.get("selected", 0) > 2
    return check(pdu, SenseKey.DATA_PROTECT, 0x2700) if again else pdu


def _power(row: str, asc: int, loej: int, kind: str) -> None:
    """A mutant that takes START STOP UNIT with a power condition for a stop, or an eject."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == c.START_STOP_UNIT.opcode:
            byte = pdu.cdb[4]
            talk.shared["stopped"] = bool(byte >> 4) and not byte & START and byte & LOEJ == loej
        return pdu

    @mutant(row, kind=kind, request=request)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        fails = ends(pdu) and talk.shared.get("stopped") and talk.cdb(pdu)[0] == c.TEST_UNIT_READY.opcode
        return check(pdu, SenseKey.NOT_READY, asc) if fails else pdu


_power(
    "power-condition-stops | SBC-3 START STOP UNIT | START counts although there is a power condition",
    0x0402,
    0,
    FULL,
)
_power(
    "power-condition-ejects | SBC-3 START STOP UNIT | LOEJ counts although there is a power condition",
    Asc.MEDIUM_NOT_PRESENT,
    LOEJ,
    FULL,
)


def _group(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant of the data of REPORT TARGET PORT GROUPS: their header, and one descriptor from byte 4 on."""

    @mutant(row, kind=THIN)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        of_groups = isinstance(pdu, DataIn) and block[0] == MAINTENANCE_IN and block[1] & 0x1F == GROUPS
        return replace(pdu, data=change(pdu.data)) if of_groups and len(pdu.data) > 12 else pdu  # type: ignore[call-arg]


def _byte(at: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((value,)) + data[at + 1 :]


_group("groups-state-reserved | SPC-4 REPORT TARGET PORT GROUPS | the state is 5h", _byte(4, 0x05))
_group(
    "groups-state-unsupported | SPC-4 REPORT TARGET PORT GROUPS | the state is one that is not supported",
    _byte(4, 0x02),
)
_group("groups-status-reserved | SPC-4 REPORT TARGET PORT GROUPS | STATUS CODE is 10h", _byte(9, 0x10))


def _twice(data: bytes) -> bytes:
    body = data[4:]
    return (2 * len(body)).to_bytes(4, "big") + body + body


def _port_twice(data: bytes) -> bytes:
    body = data[4:]
    other = body[:2] + (int.from_bytes(body[2:4], "big") + 1).to_bytes(2, "big") + body[4:]
    return (2 * len(body)).to_bytes(4, "big") + body + other


_group("groups-twice | SPC-4 REPORT TARGET PORT GROUPS | a group is reported twice", _twice)
_group("groups-port-twice | SPC-4 REPORT TARGET PORT GROUPS | a port is in two groups", _port_twice)


@mutant(
    "operations-action-refused | SPC-4 REPORT SUPPORTED OPERATION CODES | a service action that is not there is an invalid field",
    kind=FULL,
)
def operations_action_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    asked = block[0] == MAINTENANCE_IN and block[1] & 0x1F == OPERATIONS and block[2] & 7 > 1
    if not asked:
        return pdu
    if isinstance(pdu, DataIn) and pdu.data[1] & 7 == 1:
        talk.memory["absent"] = pdu.itt
        return None if not pdu.has_status else check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
    refused = isinstance(pdu, ScsiResponse) and talk.memory.get("absent") == pdu.itt
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if refused else pdu


def _by_d_sense(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Set DESC of REQUEST SENSE to what the last MODE SELECT(6) made of D_SENSE."""
    block = talk.cdb(pdu)
    if isinstance(pdu, (DataOut, ScsiCommand)) and block[0] == c.MODE_SELECT_6.opcode and len(pdu.data) > 6:
        talk.shared["d_sense"] = pdu.data[6] >> 2 & 1
    if isinstance(pdu, ScsiCommand) and block[0] == c.REQUEST_SENSE.opcode and "d_sense" in talk.shared:
        desc = block[1] & ~1 | talk.shared["d_sense"]
        return replace(pdu, cdb=block[:1] + bytes((desc,)) + block[2:])
    return pdu


on_request(
    "request-sense-by-d-sense | SPC-4 REQUEST SENSE, DESC | D_SENSE selects the format of its data", kind=THIN
)(_by_d_sense)


@mutant("mode-sp-ten-accepted | SPC-4 MODE SELECT(10), SP | SP is accepted without saved pages", kind=FULL)
def mode_sp_ten_accepted(talk: ProxyConnection, pdu: Any) -> Out:
    block = talk.cdb(pdu)
    refused = (
        isinstance(pdu, ScsiResponse) and pdu.status and block[0] == c.MODE_SELECT_10.opcode and block[1] & 1
    )
    return good(pdu) if refused else pdu
