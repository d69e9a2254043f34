"""Broken rules of two controllers of one host at the same time.

The rules, from the text (NVM Express Base 2.3), before any case:

- 3.1.3: two associations have two controllers, also if they are of one host: what ends one, by a shutdown, a
  reset or a lost connection, ends no other (MUST).
- 6.3: each has a CNTLID of its own (MUST); 3.3.2.3: a queue that exists is connected to no other one (MUST).
- NVM 3.3.4: a read returns what was written last, by whichever controller (MUST).
- 5.2.26: a feature whose scope is a controller is of that one alone; 5.2.26.2.1: Number of Queues is refused
  after an I/O queue of that controller was created, not of another (MUST).
- 5.2.2: AERL, and 5.2.1: Abort, concern the commands of one controller (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from nvme_tcp_controller_mutants import CC_SET, SHN, follows
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import fabrics, feature, on_admin, on_io, response, shared

from storagetest.wire.nvme.codes import Admin, Fctype, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

Notes = set[object]
"""What the connections of a mutant share: tuples that begin with a host's NQN and the kind of the note."""

Asked = Callable[[ProxyConnection, Command, Notes, object], Iterable[Item] | None]
Answered = Callable[[ProxyConnection, Command, Cqe, Notes, object], Cqe | None]

HOSTNQN = slice(512, 768)
"""Of the data of Connect (Base 6.3)."""


def _knows_host(through: ProxyConnection, got: DecodedPdu) -> Command | None:
    """Return the command of a capsule; remember the host and the controller that Connect names."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if fabrics(Fctype.CONNECT)(through, command) and "host" not in through.memory:
        through.memory["host"] = got.pdu.data[HOSTNQN]
    return command


def _pair(
    row: str,
    asked: Asked,
    answered: Callable[[ProxyConnection, Command, Cqe, Notes, object], Cqe | None] = lambda t, c, q, n, h: (
        None
    ),
) -> None:
    """A mutant whose connections share notes: ``asked`` is of commands, ``answered`` of their completions."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command = _knows_host(through, got)
            return None if command is None else asked(through, command, notes, through.memory.get("host"))

        def of_target(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
            return command and answered(through, command, cqe, notes, through.memory.get("host"))

        return ProxyConnection(of_host=of_host, of_target=response(of_target))

    shared(row, sharing)


def _passes(through: ProxyConnection, command: Command, notes: Notes, host: object) -> None:
    """Change no command."""


def _refuses(through: ProxyConnection, command: Command, status: int) -> list[Item]:
    through.reply(Cqe(command.cid, status))
    return []


def _noted(notes: Notes, host: object, what: str) -> list[tuple[Any, ...]]:
    return [one for one in notes if isinstance(one, tuple) and one[:2] == (host, what)]


def _first_cntlid(through: ProxyConnection, c: Command, cqe: Cqe, notes: Notes, host: object) -> Cqe | None:
    if not fabrics(Fctype.CONNECT)(through, c) or c.cdw10 >> 16 or not cqe.ok:
        return None
    known = _noted(notes, host, "cntlid")
    if known:
        return replace(cqe, result=known[0][2])
    notes.add((host, "cntlid", cqe.result & 0xFFFF))
    return None


_pair(
    "pair-cntlid | Base 6.3 | Connect of a host's second association returns the CNTLID of its first",
    _passes,
    _first_cntlid,
)


def _one_value(through: ProxyConnection, c: Command, cqe: Cqe, notes: Notes, host: object) -> Cqe | None:
    """Keep one current value of each feature for the controllers of a host."""
    fid = c.cdw10 & 0xFF
    if not cqe.ok or fid == Feature.NUMBER_OF_QUEUES:
        return None
    known = _noted(notes, host, f"feature {fid}")
    if feature(Admin.SET_FEATURES)(through, c):
        notes.difference_update(known)
        notes.add((host, f"feature {fid}", c.cdw11))
    elif known and feature(Admin.GET_FEATURES)(through, c) and not c.cdw10 >> 8 & 7:
        return replace(cqe, result=known[0][2])
    return None


_pair(
    "pair-features | Base 5.2.26 | controllers of a host share the values of features",
    _passes,
    _one_value,
)


def _locks_queues(through: ProxyConnection, c: Command, notes: Notes, host: object) -> list[Item] | None:
    if fabrics(Fctype.CONNECT)(through, c) and c.cdw10 >> 16:
        notes.add((host, "queue"))
    if feature(Admin.SET_FEATURES, Feature.NUMBER_OF_QUEUES)(through, c) and (host, "queue") in notes:
        return _refuses(through, c, StatusCode.COMMAND_SEQUENCE_ERROR)
    return None


_pair(
    "pair-queues-locked | Base 5.2.26.2.1 | Number of Queues is refused if another controller has I/O queues",
    _locks_queues,
)


def _one_limit(through: ProxyConnection, c: Command, notes: Notes, host: object) -> list[Item] | None:
    """Refuse the event requests of a host's second admin queue."""
    if not on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, c):
        return None
    notes.add((host, "events", id(through)))
    if len(_noted(notes, host, "events")) > 1:
        return _refuses(through, c, StatusCode.AER_LIMIT_EXCEEDED)
    return None


