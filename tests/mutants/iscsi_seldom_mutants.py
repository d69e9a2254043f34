"""Broken rules of commands and fields that few initiators use.

The rules, from the text, before any case:

- SBC-3 WRITE SAME(16): with NDOB the blocks are written as if the Data-Out Buffer had zeroes; with UNMAP,
  reads behave as if the block that was sent had been written (MUST).
- SBC-3 VERIFY: with BYTCHK of 11b the block that was sent is compared with each block of the range (MUST).
- SPC-4 LOG SENSE: page 00h lists all pages in ascending order, each of which is returned; PAGE LENGTH is not
  altered by the allocation length; another page is an invalid field (MUST).
- SPC-4 TPGS: a unit with asymmetric access reports its target port groups, which page 83h refers to (MUST).
- SPC-4 REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: a function that is reported is supported (MUST).
- SPC-4 PREEMPT: a holder that preempts itself stays registered, with the reservation that it asks for (MUST).
- SBC-3 UNMAP: each descriptor of the list counts (MUST).
- RFC 7143 11.5.1: LOGICAL UNIT RESET ends the tasks of every initiator (MUST).
- RFC 7143 11.4.5: a write states what of it was not transferred because too little was expected (MUST).
- RFC 7143 13.12: MaxRecvDataSegmentLength is declared for one connection (MUST).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_optional_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, good

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginRequest,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
)
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, SenseKey

WRITE_SAME, VERIFY, LOG_SENSE, MAINTENANCE_IN = 0x93, 0x8F, 0x4D, 0xA3
NDOB, UNMAP, ONE_BLOCK = 0x01, 0x08, 0x06
"""Of byte 1 of WRITE SAME(16) and of VERIFY(16)."""
GROUPS, TASKS = 0x0A, 0x0D
UNMAP_LIST, RESERVE_IN, RESERVE_OUT = 0x42, 0x5E, 0x5F
KEY = "MaxRecvDataSegmentLength"


# WRITE SAME


@on_request("ndob-ignored | SBC-3 WRITE SAME(16) | with NDOB nothing is written", kind=KIND)
def ndob_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == WRITE_SAME and pdu.cdb[1] & NDOB
    return replace(pdu, cdb=bytes(16)) if ours else pdu


def _verify_instead(block: bytes) -> bytes:
    """Return a VERIFY(16) that takes the data of a WRITE SAME(16) and writes nothing."""
    return bytes((VERIFY, ONE_BLOCK)) + block[2:]


@on_request("same-unmap-kept | SBC-3 WRITE SAME(16) | with UNMAP nothing is written", kind=KIND)
def same_unmap_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != WRITE_SAME or not pdu.cdb[1] & UNMAP:
        return pdu
    talk.memory["kept"] = pdu.itt
    return replace(pdu, cdb=_verify_instead(pdu.cdb))


@mutant(
    "same-unmap-zeroes | SBC-3 WRITE SAME(16) | with UNMAP the blocks are zeroes, whatever was sent",
    kind=KIND,
)
def same_unmap_zeroes(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == WRITE_SAME and talk.cdb(pdu)[1] & UNMAP:
        talk.memory["zeroes"] = True
    if isinstance(pdu, DataIn) and talk.memory.get("zeroes") and talk.cdb(pdu)[0] == 0x88:
        return replace(pdu, data=pdu.data[:512] + bytes(len(pdu.data) - 1024) + pdu.data[-512:])
    return pdu


# VERIFY


def _compares_one(block: bytes) -> bool:
    return block[0] == VERIFY and block[1] & ONE_BLOCK == ONE_BLOCK


def _verdicts(row: str, change: Callable[[ScsiResponse], Pdu]) -> None:
    """A mutant of the response to VERIFY(16) with BYTCHK of 11b."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return change(pdu) if isinstance(pdu, ScsiResponse) and _compares_one(talk.cdb(pdu)) else pdu


