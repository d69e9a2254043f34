"""Broken rules that hold for one command, nexus or size, and are broken for another.

The rules, from the text, before any case (all MUST):

- SAM-5 5.14: a unit attention ends each command but INQUIRY, REPORT LUNS and REQUEST SENSE.
- SPC-4 MODE SELECT, CLEAR, PREEMPT, RELEASE: the unit attention is for the other nexuses; the RELEASE of a write exclusive
  or exclusive access reservation establishes none; the end of the registration of the holder is reported to registrants.
- SBC-3 READ, WRITE: an address past the end is an error also if no blocks follow it; VERIFY: BYTCHK of 10b is reserved.
- SBC-3 COMPARE AND WRITE: no blocks are no error.
- SPC-4 REPORT LUNS: the length is not altered by the allocation length; LOG SENSE: SUBPAGE CODE counts.
- SPC-4 REPORT SUPPORTED OPERATION CODES: options 1 and 2 are for commands without and with service actions.
- SPC-4 MODE SENSE: page 3Fh is all pages; PERSISTENT RESERVE OUT: the basic list has 24 bytes.
- SPC-4 RELEASE, REGISTER: without a reservation, or a registration, they are GOOD; the mask of REPORT CAPABILITIES.
- SPC-2 RESERVE(6): no command on blocks of another nexus passes; the holder may reserve again.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_reservation_mutants import enforces
from iscsi_rules import attention, check, ended_in, ends, good
from iscsi_scsi_mutants import refuses

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiResponse
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType
from storagetest.wire.scsi.sense import decode_sense

RESERVE_IN, RESERVE_OUT, SELECTS, RESERVE_6 = 0x5E, 0x5F, {0x15, 0x55}, 0x16


def failed(pdu: Pdu, *codes: int) -> bool:
    """Whether the PDU is CHECK CONDITION with one of these additional sense codes."""
    return isinstance(pdu, ScsiResponse) and bool(pdu.sense) and decode_sense(pdu.sense).asc in codes


def passes(row: str, when: Callable[[bytes], bool], *codes: int, kind: str | None = None) -> None:
    """A mutant that ends a command in GOOD which failed with one of these additional sense codes."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return good(pdu) if failed(pdu, *codes) and when(talk.cdb(pdu)) else pdu


