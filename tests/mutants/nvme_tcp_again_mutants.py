"""Broken rules of queues that are connected again, of commands and controllers next to others, and of events.

The rules, from the text (NVM Express Base 2.3), before any case:

- 6.3: SQSIZE of Connect is the size of the queue that it creates; 4.2.1: SQHD is that queue's head (MUST).
- 6.4: Disconnect deletes the I/O queue on which it is sent (MUST).
- 5.2.26.2.1: as many I/O queues as were granted may be created (MUST).
- 3.3.1: a command's failure is its own (MUST).
- 3.9.5: a Keep Alive Timeout ends one association (MUST).
- 5.2.2: the controller reports one event by completing one request (MUST).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import fabrics, hang_up, refuses, shared, target

from storagetest.wire.nvme.codes import Admin, Fctype, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

Notes = set[Any]
CONNECT, DISCONNECT = fabrics(Fctype.CONNECT), fabrics(Fctype.DISCONNECT)
HOSTID, CNTLID = slice(0, 16), slice(16, 18)
"""Bytes of the data of Connect (6.3)."""

GRANTED = 4
"""I/O queues that the controller of these runs grants."""


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


def _connects_again(row: str, *, size: bool) -> None:
    """A mutant whose I/O queue has the size of the one before it by its QID, or continues with its SQHD."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command = _command(got)
            if command is not None and CONNECT(through, command) and through.qid:
                assert isinstance(got.pdu, CapsuleCmd)
                key, entries = (got.pdu.data[CNTLID], through.qid), (command.cdw11 & 0xFFFF) + 1
                old = next((note for note in notes if note[0] == key), None)
                through.memory |= {"key": key, "entries": entries, "old": old}
                if old is None:
                    notes.add((key, entries, 0))
            return None

        def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if not isinstance(got.pdu, CapsuleResp) or "key" not in through.memory:
                return None
            cqe, old = Cqe.decode(got.pdu.cqe), through.memory["old"]
            key, entries = through.memory["key"], through.memory["entries"]
            if old is None:
                notes.difference_update([note for note in notes if note[0] == key])
                notes.add((key, entries, cqe.sqhd))
                return None
            head = cqe.sqhd % min(entries, old[1]) if size else (cqe.sqhd + old[2]) % entries
            return [CapsuleResp(replace(cqe, sqhd=head).encode())]

        return ProxyConnection(of_host=of_host, of_target=of_target)

    shared(row, sharing)


_connects_again(
    "queue-size-of-old | Base 6.3 | a QID that is connected again has the size of its first queue", size=True
)
_connects_again(
    "sqhd-of-old-queue | Base 4.2.1 | a QID that is connected again continues with SQHD of its first queue",
    size=False,
)


def _ends_others(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = _command(got)
        if command is not None and CONNECT(through, command) and through.qid:
            assert isinstance(got.pdu, CapsuleCmd)
            through.memory["controller"] = got.pdu.data[CNTLID]
        controller = through.memory.get("controller")
        if command is not None and controller and DISCONNECT(through, command):
            notes.add((controller, through.qid))
        elif controller and any(one == controller and qid != through.qid for one, qid in notes):
            hang_up()
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "disconnect-ends-others | Base 6.4 | Disconnect of an I/O queue ends every I/O queue of the controller",
    _ends_others,
)
target(
    "last-queue-refused | Base 5.2.26.2.1 | the last of the queues that were granted is refused",
    refuses(StatusCode.CONNECT_INVALID_PARAMETERS, when=lambda t, c: CONNECT(t, c) and t.qid == GRANTED),
)


def _fails_all(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Complete every command of the I/O queue with the status of the one that failed."""
    if not isinstance(got.pdu, CapsuleResp) or not through.qid:
        return None
    cqe, ended = Cqe.decode(got.pdu.cqe), through.memory.setdefault("ended", set())
    if cqe.cid in ended:
        ended.discard(cqe.cid)
        return []
    others = [] if cqe.ok else [cid for cid in through.commands if cid != cqe.cid and cid not in ended]
    if not others:
        return None
    ended.update(others)
    return [got.pdu, *(CapsuleResp(replace(cqe, cid=cid).encode()) for cid in others)]


target("failure-ends-others | Base 3.3.1 | a command that fails ends the others of its queue", _fails_all)


def _expires_together(notes: Notes) -> ProxyConnection:
    """``notes``: Host Identifier, connection and the end of the Keep Alive Timeout of each controller."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = _command(got)
        if command is not None and CONNECT(through, command) and not through.qid:
            assert isinstance(got.pdu, CapsuleCmd)
            through.memory |= {"host": got.pdu.data[HOSTID], "kato": command.cdw12 / 1000}
        host = through.memory.get("host")
        if host is None:
            return None
        now, mine = time.monotonic(), id(through)
        if any(one == host and other != mine and end < now for one, other, end in notes):
            hang_up()
        notes.difference_update([note for note in notes if note[1] == mine])
        notes.add((host, mine, now + through.memory["kato"]))
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "pair-ends-keep-alive | Base 3.9.5 | a Keep Alive Timeout ends every controller of the host",
    _expires_together,
)


def _completes_all(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Complete every outstanding event request with one event."""
    command = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or command is None or through.qid:
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if command.opcode != Admin.ASYNCHRONOUS_EVENT_REQUEST or not cqe.ok:
        return None
    others = [
        cid
        for cid, one in through.commands.items()
        if one.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST and cid != cqe.cid
    ]
    for cid in others:
        del through.commands[cid]
    return [CapsuleResp(replace(cqe, cid=cid).encode()) for cid in (cqe.cid, *others)] if others else None


target("event-completes-all | Base 5.2.2 | one event completes every outstanding request", _completes_all)
