"""Broken rules of commands that have the form of a fused operation, and are none.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- Base 3.4.2: both halves are in one queue, and are a Compare and a Write; each other one is aborted (MUST).
- Base 4.3.2: a half that has more data than its SGL ends with an error, and so does the other one (MUST).
- NVM 2.1.3.1: halves are of the same blocks, so also of one namespace (SHOULD); the Write is aborted if any
  bit of them is another one than that of the Compare (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mutant_row import cells
from nvme_tcp_depth_mutants import fused
from nvme_tcp_halves_mutants import FIRST, SECOND, apart, command_of, fuse_of, looks_at
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import MUTANTS, CrossConnectionMutant, response

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme_tcp.pdu import DecodedPdu

LOOKED_AT = 8
"""Bytes at the end of a block that a broken Compare looks at."""


fused(
    "fused-short | Base 4.3.2 | a half of a fused operation succeeds with half of its data",
    of_target=response(
        lambda t, c, cqe: (
            replace(cqe, status=0, dnr=False)
            if c and t.qid and fuse_of(c) and cqe.status == StatusCode.DATA_SGL_LENGTH_INVALID
            else None
        )
    ),
)


def _any_first(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = command_of(through, got)
    if sent is None or not fuse_of(sent):
        return None
    if fuse_of(sent) == FIRST:
        through.memory["other"] = sent.opcode != Io.COMPARE
    return [apart(got.pdu)] if through.memory.get("other") else None


fused("fused-any-first | Base 3.4.2 | a Write is fused with any command, and carried out", of_host=_any_first)


def _any_second(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = command_of(through, got)
    if sent is None or fuse_of(sent) != SECOND or sent.opcode == Io.WRITE:
        return None
    return [apart(got.pdu)]


fused(
    "fused-any-second | Base 3.4.2 | a second half that is no Write is carried out alone", of_host=_any_second
)


def _on_two_queues(notes: set[Any]) -> ProxyConnection:
    """``notes``: the connections of which a first half waits."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = command_of(through, got)
        if sent is None or not fuse_of(sent):
            return None
        if fuse_of(sent) == FIRST:
            notes.add(id(through))
            return None
        alone = id(through) not in notes
        notes.discard(id(through))
        return [apart(got.pdu)] if alone and notes else None

    return ProxyConnection(of_host=of_host)


_NAME, _SECTION, _WHAT = cells(
    "fused-on-two-queues | Base 3.4.2 | a second half is fused with the first half of another queue"
)
MUTANTS[_NAME] = CrossConnectionMutant(
    _NAME, _SECTION, _WHAT, ProxyConnection, kind="fused", sharing=_on_two_queues
)


fused(
    "fused-compares-end | NVM 2.1.3.1 | a fused Compare is of the end of its block",
    of_host=looks_at(slice(-LOOKED_AT, None), LOOKED_AT),
)


def _any_nsid(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A Write of another namespace than its Compare's is carried out alone."""
    sent = command_of(through, got)
    if sent is None or not fuse_of(sent):
        return None
    if fuse_of(sent) == FIRST:
        through.memory["nsid"] = sent.nsid
        return None
    return [apart(got.pdu)] if through.memory.get("nsid") != sent.nsid else None


fused("fused-any-nsid | NVM 2.1.3.1 | halves of two namespaces are fused", of_host=_any_nsid)
