"""Broken rules of log parameters, LOG SELECT, RESERVE(10), fields that are ignored, and exact limits.

The rules, from the text, before any case:

- SPC-4 log parameters: they fill the page, in ascending order; PARAMETER POINTER names the first of them.
- SPC-4 LOG SELECT: PCR resets the counters, and no list and no PCR changes nothing; PCR with a list is an error.
- SPC-2 RESERVE(10): the unit is the reserver's alone until its RELEASE(10), or a reset.
- SPC-4 PERSISTENT RESERVE OUT: REGISTER and CLEAR ignore SCOPE and TYPE; APTPL, ALL_TG_PT and the service action
  reservation key are ignored by service actions that do not define them.
- SBC-3: a command whose size is that of a limit is executed. A reserved power condition is an error.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import check, ended_in, ends, good

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, TaskRequest
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, ScsiStatus, SenseKey
from storagetest.wire.scsi.seldom_cdb import LOG_SELECT, RELEASE_10, RESERVE_10

FULL, RARE = "full", "rare"
LOG_SENSE, WRITE_ERRORS, LAST, PARAMETER = c.LOG_SENSE.opcode, 0x02, 5, 12
"""The log page with two parameters of 12 bytes; the second one has the code 5."""
PCR = 0x02
PR_IN, PR_OUT = c.PERSISTENT_RESERVE_IN.opcode, c.PERSISTENT_RESERVE_OUT.opcode
CONFLICT = ScsiStatus.RESERVATION_CONFLICT
MOST, MOST_DESCRIPTORS = 1024, 8
"""Limits of the unit of the mutants."""


def _refused(pdu: Any, asc: Asc = Asc.INVALID_FIELD_IN_CDB) -> Out:
    return check(pdu, SenseKey.ILLEGAL_REQUEST, asc)


# Log parameters


def _log_data(row: str, change: Callable[[bytes], bytes]) -> None:
    @mutant(row, kind=RARE)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        of_page = block[0] == LOG_SENSE and block[2] & 0x3F == WRITE_ERRORS
        whole = of_page and isinstance(pdu, DataIn) and len(pdu.data) == 4 + 2 * PARAMETER
        return replace(pdu, data=change(pdu.data)) if whole else pdu  # type: ignore[attr-defined, call-arg]


_log_data(
    "log-parameters-order | SPC-4 log parameters | they are in descending order",
    lambda data: data[:4] + data[4 + PARAMETER :] + data[4 : 4 + PARAMETER],
)
_log_data(
    "log-parameter-long | SPC-4 log parameters | PARAMETER LENGTH counts one byte more",
    lambda data: data[:7] + bytes((data[7] + 1,)) + data[8:],
)


def _log_pointer(row: str, change: Callable[[int], int]) -> None:
    @on_request(row, kind=RARE)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != LOG_SENSE or pdu.cdb[2] & 0x3F != WRITE_ERRORS:
            return pdu
        pointer = int.from_bytes(pdu.cdb[5:7], "big")
        if not 0 < pointer <= LAST:
            return pdu
        return replace(pdu, cdb=pdu.cdb[:5] + change(pointer).to_bytes(2, "big") + pdu.cdb[7:])


_log_pointer(
    "log-pointer-none | SPC-4 LOG SENSE, PARAMETER POINTER | each parameter is returned, whatever it is",
    lambda _: 0,
)
_log_pointer(
    "log-pointer-one-more | SPC-4 LOG SENSE, PARAMETER POINTER | the parameter that it names is not returned",
    lambda pointer: min(pointer + 1, LAST),
)


def _log_select(row: str, flags: Callable[[int], int]) -> None:
    @on_request(row, kind=RARE)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != LOG_SELECT.opcode:
            return pdu
        return replace(pdu, cdb=pdu.cdb[:1] + bytes((flags(pdu.cdb[1]),)) + pdu.cdb[2:])


_log_select(
    "log-select-resets | SPC-4 LOG SELECT | it resets the counters without PCR", lambda one: one | PCR
)
_log_select("log-select-pcr-ignored | SPC-4 LOG SELECT, PCR | nothing is reset", lambda one: one & ~PCR)


def _log_select_ends(row: str, applies: Callable[[bytes], bool], change: Callable[[Any], Out]) -> None:
    @mutant(row, kind=RARE)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        return change(pdu) if ends(pdu) and block[0] == LOG_SELECT.opcode and applies(block) else pdu


def _has_list(block: bytes) -> bool:
    return any(block[7:9])


_log_select_ends(
    "log-select-none-refused | SPC-4 LOG SELECT | a parameter list length of zero is an invalid field",
    lambda block: not _has_list(block) and not block[1] & PCR,
    _refused,
)
_log_select_ends(
    "log-select-pcr-list | SPC-4 LOG SELECT, PCR | PCR with a parameter list is GOOD",
    lambda block: _has_list(block) and bool(block[1] & PCR),
    good,
)
_log_select_ends(
    "log-select-absent | SPC-4 LOG SELECT | each page is taken",
    lambda block: _has_list(block) and not block[1] & PCR,
    good,
)


# RESERVE(10)


def _status(pdu: Pdu) -> int | None:
    return pdu.status if ends(pdu) else None  # type: ignore[attr-defined]


@mutant("reserve10-ignored | SPC-2 RESERVE(10) | it excludes no command of another nexus", kind=RARE)
def reserve10_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    reserves = talk.cdb(pdu)[0] in (RESERVE_10.opcode, c.RESERVE_6.opcode)
    return good(pdu) if _status(pdu) == CONFLICT and not reserves else pdu


@mutant("reserve10-taken | SPC-2 RESERVE(10) | it is GOOD although another nexus has the unit", kind=RARE)
def reserve10_taken(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if _status(pdu) == CONFLICT and talk.cdb(pdu)[0] == RESERVE_10.opcode else pdu


@mutant("reserve10-look | SPC-2 RESERVE(10) | INQUIRY of another nexus is a conflict", kind=RARE)
def reserve10_look(talk: ProxyConnection, pdu: Pdu) -> Out:
    if talk.cdb(pdu)[0] == RESERVE_10.opcode and _status(pdu) == 0:
        talk.shared["holder"] = talk.name
    looks = talk.cdb(pdu)[0] == c.INQUIRY.opcode and talk.shared.get("holder", talk.name) != talk.name
    if not looks:
        return pdu
    return ended_in(pdu, CONFLICT) if ends(pdu) else None


@on_request("release10-ignored | SPC-2 RELEASE(10) | it releases nothing", kind=RARE)
def release10_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == RELEASE_10.opcode
    return replace(pdu, cdb=bytes(16)) if ours else pdu  # type: ignore[call-arg]


@mutant("release10-of-another | SPC-2 RELEASE(10) | that of another nexus ends the reservation", kind=RARE)
def release10_of_another(talk: ProxyConnection, pdu: Pdu) -> Out:
    if talk.cdb(pdu)[0] == RELEASE_10.opcode and ends(pdu):
        talk.shared["free"] = True
    return good(pdu) if _status(pdu) == CONFLICT and talk.shared.get("free") else pdu


def _notes_reset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.LOGICAL_UNIT_RESET:
        talk.shared["reset"] = True
    return pdu


def _outlives(talk: ProxyConnection, pdu: Pdu) -> Out:
    kept = talk.shared.get("reset") and talk.cdb(pdu)[0] == c.WRITE_16.opcode and _status(pdu) == 0
    return ended_in(pdu, CONFLICT) if kept else pdu


both("reserve10-outlives-reset | SPC-2 RESERVE(10) | a logical unit reset does not end it",
     _outlives, _notes_reset, kind=RARE)  # fmt: skip


# Fields that PERSISTENT RESERVE OUT ignores


def _pr_out(row: str, actions: tuple[int, ...], applies: Callable[[bytes, bytes], bool], asc: Asc) -> None:
    """A mutant that refuses a service action: ``applies(cdb, parameter list)``."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, (DataOut, ScsiCommand)) and pdu.data and talk.cdb(pdu)[0] == PR_OUT:
            talk.memory["list"] = pdu.data
        return pdu

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ours = ends(pdu) and block[0] == PR_OUT and block[1] & 0x1F in actions
        return _refused(pdu, asc) if ours and applies(block, talk.memory.get("list", b"")) else pdu

    both(row, reply, request, kind=FULL)


