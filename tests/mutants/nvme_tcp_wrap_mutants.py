"""Mutants of a range over 2^64, an optional command, a second Abort, and another namespace's mask."""

from __future__ import annotations

from dataclasses import replace

from nvme_tcp_later_mutants import with_command
from nvme_tcp_proxy_connection import ProxyConnection
from nvme_tcp_rules import commands, feature, host, log, on_admin, on_io, patch, put, response, target

from storagetest.wire.nvme.codes import Admin, Feature, Io, LogPage
from storagetest.wire.nvme.command import Command, Cqe

RANGED = (Io.READ, Io.WRITE, Io.COMPARE, Io.WRITE_ZEROES, Io.VERIFY, Io.WRITE_UNCORRECTABLE)


def _wraps(through: ProxyConnection, command: Command) -> bool:
    first, blocks = command.cdw10 | command.cdw11 << 32, (command.cdw12 & 0xFFFF) + 1
    return on_io(*RANGED)(through, command) and first + blocks > 1 << 64


host(
    "lba-wraps | NVM 3.1 | the end of a range is computed in 64 bits: a range over 2^64 is carried out",
    commands(lambda pdu, command: with_command(pdu, command, cdw10=0, cdw11=0), when=_wraps),
)
target(
    "log-effects-optional | Base 5.2.12.1.6 | CSUPP of Verify is 0, which ONCS announces",
    patch(put(1024 + 4 * Io.VERIFY, b"\0"), when=log(LogPage.EFFECTS)),
)


target(
    "log-effects-reservations | Base 5.2.12.1.6 | CSUPP of Reservation Release is 0, which ONCS announces",
    patch(put(1024 + 4 * Io.RESERVATION_RELEASE, b"\0"), when=log(LogPage.EFFECTS)),
)


def _aborted_again(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    if command is None or not on_admin(Admin.ABORT)(through, command) or not cqe.ok:
        return None
    if not cqe.result & 1:
        through.memory["aborted", command.cdw10] = True
        return None
    return replace(cqe, result=0) if ("aborted", command.cdw10) in through.memory else None


target(
    "abort-of-aborted | Base 5.2.1.2 | a second Abort of a command states that it was aborted now",
    response(_aborted_again),
)
host(
    "notice-mask-of-other | Base 5.2.26.1.33 | the notification mask of namespace 2 is that of namespace 1",
    commands(
        lambda pdu, command: with_command(pdu, command, nsid=1),
        when=lambda t, c: (
            feature(Admin.SET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)(t, c) and c.nsid == 2
        ),
    ),
)
