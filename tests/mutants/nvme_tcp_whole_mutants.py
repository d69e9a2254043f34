"""Broken rules of whole values, of data that cross, and of the place in the stream.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2, NVMe/TCP 1.1), before any case:

- Base 4.7: NQNs are compared as binary strings. 6.3: an I/O queue is of the host of its admin queue (MUST).
- Base 8.1.24.1: a host is known by its Host Identifier of 128 bits; 8.1.24: keys have 64 bits (MUST).
- Base 3.2.1.5: an NSID over NN is invalid; 4.2.3.1: a reserved opcode is an Invalid Opcode (MUST).
- Base 3.1.4: offsets without a property are reserved. 5.2.26.1.8: KATO has 32 bits (MUST).
- Base 5.2.26.2.1: Number of Queues is set before the I/O queues are created, after a reset, too (MUST).
- NVM 2.1.4.2: a write of one block is atomic. Base 4.1.1: a CID is of one queue (MUST).
- NVMe/TCP 3.3.2.2: a TTAG is of an R2T of its own connection (MUST).
- NVMe/TCP 2, 3.3.1: PDUs are of any length and in any segments, whatever status their command has (MUST).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import add, commands, fabrics, feature, host, on_io, results, shared, target
from nvme_tcp_server import NQN

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

CONNECT = fabrics(Fctype.CONNECT)
KEYED = (Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE)
LOW = 0xFFFF_FFFF


# Names and identifiers in the data of Connect (Base 4.7, 6.3)


def _connecting(change: Callable[[Command, ConnectData], ConnectData | None]) -> Rule:
    """Change the data of Connect commands; None keeps them."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd) or len(got.pdu.data) < 1024:
            return None
        sent = Command.decode(got.pdu.sqe)
        if not CONNECT(through, sent):
            return None
        data = change(sent, ConnectData.decode(got.pdu.data))
        return None if data is None else [replace(got.pdu, data=data.encode())]

    return rule


def _subsystem(row: str, alike: Callable[[str], bool]) -> None:
    def change(_: Command, data: ConnectData) -> ConnectData | None:
        name = str(data.subnqn)
        return replace(data, subnqn=NQN) if name and name != DISCOVERY_NQN and alike(name) else None

    host(row, _connecting(change))


_subsystem("name-beginning-taken | Base 4.7 | the beginning of the subsystem's name is taken for the name",
           NQN.startswith)  # fmt: skip
_subsystem("name-longer-taken | Base 4.7 | a name that begins with the subsystem's is taken for it",
           lambda name: name.startswith(NQN))  # fmt: skip
_subsystem("name-last-taken | Base 4.7 | the last character of the subsystem's name is not compared",
           lambda name: name[:-1] == NQN[:-1])  # fmt: skip
_subsystem("name-case-taken | Base 4.7 | letters of the subsystem's name are compared without their case",
           lambda name: name.lower() == NQN.lower())  # fmt: skip


def _alike(known: str, name: str) -> bool:
    return known.lower() == name.lower() or known.startswith(name) or name.startswith(known[:-1])


def _host_name(known: set[Any]) -> ProxyConnection:
    """``known``: the names of the hosts that have an admin queue."""

    def change(sent: Command, data: ConnectData) -> ConnectData | None:
        name = str(data.hostnqn)
        if not sent.cdw10 >> 16:
            known.add(name)
            return None
        for one in known if name and name not in known else ():
            if _alike(one, name):
                return replace(data, hostnqn=one)
        return None

    return ProxyConnection(of_host=_connecting(change))


shared("host-name-alike-taken | Base 6.3 | a part of the Host NQN of an I/O queue is compared, without case",
       _host_name)  # fmt: skip


def _host_half(row: str, compared: slice) -> None:
    """Take each Host Identifier for the first one that is equal in the bytes ``compared``."""

    def make(known: set[Any]) -> ProxyConnection:
        def change(_: Command, data: ConnectData) -> ConnectData | None:
            for one in known:
                if one[compared] == data.hostid[compared]:
                    return replace(data, hostid=one)
            known.add(data.hostid)
            return None

        return ProxyConnection(of_host=_connecting(change))

    shared(row, make)


_host_half("hostid-half-0 | Base 6.3, 8.1.24.1 | the first half of a Host Identifier is not compared",
           slice(8, 16))  # fmt: skip
_host_half("hostid-half-1 | Base 6.3, 8.1.24.1 | the second half of a Host Identifier is not compared",
           slice(0, 8))  # fmt: skip


# Reservation keys (Base 8.1.24)


