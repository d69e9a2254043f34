"""Mutants of what an earlier command, connection or block leaves behind: right at first, broken later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mutant_row import cells
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import MUTANTS, fabrics, host, on_admin, on_io
from proxy import Mutant, Rewrite

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io
from storagetest.wire.nvme.command import Command, Cqe, in_capsule
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

INJECTED = 0xFFF0
"""Command identifier of a mutant's own command."""

State = dict[str, Any]


@dataclass(frozen=True)
class StatefulMutant(Mutant):
    """A mutant whose connections share a dictionary, empty at the start of each run."""

    sharing: Callable[[State], ProxyConnection] = lambda _: ProxyConnection()

    def rewrites(self) -> Callable[[], Rewrite]:
        return partial(self.sharing, {})


def stateful(row: str) -> Callable[[Callable[[State], ProxyConnection]], None]:
    name, section, description = cells(row)

    def register(make: Callable[[State], ProxyConnection]) -> None:
        assert name not in MUTANTS, name
        MUTANTS[name] = StatefulMutant(name, section, description, ProxyConnection, sharing=make)

    return register


def with_command(pdu: CapsuleCmd, command: Command, **words: Any) -> CapsuleCmd:
    return replace(pdu, sqe=replace(command, **words).encode())


# The second time


def _second_set(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    fid = command.cdw10 & 0xFF
    if not on_admin(Admin.SET_FEATURES)(through, command) or fid in (0x07, 0x81) or got.pdu.data:
        return None
    if ("set", fid) not in through.memory:
        through.memory["set", fid] = True
        return None
    through.memory["swallowed", command.cid] = True
    return [with_command(got.pdu, command, opcode=int(Admin.GET_FEATURES), cdw11=0)]


def _no_result(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleResp):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if not through.memory.pop(("swallowed", cqe.cid), False):
        return None
    return [CapsuleResp(replace(cqe, result=0).encode())]


@stateful("second-set-features-ignored | Base 5.2.26 | the second Set Features of a feature changes nothing")
def _(state: State) -> ProxyConnection:
    return ProxyConnection(of_target=_no_result, of_host=_second_set)


@stateful("feature-outlives-association | Base 5.2.11 | a feature has the value of an association before")
def _(state: State) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            fid = command.cdw10 & 0xFF
            if on_admin(Admin.SET_FEATURES)(through, command) and fid not in (0x07, 0x0F, 0x81):
                through.memory["set", fid] = True
                state[fid] = command.cdw11
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None:
            return None
        fid, cqe = command.cdw10 & 0xFF, Cqe.decode(got.pdu.cqe)
        if not on_admin(Admin.GET_FEATURES)(through, command) or command.cdw10 & 0x700 or not cqe.ok:
            return None
        if fid not in state or ("set", fid) in through.memory:
            return None
        return [CapsuleResp(replace(cqe, result=state[fid]).encode())]

    return ProxyConnection(of_target=of_target, of_host=of_host)


# State left behind by a reservation


def _inject(through: ProxyConnection, nsid: int, opcode: int, cdw10: int, data: bytes) -> None:
    command = Command(opcode, INJECTED, nsid, dptr=in_capsule(len(data)), cdw10=cdw10)
    through.memory["extra"] = through.memory.get("extra", 0) + 1
    through.send_to_target(through.encode(CapsuleCmd(command.encode(), data), through.icresp.cpda))


def _without_injected(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Drop the responses of injected commands, and count SQHD without them."""
    if not isinstance(got.pdu, CapsuleResp):
        return None
    cqe, command = Cqe.decode(got.pdu.cqe), through.command_of(got)
    if command is not None and fabrics(Fctype.CONNECT)(through, command):
        through.memory["size"] = (command.cdw11 & 0xFFFF) + 1
    if cqe.cid == INJECTED:
        return []
    extra = through.memory.get("extra", 0)
    if not extra:
        return None
    return [CapsuleResp(replace(cqe, sqhd=(cqe.sqhd - extra) % through.memory["size"]).encode())]


@stateful("registration-lost-on-reconnect | Base 8.1.24 | a registration ends with the host's association")
def _(state: State) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.CONNECT)(through, command) and through.qid:
            through.memory["host"] = got.pdu.data[:16]
            return None
        mine = through.memory.get("host")
        if mine is None or command.opcode == FABRICS or "seen" in through.memory:
            return None
        through.memory["seen"] = True
        before = state.setdefault(mine, [])
        if before and all(one.over for one in before):
            _inject(through, command.nsid, Io.RESERVATION_REGISTER, 1 | 1 << 3, bytes(16))
        before.append(through)
        return None

    return ProxyConnection(of_target=_without_injected, of_host=of_host)


def _old_key(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd) or not got.pdu.data:
        return None
    command, data = Command.decode(got.pdu.sqe), got.pdu.data
    if on_io(Io.RESERVATION_REGISTER)(through, command) and command.cdw10 & 7 == 2:
        through.memory["old"], through.memory["new"] = data[:8], data[8:16]
    elif on_io(Io.RESERVATION_ACQUIRE)(through, command) and data[:8] == through.memory.get("old"):
        return [replace(got.pdu, data=through.memory["new"] + data[8:])]
    return None


host("replaced-key-still-acquires | Base 7.6 | Acquire takes the key that Replace has replaced", _old_key)
