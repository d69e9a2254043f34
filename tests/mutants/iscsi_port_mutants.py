"""Broken rules of reservations of other ports: REGISTER AND MOVE, SPEC_I_PT, ALL_TG_PT; COMPARE AND WRITE of
several blocks.

The rules, from the text (SPC-4 5.13.7, 5.13.8, 6.16.3), before any case:

- REGISTER AND MOVE registers the other nexus, releases the reservation of the holder and moves it, with its
  type; with UNREG, it unregisters the nexus that sent it.
- It ends in RESERVATION CONFLICT with another key, from a nexus that is not the holder, and under a
  reservation of all registrants; in CHECK CONDITION with a key of zero, or to the nexus itself.
- SPEC_I_PT registers each initiator port of the list; none if one is registered, or if the list is cut.
- A bit that REPORT CAPABILITIES shows is supported.
"""

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant, on_request
from iscsi_reservation_mutants import enforces, forget_last, old_holder
from iscsi_rules import attention, check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, LogoutRequest, ScsiCommand
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.sense import decode_sense

KIND = "full"
"""The unit of tests/controllers/iscsi_full_unit.py."""
RESERVE_IN, RESERVE_OUT, COMPARE_AND_WRITE = 0x5E, 0x5F, 0x89
REPLACE_LOST_RESERVATION = 0x08
ALL_TG_PT, SPEC_I_PT, UNREG = 0x04, 0x08, 0x02
"""Of byte 20 of the basic parameter list, and of byte 17 of that of REGISTER AND MOVE."""


def _is_out(talk: ProxyConnection, pdu: Pdu, action: int) -> bool:
    block = talk.cdb(pdu)
    return block[0] == RESERVE_OUT and block[1] & 0x1F == action


def _is_in(talk: ProxyConnection, pdu: Pdu, action: int) -> bool:
    block = talk.cdb(pdu)
    return isinstance(pdu, DataIn) and block[0] == RESERVE_IN and block[1] & 0x1F == action


