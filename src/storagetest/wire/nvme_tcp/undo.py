"""Undo of what a case may leave on a namespace: registrations and reservations (NVM Express Base 2.3).

They are undone from every host that could hold them, each with the key that the target reports for it: Clear
(8.1.24.8), then Release and Unregister (8.1.24.6, 8.1.24.4). If that does not help, a host registers anew,
and clears or preempts (8.1.24.7). Whether anything is left is decided by Reservation Report (7.8) and by what
the namespace refuses. Before that each host unregisters, because a target may have lost a registrant from its
report alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import ReservationStatus, reservation_status
from storagetest.wire.nvme_tcp.queue import Queue
from storagetest.wire.nvme_tcp.session import ControllerSession, Identity

UNDO_KEY = 0xC1EA
"""The reservation key that the undo registers (chosen)."""

REPORT = 4096
"""Bytes of a Reservation Report: 63 registrants (chosen)."""

REGISTER, UNREGISTER, REPLACE = 0, 1, 2  # RREGA, 7.6
PERSIST_CHANGE = 2  # CPTPL: 10b sets PTPL to 0, 11b to 1, 7.6
PREEMPT = 1  # RACQA, 7.5
RELEASE, CLEAR = 0, 1  # RRELA, 7.7


def undo_reservations(
    connect: Callable[[Identity], ControllerSession],
    identities: Sequence[Identity],
    nsid: int,
    *,
    persistence: int,
) -> str:
    """Remove every registration and reservation of namespace ``nsid``; return what is left, "" for nothing.

    ``connect`` returns a new session of a host. One is open at a time: a subsystem may admit no more (6.3).
    ``persistence`` is PTPLS as it was before; it is set back, too.
    """
    for identity in identities:
        with suppress(RemoteProtocolError, NotOffered), connect(identity) as session:  # what is left decides
            _try(session.io_queue(), io.register(nsid, UNREGISTER, ignore=True), io.keys(0))
    left = "no host could connect"
    for undo in (_undo_own, _undo_anew):
        for identity in identities:
            try:
                with connect(identity) as session:
                    queue = session.io_queue()
                    left = reservations_left(queue, nsid)
                    if left:
                        undo(queue, nsid, identity.hostid)
                        left = reservations_left(queue, nsid)
                    left = left or _undo_persistence(session, queue, nsid, persistence)
            except (RemoteProtocolError, NotOffered) as error:
                left = left or str(error)
            if not left:
                return ""
    return left


def _undo_persistence(session: ControllerSession, queue: Queue, nsid: int, wanted: int) -> str:
    """Set PTPLS of a namespace without registrants back, by its feature or by a registration (7.6)."""
    if _report(queue, nsid).persistence == wanted:
        return ""
    session.admin.run(admin.set_features(Feature.RESERVATION_PERSISTENCE, wanted, nsid=nsid))
    if _report(queue, nsid).persistence != wanted:
        _try(queue, io.register(nsid, REGISTER, persist=PERSIST_CHANGE | wanted), io.keys(0, UNDO_KEY))
        _try(queue, io.register(nsid, UNREGISTER, ignore=True), io.keys(UNDO_KEY, 0))
    found = _report(queue, nsid).persistence
    if found != wanted:
        return f"the Persist Through Power Loss State is {found}, and was {wanted}"
    return reservations_left(queue, nsid)


def reservations_left(queue: Queue, nsid: int) -> str:
    """Return what is registered or reserved, "" if nothing is. No response is something that may be left."""
    try:
        status = _report(queue, nsid)
        if status.registrants:
            keys = ", ".join(f"{one.key:#x}" for one in status.registrants)
            return f"registered keys: {keys}"
        if status.rtype:
            return f"a reservation of type {status.rtype:x}h is held"
        if queue.run(io.flush(nsid)).status == StatusCode.RESERVATION_CONFLICT:  # it changes nothing
            return "Flush ends with RESERVATION_CONFLICT"
    except RemoteProtocolError as error:
        return f"the namespace does not report its reservations: {error}"
    return ""


def _report(queue: Queue, nsid: int) -> ReservationStatus:
    done = queue.run(io.report(nsid, REPORT), reads=REPORT)
    if not done.ok:
        raise RemoteProtocolError(f"Reservation Report: {status_name(done.status)}")
    return reservation_status(done.data)


def _undo_own(queue: Queue, nsid: int, hostid: bytes) -> None:
    """Undo what the target reports of this host, with the key that it reports."""
    status = _report(queue, nsid)
    for key in (one.key for one in status.registrants if one.hostid == hostid):
        _leave(queue, nsid, key, status.rtype)


def _undo_anew(queue: Queue, nsid: int, _hostid: bytes) -> None:
    """Register in any way, and clear or preempt the registrants."""
    status = _report(queue, nsid)
    _try(queue, io.register(nsid, REGISTER), io.keys(0, UNDO_KEY))
    _try(queue, io.register(nsid, REPLACE, ignore=True), io.keys(0, UNDO_KEY))
    _leave(queue, nsid, UNDO_KEY, status.rtype, victims=[one.key for one in status.registrants])


def _leave(queue: Queue, nsid: int, key: int, rtype: int, *, victims: Iterable[int] = ()) -> None:
    rtype = rtype or Rtype.WRITE_EXCLUSIVE
    _try(queue, io.release(nsid, CLEAR, rtype), io.keys(key)[:8])
    for victim in victims:
        _try(queue, io.acquire(nsid, PREEMPT, rtype), io.keys(key, victim))
    _try(queue, io.release(nsid, RELEASE, rtype), io.keys(key)[:8])
    _try(queue, io.register(nsid, UNREGISTER), io.keys(key, 0))


def _try(queue: Queue, command: Command, data: bytes) -> None:
    """Run a command, whatever its status: the report decides."""
    with suppress(RemoteProtocolError):
        queue.run(command, data=data)
