"""Broken rules of what is stated twice, of reserved codes, and of LUNs.

The rules, from the text, before any case:

- SPC-4 INQUIRY, SBC-3 READ CAPACITY(16): PROTECT of 0 is a unit without protection information, so PROT_EN
  is 0 (MUST).
- SBC-3 mode parameters: WP of 1 is a unit that is not written (MUST).
- SBC-3 Block Limits: a unit with UNMAP has a MAXIMUM UNMAP LBA COUNT of 1 at least (MUST).
- SPC-4 REPORT LUNS: the list has each logical unit once (MUST).
- Reserved codes are not used: ASSOCIATION 11b, a MEDIUM ROTATION RATE from 0002h to 0400h, a PROVISIONING
  TYPE over 010b (MUST).
- SAM-5 4.7: a LUN is all of its eight bytes (MUST).
- SAM-5 5.14: INQUIRY and REPORT LUNS clear no unit attention (MUST).
- RFC 7143 11.13.1: all Login Responses of a login have the same Version-max (MUST).
- RFC 7143 13: InitiatorName, InitiatorAlias and SessionType are keys of the initiator (MUST).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_optional_mutants import KIND, SERVICE_IN
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, ends, good, text

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, LoginResponse, ScsiCommand

INQUIRY, REPORT_LUNS, MODE_SENSE_6, READ_CAPACITY = 0x12, 0xA0, 0x1A, 0x10


def _page(code: int) -> Callable[[bytes], bool]:
    return lambda block: block[0] == INQUIRY and bool(block[1] & 1) and block[2] == code


def _states(
    row: str, of: Callable[[bytes], bool], at: int, new: Callable[[int], int], *, kind: str | None = None
) -> None:
    """A mutant that changes one byte of the data of a command."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataIn) or not of(talk.cdb(pdu)) or len(pdu.data) <= at:
            return pdu
        return replace(pdu, data=pdu.data[:at] + bytes((new(pdu.data[at]),)) + pdu.data[at + 1 :])


_states(
    "capacity-prot-en | SBC-3 READ CAPACITY(16) | PROT_EN is 1, and PROTECT of INQUIRY is 0",
    lambda block: block[0] == SERVICE_IN and block[1] & 0x1F == READ_CAPACITY,
    12, lambda old: old | 1, kind=KIND,
)  # fmt: skip
_states(
    "mode-write-protected | SBC-3 mode parameters | WP is 1 of a unit that is written",
    lambda block: block[0] == MODE_SENSE_6, 2, lambda old: old | 0x80, kind=KIND,
)  # fmt: skip
_states(
    "designator-association | SPC-4 Device Identification | ASSOCIATION is the reserved 11b",
    _page(0x83), 5, lambda old: old | 0x30, kind=KIND,
)  # fmt: skip
_states(
    "rotation-rate-reserved | SBC-3 Block Device Characteristics | the rotation rate is the reserved 0200h",
    _page(0xB1), 4, lambda old: 2,
)  # fmt: skip
_states(
    "provisioning-type-reserved | SBC-3 Logical Block Provisioning | PROVISIONING TYPE is the reserved 111b",
    _page(0xB2), 6, lambda old: old | 7, kind=KIND,
)  # fmt: skip


@mutant("unmap-count-zero | SBC-3 Block Limits | with UNMAP, MAXIMUM UNMAP LBA COUNT is 0", kind=KIND)
def unmap_count_zero(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or not _page(0xB0)(talk.cdb(pdu)) or len(pdu.data) < 24:
        return pdu
    return replace(pdu, data=pdu.data[:20] + bytes(4) + pdu.data[24:])


@mutant("lun-twice | SPC-4 REPORT LUNS | the first logical unit is listed in place of the last one, too")
def lun_twice(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] != REPORT_LUNS or len(pdu.data) < 24:
        return pdu
    return replace(pdu, data=pdu.data[:-8] + pdu.data[8:16])


@on_request("lun-of-two-bytes | SAM-5 4.7 | only the first two bytes of a LUN are read")
def lun_of_two_bytes(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, lun=pdu.lun >> 48 << 48) if isinstance(pdu, ScsiCommand) else pdu


@mutant("login-version-max | RFC 7143 11.13.1 | later Login Responses have a higher Version-max")
def login_version_max(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    talk.memory["responses"] = talk.memory.get("responses", 0) + 1
    return replace(pdu, version_max=pdu.version_max + 1) if talk.memory["responses"] > 1 else pdu


text(
    "initiator-key-sent | RFC 7143 13 | the target declares InitiatorAlias",
    lambda pairs, talk: [*pairs, ("InitiatorAlias", "storagetest")],
)


@mutant("attention-cleared-by-inquiry | SAM-5 5.14 | INQUIRY clears a pending unit attention")
def attention_cleared_by_inquiry(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not ends(pdu):
        return pdu
    opcode = talk.cdb(pdu)[0]
    if opcode in (INQUIRY, REPORT_LUNS):
        talk.memory["cleared"] = talk.memory.get("cleared", False) or opcode == INQUIRY
        return pdu
    return good(pdu) if talk.memory.pop("cleared", False) and attention(pdu) else pdu