_pr_out(
    "register-type-checked | SPC-4 REGISTER | SCOPE and TYPE have to be valid",
    (PrOut.REGISTER, PrOut.REGISTER_AND_IGNORE_EXISTING_KEY),
    lambda block, _: bool(block[2]),
    Asc.INVALID_FIELD_IN_CDB,
)
_pr_out(
    "clear-type-checked | SPC-4 CLEAR | SCOPE and TYPE have to be valid",
    (PrOut.CLEAR,),
    lambda block, _: bool(block[2]),
    Asc.INVALID_FIELD_IN_CDB,
)
_pr_out(
    "reserve-action-key-checked | SPC-4 RESERVE, RELEASE | the service action reservation key has to be zero",
    (PrOut.RESERVE, PrOut.RELEASE),
    lambda _, data: any(data[8:16]),
    Asc.INVALID_FIELD_IN_PARAMETER_LIST,
)
_pr_out(
    "aptpl-of-each-checked | SPC-4 APTPL, ALL_TG_PT | they have to be 0 where they are not defined",
    (PrOut.RESERVE, PrOut.RELEASE, PrOut.CLEAR, PrOut.PREEMPT),
    lambda _, data: bool(data[20:21]) and bool(data[20] & 0x05),
    Asc.INVALID_FIELD_IN_PARAMETER_LIST,
)


