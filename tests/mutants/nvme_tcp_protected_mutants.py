"""Broken rules of Namespace Write Protection.

The rules, from the text (NVM Express Base 2.3), before any case:

- 5.2.26.1.35: a namespace in the state Write Protect is not changed: each command that would change it is
  aborted with Namespace is Write Protected; Read, Compare, Verify and Flush are served (MUST).
- 5.2.26.1.35: the state is the namespace's, through every controller, and persists across resets (MUST).
- 5.2.26: Get Features returns the state; a reserved one is refused, and changes nothing (MUST).
- NVM 4.1.5.1, 5.2.13: NSATTR bit 0 states whether the namespace is write protected (MUST).
- 5.2.13.2.1: NWPC bits 2:1 need bit 0, and bits 7:3 are reserved (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    accepts,
    commands,
    fabrics,
    feature,
    host,
    identify,
    on_io,
    patch,
    response,
    results,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Io, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

SET = feature(Admin.SET_FEATURES, Feature.WRITE_PROTECT)
GET = feature(Admin.GET_FEATURES, Feature.WRITE_PROTECT)
CONNECT, PROPERTY_SET = fabrics(Fctype.CONNECT), fabrics(Fctype.PROPERTY_SET)
WRITES = on_io(Io.WRITE, Io.WRITE_ZEROES, Io.COPY, Io.WRITE_UNCORRECTABLE, Io.DATASET_MANAGEMENT)
PROTECTED = StatusCode.NAMESPACE_WRITE_PROTECTED
NSATTR, NWPC = 99, 531
HOSTID = slice(0, 16)  # of the data of Connect
FUA = 1 << 30

Notes = set[Any]
Change = Callable[[Notes, ProxyConnection, Command, Cqe], Cqe | None]


def _put(at: int, value: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:at] + bytes([value]) + raw[at + 1 :]


def _ok(cqe: Cqe) -> Cqe:
    return replace(cqe, status=0, dnr=False)


Note = Callable[[Notes, ProxyConnection, CapsuleCmd, Command], Iterable[Item] | None]


def _noting(row: str, rule: Callable[[Notes], Rule], *, note: Note = lambda *_: None) -> None:
    """A mutant of all connections: ``notes`` has the NSIDs that are protected, and what ``note`` adds.

    ``note`` may change the command, too; ``rule`` changes what the target sends.
    """

    def make(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if not isinstance(got.pdu, CapsuleCmd):
                return None
            sent = Command.decode(got.pdu.sqe)
            if SET(through, sent):
                (notes.add if sent.cdw11 & 7 else notes.discard)(sent.nsid)
            return note(notes, through, got.pdu, sent)

        return ProxyConnection(of_host=of_host, of_target=rule(notes))

    shared(row, make)


def _completing(change: Change) -> Callable[[Notes], Rule]:
    """The rule that changes completions."""
    return lambda notes: response(lambda t, c, cqe: change(notes, t, c, cqe) if c else None)


def _note_past(notes: Notes, through: ProxyConnection, capsule: CapsuleCmd, sent: Command) -> None:
    """Note each NSID that was protected, for good."""
    notes.update({("was", nsid) for nsid in notes if isinstance(nsid, int)})


# What is refused

for _name, _opcode, _what in (
    ("write", Io.WRITE, "a write"),
    ("zeroes", Io.WRITE_ZEROES, "Write Zeroes"),
    ("copy", Io.COPY, "Copy"),
    ("mark", Io.WRITE_UNCORRECTABLE, "Write Uncorrectable"),
):
    target(
        f"protected-{_name} | Base 5.2.26.1.35 | {_what} of a protected namespace succeeds",
        accepts(PROTECTED, when=on_io(_opcode)),
    )
target(
    "protected-large | Base 5.2.26.1.35 | a write of more than 8 blocks of a protected namespace succeeds",
    accepts(PROTECTED, when=lambda t, c: on_io(Io.WRITE)(t, c) and c.cdw12 & 0xFFFF >= 8),
)
target(
    "protected-fua | Base 5.2.26.1.35 | a write with FUA of a protected namespace succeeds",
    accepts(PROTECTED, when=lambda t, c: on_io(Io.WRITE)(t, c) and bool(c.cdw12 & FUA)),
)


def _discards(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = through.command_of(got)
    if sent is None:
        return None
    if isinstance(got.pdu, C2HData):
        gone = through.memory.get("gone") and on_io(Io.READ)(through, sent)
        return [replace(got.pdu, data=bytes(len(got.pdu.data)))] if gone else None
    if on_io(Io.DATASET_MANAGEMENT)(through, sent):
        through.memory["gone"] = True
    return None


target("protected-dsm | Base 5.2.26.1.35 | Deallocate discards blocks of a protected namespace", _discards)

# What is served


def _past_the_end(
    notes: Notes, through: ProxyConnection, capsule: CapsuleCmd, sent: Command
) -> Iterable[Item] | None:
    """Make a read one of LBAs that do not exist: it is refused, whatever the SUCCESS flag of its data."""
    if not on_io(Io.READ)(through, sent) or sent.nsid not in notes:
        return None
    return [replace(capsule, sqe=replace(sent, cdw10=0xFFFFFFFF, cdw11=0xFFFFFFFF).encode())]


def _refuses(when: When, notes: Notes, through: ProxyConnection, command: Command, cqe: Cqe) -> Cqe | None:
    return replace(cqe, status=PROTECTED) if when(through, command) and command.nsid in notes else None


_noting(
    "protected-read | Base 5.2.26.1.35 | reads of a protected namespace are refused",
    _completing(lambda *_: None),
    note=_past_the_end,
)
for _name, _opcode in (("compare", Io.COMPARE), ("verify", Io.VERIFY), ("flush", Io.FLUSH)):
    _noting(
        f"protected-{_name} | Base 5.2.26.1.35 | {_opcode.name} of a protected namespace is refused",
        _completing(partial(_refuses, on_io(_opcode))),
    )

# The state

target(
    "protection-not-read | Base 5.2.26 | Get Features returns No Write Protect, whatever was set",
    results(lambda t, c, value: 0, when=GET),
)
target(
    "nsattr-clear | NVM 4.1.5.1 | NSATTR of a protected namespace is 0",
    patch(_put(NSATTR, 0), when=identify(Cns.NAMESPACE)),
)
_noting(
    "nsattr-stays | NVM 4.1.5.1 | NSATTR bit 0 is 1 once a namespace was protected",
    lambda notes: patch(
        _put(NSATTR, 1), when=lambda t, c: identify(Cns.NAMESPACE)(t, c) and ("was", c.nsid) in notes
    ),
    note=_note_past,
)
target(
    "independent-nsattr-clear | Base 5.2.13 | NSATTR of CNS 08h is 0 while the namespace is protected",
    patch(_put(8, 0), when=identify(Cns.CSI_INDEPENDENT)),
)
host(
    "protection-any | Base 1.4.1.6 | a reserved protection state is taken for No Write Protect",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw11=0).encode()),
        when=lambda t, c: SET(t, c) and c.cdw11 & 7 > 3,
    ),
)
_noting(
    "protection-stays | Base 5.2.26.1.35 | a namespace that was protected is not written any more",
    _completing(
        lambda notes, t, c, cqe: (
            replace(cqe, status=PROTECTED) if WRITES(t, c) and ("was", c.nsid) in notes else None
        )
    ),
    note=_note_past,
)


def _until_reset(notes: Notes, through: ProxyConnection, command: Command, cqe: Cqe) -> Cqe | None:
    if command.nsid in notes:
        return None
    if GET(through, command):
        return replace(cqe, result=0)
    return _ok(cqe) if cqe.status == PROTECTED else None


def _note_reset(notes: Notes, through: ProxyConnection, capsule: CapsuleCmd, command: Command) -> None:
    cleared = PROPERTY_SET(through, command) and command.cdw11 == Property.CC and not command.cdw12 & 1
    if cleared:
        notes.clear()


_noting(
    "protection-until-reset | Base 5.2.26.1.35 | a controller reset ends the protection of a namespace",
    _completing(_until_reset),
    note=_note_reset,
)


def _note_host(notes: Notes, through: ProxyConnection, capsule: CapsuleCmd, command: Command) -> None:
    if CONNECT(through, command):
        through.memory["host"] = capsule.data[HOSTID]
    if SET(through, command):
        notes.add(through.memory["host"])


_noting(
    "protection-of-controller | Base 5.2.26.1.35 | a namespace is protected for the host that set it alone",
    _completing(
        lambda notes, t, c, cqe: (
            _ok(cqe) if cqe.status == PROTECTED and t.memory.get("host") not in notes else None
        )
    ),
    note=_note_host,
)
_noting(
    "protection-of-all | Base 3.2.1 | while one namespace is protected, no other one is written",
    _completing(
        lambda notes, t, c, cqe: (
            replace(cqe, status=PROTECTED) if WRITES(t, c) and notes and c.nsid not in notes else None
        )
    ),
)

# What is announced

for _name, _value, _what in (("alone", 6, "bits 2:1 are 1, and bit 0 is 0"), ("reserved", 9, "bit 3 is 1")):
    target(
        f"nwpc-{_name} | Base 5.2.13.2.1 | NWPC: {_what}",
        patch(_put(NWPC, _value), when=identify(Cns.CONTROLLER)),
    )


_RESERVATIONS = (
    Io.RESERVATION_REGISTER,
    Io.RESERVATION_REPORT,
    Io.RESERVATION_ACQUIRE,
    Io.RESERVATION_RELEASE,
)
_noting(
    "protected-reservations | Base 5.2.26.1.35 | reservation commands of a protected namespace are refused",
    _completing(
        lambda notes, t, c, cqe: (
            replace(cqe, status=PROTECTED) if c.nsid in notes and on_io(*_RESERVATIONS)(t, c) else None
        )
    ),
)
