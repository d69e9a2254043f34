"""Broken rules of what a reservation counts, keeps and notifies.

The rules, from the text (NVM Express Base 2.3), before any case:

- 7.8: GEN counts each Register (also Unregister and Replace), Preempt, Preempt and Abort and Clear that
  succeeds, and no command that fails (MUST).
- 8.1.24: registrations and reservations are of one namespace (MUST).
- 8.1.24.1: a reservation binds hosts, by their Host Identifier, not controllers (MUST).
- 7.6: CPTPL 10b clears and 11b sets the Persist Through Power Loss State, if RESCAP bit 0 has it; it is
  reported (PTPLS) and is the value of the feature Reservation Persistence (MUST).
- 8.1.24.6, 8.1.24.8: the other registrants are notified of Release (of the types that share) and of Clear;
  the log page has the type and the namespace (MUST).
- 5.2.26.1.33: a notification that the mask excludes is not sent (MUST).
- 5.2.12.1.35: a page of the log that was read is not there any more (MUST).
"""

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    action,
    commands,
    drops_command,
    feature,
    host,
    log,
    on_admin,
    on_io,
    patch,
    put,
    results,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

REPORT = on_io(Io.RESERVATION_REPORT)

# The generation counter (7.8)


def _miscounts(opcode: int, number: int, *, by: int, failed: bool = False) -> None:
    """Count commands of an action (those that fail) ``by`` more."""

    def make(seen: set[object]) -> ProxyConnection:
        def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command = through.command_of(got)
            if command is None:
                return None
            counted = isinstance(got.pdu, CapsuleResp) and action(opcode, number)(through, command)
            if counted and Cqe.decode(got.pdu.cqe).ok != failed:  # type: ignore[union-attr]
                seen.add(len(seen))
            if isinstance(got.pdu, C2HData) and REPORT(through, command) and seen and not got.pdu.offset:
                new = (int.from_bytes(got.pdu.data[:4], "little") + by * len(seen)) % 2**32
                return [replace(got.pdu, data=new.to_bytes(4, "little") + got.pdu.data[4:])]
            return None

        return ProxyConnection(of_target=rule)

    names = {
        (Io.RESERVATION_REGISTER, 1): ("generation-unregister", "GEN does not count Unregister"),
        (Io.RESERVATION_REGISTER, 2): ("generation-replace", "GEN does not count Replace"),
        (Io.RESERVATION_REGISTER, 0): ("generation-failed", "GEN counts a Register that fails"),
        (Io.RESERVATION_ACQUIRE, 2): ("generation-preempt-abort", "GEN does not count Preempt and Abort"),
    }
    name, what = names[Io(opcode), number]
    shared(f"{name} | Base 7.8 | {what}", make)


_miscounts(Io.RESERVATION_REGISTER, 1, by=-1)
_miscounts(Io.RESERVATION_REGISTER, 2, by=-1)
_miscounts(Io.RESERVATION_ACQUIRE, 2, by=-1)
_miscounts(Io.RESERVATION_REGISTER, 0, by=1, failed=True)

# Namespaces and hosts (8.1.24)


host(
    "report-of-all | Base 8.1.24 | the report of every namespace is that of namespace 1",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, nsid=1).encode()),
        when=lambda t, c: REPORT(t, c) and c.nsid != 1,
    ),
)


def _excludes_all(seen: set[object]) -> ProxyConnection:
    """Refuse reads of every namespace once a host has acquired one."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if action(Io.RESERVATION_ACQUIRE, 0)(through, command):
            seen.add(command.nsid)
        if seen and on_io(Io.READ)(through, command) and command.nsid not in seen:
            through.reply(Cqe(command.cid, StatusCode.RESERVATION_CONFLICT))
            return []
        return None

    return ProxyConnection(of_host=rule)


shared(
    "reservation-of-all | Base 8.1.24 | a reservation of one namespace excludes hosts from all", _excludes_all
)


def _binds_controller(seen: set[object]) -> ProxyConnection:
    """Refuse reads on each I/O queue but those on which a host has acquired a reservation."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if action(Io.RESERVATION_ACQUIRE, 0)(through, command):
            seen.add(id(through))
        if seen and on_io(Io.READ)(through, command) and id(through) not in seen:
            through.reply(Cqe(command.cid, StatusCode.RESERVATION_CONFLICT))
            return []
        return None

    return ProxyConnection(of_host=rule)


shared(
    "reservation-of-controller | Base 8.1.24.1 | the holder's other controllers are excluded",
    _binds_controller,
)

# Persistence (7.6, 5.2.26.1.34)

host(
    "cptpl-ignored | Base 7.6 | CPTPL changes nothing",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & 0x3FFFFFFF).encode()),
        when=lambda t, c: on_io(Io.RESERVATION_REGISTER)(t, c) and bool(c.cdw10 >> 30),
    ),
)
target(
    "persistence-feature-0 | Base 5.2.26.1.34 | the feature Reservation Persistence is always 0",
    results(lambda t, c, old: 0, when=feature(Admin.GET_FEATURES, Feature.RESERVATION_PERSISTENCE)),
)

# Notifications (8.1.24.6, 8.1.24.8, 5.2.12.1.35)

NOTICE = log(LogPage.RESERVATION_NOTIFICATION)


def _no_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    waits = command is not None and on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, command)
    return [] if waits and isinstance(got.pdu, CapsuleResp) else None


target("notice-no-event | Base 8.1.24.1 | no event is sent for a reservation notification", _no_event)
target(
    "notice-kind | Base 5.2.12.1.35 | every notification is Registration Preempted",
    patch(lambda raw: put(8, b"\1")(raw) if raw[8] else raw, when=NOTICE),
)
target(
    "notice-nsid | Base 5.2.12.1.35 | the notification names no namespace",
    patch(put(12, bytes(4)), when=NOTICE),
)
host(
    "notice-mask-ignored | Base 5.2.26.1.33 | the Reservation Notification Mask is ignored",
    drops_command(feature(Admin.SET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)),
)


def _repeats(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    def first(raw: bytes) -> bytes:
        if raw[8]:
            through.memory["notice"] = raw
        return bytes(through.memory.get("notice", raw))

    return patch(first, when=NOTICE)(through, got)


target("notice-stays | Base 5.2.12.1.35 | a notification that was read is read again", _repeats)
