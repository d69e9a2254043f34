"""Broken rules of lengths that are reported or sent, of the list of commands, and of one unit attention.

The rules, from the text (SPC-4, SBC-3), and the reports that some are from:

- Extended INQUIRY Data and Block Device Characteristics have a PAGE LENGTH of 003Ch (SPDK issue 750).
- A direct-access block device returns one block descriptor; a long one, of 16 bytes, is marked by LONGLBA.
- BLOCK DESCRIPTOR LENGTH has two bytes (SCST 6ae28a04), PARAMETER LIST LENGTH of PERSISTENT RESERVE OUT four.
- REPORT SUPPORTED OPERATION CODES lists what is supported, with SERVACTV and the length of each CDB.
- PREEMPT AND ABORT notifies as PREEMPT does (SPC-4). ALLOW COMMANDS of 110b and 111b is reserved.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_each_form_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, ends

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, SenseKey
from storagetest.wire.scsi.sense import decode_sense

RESERVE_IN, RESERVE_OUT = c.PERSISTENT_RESERVE_IN.opcode, c.PERSISTENT_RESERVE_OUT.opcode
OPERATION_CODES = bytes((0xA3, 0x0C))
LLBAA, DBD, SERVACTV = 0x10, 0x08, 0x01


def changes(row: str, of: Callable[[bytes], bool], change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes the whole data of a command; the residual is that of the new length."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        if not of(talk.cdb(pdu)):
            return pdu
        if isinstance(pdu, DataIn) and len(pdu.data) > 4:  # not one that is cut to its header
            data = change(pdu.data)
            talk.memory["more"] = len(data) - len(pdu.data)
            return replace(pdu, data=data)
        if ends(pdu) and pdu.underflow:
            return replace(pdu, residual=pdu.residual - talk.memory.pop("more", 0))
        return pdu


def _is_page(*codes: int) -> Callable[[bytes], bool]:
    return lambda block: block[0] == c.INQUIRY.opcode and bool(block[1] & 1) and block[2] in codes


changes(
    "page-of-63-bytes | SPC-4, SBC-3, PAGE LENGTH | pages 86h, B1h and B2h have 63 bytes",
    _is_page(0x86, 0xB1, 0xB2),
    lambda data: data[:2] + b"\0\x3f" + data[4:].ljust(63, b"\0"),
)


def _asks_for_long(block: bytes) -> bool:
    return block[0] == c.MODE_SENSE_10.opcode and bool(block[1] & LLBAA) and not block[1] & DBD


def _long(data: bytes, descriptor: bytes, *, marked: bool) -> bytes:
    """Return MODE SENSE(10) data with a descriptor of 16 bytes in the place of one of 8."""
    size = int.from_bytes(data[:2], "big") + 8
    return size.to_bytes(2, "big") + data[2:4] + bytes((marked, 0, 0, 16)) + descriptor + data[16:]


changes(
    "long-descriptor-unmarked | SBC-3 block descriptors | LONGLBA is 0, and the descriptor is long",
    _asks_for_long,
    lambda data: _long(data, bytes(4) + data[8:12] + bytes(4) + data[12:16], marked=False),
)
changes(
    "long-descriptor-swapped | SBC-3 block descriptors | the length of a block is before their number",
    _asks_for_long,
    lambda data: _long(data, data[12:16] + bytes(8) + data[8:12], marked=True),
)


@on_request(
    "descriptor-length-byte | SPC-4 BLOCK DESCRIPTOR LENGTH | its first byte is ignored by MODE SELECT(10)",
    kind=KIND,
)
def descriptor_length_byte(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, DataOut) or talk.cdb(pdu)[0] != c.MODE_SELECT_10.opcode:
        return pdu
    return replace(pdu, data=pdu.data[:6] + b"\0" + pdu.data[7:])


@on_request(
    "out-length-byte | SPC-4 PERSISTENT RESERVE OUT | only the last byte of the list's length counts",
    kind=KIND,
)
def out_length_byte(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != RESERVE_OUT:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:5] + bytes(3) + pdu.cdb[8:])


@mutant(
    "listed-command-refused | SPC-4 REPORT SUPPORTED OPERATION CODES | WRITE SAME(10) is listed, and unknown",
    kind=KIND,
)
def listed_command_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = ends(pdu) and talk.cdb(pdu)[0] == c.WRITE_SAME_10.opcode
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE) if refused else pdu


def _lists(block: bytes) -> bool:
    return block[:2] == OPERATION_CODES and not block[2] & 0x87


def _entries(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return the list of commands with changed descriptors."""
    body = b"".join(change(data[at : at + 8]) for at in range(4, len(data), 8))
    return struct.pack(">I", len(body)) + body


