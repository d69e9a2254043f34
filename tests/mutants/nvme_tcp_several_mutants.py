"""Broken rules of several event requests, of Abort among hosts, and of the fields of Connect.

The rules, from the text (NVM Express Base 2.3), before any case:

- 5.2.2: an event completes one request that is outstanding; its type is masked until it is cleared. More
  requests than AERL allows are over the limit; one that was aborted is no longer outstanding (MUST).
- 5.2.1: Abort is of a command of the controller that it was sent to (MUST).
- 6.3: a record format that is not supported is Connect Incompatible Format, on each queue (MUST).
- 4.7: a name has 223 bytes at most, and ends with a NUL (MUST).
- 5.2.26.2.1: 65,536 queues of either kind are an Invalid Field (SHOULD).
- 5.2.12.1.1: a log page whose LSUPP is 0 is not supported (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_depth_mutants import fused
from nvme_tcp_event_mutants import is_event
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    action,
    add,
    commands,
    fabrics,
    feature,
    host,
    identify,
    log,
    on_admin,
    on_io,
    patch,
    put,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

CONNECT = fabrics(Fctype.CONNECT)
EVENT = on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)
ABORT = on_admin(Admin.ABORT)


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


# Event requests and Abort (5.2.1, 5.2.2)


def _aborts(through: ProxyConnection, command: Command) -> bool:
    """Whether an Abort names an event request that is outstanding."""
    victim = through.commands.get(command.cdw10 >> 16)
    return ABORT(through, command) and victim is not None and EVENT(through, victim)


def _ends_all(through: ProxyConnection, got: DecodedPdu) -> None:
    command = _command(got)
    if command is not None and _aborts(through, command):
        for cid, one in list(through.commands.items()):
            if EVENT(through, one) and cid != command.cdw10 >> 16:
                through.reply(Cqe(cid, StatusCode.ABORTED_BY_REQUEST))


host("abort-ends-all-requests | Base 5.2.1 | Abort of an event request ends all of them", _ends_all)


def _notes_abort(through: ProxyConnection, got: DecodedPdu) -> None:
    command = _command(got)
    if command is not None and _aborts(through, command):
        through.memory["aborted"] = True


def _takes_any(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    over = is_event(through, got) and through.memory.get("aborted") and isinstance(got.pdu, CapsuleResp)
    return [] if over and Cqe.decode(got.pdu.cqe).status == StatusCode.AER_LIMIT_EXCEEDED else None


add("abort-frees-every-request | Base 5.2.2 | after an Abort no event request is over the limit",
    lambda: ProxyConnection(of_host=_notes_abort, of_target=_takes_any))  # fmt: skip


def _loses(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    lost = is_event(through, got) and through.memory.get("aborted") and isinstance(got.pdu, CapsuleResp)
    return [] if lost and Cqe.decode(got.pdu.cqe).ok else None


add("abort-loses-the-other-requests | Base 5.2.2 | after an Abort no event completes a request",
    lambda: ProxyConnection(of_host=_notes_abort, of_target=_loses))  # fmt: skip


def _asks(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Answer one request with the event that an earlier one was completed with at once."""
    command = _command(got)
    if command is None or through.qid:
        return None
    if not EVENT(through, command):
        through.memory.pop("asked", None)
        return None
    if "waited" in through.memory:
        through.reply(replace(through.memory.pop("waited"), cid=command.cid))
        return []
    through.memory["asked"] = command.cid
    return None


def _waits(through: ProxyConnection, got: DecodedPdu) -> None:
    if is_event(through, got) and isinstance(got.pdu, CapsuleResp):
        cqe = Cqe.decode(got.pdu.cqe)
        if cqe.ok and through.memory.pop("asked", None) == cqe.cid:
            through.memory["waited"] = cqe


add("event-that-waited-again | Base 5.2.2 | an event that waited for a request completes two of them",
    lambda: ProxyConnection(of_host=_asks, of_target=_waits))  # fmt: skip


