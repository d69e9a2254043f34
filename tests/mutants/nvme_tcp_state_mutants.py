"""Broken rules after a shutdown, of the last values of fields, and of entries of the discovery log.

The rules, from the text (NVM Express Base 2.3, TCP 1.0), before any case:

- 3.6.2: after a shutdown no admin command but Fabrics commands is processed until a reset (MUST).
- 6.3: a Queue Identifier is 1 to 65,534; an I/O queue names its controller by its CNTLID (MUST).
- 5.2.12.3.3: CNTLID of an entry is FFFFh in the dynamic model; TRADDR is of ADRFAM (MUST).
- 5.2.12: an offset beyond the end of a log page is refused, also if a sum of 64 bits is within it (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    add,
    commands,
    fabrics,
    feature,
    host,
    log,
    patch,
    put,
    response,
    results,
    shared,
    target,
)
from proxy import Hangup

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu, H2CData, H2CTermReq

CONNECT = fabrics(Fctype.CONNECT)
ENTRY = 1024
"""Bytes of the head of the discovery log, and of each entry (Base 5.2.12.3.3)."""
SHN = 3 << 14
"""Shutdown Notification of CC (3.1.4.5)."""


def _note(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note a shutdown, and what a Connect names."""
    if not isinstance(got.pdu, CapsuleCmd):
        return
    command = Command.decode(got.pdu.sqe)
    if CC_SET(through, command) and command.cdw12 & SHN:
        through.memory["shut down"] = True
    if CONNECT(through, command) and len(got.pdu.data) == 1024:
        data = ConnectData.decode(got.pdu.data)
        through.memory["cntlid"], through.memory["subsystem"] = data.cntlid, data.subnqn


add(
    "shutdown-serves-others | Base 3.6.2 | after a shutdown admin commands but Identify are processed",
    lambda: ProxyConnection(
        of_host=_note,
        of_target=accepts(
            StatusCode.COMMAND_SEQUENCE_ERROR,
            when=lambda t, c: (
                not t.qid and c.opcode not in (FABRICS, Admin.IDENTIFY) and bool(t.memory.get("shut down"))
            ),
        ),
    ),
)
add(
    "connect-io-last-values | Base 6.3 | an I/O queue of QID FFFFh, or of CNTLID FFFEh, is connected",
    lambda: ProxyConnection(
        of_host=_note,
        of_target=accepts(
            StatusCode.CONNECT_INVALID_PARAMETERS,
            when=lambda t, c: (
                CONNECT(t, c)
                and (c.cdw10 >> 16 == 0xFFFF or (c.cdw10 >> 16 > 0 and t.memory["cntlid"] == 0xFFFE))
            ),
        ),
    ),
)


def _any_digest(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if got.data_digest_ok is not False or not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    return [got.pdu] if CONNECT(through, command) and command.cdw10 >> 16 else None


host(
    "ddgst-io-connect-unchecked | NVMe/TCP 3.5 | DDGST of the Connect of an I/O queue is ignored", _any_digest
)


def _wraps(command: Command) -> bool:
    """Whether offset and length of a Get Log Page are 2^64 together, or more."""
    length = ((command.cdw10 >> 16 | (command.cdw11 & 0xFFFF) << 16) + 1) * 4
    return (command.cdw12 | command.cdw13 << 32) + length >= 1 << 64


host(
    "log-offset-wraps | Base 5.2.12 | the end of a part of a log page is computed in 64 bits",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw12=0, cdw13=0).encode(), capsule.data),
        when=lambda t, c: log()(t, c) and _wraps(c),
    ),
)
host(
    "psdt-of-admin-ignored | Base 4.1.1 | PSDT of an admin command is not checked",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, flags=0x40).encode(), capsule.data),
        when=lambda t, c: not t.qid and c.opcode != FABRICS and c.flags >> 6 == 3,
    ),
)


def _takes_all(notes: set[Any]) -> ProxyConnection:
    def rule(_: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, H2CTermReq):
            notes.add("ended")
        elif notes:
            raise Hangup

    return ProxyConnection(of_host=rule)


shared("h2cterm-takes-all | NVMe/TCP 3.5 | an H2CTermReq ends the connection of every host", _takes_all)

# The discovery log and discovery controllers


def _in_each(at: int, new: bytes) -> Callable[[bytes], bytes]:
    """Set bytes of each entry."""

    def change(raw: bytes) -> bytes:
        for entry in range(ENTRY, len(raw), ENTRY):
            raw = put(entry + at, new)(raw)
        return raw

    return change


