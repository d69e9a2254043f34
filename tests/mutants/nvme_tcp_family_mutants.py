"""Mutants of one command of a family: across the end, under a reservation, of another namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_later_mutants import State, stateful, with_command
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, action, commands, host, on_admin, on_io, target

from storagetest.wire.nvme.codes import Admin, Io, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import C2HData, DecodedPdu

CAPACITY = 2048
"""Blocks of the small controller's namespaces."""
WITHOUT_DATA = (Io.WRITE_ZEROES, Io.VERIFY, Io.WRITE_UNCORRECTABLE)
OPTIONAL = (Io.WRITE_ZEROES, Io.WRITE_UNCORRECTABLE, Io.DATASET_MANAGEMENT, Io.COPY, Io.VERIFY, Io.COMPARE)


def _across(through: ProxyConnection, command: Command) -> bool:
    first, blocks = command.cdw10 | command.cdw11 << 32, (command.cdw12 & 0xFFFF) + 1
    return on_io(*WITHOUT_DATA)(through, command) and first < CAPACITY < first + blocks


host(
    "across-end-shortened | NVM 3.1 | a command without data across the end is done up to the end",
    commands(
        lambda pdu, command: with_command(
            pdu, command, cdw12=command.cdw12 & ~0xFFFF | CAPACITY - 1 - command.cdw10
        ),
        when=_across,
    ),
)
target(
    "conflict-one-command | Base 8.1.24 | an optional command passes a reservation of another host",
    accepts(StatusCode.RESERVATION_CONFLICT, when=on_io(*OPTIONAL)),
)
host(
    "preempt-type-one | Base 8.1.24.7 | a preempted reservation has the type Write Exclusive",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw10=command.cdw10 & ~0xFF00 | 0x100),
        when=action(Io.RESERVATION_ACQUIRE, 1, 2),
    ),
)
target(
    "identify-any-csi | Base 5.2.13 | Identify of a command set that is not there succeeds",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: on_admin(Admin.IDENTIFY)(t, c) and c.cdw11 >> 24 > 0),
)


@stateful("read-of-last-namespace | Base 3.2.1 | a read returns what the read of another namespace returned")
def _(state: State) -> ProxyConnection:
    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        last = through.memory.get("last")
        through.memory["last"] = (command.nsid, got.pdu.data)
        if last is None or last[0] == command.nsid or len(last[1]) != len(got.pdu.data):
            return None
        return [replace(got.pdu, data=last[1])]

    return ProxyConnection(of_target=of_target)