_verdicts(
    "verify-one-refused | SBC-3 VERIFY | BYTCHK of 11b is a miscompare for equal blocks",
    lambda pdu: pdu if pdu.status else check(pdu, SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY),
)
_verdicts("verify-one-good | SBC-3 VERIFY | BYTCHK of 11b compares nothing", good)


@on_request(
    "verify-one-block | SBC-3 VERIFY | BYTCHK of 11b compares the first block of the range alone", kind=KIND
)
def verify_one_block(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or not _compares_one(pdu.cdb):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:10] + b"\0\0\0\1" + pdu.cdb[14:])


# Lists


def _lists(row: str, opcode: int, change: Callable[[bytes, bytes], bytes]) -> None:
    """A mutant that changes the data of a command: ``change(CDB, data)``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and block[0] == opcode
        return replace(pdu, data=change(block, pdu.data)) if ours else pdu


def _reversed(block: bytes, data: bytes) -> bytes:
    return data[:4] + data[:3:-1] if not block[2] & 0x3F else data


def _cut_length(block: bytes, data: bytes) -> bytes:
    return data[:2] + (len(data) - 4).to_bytes(2, "big") + data[4:]


_lists("log-list-order | SPC-4 LOG SENSE | the list of log pages is descending", LOG_SENSE, _reversed)
_lists(
    "log-page-other | SPC-4 LOG SENSE | each page has the code of the list of pages",
    LOG_SENSE,
    lambda block, data: b"\0" + data[1:],
)
_lists(
    "log-length-cut | SPC-4 LOG SENSE | PAGE LENGTH is that of the data that were returned",
    LOG_SENSE,
    _cut_length,
)
_lists(
    "groups-other-number | SPC-4 REPORT TARGET PORT GROUPS | the group has another number than in page 83h",
    MAINTENANCE_IN,
    lambda block, data: data[:7] + bytes((data[7] ^ 1,)) + data[8:] if block[1] == GROUPS else data,
)
_lists(
    "groups-other-port | SPC-4 REPORT TARGET PORT GROUPS | the port of the session is in no group",
    MAINTENANCE_IN,
    lambda block, data: data[:15] + bytes((data[15] ^ 1,)) if block[1] == GROUPS else data,
)
_lists(
    "tasks-reported-more | SPC-4 REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS | CLEAR TASK SET is reported",
    MAINTENANCE_IN,
    lambda block, data: bytes((data[0] | 0x10,)) + data[1:] if block[1] == TASKS else data,
)


def _refuses(row: str, of: Callable[[bytes], bool]) -> None:
    """A mutant that refuses a command with data-in."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not of(talk.cdb(pdu)):
            return pdu
        refusal = check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        return refusal if isinstance(pdu, ScsiResponse) else None


_refuses(
    "log-page-refused | SPC-4 LOG SENSE | a listed page is refused",
    lambda block: block[0] == LOG_SENSE and bool(block[2] & 0x3F),
)
_refuses(
    "groups-refused | SPC-4 TPGS | with TPGS, REPORT TARGET PORT GROUPS is refused",
    lambda block: block[0] == MAINTENANCE_IN and block[1] == GROUPS,
)


