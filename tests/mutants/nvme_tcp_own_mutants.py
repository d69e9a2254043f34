"""Broken rules of parameters that belong to one connection, queue or association.

The rules, from the text (NVMe/TCP 1.0, NVM Express Base 2.3), before any case:

- NVMe/TCP 3.3, 3.3.2.2: HPDA and MAXR2T are of the connection whose ICReq has them (MUST).
- 6.3: SQ flow control and SQSIZE are of the queue that a Connect creates (MUST); a controller is allocated
  to one association (MUST).
- 3.1.3: associations with a discovery controller and with an I/O controller are two (MUST).
- 5.2.26.1.32: the Host Identifier is the one of the controller's own Connect (MUST).
- NVM 3.3.3.2.1: a deallocated block reads the same, for each host (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET, SHN
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import fabrics, feature, hang_up, on_io, shared
from nvme_tcp_transport_mutants import joined, one_too_many

from storagetest.wire.nvme.codes import Admin, Fctype, Feature, Io
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, ICReq

Notes = set[Any]
"""What the connections of a mutant share: tuples."""

CONNECT = fabrics(Fctype.CONNECT)
HOSTID, CNTLID, SUBNQN, HOSTNQN = slice(0, 16), slice(16, 18), slice(256, 512), slice(512, 768)
"""Bytes of the data of Connect (6.3)."""
DISSQFC = 1 << 18
"""Bit of dword 11 of Connect: SQ flow control is not used (6.3)."""
CHANGES = (Io.WRITE, Io.WRITE_ZEROES, Io.COPY, Io.WRITE_UNCORRECTABLE)


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


def _connects(through: ProxyConnection, got: DecodedPdu) -> Command | None:
    """Return the command of a Connect."""
    command = _command(got)
    return command if command is not None and CONNECT(through, command) else None


def _noted(notes: Notes, *key: object) -> Any:
    """Return the last part of the note that begins with ``key``."""
    return next((note[-1] for note in notes if note[:-1] == key), None)


def _note(notes: Notes, *note: object) -> None:
    """Replace the note that has all but the last part in common."""
    notes.difference_update([one for one in notes if one[:-1] == note[:-1]])
    notes.add(note)


# Parameters of ICReq (NVMe/TCP 3.6.2.2)


def _hpda(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, ICReq):
            _note(notes, "hpda", got.pdu.hpda)

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        last = _noted(notes, "hpda")
        if not isinstance(got.pdu, C2HData) or last == through.icreq.hpda:
            return None
        return [through.encode(got.pdu, last)]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("hpda-of-last | NVMe/TCP 3.3 | HPDA of the last ICReq is that of every connection", _hpda)


def _maxr2t(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, ICReq):
            _note(notes, "maxr2t", got.pdu.maxr2t)
        return joined(through, got)

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        over = isinstance(got.pdu, R2T) and got.pdu.length > 1024 and not through.icreq.maxr2t
        return one_too_many(through, got) if over and _noted(notes, "maxr2t") else None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("maxr2t-of-last | NVMe/TCP 3.3.2.2 | MAXR2T of the last ICReq is that of every connection", _maxr2t)


# Parameters of Connect (Base 6.3)


def _of_last_queue(
    row: str, noted: Callable[[Command], object], answers: Callable[[ProxyConnection, Cqe, Any], Cqe]
) -> None:
    """A mutant whose controllers have one value for all of their I/O queues: that of the last Connect."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
            command = _connects(through, got)
            if command is not None and through.qid and isinstance(got.pdu, CapsuleCmd):
                through.memory |= {"controller": got.pdu.data[CNTLID], "own": noted(command), "commands": 0}
                _note(notes, got.pdu.data[CNTLID], noted(command))

        def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if not isinstance(got.pdu, CapsuleResp) or "own" not in through.memory:
                return None
            through.memory["commands"] += 1
            last = _noted(notes, through.memory["controller"])
            if last == through.memory["own"]:
                return None
            return [CapsuleResp(answers(through, Cqe.decode(got.pdu.cqe), last).encode())]

        return ProxyConnection(of_host=of_host, of_target=of_target)

    shared(row, sharing)


