"""Broken rules of bits that few initiators set (DPO, protection, NACA, LLBAA, RCTD), and of second forms.

The rules, from the text, before any case:

- SBC-3, DPOFUA of the mode parameter header: set, it states that DPO and FUA are supported.
- SBC-3: a unit without protection information refuses VRPROTECT, ORPROTECT and WRPROTECT other than 000b.
- SAM-5, CONTROL: NACA is an invalid field of a unit whose NormACA is 0.
- SPC-4 MODE SENSE(10): if LLBAA is 0, LONGLBA shall be 0.
- SPC-4 LOG SENSE: a parameter pointer past the last parameter is an invalid field.
- SPC-4 MODE SELECT: what it changes for other nexuses is reported to them, whichever form of the command.
- SAM-5 5.14: REPORT LUNS and INQUIRY clear no unit attention. SPC-2: RESERVE(6) does not exclude them.
- SPC-4 REPORT SUPPORTED OPERATION CODES: with RCTD, each command descriptor has one of its timeouts.
"""

from dataclasses import replace
from typing import Any

from iscsi_port_mutants import KIND
from iscsi_proxy_connection import ProxyConnection, mutant, on_request
from iscsi_reservation_mutants import enforces
from iscsi_rules import attention, check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import decode_sense

COMPARING = {0x2F, 0xAF, 0x8F, 0x2E, 0xAE, 0x8E, 0x8B, 0x89}
"""VERIFY, WRITE AND VERIFY, ORWRITE, COMPARE AND WRITE."""
MODE_SENSE_10, MAINTENANCE_IN, OPERATION_CODES, LOG_SENSE = 0x5A, 0xA3, 0x0C, 0x4D
MODE_SELECT_6, MODE_SELECT_10, INQUIRY, REPORT_LUNS, REQUEST_SENSE = 0x15, 0x55, 0x12, 0xA0, 0x03
FUA, DPO, NACA, LLBAA, RCTD, LONGLBA = 0x08, 0x10, 0x04, 0x10, 0x80, 0x01
LENGTHS = {0: 6, 1: 10, 2: 10, 4: 16, 5: 12}
"""Bytes of a CDB by the group of its operation code."""


@mutant("dpo-refused | SBC-3 DPOFUA | commands that compare refuse DPO, and DPOFUA is 1", kind=KIND)
def dpo_refused(talk: ProxyConnection, pdu: Any) -> Pdu:
    block = talk.cdb(pdu)
    if not ends(pdu) or block[0] not in COMPARING or not block[1] & DPO:
        return pdu  # type: ignore[no-any-return]
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


@mutant("fua-refused | SBC-3 DPOFUA | ORWRITE and COMPARE AND WRITE refuse FUA, and DPOFUA is 1", kind=KIND)
def fua_refused(talk: ProxyConnection, pdu: Any) -> Pdu:
    block = talk.cdb(pdu)
    if not ends(pdu) or block[0] not in (0x8B, 0x89) or not block[1] & FUA:
        return pdu  # type: ignore[no-any-return]
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


@on_request(
    "protect-of-compare | SBC-3 protection information | commands that compare ignore their protection field",
    kind=KIND,
)
def protect_of_compare(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in COMPARING:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:1] + bytes((pdu.cdb[1] & 0x1F,)) + pdu.cdb[2:])


@mutant("naca-accepted | SAM-5 CONTROL | NACA is ignored, and NormACA is 0", kind=KIND)
def naca_accepted(talk: ProxyConnection, pdu: Any) -> Pdu:
    block = talk.cdb(pdu)
    last = LENGTHS.get(block[0] >> 5, 16) - 1
    return good(pdu) if ends(pdu) and pdu.status == 2 and block[last] & NACA else pdu  # type: ignore[no-any-return]


@mutant("long-lba-unasked | SPC-4 MODE SENSE(10) | LONGLBA is 1 although LLBAA is 0", kind=KIND)
def long_lba_unasked(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != MODE_SENSE_10 or block[1] & LLBAA or len(pdu.data) < 8:
        return pdu
    return replace(pdu, data=pdu.data[:4] + bytes((pdu.data[4] | LONGLBA,)) + pdu.data[5:])


@on_request("timeouts-missing | SPC-4 REPORT SUPPORTED OPERATION CODES | RCTD is ignored", kind=KIND)
def timeouts_missing(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[:2] != bytes((MAINTENANCE_IN, OPERATION_CODES)):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:2] + bytes((pdu.cdb[2] & ~RCTD,)) + pdu.cdb[3:])


@on_request("log-pointer-ignored | SPC-4 LOG SENSE | PARAMETER POINTER is ignored", kind=KIND)
def log_pointer_ignored(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != LOG_SENSE:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:5] + bytes(2) + pdu.cdb[7:])


def _notes_select(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in (MODE_SELECT_6, MODE_SELECT_10):
        talk.shared["select"] = pdu.cdb[0]
    return pdu


@mutant(
    "select-10-unreported | SPC-4 MODE SELECT(10) | no unit attention reports what MODE SELECT(10) changed",
    request=_notes_select,
    kind=KIND,
)
def select_10_unreported(talk: ProxyConnection, pdu: Any) -> Pdu:
    changed = attention(pdu) and decode_sense(pdu.sense).asc == Asc.MODE_PARAMETERS_CHANGED
    return good(pdu) if changed and talk.shared.get("select") == MODE_SELECT_10 else pdu  # type: ignore[no-any-return]


@mutant("luns-clear-attention | SAM-5 5.14 | REPORT LUNS clears the pending unit attention", kind=KIND)
def luns_clear_attention(talk: ProxyConnection, pdu: Any) -> Pdu:
    if ends(pdu) and talk.cdb(pdu)[0] == REPORT_LUNS:
        talk.memory["luns"] = True
    return good(pdu) if attention(pdu) and talk.memory.get("luns") else pdu  # type: ignore[no-any-return]


enforces(
    "reserve6-look",
    "INQUIRY, REPORT LUNS and REQUEST SENSE conflict with RESERVE(6) of another nexus",
    {INQUIRY, REPORT_LUNS, REQUEST_SENSE},
    conflict=True,
    host_suffix="-b",
    kind=KIND,
)


@on_request("same-count-byte | SBC-3 WRITE SAME | the number of blocks is taken modulo 256", kind=KIND)
def same_count_byte(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    last = {0x41: 8, 0x93: 13}.get(pdu.cdb[0]) if isinstance(pdu, ScsiCommand) else None
    if last is None or not pdu.cdb[last]:  # type: ignore[attr-defined]
        return pdu
    block = pdu.cdb  # type: ignore[attr-defined]
    first = last - (1 if block[0] == 0x41 else 3)
    return replace(pdu, cdb=block[:first] + bytes(last - first) + block[last:])  # type: ignore[call-arg]