@mutant("move-ignored | SPC-4 REGISTER AND MOVE | the reservation is not moved", kind=KIND)
def move_ignored(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if ends(pdu) and _is_out(talk, pdu, PrOut.REGISTER_AND_MOVE):
        talk.shared["moved"] = True
    if not talk.shared.get("moved") or not _is_in(talk, pdu, PrIn.READ_RESERVATION):
        return pdu
    return replace(pdu, data=bytes(old_holder(bytearray(pdu.data), talk)))  # type: ignore[call-arg,attr-defined]


@on_request("move-unreg-ignored | SPC-4 REGISTER AND MOVE, UNREG | the nexus stays registered", kind=KIND)
def move_unreg_ignored(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, DataOut) or not _is_out(talk, pdu, PrOut.REGISTER_AND_MOVE):
        return pdu
    return replace(pdu, data=pdu.data[:17] + bytes((pdu.data[17] & ~UNREG,)) + pdu.data[18:])


enforces(
    "move-any-key",
    "REGISTER AND MOVE succeeds with any key, of any registrant and under any type",
    {RESERVE_OUT},
    conflict=False,
    actions={PrOut.REGISTER_AND_MOVE},
    kind=KIND,
)


def accepts(row: str, action: int) -> None:
    """A mutant that ends a refused service action in GOOD."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Pdu:
        refused = ends(pdu) and pdu.status == 2 and _is_out(talk, pdu, action)
        return good(pdu) if refused and decode_sense(pdu.sense).key == SenseKey.ILLEGAL_REQUEST else pdu


accepts(
    "move-zero-key | SPC-4 REGISTER AND MOVE | a key of zero and the own nexus are accepted",
    PrOut.REGISTER_AND_MOVE,
)
accepts(
    "ports-list-accepted | SPC-4 SPEC_I_PT | a list that is cut, or names a registered port, is accepted",
    PrOut.REGISTER,
)
accepts("ports-of-reserve-accepted | SPC-4 SPEC_I_PT | RESERVE with SPEC_I_PT is accepted", PrOut.RESERVE)


def _notes_bits(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note byte 20 of the parameter list of the last registration."""
    registers = any(
        _is_out(talk, pdu, action) for action in (PrOut.REGISTER, PrOut.REGISTER_AND_IGNORE_EXISTING_KEY)
    )
    if isinstance(pdu, DataOut) and registers and len(pdu.data) > 20:
        talk.shared["bits"] = pdu.data[20]
    return pdu


@mutant(
    "ports-ignored | SPC-4 SPEC_I_PT | the listed ports are not registered", request=_notes_bits, kind=KIND
)
def ports_ignored(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not talk.shared.get("bits", 0) & SPEC_I_PT or not _is_in(talk, pdu, PrIn.READ_KEYS):
        return pdu
    return replace(pdu, data=bytes(forget_last(bytearray(pdu.data), talk)))  # type: ignore[call-arg,attr-defined]


@mutant(
    "all-ports-refused | SPC-4 ALL_TG_PT | the bit is refused, and ATP_C is 1", request=_notes_bits, kind=KIND
)
def all_ports_refused(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    registers = ends(pdu) and _is_out(talk, pdu, PrOut.REGISTER)
    if not registers or not talk.shared.get("bits", 0) & ALL_TG_PT:
        return pdu
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST)


@mutant("caw-first-compared | SBC-3 COMPARE AND WRITE | only the first block is compared", kind=KIND)
def caw_first_compared(talk: ProxyConnection, pdu: Any) -> Pdu:
    if not ends(pdu) or pdu.status != 2 or talk.cdb(pdu)[0] != COMPARE_AND_WRITE:
        return pdu
    sense = decode_sense(pdu.sense)
    return good(pdu) if sense.key == SenseKey.MISCOMPARE and (sense.information or 0) >= 512 else pdu


_AFTER_LOGOUT = "after-logout"


def _notes_logout(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note that a session of the second initiator logs out."""
    if isinstance(pdu, LogoutRequest) and talk.name.endswith("-b"):
        talk.shared[_AFTER_LOGOUT] = True
    return pdu


@mutant(
    "registration-ends-with-logout | SPC-4 I_T nexus loss | a logout ends the registration of its nexus",
    request=_notes_logout,
    kind=KIND,
)
def registration_ends_with_logout(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not talk.shared.get(_AFTER_LOGOUT) or not _is_in(talk, pdu, PrIn.READ_KEYS):
        return pdu
    return replace(pdu, data=bytes(forget_last(bytearray(pdu.data), talk)))  # type: ignore[call-arg,attr-defined]


@on_request(
    "preempt-aborts-nothing | SPC-4 PREEMPT AND ABORT | the commands of the preempted nexus are executed",
    kind=KIND,
)
def preempt_aborts_nothing(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or not _is_out(talk, pdu, PrOut.PREEMPT_AND_ABORT):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:1] + bytes((PrOut.PREEMPT,)) + pdu.cdb[2:])


accepts(
    "lost-reservation-replaced | SPC-4 REPLACE LOST RESERVATION | a reservation that is not lost is replaced",
    REPLACE_LOST_RESERVATION,
)


def _notes_release(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note the type of the last RELEASE."""
    if isinstance(pdu, ScsiCommand) and _is_out(talk, pdu, PrOut.RELEASE):
        talk.shared["released"] = pdu.cdb[2] & 0x0F
    return pdu


@mutant(
    "release-attention-once | SPC-4 RELEASE, unit attention | only a release of type 5 sets a unit attention",
    request=_notes_release,
    kind=KIND,
)
def release_attention_once(talk: ProxyConnection, pdu: Any) -> Pdu:
    if not attention(pdu) or decode_sense(pdu.sense).asc != Asc.RESERVATIONS_RELEASED:
        return pdu  # type: ignore[no-any-return]
    return pdu if talk.shared.get("released") == PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY else good(pdu)  # type: ignore[no-any-return]


PRE_FETCHES, SYNCHRONIZERS, SERVICE_IN = {0x34, 0x90}, {0x35, 0x91}, 0x9E
enforces(
    "reservation-capacity",
    "READ CAPACITY and LOG SENSE conflict with every reservation",
    {0x25, SERVICE_IN, 0x4D},
    conflict=True,
    host_suffix="-b",
    kind=KIND,
)
enforces(
    "registrant-seldom",
    "SYNCHRONIZE CACHE and PRE-FETCH of a registrant conflict",
    PRE_FETCHES | SYNCHRONIZERS,
    conflict=True,
    host_suffix="-b",
    kind=KIND,
)
enforces(
    "reservation-prefetch",
    "PRE-FETCH and GET LBA STATUS of other initiators are executed",
    PRE_FETCHES | {SERVICE_IN},
    conflict=False,
    kind=KIND,
)
