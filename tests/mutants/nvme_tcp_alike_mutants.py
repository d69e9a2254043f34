"""Broken rules of later queues and of details of answers: digests, M, SQID, what stays after a reset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    add,
    commands,
    fabrics,
    feature,
    host,
    log,
    on_admin,
    patch,
    put,
    response,
    target,
)
from nvme_tcp_transport_mutants import joined, one_too_many

from storagetest.wire.nvme.codes import Admin, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData, encode

# Later queues


def _later_queue(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A wrong data digest on I/O queue 2 and later is made right."""
    wrong = isinstance(got.pdu, (CapsuleCmd, H2CData)) and got.data_digest_ok is False
    return [got.pdu] if wrong and through.qid > 1 else None


host("ddgst-later-queue | NVMe/TCP 3.5 | data digests are checked on the first I/O queue alone", _later_queue)
target(
    "error-log-first-queue | Base 5.2.12.1.2 | SQID of an entry of the error log is 1 for every I/O queue",
    patch(lambda raw: put(8, b"\1\0")(raw) if raw[8:10] > b"\1\0" else raw, when=log(LogPage.ERROR)),
)


def _of_compare(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    return one_too_many(through, got) if command is not None and command.opcode == Io.COMPARE else None


add(
    "r2t-over-limit-compare | NVMe/TCP 3.3.2.2 | of a Compare, one R2T more than MAXR2T is outstanding",
    lambda: ProxyConnection(of_target=_of_compare, of_host=joined),
)


def _without_digest(*, ok: bool) -> Rule:
    """A completion of an Asynchronous Event Request has no digest."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None or through.qid:
            return None
        event = command.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST
        return [encode(got.pdu)] if event and Cqe.decode(got.pdu.cqe).ok == ok else None

    return rule


target(
    "event-without-digest | NVMe/TCP 3.3.1.1 | the completion of an event has no header digest",
    _without_digest(ok=True),
)
target(
    "aborted-without-digest | NVMe/TCP 3.3.1.1 | the completion of an aborted request has no header digest",
    _without_digest(ok=False),
)

# Details of answers

target(
    "more-of-success | Base 4.2.3 | M is 1 in each completion of success",
    response(lambda t, c, cqe: replace(cqe, more=True) if cqe.ok else None),
)


def _more_of_nothing(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleResp):
        cqe = Cqe.decode(got.pdu.cqe)
        wrong = cqe.status == StatusCode.INVALID_OPCODE
        return [CapsuleResp(replace(cqe, more=True).encode())] if wrong else None
    command = through.command_of(got)
    if isinstance(got.pdu, C2HData) and command is not None and log(LogPage.ERROR)(through, command):
        return [replace(got.pdu, data=bytes(len(got.pdu.data)))]
    return None


target("more-of-nothing | Base 4.2.3 | M is 1 of an unknown opcode, and no error is logged", _more_of_nothing)
target(
    "more-of-connect | Base 6.3 | M is 1 of a Connect that is refused",
    response(
        lambda t, c, cqe: (
            replace(cqe, more=True) if not cqe.ok and c and fabrics(Fctype.CONNECT)(t, c) else None
        )
    ),
)


def _keeps_offset(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """The offset of a Get Log Page is that of the next one without an offset as well."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not on_admin(Admin.GET_LOG_PAGE)(through, command):
        return None
    kept = through.memory.pop("offset", 0)
    if command.cdw12:
        through.memory["offset"] = command.cdw12
        return None
    return [replace(got.pdu, sqe=replace(command, cdw12=kept).encode())]


host(
    "log-offset-kept | Base 5.2.12 | an offset is that of the next Get Log Page as well",
    _keeps_offset,
)
target(
    "abort-self-done | Base 5.2.1 | an Abort of itself reports that it was aborted",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=0)
            if cqe.ok and c and on_admin(Admin.ABORT)(t, c) and c.cdw10 >> 16 == c.cid
            else None
        )
    ),
)


def _by_reset(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Note that the controller is disabled."""
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.PROPERTY_SET)(through, command) and not command.cdw12 & 1:
            through.memory["reset"] = True
    return None


add(
    "hostid-gone-by-reset | Base 5.2.26.1.32 | the Host Identifier is 0 after a reset",
    lambda: ProxyConnection(
        of_host=_by_reset,
        of_target=patch(
            lambda raw: bytes(len(raw)),
            when=lambda t, c: (
                "reset" in t.memory and feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)(t, c)
            ),
        ),
    ),
)

OF_NAMESPACE = feature(
    Admin.GET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK, Feature.RESERVATION_PERSISTENCE
)
for name, select, text in (("default", 1, "default value"), ("capable", 3, "capabilities")):
    host(
        f"namespace-{name}-current | Base 5.2.11 | the {text} of a feature of a namespace is the current one",
        commands(
            lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & 0xFF).encode()),
            when=lambda t, c, select=select: OF_NAMESPACE(t, c) and c.cdw10 >> 8 & 7 == select,
        ),
    )