def _notes_reserve(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    reserves = block[0] == PR_OUT and block[1] & 0x1F == PrOut.RESERVE
    if isinstance(pdu, (DataOut, ScsiCommand)) and pdu.data and reserves:
        talk.shared["reserve"] = pdu.data
    return pdu


def _registers(talk: ProxyConnection, pdu: Pdu) -> Out:
    block, data = talk.cdb(pdu), talk.shared.get("reserve", bytes(24))
    shows = isinstance(pdu, DataIn) and block[0] == PR_IN and block[1] & 0x1F == PrIn.READ_KEYS
    return replace(pdu, data=pdu.data.replace(data[:8], data[8:16])) if shows and any(data[8:16]) else pdu  # type: ignore[attr-defined, call-arg]


def _takes_aptpl(talk: ProxyConnection, pdu: Pdu) -> Out:
    block, data = talk.cdb(pdu), talk.shared.get("reserve", bytes(24))
    shows = isinstance(pdu, DataIn) and block[0] == PR_IN and block[1] & 0x1F == PrIn.REPORT_CAPABILITIES
    if not shows or not data[20] & 1:
        return pdu
    return replace(pdu, data=pdu.data[:3] + bytes((pdu.data[3] | 1,)) + pdu.data[4:])  # type: ignore[attr-defined, call-arg]


both("reserve-registers | SPC-4 RESERVE | the service action reservation key becomes that of the nexus",
     _registers, _notes_reserve, kind=FULL)  # fmt: skip
both("aptpl-of-each-taken | SPC-4 APTPL | that of RESERVE sets PTPL_A",
     _takes_aptpl, _notes_reserve, kind=FULL)  # fmt: skip


# Exact limits


def _notes_unmap(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, (DataOut, ScsiCommand)) and pdu.data and talk.cdb(pdu)[0] == c.UNMAP.opcode:
        talk.memory["list"] = pdu.data
    return pdu


def _unmap(row: str, applies: Callable[[bytes], bool]) -> None:
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = ends(pdu) and talk.cdb(pdu)[0] == c.UNMAP.opcode
        return (
            _refused(pdu, Asc.INVALID_FIELD_IN_PARAMETER_LIST)
            if ours and applies(talk.memory.get("list", b""))
            else pdu
        )

    both(row, reply, _notes_unmap, kind=RARE)


_unmap(
    "unmap-one-descriptor-less | SBC-3 Block Limits | the last descriptor of a list of as many as allowed is too many",
    lambda data: len(data) >= 8 + 16 * MOST_DESCRIPTORS,
)
_unmap(
    "unmap-one-block-less | SBC-3 Block Limits | MAXIMUM UNMAP LBA COUNT blocks are too many",
    lambda data: int.from_bytes(data[16:20], "big") >= MOST,
)


@mutant("same-one-block-less | SBC-3 Block Limits | MAXIMUM WRITE SAME LENGTH blocks are too many", kind=RARE)
def same_one_block_less(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    at = {c.WRITE_SAME_10.opcode: slice(7, 9), c.WRITE_SAME_16.opcode: slice(10, 14)}.get(block[0])
    return _refused(pdu) if ends(pdu) and at and int.from_bytes(block[at], "big") >= MOST else pdu


@mutant("power-any-condition | SBC-3 START STOP UNIT, POWER CONDITION | reserved values are GOOD", kind=FULL)
def power_any_condition(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    ours = ends(pdu) and block[0] == c.START_STOP_UNIT.opcode and block[4] >> 4 >= 0xC
    return good(pdu) if ours else pdu