@mutant("log-absent-good | SPC-4 LOG SENSE | a page that does not exist is GOOD, without data", kind=KIND)
def log_absent_good(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = isinstance(pdu, ScsiResponse) and pdu.status and talk.cdb(pdu)[0] == LOG_SENSE
    return good(pdu) if refused else pdu


# Several of a kind


@on_request("unmap-later-ignored | SBC-3 UNMAP | descriptors after the fourth are ignored", kind=KIND)
def unmap_later_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    first = 8 + 4 * 16
    ours = isinstance(pdu, (ScsiCommand, DataOut)) and talk.cdb(pdu)[0] == UNMAP_LIST
    if not ours or len(pdu.data) <= first:
        return pdu
    later = pdu.data[first:]
    empty = b"".join(later[at : at + 8] + bytes(8) for at in range(0, len(later), 16))
    return replace(pdu, data=pdu.data[:first] + empty)


@on_request(
    "segment-of-first-session | RFC 7143 13.12 | a session has the segment length of the first one",
    kind="unsolicited",
)
def segment_of_first_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or KEY.encode() not in pdu.data:
        return pdu
    pairs = parse_text(pdu.data)
    first = talk.shared.setdefault(("first", talk.name), dict(pairs)[KEY])
    return replace(pdu, data=format_text((name, first if name == KEY else value) for name, value in pairs))


# A holder that preempts itself


def _preempts_itself(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note the type of each RESERVE, and the key of a PREEMPT of its own sender."""
    if not isinstance(pdu, (ScsiCommand, DataOut)) or talk.cdb(pdu)[0] != RESERVE_OUT or len(pdu.data) < 16:
        return pdu
    block = talk.cdb(pdu)
    if block[1] & 0x1F == PrOut.RESERVE:
        talk.shared["type"] = block[2]
        talk.shared.pop("own", None)
    elif block[1] & 0x1F == PrOut.PREEMPT and pdu.data[:8] == pdu.data[8:16]:
        talk.shared["own"] = pdu.data[:8]
    return pdu


def _reads(talk: ProxyConnection, pdu: Pdu, action: PrIn) -> bool:
    block = talk.cdb(pdu)
    ours = isinstance(pdu, DataIn) and block[0] == RESERVE_IN and block[1] & 0x1F == action
    return ours and "own" in talk.shared


@mutant(
    "preempt-self-type | SPC-4 PREEMPT | a holder that preempts itself keeps the type",
    request=_preempts_itself,
)
def preempt_self_type(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not _reads(talk, pdu, PrIn.READ_RESERVATION) or len(pdu.data) < 24:
        return pdu
    return replace(pdu, data=pdu.data[:21] + bytes((talk.shared["type"],)) + pdu.data[22:])


@mutant(
    "preempt-self-unregisters | SPC-4 PREEMPT | a holder that preempts itself is no longer registered",
    request=_preempts_itself,
)
def preempt_self_unregisters(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not _reads(talk, pdu, PrIn.READ_KEYS):
        return pdu
    keys = [pdu.data[at : at + 8] for at in range(8, len(pdu.data) - 7, 8)]
    kept = b"".join(key for key in keys if key != talk.shared["own"])
    new = pdu.data[:4] + len(kept).to_bytes(4, "big") + kept
    return replace(pdu, data=new.ljust(len(pdu.data), b"\0"))


# A reset, and a write whose data are fewer than its CDB has

NO_TASK = 0x5555
"""A task tag that is not in use."""


def _open_writes(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Turn LOGICAL UNIT RESET into an abort of nothing while a write of another session is open."""
    every = talk.shared.setdefault("talks", [])
    if talk not in every:
        every.append(talk)
    if isinstance(pdu, ScsiCommand) and pdu.write:
        talk.memory.setdefault("open", set()).add(pdu.itt)
    others = any(one.memory.get("open") for one in every if one is not talk)
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.LOGICAL_UNIT_RESET and others:
        talk.memory["reset"] = pdu.itt
        return replace(pdu, function=TaskFunction.ABORT_TASK, referenced_itt=NO_TASK)
    return pdu


@mutant(
    "reset-spares-others | RFC 7143 11.5.1 | LOGICAL UNIT RESET spares the writes of other sessions",
    kind="unsolicited",
    request=_open_writes,
)
def reset_spares_others(talk: ProxyConnection, pdu: Pdu) -> Out:
    if ends(pdu):
        talk.memory.get("open", set()).discard(pdu.itt)
    done = isinstance(pdu, TaskResponse) and pdu.itt == talk.memory.get("reset")
    return replace(pdu, response=TaskResult.COMPLETE) if done else pdu


@mutant(
    "residual-write-overflow | RFC 7143 11.4.5 | a write of fewer bytes than its CDB has states no overflow",
    kind="unsolicited",
)
def residual_write_overflow(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, overflow=False, residual=0) if isinstance(pdu, ScsiResponse) and pdu.overflow else pdu
