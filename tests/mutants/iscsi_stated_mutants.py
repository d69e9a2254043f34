"""Broken rules of what a device server states, and of several registrations, descriptors and logical units.

The rules, from the text, before any case:

- SPC-4 sense data: with SKSV and C/D, FIELD POINTER is the number of a byte of the CDB (MUST).
- SPC-4 READ FULL STATUS: R_HOLDER of each registrant is 1 if all registrants hold the reservation (MUST).
- SPC-4: a registration is of an I_T nexus and a logical unit: equal keys are listed for each nexus, PREEMPT
  removes all of them, a nexus unregisters itself alone, and the holder is a nexus (MUST).
- SBC-3 UNMAP: a range past the end in any descriptor is refused (MUST).
- SAM-5, SPC-2: LOGICAL UNIT RESET and RESERVE(6) concern one logical unit (MUST).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from iscsi_optional_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_rules import check, ended_in, ends, good

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse, TaskResponse
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType, ScsiStatus, SenseKey

PERSISTENT_IN, PERSISTENT_OUT, UNMAP = 0x5E, 0x5F, 0x42
WRITES = (0x0A, 0x2A, 0x8A, 0xAA)
READY, RESERVE_6, RELEASE_6 = 0x00, 0x16, 0x17
RESET = 0x2903
"""BUS DEVICE RESET FUNCTION OCCURRED (SPC-4)."""
QUIET = (0x12, 0xA0, 0x03)
"""INQUIRY, REPORT LUNS and REQUEST SENSE, which report no unit attention (SAM-5 5.14)."""


def _data_of(talk: ProxyConnection, pdu: Pdu, opcode: int, action: int) -> bool:
    """Whether a PDU is the first Data-In of a command with this service action."""
    block = talk.cdb(pdu)
    return (
        isinstance(pdu, DataIn) and not pdu.buffer_offset and block[0] == opcode and block[1] & 0x1F == action
    )


@mutant("pointer-past-cdb | SPC-4 sense data | FIELD POINTER is past the end of the CDB")
def pointer_past_cdb(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse) or len(pdu.sense) < 18 or pdu.sense[2] & 0xF != 5:
        return pdu
    return replace(pdu, data=pdu.data[:17] + b"\xc0\0\x28" + pdu.data[20:])


# Registrations


@mutant(
    "full-status-one-holder | SPC-4 READ FULL STATUS | R_HOLDER is 1 of one registrant if all of them hold"
)
def full_status_one_holder(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not _data_of(talk, pdu, PERSISTENT_IN, PrIn.READ_FULL_STATUS):
        return pdu
    data, at, holders = bytearray(pdu.data), 8, 0
    while at + 24 <= len(data):
        kind = data[at + 13] & 0xF
        if data[at + 12] & 1 and kind >= PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS:
            holders += 1
            if holders > 1:
                data[at + 12 : at + 14] = bytes((data[at + 12] & ~1, 0))
        at += 24 + int.from_bytes(data[at + 20 : at + 24], "big")
    return replace(pdu, data=bytes(data))


def _keys(pdu: Any) -> list[bytes]:
    return [pdu.data[at : at + 8] for at in range(8, len(pdu.data) - 7, 8)]


def _with_keys(pdu: Any, keys: list[bytes]) -> Pdu:
    body = b"".join(keys)
    new = pdu.data[:4] + struct.pack(">I", len(body)) + body
    return replace(pdu, data=new.ljust(len(pdu.data), b"\0"))


@mutant("equal-keys-once | SPC-4 READ KEYS | a key of two nexuses is listed once")
def equal_keys_once(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not _data_of(talk, pdu, PERSISTENT_IN, PrIn.READ_KEYS):
        return pdu
    return _with_keys(pdu, list(dict.fromkeys(_keys(pdu))))


def _notes(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note the service action and the keys of each PERSISTENT RESERVE OUT, whichever PDU has them."""
    if isinstance(pdu, (ScsiCommand, DataOut)) and pdu.data and talk.cdb(pdu)[0] == PERSISTENT_OUT:
        talk.memory[pdu.itt] = talk.cdb(pdu)[1] & 0x1F, pdu.data[:8], pdu.data[8:16]
    return pdu


def _done(talk: ProxyConnection, pdu: Pdu) -> tuple[int, bytes, bytes] | None:
    """Return service action, key and action key of the PERSISTENT RESERVE OUT that ``pdu`` ends in GOOD."""
    if not isinstance(pdu, ScsiResponse) or pdu.status != ScsiStatus.GOOD:
        return None
    noted: tuple[int, bytes, bytes] | None = talk.memory.pop(pdu.itt, None)
    return noted


