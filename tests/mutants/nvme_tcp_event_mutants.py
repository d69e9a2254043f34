"""Mutants of the masks of asynchronous events, and of what stays after an association."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import add, commands, host, log, on_admin, on_io, patch, results, shared, target

from storagetest.wire.nvme.codes import Admin, Io, LogPage
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

RAE = 1 << 15
"""Retain Asynchronous Event, in dword 10 of Get Log Page (5.2.12)."""

_NOTICE = log(LogPage.RESERVATION_NOTIFICATION)


def with_rae(capsule: CapsuleCmd, command: Command, rae: int) -> CapsuleCmd:
    return replace(capsule, sqe=replace(command, cdw10=command.cdw10 & ~RAE | rae).encode())


host("rae-ignored | Base 5.2.12 | a read of the log page with RAE 1 clears the event",
     commands(lambda capsule, command: with_rae(capsule, command, 0), when=_NOTICE))  # fmt: skip
host("rae-forced | Base 5.2.12 | a read of the log page with RAE 0 retains the event",
     commands(lambda capsule, command: with_rae(capsule, command, RAE), when=_NOTICE))  # fmt: skip


def _rae_is_kept(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Set RAE in each read of the log page after the first one that has it."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not _NOTICE(through, command):
        return None
    through.memory["rae"] = through.memory.get("rae", 0) | command.cdw10 & RAE
    return [with_rae(got.pdu, command, through.memory["rae"])]


host("rae-kept | Base 5.2.12 | RAE 1 of one read holds for the later ones", _rae_is_kept)


def is_event(through: ProxyConnection, got: DecodedPdu) -> bool:
    command = through.command_of(got)
    request = Admin.ASYNCHRONOUS_EVENT_REQUEST
    return (
        isinstance(got.pdu, CapsuleResp)
        and not through.qid
        and command is not None
        and command.opcode == request
    )


def remember_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if is_event(through, got) and isinstance(got.pdu, CapsuleResp):
        through.memory["event"] = Cqe.decode(got.pdu.cqe)
    return None


def repeat_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Answer a request at once if an event was reported before."""
    if not isinstance(got.pdu, CapsuleCmd) or "event" not in through.memory:
        return None
    command = Command.decode(got.pdu.sqe)
    if through.qid or command.opcode != Admin.ASYNCHRONOUS_EVENT_REQUEST:
        return None
    through.reply(replace(through.memory["event"], cid=command.cid))
    return []


add("event-unmasked | Base 5.2.2 | an event that was reported is reported again before the host clears it",
    lambda: ProxyConnection(of_target=remember_event, of_host=repeat_event))  # fmt: skip


def _once(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not is_event(through, got):
        return None
    seen, through.memory["seen"] = through.memory.get("seen", False), True
    return [] if seen else None


add("event-masked-for-good | Base 5.2.2 | the second event of a connection is not reported, although the first one was cleared",
    lambda: ProxyConnection(of_target=_once))  # fmt: skip


def _mask_outlives_reset() -> ProxyConnection:
    """Return a connection on which an event type that was reported before a reset is not reported after it."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if not isinstance(got.pdu, CapsuleCmd):
            return
        command = Command.decode(got.pdu.sqe)
        if CC_SET(through, command) and not command.cdw12 & 1:
            through.memory["masked"] = through.memory.get("reported", False)

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not is_event(through, got):
            return None
        through.memory["reported"] = True
        return [] if through.memory.get("masked") else None

    return ProxyConnection(of_host=of_host, of_target=of_target)


add(
    "event-mask-outlives-reset | Base 3.7.2 | an event type that was reported stays masked after a reset",
    _mask_outlives_reset,
)


# What stays after an association, the third range, the second registrant


class _Writer:
    """A connection that wrote to ``lba``."""

    def __init__(self, through: ProxyConnection, lba: int) -> None:
        self.through, self.lba = through, lba


def _lost_writes(known: set[object]) -> ProxyConnection:
    def wrote(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and through.qid:
            command = Command.decode(got.pdu.sqe)
            if command.opcode == Io.WRITE:
                known.add(_Writer(through, command.cdw10))
        return None

    def lost(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        ended = any(
            isinstance(one, _Writer) and one.lba == command.cdw10 and one.through.over for one in known
        )
        return [replace(got.pdu, data=bytes(len(got.pdu.data)))] if ended else None

    return ProxyConnection(of_host=wrote, of_target=lost)


shared("write-ends-with-association | Base 3.7.2 | a write is lost when its association ends", _lost_writes)


def _second_twice(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    return replace(capsule, data=capsule.data[:64] + capsule.data[32:64] + capsule.data[96:])


host("copy-third-range | NVM 3.3.2 | the third range of a Copy is the second one again",
     commands(_second_twice, when=lambda t, c: on_io(Io.COPY)(t, c) and c.cdw12 & 0xFF > 1))  # fmt: skip
target("report-cntlid-of-first | Base 7.8 | each registrant has the controller of the first one",
       patch(lambda raw: raw[:128] + raw[64:66] + raw[130:] if len(raw) >= 192 else raw,
             when=on_io(Io.RESERVATION_REPORT)))  # fmt: skip
target("abort-denied | Base 5.2.1.2 | Abort reports that a command was not aborted, which was",
       results(lambda t, c, result: result | 1, when=on_admin(Admin.ABORT)))  # fmt: skip