def attends(row: str, when: Callable[[bytes], bool], code: int, *, kind: str | None = None) -> None:
    """A mutant that ends the TEST UNIT READY after a command that was GOOD in a unit attention."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        if ends(pdu) and block[0] == 0x00 and talk.memory.pop("attends", False):
            return check(pdu, 6, code)
        if ends(pdu) and when(block) and not pdu.status:  # type: ignore[attr-defined]
            talk.memory["attends"] = True
        return pdu


def service(block: bytes, *actions: int) -> bool:
    return block[0] == RESERVE_OUT and block[1] & 0x1F in actions


@mutant(
    "attention-passed | SAM-5 5.14 | READ CAPACITY, MODE SENSE and SYNCHRONIZE CACHE report no unit attention"
)
def attention_passed(talk: ProxyConnection, pdu: Pdu) -> Out:
    return good(pdu) if attention(pdu) and talk.cdb(pdu)[0] in {0x25, 0x9E, 0x1A, 0x5A, 0x35, 0x91} else pdu


attends("attention-own | SPC-4 unit attentions of reservations | a nexus gets the unit attention of what it did itself",
        lambda block: service(block, PrOut.RELEASE, PrOut.CLEAR, PrOut.PREEMPT, PrOut.REGISTER), Asc.RESERVATIONS_PREEMPTED)  # fmt: skip
attends("attention-own-select | SPC-4 MODE SELECT | MODE PARAMETERS CHANGED is for the nexus of the command, too",
        lambda block: block[0] in SELECTS, Asc.MODE_PARAMETERS_CHANGED, kind="full")  # fmt: skip


def no_blocks(block: bytes) -> bool:
    """Whether it is a READ or WRITE of 10, 12 or 16 bytes with a TRANSFER LENGTH of 0."""
    at = {0x28: (7, 9), 0x2A: (7, 9), 0xA8: (6, 10), 0xAA: (6, 10), 0x88: (10, 14), 0x8A: (10, 14)}
    first, end = at.get(block[0], (0, 1))
    return block[0] in at and not any(block[first:end])


passes(
    "zero-blocks-past-good | SBC-3 READ, WRITE | no blocks past the end are no error",
    no_blocks,
    Asc.LBA_OUT_OF_RANGE,
)
passes(
    "zero-blocks-past-other | SBC-3, LOGICAL BLOCK ADDRESS | no blocks past the end are no error of other commands",
    lambda block: (
        not any(block[6:10] if block[0] == 0xAF else block[10:14] if block[0] > 0x7F else block[7:9])
    ),
    Asc.LBA_OUT_OF_RANGE,
    kind="full",
)
passes(
    "verify-reserved-good | SBC-3 VERIFY | BYTCHK of 10b is no error",
    lambda block: block[0] in {0x2F, 0xAF, 0x8F} and block[1] & 6 == 4,
    Asc.INVALID_FIELD_IN_CDB,
    kind="full",
)
refuses(
    "caw-none-refused | SBC-3 COMPARE AND WRITE | no blocks are refused", 0x89, lambda block: not block[13]
)
passes("log-subpage-ignored | SPC-4 LOG SENSE | SUBPAGE CODE is ignored",
       lambda block: block[0] == 0x4D and bool(block[3]), Asc.INVALID_FIELD_IN_CDB, kind="full")  # fmt: skip
passes("operations-any-form | SPC-4 REPORT SUPPORTED OPERATION CODES | options 1 and 2 report any command",
       lambda block: block[0] == 0xA3 and block[2] & 7 in {1, 2}, Asc.INVALID_FIELD_IN_CDB, kind="full")  # fmt: skip
passes("pr-list-long | SPC-4 PERSISTENT RESERVE OUT | a longer parameter list is taken",
       lambda block: service(block, *PrOut) and int.from_bytes(block[5:9], "big") > 24, Asc.PARAMETER_LIST_LENGTH_ERROR)  # fmt: skip


@mutant("luns-length-cut | SPC-4 REPORT LUNS | LUN LIST LENGTH is that of what is returned")
def luns_cut(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] != 0xA0 or len(pdu.data) < 8:
        return pdu
    return replace(pdu, data=(len(pdu.data) - 8).to_bytes(4, "big") + pdu.data[4:])


@mutant("mode-whole-lacks | SPC-4 MODE SENSE | page 3Fh lacks the last page")
def mode_whole(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] not in {0x1A, 0x5A} or block[2] & 0x3F != 0x3F:
        return pdu
    start, ten = (8 if block[0] == 0x5A else 4), block[0] == 0x5A
    last, at = 0, start + (int.from_bytes(pdu.data[6:8], "big") if ten else pdu.data[3])
    while at + 2 <= len(pdu.data):
        last, at = at, at + 2 + pdu.data[at + 1]
    if not last:
        return pdu
    head = (last - 2).to_bytes(2, "big") + pdu.data[2:8] if ten else bytes((last - 1,)) + pdu.data[1:4]
    return replace(pdu, data=head + pdu.data[start:last])


enforces("reservation-sync-16", "SYNCHRONIZE CACHE(16) passes exclusive access", {0x91}, conflict=False)
enforces(
    "reserve6-read", "reads, and writes of 6 bytes, pass RESERVE(6)", {0x08, 0x0A, 0x88, 0x2F}, conflict=False
)
enforces("reserve6-mode", "MODE SENSE passes RESERVE(6)", {0x1A, 0x5A}, conflict=False)
enforces("release-none-conflict", "RELEASE without a reservation is a conflict", {RESERVE_OUT}, conflict=True,
         actions={PrOut.RELEASE})  # fmt: skip


@mutant("reserve6-again-refused | SPC-2 RESERVE(6) | the second RESERVE(6) of the holder is a conflict")
def reserve_again(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not ends(pdu) or talk.cdb(pdu)[0] not in {RESERVE_6, 0x17} or pdu.status:  # type: ignore[attr-defined]
        return pdu
    again = talk.cdb(pdu)[0] == RESERVE_6 and talk.memory.get("reserved", False)
    talk.memory["reserved"] = talk.cdb(pdu)[0] == RESERVE_6
    return ended_in(pdu, 0x18) if again else pdu


@mutant("release-reported | SPC-4 RELEASE | each RELEASE is reported to the other nexuses")
def release_reported(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not ends(pdu) or pdu.status:  # type: ignore[attr-defined]
        return pdu
    if service(block, PrOut.RELEASE):
        talk.shared["released"] = talk.name
    if block[0] or talk.shared.get("released", talk.name) == talk.name:
        return pdu
    del talk.shared["released"]
    return check(pdu, 6, Asc.RESERVATIONS_RELEASED)


@mutant(
    "unregister-unreported | SPC-4 unregistering | the end of the registration of the holder is not reported"
)
def unregister_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if ends(pdu) and service(talk.cdb(pdu), *PrOut):
        talk.shared["registers"] = service(talk.cdb(pdu), PrOut.REGISTER)
    return good(pdu) if failed(pdu, Asc.RESERVATIONS_RELEASED) and talk.shared.get("registers") else pdu


@mutant("register-none-conflict | SPC-4 REGISTER | the end of no registration is a conflict")
def register_none(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not ends(pdu) or not service(talk.cdb(pdu), PrOut.REGISTER, PrOut.REGISTER_AND_IGNORE_EXISTING_KEY):
        return pdu
    ends_none = not any(talk.commands[pdu.itt].data[:16]) and not talk.memory.get("registered")
    talk.memory["registered"] = any(talk.commands[pdu.itt].data[8:16])
    return ended_in(pdu, 0x18) if ends_none and not pdu.status else pdu  # type: ignore[attr-defined]


@mutant("capabilities-lack-type | SPC-4 REPORT CAPABILITIES | the mask lacks a type that can be reserved")
def lacks_type(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN or block[1] & 0x1F != PrIn.REPORT_CAPABILITIES:
        return pdu
    return replace(
        pdu, data=pdu.data[:4] + bytes((pdu.data[4] & ~(1 << PrType.EXCLUSIVE_ACCESS),)) + pdu.data[5:]
    )
