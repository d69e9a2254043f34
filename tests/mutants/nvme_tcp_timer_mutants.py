"""Broken rules of the Keep Alive Timer, of Connects that fail, and of padding.

The rules, from the text (NVM Express Base 2.3, NVMe/TCP 1.0), before any case:

- 3.9.2: the timer is inactive unless the controller is enabled (MUST).
- 3.9.3.1: Set Features of the Keep Alive Timer starts it again (MUST);
  3.9.4.1: so does traffic, if TBKAS is set (MUST).
- 6.3: a Connect that fails adds no entry to the error log; a Host Identifier of 0h is ignored for an I/O
  queue (MUST).
- NVMe/TCP 3.3: PAD bytes are reserved (MUST).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    accepts,
    add,
    commands,
    drops_command,
    fabrics,
    feature,
    hang_up,
    host,
    log,
    on_admin,
    on_io,
    refuses,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

CONNECT = fabrics(Fctype.CONNECT)
SET_KATO = feature(Admin.SET_FEATURES, Feature.KATO)
HOSTID, CNTLID = slice(0, 16), slice(16, 18)
"""Bytes of the data of Connect (6.3)."""
CTRATT = slice(96, 100)
TBKAS = 1 << 6


def expires(*, enabled: bool, restarts: tuple[int, ...]) -> Rule:
    """End the connection of an admin queue at a command that comes after the timer has expired.

    ``enabled``: the timer starts with CC.EN, not with Connect. ``restarts`` are the opcodes that restart it.
    """

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command, memory, now = Command.decode(got.pdu.sqe), through.memory, time.monotonic()
        if CONNECT(through, command) and not through.qid:
            memory["kato"] = command.cdw12 / 1000
            memory["started"] = None if enabled else now
        elif CC_SET(through, command) and "kato" in memory:
            memory["started"] = now if enabled and command.cdw12 & 1 else None
        elif on_admin(*restarts)(through, command) and memory.get("started"):
            memory["started"] = now
        if memory.get("started") and now > memory["started"] + memory["kato"]:
            hang_up()
        return None

    return rule


add(
    "timer-while-disabled | Base 3.9.2 | the Keep Alive Timer runs from Connect on until CC.EN is set",
    lambda: ProxyConnection(of_host=expires(enabled=False, restarts=(Admin.KEEP_ALIVE,))),
)
add(
    "timer-not-set-again | Base 3.9.3.1 | Set Features of KATO does not start the Keep Alive Timer again",
    lambda: ProxyConnection(of_host=expires(enabled=True, restarts=(Admin.KEEP_ALIVE,))),
)
add(
    "traffic-not-counted | Base 3.9.4.1 | TBKAS is set, but only Keep Alive starts the timer again",
    lambda: ProxyConnection(of_host=expires(enabled=True, restarts=(Admin.KEEP_ALIVE, Admin.SET_FEATURES))),
)
target(
    "kato-least-refused | Base 3.9.1 | a Keep Alive Timeout below the least one is refused",
    refuses(StatusCode.KEEP_ALIVE_INVALID, when=lambda t, c: SET_KATO(t, c) and 0 < c.cdw11 < 1000),
)


# Connects that fail (6.3)


def _logs_connect(notes: set[Any]) -> ProxyConnection:
    """Put an entry before those of the error log of the controller that a refused Connect names."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleCmd) and CONNECT(through, Command.decode(got.pdu.sqe)):
            through.memory["named"] = got.pdu.data[CNTLID]

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if command is None:
            return None
        if isinstance(got.pdu, CapsuleResp) and CONNECT(through, command):
            cqe = Cqe.decode(got.pdu.cqe)
            if cqe.ok and not through.qid:
                through.memory["cntlid"] = (cqe.result & 0xFFFF).to_bytes(2, "little")
            elif not cqe.ok:
                notes.add(through.memory["named"])
            return None
        logged = log(LogPage.ERROR)(through, command) and through.memory.get("cntlid") in notes
        if not isinstance(got.pdu, C2HData) or got.pdu.offset or not logged:
            return None
        count = int.from_bytes(got.pdu.data[:8], "little") + 1
        return [replace(got.pdu, data=count.to_bytes(8, "little") + got.pdu.data[8:])]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("connect-logged | Base 6.3 | a Connect that fails adds an entry to the error log", _logs_connect)


def _refuses_no_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not CONNECT(through, command) or not through.qid or any(got.pdu.data[HOSTID]):
        return None
    through.reply(Cqe(command.cid, StatusCode.CONNECT_INVALID_PARAMETERS))
    return []


add(
    "host-identifier-required | Base 6.3 | an I/O queue's Connect without a Host Identifier is refused",
    lambda: ProxyConnection(of_host=_refuses_no_host),
)


# Padding (NVMe/TCP 3.3)


def _sets_padding(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not got.padding:
        return None
    start = got.pdo - len(got.padding)
    return [got.raw[:start] + b"\xa5" * len(got.padding) + got.raw[got.pdo :]]


target("pad-set | NVMe/TCP 3.3 | the padding before data is not 0", _sets_padding)


# Commands that are seldom sent: large ones, reserved ones, and those after a reset

BLOCKS_OF_64_KIB = 128
MOST = 256
"""Blocks that MDTS of the controller of these runs allows."""


def _blocks(command: Command) -> int:
    return (command.cdw12 & 0xFFFF) + 1


target(
    "compare-large-prefix | NVM 3.3.1 | Compare of more than 64 KiB finds no difference",
    accepts(
        StatusCode.COMPARE_FAILURE,
        when=lambda t, c: on_io(Io.COMPARE)(t, c) and _blocks(c) > BLOCKS_OF_64_KIB,
    ),
)
host(
    "mdts-of-writes-ignored | Base 5.2.13.2.1 | a Write over MDTS is taken",
    drops_command(lambda t, c: on_io(Io.WRITE)(t, c) and _blocks(c) > MOST),
)
host(
    "fuse-reserved-taken | Base 1.4.1.6 | a command whose FUSE is 11b is carried out",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, flags=c.flags & ~3).encode(), capsule.data),
        when=lambda t, c: on_io()(t, c) and c.flags & 3 == 3,
    ),
)


def _checks_writes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if got.data_digest_ok is not False or command is None or command.opcode == Io.WRITE:
        return None
    return [got.pdu]


host("ddgst-of-write-alone | NVMe/TCP 3.5 | a wrong data digest is found in writes alone", _checks_writes)


def _forgets_marks(notes: set[Any]) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if CC_SET(through, command) and not command.cdw12 & 1:
                notes.add("reset")

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if "reset" not in notes or command is None or not isinstance(got.pdu, CapsuleResp):
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        if cqe.status != StatusCode.UNRECOVERED_READ_ERROR or not on_io(Io.READ)(through, command):
            return None
        data = bytes(int.from_bytes(command.dptr[8:12], "little"))
        return [C2HData(cqe.cid, 0, data, last=True), CapsuleResp(replace(cqe, status=0, dnr=False).encode())]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "uncorrectable-until-reset | NVM 3.3.7 | a controller reset clears the marks of blocks", _forgets_marks
)
