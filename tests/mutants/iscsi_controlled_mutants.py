"""Broken rules of what an administrator does: a unit is resized, and its target restarts.

The rules, from the text (SBC-3, SPC-4, SAM-5):

- READ CAPACITY returns the capacity of the unit. Its blocks are usable to the last one, and none is behind it.
- The names of a unit stay while it exists.
- Each nexus has a unit attention after the capacity has changed, and after a power on.
- What a successful SYNCHRONIZE CACHE or a WRITE with FUA has written is on the medium.
- Registrations and a reservation outlive a loss of power if the last APTPL was 1, and only then.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_controlled import ControlledTarget
from iscsi_full_unit import UnitChoices
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, ended_in, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, ScsiStatus, SenseKey
from storagetest.wire.scsi.sense import decode_sense

KIND = "controlled"
"""The kind of target: the full unit with an administrator."""
FIRST_SIZE = UnitChoices().blocks
CAPACITY_10, CAPACITY_16 = c.READ_CAPACITY_10.opcode, c.READ_CAPACITY_16.opcode
WRITE, READ = c.WRITE_16.opcode, c.READ_16.opcode
FUA = 0x08


def _restarted() -> bool:
    return ControlledTarget.restarts > 0


def _data_of(row: str, opcode: int, change: Callable[[ProxyConnection, bytes], bytes]) -> None:
    """A mutant of the data of a command."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == opcode:
            return replace(pdu, data=change(talk, pdu.data))
        return pdu


def _first_size(_: ProxyConnection, data: bytes) -> bytes:
    if len(data) == 8:
        return struct.pack(">I", FIRST_SIZE - 1) + data[4:]
    return struct.pack(">Q", FIRST_SIZE - 1) + data[8:]


def _second_nexus(talk: ProxyConnection, data: bytes) -> bytes:
    return _first_size(talk, data) if talk.name.endswith("-b") else data


# Resize

_data_of("grown-unit-not-listed | SBC-3 READ CAPACITY | the capacity of a unit that has grown is the old one",
         CAPACITY_16, _first_size)  # fmt: skip
_data_of("grown-unit-old-capacity10 | SBC-3 READ CAPACITY | READ CAPACITY(10) has the capacity before the growth",
         CAPACITY_10, _first_size)  # fmt: skip
_data_of("grown-unit-one-nexus | SBC-3 READ CAPACITY | one nexus alone has the new capacity",
         CAPACITY_16, _second_nexus)  # fmt: skip
_data_of(
    "grown-unit-old-descriptor | SBC-3 mode parameter block descriptors | the block descriptor has the blocks before the growth",
    c.MODE_SENSE_10.opcode,
    lambda _, data: data[:8] + struct.pack(">I", FIRST_SIZE) + data[12:],
)  # fmt: skip


def _lba(block: bytes) -> int:
    return int.from_bytes(block[2:10], "big")


@mutant(
    "grown-unit-not-served | SBC-3 READ CAPACITY | blocks that a unit has grown by are out of range",
    kind=KIND,
)
def not_served(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] in (READ, WRITE) and _lba(block) >= FIRST_SIZE:
        return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)
    return pdu


@mutant(
    "grown-unit-has-no-end | SBC-3 logical block addressing | a write behind the last block ends with GOOD",
    kind=KIND,
)
def has_no_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    beyond = isinstance(pdu, ScsiResponse) and pdu.sense and talk.cdb(pdu)[0] == WRITE
    return good(pdu) if beyond and decode_sense(pdu.sense).asc == Asc.LBA_OUT_OF_RANGE else pdu


@mutant(
    "grown-unit-is-another | SPC-4 Device Identification | a unit that has grown has another name", kind=KIND
)
def is_another(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn):
        return pdu
    if block[0] == CAPACITY_16 and int.from_bytes(pdu.data[:8], "big") >= FIRST_SIZE:
        talk.shared["grown"] = True
    if block[:3] == b"\x12\x01\x83" and talk.shared.get("grown"):
        return replace(pdu, data=pdu.data[:23] + bytes((pdu.data[23] ^ 1,)) + pdu.data[24:])
    return pdu


