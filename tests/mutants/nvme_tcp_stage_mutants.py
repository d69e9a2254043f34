"""Broken rules that hold on one kind of queue, in one state of a controller, or of one kind of controller.

The rules, from the text (NVM Express Base 2.3, TCP 1.0), before any case:

- TCP 3.5: a fatal error ends a connection, whichever queue it is, and completes no command (MUST).
- 3.3.2.3: while CC.EN is 0, before it was set and in a reset, no admin command is processed (MUST).
- 6.3, 3.1.3.3: a Connect to a discovery controller is checked as any other; it has no I/O queues (MUST).
- 4.2.1: SQHD is the head of the queue when the entry is made, not when its command has come (MUST).
- 5.2.12.1.6: LBCC is 1 of what may change blocks, CSUPP of what is supported alone (MUST).
- 3.9.5: the timer runs after a reset, and on a discovery controller that has a timeout (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    accepts,
    accepts_bad,
    add,
    commands,
    fabrics,
    feature,
    host,
    identify,
    log,
    on_admin,
    patch,
    put,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import FABRICS, Admin, Cns, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe, transport_sgl
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp.pdu import (
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    Fes,
    H2CData,
    PduError,
    PduType,
)

CONNECT = fabrics(Fctype.CONNECT)
ENTRY = 1024
"""Bytes of the head of the discovery log, and of each entry (Base 5.2.12.3.3)."""

# Fatal errors (TCP 3.5)


def _no_r2t(through: ProxyConnection, got: DecodedPdu) -> bool:
    """Whether these are data that no R2T asks for, by their tag or their range."""
    if not isinstance(got.pdu, H2CData):
        return False
    asked = through.r2ts.get(got.pdu.ttag)
    return asked is None or got.pdu.offset + len(got.pdu.data) > asked.offset + asked.length


def _drops_errors(where: Callable[[ProxyConnection, int], bool]) -> ProxyConnection:
    """Return a connection that drops PDUs in error; ``where`` is asked with the type of a PDU."""

    def bad(through: ProxyConnection, raw: bytes, _: PduError) -> Iterable[bytes]:
        return [] if where(through, raw[0]) else [raw]

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return [] if _no_r2t(through, got) and where(through, got.raw[0]) else None

    return ProxyConnection(of_host=rule, bad=bad)


add(
    "fatal-on-io-ignored | NVMe/TCP 3.5 | a PDU in error is dropped on an I/O queue",
    lambda: _drops_errors(lambda t, _: bool(t.qid)),
)
add(
    "fatal-of-admin-data-ignored | NVMe/TCP 3.5 | H2CData in error are dropped on the admin queue",
    lambda: _drops_errors(lambda t, kind: not t.qid and kind == PduType.H2C_DATA),
)


def _of_discovery(through: ProxyConnection, raw: bytes, error: PduError) -> Iterable[bytes]:
    damaged = error.fes == Fes.HEADER_DIGEST_ERROR
    return [] if damaged and through.memory.get("discovers") else [raw]


def _note_discovery(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note at the Connect whether the connection is one of a discovery controller, and its CNTLID."""
    if isinstance(got.pdu, CapsuleCmd) and len(got.pdu.data) == 1024:
        data = ConnectData.decode(got.pdu.data)
        through.memory.setdefault("discovers", data.subnqn == DISCOVERY_NQN)
        through.memory["names"] = data.cntlid


def _discovery(row: str, *, of_host: Rule | None = None, of_target: Rule) -> None:
    """Add a mutant whose rules are those of discovery controllers alone."""

    def from_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        _note_discovery(through, got)
        return of_host(through, got) if of_host and through.memory.get("discovers") else None

    def from_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return of_target(through, got) if through.memory.get("discovers") else None

    add(row, lambda: ProxyConnection(of_host=from_host, of_target=from_target))


add(
    "discovery-hdgst-unchecked | NVMe/TCP 3.5 | a discovery controller drops PDUs whose HDGST is wrong",
    lambda: ProxyConnection(of_host=_note_discovery, bad=_of_discovery),
)


def _completes(row: str, *opcodes: int, io: bool) -> None:
    """Add a mutant that completes the outstanding commands of ``opcodes`` before a connection ends."""

    def bad(through: ProxyConnection, raw: bytes, _: PduError) -> Iterable[bytes]:
        for cid, command in list(through.commands.items()):
            if command.opcode in opcodes and io == bool(through.qid):
                through.reply(Cqe(cid, StatusCode.ABORTED_BY_REQUEST, sqhd=1))
        return [raw]

    accepts_bad(row, bad)


