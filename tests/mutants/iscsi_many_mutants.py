"""Broken rules of many sessions at a time, of ISIDs, and of commands of two nexuses at the same time.

The rules, from the text:

- RFC 7143 4.4.3: each session has its own state (MUST); 11.12.5: T is part of the ISID (MUST).
- RFC 7143 11.10.4: a target transfer tag is one that the target has given (SHOULD be refused).
- SBC-3 COMPARE AND WRITE: comparison and write are one uninterrupted series of actions (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_neighbour_mutants import passes
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both, hangs_up
from iscsi_rules import attention, ended_in, ends, good

from storagetest.wire.iscsi.codes import NO_TAG, TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    NopIn,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
)
from storagetest.wire.scsi.codes import Asc, ScsiStatus
from storagetest.wire.scsi.sense import decode_sense

READ_16, WRITE_16, CAW, ORWRITE, PR_IN = 0x88, 0x8A, 0x89, 0x8B, 0x5E
SMALL = "unsolicited"


def number_of(talk: ProxyConnection) -> int:
    """Return the number of the connection among those of the mutant that are open."""
    known = talk.shared.setdefault("connections", [])
    if talk not in known:
        known[:] = [*(one for one in known if not one.over), talk]
    return known.index(talk)


@mutant("later-session-reads-other | RFC 7143 4.4.3 | the sessions after the 32nd read zeroes", kind=SMALL)
def reads_other(talk: ProxyConnection, pdu: Pdu) -> Out:
    late = number_of(talk) >= 32 and isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == READ_16
    return replace(pdu, data=bytes(len(pdu.data))) if late else pdu  # type: ignore[type-var]


@mutant(
    "seventeenth-session-deaf | RFC 7143 4.4.3 | pings of the 17th session have the data of another",
    kind=SMALL,
)
def deaf(talk: ProxyConnection, pdu: Pdu) -> Out:
    late = number_of(talk) == 16 and isinstance(pdu, NopIn)
    return replace(pdu, data=b"0" * len(pdu.data)) if late else pdu  # type: ignore[type-var]


def _isid(talk: ProxyConnection) -> bytes:
    return talk.login.isid if talk.login is not None else b""


hangs_up(
    "isid-type-ignored | RFC 7143 11.12.5 | a login ends the session whose ISID differs in its type alone",
    lambda other, own, response: (
        other.name == own.name and _isid(other) != _isid(own) and _isid(other)[1:] == _isid(own)[1:]
    ),
    kind=SMALL,
)


@on_request(
    "discovery-tag-ignored | RFC 7143 11.10.4 | a target transfer tag that was not given is ignored",
    kind=SMALL,
)
def tag_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, ttt=NO_TAG) if isinstance(pdu, TextRequest) and pdu.data else pdu


def _note(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == CAW:
        talk.shared.setdefault("racing", []).append(talk)
    return pdu


def _lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    """End a miscompare in GOOD if another nexus has sent the same command since the last one of this."""
    if not isinstance(pdu, ScsiResponse) or talk.cdb(pdu)[0] != CAW or not pdu.sense:
        return pdu
    racing = talk.shared["racing"]
    raced = len(racing) > 1 and racing[-1] is not racing[-2]
    return good(pdu) if raced and decode_sense(pdu.sense).asc == Asc.MISCOMPARE_DURING_VERIFY else pdu


both("caw-lost-update | SBC-3 COMPARE AND WRITE | of two nexuses at the same time each compares with what was there before", _lost, _note, kind="full")  # fmt: skip


@on_request(
    "orwrite-lost-update | SBC-3 ORWRITE | what an ORWRITE sets while another one waits for its data is lost",
    kind="full",
)
def orwrite_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == ORWRITE:
        talk.shared.setdefault("oring", []).append(talk)
    if isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == ORWRITE and talk.shared["oring"][-2:][0] is not talk:
        return replace(pdu, data=bytes(len(pdu.data)))
    return pdu


# Functions that are complete, and end nothing


def _written(row: str, function: TaskFunction) -> None:
    """A mutant that reports a function as complete; the write that it ends is done, without a response."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, TaskRequest) or pdu.function != function:
            return pdu
        talk.memory.setdefault("not done", set()).add(pdu.itt)
        waiting = pdu.referenced_itt if function == TaskFunction.ABORT_TASK else getattr(talk.last, "itt", 0)
        talk.memory.setdefault("silent", set()).add(waiting)
        return replace(
            pdu, function=TaskFunction.ABORT_TASK, referenced_itt=0x7A7B7C7D, ref_cmd_sn=pdu.cmd_sn
        )

    def response(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, ScsiResponse) and pdu.itt in talk.memory.get("silent", ()):
            talk.memory["less"] = talk.memory.get("less", 0) + 1
            return None
        less = talk.memory.get("less", 0)
        pdu = _complete(talk, pdu)  # type: ignore[assignment]
        return replace(pdu, stat_sn=(pdu.stat_sn - less) % 2**32) if less else pdu  # type: ignore[type-var, attr-defined]

    both(row, response, request, kind="full")