target(
    "discovery-other-model | Base 5.2.12.3.3 | CNTLID of an entry is that of the static controller model",
    patch(_in_each(6, b"\xfe\xff"), when=log(LogPage.DISCOVERY)),
)
target(
    "discovery-other-family | Base 5.2.12.3.3 | ADRFAM of an entry is IPv6, and TRADDR of IPv4",
    patch(_in_each(1, b"\2"), when=log(LogPage.DISCOVERY)),
)

GETS, SETS = feature(Admin.GET_FEATURES, Feature.KATO), feature(Admin.SET_FEATURES, Feature.KATO)


def _shares(notes: set[Any]) -> ProxyConnection:
    """Discovery controllers have the longest Keep Alive Timeout that was set."""

    def of_discovery(through: ProxyConnection) -> bool:
        return bool(through.memory.get("subsystem") == DISCOVERY_NQN)

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        _note(through, got)
        command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
        if command and of_discovery(through) and SETS(through, command):
            notes.add(command.cdw11)

    return ProxyConnection(
        of_host=of_host,
        of_target=results(
            lambda t, c, old: max(notes), when=lambda t, c: GETS(t, c) and of_discovery(t) and bool(notes)
        ),
    )


shared(
    "discovery-features-shared | Base 5.2.26 | discovery controllers share the values of features", _shares
)

# The last values of Connect (6.3, 3.9.1), data of admin commands (TCP 3.5)


MQES = 127
"""CAP.MQES of the small controller."""


def _refuses_connect(through: ProxyConnection, command: Command, status: int) -> list[Item]:
    through.reply(Cqe(command.cid, status, sqhd=1))
    return []


def _less_than_mqes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """SQSIZE of an I/O queue is less than CAP.MQES, which the small controller has as 127."""
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is None or not CONNECT(through, command) or not command.cdw10 >> 16:
        return None
    if command.cdw11 & 0xFFFF != MQES:
        return None
    return _refuses_connect(through, command, StatusCode.CONNECT_INVALID_PARAMETERS)


host("mqes-refused | Base 6.3 | an I/O queue whose SQSIZE is CAP.MQES is refused", _less_than_mqes)
target(
    "sqhd-six-bits | Base 4.2.1 | SQHD of an I/O queue has six bits",
    response(lambda t, c, cqe: replace(cqe, sqhd=cqe.sqhd & 0x3F) if t.qid else None),
)


def _wants_timeout(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A Connect to a discovery controller with KATO 0 is refused."""
    _note(through, got)
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is None or not CONNECT(through, command) or command.cdw12:
        return None
    if through.memory.get("subsystem") != DISCOVERY_NQN:
        return None
    return _refuses_connect(through, command, StatusCode.KEEP_ALIVE_INVALID)


host(
    "discovery-wants-timeout | Base 3.1.3.3 | a Connect to a discovery controller with KATO 0 is refused",
    _wants_timeout,
)
host(
    "connect-without-timer | Base 3.9.1 | a Connect with KATO 0 succeeds",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw12=120_000).encode(), capsule.data),
        when=lambda t, c: CONNECT(t, c) and not c.cdw10 >> 16 and not c.cdw12,
    ),
)
host(
    "ddgst-admin-data-unchecked | NVMe/TCP 3.5 | DDGST of H2CData on the admin queue is ignored",
    lambda t, got: (
        [got.pdu] if got.data_digest_ok is False and isinstance(got.pdu, H2CData) and not t.qid else None
    ),
)

# Lists of log pages and of features (5.2.12.1.1, 5.2.12.1.18), capabilities (5.2.11)

target(
    "log-index-announced | Base 5.2.12.1.1 | IOS of a log page is 1, and an index offset is refused",
    patch(put(4 * LogPage.FIRMWARE_SLOT, b"\3"), when=log(LogPage.SUPPORTED)),
)
target(
    "log-features-scope | Base 5.2.12.1.18 | the scope of Number of Queues is a namespace",
    patch(put(4 * Feature.NUMBER_OF_QUEUES, b"\1\0\x10\0"), when=log(LogPage.FEATURES)),
)
target(
    "capability-of-controller | Base 5.2.11 | the capabilities of no feature state that it is of a namespace",
    results(
        lambda t, c, old: old & ~2,
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 == 3,
    ),
)
