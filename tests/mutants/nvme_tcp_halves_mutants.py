"""Broken rules of the halves of a fused operation, one next to the other.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- Base 3.4.2: both halves are next to each other in one queue, and are carried out as one, or are aborted;
  each has a completion (MUST).
- NVM 2.1.3.1: a Write whose Compare fails is aborted (MUST); one that fails leaves the status of its Compare
  (MUST); halves of different blocks are aborted (SHOULD).
- Base 8.1.24.1: a reservation excludes a Write, also a fused one (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mutant_row import cells
from nvme_tcp_depth_mutants import fused
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import MUTANTS, CrossConnectionMutant, on_io, response

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

FIRST, SECOND = 1, 2
"""FUSE of a command (Base 4.1.1)."""
BLOCK = 512
"""Bytes of a block of the controller of these runs."""


def command_of(through: ProxyConnection, got: DecodedPdu) -> Command | None:
    """Return the command of a capsule on an I/O queue."""
    if not isinstance(got.pdu, CapsuleCmd) or not through.qid:
        return None
    return Command.decode(got.pdu.sqe)


def fuse_of(sent: Command) -> int:
    return sent.flags & 3


def apart(capsule: CapsuleCmd) -> CapsuleCmd:
    """Return the capsule of a command that is not fused."""
    sent = Command.decode(capsule.sqe)
    return replace(capsule, sqe=replace(sent, flags=sent.flags & ~3).encode())


def _runs_first(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Hold a first half until the next command has come."""
    sent = command_of(through, got)
    if sent is None:
        return None
    assert isinstance(got.pdu, CapsuleCmd)
    held: list[CapsuleCmd] = through.memory.pop("held", [])
    if fuse_of(sent) == FIRST:
        through.memory["held"] = [got.pdu]
        return [apart(one) for one in held]
    return [*(one if fuse_of(sent) == SECOND else apart(one) for one in held), got.pdu]


fused("fused-first-runs | Base 3.4.2 | a first half without the second is carried out", of_host=_runs_first)


def _forgets_first(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or sent is None or fuse_of(sent) != FIRST:
        return None
    return [] if Cqe.decode(got.pdu.cqe).status == StatusCode.ABORTED_MISSING_FUSED else None


fused(
    "fused-first-forgotten | Base 3.4.2 | a first half without the second has no completion",
    of_target=_forgets_first,
)


def _any_range(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Hold a first half; carry both out each for itself if they are of different blocks."""
    sent = command_of(through, got)
    if sent is None:
        return None
    assert isinstance(got.pdu, CapsuleCmd)
    held: list[CapsuleCmd] = through.memory.pop("held", [])
    if fuse_of(sent) == FIRST:
        through.memory["held"] = [got.pdu]
        return held
    places = {(one.cdw10, one.cdw12) for one in (sent, *(Command.decode(one.sqe) for one in held))}
    if len(places) < 2:
        return [*held, got.pdu]
    return [apart(one) for one in (*held, got.pdu)]


fused(
    "fused-any-range | NVM 2.1.3.1 | halves of different blocks are carried out each for itself",
    of_host=_any_range,
)


def looks_at(part: slice, size: int) -> Rule:
    """Let a Compare look at ``part`` alone, of ``size`` bytes: its other data are what a Write wrote."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = command_of(through, got)
        if sent is None:
            return None
        assert isinstance(got.pdu, CapsuleCmd)
        asked = got.pdu.data
        written: dict[int, bytes] = through.memory.setdefault("written", {})
        if sent.opcode == Io.WRITE and not fuse_of(sent):
            written[sent.cdw10] = asked
        if fuse_of(sent) != FIRST or not size < len(asked) <= len(written.get(sent.cdw10, b"")):
            return None
        data = bytearray(written[sent.cdw10][: len(asked)])
        data[part] = asked[part]
        return [replace(got.pdu, data=bytes(data))]

    return rule


fused(
    "fused-compares-first-block | Base 3.4.2 | a fused Compare is of its first block alone",
    of_host=looks_at(slice(BLOCK), BLOCK),
)


def _unaborted(through: ProxyConnection, sent: Command | None, cqe: Cqe) -> Cqe | None:
    if sent is None or not fuse_of(sent):
        return None
    if fuse_of(sent) == FIRST:
        through.memory["refused"] = cqe.status == StatusCode.LBA_OUT_OF_RANGE
    elif through.memory.pop("refused", False):
        return replace(cqe, status=0, dnr=False)
    return None


fused(
    "fused-write-unaborted | NVM 2.1.3.1 | the Write whose Compare was refused is completed as a success",
    of_target=response(_unaborted),
)


def _one_for_all(notes: set[Any]) -> ProxyConnection:
    """``notes``: the connection of the first half that came last."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = command_of(through, got)
        if sent is not None and fuse_of(sent) == FIRST:
            notes.clear()
            notes.add(id(through))
        elif sent is not None and fuse_of(sent) == SECOND and id(through) not in notes:
            through.reply(Cqe(sent.cid, StatusCode.ABORTED_MISSING_FUSED))
            return []
        return None

    return ProxyConnection(of_host=of_host)


_NAME, _SECTION, _WHAT = cells(
    "fused-across-queues | Base 3.4.2 | a second half belongs to the last first half of any queue"
)
MUTANTS[_NAME] = CrossConnectionMutant(
    _NAME, _SECTION, _WHAT, ProxyConnection, kind="fused", sharing=_one_for_all
)


def _counts(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note the second half whose first one is in the last slot of the queue."""
    sent = command_of(through, got)
    if sent is None:
        return
    slot = through.memory.get("slot", 0)
    if sent.opcode == 0x7F:
        through.memory["entries"] = (sent.cdw11 & 0xFFFF) + 1
    elif fuse_of(sent) == SECOND and slot == 0:
        through.memory.setdefault("wrapped", set()).add(sent.cid)
    through.memory["slot"] = (slot + 1) % through.memory.get("entries", 32)


fused(
    "fused-wrap-lost | Base 3.4.2 | halves in the last and in the first slot of a queue are not fused",
    of_host=_counts,
    of_target=response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.ABORTED_MISSING_FUSED)
            if cqe.cid in t.memory.get("wrapped", ())
            else None
        )
    ),
)
fused(
    "fused-past-reservation | Base 8.1.24.1 | a fused Write of an excluded host is completed as a success",
    of_target=response(
        lambda t, c, cqe: (
            replace(cqe, status=0, dnr=False)
            if cqe.status == StatusCode.RESERVATION_CONFLICT and c and on_io(Io.WRITE)(t, c) and fuse_of(c)
            else None
        )
    ),
)
