"""Broken rules of writes with less or more data than they state, of immediate writes, and of their digests.

The rules, from the text, before any case:

- RFC 7143 7.9, 11.7.1: a sequence that ends before all of its data have come is an error (MUST).
- RFC 7143 4.2.2.1: an immediate command is executed, and uses no CmdSN (MUST).
- RFC 7143 11.3.4: no more data are transferred than the Expected Data Transfer Length (MUST).
- RFC 7143 11.6.1: a task that waits for its data is one that ABORT TASK finds (MUST).
- SPC-4 REPORT SUPPORTED OPERATION CODES: a unit has a command, or it does not have it.
- RFC 7143 7.8: a payload with a wrong digest is discarded (MUST).
- RFC 7143 11.14.3: the CID of a logout is not valid if it closes the session.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check

from storagetest.wire.iscsi.codes import NO_TAG, LogoutReason, LogoutResult, TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LogoutRequest,
    LogoutResponse,
    ReadyToTransfer,
    Response,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
)
from storagetest.wire.scsi.codes import SenseKey

SMALL, DIGESTS = "unsolicited", "digests"
"""The small target of tests/controllers."""
WRITE_10 = 0x2A
WRITES = (WRITE_10, 0x8A)
BLOCK = 512


def _fills_sequence(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Fill a sequence that ends too early with zeroes."""
    asked: dict[int, int] = talk.memory.get("asked", {})
    if not isinstance(pdu, DataOut) or pdu.ttt not in asked:
        return pdu
    asked[pdu.ttt] -= len(pdu.data)
    short = pdu.final and asked[pdu.ttt] > 0
    return replace(pdu, data=pdu.data + bytes(asked.pop(pdu.ttt))) if short else pdu


@mutant(
    "early-final-good | RFC 7143 7.9 | a write is executed at F, also if data of its sequence are missing",
    request=_fills_sequence,
    kind=SMALL,
)
def early_final_good(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer):
        talk.memory.setdefault("asked", {})[pdu.ttt] = pdu.desired_length
    return pdu


@on_request("lost-write-executed | RFC 7143 7.5 | data that have not come are written as zeroes", kind=SMALL)
def lost_write_executed(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, DataOut) or command is None or pdu.ttt == NO_TAG or pdu.final:
        return pdu
    start = pdu.buffer_offset + len(pdu.data)
    rest = bytes(command.expected_length - start)
    return [pdu, replace(pdu, final=True, data_sn=pdu.data_sn + 1, buffer_offset=start, data=rest)]


