"""Broken rules of writes that wait for their data, of CIDs and QIDs used again, and of what errors leave.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- NVM 2.1.4.2: a write of at most AWUN is atomic with respect to other read or write commands (MUST).
- NVM 2.1.4.3: of a write of at most AWUPF that fails, all old or all new data are returned (MUST).
- 4.1.1: a CID is free when its command is complete, and names no other command (MUST).
- 6.4: Disconnect deletes the I/O queue, whatever other queues there are (MUST).
- 5.2.12.1.2: the most recent error is the first entry, in a log that is full, too (MUST).
- 5.2.26: a Set Features that is aborted sets no value (MUST).
- 5.2.2: the request that is over AERL is aborted, and no other (MUST).
- NVM 4.1.5.1: an inactive NSID returns zeroes, whatever was identified before (MUST).
- 8.1.24.7: a Preempt unregisters every registrant of the key (MUST).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    add,
    command,
    drops_command,
    fabrics,
    host,
    identify,
    log,
    on_admin,
    on_io,
    patch,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

Notes = set[Any]
CNTLID = slice(16, 18)
"""Bytes of the data of Connect (6.3)."""
ENTRY = 64
"""Bytes of an entry of the error log, and of a registrant in the report (5.2.12.1.2, 7.8)."""
PREEMPT = 1


def _command(got: DecodedPdu) -> Command | None:
    return Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None


def _place(command: Command) -> tuple[int, int, int]:
    """Return the namespace, the LBA and the number of blocks of a Read or Write."""
    return command.nsid, command.cdw10 | command.cdw11 << 32, command.cdw12


# Writes that wait for their data


def _waiting(through: ProxyConnection, got: DecodedPdu, *, torn: bool) -> Any:
    """Return connection, CID, place and data of a write that waits, for :func:`_pending`; or None."""
    sent = _command(got)
    if not torn and sent is not None and on_io(Io.WRITE)(through, sent):
        return id(through), sent.cid, _place(sent), b""
    if torn and isinstance(got.pdu, H2CData) and not got.pdu.offset and got.pdu.cccid in through.commands:
        return id(through), got.pdu.cccid, _place(through.commands[got.pdu.cccid]), got.pdu.data
    return None


def _pending(row: str, *, torn: bool) -> None:
    """A mutant whose reads return zeroes, or what has come of the data, while a write of the blocks waits."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            notes.update(filter(None, [_waiting(through, got, torn=torn)]))
            return None

        def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleResp):
                key = (id(through), Cqe.decode(got.pdu.cqe).cid)
                notes.difference_update([note for note in notes if note[:2] == key])
                return None
            reading = through.command_of(got)
            if not isinstance(got.pdu, C2HData) or got.pdu.offset or reading is None:
                return None
            old = got.pdu.data
            for _, _, place, data in list(notes):
                if reading.opcode == Io.READ and place == _place(reading):
                    return [replace(got.pdu, data=data + old[len(data) :] if torn else bytes(len(old)))]
            return None

        return ProxyConnection(of_host=of_host, of_target=of_target)

    shared(row, sharing)


_pending(
    "pending-write-clears | NVM 2.1.4.2 | blocks read as zeroes while a write of them waits for its data",
    torn=False,
)
_pending(
    "pending-write-torn | NVM 2.1.4.3 | what has come of a write is on the medium, although no more comes",
    torn=True,
)


# CIDs and QIDs used again


def _as_before(through: ProxyConnection, sent: Command) -> bool:
    """Whether a write has CID, opcode and place of the command before it."""
    if not through.qid:
        return False
    key = (sent.cid, sent.opcode, _place(sent))
    before, through.memory["key"] = through.memory.get("key"), key
    return sent.opcode == Io.WRITE and key == before


host(
    "cid-write-cached | Base 4.1.1 | a write with CID and blocks of the one before it is not done",
    drops_command(_as_before),
)


