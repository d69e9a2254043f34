"""Broken rules of SEND DIAGNOSTIC, and of PREVENT ALLOW MEDIUM REMOVAL and an eject.

The rules, from the text (SPC-4, SBC-3):

- SEND DIAGNOSTIC with SELFTEST ends in GOOD if the test passes. Without UNITOFFL and DEVOFFL it does nothing
  that a later command could notice.
- A parameter list length of zero is no error. A reserved SELF-TEST CODE is one.
- A medium is ejected after each nexus that prevented its removal has allowed it, or is gone; a logical unit
  reset ends every prevention. A unit without its medium is NOT READY.
- SEND DIAGNOSTIC, and PREVENT ALLOW MEDIUM REMOVAL with PREVENT, of a nexus that a persistent reservation
  excludes are conflicts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_each_form_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, good

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, LogoutRequest, ScsiCommand, ScsiResponse, TaskRequest
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, ScsiStatus, SenseKey

REMOVABLE = "removable"
"""The kind of target: the full unit with a removable medium."""
READY = c.TEST_UNIT_READY.opcode
TEST, PREVENT, START_STOP = (
    c.SEND_DIAGNOSTIC.opcode,
    c.PREVENT_ALLOW_MEDIUM_REMOVAL.opcode,
    c.START_STOP_UNIT.opcode,
)
SELFTEST, LOEJ, START = 0x04, 0x02, 0x01


def _self_test(block: bytes) -> bool:
    return block[0] == TEST and bool(block[1] & SELFTEST)


def _passed(talk: ProxyConnection, pdu: Any) -> bool:
    """Whether the PDU ends a self-test in GOOD."""
    return ends(pdu) and _self_test(talk.cdb(pdu)) and not pdu.status


# SEND DIAGNOSTIC


@mutant("self-test-refused | SPC-4 SEND DIAGNOSTIC | SELFTEST is an invalid field", kind=KIND)
def self_test_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if _passed(talk, pdu) else pdu


@mutant("self-test-busy | SPC-4 SEND DIAGNOSTIC | the unit is not ready after a self-test", kind=KIND)
def self_test_busy(talk: ProxyConnection, pdu: Pdu) -> Out:
    if _passed(talk, pdu):
        talk.memory["busy"] = 1
    elif ends(pdu) and talk.cdb(pdu)[0] == READY and talk.memory.pop("busy", 0):
        return check(pdu, SenseKey.NOT_READY, Asc.MEDIUM_NOT_PRESENT)
    return pdu


@mutant("self-test-reported | SPC-4 SEND DIAGNOSTIC | other nexuses have a unit attention", kind=KIND)
def self_test_reported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if _passed(talk, pdu):
        talk.shared["reported"] = talk.name
    elif ends(pdu) and talk.cdb(pdu)[0] == READY and talk.shared.get("reported", talk.name) != talk.name:
        del talk.shared["reported"]
        return check(pdu, SenseKey.UNIT_ATTENTION, Asc.POWER_ON_OR_RESET)
    return pdu


def _after_test(row: str, opcode: int) -> None:
    """A mutant of the data of a command after a self-test: their last byte is another."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if _passed(talk, pdu):
            talk.shared["tested"] = True
        elif isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == opcode and talk.shared.get("tested"):
            return replace(pdu, data=pdu.data[:-1] + bytes((pdu.data[-1] ^ 1,)))
        return pdu


_after_test(
    "self-test-data-lost | SPC-4 SEND DIAGNOSTIC | a self-test writes to the blocks", c.READ_16.opcode
)
_after_test(
    "self-test-modes | SPC-4 SEND DIAGNOSTIC | a self-test changes a mode page", c.MODE_SENSE_10.opcode
)


