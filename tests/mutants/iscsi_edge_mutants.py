"""Broken rules at the edges of SCSI commands and of sessions.

The rules, before any case (RFC 7143 from its text; SPC-4, SBC-3 and SAM-5 by their sections):

- RFC 7143 4.2.2.1: the command window follows ExpCmdSN; a session without outstanding commands can send one.
- RFC 7143 4.2.5.2, 13.10: every unsolicited Data-Out is written, of each of several commands (MUST).
- SPC-4 REPORT LUNS: SELECT REPORT 02h lists what 00h lists; 01h lists well-known logical units only; a
  reserved value is an error (MUST).
- SPC-4 MODE SELECT: no parameter list is no error; the current values are taken and change nothing; a value
  that is not changeable, and a list that ends within a page, are refused (MUST).
- SPC-4 reservations: TEST UNIT READY, REPORT LUNS, REQUEST SENSE, PERSISTENT RESERVE IN are allowed (MUST).
- SPC-2 RESERVE(6): a logical unit reset ends the reservation (MUST).
- SBC-3 READ CAPACITY(16): any allocation length cuts the data, and changes no byte (MUST).
- SBC-3 READ(10), WRITE(10) and others: LBAs are unsigned numbers of 32 bits (MUST).
- SBC-3 UNMAP: a range past the end is LBA OUT OF RANGE, and nothing is unmapped (MUST).
- SBC-3 WRITE SAME: with WSNZ, no blocks is an invalid field; a range may end at the last block (MUST).
- SBC-3 COMPARE AND WRITE: INFORMATION is the offset of the first difference, however far it is (MUST).
"""

from dataclasses import replace
from typing import Any

from iscsi_block_mutants import executes
from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant, on_request
from iscsi_rules import check, ended_in, ends, good, sense_data
from iscsi_scsi_mutants import forgives, refuses, scsi

from storagetest.wire.iscsi.codes import NO_TAG, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataOut, ScsiCommand, ScsiResponse, TaskRequest
from storagetest.wire.scsi.sense import decode_sense

# The command window (RFC 7143 4.2.2.1)


@mutant("max-cmd-sn-leaks | RFC 7143 4.2.2.1 | each command takes a place of the window for good")
def max_cmd_sn_leaks(talk: ProxyConnection, pdu: Any) -> Any:
    if not isinstance(pdu, ScsiResponse):
        window = pdu.max_cmd_sn - talk.memory.get("leaked", 0) if hasattr(pdu, "max_cmd_sn") else 0
        low = max(window, pdu.exp_cmd_sn - 1) if window else 0
        return replace(pdu, max_cmd_sn=low % 2**32) if low else pdu
    talk.memory["leaked"] = talk.memory.get("leaked", 0) + 1
    low = max(pdu.max_cmd_sn - talk.memory["leaked"], pdu.exp_cmd_sn - 1)
    return replace(pdu, max_cmd_sn=low % 2**32)


# Unsolicited data (RFC 7143 4.2.5.2, 13.10)


