"""Broken rules of two hosts at the same time.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- NVM 3.3.1, 3.3.2, 3.3.4: Compare, Copy and Read are of the data that were written last, by any host (MUST).
- NVM 3.3.7: a marked block is read by no host until it is written (MUST).
- 3.1.3: what ends one controller ends no command of another (MUST); 6.4: Disconnect is of one queue (MUST).
- 5.2.12.1.2: the error log is of one controller (MUST).
- 8.1.24.1: a reservation is of a host, on each of its controllers (MUST); 8.1.24.6: registrants are notified.
- 5.2.12.1.35: a controller's log page is cleared by its own host (MUST).
- 3.9.5: each controller has a Keep Alive Timer of its own (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import add, drops_command, fabrics, hang_up, host, log, on_admin, on_io, shared

from storagetest.wire.nvme.codes import Admin, Fctype, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

Notes = set[Any]
HOSTID = slice(0, 16)
"""Bytes of the data of Connect (6.3)."""
CONNECT, DISCONNECT = fabrics(Fctype.CONNECT), fabrics(Fctype.DISCONNECT)
CHANGES = (Io.WRITE, Io.WRITE_ZEROES, Io.COPY, Io.DATASET_MANAGEMENT)
RELEASE = 0
RESERVATION_EVENT = 6 | LogPage.RESERVATION_NOTIFICATION << 16
"""Result of an Asynchronous Event Request (5.2.2)."""


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


def _lba(sent: Command) -> tuple[int, int]:
    """Return the first LBA of a command, and its number of blocks."""
    return sent.cdw10 | sent.cdw11 << 32, sent.cdw12 & 0xFFFF


def _both(row: str, of_host: Rule, of_target: Rule) -> None:
    add(row, lambda: ProxyConnection(of_host=of_host, of_target=of_target))


def _read_data(through: ProxyConnection, got: DecodedPdu) -> tuple[Command, bytes] | None:
    """Return a Read and the data that it returns, if they are in one PDU."""
    sent = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or sent is None or not on_io(Io.READ)(through, sent):
        return None
    return None if got.pdu.offset or not got.pdu.last else (sent, got.pdu.data)


# What another host has changed: ``memory`` has the blocks of one LBA each as the connection knows them


def _forgets_changed(through: ProxyConnection, got: DecodedPdu) -> None:
    """Forget what was read once the connection itself changes blocks."""
    sent = _command(got)
    if sent is not None and on_io(*CHANGES)(through, sent):
        through.memory["known"] = {}


def _reads_own(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    read = _read_data(through, got)
    if read is None:
        return None
    known = through.memory.setdefault("known", {}).setdefault(_lba(read[0]), read[1])
    return None if known == read[1] else [replace(got.pdu, data=known)]  # type: ignore[type-var]


_both(
    "read-of-own-change | NVM 3.3.4 | a read is of the last change by its own queue, not by another host",
    _forgets_changed,
    _reads_own,
)


def _compares_own(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Compare in-capsule data with what was read last."""
    _forgets_changed(through, got)
    sent = _command(got)
    known = through.memory.get("known", {})
    if sent is None or not on_io(Io.COMPARE)(through, sent) or _lba(sent) not in known:
        return None
    assert isinstance(got.pdu, CapsuleCmd)
    equal = got.pdu.data == known[_lba(sent)]
    through.reply(Cqe(sent.cid, 0 if equal else StatusCode.COMPARE_FAILURE, sqhd=1))
    return []


def _remembers(through: ProxyConnection, got: DecodedPdu) -> None:
    read = _read_data(through, got)
    if read is not None:
        through.memory.setdefault("known", {})[_lba(read[0])] = read[1]


_both(
    "compare-of-own-read | NVM 3.3.1 | Compare is of what its own queue has read, not of another's write",
    _compares_own,
    _remembers,
)


def _copies_own(through: ProxyConnection, got: DecodedPdu) -> None:
    """Remember a block that is written, and the target of its copy."""
    sent = _command(got)
    if sent is None or not through.qid or not isinstance(got.pdu, CapsuleCmd):
        return
    written, copied = through.memory.setdefault("written", {}), through.memory.setdefault("copied", {})
    if sent.opcode == Io.WRITE:
        written[_lba(sent)] = got.pdu.data
    elif sent.opcode == Io.COPY and len(got.pdu.data) == 32:
        source = (int.from_bytes(got.pdu.data[8:16], "little"), 0)
        if source in written:
            copied[sent.cdw10, 0] = written[source]


