"""Broken rules of connections that have ended, and of limits that one command has and another has not.

The rules, from the text (NVM Express Base 2.3), before any case:

- 3.3.2: an association ends with its connections, at any time; 5.2.2: AERL is of one controller (MUST).
- 3.1.4.5: a controller is reset when CC.EN changes from 1 to 0 (MUST).
- 5.2.13.2.1: MDTS is a limit of each command that transfers data (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import drops_command, fabrics, hang_up, host, on_admin, on_io, shared
from nvme_tcp_whole_mutants import connection_number

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu, ICReq

MOST = 16
"""What a mutant serves at most: connections, and event requests."""
READS = 64
"""Reads whose data a mutant holds at most."""


@dataclass(frozen=True)
class _Held:
    """A command that a connection has sent."""

    connection: int
    cid: int


def _held(through: ProxyConnection, sent: Command) -> _Held:
    return _Held(connection_number(through), sent.cid)


def _reads_leak(known: set[Any]) -> ProxyConnection:
    """Serve no read once 64 were completed on connections that have not gone on since."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd) or not through.qid:
            return None
        sent = Command.decode(got.pdu.sqe)
        number = connection_number(through)
        known.difference_update(
            {one for one in known if one.connection == number and one.cid not in through.commands}
            if not on_io(Io.READ)(through, sent)
            else ()
        )
        if on_io(Io.READ)(through, sent):
            if len(known) >= READS:
                return []
            known.add(_held(through, sent))
        return None

    return ProxyConnection(of_host=of_host)


shared("left-reads-leak | Base 3.3.2 | data of reads are kept for connections that have ended", _reads_leak)


def _events_leak(known: set[Any]) -> ProxyConnection:
    """Count the event requests of all controllers, also of those that are gone."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        sent = Command.decode(got.pdu.sqe)
        if not on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, sent):
            return None
        if len(known) >= MOST:
            through.reply(Cqe(sent.cid, StatusCode.AER_LIMIT_EXCEEDED, sqhd=1))
            return []
        known.add(_held(through, sent))
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleResp):
            known.discard(_Held(connection_number(through), Cqe.decode(got.pdu.cqe).cid))

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("left-events-leak | Base 5.2.2 | event requests of associations that have ended count against AERL",
       _events_leak)  # fmt: skip


def _connections_leak(known: set[Any]) -> ProxyConnection:
    """Keep a place for each connection on which no admin command has come, and have few of them."""
    number = object()
    known.add(number)

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, ICReq) and len(known) > MOST:
            return []
        if isinstance(got.pdu, CapsuleCmd):
            sent = Command.decode(got.pdu.sqe)
            if through.qid or sent.opcode != FABRICS:
                known.discard(number)
        return None

    return ProxyConnection(of_host=of_host)


shared("left-connections-leak | Base 3.3.2 | a connection that ends before its first command keeps its place",
       _connections_leak)  # fmt: skip


def _same_resets(known: set[Any]) -> ProxyConnection:
    """End the I/O queues when CC is set although it was set before. ``known``: resets."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if through.qid and known:
            hang_up()
        if not isinstance(got.pdu, CapsuleCmd) or through.qid:
            return
        sent = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.PROPERTY_SET, cdw11=int(Property.CC))(through, sent) and sent.cdw12 & 1:
            if through.memory.get("enabled"):
                known.add("reset")
            through.memory["enabled"] = True

    return ProxyConnection(of_host=of_host)


shared("cc-same-resets | Base 3.1.4.5 | each Property Set of CC ends the I/O queues", _same_resets)
host("mdts-of-compares-ignored | Base 5.2.13.2.1 | a Compare over MDTS is taken",
     drops_command(lambda t, c: on_io(Io.COMPARE)(t, c) and (c.cdw12 & 0xFFFF) >= 256))  # fmt: skip
