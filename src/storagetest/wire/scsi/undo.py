"""Undo of what a case may leave on a logical unit: registrations and reservations.

They are undone from every I_T nexus that could hold them. Any registrant removes all registrations and the
persistent reservation (SPC-4, CLEAR); a registrant that CLEAR does not reach removes its own (SPC-4,
REGISTER). A RESERVE(6) is released by the nexus that made it, or by a logical unit reset (SPC-2, RESERVE(6)
and RELEASE(6)). Whether anything is left is decided by what the unit reports and by what it refuses. Before
that each nexus unregisters, because a unit may have lost a registration from its reports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from storagetest.errors import RemoteProtocolError
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservations import decode_keys, decode_reservation

UNDO_KEY = 0xC1EA
"""The reservation key that the undo registers (chosen)."""


def undo_reservations(nexuses: Sequence[LogicalUnit], *, reset: Callable[[], object] | None = None) -> str:
    """Remove every registration and reservation; return what is left, "" if nothing is.

    ``nexuses`` are the unit through each I_T nexus. ``reset`` resets the logical unit, as the last resort.
    """
    for nexus in nexuses:
        with suppress(RemoteProtocolError):  # what is left decides
            nexus.clear_attentions()
            nexus.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=0)
    left = reservations_left(nexuses)
    for undo in (_release6, _clear, _unregister):
        for nexus in nexuses if left else ():
            with suppress(RemoteProtocolError):  # the next nexus, or the next way, may do it
                undo(nexus)
            left = reservations_left(nexuses)
    if left and reset is not None:
        with suppress(RemoteProtocolError):
            reset()
        left = reservations_left(nexuses)
    return left


def reservations_left(nexuses: Sequence[LogicalUnit]) -> str:
    """Return what is registered or reserved, "" if nothing is. No answer is something that may be left."""
    if not nexuses:
        return "no I_T nexus could be made, so nothing is known"
    try:
        for nexus in nexuses:
            nexus.clear_attentions()
            for probe in _probes(nexus):
                if probe.conflict:
                    return str(probe)
            listed = nexus.reserve_in(PrIn.READ_KEYS)
            if listed.unsupported:
                continue
            if keys := decode_keys(listed.good_data()).keys:
                return f"the reservation key {keys[0]:#x} is registered"
            if nexus is nexuses[0] and (held := nexus.reservation()).held:
                return f"a persistent reservation of type {held.type} is held"
    except RemoteProtocolError as error:
        return f"the logical unit does not report its reservations: {error}"
    return ""


def reservation_of_another(nexus: LogicalUnit) -> str:
    """Return which persistent reservation another nexus has, "" if the unit does not state that one has.

    ``nexus`` has none. A reservation needs a registered key (SPC-4): without one, the response to READ
    RESERVATION is a fault, which the cases find. A RESERVE(6) is seen by any command: it is a conflict.
    """
    with suppress(RemoteProtocolError):  # the cases of reservations test the response
        held = decode_reservation(nexus.reserve_in(PrIn.READ_RESERVATION).good_data())
        if held.held and decode_keys(nexus.reserve_in(PrIn.READ_KEYS).good_data()).keys:
            return f"READ RESERVATION returns type {held.type} and the key {held.key:#x}"
    return ""


def _probes(nexus: LogicalUnit) -> Sequence[ScsiResult]:
    """Send commands that a reservation refuses and that change nothing (SBC-3).

    None is a write of no blocks: istgt 0.4 never completes one, nor any command after it.
    """
    return (
        nexus.read(0, command=c.READ_10),
        nexus.run(c.SYNCHRONIZE_CACHE_10, lba=0, blocks=1),
    )


def _release6(nexus: LogicalUnit) -> None:
    nexus.run(c.RELEASE_6)


def _clear(nexus: LogicalUnit) -> None:
    """Register, whatever the key was, and clear."""
    registered = nexus.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=UNDO_KEY)
    if registered.unsupported or not registered.good:
        nexus.register(UNDO_KEY)
    nexus.reserve_out(PrOut.CLEAR, key=UNDO_KEY)


def _unregister(nexus: LogicalUnit) -> None:
    """Try each listed key as the nexus' own: release, clear, and unregister."""
    keys = dict.fromkeys(nexus.keys().keys)
    kind = nexus.reservation().type or min(nexus.reservation_types() or PrType)
    for key in keys:
        nexus.reserve_out(PrOut.RELEASE, key=key, type=kind)
        nexus.reserve_out(PrOut.CLEAR, key=key)
        nexus.register(0, key=key)
    nexus.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=UNDO_KEY)
    for key in keys:
        nexus.reserve_out(PrOut.PREEMPT, key=UNDO_KEY, action_key=key, type=kind)
    nexus.reserve_out(PrOut.RELEASE, key=UNDO_KEY, type=kind)
    nexus.register(0, key=UNDO_KEY)
