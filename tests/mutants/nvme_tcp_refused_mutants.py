"""Broken rules of reservation commands that are refused.

The rules, from the text (NVM Express Base 2.3), before any case:

- 8.1.24.3 to 8.1.24.8: a command that ends with an error registers, reserves and releases nothing (MUST).
- 7.6: CPTPL of a Register that ends with an error changes no persist state (MUST).
- 7.6: a key that is registered, whatever its value, is the one that the report has (MUST).
- 5.2.26: a Set Features that is refused sets nothing (MUST).
- 4.3.2: a command that has more data than its SGL ends with Data SGL Length Invalid (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, action, feature, host, on_io, patch, put, refuses, shared, target

from storagetest.wire.nvme.codes import Admin, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

CHANGES = on_io(Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE)
REPORT = on_io(Io.RESERVATION_REPORT)
RTYPE, PTPLS = 4, 9
"""Bytes of the report (7.8)."""
NRKEY = slice(8, 16)

Notes = set[object]


def _after_a_refusal(
    note: Callable[[Command], object], change: Callable[[Notes, bytes], bytes]
) -> Callable[[Notes], ProxyConnection]:
    """Return connections that change the report once a command of which there is a note was refused."""

    def sharing(notes: Notes) -> ProxyConnection:
        changed = patch(partial(change, notes), when=lambda t, c: bool(notes) and REPORT(t, c))

        def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleResp):
                command = through.command_of(got)
                if command and CHANGES(through, command) and not Cqe.decode(got.pdu.cqe).ok:
                    found = note(command)
                    notes.update(set() if found is None else {found})
            return changed(through, got)

        return ProxyConnection(of_target=rule)

    return sharing


shared(
    "refused-reserves | Base 8.1.24 | a reservation command that is refused changes the reservation",
    _after_a_refusal(lambda command: command.opcode, lambda _, raw: put(RTYPE, b"\6")(raw)),
)
shared(
    "refused-persists | Base 7.6 | CPTPL of a Register that is refused sets the persist state",
    _after_a_refusal(
        lambda command: command.cdw10 >> 30 & 1 if command.cdw10 >> 31 else None,
        lambda notes, raw: put(PTPLS, bytes([1 in notes]))(raw),
    ),
)


def _zero_unregisters(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A Register of the key 0 unregisters, as it does in SCSI."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not action(Io.RESERVATION_REGISTER, 0, 2)(through, command) or any(got.pdu.data[NRKEY]):
        return None
    if command.cdw10 & 7 == 0:
        through.reply(Cqe(command.cid, sqhd=1))
        return []
    return [replace(got.pdu, sqe=replace(command, cdw10=command.cdw10 & ~7 | 1).encode())]


host("key-zero-unregisters | Base 7.6 | a Register of the key 0 succeeds, and unregisters", _zero_unregisters)
target(
    "persistence-set-anyway | Base 5.2.26 | Set Features of the persist state sets it, and is refused",
    refuses(
        StatusCode.FEATURE_NOT_SAVEABLE, when=feature(Admin.SET_FEATURES, Feature.RESERVATION_PERSISTENCE)
    ),
)
target(
    "reservation-short | Base 4.3.2 | a reservation command succeeds with an SGL that has less than its data",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=CHANGES),
)