changes(
    "executed-command-unlisted | SPC-4 REPORT SUPPORTED OPERATION CODES | the list lacks READ(12)",
    _lists,
    lambda data: _entries(data, lambda one: b"" if one[0] == c.READ_12.opcode else one),
)
changes(
    "listed-length-other | SPC-4 REPORT SUPPORTED OPERATION CODES | CDB LENGTH of READ(6) is 10",
    _lists,
    lambda data: _entries(data, lambda one: one[:6] + b"\0\x0a" if one[0] == c.READ_6.opcode else one),
)
changes(
    "service-action-unmarked | SPC-4 REPORT SUPPORTED OPERATION CODES | SERVACTV is 0",
    _lists,
    lambda data: _entries(data, lambda one: one[:5] + bytes((one[5] & ~SERVACTV,)) + one[6:]),
)


def _notes_abort(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == RESERVE_OUT:
        talk.shared["abort"] = pdu.cdb[1] & 0x1F == PrOut.PREEMPT_AND_ABORT
    return pdu


@mutant(
    "abort-other-attention | SPC-4 PREEMPT AND ABORT | it notifies as CLEAR does",
    request=_notes_abort,
    kind=KIND,
)
def abort_other_attention(talk: ProxyConnection, pdu: Any) -> Out:
    if not talk.shared.get("abort") or not attention(pdu):
        return pdu
    preempted = decode_sense(pdu.sense).asc == Asc.REGISTRATIONS_PREEMPTED
    return check(pdu, SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_PREEMPTED) if preempted else pdu


@mutant(
    "allow-commands-reserved | SPC-4 REPORT CAPABILITIES | ALLOW COMMANDS is the reserved 111b", kind=KIND
)
def allow_commands_reserved(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    shown = block[0] == RESERVE_IN and block[1] & 0x1F == PrIn.REPORT_CAPABILITIES
    if not isinstance(pdu, DataIn) or not shown or len(pdu.data) < 4:
        return pdu
    return replace(pdu, data=pdu.data[:3] + bytes((pdu.data[3] | 0x70,)) + pdu.data[4:])


@mutant(
    "reserve-in-length-cut | SPC-4 PERSISTENT RESERVE IN | each length is that of what is returned", kind=KIND
)
def reserve_in_length_cut(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN:
        return pdu
    data = pdu.data
    if block[1] & 0x1F == PrIn.REPORT_CAPABILITIES:
        return pdu
    return (
        replace(pdu, data=data[:4] + (len(data) - 8).to_bytes(4, "big") + data[8:]) if len(data) >= 8 else pdu
    )


@mutant("d-sense-attention-fixed | SPC-4 D_SENSE | a unit attention is always in fixed format", kind=KIND)
def d_sense_attention_fixed(talk: ProxyConnection, pdu: Any) -> Out:
    if not attention(pdu) or not decode_sense(pdu.sense).descriptor:
        return pdu
    return check(pdu, SenseKey.UNIT_ATTENTION, decode_sense(pdu.sense).asc)


@mutant(
    "reserve-in-short-refused | SPC-4 allocation length | PERSISTENT RESERVE IN refuses less than 8 bytes",
    kind=KIND,
)
def reserve_in_short_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if block[0] != RESERVE_IN or int.from_bytes(block[7:9], "big") >= 8:
        return pdu
    if isinstance(pdu, DataIn):
        return None
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if ends(pdu) else pdu
