"""Broken rules that were reported of real targets, and that no case made.

The rules, each with the fix or the report that it is from:

- RFC 7143 11.4.5.1: a command that returns nothing has a residual of all that was expected (SPDK a02ab95e).
- RFC 7143 11.10: each Text Request has a response, also one without text (SPDK f3fd56fc).
- SPC-4 INQUIRY: no unit that is there answers for one that is absent, nor for its VPD pages (SCST 0b00e0af).
- SPC-4 REPORT SUPPORTED OPERATION CODES: COMMAND DATA LENGTH counts the timeouts, too (SCST 5e40f251).
- SPC-4: RELEASE(6) ends no persistent reservation (the exceptions of CRH: Linux 00fdc6bb).
- SPC-4 RELEASE: it is reported to each of the other registrants (SCST 92db6a9f).
- SBC-3 UNMAP: a list that is shorter than its header is a PARAMETER LIST LENGTH ERROR (Linux bb992e72).
"""

import struct
from dataclasses import replace
from typing import Any

from iscsi_port_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, ends, good

from storagetest.wire.iscsi.encoding import Pdu, flat_lun
from storagetest.wire.iscsi.pdu import DataIn, DataOut, Reject, ScsiCommand, TextRequest, TextResponse
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import decode_sense

INQUIRY, RELEASE_6, UNMAP, RESERVE_IN, RESERVE_OUT, MAINTENANCE_IN = 0x12, 0x17, 0x42, 0x5E, 0x5F, 0xA3
READ_RESERVATION, OPERATION_CODES, RCTD = 0x01, 0x0C, 0x80
ABSENT = flat_lun(0x2FF)
"""The logical unit that no target of the mutants has."""


@mutant("residual-of-nothing | RFC 7143 11.4.5.1 | a read that returns no data has no residual", kind=KIND)
def residual_of_nothing(talk: ProxyConnection, pdu: Any) -> Pdu:
    asked = talk.commands.get(pdu.itt)
    nothing = ends(pdu) and asked is not None and asked.read and pdu.residual == asked.expected_length
    return replace(pdu, underflow=False, residual=0) if nothing else pdu  # type: ignore[no-any-return]


def _notes_text(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, TextRequest):
        talk.memory["empty"] = not pdu.data
    return pdu


@mutant(
    "text-empty-unanswered | RFC 7143 11.10 | a Text Request without text has no response",
    request=_notes_text,
    kind=KIND,
)
def text_empty_unanswered(talk: ProxyConnection, pdu: Pdu) -> Out:
    answered = isinstance(pdu, (Reject, TextResponse)) and talk.memory.get("empty")
    return None if answered else pdu


@on_request("vpd-of-absent-unit | SPC-4 INQUIRY | a unit that is there answers for one that is absent")
def vpd_of_absent_unit(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand):
        return pdu
    if pdu.lun != ABSENT:
        talk.memory["lun"] = pdu.lun
    page = pdu.cdb[0] == INQUIRY and pdu.cdb[1] & 1 and pdu.lun == ABSENT
    return replace(pdu, lun=talk.memory["lun"]) if page else pdu


@mutant(
    "timeouts-not-counted | SPC-4 REPORT SUPPORTED OPERATION CODES | COMMAND DATA LENGTH lacks the timeouts",
    kind=KIND,
)
def timeouts_not_counted(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[:2] != bytes((MAINTENANCE_IN, OPERATION_CODES)):
        return pdu
    if block[2] != RCTD or pdu.buffer_offset or len(pdu.data) < 4:
        return pdu
    return replace(
        pdu, data=(int.from_bytes(pdu.data[:4], "big") // 20 * 8).to_bytes(4, "big") + pdu.data[4:]
    )


@mutant(
    "release6-ends-persistent | SPC-4 exceptions to RELEASE(6) | RELEASE(6) ends a persistent reservation",
    kind=KIND,
)
def release6_ends_persistent(talk: ProxyConnection, pdu: Any) -> Pdu:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == RELEASE_6:
        talk.shared["released"] = True
        return good(pdu)  # type: ignore[no-any-return]
    if ends(pdu) and block[0] == RESERVE_OUT:
        talk.shared["released"] = False
    held = isinstance(pdu, DataIn) and block[0] == RESERVE_IN and block[1] & 0x1F == READ_RESERVATION
    if not held or not talk.shared.get("released"):
        return pdu  # type: ignore[no-any-return]
    return replace(pdu, data=pdu.data[:4] + bytes(4))


@mutant(
    "unmap-short-sense | SBC-3 UNMAP | a list that is shorter than its header is an invalid field", kind=KIND
)
def unmap_short_sense(talk: ProxyConnection, pdu: Any) -> Pdu:
    failed = ends(pdu) and pdu.status == 2 and talk.cdb(pdu)[0] == UNMAP
    if not failed or decode_sense(pdu.sense).asc != Asc.PARAMETER_LIST_LENGTH_ERROR:
        return pdu  # type: ignore[no-any-return]
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


@on_request("unmap-length-ignored | SBC-3 UNMAP | each descriptor that was sent is executed", kind=KIND)
def unmap_length_ignored(talk: ProxyConnection, pdu: Any) -> Pdu:
    sent = isinstance(pdu, (ScsiCommand, DataOut)) and talk.cdb(pdu)[0] == UNMAP and len(pdu.data) >= 24
    return (
        replace(pdu, data=pdu.data[:2] + struct.pack(">H", len(pdu.data) - 8) + pdu.data[4:]) if sent else pdu
    )


@mutant(
    "release-attention-for-one | SPC-4 RELEASE, unit attention | a RELEASE notifies one nexus only", kind=KIND
)
def release_attention_for_one(talk: ProxyConnection, pdu: Any) -> Pdu:
    if not attention(pdu) or decode_sense(pdu.sense).asc != Asc.RESERVATIONS_RELEASED:
        return pdu  # type: ignore[no-any-return]
    return pdu if talk.shared.setdefault("notified", talk.name) == talk.name else good(pdu)  # type: ignore[no-any-return]
