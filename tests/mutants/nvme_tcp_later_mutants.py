"""Mutants of what an earlier command, connection or block leaves behind: right at first, broken later."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mutant_row import cells
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import MUTANTS, commands, fabrics, host, identify, log, on_admin, on_io, target
from proxy import Mutant, Rewrite

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe, in_capsule
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

BLOCK = 512
"""Block size of the controller of tests/controllers, in bytes."""
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


def blocks_of(command: Command) -> int:
    return (command.cdw12 & 0xFFFF) + 1


def with_command(pdu: CapsuleCmd, command: Command, **words: Any) -> CapsuleCmd:
    return replace(pdu, sqe=replace(command, **words).encode())


# Large sizes


def _last_block_repeats(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
        return None
    if blocks_of(command) <= 32 or not got.pdu.last or len(got.pdu.data) < 2 * BLOCK:
        return None
    data = got.pdu.data
    return [replace(got.pdu, data=data[:-BLOCK] + data[-2 * BLOCK : -BLOCK])]


target(
    "read-last-block-repeated | NVM 3.3.4 | the last block of a Read of more than 32 is the one before it",
    _last_block_repeats,
)
host(
    "zeroes-first-sixteen | NVM 3.3.8 | Write Zeroes writes at most 16 blocks",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw12=command.cdw12 & ~0xFFFF | 15),
        when=lambda t, c: on_io(Io.WRITE_ZEROES)(t, c) and blocks_of(c) > 16,
    ),
)
host(
    "compare-first-block | NVM 3.3.1 | Compare compares the first block only",
    commands(
        lambda pdu, command: (
            replace(
                pdu,
                sqe=replace(command, cdw12=command.cdw12 & ~0xFFFF, dptr=in_capsule(BLOCK)).encode(),
                data=pdu.data[:BLOCK],
            )
            if pdu.data
            else pdu
        ),
        when=lambda t, c: on_io(Io.COMPARE)(t, c) and blocks_of(c) > 1,
    ),
)


def _one_more(pdu: CapsuleCmd, command: Command) -> CapsuleCmd:
    if not pdu.data or not command.cdw11 & 4:
        return pdu
    ranges = list(struct.iter_unpack("<IIQ", pdu.data[: len(pdu.data) // 16 * 16]))
    return replace(pdu, data=b"".join(struct.pack("<IIQ", a, blocks + 1, lba) for a, blocks, lba in ranges))


host(
    "deallocates-behind | NVM 3.3.3 | Dataset Management deallocates the block behind each range, too",
    commands(_one_more, when=on_io(Io.DATASET_MANAGEMENT)),
)
host(
    "log-offset-from-64 | Base 5.2.12 | Get Log Page begins at 0 if the offset is 64 or more",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw12=0),
        when=lambda t, c: log()(t, c) and c.cdw12 >= 64,
    ),
)


def _lists_start(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or command is None or not identify(2)(through, command):
        return None
    if not 0 < command.nsid < 4:
        return None
    return [replace(got.pdu, data=struct.pack("<I", command.nsid) + got.pdu.data[:-4])]


target(
    "active-list-includes-start | Base 5.2.13.2.2 | the active namespaces include the NSID of the command",
    _lists_start,
)


def _second_digest(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not got.pdu.offset or not through.digests.data:
        return None
    return [got.raw[:-1] + bytes([got.raw[-1] ^ 1])]


target(
    "second-data-digest | TCP 3.3.1.1 | the data digest of the second C2HData of a command is wrong",
    _second_digest,
)


def _repeats_data(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, H2CData):
        return None
    before = through.memory.get(("h2c", got.pdu.cccid), b"")
    through.memory["h2c", got.pdu.cccid] = got.pdu.data
    if not got.pdu.offset or not before:
        return None
    data = (before * (len(got.pdu.data) // len(before) + 1))[: len(got.pdu.data)]
    return [replace(got.pdu, data=data)]


host(
    "h2c-data-repeated | TCP 3.3.2.2 | a later H2CData of a command stores the data of the one before",
    _repeats_data,
)


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


@stateful("queue-not-created-again | Base 6.4 | an I/O queue that was disconnected cannot be connected again")
def _(state: State) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if command.opcode == FABRICS and command.nsid & 0xFF == Fctype.CONNECT and through.qid:
                through.memory["queue"] = (got.pdu.data[16:18], through.qid)
                through.memory["again"] = through.memory["queue"] in state
            if command.opcode == FABRICS and command.nsid & 0xFF == Fctype.DISCONNECT:
                state[through.memory.get("queue")] = True
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None:
            return None
        if not fabrics(Fctype.CONNECT)(through, command) or not through.memory.get("again"):
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        return [CapsuleResp(replace(cqe, status=StatusCode.CONNECT_CONTROLLER_BUSY, result=0).encode())]

    return ProxyConnection(of_target=of_target, of_host=of_host)


def _third_identifier(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleResp):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    uses = through.memory["cid", cqe.cid] = through.memory.get(("cid", cqe.cid), 0) + 1
    if uses != 3 or not through.qid:
        return None
    return [CapsuleResp(replace(cqe, status=StatusCode.COMMAND_ID_CONFLICT, result=0, dnr=True).encode())]


target(
    "third-use-of-cid | Base 4.2.3.1 | the third command of an identifier conflicts with those completed",
    _third_identifier,
)


def _late_wrap(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleResp):
        return None
    cqe, command = Cqe.decode(got.pdu.cqe), through.command_of(got)
    if command is not None and fabrics(Fctype.CONNECT)(through, command):
        through.memory["size"] = (command.cdw11 & 0xFFFF) + 1
        return None
    size = through.memory.get("size")
    if size is None:
        return None
    if cqe.sqhd < through.memory.get("last", 0):
        through.memory["wraps"] = through.memory.get("wraps", 0) + 1
    through.memory["last"] = cqe.sqhd
    late = (through.memory.get("wraps", 0) * size + cqe.sqhd) % (size + 1)
    return [CapsuleResp(replace(cqe, sqhd=late).encode())]


target("sqhd-wraps-late | Base 4.2.1 | SQHD counts one more than the queue has entries", _late_wrap)


@stateful("same-controller-twice | Base 6.3 | each association of the dynamic model has the same CNTLID")
def _(state: State) -> ProxyConnection:
    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None or through.qid:
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        if not fabrics(Fctype.CONNECT)(through, command) or not cqe.ok:
            return None
        first = state.setdefault("first", cqe.result & 0xFFFF)
        return [CapsuleResp(replace(cqe, result=cqe.result & ~0xFFFF | first).encode())]

    return ProxyConnection(of_target=of_target)


def _shut_down(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.PROPERTY_SET)(through, command) and command.cdw11 == Property.CC:
            if command.cdw12 >> 14 & 3:
                through.memory["shut"] = True
            if command.cdw12 & 1 and through.memory.get("disabled") and not command.cdw12 >> 14 & 3:
                through.memory["stays"] = True
            if not command.cdw12 & 1 and through.memory.get("shut"):
                through.memory["disabled"] = True
    return None


def _still_shut(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or command is None or not through.memory.get("stays"):
        return None
    if not fabrics(Fctype.PROPERTY_GET)(through, command) or command.cdw11 != Property.CSTS:
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    return [CapsuleResp(replace(cqe, result=cqe.result | 8).encode())]


@stateful(
    "shutdown-complete-stays | Base 3.1.4.6 | CSTS.SHST is not cleared when the controller is enabled again"
)
def _(state: State) -> ProxyConnection:
    return ProxyConnection(of_target=_still_shut, of_host=_shut_down)


# Two operations together


@stateful(
    "write-executed-later | NVM 2.1.4 | a completed Write is executed with the next command of its queue"
)
def _(state: State) -> ProxyConnection:
    held = 0xFFF1

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        out: list[Item] = []
        if "held" in through.memory:
            out.append(through.memory.pop("held"))
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if on_io(Io.WRITE)(through, command) and got.pdu.data and not command.flags & 3:
                through.memory["held"] = with_command(got.pdu, command, cid=held)
                ahead = through.memory.get("sqhd", 0)
                through.reply(Cqe(command.cid, sqhd=(ahead + 1) % through.memory.get("size", 1 << 16)))
                return out
        return [*out, got.raw] if out else None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp):
            return None
        cqe, command = Cqe.decode(got.pdu.cqe), through.command_of(got)
        if command is not None and fabrics(Fctype.CONNECT)(through, command):
            through.memory["size"] = (command.cdw11 & 0xFFFF) + 1
        through.memory["sqhd"] = cqe.sqhd
        return [] if cqe.cid == held else None

    return ProxyConnection(of_target=of_target, of_host=of_host)


@stateful("outstanding-reads-swapped | NVM 3.3.4 | two Reads that are outstanding return each other's data")
def _(state: State) -> ProxyConnection:
    def flush(through: ProxyConnection) -> None:
        first = through.memory.pop("waiting", None)
        if first is not None:
            through.send_to_target(through.encode(first[0], through.icresp.cpda))

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        waiting = through.memory.pop("waiting", None)
        if not isinstance(got.pdu, CapsuleCmd):
            return None if waiting is None else [waiting[0], got.raw]
        command = Command.decode(got.pdu.sqe)
        if not on_io(Io.READ)(through, command):
            return None if waiting is None else [waiting[0], got.raw]
        if waiting is None:
            through.memory["waiting"] = (got.pdu, command)
            threading.Timer(0.02, flush, [through]).start()
            return []
        pdu, before = waiting
        if before.cdw12 != command.cdw12:
            return [pdu, got.raw]
        return [
            with_command(pdu, before, cdw10=command.cdw10),
            with_command(got.pdu, command, cdw10=before.cdw10),
        ]

    return ProxyConnection(of_host=of_host)


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


@stateful(
    "any-registrant-releases | Base 7.7 | Release by a registrant that holds nothing ends the reservation"
)
def _(state: State) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and got.pdu.data:
            command = Command.decode(got.pdu.sqe)
            if on_io(Io.RESERVATION_ACQUIRE)(through, command):
                through.memory["acquire", command.cid] = (got.pdu.data[:8], command)
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if isinstance(got.pdu, CapsuleResp) and command is not None and Cqe.decode(got.pdu.cqe).ok:
            if on_io(Io.RESERVATION_ACQUIRE)(through, command):
                key, acquired = through.memory.get(("acquire", command.cid), (b"", command))
                state["holder"] = (through, key, acquired)
            holder = state.get("holder")
            if on_io(Io.RESERVATION_RELEASE)(through, command) and not command.cdw10 & 7 and holder:
                owner, key, acquired = state.pop("holder")
                if owner is not through and not owner.over:
                    _inject(owner, acquired.nsid, Io.RESERVATION_RELEASE, acquired.cdw10 & 0xFF00, key)
        return _without_injected(through, got)

    return ProxyConnection(of_target=of_target, of_host=of_host)


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
