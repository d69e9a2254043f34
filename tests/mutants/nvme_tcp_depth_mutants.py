"""Broken rules of many commands at once: queue depth, transfer tags, caches, fused operations.

The rules, from the text, before any case:

- Base 3.3.3.1: a queue of SQSIZE + 1 entries takes SQSIZE commands that are outstanding (MUST).
- Base 3.3.3.1: so does the admin queue (MUST).
- NVMe/TCP 3.3.2.2: H2CData whose TTAG is that of no outstanding R2T is a fatal transport error (MUST): of a
  command that is complete, with its own CCCID or with that of another.
- NVMe/TCP 3.6.2.5: FES of such data is the status of a fatal error (MUST).
- NVMe/TCP 3.6.2.10: transfer tags may be used again; data of every transfer arrive, however many there were
  (MUST).
- NVM 3.3.4, 3.3.6: a Read that begins after a Write, Write Zeroes, Copy or deallocation is complete returns
  the new data, on every queue and controller, also of blocks that it has read before (MUST).
- Base 3.4.2: a fused Compare and Write writes if the Compare succeeds, and else writes nothing and ends with
  Command Aborted due to Failed Fused Command; a half without the other is aborted (MUST).
"""

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import MUTANTS, add, commands, fabrics, on_io, response, target
from proxy import Mutant

from storagetest.wire.nvme.codes import Fctype, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    H2CData,
    PduType,
)

# Queue depth (Base 3.3.3.1)


def _halves(*, admin: bool) -> ProxyConnection:
    """Leave each command without a response that comes while half of the queue is in use."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.CONNECT)(through, command):
            through.memory["depth"] = command.cdw11 & 0xFFFF
            return None
        if admin is bool(through.qid):
            return None
        return [] if len(through.commands) > max(through.memory.get("depth", 0) // 2, 1) else None

    return ProxyConnection(of_host=rule)


add(
    "depth-halved | Base 3.3.3.1 | half of the commands that an I/O queue has room for are served",
    lambda: _halves(admin=False),
)
add(
    "depth-admin-halved | Base 3.3.3.1 | half of the commands that the admin queue has room for are served",
    lambda: _halves(admin=True),
)

# Transfer tags (NVMe/TCP 3.3.2.2)


def _finished(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Note the tags of commands that are complete."""
    tags, done = through.memory.setdefault("tags", {}), through.memory.setdefault("done", {})
    if isinstance(got.pdu, R2T):
        tags.setdefault(got.pdu.cccid, set()).add(got.pdu.ttag)
        done.pop(got.pdu.ttag, None)
    elif isinstance(got.pdu, CapsuleResp):
        cid = Cqe.decode(got.pdu.cqe).cid
        done.update(dict.fromkeys(tags.pop(cid, ()), cid))
    return None


def _takes_finished(*, of_other: bool) -> ProxyConnection:
    """Drop data of a tag that is no longer in use: of its own command, or of another."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        done = through.memory.get("done", {})
        if not isinstance(got.pdu, H2CData) or got.pdu.ttag not in done:
            return None
        return [] if (got.pdu.cccid != done[got.pdu.ttag]) == of_other else None

    return ProxyConnection(of_target=_finished, of_host=rule)


add(
    "ttag-finished-taken | NVMe/TCP 3.3.2.2 | data of a command that is complete are ignored",
    lambda: _takes_finished(of_other=False),
)
add(
    "ttag-finished-other | NVMe/TCP 3.3.2.2 | data by the tag of a complete command are ignored",
    lambda: _takes_finished(of_other=True),
)


def _fes_of_done(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """FES is 00h, which is reserved, if the PDU in error is H2CData of a command that is complete."""
    if not isinstance(got.pdu, C2HTermReq) or got.pdu.data[:1] != bytes([PduType.H2C_DATA]):
        return None
    outstanding = int.from_bytes(got.pdu.data[8:10], "little") in through.commands
    return None if outstanding else [replace(got.pdu, fes=0)]


target("term-fes-done | NVMe/TCP 3.6.2.5 | FES of data of a command that is complete is 00h", _fes_of_done)

TAGS = 256
"""Transfers after which the mutants' tags wrap."""


