"""Broken rules of the hosts that may use a reservation command, and of those that are notified.

The rules, from the text (NVM Express Base 2.3), before any case:

- 8.1.24.4, .6, .7, .8: Unregister, Release, Preempt and Clear of a host that is no registrant, or by another
  key than its own, are a Reservation Conflict (MUST).
- 7.5, 7.7: IEKEY is an Invalid Field of Acquire and Release; so is a reserved type of Preempt (MUST).
- 8.1.24.6, .7, .8: the other registrants are notified, not the host that has sent the command (MUST).
- 5.2.2: an event is reported to the next request if none is outstanding (SHOULD).
- 4.4: a notification mask that was not saved ends with a reset (SHOULD).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import When, accepts, action, add, feature, log, on_io, patch, put, shared, target

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

HOSTID = slice(0, 16)
"""Bytes of the data of Connect (6.3)."""
PREEMPTS = action(Io.RESERVATION_ACQUIRE, 1, 2)
RELEASES = action(Io.RESERVATION_RELEASE, 0, 1)
CLEARS = action(Io.RESERVATION_RELEASE, 1)
UNREGISTERS = action(Io.RESERVATION_REGISTER, 1)
MASK = feature(Admin.GET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)
SETS_MASK = feature(Admin.SET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


def _notes_register(through: ProxyConnection, got: DecodedPdu) -> None:
    sent = _command(got)
    if sent is not None and action(Io.RESERVATION_REGISTER, 0)(through, sent):
        through.memory["registered"] = True


def _accepted_by(row: str, when: When, *, registrant: bool) -> None:
    """Accept a command that is a conflict if the host has (not) registered on its queue."""
    rule: Rule = accepts(
        StatusCode.RESERVATION_CONFLICT,
        when=lambda t, c: bool(t.memory.get("registered")) == registrant and when(t, c),
    )
    add(row, lambda: ProxyConnection(of_host=_notes_register, of_target=rule))


_accepted_by(
    "stranger-preempts | Base 8.1.24.7 | Preempt by a host that is no registrant succeeds",
    PREEMPTS,
    registrant=False,
)
_accepted_by(
    "stranger-releases | Base 8.1.24.6, 8.1.24.8 | Release and Clear by a host that is no registrant succeed",
    RELEASES,
    registrant=False,
)
_accepted_by(
    "stranger-unregisters | Base 8.1.24.4 | Unregister by a host that is no registrant succeeds",
    UNREGISTERS,
    registrant=False,
)
_accepted_by(
    "preempt-key-unchecked | Base 8.1.24.7 | Preempt by a registrant succeeds with any key",
    PREEMPTS,
    registrant=True,
)
_accepted_by(
    "clear-key-unchecked | Base 8.1.24.8 | Clear by a registrant succeeds with any key",
    CLEARS,
    registrant=True,
)
target(
    "iekey-taken | Base 7.5, 7.7 | Acquire and Release take IEKEY",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: (
            on_io(Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE)(t, c) and bool(c.cdw10 >> 3 & 1)
        ),
    ),
)
target(
    "preempt-rtype-unchecked | Base 7.5 | Preempt takes any type",
    accepts(StatusCode.INVALID_FIELD, when=PREEMPTS),
)


def _notifies_itself(notes: set[Any]) -> ProxyConnection:
    """``notes``: Host Identifiers of the hosts that have released, cleared or preempted."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        sent = _command(got)
        if sent is None:
            return
        assert isinstance(got.pdu, CapsuleCmd)
        if sent.opcode == FABRICS and sent.nsid & 0xFF == Fctype.CONNECT:
            through.memory["host"] = got.pdu.data[HOSTID]
        elif PREEMPTS(through, sent) or RELEASES(through, sent):
            notes.add(through.memory.get("host"))

    page = patch(
        put(0, b"\1" + bytes(7) + b"\2"),  # one more notification, of a release
        when=lambda t, c: log(LogPage.RESERVATION_NOTIFICATION)(t, c) and t.memory.get("host") in notes,
    )
    return ProxyConnection(of_host=of_host, of_target=page)


shared(
    "notice-to-itself | Base 8.1.24.6 | a host is notified of its own Release, Clear and Preempt",
    _notifies_itself,
)


def _notes_request(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note the request that came last, as long as no other command has come."""
    sent = _command(got)
    if sent is not None:
        asks = sent.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST and not through.qid
        through.memory["fresh"] = sent.cid if asks else None


def _loses_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleResp) or through.memory.get("fresh") is None:
        return None
    return [] if Cqe.decode(got.pdu.cqe).cid == through.memory["fresh"] else None


add(
    "event-lost-unasked | Base 5.2.2 | an event is lost that comes while no request is outstanding",
    lambda: ProxyConnection(of_host=_notes_request, of_target=_loses_event),
)


def _notes_mask(through: ProxyConnection, got: DecodedPdu) -> None:
    sent = _command(got)
    if sent is not None and SETS_MASK(through, sent):
        through.memory["mask"] = sent.cdw11


def _keeps_mask(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or sent is None or not MASK(through, sent):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if through.memory.get("mask", cqe.result) == cqe.result:
        return None
    return [CapsuleResp(replace(cqe, result=through.memory["mask"]).encode())]


add(
    "reset-keeps-82h | Base 4.4 | the Reservation Notification Mask outlives a reset without Save",
    lambda: ProxyConnection(of_host=_notes_mask, of_target=_keeps_mask),
)
