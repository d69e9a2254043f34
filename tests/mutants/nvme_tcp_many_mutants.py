"""Broken rules of discovery controllers, and of many hosts and queues at once.

The rules, from the text (NVM Express Base 2.3), before any case:

- 3.1.3.3: a discovery controller has the properties, states and queue entries of any other (MUST).
- 7.8: the report has every registrant. 8.1.24.7, 8.1.24.8: Preempt and Clear unregister each of them (MUST).
- 5.2.26.2.1: each queue that was granted serves commands (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    accepts,
    action,
    add,
    drops_command,
    fabrics,
    host,
    on_io,
    patch,
    put,
    response,
    results,
    shared,
    target,
)
from nvme_tcp_whole_mutants import connection_number

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, encode

CONNECT = fabrics(Fctype.CONNECT)
SHUTDOWN_STATUS = 0b1100
"""SHST of CSTS (Base 3.1.4.6)."""


# Discovery controllers (Base 3.1.3.3)


def _discovers(through: ProxyConnection, got: DecodedPdu) -> bool:
    """Return whether the connection is one of a discovery controller; note it at the Connect."""
    if isinstance(got.pdu, CapsuleCmd) and len(got.pdu.data) == 1024 and "discovers" not in through.memory:
        through.memory["discovers"] = ConnectData.decode(got.pdu.data).subnqn == DISCOVERY_NQN
    return bool(through.memory.get("discovers"))


def _discovery(row: str, *, of_host: Rule | None = None, of_target: Rule | None = None) -> None:
    """Add a mutant whose rules are those of discovery controllers alone."""

    def only(rule: Rule | None) -> Rule:
        def asked(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            return rule(through, got) if _discovers(through, got) and rule else None

        return asked

    add(row, lambda: ProxyConnection(of_host=only(of_host), of_target=only(of_target)))


def _property(fctype: int, offset: int) -> When:
    return lambda t, c: fabrics(fctype)(t, c) and c.cdw11 == offset


_sets_cc = _property(Fctype.PROPERTY_SET, Property.CC)


_discovery("discovery-en-ignored | Base 3.3.2.3 | a discovery controller serves before CC.EN is set",
           of_target=accepts(StatusCode.COMMAND_SEQUENCE_ERROR,
                             when=lambda t, c: c.opcode != FABRICS))  # fmt: skip


def _without_sizes(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note whether IOSQES and IOCQES were 0h when CC was set last."""
    if isinstance(got.pdu, CapsuleCmd) and _sets_cc(through, asked := Command.decode(got.pdu.sqe)):
        through.memory["no sizes"] = not asked.cdw12 >> 16 & 0xFF


_discovery("discovery-wants-sizes | Base 3.1.4.5 | a discovery controller wants IOSQES and IOCQES",
           of_host=_without_sizes,
           of_target=results(lambda t, c, old: 2 if t.memory.get("no sizes") and old & 1 else old,
                             when=_property(Fctype.PROPERTY_GET, Property.CSTS)))  # fmt: skip
_discovery("discovery-reset-ignored | Base 3.7.2 | a reset of a discovery controller does nothing",
           of_host=drops_command(lambda t, c: _sets_cc(t, c) and not c.cdw12 & 1))  # fmt: skip
_discovery("discovery-shutdown-hangs | Base 3.6.2 | a shutdown of a discovery controller does not complete",
           of_target=results(lambda t, c, old: old & ~SHUTDOWN_STATUS,
                             when=_property(Fctype.PROPERTY_GET, Property.CSTS)))  # fmt: skip
_discovery("discovery-sqhd-stuck | Base 4.2.1 | SQHD of a discovery controller stays 1",
           of_target=response(lambda t, c, cqe: replace(cqe, sqhd=1)))  # fmt: skip
_discovery("discovery-opcode-taken | Base 4.2.3.1 | a discovery controller takes unknown opcodes",
           of_target=accepts(StatusCode.INVALID_OPCODE))  # fmt: skip
_discovery("discovery-connect-again | Base 3.3.2.3 | a second Connect to a discovery controller succeeds",
           of_target=accepts(StatusCode.COMMAND_SEQUENCE_ERROR, when=CONNECT))  # fmt: skip
_discovery("discovery-one-id | Base 6.3 | every discovery controller has CNTLID 77h",
           of_target=results(lambda t, c, old: 0x77, when=CONNECT))  # fmt: skip
_discovery("discovery-digest-lost | NVMe/TCP 3.3.1.1 | PDUs of a discovery controller have no digests",
           of_target=lambda t, got: (
               [encode(got.pdu)] if isinstance(got.pdu, C2HData | CapsuleResp) else None))  # fmt: skip


def _event_at_once(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    sent = Command.decode(got.pdu.sqe)
    if sent.opcode != Admin.ASYNCHRONOUS_EVENT_REQUEST:
        return None
    through.reply(Cqe(sent.cid, sqhd=1))
    return []


_discovery("discovery-event-at-once | Base 5.2.2 | a discovery controller completes event requests at once",
           of_host=_event_at_once)  # fmt: skip


# Many registrants (Base 7.8, 8.1.24)

FEW = 4
"""Registrants that a mutant reports at most."""


def _few(raw: bytes) -> bytes:
    return put(5, FEW.to_bytes(2, "little"))(raw) if int.from_bytes(raw[5:7], "little") > FEW else raw


target("report-four-registrants | Base 7.8 | a report has four registrants at most",
       patch(_few, when=on_io(Io.RESERVATION_REPORT)))  # fmt: skip


def _ignored_of_many(row: str, when: When) -> None:
    """Answer a command that unregisters hosts, and do nothing, if more than four are registered."""

    def make(known: set[Any]) -> ProxyConnection:
        drop: Callable[[ProxyConnection, DecodedPdu], Iterable[Item] | None] = drops_command(when)

        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleCmd):
                sent = Command.decode(got.pdu.sqe)
                if action(Io.RESERVATION_REGISTER, 0)(through, sent):
                    known.add(connection_number(through))
                if len(known) <= FEW:
                    return None
            return drop(through, got)

        return ProxyConnection(of_host=of_host)

    shared(row, make)


_ignored_of_many("preempt-of-many-ignored | Base 8.1.24.7 | a Preempt of many does nothing",
                 action(Io.RESERVATION_ACQUIRE, 1))  # fmt: skip
_ignored_of_many("clear-of-many-ignored | Base 8.1.24.8 | a Clear of many does nothing",
                 action(Io.RESERVATION_RELEASE, 1))  # fmt: skip
host("queue-4-loses | Base 5.2.26.2.1 | writes of the fourth I/O queue are lost",
     drops_command(lambda t, c: t.qid == 4 and on_io(Io.WRITE)(t, c)))  # fmt: skip