def _counts_r2ts(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, R2T):
        through.memory["r2ts"] = through.memory.get("r2ts", 0) + 1
        if through.memory["r2ts"] > TAGS:
            through.memory.setdefault("lost", set()).add(got.pdu.ttag)
    return None


def _zeroes_lost(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, H2CData) and got.pdu.ttag in through.memory.get("lost", ()):
        return [replace(got.pdu, data=bytes(len(got.pdu.data)))]
    return None


add(
    "ttag-wrap-loses | NVMe/TCP 3.6.2.10 | after 256 transfers of a queue, data are lost",
    lambda: ProxyConnection(of_target=_counts_r2ts, of_host=_zeroes_lost),
)

# Caches (NVM 3.3.4)

CHANGES = (Io.WRITE, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT, Io.COPY)


def _place(command: Command) -> tuple[int, int, int, int]:
    return command.nsid, command.cdw10, command.cdw11, command.cdw12 & 0xFFFF


def _cache(*forgets: int) -> ProxyConnection:
    """Return to each Read what an earlier Read of its blocks on this queue returned."""

    def asked(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and through.qid:
            command = Command.decode(got.pdu.sqe)
            if command.opcode in forgets:
                through.memory.clear()
        return None

    def answered(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        key = ("cached", *_place(command), got.pdu.offset)
        data = through.memory.setdefault(key, got.pdu.data)  # type: ignore[call-overload]
        return [replace(got.pdu, data=data)] if len(data) == len(got.pdu.data) else None

    return ProxyConnection(of_host=asked, of_target=answered)


add(
    "cache-of-queue | NVM 3.3.4 | a queue's reads see its own writes only",
    lambda: _cache(*CHANGES),
)
add(
    "cache-writes-only | NVM 3.3.4 | what Write Zeroes, Copy and deallocation change is read from a cache",
    lambda: _cache(Io.WRITE),
)

MUCH = 2 << 20
"""Bytes that wait in the controller while a mutant breaks them."""


def _unread_byte_lost(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not through.qid:
        return None
    waiting = sum(
        int.from_bytes(one.dptr[8:12], "little") for one in through.commands.values() if one.opcode == Io.READ
    )
    return [replace(got.pdu, data=got.pdu.data[1:] + got.pdu.data[:1])] if waiting >= MUCH else None


add(
    "unread-byte-lost | TCP 3.3.2.1 | with 2 MiB of reads outstanding, data are moved by a byte",
    lambda: ProxyConnection(of_target=_unread_byte_lost),
)


# Fused operations (Base 3.4.2), of the kind of target that has them


def fused(row: str, **rules: object) -> None:
    """Add a mutant of the controller with Compare and Write."""
    name = row.split("|", 1)[0].strip()
    add(row, lambda: ProxyConnection(**rules))  # type: ignore[arg-type]
    made = MUTANTS[name]
    MUTANTS[name] = Mutant(made.name, made.section, made.description, made.make, kind="fused")


fused(
    "fused-apart | Base 3.4.2 | the two halves are carried out each for itself",
    of_host=commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, flags=c.flags & ~3).encode()),
        when=lambda t, c: bool(t.qid and c.flags & 3),
    ),
)
fused(
    "fused-wrong-status | Base 3.4.2 | a Write whose Compare failed ends with Compare Failure, too",
    of_target=response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.COMPARE_FAILURE)
            if cqe.status == StatusCode.ABORTED_FAILED_FUSED
            else None
        )
    ),
)
fused(
    "fused-write-lost | Base 3.4.2 | the Write of a fused operation that succeeds writes nothing",
    of_host=lambda t, got: (
        [replace(got.pdu, data=bytes(len(got.pdu.data)))]
        if isinstance(got.pdu, CapsuleCmd)
        and t.qid
        and Command.decode(got.pdu.sqe).flags & 3 == 2  # FUSE 10b: the second
        and got.pdu.data
        else None
    ),
)