def _read_cached(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Return the data that the first read of a CID and its blocks had."""
    reading = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or reading is None or not on_io(Io.READ)(through, reading):
        return None
    key = (reading.cid, _place(reading), got.pdu.offset)
    data = through.memory.setdefault(key, got.pdu.data)
    return None if data == got.pdu.data else [replace(got.pdu, data=data)]


target(
    "cid-read-cached | Base 4.1.1 | a read with CID and blocks of an earlier one has its data", _read_cached
)


def _keeps_qid(notes: Notes) -> ProxyConnection:
    """``notes``: CNTLID and QID of each I/O queue, and of each that was disconnected next to another."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        sent = _command(got)
        if sent is not None and fabrics(Fctype.CONNECT)(through, sent) and through.qid:
            assert isinstance(got.pdu, CapsuleCmd)
            key = (got.pdu.data[CNTLID], through.qid)
            through.memory |= {"key": key, "kept": ("kept", key) in notes}
            notes.add(key)
        elif sent is not None and fabrics(Fctype.DISCONNECT)(through, sent) and "key" in through.memory:
            key = through.memory["key"]
            if any(note != key and note[0] == key[0] for note in notes):
                notes.add(("kept", key))
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp) or not through.memory.get("kept"):
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        return [CapsuleResp(replace(cqe, status=StatusCode.COMMAND_SEQUENCE_ERROR).encode())]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "disconnect-qid-kept | Base 6.4 | a disconnected QID is not free while there is another I/O queue",
    _keeps_qid,
)


# What errors leave behind


def _not_turned(raw: bytes) -> bytes:
    """Return a full error log as a ring of entries that begins where its memory does."""
    entries = [raw[at : at + ENTRY] for at in range(0, len(raw), ENTRY)]
    counts = [int.from_bytes(entry[:8], "little") for entry in entries]
    if len(entries) < 4 or not all(counts):  # not full
        return raw
    return b"".join(sorted(entries, key=lambda entry: int.from_bytes(entry[:8], "little") % len(entries)))


target(
    "error-log-not-turned | Base 5.2.12.1.2 | a full error log is returned in the order of its memory",
    patch(_not_turned, when=log(LogPage.ERROR)),
)


def _set_anyway(through: ProxyConnection, sent: Command | None, cqe: Cqe) -> Cqe | None:
    """Return the value of a refused Set Features as the current one."""
    if sent is None or through.qid:
        return None
    fid, select = sent.cdw10 & 0xFF, sent.cdw10 >> 8 & 7
    if sent.opcode == Admin.SET_FEATURES:
        if cqe.ok:
            through.memory.pop(fid, None)
        else:
            through.memory[fid] = sent.cdw11
    elif sent.opcode == Admin.GET_FEATURES and cqe.ok and not select and fid in through.memory:
        return replace(cqe, result=through.memory[fid])
    return None


target(
    "refused-value-set | Base 5.2.26 | a Set Features that is refused sets its value", response(_set_anyway)
)


def _forgets_requests(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    sent = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or sent is None:
        return None
    if not on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, sent):
        return None
    if Cqe.decode(got.pdu.cqe).status == StatusCode.AER_LIMIT_EXCEEDED:
        through.memory["forgotten"] = True
        return None
    return [] if through.memory.get("forgotten") else None


target(
    "event-lost-after-limit | Base 5.2.2 | a request over AERL ends the reports of events",
    _forgets_requests,
)


def _stale(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Return the data of the namespace that was identified last, for one that is inactive."""
    sent = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or sent is None or not identify(Cns.NAMESPACE)(through, sent):
        return None
    if any(got.pdu.data):
        through.memory[got.pdu.offset] = got.pdu.data
        return None
    data = through.memory.get(got.pdu.offset)
    return None if data is None else [replace(got.pdu, data=data)]


target("identify-stale | NVM 4.1.5.1 | an inactive NSID has the data of the NSID before it", _stale)


# Preempt


def _keeps_registrant(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Report all but one of the registrants of a preempted key as before."""
    sent = through.command_of(got)
    match got.pdu:
        case CapsuleCmd(sqe, data) if command(Io.RESERVATION_ACQUIRE, io=True)(through, Command.decode(sqe)):
            if Command.decode(sqe).cdw10 & 7 == PREEMPT:
                through.memory["victim"] = data[8:16]
        case C2HData(data=raw) if sent is not None and sent.opcode == Io.RESERVATION_REPORT:
            before, victim = through.memory.get("report"), through.memory.get("victim")
            through.memory["report"] = raw
            if before is None or victim is None:
                return None
            found = [before[at : at + ENTRY] for at in range(ENTRY, len(before), ENTRY)]
            kept = [entry for entry in found if entry[8:16] == victim][1:]
            count = int.from_bytes(raw[5:7], "little")
            end = ENTRY * (1 + count)
            new = raw[:5] + struct.pack("<H", count + len(kept)) + raw[7:end] + b"".join(kept)
            return [replace(got.pdu, data=new.ljust(len(raw), b"\0"))] if kept else None
    return None


add(
    "preempt-first-of-key | Base 8.1.24.7 | a Preempt unregisters one of the registrants of a key",
    lambda: ProxyConnection(of_host=_keeps_registrant, of_target=_keeps_registrant),
)
