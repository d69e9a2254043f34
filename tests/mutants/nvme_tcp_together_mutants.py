"""Broken rules of commands that are outstanding together, and of flags and values that are seldom used.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- 1.4.1.6, 7.6: CPTPL 01b is reserved: Invalid Field (MUST), and nothing changes.
- 8.1.24.7: Preempt and Abort aborts commands of the hosts that are preempted, and of no other (MUST).
- NVM 2.1.4.2: a write of as many blocks as AWUN states is not torn by another one (MUST).
- NVM 3.3.1, 3.3.2: each Compare has its own data, and each Copy its own ranges (MUST).
- NVM 3.3.2, 3.3.3: FUA and LR of a Copy, and hints of Dataset Management, change no result (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    When,
    accepts,
    action,
    commands,
    fabrics,
    host,
    identify,
    log,
    on_io,
    patch,
    refuses,
    response,
    shared,
    target,
)
from nvme_tcp_whole_mutants import torn

from storagetest.wire.nvme.codes import Cns, Fctype, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu, H2CData

CPTPL = 3 << 30


def _share(row: str, opcode: Io) -> None:
    """A mutant: commands that are outstanding together have the data that come first."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        together: dict[int, bytes] = through.memory.setdefault("together", {})
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if on_io(opcode)(through, asked) and not got.pdu.data:
                if not any(one.opcode == opcode for one in through.commands.values() if one != asked):
                    together.clear()
                together[asked.cid] = b""
        elif isinstance(got.pdu, H2CData) and got.pdu.cccid in together:
            first = next((one for one in together.values() if one), b"")
            together[got.pdu.cccid] = got.pdu.data
            if first and len(first) == len(got.pdu.data):
                return [replace(got.pdu, data=first)]
        return None

    host(row, rule)


_share(
    "compares-share-data | NVM 3.3.1 | Compares that are outstanding together have the data of one",
    Io.COMPARE,
)
_share(
    "copies-share-ranges | NVM 3.3.2 | Copies that are outstanding together have the ranges of one", Io.COPY
)


def _units(known: set[object]) -> ProxyConnection:
    """Leave several blocks with the first half of one write and the second half of another."""
    through = torn(known)
    inner = through.of_target

    def of_target(one: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        asked = one.command_of(got)
        return inner(one, got) if inner and asked is not None and asked.cdw12 & 0xFFFF else None

    through.of_target = of_target
    return through


shared(
    "crossed-units-torn | NVM 2.1.4.2 | data of two writes of several blocks that come by turns are mixed",
    _units,
)
target(
    "copy-flags-refused | NVM 3.3.2 | FUA or LR of Copy is refused",
    refuses(StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.COPY)(t, c) and bool(c.cdw12 >> 30)),
)
target(
    "dsm-hints-refused | NVM 3.3.3 | Dataset Management with IDR or IDW is refused",
    refuses(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.DATASET_MANAGEMENT)(t, c) and bool(c.cdw11 & 3)
    ),
)
host(
    "cptpl-reserved-taken | Base 7.6 | CPTPL 01b is taken for no change",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & ~CPTPL).encode()),
        when=lambda t, c: on_io(Io.RESERVATION_REGISTER)(t, c) and c.cdw10 >> 30 == 1,
    ),
)


def _aborts_all(notes: set[object]) -> ProxyConnection:
    """``notes``: whether a Preempt and Abort has come while writes wait; they end as aborted."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if on_io(Io.RESERVATION_ACQUIRE)(through, asked) and asked.cdw10 & 7 == 2:
                notes.add("aborted")
            elif on_io(Io.WRITE)(through, asked):
                notes.discard("aborted")
        return None

    def change(through: ProxyConnection, asked: Command | None, cqe: Cqe) -> Cqe | None:
        if asked is None or not cqe.ok or not on_io(Io.WRITE)(through, asked) or "aborted" not in notes:
            return None
        return replace(cqe, status=StatusCode.ABORTED_BY_REQUEST)

    return ProxyConnection(of_host=of_host, of_target=response(change))


shared(
    "preempt-aborts-all | Base 8.1.24.7 | Preempt and Abort aborts writes of every host",
    _aborts_all,
)


def _noting(row: str, after: When, refused: When, *, status: int = StatusCode.RESERVATION_CONFLICT) -> None:
    """A mutant: commands ``refused`` end with ``status`` once a command ``after`` has come."""

    def sharing(notes: set[object]) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleCmd):
                asked = Command.decode(got.pdu.sqe)
                if after(through, asked):
                    notes.add("noted")
            return None

        return ProxyConnection(
            of_host=of_host,
            of_target=refuses(status, when=lambda t, c: "noted" in notes and refused(t, c)),
        )

    shared(row, sharing)


_noting(
    "admin-excluded | Base 8.1.24.1 | a reservation excludes hosts from Identify Namespace",
    action(Io.RESERVATION_ACQUIRE),
    identify(Cns.NAMESPACE),
)


def _first_release(through: ProxyConnection, asked: Command) -> bool:
    """Whether it is a Release by a connection that has not acquired."""
    if action(Io.RESERVATION_ACQUIRE)(through, asked):
        through.memory["acquired"] = True
    return action(Io.RESERVATION_RELEASE, 0)(through, asked) and "acquired" not in through.memory


target(
    "release-of-none-refused | Base 8.1.24.6 | a Release without an Acquire before it is a conflict",
    refuses(StatusCode.RESERVATION_CONFLICT, when=_first_release),
)
target(
    "stranger-unregisters-unseen | Base 8.1.24.4 | an Unregister with IEKEY succeeds for any host",
    accepts(
        StatusCode.RESERVATION_CONFLICT,
        when=lambda t, c: action(Io.RESERVATION_REGISTER, 1)(t, c) and bool(c.cdw10 & 8),
    ),
)


TRANSPORT = 0x5A
"""The SGL of data that the controller asks for (NVMe/TCP 3.3.2)."""

HOSTID = slice(0, 16)
"""The Host Identifier in the data of Connect (Base 6.3)."""


def _notifies_own_second(notes: set[object]) -> ProxyConnection:
    """``notes``: the hosts that have released, and (host, number) of each admin queue."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        asked = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.CONNECT)(through, asked):
            through.memory["host"] = host_of = got.pdu.data[HOSTID]
            if not through.qid:
                earlier = sum(isinstance(one, tuple) and one[0] == host_of for one in notes)
                through.memory["second"] = bool(earlier)
                notes.add((host_of, earlier))
        elif action(Io.RESERVATION_RELEASE, 0)(through, asked):
            notes.add(through.memory.get("host"))
        return None

    page = patch(
        lambda raw: b"\1" + bytes(7) + b"\2" + raw[9:],
        when=lambda t, c: (
            log(LogPage.RESERVATION_NOTIFICATION)(t, c)
            and bool(t.memory.get("second"))
            and t.memory.get("host") in notes
        ),
    )
    return ProxyConnection(of_host=of_host, of_target=page)


shared(
    "notice-to-own-second | Base 8.1.24.6 | another controller of the host that releases is notified",
    _notifies_own_second,
)
target(
    "reservations-race | Base 8.1.24.5 | an Acquire by R2T succeeds, also if another host holds",
    accepts(
        StatusCode.RESERVATION_CONFLICT,
        when=lambda t, c: action(Io.RESERVATION_ACQUIRE)(t, c) and c.dptr[15] == TRANSPORT,
    ),
)