@mutant("self-test-only | SPC-4 PARAMETER LIST LENGTH | a length of zero is an invalid field", kind=KIND)
def self_test_only(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    without = isinstance(pdu, ScsiResponse) and block[0] == TEST and not block[1] & 0xE4
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if without else pdu


@mutant("self-test-any-code | SPC-4 SELF-TEST CODE | each code is taken for a test", kind=KIND)
def self_test_any_code(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == TEST else pdu


@mutant("diagnostic-any-page | SPC-4 diagnostic pages | each page is accepted", kind=KIND)
def diagnostic_any_page(talk: ProxyConnection, pdu: Pdu) -> Out:
    listed = isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == TEST and any(talk.cdb(pdu)[3:5])
    return good(pdu) if listed else pdu


def _conflicts_not(row: str, opcode: int) -> None:
    """A mutant that ends a command in GOOD although a reservation excludes it."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        conflict = isinstance(pdu, ScsiResponse) and pdu.status == ScsiStatus.RESERVATION_CONFLICT
        return good(pdu) if conflict and talk.cdb(pdu)[0] == opcode else pdu


_conflicts_not(
    "reservation-diagnostic | SPC-4 reservations, SEND DIAGNOSTIC | no reservation excludes a self-test", TEST
)
_conflicts_not(
    "reservation-prevent | SPC-4 reservations | no reservation excludes PREVENT ALLOW MEDIUM REMOVAL", PREVENT
)


# PREVENT ALLOW MEDIUM REMOVAL


@mutant("prevent-not-ready | SPC-4 PREVENT ALLOW MEDIUM REMOVAL | a unit is not ready after it", kind=KIND)
def prevent_not_ready(talk: ProxyConnection, pdu: Pdu) -> Out:
    if ends(pdu) and talk.cdb(pdu)[0] == PREVENT:
        talk.memory["busy"] = 1
    elif ends(pdu) and talk.cdb(pdu)[0] == READY and talk.memory.pop("busy", 0):
        return check(pdu, SenseKey.NOT_READY, Asc.MEDIUM_NOT_PRESENT)
    return pdu


def _prevents(row: str, change: Any) -> None:
    """A mutant of PREVENT ALLOW MEDIUM REMOVAL: ``change(talk, CDB)`` returns another CDB."""

    @on_request(row, kind=REMOVABLE)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == PREVENT
        return replace(pdu, cdb=change(talk, pdu.cdb)) if ours else pdu


def _with(block: bytes, value: int) -> bytes:
    return block[:4] + bytes((value,)) + block[5:]


_prevents("prevent-ignored | SPC-4 PREVENT | a prevention is ignored", lambda talk, block: _with(block, 0))
_prevents(
    "allow-ignored | SPC-4 PREVENT | an end of a prevention is ignored", lambda talk, block: _with(block, 1)
)


def _refuses_eject(talk: ProxyConnection, pdu: Any) -> bool:
    return isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == START_STOP and bool(pdu.status)


def _notes_prevention(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == PREVENT:
        preventing = talk.shared.setdefault("preventing", [])
        if pdu.cdb[4] & 1:
            preventing.append(talk.name)
        elif talk.name in preventing:
            preventing.clear()
    return pdu


@mutant(
    "prevent-own-eject | SPC-4 PREVENT | the nexus that prevents the removal ejects the medium",
    kind=REMOVABLE,
    request=_notes_prevention,
)
def prevent_own_eject(talk: ProxyConnection, pdu: Pdu) -> Out:
    own = talk.name in talk.shared.get("preventing", ())
    return good(pdu) if _refuses_eject(talk, pdu) and own else pdu


@mutant(
    "allow-for-all | SPC-4 PREVENT | one nexus allows the removal for all",
    kind=REMOVABLE,
    request=_notes_prevention,
)
def allow_for_all(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if _refuses_eject(talk, pdu) and not talk.shared.get("preventing") else pdu


@mutant("ejected-ready | SBC-3 START STOP UNIT, LOEJ | a unit is ready without its medium", kind=REMOVABLE)
def ejected_ready(talk: ProxyConnection, pdu: Pdu) -> Out:
    missing = isinstance(pdu, ScsiResponse) and pdu.status and talk.cdb(pdu)[0] == READY
    return good(pdu) if missing else pdu


def _eject(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == START_STOP and pdu.cdb[4] & (LOEJ | START) == LOEJ:
        talk.shared["ejected"] = True
    return pdu


@mutant(
    "load-other-data | SBC-3 START STOP UNIT, LOEJ | a medium has other data after a load",
    kind=REMOVABLE,
    request=_eject,
)
def load_other_data(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == c.READ_16.opcode and talk.shared.get("ejected"):
        return replace(pdu, data=bytes(len(pdu.data)))
    return pdu


def _outlives(row: str, end: Any) -> None:
    """A mutant whose preventions outlive what ``end(PDU)`` recognises."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        _notes_prevention(talk, pdu)
        if end(talk, pdu):
            talk.shared["outlived"] = bool(talk.shared.get("preventing"))
        return pdu

    @mutant(row, kind=REMOVABLE, request=request)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ejected = isinstance(pdu, ScsiResponse) and block[0] == START_STOP and not block[4] & START
        kept = ejected and not pdu.status and talk.shared.get("outlived")
        return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.MEDIUM_REMOVAL_PREVENTED) if kept else pdu


_outlives(
    "prevent-outlives-logout | SPC-4 PREVENT | a prevention outlives its nexus",
    lambda talk, pdu: isinstance(pdu, LogoutRequest) and talk.name in talk.shared.get("preventing", ()),
)
_outlives(
    "prevent-outlives-reset | SPC-4 PREVENT | a prevention outlives a logical unit reset",
    lambda talk, pdu: isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.LOGICAL_UNIT_RESET,
)
