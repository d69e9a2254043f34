"""Broken rules of what a reset, a refused Connect and a Replace leave as it is.

The rules, from the text (NVM Express Base 2.3), before any case:

- 4.1.1: a Command Identifier is unique together with the identifier of its queue (MUST).
- 5.2.2: requests that are outstanding when the controller is reset return no completion (MUST).
- 3.3.2.3: a Connect of a queue that exists is refused, and the queue is not the Connect's (MUST).
- 8.1.24.1: reservations and registrations persist across every controller level reset (MUST).
- 8.1.24.4: a reservation of all registrants is released when the last one unregisters; the others are
  notified if a holder's Unregister releases one of registrants only (MUST).
- 8.1.24.7: Preempt with PRKEY 0 takes a reservation of all registrants, and no other; without a reservation
  it unregisters (MUST).
- 8.1.24.3: replacing a key has no effect on any reservation (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import When, action, fabrics, hang_up, host, log, on_io, patch, shared

from storagetest.wire.nvme.codes import Admin, Fctype, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

Notes = set[Any]
CONNECT = fabrics(Fctype.CONNECT)
REPORT, REPLACE = on_io(Io.RESERVATION_REPORT), action(Io.RESERVATION_REGISTER, 2)
RTYPE = slice(4, 5)
"""Byte of the type of a Reservation Report (7.8)."""


def _completes_requests(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if CC_SET(through, command) and not command.cdw12 & 1:
        for cid, one in list(through.commands.items()):
            if one.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST:
                through.reply(Cqe(cid, StatusCode.ABORTED_SQ_DELETION))
    return None


host(
    "reset-completes-requests | Base 5.2.2 | a reset completes outstanding event requests as aborted",
    _completes_requests,
)


def _connect_ends_first(notes: Notes) -> ProxyConnection:
    """``notes``: controller and QID of each queue of which a second Connect was refused."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            if CONNECT(through, Command.decode(got.pdu.sqe)) and through.qid:
                through.memory["queue"] = got.pdu.data[16:18], through.qid
            elif through.memory.get("queue") in notes:
                hang_up()
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or not command or not CONNECT(through, command):
            return None
        if through.qid and Cqe.decode(got.pdu.cqe).status == StatusCode.COMMAND_SEQUENCE_ERROR:
            notes.add(through.memory["queue"])
        return None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "connect-again-ends | Base 3.3.2.3 | a Connect of a queue that exists is refused, and ends the queue",
    _connect_ends_first,
)


def _one_cid_for_all(notes: Notes) -> ProxyConnection:
    """``notes``: controller and CID of each event request."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if CONNECT(through, command):
            through.memory["cntlid"] = int.from_bytes(got.pdu.data[16:18], "little")
        elif command.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST and not through.qid:
            notes.add((through.memory["cntlid"], command.cid))
        elif through.qid and (through.memory.get("cntlid"), command.cid) in notes:
            through.reply(Cqe(command.cid, StatusCode.COMMAND_ID_CONFLICT))
            return []
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if isinstance(got.pdu, CapsuleResp) and command and CONNECT(through, command) and not through.qid:
            through.memory["cntlid"] = Cqe.decode(got.pdu.cqe).dw0 & 0xFFFF
        return None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "cid-across-queues | Base 4.1.1 | the CID of an event request is a conflict on an I/O queue",
    _one_cid_for_all,
)


def _released(notes: Notes, through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Let a report have no reservation once ``notes`` has something."""
    command = through.command_of(got)
    if not notes or not isinstance(got.pdu, C2HData) or got.pdu.offset or not command:
        return None
    if not REPORT(through, command):
        return None
    data = bytearray(got.pdu.data)
    data[RTYPE] = b"\0"
    return [replace(got.pdu, data=bytes(data))]


def _reset_releases(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if CC_SET(through, command) and not command.cdw12 & 1:
                notes.add("reset")
        return None

    return ProxyConnection(of_host=of_host, of_target=lambda t, got: _released(notes, t, got))


def _replace_releases(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and REPLACE(through, Command.decode(got.pdu.sqe)):
            notes.add("replaced")
        return None

    return ProxyConnection(of_host=of_host, of_target=lambda t, got: _released(notes, t, got))


shared(
    "reset-releases-reservation | Base 8.1.24.1 | a controller reset releases the reservation",
    _reset_releases,
)
shared(
    "replace-releases | Base 8.1.24.3 | a Replace by the holder releases the reservation", _replace_releases
)


# Unregister and Preempt (8.1.24.4, 8.1.24.7)

UNREGISTER, ACQUIRE = action(Io.RESERVATION_REGISTER, 1), action(Io.RESERVATION_ACQUIRE, 0)
PREEMPT = action(Io.RESERVATION_ACQUIRE, 1)
PRKEY = slice(8, 16)
"""Bytes of the data of Reservation Acquire (7.5)."""


def _noting(when: When, of_target: Callable[[Notes], Rule]) -> Callable[[Notes], ProxyConnection]:
    """Return connections that note each command that is ``when``, for ``of_target``."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleCmd) and when(through, Command.decode(got.pdu.sqe)):
                notes.add("sent")
            return None

        return ProxyConnection(of_host=of_host, of_target=of_target(notes))

    return sharing


shared(
    "unregister-ends-shared | Base 8.1.24.4 | an Unregister releases a reservation of all registrants",
    _noting(UNREGISTER, lambda notes: lambda t, got: _released(notes, t, got)),
)
shared(
    "notice-of-unregister-lost | Base 8.1.24.4 | an Unregister by the holder notifies no host",
    _noting(
        UNREGISTER,
        lambda notes: patch(
            lambda raw: bytes(len(raw)),
            when=lambda t, c: bool(notes) and log(LogPage.RESERVATION_NOTIFICATION)(t, c),
        ),
    ),
)


def _zero_is_ignored(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd) or any(got.pdu.data[PRKEY]):
        return None
    command = Command.decode(got.pdu.sqe)
    if not PREEMPT(through, command):
        return None
    through.reply(Cqe(command.cid, sqhd=1))
    return []


host(
    "preempt-zero-ignored | Base 8.1.24.7 | a Preempt with PRKEY 0 succeeds, and does nothing",
    _zero_is_ignored,
)


def _idle_is_ignored(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if ACQUIRE(through, command):
            notes.add("acquired")
        if not PREEMPT(through, command) or notes:
            return None
        through.reply(Cqe(command.cid, sqhd=1))
        return []

    return ProxyConnection(of_host=of_host)


shared(
    "preempt-idle-ignored | Base 8.1.24.7 | a Preempt without a reservation unregisters no host",
    _idle_is_ignored,
)
