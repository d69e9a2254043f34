"""Reservations of the small subsystem (NVM Express Base 2.3, 7.5 to 7.8, 8.1.24), without its transport."""

# ruff: noqa: C901  # a rule of the standard is an `if` and a `raise`, side by side

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from nvme_namespace import Answer, CommandFailed, Namespace

from storagetest.wire.nvme.codes import Io, LogPage, Rtype, StatusCode
from storagetest.wire.nvme.command import Command

if TYPE_CHECKING:
    from nvme_subsystem import Controller

PREEMPTED, RELEASED, RESERVATION_PREEMPTED = 1, 2, 3
"""Types of the Reservation Notification log page (5.2.12.1.35)."""


def reserve(controller: Controller, namespace: Namespace, command: Command, data: bytes) -> Answer:
    """Carry out one of the four commands."""
    if command.opcode == Io.RESERVATION_REPORT:
        return Answer(_report(namespace, controller, command))
    current, other = struct.unpack("<QQ", data.ljust(16, b"\0"))
    action, ignore, rtype = command.cdw10 & 7, command.cdw10 >> 3 & 1, command.cdw10 >> 8 & 0xFF
    registered = namespace.registrants.get(controller.hostid)
    if command.opcode == Io.RESERVATION_REGISTER:
        _register(controller, namespace, action, bool(ignore), current, other, command.cdw10 >> 30)
        return Answer()
    if registered is None or (not ignore and registered != current):
        raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
    if command.opcode == Io.RESERVATION_ACQUIRE:
        if ignore or action > 2 or rtype not in set(Rtype) or not controller.traits.rescap >> rtype & 1:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        (_acquire if action == 0 else _preempt)(controller, namespace, rtype, other)
        return Answer()
    if action > 1 or ignore:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    if action == 1:
        _notify_hosts(controller, namespace, RESERVATION_PREEMPTED)
        namespace.release()
        namespace.registrants.clear()
        namespace.generation += 1
    elif namespace.holds(controller.hostid):
        if rtype != namespace.rtype:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        if rtype not in (Rtype.WRITE_EXCLUSIVE, Rtype.EXCLUSIVE_ACCESS):
            _notify_hosts(controller, namespace, RELEASED)
        namespace.release()
    return Answer()


def _register(
    controller: Controller,
    namespace: Namespace,
    action: int,
    ignore: bool,
    current: int,
    new: int,
    persist: int,
) -> None:
    host = controller.hostid
    registered = namespace.registrants.get(host)
    if persist == 1:
        raise CommandFailed(StatusCode.INVALID_FIELD)  # CPTPL 01b is reserved
    if action == 0:
        if registered is not None and registered != new:
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
        namespace.registrants[host] = new
    elif action in (1, 2):
        if registered is None and not (ignore and action == 2):
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
        if not ignore and registered != current:
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
        if action == 1:
            released = namespace.holds(host) and namespace.holder == host
            shared = namespace.rtype in (Rtype(3), Rtype(4))
            namespace.unregister(host)
            if released and shared and not namespace.rtype:
                _notify_hosts(controller, namespace, RELEASED)
        else:
            namespace.registrants[host] = new
    else:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    if persist:
        namespace.persistence = persist & 1
    namespace.generation += 1


def _acquire(controller: Controller, namespace: Namespace, rtype: int, _: int) -> None:
    if namespace.rtype and not (namespace.holds(controller.hostid) and namespace.rtype == rtype):
        raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
    if not namespace.rtype:
        namespace.holder, namespace.rtype = controller.hostid, rtype


def _preempt(controller: Controller, namespace: Namespace, rtype: int, key: int) -> None:
    victims = {host for host, one in namespace.registrants.items() if one == key}
    takes = False
    if namespace.all_registrants():
        takes = key == 0
        victims = set(namespace.registrants) - {controller.hostid} if key == 0 else victims
    elif namespace.rtype:
        takes = namespace.registrants.get(namespace.holder or b"") == key
    if namespace.rtype and not takes:
        if not key:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        if namespace.all_registrants() and not victims:
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
    for host in victims - {controller.hostid}:
        _notify_host(controller, namespace, host, PREEMPTED)
        namespace.registrants.pop(host, None)
    if takes:
        if rtype != namespace.rtype:  # for the registrants that stay, the reservation was released
            _notify_hosts(controller, namespace, RELEASED)
        namespace.holder, namespace.rtype = controller.hostid, rtype
    namespace.generation += 1


def _notify_hosts(controller: Controller, namespace: Namespace, kind: int) -> None:
    for host in namespace.registrants:
        if host != controller.hostid:
            _notify_host(controller, namespace, host, kind)


def _notify_host(by: Controller, namespace: Namespace, host: bytes, kind: int) -> None:
    """Log a Reservation Notification and complete an outstanding AER of that host (5.2.12.1.35)."""
    for controller in by.subsystem.controllers.values():
        masked = controller.masks.get(namespace.nsid, 0) >> kind & 1
        if controller.hostid == host and not masked and not controller.discovery:
            controller.noticed += 1
            controller.notices.append((controller.noticed, kind, namespace.nsid))
            event = 6 | 0 << 8 | LogPage.RESERVATION_NOTIFICATION << 16
            any(send(event) for send in list(controller.notify))


def notice(controller: Controller, *, clear: bool) -> bytes:
    """Return the Reservation Notification log page; ``clear`` removes its entry."""
    if not controller.notices:
        return bytes(64)
    count, kind, nsid = controller.notices[0]
    left = min(len(controller.notices) - 1, 0xFF)
    if clear:
        controller.notices.pop(0)
    return struct.pack("<QBBxxI", count, kind, left, nsid).ljust(64, b"\0")


def _report(namespace: Namespace, controller: Controller, command: Command) -> bytes:
    if not command.cdw11 & 1:
        raise CommandFailed(StatusCode.HOST_IDENTIFIER_INCONSISTENT)
    registered = sorted(namespace.registrants.items())
    out = struct.pack(
        "<IBH2xB", namespace.generation, namespace.rtype, len(registered), namespace.persistence
    )
    out = out.ljust(64, b"\0")
    for host, key in registered:
        ids = [one.cntlid for one in controller.subsystem.controllers.values() if one.hostid == host]
        cntlid = ids[0] if ids and not controller.traits.hides_cntlid else 0xFFFF
        out += struct.pack("<HB5xQ", cntlid, namespace.holds(host), key) + host + bytes(32)
    length = (command.cdw10 + 1) * 4
    return out[:length].ljust(length, b"\0")