_completes(
    "fatal-completes-requests | NVMe/TCP 3.5 | a fatal error completes event requests as aborted",
    Admin.ASYNCHRONOUS_EVENT_REQUEST,
    io=False,
)
_completes(
    "fatal-completes-writes | NVMe/TCP 3.5 | a fatal error completes writes that wait as aborted",
    Io.WRITE,
    io=True,
)
host(
    "admin-sgl-not-checked | NVMe/TCP 3.3.2 | any SGL type of Identify is accepted",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, dptr=transport_sgl(4096)).encode(), capsule.data),
        when=on_admin(Admin.IDENTIFY),
    ),
)

# SQHD (4.2.1)


def _counts(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note the head of the queue when a command comes."""
    if not isinstance(got.pdu, CapsuleCmd):
        return
    command, memory = Command.decode(got.pdu.sqe), through.memory
    if CONNECT(through, command):
        memory["size"], memory["head"] = (command.cdw11 & 0xFFFF) + 1, 0
    memory["head"] = (memory.get("head", 0) + 1) % memory.get("size", 1)
    memory.setdefault("heads", {})[command.cid] = memory["head"]


add(
    "sqhd-of-submission | Base 4.2.1 | SQHD is the head of the queue when the command has come",
    lambda: ProxyConnection(
        of_host=_counts,
        of_target=response(
            lambda t, c, cqe: replace(cqe, sqhd=t.memory["heads"].get(cqe.cid, cqe.sqhd)) if c else None
        ),
    ),
)

# I/O queues are no admin queues (6, 3.3.2.3)

target(
    "property-set-on-io | Base 6 | properties may be set on an I/O queue",
    accepts(
        StatusCode.INVALID_FIELD,
        StatusCode.INVALID_OPCODE,
        when=lambda t, c: bool(t.qid) and fabrics(Fctype.PROPERTY_SET)(t, c),
    ),
)


def _connects_again(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A second Connect on the connection of an I/O queue succeeds."""
    command = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or command is None or not CONNECT(through, command):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if cqe.ok:
        through.memory["io"] = command.cdw10 >> 16
        return None
    if not through.memory.get("io"):
        return None
    return [CapsuleResp(replace(cqe, status=0, dnr=False, result=1).encode())]


target(
    "connect-over-io | Base 3.3.2.3 | a second Connect on the connection of an I/O queue succeeds",
    _connects_again,
)

# CC.EN (3.3.2.3, 3.7.2)

target(
    "cc-en-for-identify-alone | Base 3.3.2.3 | admin commands but Identify do not wait for CC.EN",
    accepts(
        StatusCode.COMMAND_SEQUENCE_ERROR,
        when=lambda t, c: not t.qid and c.opcode not in (FABRICS, Admin.IDENTIFY),
    ),
)


def _note_enabled(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note that CC.EN was set, and that it was cleared."""
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        if CC_SET(through, command):
            through.memory["enabled" if command.cdw12 & 1 else "cleared"] = True


SERVED = accepts(
    StatusCode.COMMAND_SEQUENCE_ERROR,
    when=lambda t, c: not t.qid and c.opcode != FABRICS and bool(t.memory.get("enabled")),
)

add(
    "cc-en-once | Base 3.7.2 | admin commands are processed in a controller reset",
    lambda: ProxyConnection(of_host=_note_enabled, of_target=SERVED),
)
_discovery(
    "discovery-cc-en-once | Base 3.7.2 | a discovery controller processes commands in a reset",
    of_host=_note_enabled,
    of_target=SERVED,
)


def _after_reset(notes: set[Any]) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        _note_enabled(through, got)
        if through.memory.get("cleared"):
            notes.add("reset")

    return ProxyConnection(
        of_host=of_host,
        of_target=accepts(
            StatusCode.CONNECT_INVALID_PARAMETERS,
            StatusCode.COMMAND_SEQUENCE_ERROR,
            when=lambda t, c: CONNECT(t, c) and bool(c.cdw10 >> 16) and "reset" in notes,
        ),
    )


shared(
    "reset-takes-io-queues | Base 6.3 | an I/O queue is connected while its controller is reset", _after_reset
)

# Connect (6.3), discovery controllers (3.1.3.3), the discovery log (5.2.12.3.3)

_discovery(
    "discovery-any-cntlid | Base 6.3 | a Connect to a discovery controller succeeds with any CNTLID",
    of_target=accepts(StatusCode.CONNECT_INVALID_PARAMETERS, when=CONNECT),
)


def _joins(notes: set[Any]) -> ProxyConnection:
    """An I/O queue with the CNTLID of a discovery controller is connected."""

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None or not CONNECT(through, command):
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        if cqe.ok and through.memory["discovers"]:
            notes.add(cqe.dw0 & 0xFFFF)
        if cqe.ok or not command.cdw10 >> 16 or through.memory["names"] not in notes:
            return None
        return [CapsuleResp(replace(cqe, status=0, dnr=False, result=through.memory["names"]).encode())]

    return ProxyConnection(of_host=_note_discovery, of_target=of_target)


shared("discovery-joined | Base 3.1.3.3 | an I/O queue is connected to a discovery controller", _joins)


def _large_admin_queues(raw: bytes) -> bytes:
    """Set ASQSZ of each entry to 8,192."""
    for at in range(ENTRY, len(raw), ENTRY):
        raw = put(at + 8, b"\0\x20")(raw)
    return raw


target(
    "asqsz-over | Base 5.2.12.3.3 | ASQSZ of an entry is more than an admin queue may have",
    patch(_large_admin_queues, when=log(LogPage.DISCOVERY)),
)


def _short_names(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A Host NQN of more than 222 bytes is refused."""
    if not isinstance(got.pdu, CapsuleCmd) or len(got.pdu.data) != 1024:
        return None
    if len(got.pdu.data[512:].partition(b"\0")[0]) <= 222:
        return None
    through.reply(Cqe(Command.decode(got.pdu.sqe).cid, StatusCode.CONNECT_INVALID_PARAMETERS, sqhd=1))
    return []


host("host-name-222 | Base 4.7 | a Host NQN of 223 bytes is refused", _short_names)

# Log pages (5.2.12), Identify (5.2.13)

host(
    "log-numdu-ignored | Base 5.2.12 | NUMDU of Get Log Page is ignored",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw11=c.cdw11 & ~0xFFFF).encode(), capsule.data),
        when=log(),
    ),
)
for name, at, entry, text in (
    ("no-change", 1024 + 4 * Io.WRITE, b"\1\0\0\0", "LBCC of Write is 0"),
    ("queues", 4 * Admin.CREATE_IO_SQ, b"\1\0\0\0", "CSUPP of Create I/O Submission Queue is 1"),
    ("oacs", 4 * 0x80, b"\1\0\0\0", "CSUPP of Format NVM is 1, which OACS does not announce"),
):
    target(
        f"log-effects-{name} | Base 5.2.12.1.6 | {text}",
        patch(put(at, entry), when=log(LogPage.EFFECTS)),
    )