def _key_of_half(known: set[Any]) -> ProxyConnection:
    """``known``: the keys that were registered."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd) or not got.pdu.data:
            return None
        sent = Command.decode(got.pdu.sqe)
        if not on_io(*KEYED)(through, sent):
            return None
        raw = got.pdu.data
        keys = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]
        if sent.opcode == Io.RESERVATION_REGISTER:
            known.add(keys[1])
        whole = {key & LOW: key for key in known if key}
        mended = [whole.get(key & LOW, key) for key in keys]
        return [replace(got.pdu, data=b"".join(key.to_bytes(8, "little") for key in mended))]

    return ProxyConnection(of_host=of_host)


shared("key-of-half | Base 8.1.24 | of reservation keys the lower 32 bits are compared", _key_of_half)


# Numbers


host("nsid-low-bits | Base 3.2.1.5 | of an NSID the lower 8 bits are looked at",
     commands(lambda capsule, c: replace(capsule, sqe=replace(c, nsid=c.nsid & 0xFF).encode()),
              when=lambda t, c: c.opcode != FABRICS and 0xFF < c.nsid < 0xFFFF_FF00))  # fmt: skip


def _low_opcode(through: ProxyConnection, c: Command) -> bool:
    wanted = (Io.WRITE, Io.READ) if through.qid else (Admin.GET_LOG_PAGE, Admin.IDENTIFY, Admin.GET_FEATURES)
    return 0x1F < c.opcode < 0x70 and c.opcode & 0x1F in wanted


host("opcode-low-bits | Base 4.2.3.1 | of an opcode the lower five bits are looked at",
     commands(lambda capsule, c: replace(capsule, sqe=replace(c, opcode=c.opcode & 0x1F).encode()),
              when=_low_opcode))  # fmt: skip
host("property-low-bits | Base 3.1.4 | of the offset of a property the lower 8 bits are looked at",
     commands(lambda capsule, c: replace(capsule, sqe=replace(c, cdw11=c.cdw11 & 0xFF).encode()),
              when=lambda t, c: fabrics(Fctype.PROPERTY_GET)(t, c) and c.cdw11 > 0xFF))  # fmt: skip
target("kato-16-bits | Base 5.2.26.1.8 | the Keep Alive Timeout has 16 bits",
       results(lambda t, c, old: old & 0xFFFF, when=feature(Admin.GET_FEATURES, Feature.KATO)))  # fmt: skip


def _set_once(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Refuse Number of Queues once the controller was reset."""
    if not isinstance(got.pdu, CapsuleCmd) or through.qid:
        return None
    sent = Command.decode(got.pdu.sqe)
    if fabrics(Fctype.PROPERTY_SET, cdw11=0x14)(through, sent) and not sent.cdw12 & 1:
        through.memory["reset"] = True
    if "reset" not in through.memory or not feature(Admin.SET_FEATURES, Feature.NUMBER_OF_QUEUES)(
        through, sent
    ):
        return None
    through.reply(Cqe(sent.cid, StatusCode.COMMAND_SEQUENCE_ERROR, sqhd=1))
    return []


host("queues-set-once | Base 5.2.26.2.1 | Number of Queues is refused after a controller reset", _set_once)


# Data that cross: what the connections of a run know of each other


@dataclass(eq=False)
class _Open:
    """Writes of all connections that wait for their data: connection and CID → LBA and first half."""

    writes: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    torn: dict[int, bytes] = field(default_factory=dict)  # LBA → the data of two writes
    cids: dict[tuple[int, int], None] = field(default_factory=dict)  # connection and CID
    tags: dict[tuple[int, int], None] = field(default_factory=dict)  # connection and TTAG


NUMBERS = itertools.count()
"""Numbers of connections."""


def connection_number(through: ProxyConnection) -> int:
    if "number" not in through.memory:
        through.memory["number"] = next(NUMBERS)
    return int(through.memory["number"])


def _open(known: set[Any]) -> _Open:
    if not known:
        known.add(_Open())
    return next(iter(known))


def _mix(between: _Open, through: ProxyConnection, pdu: H2CData) -> None:
    """Note the first half of a write; at its second half, those of others of its block."""
    key = connection_number(through), pdu.cccid
    if not pdu.last:
        between.writes.setdefault(key, (through.commands[pdu.cccid].cdw10, pdu.data))
    elif key in between.writes:
        lba, begun = between.writes.pop(key)
        for other, first in between.writes.values():
            if other == lba and len(first) == len(begun):
                between.torn[lba] = first + pdu.data


