"""Broken rules of PREEMPT that removes registrations, of APTPL, and of commands that each type excludes.

The rules, from the text (SPC-4 5.12.11.2, 5.12.5, 6.16.4; SBC-3, table of allowed commands), before any case:

- A PREEMPT whose key is not that of the holder removes registrations and ignores SCOPE and TYPE (MUST).
- A nexus whose registration PREEMPT AND ABORT removed gets REGISTRATIONS PREEMPTED, idle or busy (MUST).
- The last APTPL that was received counts, from any nexus; PTPL_A states it (MUST).
- TRANSPORTID PARAMETER DATA LENGTH is that of the TransportID in the list (MUST).
- Each type excludes each command that writes, and a stop, of a nexus without access (MUST). RESERVE(6) excludes
  those, and PERSISTENT RESERVE OUT (SPC-2, MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_rules import attention, check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ReadyToTransfer, ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, ScsiStatus, SenseKey
from storagetest.wire.scsi.sense import decode_sense

KIND = "full"
OUT, IN = c.PERSISTENT_RESERVE_OUT.opcode, c.PERSISTENT_RESERVE_IN.opcode
PREEMPTING = (PrOut.PREEMPT, PrOut.PREEMPT_AND_ABORT)


def _refuses(row: str, wrong: Callable[[int], bool]) -> None:
    """A mutant that refuses each PREEMPT whose byte with SCOPE and TYPE is ``wrong``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        preempts = ends(pdu) and block[0] == OUT and block[1] & 0x1F in PREEMPTING
        return (
            check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
            if preempts and wrong(block[2])
            else pdu
        )


_refuses(
    "preempt-removal-type | SPC-4 PREEMPT | one that removes registrations is refused for its TYPE",
    lambda value: value & 0x0F not in set(PrType),
)
_refuses(
    "preempt-removal-scope | SPC-4 PREEMPT | one that removes registrations is refused for its SCOPE",
    lambda value: value >> 4 != 0,
)


@mutant(
    "abort-busy-unreported | SPC-4 PREEMPT AND ABORT | a nexus with a command has no REGISTRATIONS PREEMPTED",
    kind=KIND,
)
def abort_busy_unreported(talk: ProxyConnection, pdu: Any) -> Out:
    if isinstance(pdu, ReadyToTransfer) and talk.cdb(pdu)[0] == c.WRITE_10.opcode:
        talk.memory["busy"] = True
    lost = (
        attention(pdu)
        and talk.memory.get("busy")
        and decode_sense(pdu.sense).asc == Asc.REGISTRATIONS_PREEMPTED
    )
    return good(pdu) if lost else pdu


@mutant("power-loss-stays | SPC-4 APTPL | PTPL_A stays 1 after APTPL 0", kind="controlled")
def power_loss_stays(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if (
        not isinstance(pdu, DataIn)
        or block[0] != IN
        or block[1] & 0x1F != PrIn.REPORT_CAPABILITIES
        or len(pdu.data) < 4
    ):
        return pdu
    talk.shared["active"] = talk.shared.get("active", 0) | pdu.data[3] & 1
    return replace(pdu, data=pdu.data[:3] + bytes((pdu.data[3] | talk.shared["active"],)) + pdu.data[4:])


def _right_length(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Correct TRANSPORTID PARAMETER DATA LENGTH before the target sees it."""
    block = talk.cdb(pdu)
    if (
        not isinstance(pdu, (DataOut, ScsiCommand))
        or block[0] != OUT
        or block[1] & 0x1F != PrOut.REGISTER_AND_MOVE
    ):
        return pdu
    if len(pdu.data) <= 24:
        return pdu
    return replace(pdu, data=pdu.data[:20] + (len(pdu.data) - 24).to_bytes(4, "big") + pdu.data[24:])


mutant(
    "move-any-length | SPC-4 REGISTER AND MOVE | any length of the TransportID is taken",
    kind=KIND,
    request=_right_length,
)(lambda talk, pdu: pdu)


def _notes_reserve_6(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in (c.RESERVE_6.opcode, c.RELEASE_6.opcode):
        talk.shared["six"] = pdu.cdb[0] == c.RESERVE_6.opcode
    return pdu


def _passes(row: str, *opcodes: int, six: bool = False) -> None:
    """A mutant that ends commands in GOOD if a reservation excludes them; ``six``: that of RESERVE(6)."""

    @mutant(row, kind=KIND, request=_notes_reserve_6)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        conflict = ends(pdu) and pdu.status == ScsiStatus.RESERVATION_CONFLICT
        passes = conflict and talk.cdb(pdu)[0] in opcodes and talk.shared.get("six", False) == six
        return good(pdu) if passes else pdu


_passes("reservation-unmap-any | SBC-3 reservations | no type excludes UNMAP", c.UNMAP.opcode)
_passes(
    "reservation-same-any | SBC-3 reservations | no type excludes WRITE SAME",
    c.WRITE_SAME_10.opcode,
    c.WRITE_SAME_16.opcode,
)
_passes("reservation-stop | SBC-3 reservations | no type excludes a stop", c.START_STOP_UNIT.opcode)
_passes(
    "reserve6-unmap-any | SPC-2 RESERVE(6) | UNMAP of another nexus is executed", c.UNMAP.opcode, six=True
)
_passes(
    "reserve6-same-any | SPC-2 RESERVE(6) | WRITE SAME of another nexus is executed",
    c.WRITE_SAME_10.opcode,
    c.WRITE_SAME_16.opcode,
    six=True,
)
_passes(
    "reserve6-register | SPC-2 RESERVE(6) | PERSISTENT RESERVE OUT of another nexus is executed",
    OUT,
    six=True,
)


@mutant(
    "reserve6-lost-by-conflict | SPC-2 RESERVE(6) | a command that ends in a conflict ends the reservation",
    kind=KIND,
    request=_notes_reserve_6,
)
def reserve6_lost_by_conflict(talk: ProxyConnection, pdu: Any) -> Out:
    if not ends(pdu) or pdu.status != ScsiStatus.RESERVATION_CONFLICT or "six" not in talk.shared:
        return pdu
    seen, talk.memory["conflicts"] = talk.memory.get("conflicts", 0), 1
    return good(pdu) if seen else pdu