target(
    "oacs-reads-ignored | Base 5.2.13.2.1 | Security Receive, NVMe-MI Receive and Get LBA Status succeed",
    accepts(StatusCode.INVALID_OPCODE, when=on_admin(0x82, 0x1E, 0x86)),
)
target(
    "identify-fr-nul | Base 1.4.2 | FR is padded with NULs",
    patch(put(64, b"1".ljust(8, b"\0")), when=identify(Cns.CONTROLLER)),
)
target(
    "descriptor-csi-other | Base 5.2.13.2.3 | the descriptors of a namespace state another command set",
    patch(put(44, b"\2"), when=identify(Cns.DESCRIPTORS)),
)
host(
    "set-list-of-any | Base 5.2.13.2.7 | CSI of the list of active namespaces is ignored",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw11=0).encode(), capsule.data),
        when=identify(Cns.CSI_ACTIVE_NAMESPACES),
    ),
)

# The Keep Alive Timer (3.9)

DAY = 86_400_000
"""Milliseconds."""

Never = Callable[[ProxyConnection], bool]


def _never(where: Never) -> tuple[Rule, Rule]:
    """Return the rules of a controller whose timer does not expire: it states what was set."""
    sets = feature(Admin.SET_FEATURES, Feature.KATO)
    gets: When = feature(Admin.GET_FEATURES, Feature.KATO)

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        _note_enabled(through, got)
        command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
        if command is None or not sets(through, command) or not where(through):
            return None
        through.memory["kato"] = command.cdw11
        return [CapsuleCmd(replace(command, cdw11=DAY).encode())]

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return response(
            lambda t, c, cqe: (
                replace(cqe, result=t.memory["kato"]) if c and gets(t, c) and "kato" in t.memory else None
            )
        )(through, got)

    return of_host, of_target


def _with_timer(where: Never) -> Callable[[], ProxyConnection]:
    of_host, of_target = _never(where)
    return lambda: ProxyConnection(of_host=of_host, of_target=of_target)


add(
    "short-timer-never | Base 3.9.5 | the Keep Alive Timer that Set Features has set does not expire",
    _with_timer(lambda t: True),
)
add(
    "timer-gone-by-reset | Base 3.9.5 | after a controller reset the Keep Alive Timer does not expire",
    _with_timer(lambda t: bool(t.memory.get("cleared"))),
)
OF_HOST, OF_TARGET = _never(lambda t: True)
_discovery(
    "discovery-timer-never | Base 3.9.5 | the Keep Alive Timer of a discovery controller does not expire",
    of_host=OF_HOST,
    of_target=OF_TARGET,
)