def _of_any_host(notes: set[Any]) -> ProxyConnection:
    """``notes``: SQID and CID that the Aborts of other connections have named."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        command = _command(got)
        for qid, cid in [note for note in notes if note[0] == through.qid]:
            if cid in through.commands and (command is None or cid != command.cid):
                through.reply(Cqe(cid, StatusCode.ABORTED_BY_REQUEST))
                notes.discard((qid, cid))
        if command is not None and ABORT(through, command):
            notes.add((command.cdw10 & 0xFFFF, command.cdw10 >> 16))

    return ProxyConnection(of_host=of_host)


shared("abort-of-any-host | Base 5.2.1 | Abort ends a command of another host's controller", _of_any_host)


# Connect (6.3), Number of Queues (5.2.26.2.1), the list of log pages (5.2.12.1.1)


def _format(row: str, mask: int, *, io: bool = False) -> None:
    """Look at the bits ``mask`` of RECFMT alone; ``io``: of I/O queues only."""

    def change(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
        return replace(capsule, sqe=replace(command, cdw10=command.cdw10 & (0xFFFF << 16 | mask)).encode())

    host(row, commands(change, when=lambda t, c: CONNECT(t, c) and (not io or c.cdw10 >> 16 > 0)))


_format(
    "format-of-io-queues-ignored | Base 6.3 | RECFMT of the Connect of an I/O queue is not looked at",
    0,
    io=True,
)
_format("format-low-byte | Base 6.3 | the upper byte of RECFMT is not looked at", 0x00FF)
_format("format-high-byte | Base 6.3 | the lower byte of RECFMT is not looked at", 0xFF00)


def _cut(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = _command(got)
    if command is None or not CONNECT(through, command) or not isinstance(got.pdu, CapsuleCmd):
        return None
    data = ConnectData.decode(got.pdu.data)
    return [replace(got.pdu, data=replace(data, hostnqn=str(data.hostnqn)[:223]).encode())]


host("host-name-without-end | Base 4.7 | a Host NQN whose NUL is missing is cut to 223 bytes", _cut)

target("queues-of-one-kind-ffff | Base 5.2.26.2.1 | 65,536 queues of one kind are granted",
       accepts(StatusCode.INVALID_FIELD,
               when=lambda t, c: feature(Admin.SET_FEATURES, Feature.NUMBER_OF_QUEUES)(t, c)
               and c.cdw11 in (0xFFFF, 0xFFFF << 16)))  # fmt: skip
target("log-list-lacks-changed | Base 5.2.12.1.1 | the list lacks the Changed Attached Namespace List",
       patch(put(4 * LogPage.CHANGED_NAMESPACES, bytes(4)), when=log(LogPage.SUPPORTED)))  # fmt: skip
target("rescap-lacks-persistence | Base 7.6 | reservations persist, and RESCAP states that they do not",
       patch(lambda raw: raw[:31] + bytes([raw[31] & ~1]) + raw[32:],
             when=identify(Cns.NAMESPACE)))  # fmt: skip


# Several registrants (7.8, 8.1.24.7)

REPORT = on_io(Io.RESERVATION_REPORT)


def _counts(raw: bytes) -> bytes:
    fits = (len(raw) - 64) // 64
    return put(5, fits.to_bytes(2, "little"))(raw) if int.from_bytes(raw[5:7], "little") > fits else raw


target("report-counts-what-fits | Base 7.8 | a report counts the registrants that fit into it",
       patch(_counts, when=REPORT))  # fmt: skip


def _preempts(through: ProxyConnection, got: DecodedPdu) -> None:
    """Remember the registrants that stay: those of the victim's key, but for the first."""
    command = _command(got)
    if command is None or not isinstance(got.pdu, CapsuleCmd):
        return
    if action(Io.RESERVATION_ACQUIRE, 1, 2)(through, command) and "report" in through.memory:
        raw, key = through.memory["report"], got.pdu.data[8:16]
        entries = [raw[at : at + 64] for at in range(64, 64 + 64 * int.from_bytes(raw[5:7], "little"), 64)]
        through.memory["stay"] = b"".join([one for one in entries if one[8:16] == key][1:])