@on_request(
    "waiting-write-unknown | SPC-4 REPORT SUPPORTED OPERATION CODES | every other write without immediate data is unknown",
    kind=SMALL,
)
def waiting_write_unknown(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != WRITE_10 or pdu.data:
        return pdu
    talk.shared["unknown"] = not talk.shared.get("unknown")
    return replace(pdu, cdb=b"\xcf" + pdu.cdb[1:]) if talk.shared["unknown"] else pdu


# Immediate writes


def _is_immediate_write(pdu: Pdu) -> bool:
    return isinstance(pdu, ScsiCommand) and pdu.immediate and pdu.cdb[0] == WRITE_10


def _writes_nothing(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Make an immediate write one of no blocks."""
    if not isinstance(pdu, ScsiCommand) or not _is_immediate_write(pdu):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:7] + b"\0\0" + pdu.cdb[9:])


@mutant(
    "immediate-write-lost | RFC 7143 4.2.2.1 | an immediate write ends in GOOD, and nothing is written",
    request=_writes_nothing,
    kind=SMALL,
)
def immediate_write_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, ScsiResponse) or command is None or not _is_immediate_write(command):
        return pdu
    return replace(pdu, underflow=False, residual=0)


@mutant("immediate-write-counts | RFC 7143 4.2.2.1 | an immediate write uses up a CmdSN", kind=SMALL)
def immediate_write_counts(talk: ProxyConnection, pdu: Pdu) -> Out:
    count = sum(map(_is_immediate_write, talk.commands.values()))
    if not isinstance(pdu, Response) or not count:
        return pdu
    return replace(pdu, exp_cmd_sn=pdu.exp_cmd_sn + count, max_cmd_sn=pdu.max_cmd_sn + count)


@on_request(
    "immediate-overrun-kept | RFC 7143 11.3.4 | immediate data beyond the expected length are written to the blocks that follow",
    kind=SMALL,
)
def immediate_overrun_kept(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != WRITE_10 or len(pdu.data) <= pdu.expected_length:
        return pdu
    blocks = (len(pdu.data) // BLOCK).to_bytes(2, "big")
    return replace(pdu, expected_length=len(pdu.data), cdb=pdu.cdb[:7] + blocks + pdu.cdb[9:])


# Tasks and logouts


@on_request(
    "abort-of-waiting-absent | RFC 7143 11.6.1 | ABORT TASK does not find a write that waits for its data",
    kind=SMALL,
)
def abort_of_waiting_absent(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if not isinstance(pdu, TaskRequest) or pdu.function != TaskFunction.ABORT_TASK:
        return pdu
    if pdu.referenced_itt not in talk.commands or not isinstance(talk.last, ReadyToTransfer):
        return pdu
    absent = TaskResult.TASK_DOES_NOT_EXIST
    talk.answer(pdu, TaskResponse, response=absent, stat_sn=talk.last.stat_sn)  # an R2T has the next one
    return None


@on_request(
    "aborted-late-executed | RFC 7143 7.11 | a command that comes after its abort is executed",
    kind="strict",
)
def aborted_late_executed(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.ABORT_TASK:
        talk.memory["aborted"] = pdu.referenced_itt
    if not isinstance(pdu, ScsiCommand) or pdu.itt != talk.memory.get("aborted"):
        return pdu
    talk.answer(pdu, ScsiResponse, stat_sn=getattr(talk.last, "stat_sn", 0) + 1)
    return None


def _notes_reset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Note a reset that comes while an R2T is the last PDU of the target."""
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.LOGICAL_UNIT_RESET:
        talk.memory["reset"] = isinstance(talk.last, ReadyToTransfer)
    return pdu


@mutant(
    "writes-fail-after-reset | RFC 7143 11.5.1 | after a reset of a write that waits, the session can write no more",
    request=_notes_reset,
    kind=SMALL,
)
def writes_fail_after_reset(talk: ProxyConnection, pdu: Pdu) -> Out:
    written = isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] in WRITES and not pdu.status
    return check(pdu, SenseKey.ABORTED_COMMAND, 0) if written and talk.memory.get("reset") else pdu


def _notes_cid(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, LogoutRequest) and talk.login is not None:
        talk.memory["other"] = pdu.reason == LogoutReason.CLOSE_SESSION and pdu.cid != talk.login.cid
    return pdu


@mutant(
    "logout-session-cid | RFC 7143 11.14.3 | a logout that closes the session needs the CID of its connection",
    request=_notes_cid,
    kind=SMALL,
)
def logout_session_cid(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = isinstance(pdu, LogoutResponse) and talk.memory.get("other")
    return replace(pdu, response=LogoutResult.CID_NOT_FOUND) if refused else pdu


# Digests


def _accepts_digest(row: str, kind: type[Pdu]) -> None:
    """A mutant that takes the data of a request of ``kind`` with a wrong digest."""

    @on_request(row, kind=DIGESTS)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        wrong = isinstance(pdu, kind) and talk.memory["frame"].data_digest_wrong
        solicited = isinstance(pdu, DataOut) and pdu.ttt != NO_TAG
        return talk.wire(pdu) if wrong and not solicited else pdu


_accepts_digest(
    "data-digest-of-text-request | RFC 7143 7.8 | the data digest of a Text Request is not checked",
    TextRequest,
)
_accepts_digest(
    "data-digest-of-unsolicited | RFC 7143 7.8 | the data digest of unsolicited Data-Out is not checked",
    DataOut,
)