@mutant("preempt-one-of-two | SPC-4 PREEMPT | one registration with the key stays", request=_notes)
def preempt_one_of_two(talk: ProxyConnection, pdu: Pdu) -> Out:
    done = _done(talk, pdu)
    if done is not None and done[0] == PrOut.PREEMPT:
        talk.shared["stays"] = done[2]
    elif _data_of(talk, pdu, PERSISTENT_IN, PrIn.READ_KEYS) and "stays" in talk.shared:
        return replace(
            pdu,
            data=pdu.data[:4]
            + struct.pack(">I", 8 * len(_keys(pdu)) + 8)
            + pdu.data[8:]
            + talk.shared["stays"],
        )
    return pdu


@mutant(
    "unregister-both | SPC-4 REGISTER | a nexus that unregisters unregisters all with its key", request=_notes
)
def unregister_both(talk: ProxyConnection, pdu: Pdu) -> Out:
    done = _done(talk, pdu)
    if done is not None and done[0] == PrOut.REGISTER and not any(done[2]):
        talk.shared["gone"] = done[1]
    elif _data_of(talk, pdu, PERSISTENT_IN, PrIn.READ_KEYS) and "gone" in talk.shared:
        return _with_keys(pdu, [key for key in _keys(pdu) if key != talk.shared["gone"]])
    return pdu


@mutant("reservation-of-key | SPC-4 reservations | each nexus with the holder's key may write")
def reservation_of_key(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = isinstance(pdu, ScsiResponse) and pdu.status == ScsiStatus.RESERVATION_CONFLICT
    return good(pdu) if refused and talk.cdb(pdu)[0] in WRITES else pdu


# UNMAP


def _ranges(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note the number of descriptors of each UNMAP."""
    if isinstance(pdu, (ScsiCommand, DataOut)) and pdu.data and talk.cdb(pdu)[0] == UNMAP:
        talk.memory[pdu.itt] = (len(pdu.data) - 8) // 16
    return pdu


@mutant(
    "unmap-later-range-good | SBC-3 UNMAP | only the first descriptor is compared with the capacity",
    kind=KIND,
    request=_ranges,
)
def unmap_later_range_good(talk: ProxyConnection, pdu: Pdu) -> Out:
    several = talk.memory.get(pdu.itt, 0) > 1 and talk.cdb(pdu)[0] == UNMAP
    return good(pdu) if several and isinstance(pdu, ScsiResponse) and pdu.status else pdu


# Other logical units


@mutant("reset-of-every-unit | SAM-5 7.7 | LOGICAL UNIT RESET is a unit attention of every logical unit")
def reset_of_every_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskResponse) and pdu.itt in talk.tasks:
        asked = talk.tasks[pdu.itt]
        if asked.function == TaskFunction.LOGICAL_UNIT_RESET:
            talk.shared["reset"] = asked.lun
    command = talk.commands.get(pdu.itt)
    if command is None or not ends(pdu) or command.cdb[0] in QUIET or talk.memory.get("reported"):
        return pdu
    if talk.shared.get("reset", command.lun) == command.lun:
        return pdu
    talk.memory["reported"] = True
    return check(pdu, SenseKey.UNIT_ATTENTION, RESET)


@mutant("keys-of-every-unit | SPC-4 registering | a registration is of every logical unit", request=_notes)
def keys_of_every_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    done, command = _done(talk, pdu), talk.commands.get(pdu.itt)
    if done is not None and command is not None and done[0] == PrOut.REGISTER:
        talk.shared["key"], talk.shared["lun"] = done[2], command.lun
    if command is None or not _data_of(talk, pdu, PERSISTENT_IN, PrIn.READ_KEYS):
        return pdu
    if talk.shared.get("lun", command.lun) == command.lun:
        return pdu
    return _with_keys(pdu, [*_keys(pdu), talk.shared["key"]])


def _notes_reserve_6(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in (RESERVE_6, RELEASE_6):
        talk.shared["six"] = (talk.name, pdu.lun) if pdu.cdb[0] == RESERVE_6 else None
    return pdu


@mutant(
    "reserve6-of-every-unit | SPC-2 RESERVE(6) | a reservation is of every logical unit",
    request=_notes_reserve_6,
)
def reserve6_of_every_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    command, six = talk.commands.get(pdu.itt), talk.shared.get("six")
    if command is None or not six or not ends(pdu) or command.cdb[0] != READY:
        return pdu
    other = talk.name != six[0] and command.lun != six[1]
    return ended_in(pdu, ScsiStatus.RESERVATION_CONFLICT) if other else pdu