_of_last_queue(
    "flow-control-of-last | Base 6.3 | DISSQFC of the last Connect is that of every I/O queue",
    lambda command: bool(command.cdw11 & DISSQFC),
    lambda through, cqe, last: replace(cqe, sqhd=0xFFFF) if last else cqe,
)
_of_last_queue(
    "head-of-last-stays | Base 6.3 | SQHD stays once another I/O queue was connected with DISSQFC",
    lambda command: bool(command.cdw11 & DISSQFC),
    lambda through, cqe, last: replace(cqe, sqhd=1) if last else cqe,
)
_of_last_queue(
    "queue-size-of-last | Base 6.3 | SQSIZE of the last Connect is that of every I/O queue",
    lambda command: command.cdw11 & 0xFFFF,
    lambda through, cqe, last: replace(cqe, sqhd=through.memory["commands"] % (last + 1)),
)


# Associations (Base 3.1.3, 6.3)


def _live(notes: Notes) -> ProxyConnection:
    """``notes``: an end of an association, and each controller with the CNTLID that Connect returned."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        command = _command(got)
        if command is not None and CC_SET(through, command) and command.cdw12 & SHN:
            notes.discard(("live", id(through), _noted(notes, "live", id(through))))
            notes.add(("ended", True))

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if command is None or not CONNECT(through, command) or through.qid:
            return None
        assert isinstance(got.pdu, CapsuleResp)
        cqe = Cqe.decode(got.pdu.cqe)
        live = [note[2] for note in notes if note[0] == "live"]
        if cqe.ok:
            notes.add(("live", id(through), cqe.result))
        if not cqe.ok or not live or not _noted(notes, "ended"):
            return None
        return [CapsuleResp(replace(cqe, result=live[0]).encode())]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("cntlid-of-live | Base 6.3 | after an association has ended, a new one gets a CNTLID in use", _live)


def _discovers(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if _connects(through, got) is not None and isinstance(got.pdu, CapsuleCmd):
            discovery = got.pdu.data[SUBNQN].rstrip(b"\0") == DISCOVERY_NQN.encode()
            through.memory["serves"] = None if discovery else got.pdu.data[HOSTNQN]
            if discovery:
                notes.add((got.pdu.data[HOSTNQN], "discovers"))
        elif (through.memory.get("serves"), "discovers") in notes:
            hang_up()

    return ProxyConnection(of_host=of_host)


shared(
    "discovery-ends-others | Base 3.1.3 | a Connect to the discovery subsystem ends the host's controllers",
    _discovers,
)


def _host_of_last(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if _connects(through, got) is not None and isinstance(got.pdu, CapsuleCmd):
            _note(notes, "host", got.pdu.data[HOSTID])

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command, last = through.command_of(got), _noted(notes, "host")
        if command is None or not isinstance(got.pdu, C2HData):
            return None
        if not feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)(through, command):
            return None
        return None if got.pdu.data == last else [replace(got.pdu, data=last)]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "host-identifier-of-last | Base 5.2.26.1.32 | the Host Identifier is that of the last Connect",
    _host_of_last,
)


# Deallocated blocks (NVM 3.3.3.2.1)


def _deallocates(notes: Notes) -> ProxyConnection:
    """``known`` has the blocks that a connection has read, and how many changes there had been."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        command = _command(got)
        if command is not None and on_io(*CHANGES)(through, command):
            _note(notes, "changes", (_noted(notes, "changes") or 0) + 1)
        elif command is not None and on_io(Io.DATASET_MANAGEMENT)(through, command):
            through.memory["known"] = {}

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        key = (command.nsid, command.cdw10, command.cdw12, got.pdu.offset, _noted(notes, "changes"))
        known = through.memory.setdefault("known", {}).setdefault(key, got.pdu.data)
        return None if known == got.pdu.data else [replace(got.pdu, data=known)]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "deallocated-of-own | NVM 3.3.3.2.1 | a host reads old data of blocks that another one has deallocated",
    _deallocates,
)