def _stays(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or command is None or not REPORT(through, command):
        return None
    raw = through.memory["report"] = got.pdu.data
    stay = through.memory.get("stay", b"")
    count = int.from_bytes(raw[5:7], "little")
    new = raw[:5] + (count + len(stay) // 64).to_bytes(2, "little") + raw[7 : 64 + 64 * count] + stay
    return [replace(got.pdu, data=new.ljust(len(raw), b"\0")[: len(raw)])]


add("preempt-of-holder-alone | Base 8.1.24.7 | a Preempt unregisters one of the hosts that have the key",
    lambda: ProxyConnection(of_host=_preempts, of_target=_stays))  # fmt: skip


def _first_notified(known: set[Any]) -> ProxyConnection:
    """``known``: the connection that a preemption was reported to."""

    def change(raw: bytes) -> bytes:
        return bytes(len(raw)) if known and raw[8:9] == b"\1" else raw

    rule = patch(change, when=log(LogPage.RESERVATION_NOTIFICATION))

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        out = rule(through, got)
        if out is not None and isinstance(got.pdu, C2HData) and got.pdu.data[8:9] == b"\1":
            known.add(True)
        return out

    return ProxyConnection(of_target=of_target)


shared("second-preempted-unnotified | Base 8.1.24.7 | of several preempted hosts one is notified",
       _first_notified)  # fmt: skip


# Digests (NVMe/TCP 3.5)


def _of_first(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    wrong = isinstance(got.pdu, H2CData) and not got.pdu.offset and got.data_digest_ok is False
    return [got.pdu] if wrong else None


def _of_admin(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    return [got.pdu] if got.data_digest_ok is False and not through.qid else None


host(
    "ddgst-first-unchecked | NVMe/TCP 3.5 | a wrong data digest of the first H2CData is not detected",
    _of_first,
)
host(
    "ddgst-admin-unchecked | NVMe/TCP 3.5 | a wrong data digest on the admin queue is not detected", _of_admin
)


# Places of a queue that are used again (3.4.2, 5.2.14)

LATE = 100
"""Commands until a place is used again (chosen)."""


def _counted(through: ProxyConnection, name: str) -> int:
    through.memory[name] = through.memory.get(name, 0) + 1
    return int(through.memory[name])


target("keep-alive-result-late | Base 5.2.14 | the hundredth Keep Alive has the result of an earlier command",
       response(lambda t, c, cqe: replace(cqe, result=0x2_0030_0100)
                if c and on_admin(Admin.KEEP_ALIVE)(t, c) and _counted(t, "kept") == LATE
                else None))  # fmt: skip


def _fails_again(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Answer both halves of one operation in the controller's place."""
    command = _command(got)
    if command is None or not through.qid or not command.flags & 3:
        return None
    number = _counted(through, "halves")
    if number not in (2 * LATE, 2 * LATE + 1):
        return None
    through.reply(Cqe(command.cid, StatusCode.ABORTED_MISSING_FUSED, sqhd=1))
    return []


fused("fused-fails-again | Base 3.4.2 | of later operations one fails as a half without the other",
      of_host=_fails_again)  # fmt: skip


def _right_half(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = _command(got)
    wrong = command is not None and through.qid and command.flags & 3 and got.data_digest_ok is False
    return [got.pdu] if wrong else None


fused("fused-ddgst-unchecked | NVMe/TCP 3.5 | a wrong data digest of a half is not detected",
      of_host=_right_half)  # fmt: skip


def _fails_after_r2t(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Answer both halves of the operation behind one whose data came by R2T, in the controller's place."""
    command = _command(got)
    if command is None or not through.qid:
        return None
    if not command.flags & 3:
        through.memory["halves by r2t"] = 0
        return None
    spoilt = through.memory.get("spoilt", 0)
    if command.flags & 3 == 1:
        spoilt = through.memory["spoilt"] = through.memory.get("halves by r2t", 0) > 0
        through.memory["halves by r2t"] = 0
    if spoilt:
        through.reply(Cqe(command.cid, StatusCode.ABORTED_MISSING_FUSED, sqhd=1))
        return []
    through.memory["halves by r2t"] = through.memory.get("halves by r2t", 0) + (command.dptr[15] == 0x5A)
    return None


fused("fused-fails-after-r2t | Base 3.4.2 | an operation behind one whose data came by R2T is aborted",
      of_host=_fails_after_r2t)  # fmt: skip
