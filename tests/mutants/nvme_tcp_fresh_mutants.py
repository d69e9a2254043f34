"""Broken rules of sizes, of data that are asked for, and of what outlives a reset or a timeout.

The rules, before any case (NVM Express Base 2.3, NVMe/TCP 1.0):

- NVMe/TCP 3.3.1.1: the data digest is of the data, however many dwords they are (MUST).
- Base 5.2.1: the Abort commands that are outstanding are no more than ACL, zero's based (MUST).
- Base 3.4.2: both halves of a fused operation, or neither, however their data come (MUST).
- Base 3.9.5: a Keep Alive Timeout ends the association with all its queues (MUST).
- Base 5.2.12.1.2: the Error Count is incremented with each error, and retained (MUST).
- Base 6.4: Disconnect deletes the I/O queue (MUST).
- Base 6.3: AUTHREQ asks for authentication, without which no other command is carried out (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_depth_mutants import fused
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_reset_mutants import Orphan
from nvme_tcp_rules import add, commands, fabrics, host, log, on_admin, response, results, shared, target

from storagetest.wire.nvme.codes import Admin, Fctype, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu, H2CData

CONNECT = fabrics(Fctype.CONNECT)
DISCONNECT = fabrics(Fctype.DISCONNECT)
CNTLID = slice(16, 18)
"""Bytes of the data of Connect (6.3)."""
LINE = 16
"""Bytes that a digest is computed of at a time."""
ABORTS = 4
"""Abort commands that ACL of the controller of these runs allows at once (5.2.13.2.1)."""


def _wrong_for_short(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or got.data_digest_ok is None or len(got.pdu.data) % LINE == 0:
        return None
    return [got.raw[:-1] + bytes([got.raw[-1] ^ 0xFF])]


target(
    "ddgst-short-wrong | NVMe/TCP 3.3.1.1 | DDGST is wrong if the data are no multiple of 16 bytes",
    _wrong_for_short,
)


def _refuses_pieces() -> ProxyConnection:
    """Return a connection on which a write fails if an H2CData with a digest was no multiple of 16 bytes."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, H2CData) and got.data_digest_ok is not None and len(got.pdu.data) % LINE:
            through.memory.setdefault("damaged", set()).add(got.pdu.cccid)

    def change(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
        if cqe.cid not in through.memory.get("damaged", ()):
            return None
        return replace(cqe, status=StatusCode.TRANSIENT_TRANSPORT_ERROR)

    return ProxyConnection(of_host=of_host, of_target=response(change))


add(
    "ddgst-pieces-refused | NVMe/TCP 3.3.1.1 | the DDGST of H2CData of no multiple of 16 bytes is held wrong",
    _refuses_pieces,
)
fused(
    "fused-apart-by-r2t | Base 3.4.2 | halves whose data come by R2T are carried out each for itself",
    of_host=commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, flags=c.flags & ~3).encode()),
        when=lambda t, c: bool(t.qid and c.flags & 3 and c.dptr[15] == 0x5A),
    ),
)


# What Connect asks for

target(
    "authentication-only-asked | Base 6.3 | Connect asks for authentication that no command needs",
    results(lambda t, c, old: old | 1 << 17, when=CONNECT),
)
target(
    "authreq-reserved | Base 6.3 | a reserved bit of AUTHREQ is set in the result of Connect",
    results(lambda t, c, old: old | 1 << 31, when=CONNECT),
)


# A limit that is of what is outstanding


def _limits_for_life(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not on_admin(Admin.ABORT)(through, command):
        return None
    aborts = through.memory["aborts"] = through.memory.get("aborts", 0) + 1
    if aborts <= ABORTS:
        return None
    through.reply(Cqe(command.cid, StatusCode.ABORT_LIMIT_EXCEEDED, sqhd=1))
    return []


host(
    "abort-limit-for-life | Base 5.2.1 | ACL limits the Abort commands of a controller's whole life",
    _limits_for_life,
)


# What a queue leaves (6.4)


def _keeps_qid(notes: set[Any]) -> ProxyConnection:
    """``notes``: CNTLID and QID of the queues that were disconnected while an R2T was unanswered."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if CONNECT(through, command):
            through.memory["queue"] = got.pdu.data[CNTLID], through.qid
            if through.memory["queue"] in notes:
                through.reply(Cqe(command.cid, StatusCode.COMMAND_SEQUENCE_ERROR))
                return []
        elif DISCONNECT(through, command) and through.r2ts:
            notes.add(through.memory["queue"])
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "disconnect-pending-qid-kept | Base 6.4 | a QID is not free after a Disconnect while a write waited",
    _keeps_qid,
)


# What outlives a reset and a timeout


def _counts_again() -> ProxyConnection:
    """Return a connection on which the Error Counts begin at 1 after each controller reset."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if CC_SET(through, command) and not command.cdw12 & 1:
                through.memory["base"] = through.memory.get("newest", 0)

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not log(LogPage.ERROR)(through, command):
            return None
        data = bytearray(got.pdu.data)
        for at in range(-got.pdu.offset % 64, len(data) - 7, 64):
            count = int.from_bytes(data[at : at + 8], "little")
            through.memory["newest"] = max(count, through.memory.get("newest", 0))
            data[at : at + 8] = max(count - through.memory.get("base", 0), 0).to_bytes(8, "little")
        return [replace(got.pdu, data=bytes(data))]

    return ProxyConnection(of_host=of_host, of_target=of_target)


add(
    "error-count-begins-again | Base 5.2.12.1.2 | the Error Count begins at 1 again after a controller reset",
    _counts_again,
)


def _serves_orphans(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not through.memory.get("orphan"):
        return None
    if isinstance(got.pdu, CapsuleCmd):
        through.reply(Cqe(Command.decode(got.pdu.sqe).cid))
    return []


add(
    "timeout-leaves-io-queue | Base 3.9.5 | a Keep Alive Timeout ends the admin queue, and no I/O queue",
    lambda: Orphan(of_host=_serves_orphans),
)