def torn(known: set[Any]) -> ProxyConnection:
    """Leave a block with the first half of one write and the second half of another, if they cross."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        between = _open(known)
        if isinstance(got.pdu, CapsuleCmd) and through.qid:
            sent = Command.decode(got.pdu.sqe)
            between.torn.pop(sent.cdw10 if sent.opcode == Io.WRITE else -1, None)
        if isinstance(got.pdu, H2CData) and through.qid:
            _mix(between, through, got.pdu)

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or sent is None or not on_io(Io.READ)(through, sent):
            return None
        data = _open(known).torn.get(sent.cdw10, b"")
        return [replace(got.pdu, data=data)] if len(data) == len(got.pdu.data) else None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("crossed-writes-torn | NVM 2.1.4.2 | data of two writes of a block whose data come by turns are mixed",
       torn)  # fmt: skip


def _cid_of_both(known: set[Any]) -> ProxyConnection:
    """Lose the data of a write whose CID is outstanding on another connection."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        cids = _open(known).cids
        if isinstance(got.pdu, CapsuleCmd) and through.qid:
            cids[connection_number(through), Command.decode(got.pdu.sqe).cid] = None
        if not isinstance(got.pdu, H2CData):
            return None
        if any(cid == got.pdu.cccid and one != connection_number(through) for one, cid in cids):
            return [replace(got.pdu, data=bytes(len(got.pdu.data)))]
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleResp):
            _open(known).cids.pop((connection_number(through), Cqe.decode(got.pdu.cqe).cid), None)

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "cid-of-both-queues | Base 4.1.1 | data of a command are lost whose CID another queue has, too",
    _cid_of_both,
)


def _tag_of_any(known: set[Any]) -> ProxyConnection:
    """Drop H2CData by the TTAG of another connection."""

    def of_target(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, R2T):
            _open(known).tags[connection_number(through), got.pdu.ttag] = None

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, H2CData):
            return None
        tags = _open(known).tags
        own = (connection_number(through), got.pdu.ttag)
        if own not in tags and any(tag == got.pdu.ttag for _, tag in tags):
            return []
        if got.pdu.last:
            tags.pop(own, None)
        return None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "ttag-of-any-queue | NVMe/TCP 3.3.2.2 | H2CData by a TTAG of another connection are no error", _tag_of_any
)


# The place in the stream, and buffers (NVMe/TCP 2, 3.3.1)


def _sends_data(sent: Command) -> bool:
    return (
        sent.nsid if sent.opcode == FABRICS else sent.opcode
    ) & 3 == 1 or sent.opcode == Admin.SET_FEATURES


def _notes_refusal(through: ProxyConnection, got: DecodedPdu) -> None:
    sent = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or sent is None or Cqe.decode(got.pdu.cqe).ok:
        return
    if _sends_data(sent) and int.from_bytes(sent.dptr[8:12], "little"):
        through.memory["stuck"] = True
    through.memory["refused"] = through.memory.get("refused", 0) + 1


def _no_more(when: Callable[[ProxyConnection], bool]) -> ProxyConnection:
    """Serve no command of a connection ``when`` it has come to that."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return [] if isinstance(got.pdu, CapsuleCmd) and when(through) else None

    return ProxyConnection(of_target=_notes_refusal, of_host=of_host)


BUFFERS = 200
"""Refused commands after which a mutant has no buffers left."""

add("refused-data-left | NVMe/TCP 3.3.1 | the data of a refused command are taken for the next PDUs",
    lambda: _no_more(lambda t: "stuck" in t.memory))  # fmt: skip
add("refused-leaks | NVMe/TCP 3.3.1 | each refused command keeps a buffer, and there are 200",
    lambda: _no_more(lambda t: t.memory.get("refused", 0) >= BUFFERS))  # fmt: skip

LEFT_WRITES = 64
"""Writes of all connections that a mutant has asked for their data, and has buffers for."""


@dataclass(frozen=True)
class _Left:
    """An R2T whose data have not come."""

    connection: int
    ttag: int


def _left_leak(known: set[Any]) -> ProxyConnection:
    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, R2T):
            return None
        if len(known) >= LEFT_WRITES:
            return []
        known.add(_Left(connection_number(through), got.pdu.ttag))
        return None

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, H2CData) and got.pdu.last:
            known.discard(_Left(connection_number(through), got.pdu.ttag))

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("left-writes-leak | Base 3.3.2 | writes that wait when their connection is lost keep their buffers",
       _left_leak)  # fmt: skip

PARTS = 6
"""Parts of a PDU that a mutant receives rightly."""


def _many_parts(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd | H2CData) or through.arrived.parts <= PARTS or not got.pdu.data:
        return None
    return [replace(got.pdu, data=got.pdu.data[:-4] + bytes(4))]


host("many-parts-lost | NVMe/TCP 2 | the end of data that come in more than six parts is lost", _many_parts)


def _joined(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Lose a command that begins in the segment in which the data of another PDU end."""
    behind = through.memory.get("data", False)
    through.memory["data"] = isinstance(got.pdu, CapsuleCmd | H2CData) and bool(got.pdu.data)
    lost = behind and isinstance(got.pdu, CapsuleCmd) and through.arrived.joined
    return [] if lost else None


host("joined-data-lost | NVMe/TCP 2 | a command behind data that end in its segment is lost", _joined)
