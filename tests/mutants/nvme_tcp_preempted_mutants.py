"""Broken rules of a Preempt of one of several hosts that hold a reservation together.

The rules, from the text (NVM Express Base 2.3), before any case:

- 8.1.24.7: if all registrants hold, Preempt with another PRKEY than 0 unregisters the hosts of that key.
- 8.1.24.7: a holder that preempts its own reservation has one of the new type, and stays a registrant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import action, host

from storagetest.wire.nvme.codes import Io, Rtype
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

PREEMPT = action(Io.RESERVATION_ACQUIRE, 1, 2)
SHARED = (Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
CRKEY, PRKEY = slice(0, 8), slice(8, 16)


def ignores(row: str, when: Callable[[bytes, Command], bool]) -> None:
    """A mutant: a Preempt whose data and command match succeeds, and does nothing."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if not PREEMPT(through, command) or not when(got.pdu.data, command):
            return None
        through.reply(Cqe(command.cid, sqhd=1))
        return []

    host(row, rule)


ignores(
    "preempt-shared-ignored | Base 8.1.24.7 | a Preempt of one of all registrants succeeds, and does nothing",
    lambda data, command: any(data[PRKEY]) and command.cdw10 >> 8 & 0xFF in SHARED,
)
ignores(
    "preempt-self-ignored | Base 8.1.24.7 | a Preempt of the own reservation succeeds, and does nothing",
    lambda data, command: data[CRKEY] == data[PRKEY],
)
