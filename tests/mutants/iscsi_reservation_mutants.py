"""Broken rules of persistent and of old reservations."""

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant, on_request
from iscsi_rules import attention, ended_in, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand
from storagetest.wire.scsi.sense import decode_sense

# Reservations

_WRITES, _READS = {0x0A, 0x2A, 0x8A, 0xAA}, {0x08, 0x28, 0x88, 0xA8}


def enforces(
    name: str,
    description: str,
    opcodes: set[int],
    *,
    conflict: bool,
    host_suffix: str = "",
    actions: set[int] | None = None,
    kind: str | None = None,
) -> None:
    """A mutant that turns a RESERVATION CONFLICT into GOOD, or GOOD into a conflict."""

    @mutant(f"{name} | SPC-4 reservations | {description}", kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if not ends(pdu) or block[0] not in opcodes or not talk.name.endswith(host_suffix):
            return pdu
        if actions is not None and block[1] & 0x1F not in actions:
            return pdu
        status: int = pdu.status  # type: ignore[attr-defined]
        if conflict and status == 0:
            return ended_in(pdu, 0x18)
        return good(pdu) if not conflict and status == 0x18 else pdu


enforces("reservation-write", "other initiators may write", _WRITES, conflict=False)
enforces("reservation-read", "other initiators may read under exclusive access", _READS, conflict=False)
enforces("registrant-write", "a registrant may not write", _WRITES, conflict=True, host_suffix="-b")
enforces(
    "third-registrant-conflict",
    "of three registrants the third may not write",
    _WRITES,
    conflict=True,
    host_suffix="-c",
)
enforces("registrant-read", "a registrant may not read", _READS, conflict=True, host_suffix="-b")
enforces(
    "release-ignored", "no initiator may write after a release", _WRITES, conflict=True, host_suffix="-b"
)
enforces("register-any-key", "REGISTER with a wrong key succeeds", {0x5F}, conflict=False, actions={0})
enforces("register-refused", "no initiator may register", {0x5F}, conflict=True, actions={0})
enforces(
    "reserve-any-key",
    "RESERVE succeeds with any key and over any reservation",
    {0x5F},
    conflict=False,
    actions={1},
)
enforces(
    "preempt-no-such-key", "PREEMPT of an unregistered key succeeds", {0x5F}, conflict=False, actions={4}
)
enforces(
    "reservation-sync", "SYNCHRONIZE CACHE of other initiators is executed", {0x35, 0x91}, conflict=False
)
enforces("reserve-refused", "a registrant may not reserve", {0x5F}, conflict=True, actions={1})
enforces(
    "reservation-inquiry", "INQUIRY conflicts with a reservation", {0x12}, conflict=True, host_suffix="-b"
)
enforces("reserve6-ignored", "RESERVE(6) excludes no initiator", _WRITES | {0x16}, conflict=False)


def missing_attention(name: str, asc: int, description: str) -> None:
    @mutant(f"{name} | SPC-4 reservations, unit attention | {description}")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        return good(pdu) if attention(pdu) and decode_sense(pdu.sense).asc == asc else pdu


missing_attention("release-attention", 0x2A04, "a RELEASE sets no unit attention")
missing_attention("clear-attention", 0x2A03, "a CLEAR sets no unit attention")
missing_attention("preempt-attention", 0x2A05, "a PREEMPT sets no unit attention")

_REGISTER, _RESERVE, _RELEASE, _CLEAR, _PREEMPT = range(5)
"""Service actions of PERSISTENT RESERVE OUT (SPC-4)."""


@mutant(
    "clear-free-attention | SPC-4 reservations, unit attention | a CLEAR of registrations sets no attention"
)
def clear_free_attention(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block, shared = talk.cdb(pdu), talk.shared
    if attention(pdu):
        is_free = shared.get("cleared-free") and decode_sense(pdu.sense).asc == 0x2A03  # type: ignore[attr-defined]
        return good(pdu) if is_free else pdu
    if ends(pdu) and block[0] == 0x5F and pdu.status == 0:  # type: ignore[attr-defined]
        action = block[1] & 0x1F
        if action == _CLEAR:
            shared["cleared-free"] = not shared.get("held")
        if action in (_RESERVE, _RELEASE, _CLEAR):
            shared["held"] = action == _RESERVE
    return pdu


@mutant("clear-attention-for-one | SPC-4 reservations, unit attention | a CLEAR notifies one nexus only")
def clear_attention_for_one(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not attention(pdu) or decode_sense(pdu.sense).asc != 0x2A03:  # type: ignore[attr-defined]
        return pdu
    return pdu if talk.shared.setdefault("notified", talk.name) == talk.name else good(pdu)


def _changes_key(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Replace a key of RESERVE whose low half is that of the registered one."""
    block = talk.cdb(pdu)
    if not isinstance(pdu, (ScsiCommand, DataOut)) or block[0] != 0x5F or len(pdu.data) < 24:
        return pdu
    key, new, action = pdu.data[:8], pdu.data[8:16], block[1] & 0x1F
    if action == _REGISTER:
        talk.memory["key"] = new
    own = talk.memory.get("key", key)
    if action != _RESERVE or key == own or key[4:] != own[4:]:
        return pdu
    return replace(pdu, data=own + pdu.data[8:])


on_request("key-low-half | SPC-4 RESERVE | only the last four bytes of a reservation key are compared")(
    _changes_key
)


def pr_in(name: str, action: int, description: str, change: Any) -> None:
    @mutant(f"{name} | SPC-4 PERSISTENT RESERVE IN | {description}")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or block[0] != 0x5E or block[1] & 0x1F != action:
            return pdu
        return replace(pdu, data=bytes(change(bytearray(pdu.data), talk)))


def forget_last(data: bytearray, talk: ProxyConnection) -> bytes:
    body = bytes(data[8:])[:-8]
    return bytes(data[:4]) + len(body).to_bytes(4, "big") + body


def two_at_most(data: bytearray, talk: ProxyConnection) -> bytes:
    body = bytes(data[8:24])
    return bytes(data[:4]) + len(body).to_bytes(4, "big") + body


def other_type(data: bytearray, talk: ProxyConnection) -> bytes:
    if len(data) > 21:
        data[21] = data[21] % 8 + 1
    return data


def stuck(data: bytearray, talk: ProxyConnection) -> bytes:
    return talk.shared.setdefault("generation", bytes(data[:4])) + bytes(data[4:])


def ghost(data: bytearray, talk: ProxyConnection) -> bytes:
    return bytes(data[:4]) + b"\0\0\0\x08" + bytes.fromhex("a1a2a3a4a5a6a7a8")


def old_holder(data: bytearray, talk: ProxyConnection) -> bytes:
    if len(data) >= 24:
        data[8:16] = bytes.fromhex("a1a2a3a4a5a6a7a8")
    return data


def no_reservation(data: bytearray, talk: ProxyConnection) -> bytes:
    return bytes(data[:4]) + bytes(4)


def no_holder(data: bytearray, talk: ProxyConnection) -> bytes:
    if len(data) > 20:
        data[20] &= 0xFE
    if len(data) > 8 + 24 + 12:
        at = 8 + 24 + int.from_bytes(data[28:32], "big") + 12
        if at < len(data):
            data[at] &= 0xFE
    return data


pr_in("registration-lost", 0, "a registration is not listed", forget_last)
pr_in("keys-two-at-most", 0, "of three keys two are listed", two_at_most)
pr_in("generation-stuck", 0, "PRGENERATION does not count", stuck)
pr_in("clear-ignored", 0, "a registration remains after CLEAR", ghost)
pr_in("keys-truncation", 0, "ADDITIONAL LENGTH follows the allocation length",
      lambda data, talk: bytes(data[:4]) + (len(data) - 8).to_bytes(4, "big") + bytes(data[8:]))  # fmt: skip
pr_in("reservation-type", 1, "a wrong type is reported", other_type)
pr_in("preempt-ignored", 1, "the old holder is reported after PREEMPT", old_holder)
pr_in("release-foreign", 1, "a release by another initiator ends the reservation", no_reservation)
pr_in("capabilities-length", 2, "LENGTH is not 8", lambda data, talk: b"\0\x07" + bytes(data[2:]))
pr_in("power-loss-inactive", 2, "PTPL_A is not set after a registration with APTPL",
      lambda data, talk: bytes(data[:3]) + bytes((data[3] & 0xFE,)) + bytes(data[4:]))  # fmt: skip
pr_in("full-status-holder", 3, "R_HOLDER is not set for the holder", no_holder)


def _unregisters(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note that the nexus which made the reservation unregisters."""
    block, shared = talk.cdb(pdu), talk.shared
    if not isinstance(pdu, (ScsiCommand, DataOut)) or block[0] != 0x5F or len(pdu.data) < 24:
        return pdu
    if block[1] & 0x1F == _RESERVE:
        shared["maker"], shared["gone"] = talk.name, False
    elif block[1] & 0x1F == _REGISTER and not any(pdu.data[8:16]):
        shared["gone"] = shared.get("gone") or shared.get("maker") == talk.name
    return pdu


def _preempts(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note the type of a PREEMPT that names a key, while all registrants hold the reservation."""
    block, shared = talk.cdb(pdu), talk.shared
    if not isinstance(pdu, (ScsiCommand, DataOut)) or block[0] != 0x5F or len(pdu.data) < 24:
        return pdu
    if block[1] & 0x1F == _RESERVE:
        shared["kind"] = block[2] & 0xF
        shared.pop("taken", None)
    elif block[1] & 0x1F == _PREEMPT and any(pdu.data[8:16]) and shared.get("kind") in (7, 8):
        shared["taken"] = block[2] & 0xF
    return pdu


@mutant(
    "shared-preempt-takes | SPC-4 PREEMPT | "
    "a PREEMPT of one key takes a reservation that all registrants hold",
    request=_preempts,
)
def shared_preempt_takes(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x5E or block[1] & 0x1F != 1 or len(pdu.data) < 22:
        return pdu
    if "taken" not in talk.shared:
        return pdu
    return replace(pdu, data=pdu.data[:21] + bytes((talk.shared["taken"],)) + pdu.data[22:])


@mutant(
    "all-registrants-end-with-one | SPC-4 unregistering | "
    "a reservation of all registrants ends when the nexus that made it unregisters",
    request=_unregisters,
)
def all_registrants_end_with_one(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    reads = isinstance(pdu, DataIn) and block[0] == 0x5E and block[1] & 0x1F == 1
    if not reads or not talk.shared.get("gone"):
        return pdu
    return replace(pdu, data=no_reservation(bytearray(pdu.data), talk))  # type: ignore[call-arg,attr-defined]
