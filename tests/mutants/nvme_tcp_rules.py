"""What a mutant does, in a few words each: the language that the NVMe/TCP mutants are written in.

A mutant is made of one rule on what the target sends (:func:`target`), what the host sends (:func:`host`), or
on host PDUs that break a rule and should have ended the connection (:func:`tolerant`). Most are an
*acceptance* (a refusal becomes success), a *refusal* (success becomes a refusal), a *patch* of returned data,
or a command *swallowed* (answered without being done).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from mutant_row import cells
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from proxy import Hangup, Mutant, Rewrite

from storagetest.wire.nvme.codes import FABRICS, Admin
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    H2CData,
    PduError,
    override_field,
)

MUTANTS: dict[str, Mutant] = {}

When = Callable[[ProxyConnection, Command], bool]
Bad = Callable[[ProxyConnection, bytes, PduError], Iterable[bytes]]


def add(row: str, make: Callable[[], ProxyConnection]) -> None:
    name, section, description = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = Mutant(name, section, description, make)


@dataclass(frozen=True)
class CrossConnectionMutant(Mutant):
    """A mutant whose connections know of each other: they share a set, empty at the start of each run."""

    sharing: Callable[[set[object]], ProxyConnection] = lambda _: ProxyConnection()

    def rewrites(self) -> Callable[[], Rewrite]:
        return partial(self.sharing, set())


def shared(row: str, make: Callable[[set[object]], ProxyConnection]) -> None:
    name, section, description = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = CrossConnectionMutant(name, section, description, ProxyConnection, sharing=make)


def target(row: str, rule: Rule) -> None:
    add(row, lambda: ProxyConnection(of_target=rule))


def host(row: str, rule: Rule) -> None:
    add(row, lambda: ProxyConnection(of_host=rule))


def accepts_bad(row: str, bad: Bad) -> None:
    add(row, lambda: ProxyConnection(bad=bad))


# What a mutant does


def field(kind: type, name: str, value: int | bytes) -> Rule:
    """Set a field of every PDU of one class."""
    return lambda _, got: [override_field(got.raw, name, value)] if isinstance(got.pdu, kind) else None


def response(change: Callable[[ProxyConnection, Command | None, Cqe], Cqe | None]) -> Rule:
    """Change completion queue entries; None keeps them."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp):
            return None
        cqe = change(through, through.command_of(got), Cqe.decode(got.pdu.cqe))
        return None if cqe is None else [CapsuleResp(cqe.encode())]

    return rule


def accepts(*statuses: int, when: When = lambda t, c: True) -> Rule:
    """A refusal by one of ``statuses`` becomes success."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, status=0, dnr=False, result=0)
            if cqe.status in statuses and command and when(t, command)
            else None
        )
    )


def refuses(status: int, *, when: When) -> Rule:
    """Success becomes a refusal."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, status=status) if cqe.ok and command and when(t, command) else None
        )
    )


def results(value: Callable[[ProxyConnection, Command, int], int], *, when: When) -> Rule:
    """Change the result of commands that succeed."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, result=value(t, command, cqe.result))
            if cqe.ok and command and when(t, command)
            else None
        )
    )


def data(change: Callable[[ProxyConnection, C2HData], Iterable[Item]]) -> Rule:
    """Change C2HData."""
    return lambda t, got: list(change(t, got.pdu)) if isinstance(got.pdu, C2HData) else None


def patch(change: Callable[[bytes], bytes], *, when: When) -> Rule:
    """Change the data that a command returns (its first PDU)."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if (
            not isinstance(got.pdu, C2HData)
            or got.pdu.offset
            or command is None
            or not when(through, command)
        ):
            return None
        new = change(got.pdu.data)
        return [replace(got.pdu, data=new)]

    return rule


def commands(change: Callable[[CapsuleCmd, Command], CapsuleCmd], *, when: When) -> Rule:
    """Change the capsules of commands before the target receives them."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        return [change(got.pdu, command)] if when(through, command) else None

    return rule


def hang_up() -> Iterable[Item]:
    raise Hangup


def put(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:offset] + new + raw[offset + len(new) :]


def drops_command(when: When, *, status: int = 0) -> Rule:
    """Answer a command without passing it on; data that belongs to it is asked for and dropped."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        match got.pdu:
            case CapsuleCmd(sqe):
                command = Command.decode(sqe)
                if not when(through, command):
                    return None
                length = int.from_bytes(command.dptr[8:12], "little")
                if command.dptr[15] == 0x5A and command.opcode & 3 == 1:
                    through.memory["dropped"] = command.cid
                    through.send_to_host(through.encode(R2T(command.cid, 0x7ABC, 0, length)))
                else:
                    through.reply(Cqe(command.cid, status, sqhd=1))
                return []
            case H2CData(cid, 0x7ABC, last=last):
                if last:
                    through.reply(Cqe(cid, status, sqhd=1))
                return []
        return None

    return rule


def command(opcode: int, *, io: bool | None = None, **words: int) -> When:
    """Match a command by its opcode (on an I/O queue or the admin queue) and some of its words."""
    return lambda t, c: (
        c.opcode == opcode
        and (io is None or io == bool(t.qid))
        and all(getattr(c, name) == value for name, value in words.items())
    )


def fabrics(fctype: int, **words: int) -> When:
    return lambda t, c: command(FABRICS, **words)(t, c) and c.nsid & 0xFF == fctype


def on_io(*opcodes: int) -> When:
    return lambda t, c: bool(t.qid) and (not opcodes or c.opcode in opcodes)


def on_admin(*opcodes: int) -> When:
    return lambda t, c: not t.qid and c.opcode in opcodes


def identify(cns: int) -> When:
    return lambda t, c: on_admin(Admin.IDENTIFY)(t, c) and c.cdw10 & 0xFF == cns


def log(*pages: int) -> When:
    return lambda t, c: on_admin(Admin.GET_LOG_PAGE)(t, c) and (not pages or c.cdw10 & 0xFF in pages)


def feature(opcode: int, *fids: int) -> When:
    return lambda t, c: on_admin(opcode)(t, c) and (not fids or c.cdw10 & 0xFF in fids)


def action(opcode: int, *actions: int) -> When:
    return lambda t, c: on_io(opcode)(t, c) and (not actions or c.cdw10 & 7 in actions)