@on_request(
    "unsolicited-later-lost | RFC 7143 13.10 | of several unsolicited Data-Out, the first is written",
    kind="unsolicited",
)
def unsolicited_later_lost(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    lost = isinstance(pdu, DataOut) and pdu.ttt == NO_TAG and pdu.data_sn
    return replace(pdu, data=bytes(len(pdu.data))) if lost else pdu  # type: ignore[attr-defined,type-var]


@on_request(
    "unsolicited-second-lost | RFC 7143 4.2.5.2 | unsolicited data of a second write are lost",
    kind="unsolicited",
)
def unsolicited_second_lost(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.write:
        talk.memory.setdefault("writes", set()).add(pdu.itt)
        if len(talk.memory["writes"]) > 1:
            talk.memory.setdefault("second", set()).add(pdu.itt)
    lost = isinstance(pdu, DataOut) and pdu.ttt == NO_TAG and pdu.itt in talk.memory.get("second", ())
    return replace(pdu, data=bytes(len(pdu.data))) if lost else pdu  # type: ignore[attr-defined,type-var]


def _write_ends(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiResponse):
        talk.memory.get("writes", set()).discard(pdu.itt)
    return pdu


MUTANTS["unsolicited-second-lost"].reply = _write_ends

# REPORT LUNS, READ CAPACITY(16), MODE SELECT (SPC-4, SBC-3)

scsi("luns-select-empty | SPC-4 REPORT LUNS | SELECT REPORT 02h lists nothing", 0xA0,
     lambda data, block: bytes(8) if block[2] == 2 else None)  # fmt: skip


def whole_capacity(block: bytearray, data: bytes) -> None:
    if block[1] & 0x1F == 0x10:
        block[10:14] = (32).to_bytes(4, "big")


executes("capacity-allocation-ignored | SBC-3 READ CAPACITY(16) | the allocation length is ignored", {0x9E},
         whole_capacity)  # fmt: skip
refuses("capacity-zero-refused | SBC-3 READ CAPACITY(16) | an allocation length of zero is refused", 0x9E,
        lambda block: block[10:14] == bytes(4))  # fmt: skip
refuses("mode-select-refused | SPC-4 MODE SELECT(6) | the current values are refused", 0x15,
        lambda block: block[4])  # fmt: skip
refuses("mode-select-zero | SPC-4 MODE SELECT(6) | a parameter list length of zero is refused", 0x15,
        lambda block: not block[4])  # fmt: skip
forgives("mode-select-any | SPC-4 MODE SELECT(6) | values that are not changeable are accepted", {0x15}, 5)
forgives(
    "mode-select-cut | SPC-4 MODE SELECT(6) | a parameter list that is cut is accepted", {0x15}, 5, 0x1A00
)


@mutant("mode-select-second | SPC-4 MODE SELECT(6) | of values that are not changeable, one alone is refused")
def mode_select_second(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    refused = isinstance(pdu, ScsiResponse) and pdu.status == 2 and talk.cdb(pdu)[0] == 0x15
    talk.memory["refused"] = talk.memory.get("refused", 0) + refused
    return good(pdu) if refused and talk.memory["refused"] > 1 else pdu


# Reservations


def conflicts(row: str, opcode: int) -> None:
    """A mutant that excludes the other host from a command."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        mine = ends(pdu) and talk.cdb(pdu)[0] == opcode and talk.name.endswith("-b")
        held = talk.shared.get("reserved")
        if ends(pdu) and talk.cdb(pdu)[0] == 0x5F and talk.cdb(pdu)[1] & 0x1F == 1:
            talk.shared["reserved"] = True
        return ended_in(pdu, 0x18) if mine and held else pdu


conflicts("reservation-tur | SPC-4 reservations | TEST UNIT READY conflicts with a reservation", 0x00)
conflicts("reservation-luns | SPC-4 reservations | REPORT LUNS conflicts with a reservation", 0xA0)
conflicts("reservation-sense | SPC-4 reservations | REQUEST SENSE conflicts with a reservation", 0x03)
conflicts("reservation-in | SPC-4 reservations | PERSISTENT RESERVE IN conflicts with a reservation", 0x5E)


@on_request("reserve6-outlives-reset | SPC-2 RESERVE(6) | a logical unit reset does not end RESERVE(6)")
def reset_seen(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.LOGICAL_UNIT_RESET:
        talk.shared["reset"] = True
    return pdu


def _still_reserved(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    written = ends(pdu) and talk.cdb(pdu)[0] == 0x8A and talk.name.endswith("-b")
    return ended_in(pdu, 0x18) if written and talk.shared.get("reset") else pdu


MUTANTS["reserve6-outlives-reset"].reply = _still_reserved

# Addresses and ranges (SBC-3)


def without_sign(block: bytearray, data: bytes) -> None:
    block[2] &= 0x7F


executes("lba-signed | SBC-3 READ(10), WRITE(10) | bit 31 of an LBA is dropped",
         {0x28, 0x2A, 0x2F, 0x41, 0xA8},
         without_sign)  # fmt: skip


@on_request("unmap-across-end-begins | SBC-3 UNMAP | a range past the end is refused after its first block")
def unmap_begins(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    across = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == 0x42 and pdu.data[16:20] == b"\0\0\0\2"
    if not across:
        return pdu
    talk.memory["across"] = pdu.itt  # type: ignore[attr-defined]
    return replace(pdu, data=pdu.data[:16] + b"\0\0\0\1" + pdu.data[20:])  # type: ignore[attr-defined,type-var]


def _refuses_across(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    mine = isinstance(pdu, ScsiResponse) and pdu.itt == talk.memory.get("across") and not pdu.status
    return check(pdu, 5, 0x2100) if mine else pdu


MUTANTS["unmap-across-end-begins"].reply = _refuses_across
forgives("unmap-far-good | SBC-3 UNMAP | a range far past the end is no error", {0x42}, 5, 0x2100)


def one_block(block: bytearray, data: bytes) -> None:
    if block[10:14] == bytes(4):
        block[13] = 1


executes("write-same-zero | SBC-3 WRITE SAME | no blocks are one block, in spite of WSNZ", {0x93}, one_block)


@mutant("caw-offset-byte | SBC-3 COMPARE AND WRITE | INFORMATION has the low byte of the offset only")
def caw_offset_byte(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiResponse) or talk.cdb(pdu)[0] != 0x89 or not pdu.sense:
        return pdu
    sense = decode_sense(pdu.sense)
    low = None if sense.information is None else sense.information & 0xFF
    return replace(pdu, data=sense_data(sense.key, sense.asc, information=low))