_pair("pair-aerl | Base 5.2.2 | event requests of one controller of a host count for the other", _one_limit)


def _aborts_all(through: ProxyConnection, c: Command, notes: Notes, host: object) -> list[Item] | None:
    for _, _, cid in _noted(notes, host, "abort"):
        if cid in through.commands and cid != c.cid:
            through.reply(Cqe(cid, StatusCode.ABORTED_BY_REQUEST))
    if on_admin(Admin.ABORT)(through, c):
        notes.add((host, "abort", c.cdw10 >> 16))
    return None


_pair("pair-abort | Base 5.2.1 | Abort ends a command of each controller of a host", _aborts_all)


def _moves(through: ProxyConnection, c: Command, notes: Notes, host: object) -> list[Item] | None:
    if not through.qid or not fabrics(Fctype.CONNECT)(through, c):
        return None
    if "connected" in through.memory:
        return _refuses(through, c, StatusCode.SUCCESS)
    through.memory["connected"] = True
    return None


_pair("pair-connect-moves | Base 3.3.2.3 | an I/O queue may be connected to another controller", _moves)


# A cache of what one controller of a host has read, and the end of one that ends the other


def _stale(notes: Notes) -> ProxyConnection:
    """Return to each Read of a host's second controller what it has read before."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = _knows_host(through, got)
        if command is not None and fabrics(Fctype.CONNECT)(through, command):
            notes.add((through.memory["host"], "queues", id(through)))
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        if len(_noted(notes, through.memory["host"], "queues")) < 4:  # two admin queues, two I/O queues
            return None
        key = f"{command.nsid} {command.cdw10} {command.cdw12} {got.pdu.offset}"
        return [replace(got.pdu, data=through.memory.setdefault(key, got.pdu.data))]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("pair-cache | NVM 3.3.4 | two controllers of a host read a block once, then from a cache", _stale)


@dataclass
class Ending(ProxyConnection):
    """A connection of which the notes state that its admin queue was closed."""

    notes: Notes = field(default_factory=set)

    def passes_close(self, *, from_target: bool) -> bool:
        if not from_target and not self.qid and not self.memory.get("shutdowns"):
            self.notes.add((self.memory.get("host"), "dropped", id(self)))
        return True


def _ends(how: str) -> Callable[[Notes], ProxyConnection]:
    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command, memory = _knows_host(through, got), through.memory
            if command is None:
                return None
            follows(through, got)
            if CC_SET(through, command) and not memory.get("shutdowns") and not command.cdw12 & 1:
                notes.add((memory["host"], "reset", id(through)))
            if CC_SET(through, command) and command.cdw12 & SHN:
                notes.add((memory["host"], "shutdown", id(through)))
            others = [one for one in _noted(notes, memory.get("host"), how) if one[2] != id(through)]
            if others and not fabrics(Fctype.CONNECT)(through, command):
                return _refuses(through, command, StatusCode.INTERNAL_ERROR)
            return None

        return Ending(of_host=of_host, notes=notes)

    return sharing


for _how, _words in {
    "shutdown": "the shutdown",
    "reset": "the reset",
    "dropped": "the lost connection",
}.items():
    shared(
        f"pair-ends-{_how} | Base 3.1.3 | {_words} of one controller ends the other one of the host",
        _ends(_how),
    )
