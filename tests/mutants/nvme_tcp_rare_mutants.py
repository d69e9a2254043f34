"""Mutants of rare flags, of the upper half of a field, of the second time and of what follows an error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_later_mutants import State, stateful, with_command
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    accepts,
    commands,
    feature,
    host,
    identify,
    on_io,
    patch,
    response,
    results,
    target,
)

from storagetest.wire.nvme.codes import Admin, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, DecodedPdu

CAPACITY = 2048
"""Blocks of the small controller's namespaces."""
FUA, LIMITED_RETRY = 1 << 30, 1 << 31


def words(when: When, **change: object) -> Rule:
    """Change words of a command; a callable is given the command."""

    def changed(pdu: CapsuleCmd, command: Command) -> CapsuleCmd:
        return with_command(
            pdu, command, **{key: new(command) if callable(new) else new for key, new in change.items()}
        )

    return commands(changed, when=when)


def when(opcode: int, cdw12: int) -> When:
    return lambda t, c: on_io(opcode)(t, c) and bool(c.cdw12 & cdw12)


# Rare flags, and the upper half of a field


host(
    "zeroes-nlb-byte | NVM 3.3.8 | Write Zeroes takes the low byte of NLB",
    words(on_io(Io.WRITE_ZEROES), cdw12=lambda c: c.cdw12 & ~0xFF00),
)
host(
    "copy-first-range | NVM 3.3.2 | Copy copies its first range only",
    words(on_io(Io.COPY), cdw12=lambda c: c.cdw12 & ~0xFF),
)


target(
    "queues-set-again | Base 5.2.26 | Number of Queues is set when there are I/O queues",
    accepts(StatusCode.COMMAND_SEQUENCE_ERROR, when=feature(Admin.SET_FEATURES, 0x07)),
)
target(
    "flush-result | Base 4.2.1 | dword 0 of a Flush is 1", results(lambda t, c, r: 1, when=on_io(Io.FLUSH))
)


# Large sizes


def _offset_of_16_bits(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, R2T) and got.pdu.offset >= 1 << 16:
        return [replace(got.pdu, offset=got.pdu.offset & 0xFFFF)]
    return None


target("r2t-offset-16-bits | TCP 3.6.2.4 | R2TO has 16 bits", _offset_of_16_bits)


def _two_at_most(data: bytes) -> bytes:
    return data[:5] + min(int.from_bytes(data[5:7], "little"), 2).to_bytes(2, "little") + data[7:]


target(
    "report-two-registrants | Base 7.8 | Reservation Report counts two registrants at most",
    patch(_two_at_most, when=on_io(Io.RESERVATION_REPORT)),
)


# The second time, and after an error


def _second_compare(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    if command is None or not on_io(Io.COMPARE)(through, command):
        return None
    through.memory["compares"] = through.memory.get("compares", 0) + 1
    again = through.memory["compares"] > 1 and cqe.status == StatusCode.COMPARE_FAILURE
    return replace(cqe, status=0, dnr=False) if again else None


target(
    "second-compare-passes | NVM 3.3.1 | the second Compare of a queue succeeds, whatever it finds",
    response(_second_compare),
)


def _after_error(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if command is None or not on_io(Io.READ)(through, command):
        return None
    if not isinstance(got.pdu, C2HData):
        if hasattr(got.pdu, "cqe") and not Cqe.decode(got.pdu.cqe).ok:
            through.memory["failed"] = True
        return None
    if got.pdu.offset == 0 and through.memory.pop("failed", False):
        return [replace(got.pdu, data=bytes(min(512, len(got.pdu.data))) + got.pdu.data[512:])]
    return None


target("read-after-error | NVM 3.3.4 | the Read after one that failed begins with zeroes", _after_error)


def _other_serial(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or command is None or not identify(1)(through, command):
        return None
    if "identified" not in through.memory:
        through.memory["identified"] = command.cid
        return None
    data = got.pdu.data
    return [replace(got.pdu, data=data[:4] + bytes([data[4] ^ 1]) + data[5:])]


target("serial-changes | Base 5.2.13.2.1 | the second Identify returns another serial number", _other_serial)


@stateful("preempt-keeps-type | Base 7.5 | a Preempt by the holder with another type keeps the type")
def _(state: State) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if not on_io(Io.RESERVATION_ACQUIRE)(through, command):
            return None
        if command.cdw10 & 7 == 0:
            state["type"] = command.cdw10 & 0xFF00
        elif "type" in state:
            return [with_command(got.pdu, command, cdw10=command.cdw10 & ~0xFF00 | state["type"])]
        return None

    return ProxyConnection(of_host=of_host)


def _second_queue(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    return (
        replace(cqe, sqhd=0) if through.qid == 2 and command is not None and command.opcode != 0x7F else None
    )


target("second-queue-sqhd | Base 4.2.1 | SQHD of the second I/O queue stays 0", response(_second_queue))
