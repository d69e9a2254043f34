"""Mutants of one of a family: a command across the end, a completion, a notification, a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_later_mutants import State, stateful, with_command
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    commands,
    feature,
    host,
    identify,
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

from storagetest.wire.nvme.codes import Admin, Cns, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import C2HData, DecodedPdu

CAPACITY = 2048
"""Blocks of the small controller's namespaces."""
WITHOUT_DATA = (Io.VERIFY, Io.WRITE_UNCORRECTABLE)


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
    "sqhd-of-failed | Base 4.2.1 | SQHD of a command that failed is zero",
    response(lambda t, command, cqe: None if cqe.ok else replace(cqe, sqhd=0)),
)
target(
    "notice-count-zero | Base 5.2.12.1.35 | the count of a notification is zero",
    patch(put(0, bytes(8)), when=log(LogPage.RESERVATION_NOTIFICATION)),
)
target(
    "notice-available | Base 5.2.12.1.35 | more notifications are available than there are",
    patch(put(9, b"\5"), when=log(LogPage.RESERVATION_NOTIFICATION)),
)
target(
    "notice-mask-lost | Base 5.2.26.1.33 | Get Features of the notification mask returns zero",
    results(lambda t, c, result: 0, when=feature(Admin.GET_FEATURES, Feature.RESERVATION_NOTIFICATION_MASK)),
)
target(
    "identify-descriptor-twice | Base 5.2.13.2.3 | the first descriptor of a namespace is there twice",
    patch(lambda data: data[:20] + data[:20] + data[40:], when=identify(Cns.DESCRIPTORS)),
)
target(
    "identify-not-ready | Base 5.2.13.2.8 | a namespace that is ready states that it is not",
    patch(put(14, b"\0"), when=identify(Cns.CSI_INDEPENDENT)),
)
target(
    "report-one-too-many | Base 7.8 | REGCTL counts a controller that is not there",
    patch(
        lambda data: data[:5] + (int.from_bytes(data[5:7], "little") + 1).to_bytes(2, "little") + data[7:],
        when=on_io(Io.RESERVATION_REPORT),
    ),
)
target(
    "marked-block-compared | NVM 3.3.1 | Compare of a block that Write Uncorrectable has marked succeeds",
    accepts(StatusCode.UNRECOVERED_READ_ERROR, when=on_io(Io.COMPARE)),
)
target(
    "keep-alive-with-event | Base 3.9 | Keep Alive is refused while an Asynchronous Event Request waits",
    refuses(
        StatusCode.COMMAND_SEQUENCE_ERROR,
        when=lambda t, c: (
            on_admin(Admin.KEEP_ALIVE)(t, c)
            and any(one.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST for one in t.commands.values())
        ),
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
