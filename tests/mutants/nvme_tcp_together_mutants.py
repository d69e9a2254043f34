"""Broken rules of commands that are outstanding together, and of flags and values that are seldom used.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- 1.4.1.6, 7.6: CPTPL 01b is reserved: Invalid Field (MUST), and nothing changes.
- 8.1.24.7: Preempt and Abort aborts commands of the hosts that are preempted, and of no other (MUST).
- NVM 2.1.4.2: a write of as many blocks as AWUN states is not torn by another one (MUST).
- NVM 3.3.1, 3.3.2: each Compare has its own data, and each Copy its own ranges (MUST).
- NVM 3.3.2, 3.3.3: FUA and LR of a Copy, and hints of Dataset Management, change no result (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import commands, host, on_io, refuses, response, shared, target
from nvme_tcp_whole_mutants import torn

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu, H2CData

CPTPL = 3 << 30


def _share(row: str, opcode: Io) -> None:
    """A mutant: commands that are outstanding together have the data that come first."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        together: dict[int, bytes] = through.memory.setdefault("together", {})
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if on_io(opcode)(through, asked) and not got.pdu.data:
                if not any(one.opcode == opcode for one in through.commands.values() if one != asked):
                    together.clear()
                together[asked.cid] = b""
        elif isinstance(got.pdu, H2CData) and got.pdu.cccid in together:
            first = next((one for one in together.values() if one), b"")
            together[got.pdu.cccid] = got.pdu.data
            if first and len(first) == len(got.pdu.data):
                return [replace(got.pdu, data=first)]
        return None

    host(row, rule)


_share(
    "compares-share-data | NVM 3.3.1 | Compares that are outstanding together have the data of one",
    Io.COMPARE,
)
_share(
    "copies-share-ranges | NVM 3.3.2 | Copies that are outstanding together have the ranges of one", Io.COPY
)


def _units(known: set[object]) -> ProxyConnection:
    """Leave several blocks with the first half of one write and the second half of another."""
    through = torn(known)
    inner = through.of_target

    def of_target(one: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        asked = one.command_of(got)
        return inner(one, got) if inner and asked is not None and asked.cdw12 & 0xFFFF else None

    through.of_target = of_target
    return through


shared(
    "crossed-units-torn | NVM 2.1.4.2 | data of two writes of several blocks that come by turns are mixed",
    _units,
)
target(
    "copy-flags-refused | NVM 3.3.2 | FUA or LR of Copy is refused",
    refuses(StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.COPY)(t, c) and bool(c.cdw12 >> 30)),
)
target(
    "dsm-hints-refused | NVM 3.3.3 | Dataset Management with IDR or IDW is refused",
    refuses(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.DATASET_MANAGEMENT)(t, c) and bool(c.cdw11 & 3)
    ),
)
host(
    "cptpl-reserved-taken | Base 7.6 | CPTPL 01b is taken for no change",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & ~CPTPL).encode()),
        when=lambda t, c: on_io(Io.RESERVATION_REGISTER)(t, c) and c.cdw10 >> 30 == 1,
    ),
)


def _aborts_all(notes: set[object]) -> ProxyConnection:
    """``notes``: whether a Preempt and Abort has come while writes wait; they end as aborted."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if on_io(Io.RESERVATION_ACQUIRE)(through, asked) and asked.cdw10 & 7 == 2:
                notes.add("aborted")
            elif on_io(Io.WRITE)(through, asked):
                notes.discard("aborted")
        return None

    def change(through: ProxyConnection, asked: Command | None, cqe: Cqe) -> Cqe | None:
        if asked is None or not cqe.ok or not on_io(Io.WRITE)(through, asked) or "aborted" not in notes:
            return None
        return replace(cqe, status=StatusCode.ABORTED_BY_REQUEST)

    return ProxyConnection(of_host=of_host, of_target=response(change))


shared(
    "preempt-aborts-all | Base 8.1.24.7 | Preempt and Abort aborts writes of every host",
    _aborts_all,
)