def _returns_copied(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    read = _read_data(through, got)
    known = None if read is None else through.memory.get("copied", {}).get(_lba(read[0]))
    if read is None or known is None or known == read[1]:
        return None
    return [replace(got.pdu, data=known)]  # type: ignore[type-var]


_both(
    "copy-of-own-write | NVM 3.3.2 | Copy is of what its own queue has written, not of another host's change",
    _copies_own,
    _returns_copied,
)


def _marks(through: ProxyConnection, got: DecodedPdu) -> None:
    sent = _command(got)
    if sent is not None and on_io(Io.WRITE_UNCORRECTABLE)(through, sent):
        through.memory["marked"] = True


def _reads_others_mark(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleResp) or through.memory.get("marked"):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if cqe.status != StatusCode.UNRECOVERED_READ_ERROR:
        return None
    return [CapsuleResp(replace(cqe, status=0, dnr=False).encode())]


_both("mark-of-own | NVM 3.3.7 | a mark holds for the queue that has set it", _marks, _reads_others_mark)


# What ends


def _loses_pending(notes: Notes) -> ProxyConnection:
    """``notes`` has the connections whose write waits, and those whose write is lost."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        sent, mine = _command(got), id(through)
        if sent is None:
            return
        if on_io(Io.WRITE)(through, sent):
            notes.add(("waits", mine))
        ends = sent.cdw12 & 1 == 0 or sent.cdw12 >> 14 & 3
        if fabrics(Fctype.PROPERTY_SET)(through, sent) and sent.cdw11 == Property.CC and ends:
            notes.update({("lost", one) for what, one in notes if what == "waits"})

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent, mine = through.command_of(got), id(through)
        if not isinstance(got.pdu, CapsuleResp) or sent is None or not on_io(Io.WRITE)(through, sent):
            return None
        notes.discard(("waits", mine))
        if ("lost", mine) not in notes:
            return None
        notes.discard(("lost", mine))
        cqe = Cqe.decode(got.pdu.cqe)
        return [CapsuleResp(replace(cqe, status=StatusCode.ABORTED_BY_REQUEST).encode())]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "end-loses-pending | Base 3.1.3 | a reset or a shutdown aborts the writes of every controller that wait",
    _loses_pending,
)


def _disconnects_all(notes: Notes) -> ProxyConnection:
    """``notes`` has QID and connection of each queue that was disconnected."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = _command(got)
        if sent is not None and DISCONNECT(through, sent):
            notes.add((through.qid, id(through)))
        elif through.qid and any(qid == through.qid and one != id(through) for qid, one in notes):
            return hang_up()
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "disconnect-of-every-host | Base 6.4 | Disconnect ends the I/O queues of that QID of every host",
    _disconnects_all,
)


def _keeps_alive(notes: Notes) -> ProxyConnection:
    """``notes`` has the Host Identifiers of associations."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = _command(got)
        if sent is None or not CONNECT(through, sent) or through.qid:
            return None
        assert isinstance(got.pdu, CapsuleCmd)
        again = got.pdu.data[HOSTID] in notes
        notes.add(got.pdu.data[HOSTID])
        endless = replace(sent, cdw12=3_600_000)
        return [replace(got.pdu, sqe=endless.encode())] if again else None

    return ProxyConnection(of_host=of_host)


shared(
    "pair-keeps-alive | Base 3.9.5 | the Keep Alive Timer of a host's second controller never expires",
    _keeps_alive,
)


# What is logged


def _logs_all(notes: Notes) -> ProxyConnection:
    """``notes`` has a number for each command that failed on an I/O queue of any host."""

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = through.command_of(got)
        if isinstance(got.pdu, CapsuleResp) and through.qid and not Cqe.decode(got.pdu.cqe).ok:
            notes.add(len(notes))
        if not isinstance(got.pdu, C2HData) or sent is None or not log(LogPage.ERROR)(through, sent):
            return None
        entry = len(notes).to_bytes(8, "little") + got.pdu.data[8:]
        return [replace(got.pdu, data=entry)] if notes else None

    return ProxyConnection(of_target=of_target)


shared("error-log-of-all | Base 5.2.12.1.2 | the error log counts the errors of every controller", _logs_all)


def _acquired(through: ProxyConnection, sent: Command) -> bool:
    """Whether this is a Release on a queue that has acquired no reservation."""
    if on_io(Io.RESERVATION_ACQUIRE)(through, sent):
        through.memory["acquired"] = True
    release = on_io(Io.RESERVATION_RELEASE)(through, sent) and sent.cdw10 & 7 == RELEASE
    return release and not through.memory.get("acquired")


host(
    "release-of-controller | Base 8.1.24.1 | a Release on another controller of the holder does nothing",
    drops_command(_acquired),
)


def _notified(
    change: Callable[[ProxyConnection, Notes, DecodedPdu], Iterable[Item] | None], row: str
) -> None:
    """A mutant that notes hosts that register, and that a reservation was released."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
            sent = _command(got)
            if sent is None:
                return
            if CONNECT(through, sent):
                assert isinstance(got.pdu, CapsuleCmd)
                through.memory["host"] = got.pdu.data[HOSTID]
            elif on_io(Io.RESERVATION_REGISTER)(through, sent):
                notes.add(("registered", through.memory["host"]))
            elif on_io(Io.RESERVATION_RELEASE)(through, sent):
                notes.add(("released", b""))

        def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            return change(through, notes, got)

        return ProxyConnection(of_host=of_host, of_target=of_target)

    shared(row, sharing)


def _to_strangers(through: ProxyConnection, notes: Notes, got: DecodedPdu) -> Iterable[Item] | None:
    """Complete the event request of a host that has not registered, before another response."""
    waiting = [
        cid
        for cid, one in through.commands.items()
        if on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, one)
    ]
    stranger = ("registered", through.memory.get("host")) not in notes
    if not waiting or not stranger or ("released", b"") not in notes or not isinstance(got.pdu, CapsuleResp):
        return None
    del through.commands[waiting[0]]
    return [CapsuleResp(Cqe(waiting[0], result=RESERVATION_EVENT, sqhd=1).encode()), got.pdu]


_notified(
    _to_strangers,
    "notice-to-strangers | Base 8.1.24.6 | a release is reported to a host that is no registrant",
)


def _read_by_another(through: ProxyConnection, notes: Notes, got: DecodedPdu) -> Iterable[Item] | None:
    """Return an empty log page once another host has read its own."""
    sent = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or sent is None:
        return None
    if not log(LogPage.RESERVATION_NOTIFICATION)(through, sent):
        return None
    mine = ("read", through.memory.get("host"))
    if any(note[0] == "read" and note != mine for note in notes):
        return [replace(got.pdu, data=bytes(len(got.pdu.data)))]
    notes.add(mine)
    return None


_notified(
    _read_by_another,
    "notice-read-by-another | Base 5.2.12.1.35 | a notification that one host reads is read for every host",
)
