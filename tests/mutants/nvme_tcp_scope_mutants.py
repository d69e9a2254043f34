"""Broken rules of what an NSID means to features and log pages, and of completions that have no result.

The rules, from the text (NVM Express Base 2.3), before any case:

- 4.2.1, 6.4, 6.6: dwords that a command does not use are reserved: Property Set, Disconnect, what is refused.
- 4.4: a feature of controller scope is not set for a namespace, and is set with NSID FFFFFFFFh (MUST).
- 3.9.1: a Keep Alive Timeout that is refused changes nothing (MUST).
- 3.6.2: after a shutdown only fabrics commands are processed (MUST); the Keep Alive Timer is disabled.
- 6.3: KATO of the Connect of an I/O queue is reserved.
- 5.2.26.1.3: each temperature sensor has thresholds of its own.
- 5.2.26.1.33: the notification mask of all namespaces is set at once, and is not read (MUST).
- 5.2.12: an index offset is for log pages that support it; RGO returns groups alone (MUST).
- 5.2.12.1.3: SMART of a namespace is refused by a controller that does not support it (MUST).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET, SHN
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    When,
    accepts,
    commands,
    fabrics,
    feature,
    hang_up,
    host,
    log,
    on_admin,
    refuses,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

ALL_NAMESPACES = 0xFFFFFFFF
SET = feature(Admin.SET_FEATURES)
OFFSET_TYPE = 1 << 23
GROUPS_ONLY = 1 << 8
MASK = Feature.RESERVATION_NOTIFICATION_MASK
OF_NAMESPACE = (Feature.ERROR_RECOVERY, MASK, Feature.RESERVATION_PERSISTENCE)
"""Features whose scope is a namespace (5.2.26)."""

# Completions without a result


def _has_result(row: str, when: When, *, ok: bool) -> None:
    """A mutant that returns bytes 44 and more of the command as dword 0, of what succeeds or is refused."""
    target(
        row,
        response(
            lambda t, c, cqe: (
                replace(cqe, result=c.cdw11 | 0x2C) if c and cqe.ok == ok and when(t, c) else None
            )
        ),
    )


def _io(through: ProxyConnection, command: Command) -> bool:
    return bool(through.qid) and command.opcode != FABRICS


def _no_get_features(through: ProxyConnection, command: Command) -> bool:
    return not through.qid and command.opcode not in (FABRICS, Admin.GET_FEATURES)


CONNECT, DISCONNECT = fabrics(Fctype.CONNECT), fabrics(Fctype.DISCONNECT)
PROPERTY_SET = fabrics(Fctype.PROPERTY_SET)
_has_result("property-set-result | Base 6.6 | Property Set returns a result", PROPERTY_SET, ok=True)
_has_result(
    "property-set-refused-result | Base 6.6 | a Property Set that is refused has a result",
    PROPERTY_SET,
    ok=False,
)
_has_result("disconnect-result | Base 6.4 | Disconnect returns a result", DISCONNECT, ok=True)
_has_result(
    "disconnect-refused-result | Base 6.4 | a Disconnect that is refused has a result", DISCONNECT, ok=False
)
_has_result("refused-io-result | Base 4.2.1 | a refused I/O command has a result", _io, ok=False)
_has_result(
    "refused-admin-result | Base 4.2.1 | a refused admin command has a result", _no_get_features, ok=False
)

# NSIDs of features (4.4)


def _with(change: Callable[[Command], Command]) -> Callable[[CapsuleCmd, Command], CapsuleCmd]:
    return lambda capsule, command: replace(capsule, sqe=change(command).encode())


host(
    "feature-of-namespace | Base 4.4 | Set Features takes any NSID for a feature of the controller",
    commands(
        _with(lambda c: replace(c, nsid=0)),
        when=lambda t, c: SET(t, c) and c.cdw10 & 0xFF not in OF_NAMESPACE and 0 < c.nsid < ALL_NAMESPACES,
    ),
)
target(
    "feature-of-all-refused | Base 4.4 | Set Features of a feature of the controller refuses FFFFFFFFh",
    refuses(
        StatusCode.INVALID_NAMESPACE,
        when=lambda t, c: SET(t, c) and c.cdw10 & 0xFF not in OF_NAMESPACE and c.nsid == ALL_NAMESPACES,
    ),
)


def _sets_default(through: ProxyConnection, command: Command) -> bool:
    """Note that KATO of 0 was asked for; until the next Set Features, it reads as the default value."""
    if feature(Admin.SET_FEATURES, Feature.KATO)(through, command):
        through.memory["default"] = not command.cdw11
    return bool(through.memory.get("default")) and feature(Admin.GET_FEATURES, Feature.KATO)(through, command)


target(
    "kato-0-sets-default | Base 3.9.1 | a Keep Alive Timeout of 0 is refused, and sets the default one",
    response(
        lambda t, c, cqe: replace(cqe, result=120_000) if c and _sets_default(t, c) and cqe.ok else None
    ),
)
host(
    "threshold-of-sensor | Base 5.2.26.1.3 | TMPSEL of Temperature Threshold is ignored",
    commands(
        _with(lambda c: replace(c, cdw11=c.cdw11 & ~(0xF << 16))),
        when=lambda t, c: (
            feature(Admin.SET_FEATURES, Feature.TEMPERATURE_THRESHOLD)(t, c) and bool(c.cdw11 >> 16 & 0xF)
        ),
    ),
)
target(
    "mask-read-of-all | Base 5.2.26.1.33 | the notification mask of FFFFFFFFh is read",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: feature(Admin.GET_FEATURES, MASK)(t, c) and c.nsid == ALL_NAMESPACES,
    ),
)
host(
    "mask-set-of-first | Base 5.2.26.1.33 | the mask of FFFFFFFFh is that of namespace 1",
    commands(
        _with(lambda c: replace(c, nsid=1)),
        when=lambda t, c: feature(Admin.SET_FEATURES, MASK)(t, c) and c.nsid == ALL_NAMESPACES,
    ),
)

# What a shutdown ends (3.6.2), and whose the Keep Alive Timeout is (6.3)


def _serves_after_shutdown(notes: set[Any]) -> ProxyConnection:
    """``notes`` has the CNTLID of each controller that was shut down."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if CONNECT(through, command) and through.qid:
                through.memory["cntlid"] = int.from_bytes(got.pdu.data[16:18], "little")
            if CC_SET(through, command):
                (notes.add if command.cdw12 & SHN else notes.discard)(through.memory.get("cntlid"))
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if command is None or not isinstance(got.pdu, CapsuleResp):
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        if CONNECT(through, command) and not through.qid:
            through.memory["cntlid"] = cqe.dw0 & 0xFFFF
        elif cqe.status == StatusCode.COMMAND_SEQUENCE_ERROR and through.memory.get("cntlid") in notes:
            return [CapsuleResp(replace(cqe, status=0, dnr=False).encode())]
        return None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "shutdown-serves-all | Base 3.6.2 | every command is processed after a shutdown", _serves_after_shutdown
)


