"""Mutants of what a controller states of itself in results and log pages, and of what is repeated."""

from __future__ import annotations

from dataclasses import replace

from nvme_tcp_later_mutants import with_command
from nvme_tcp_proxy_connection import ProxyConnection
from nvme_tcp_rules import (
    commands,
    feature,
    host,
    log,
    on_admin,
    on_io,
    patch,
    put,
    refuses,
    response,
    results,
    target,
)

from storagetest.wire.nvme.codes import Admin, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd
from storagetest.wire.nvme_tcp.reserved import CAPABILITIES

# Reserved bits of results


target(
    "aer-reserved-bit | Base 5.2.2.1 | bit 31 of the result of an asynchronous event is set",
    results(lambda t, c, r: r | 1 << 31, when=on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)),
)
target(
    "abort-reserved-bit | Base 5.2.1.2 | bit 1 of the result of Abort is set",
    results(lambda t, c, r: r | 2, when=on_admin(Admin.ABORT)),
)
target(
    "arbitration-reserved-bit | Base 5.2.26.1.1 | bit 3 of the value of Arbitration is set",
    results(lambda t, c, r: r | 8, when=feature(Admin.GET_FEATURES, 0x01)),
)


target(
    "features-capable-of-all | Base 5.2.11 | the capabilities of each feature have every bit",
    results(
        lambda t, c, r: 7,
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 == CAPABILITIES,
    ),
)


# Log pages


target(
    "log-list-lacks-smart | Base 5.2.12.1.1 | the list of log pages lacks SMART",
    patch(put(4 * LogPage.SMART, bytes(4)), when=log(LogPage.SUPPORTED)),
)
target(
    "log-list-all | Base 5.2.12.1.1 | the list of log pages has every page",
    patch(lambda raw: b"\1\0\0\0" * (len(raw) // 4), when=log(LogPage.SUPPORTED)),
)
target(
    "log-effects-fields | Base 5.2.12.1.6 | the effects of a command that is not supported are not 0",
    patch(put(1024 + 4 * 0x7C, b"\2\0\0\0"), when=log(LogPage.EFFECTS)),
)


# The third queue


def _block_before(pdu: CapsuleCmd, command: Command) -> CapsuleCmd:
    return with_command(pdu, command, cdw10=command.cdw10 - 1)


host(
    "third-queue-reads-other | NVM 3.3.4 | a Read on the third I/O queue is of the block before",
    commands(_block_before, when=lambda t, c: on_io(Io.READ)(t, c) and t.qid > 2 and c.cdw10 > 0),
)


# The second time


def _again(through: ProxyConnection, command: Command) -> bool:
    if not on_io(Io.RESERVATION_REGISTER)(through, command) or command.cdw10 & 7:
        return False
    through.memory["registered"] = through.memory.get("registered", 0) + 1
    return bool(through.memory["registered"] > 1)


target(
    "register-again-refused | Base 8.1.24.3 | the second Register of a queue is a conflict",
    refuses(StatusCode.RESERVATION_CONFLICT, when=_again),
)


def _late_sqid(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    through.memory["completions"] = through.memory.get("completions", 0) + 1
    return replace(cqe, sqid=1) if through.qid and through.memory["completions"] > 16 else None


target(
    "sqid-after-sixteen | Base 4.2.2 | SQID is 1 from the seventeenth completion of an I/O queue on",
    response(_late_sqid),
)