def _without_attention(row: str, asc: int) -> None:
    """A mutant that has no unit attention of a kind: the command that it would have ended is carried out."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        ready = talk.cdb(pdu)[0] == c.TEST_UNIT_READY.opcode
        if ready and attention(pdu) and isinstance(pdu, ScsiResponse) and decode_sense(pdu.sense).asc == asc:
            return good(pdu)
        return pdu


_without_attention(
    "grown-unit-silent | SPC-4 unit attention conditions | another capacity is no unit attention",
    Asc.CAPACITY_DATA_HAS_CHANGED,
)
_without_attention("restart-silent | SAM-5 power on | a power on is no unit attention", Asc.POWER_ON_OR_RESET)


# Restart: what is on the medium, and the names


def _loses(row: str, noted: Callable[[ProxyConnection, Any], bool]) -> None:
    """A mutant that after a restart has zeroes in the blocks of which a write or a flush was ``noted``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if ends(pdu) and not getattr(pdu, "status", 0) and noted(talk, pdu):
            talk.shared["noted"] = True
        if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == READ and _restarted() and talk.shared.get("noted"):
            return replace(pdu, data=bytes(len(pdu.data)))
        return pdu


_loses(
    "restart-loses-synchronized | SBC-3 SYNCHRONIZE CACHE | data that were synchronized are lost by a restart",
    lambda talk, pdu: talk.cdb(pdu)[0] == c.SYNCHRONIZE_CACHE_10.opcode,
)
_loses(
    "restart-loses-fua | SBC-3 WRITE | data that were written with FUA are lost by a restart",
    lambda talk, pdu: talk.cdb(pdu)[0] == WRITE and bool(talk.cdb(pdu)[1] & FUA),
)


@mutant("restart-renames | SPC-4 Device Identification | after a restart a unit has another name", kind=KIND)
def renames(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and talk.cdb(pdu)[:3] == b"\x12\x01\x83" and _restarted():
        return replace(pdu, data=pdu.data[:23] + bytes((pdu.data[23] ^ 1,)) + pdu.data[24:])
    return pdu


# Restart: reservations


def _aptpl(row: str, value: int) -> None:
    """A mutant that takes another APTPL than the initiator sends, and reports the initiator's."""

    @on_request(row, kind=KIND)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        registers = talk.cdb(pdu)[0] == c.PERSISTENT_RESERVE_OUT.opcode and talk.cdb(pdu)[1] & 0x1F in (
            PrOut.REGISTER,
            PrOut.REGISTER_AND_IGNORE_EXISTING_KEY,
        )
        if isinstance(pdu, (ScsiCommand, DataOut)) and registers and len(pdu.data) >= 24:
            flags = pdu.data[20] & 0xFE | value
            return replace(pdu, data=pdu.data[:20] + bytes((flags,)) + pdu.data[21:])
        return pdu


_aptpl("persistence-lost | SPC-4 APTPL | registrations with APTPL 1 do not outlive a restart", 0)
_aptpl("persistence-forced | SPC-4 APTPL | registrations with APTPL 0 outlive a restart", 1)

_data_of(
    "persistent-key-lost | SPC-4 preserving persistent reservations and registrations | after a restart a key is zero",
    c.PERSISTENT_RESERVE_IN.opcode,
    lambda talk, data: data[:8] + bytes(8) + data[16:] if _restarted() and len(data) > 8 else data,
)


@mutant("persistence-revives | SPC-4 preserving persistent reservations and registrations | a preempted key is there again after a restart", kind=KIND)  # fmt: skip
def revives(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[:2] != bytes((c.PERSISTENT_RESERVE_IN.opcode, PrIn.READ_KEYS)):
        return pdu
    if not _restarted():
        return pdu
    keys = pdu.data[8:] + (0xDEAD).to_bytes(8, "big")
    return replace(pdu, data=pdu.data[:4] + len(keys).to_bytes(4, "big") + keys, underflow=False, residual=0)


@mutant("reserve6-persists | SPC-2 RESERVE(6) | a RESERVE(6) outlives a restart", kind=KIND)
def reserve6_persists(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == c.RESERVE_6.opcode:
        talk.shared["holder"] = talk.name
    if block[0] == c.RELEASE_6.opcode and talk.shared.get("holder") == talk.name:
        talk.shared.pop("holder")
    held = talk.shared.get("holder", talk.name) != talk.name and _restarted()
    return ended_in(pdu, ScsiStatus.RESERVATION_CONFLICT) if held and ends(pdu) and block[0] == WRITE else pdu


@on_request(
    "saved-lost-by-restart | SPC-4 MODE SENSE, saved values | a restart loses what was saved", kind=KIND
)
def saved_lost_by_restart(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or not _restarted():
        return pdu
    talk.memory["selected"] = talk.memory.get("selected") or pdu.cdb[0] == c.MODE_SELECT_6.opcode
    lost = pdu.cdb[0] == c.MODE_SENSE_6.opcode and pdu.cdb[2] >> 6 in (0, 3) and not talk.memory["selected"]
    block = pdu.cdb[:2] + bytes((pdu.cdb[2] & 0x3F | 0x80,)) + pdu.cdb[3:]  # PC of the default values
    return replace(pdu, cdb=block) if lost else pdu