_written(
    "aborted-write-written | RFC 7143 11.6.1 | a write that ABORT TASK has ended is done when its data come",
    TaskFunction.ABORT_TASK,
)
_written(
    "reset-write-written | RFC 7143 11.5.1 | a write that a reset has ended is done when its data come",
    TaskFunction.LOGICAL_UNIT_RESET,
)


def _not_done(row: str, function: TaskFunction) -> None:
    """A mutant that reports a function as complete and does nothing."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        """Send ABORT TASK of a task that is not there in place of the function."""
        if not isinstance(pdu, TaskRequest) or pdu.function != function:
            return pdu
        talk.memory.setdefault("not done", set()).add(pdu.itt)
        return replace(
            pdu, function=TaskFunction.ABORT_TASK, referenced_itt=0x7A7B7C7D, ref_cmd_sn=pdu.cmd_sn
        )

    both(row, _complete, request, kind="full")


def _complete(talk: ProxyConnection, pdu: Pdu) -> Out:
    done = isinstance(pdu, TaskResponse) and pdu.itt in talk.memory.get("not done", ())
    return replace(pdu, response=TaskResult.COMPLETE) if done else pdu  # type: ignore[type-var]


_not_done(
    "warm-reset-not-done | RFC 7143 11.5.1 | TARGET WARM RESET is reported as complete, and nothing is reset",
    TaskFunction.TARGET_WARM_RESET,
)
_not_done(
    "abort-set-not-done | RFC 7143 11.5.1 | ABORT TASK SET is reported as complete, and no task is aborted",
    TaskFunction.ABORT_TASK_SET,
)
_not_done(
    "clear-set-not-done | RFC 7143 11.5.1 | CLEAR TASK SET is reported as complete, and no task is aborted",
    TaskFunction.CLEAR_TASK_SET,
)


@mutant(
    "warm-reset-clears-keys | SPC-4 persistent reservations | TARGET WARM RESET ends registrations",
    kind="full",
)
def clears_keys(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskResponse) and talk.tasks[pdu.itt].function == TaskFunction.TARGET_WARM_RESET:
        talk.shared["reset"] = True
    keys = isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PR_IN and not talk.cdb(pdu)[1] & 0x1F
    return (
        replace(pdu, data=pdu.data[:4] + bytes(len(pdu.data) - 4)) if keys and "reset" in talk.shared else pdu
    )  # type: ignore[type-var]


# Reservations with many registrants


def _sixteen(row: str, action: int, cut: Callable[[bytes], bytes]) -> None:
    """A mutant that lists sixteen registrations at most."""

    @mutant(row, kind="full")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        listed = isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PR_IN and talk.cdb(pdu)[1] & 0x1F == action
        if not listed or len(pdu.data) < 8:  # type: ignore[attr-defined]
            return pdu
        body = cut(pdu.data[8:])  # type: ignore[attr-defined]
        return replace(pdu, data=pdu.data[:4] + len(body).to_bytes(4, "big") + body)  # type: ignore[attr-defined,call-arg]


def _descriptors(body: bytes) -> bytes:
    at = 0
    for _ in range(16):
        if at < len(body):
            at += 24 + int.from_bytes(body[at + 20 : at + 24], "big")
    return body[:at]


_sixteen(
    "keys-sixteen-at-most | SPC-4 READ KEYS | sixteen keys are listed at most", 0, lambda body: body[:128]
)
_sixteen(
    "full-sixteen-at-most | SPC-4 READ FULL STATUS | sixteen registrations are listed at most",
    3,
    _descriptors,
)


@mutant("clear-notifies-sixteen | SPC-4 CLEAR | CLEAR notifies sixteen nexuses at most", kind="full")
def notifies_sixteen(talk: ProxyConnection, pdu: Pdu) -> Out:
    return (
        good(pdu)
        if attention(pdu) and decode_sense(pdu.sense).asc == 0x2A03 and number_of(talk) >= 16
        else pdu
    )  # type: ignore[attr-defined]


@mutant(
    "late-registrant-conflict | SPC-4 reservations | a registrant after the sixteenth may not write",
    kind="full",
)
def late_registrant(talk: ProxyConnection, pdu: Pdu) -> Out:
    late = number_of(talk) >= 16 and ends(pdu) and talk.cdb(pdu)[0] == WRITE_16
    return ended_in(pdu, ScsiStatus.RESERVATION_CONFLICT) if late else pdu


passes("operations-reserved-option | SPC-4 REPORT SUPPORTED OPERATION CODES | a reserved option is GOOD, without data", lambda block: block[0] == 0xA3 and bool(block[2] & 4),
       Asc.INVALID_FIELD_IN_CDB, kind="full")  # fmt: skip
