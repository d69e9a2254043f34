"""Broken rules of what holds for each queue of a host, and for one namespace of two (Base 4.4, 8.1.24).

- A reservation excludes other hosts, and allows its holder and registrants, on each of their queues (MUST).
- A feature whose scope is a namespace is set for the namespace that is named, or for all by FFFFFFFFh (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, action, commands, feature, host, on_io, refuses, response, target

from storagetest.wire.nvme.codes import FABRICS, Admin, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

ALL_NAMESPACES = 0xFFFFFFFF
CONFLICT = StatusCode.RESERVATION_CONFLICT


def _later_queue(through: ProxyConnection, command: Command) -> bool:
    """Whether a write is on an I/O queue other than the first one."""
    return on_io(Io.WRITE)(through, command) and through.qid > 1


target(
    "conflict-first-queue-alone | Base 8.1.24.1 | a reservation excludes writes on the first I/O queue alone",
    accepts(CONFLICT, when=_later_queue),
)
target(
    "holder-first-queue-alone | Base 8.1.24.1 | a holder writes on its first I/O queue alone",
    refuses(CONFLICT, when=_later_queue),
)


def _remembers(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    """Refuse each write on a later queue once one was refused there."""
    if command is None or not _later_queue(through, command):
        return None
    if cqe.status == CONFLICT:
        through.memory["conflict"] = True
    return replace(cqe, status=CONFLICT) if through.memory.get("conflict") else None


target(
    "conflict-remembered | Base 8.1.24.6 | a queue other than the first one that was excluded stays so",
    response(_remembers),
)

# Opcodes of both directions (4.2.3.1)


def _unanswered(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    opcode = Command.decode(got.pdu.sqe).opcode
    return [] if opcode & 3 == 3 and opcode != FABRICS else None


host(
    "opcode-both-unanswered | Base 4.2.3.1 | a command whose opcode ends with 11b has no response",
    _unanswered,
)

# Ignore Existing Key (7.6, 8.1.24.3)

IEKEY = 1 << 3

host(
    "unregister-iekey-ignored | Base 7.6 | IEKEY of an Unregister is ignored",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & ~IEKEY).encode()),
        when=action(Io.RESERVATION_REGISTER, 1),
    ),
)


def _replaces_of_registrants(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Clear IEKEY of a Replace on a queue on which no Register has come."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    asked = Command.decode(got.pdu.sqe)
    if action(Io.RESERVATION_REGISTER, 0)(through, asked):
        through.memory["registered"] = True
    if not action(Io.RESERVATION_REGISTER, 2)(through, asked) or through.memory.get("registered"):
        return None
    return [replace(got.pdu, sqe=replace(asked, cdw10=asked.cdw10 & ~IEKEY).encode())]


host(
    "iekey-of-registrants | Base 8.1.24.3 | IEKEY of a Replace is ignored if the host is no registrant",
    _replaces_of_registrants,
)

# Features of a namespace (4.4)


def _of(row: str, nsid: int, *fids: int, of_all: bool = False, get: bool = False) -> None:
    """A mutant that sets features for namespace ``nsid``: whichever is named, or only in place of all."""
    opcodes = (Admin.SET_FEATURES, Admin.GET_FEATURES) if get else (Admin.SET_FEATURES,)
    host(
        row,
        commands(
            lambda capsule, c: replace(capsule, sqe=replace(c, nsid=nsid).encode()),
            when=lambda t, c: (
                any(feature(opcode, *fids)(t, c) for opcode in opcodes)
                and c.nsid != nsid
                and (not of_all or c.nsid == ALL_NAMESPACES)
            ),
        ),
    )


_of(
    "recovery-of-controller | Base 4.4 | Error Recovery is one value for all namespaces",
    1,
    Feature.ERROR_RECOVERY,
    get=True,
)
_of(
    "recovery-all-sets-first | Base 4.4 | Error Recovery of NSID FFFFFFFFh is that of namespace 1",
    1,
    Feature.ERROR_RECOVERY,
    of_all=True,
)
_of(
    "persistence-of-first | Base 5.2.26.1.34 | the persist state is set for namespace 1, whichever is named",
    1,
    Feature.RESERVATION_PERSISTENCE,
)