def _expires_after_shutdown(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd):
        command, memory = Command.decode(got.pdu.sqe), through.memory
        if CONNECT(through, command) and not through.qid:
            memory["kato"] = command.cdw12 / 1000
        elif CC_SET(through, command) and "kato" in memory:
            memory["ends"] = time.monotonic() + memory["kato"] if command.cdw12 & SHN else None
        elif memory.get("ends") and time.monotonic() > memory["ends"]:
            hang_up()
    return None


host(
    "timer-after-shutdown | Base 3.6.2 | the Keep Alive Timer runs on after a shutdown",
    _expires_after_shutdown,
)


def _takes_any_timeout(notes: set[Any]) -> ProxyConnection:
    """``notes`` has the last KATO of a Connect."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if CONNECT(through, command) and through.qid and command.cdw12:
                notes.clear()
                notes.add(command.cdw12)
        return None

    return ProxyConnection(
        of_host=of_host,
        of_target=response(
            lambda t, c, cqe: (
                replace(cqe, result=max(notes))
                if c and notes and feature(Admin.GET_FEATURES, Feature.KATO)(t, c)
                else None
            )
        ),
    )


shared(
    "kato-of-io-connect | Base 6.3 | KATO of the Connect of an I/O queue is the controller's",
    _takes_any_timeout,
)

# Log pages (5.2.12)

host(
    "smart-of-namespace | Base 5.2.12.1.3 | SMART of a namespace is returned, and LPA does not announce it",
    commands(
        _with(lambda c: replace(c, nsid=ALL_NAMESPACES)),
        when=lambda t, c: log(LogPage.SMART)(t, c) and c.nsid != ALL_NAMESPACES,
    ),
)
host(
    "index-offset-taken | Base 5.2.12 | an index offset is a byte offset",
    commands(
        _with(lambda c: replace(c, cdw14=0)),
        when=lambda t, c: on_admin(Admin.GET_LOG_PAGE)(t, c) and bool(c.cdw14 & OFFSET_TYPE),
    ),
)
host(
    "ana-groups-with-nsids | Base 5.2.12.1.13 | RGO is ignored",
    commands(
        _with(lambda c: replace(c, cdw10=c.cdw10 & ~GROUPS_ONLY)),
        when=lambda t, c: log(LogPage.ANA)(t, c) and bool(c.cdw10 & GROUPS_ONLY),
    ),
)
