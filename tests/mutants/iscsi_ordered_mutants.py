"""Broken rules of requests after a gap, of task tags, of two sessions, of logins, and of what a PDU seldom has.

The rules, from the text, before any case:

- RFC 7143 4.2.2.1: each request that is not immediate is delivered in the order of CmdSN (MUST).
- RFC 7143 11.2.1.8: a task tag names a task of its session while the task is outstanding.
- RFC 7143 6.2, 6.3: each key is answered, and none stands twice in a login (MUST).
- RFC 7143 4.3: a discovery session serves SendTargets and a logout that closes it (MUST).
- RFC 7143 7.8: a write whose data were discarded goes on, or ends (MUST).
- RFC 7143 11.16: with an ErrorRecoveryLevel of 1 or more every SNACK is supported (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import _own_isid, _turned, both
from iscsi_rules import text

from storagetest.wire.iscsi.codes import NO_TAG, LoginStatus, RejectReason, Stage, TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import Pairs, format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import plus

ORDERED, DIGESTS = "ordered", "digests"
"""The small targets of tests/controllers."""
SEGMENT = "MaxRecvDataSegmentLength"
SOME = 32
"""Logins after which a target is out of resources (chosen)."""

# Gaps and tags


def _served_at_once(row: str, kind: type[TextRequest | TaskRequest]) -> None:
    @on_request(row, kind=ORDERED)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        last = talk.last
        if not isinstance(pdu, kind) or pdu.immediate or last is None:
            return pdu
        return replace(pdu, immediate=True) if pdu.cmd_sn != getattr(last, "exp_cmd_sn", pdu.cmd_sn) else pdu


_served_at_once(
    "cmd-sn-gap-text | RFC 7143 4.2.2.1 | a numbered Text Request after a gap is answered at once",
    TextRequest,
)
_served_at_once(
    "cmd-sn-gap-reset | RFC 7143 4.2.2.1 | a numbered reset after a gap is done at once", TaskRequest
)


@on_request(
    "tag-used-again-lost | RFC 7143 11.2.1.8 | a request with the task tag of an earlier one is ignored",
    kind=ORDERED,
)
def tag_used_again_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, (ScsiCommand, NopOut)) or pdu.itt == NO_TAG:
        return pdu
    used: set[int] = talk.memory.setdefault("used", set())
    again = pdu.itt in used
    used.add(pdu.itt)
    return None if again else pdu


def _completes(talk: ProxyConnection, pdu: TaskRequest) -> None:
    """Answer a function, which the target does not see, with COMPLETE."""
    last = talk.last
    number = plus(getattr(last, "stat_sn", 0), 0 if isinstance(last, ReadyToTransfer) else 1)
    talk.answer(pdu, TaskResponse, response=TaskResult.COMPLETE, stat_sn=number)


@on_request(
    "aborted-in-gap-executed | RFC 7143 4.2.2.1, 11.5.1 | ABORT TASK of a command that waits for its turn is complete, and does nothing",
    kind=ORDERED,
)
def aborted_in_gap_executed(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TaskRequest) or pdu.function != TaskFunction.ABORT_TASK:
        return pdu
    talk.acted = True
    _completes(talk, pdu)
    return None


@on_request(
    "ref-beyond-complete | RFC 7143 11.6.1 | ABORT TASK of an absent task is complete, whatever its RefCmdSN is",
    kind=ORDERED,
)
def ref_beyond_complete(talk: ProxyConnection, pdu: Pdu) -> Out:
    absent = isinstance(pdu, TaskRequest) and pdu.referenced_itt not in talk.commands
    if not absent or not isinstance(pdu, TaskRequest) or pdu.function != TaskFunction.ABORT_TASK:
        return pdu
    talk.acted = True
    _completes(talk, pdu)
    return None


SETS = (TaskFunction.LOGICAL_UNIT_RESET, TaskFunction.ABORT_TASK_SET, TaskFunction.CLEAR_TASK_SET)


@on_request(
    "lun-of-function-ignored | RFC 7143 11.5.1 | a function is done on LUN 0, whatever LUN it names",
    kind=ORDERED,
)
def lun_of_function_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskRequest) and pdu.lun and pdu.function in SETS:
        talk.memory["ended"] = set(talk.commands)
        talk.acted = True
        _completes(talk, pdu)
        return None
    return None if isinstance(pdu, DataOut) and pdu.itt in talk.memory.get("ended", ()) else pdu


# Two sessions


def _notes_r2t(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer):
        talk.shared.setdefault("asked", {})[pdu.itt, pdu.ttt] = talk
    return pdu


def _to_any_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataOut) or pdu.ttt == NO_TAG or pdu.itt in talk.commands:
        return pdu
    other = talk.shared.get("asked", {}).get((pdu.itt, pdu.ttt))
    if other is None:
        return pdu
    other.inject_to_target(pdu)
    talk.acted = other.acted = True
    return None


both(
    "data-of-any-session | RFC 7143 11.2.1.8 | Data-Out are those of the write that has their tags, in any session",
    _notes_r2t,
    _to_any_session,
    kind=ORDERED,
)


def _with_text(pdu: LoginRequest, pairs: Pairs | list[tuple[str, str]]) -> Pdu:
    return pdu if tuple(pairs) == parse_text(pdu.data) else replace(pdu, data=format_text(pairs))


@on_request(
    "segment-later-of-all | RFC 7143 13.12 | a segment length that a session declares later is that of each later session",
    kind=ORDERED,
)
def segment_later_of_all(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TextRequest):
        talk.shared.update({key: value for key, value in parse_text(pdu.data) if key == SEGMENT})
    if not isinstance(pdu, LoginRequest) or SEGMENT not in talk.shared:
        return pdu
    own = talk.shared[SEGMENT]
    return _with_text(pdu, [(key, own if key == SEGMENT else value) for key, value in parse_text(pdu.data)])


# Keys of a login


def _rewrites(row: str, rewrite: Callable[[Pairs], list[tuple[str, str]]]) -> None:
    """A mutant that reads other pairs in a Login Request than those that were sent."""

    @on_request(row, kind=ORDERED)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        return _with_text(pdu, rewrite(parse_text(pdu.data))) if isinstance(pdu, LoginRequest) else pdu


def _once(*names: str) -> Callable[[Pairs], list[tuple[str, str]]]:
    def rewrite(pairs: Pairs) -> list[tuple[str, str]]:
        return [
            pair for at, pair in enumerate(pairs) if pair[0] not in names or pair[0] not in dict(pairs[:at])
        ]

    return rewrite


_rewrites(
    "login-twice-segment | RFC 7143 6.3 | a declaration that stands twice in a login is accepted",
    _once(SEGMENT),
)
_rewrites(
    "login-twice-same | RFC 7143 6.3 | a number that stands twice in a login is accepted, if it is the same",
    _once("FirstBurstLength"),
)
_rewrites(
    "login-twice-digest | RFC 7143 6.3 | a list that stands twice in a login is accepted",
    _once("HeaderDigest"),
)


def _up_to_reject(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
    values = [value for _, value in pairs]
    return pairs[: values.index("Reject") + 1] if "Reject" in values else pairs


text(
    "keys-behind-reject-lost | RFC 7143 6.2 | the keys behind one that is rejected are not answered",
    _up_to_reject,
    kind=ORDERED,
)


def _without_behind(pairs: Pairs) -> list[tuple[str, str]]:
    unknown = next((at for at, (key, _) in enumerate(pairs) if key.startswith("X-")), len(pairs))
    return [pair for at, pair in enumerate(pairs) if pair[0] != SEGMENT or at < unknown]


_rewrites(
    "segment-behind-key-lost | RFC 7143 6.2, 13.12 | MaxRecvDataSegmentLength behind an unknown key is not read",
    _without_behind,
)


def _one_method(at: int) -> Callable[[Pairs], list[tuple[str, str]]]:
    return lambda pairs: [
        (key, value.split(",")[at] if key == "AuthMethod" else value) for key, value in pairs
    ]


_rewrites(
    "auth-list-first | RFC 7143 6.2.1 | of a list of methods only the first one is looked at", _one_method(0)
)
_rewrites(
    "auth-list-last | RFC 7143 6.2.1 | of a list of methods only the last one is looked at", _one_method(-1)
)


def _as_offered(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
    offered = dict(talk.offered)
    return [(key, offered.get(key, value) if value == "Reject" else value) for key, value in pairs]


text(
    "key-range-of-each | RFC 7143 6.2.2 | the value of a key is not compared with its range",
    _as_offered,
    kind=ORDERED,
)


# Many logins


def _out_of_resources(talk: ProxyConnection, pdu: LoginResponse, key: str) -> Pdu:
    if pdu.status or talk.shared.get(key, 0) <= SOME:
        return pdu
    return replace(pdu, status=LoginStatus.OUT_OF_RESOURCES, transit=False, nsg=0, tsih=0, data=b"")


@mutant(
    "logins-run-out-refused | RFC 7143 7.12 | each login that is refused takes a session for good",
    kind=ORDERED,
)
def logins_run_out_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    talk.shared["refused"] = talk.shared.get("refused", 0) + bool(pdu.status)
    return _out_of_resources(talk, pdu, "refused")


@mutant(
    "logins-run-out-lost | RFC 7143 7.4.3 | a session that ends without a logout is kept for ever",
    kind=ORDERED,
)
def logins_run_out_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LogoutResponse):
        talk.shared["open"] -= 1
    if not isinstance(pdu, LoginResponse):
        return pdu
    opens = not pdu.status and pdu.transit and pdu.nsg == Stage.FULL_FEATURE
    talk.shared["open"] = talk.shared.get("open", 0) + opens
    return _out_of_resources(talk, pdu, "open")


# What comes between


def _between(pdu: Pdu) -> bool:
    return isinstance(pdu, NopOut) and pdu.itt != NO_TAG


def _notes_text(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note whether a ping came while a text was open."""
    if isinstance(pdu, TextRequest):
        talk.memory["pieces"] = pdu.continues
        talk.memory["rest"] = pdu.ttt != NO_TAG and not pdu.data
    elif _between(pdu):
        talk.memory["forgotten"] = talk.memory.get("pieces") or talk.memory.get("open")
    return pdu


def _forgets(row: str, kind: str) -> None:
    """A mutant that answers a text without the keys of ``kind``, if a ping came between its pieces."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, TextResponse):
            return pdu
        talk.memory["open"] = not pdu.final and kind == "rest"
        forgotten = talk.memory.get("forgotten") and talk.memory.get("rest", False) == (kind == "rest")
        return replace(pdu, data=b"") if forgotten else pdu

    both(row, reply, _notes_text, kind=ORDERED)


_forgets(
    "text-between-forgotten | RFC 7143 6.2 | a ping forgets the pieces of a text that is not whole", "pieces"
)
_forgets(
    "answer-between-forgotten | RFC 7143 6.2 | a ping forgets the rest of an answer in several PDUs", "rest"
)


@on_request(
    "data-between-lost | RFC 7143 4.2.5.2 | unsolicited Data-Out after another request than their command are zeroes",
    kind=ORDERED,
)
def data_between_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand):
        talk.memory["pinged"] = False
    elif _between(pdu):
        talk.memory["pinged"] = True
    elif isinstance(pdu, DataOut) and pdu.ttt == NO_TAG and talk.memory.get("pinged"):
        return replace(pdu, data=bytes(len(pdu.data)))
    return pdu


# Reinstatement


def _reinstates_unless(row: str, differs: Callable[[LoginRequest, LoginRequest], bool]) -> None:
    """A mutant that leaves the session of the same name and ISID open if ``differs(first, login)``."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginRequest) or pdu.tsih:
            return pdu
        if "first" not in talk.memory:
            talk.memory["first"] = pdu
            others = talk.shared.setdefault("talks", [])
            talk.memory["twin"] = any(
                one.name == talk.name and one.memory["first"].isid == pdu.isid and not one.over
                and differs(one.memory["first"], pdu)
                for one in others
            )  # fmt: skip
            others.append(talk)
        return replace(pdu, isid=_turned(pdu.isid)) if talk.memory["twin"] else pdu

    both(row, _own_isid, request, kind=ORDERED)


_reinstates_unless(
    "reinstated-by-cid | RFC 7143 6.3.5 | a login reinstates only a session whose connection has its CID",
    lambda first, login: first.cid != login.cid,
)
_reinstates_unless(
    "reinstated-in-one-stage | RFC 7143 6.3.5 | a login that begins in the security stage reinstates nothing",
    lambda first, login: login.csg == Stage.SECURITY,
)


# Recovery, and what a PDU seldom has


def _rejects(talk: ProxyConnection, pdu: Pdu, reason: RejectReason, stat_sn: int) -> None:
    talk.answer(pdu, Reject, itt=NO_TAG, reason=reason, stat_sn=stat_sn, data=talk.memory["frame"].bhs)


@on_request(
    "snack-of-no-level | RFC 7143 11.16 | each SNACK is rejected, whatever ErrorRecoveryLevel was agreed on",
    kind=ORDERED,
)
def snack_of_no_level(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, SnackRequest):
        return pdu
    _rejects(talk, pdu, RejectReason.SNACK_REJECT, plus(getattr(talk.last, "stat_sn", 0), 1))
    return None


@on_request(
    "digest-reject-then-nothing | RFC 7143 7.8 | a write whose data were rejected for their digest never ends",
    kind=DIGESTS,
)
def digest_reject_then_nothing(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataOut) or talk.memory.get("discards") == pdu.itt:
        return None if isinstance(pdu, DataOut) else pdu
    if not talk.memory["frame"].data_digest_wrong:
        return pdu
    talk.memory["discards"] = pdu.itt
    _rejects(
        talk, pdu, RejectReason.DATA_DIGEST_ERROR, getattr(talk.last, "stat_sn", 0)
    )  # an R2T has the next one
    return None


@on_request("nop-in-discovery | RFC 7143 4.3 | a ping is answered in a discovery session", kind=ORDERED)
def nop_in_discovery(talk: ProxyConnection, pdu: Pdu) -> Out:
    discovers = dict(talk.offered).get("SessionType") == "Discovery"
    if not isinstance(pdu, NopOut) or pdu.itt == NO_TAG or not discovers:
        return pdu
    talk.acted = True
    talk.answer(pdu, NopIn, stat_sn=plus(getattr(talk.last, "stat_sn", 0), 1), data=pdu.data)
    return None


@on_request(
    "data-before-ahs-end | RFC 7143 11.2.2 | immediate data are taken from behind the basic header, whatever AHS there is",
    kind=ORDERED,
)
def data_before_ahs_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or not pdu.ahs or not pdu.data:
        return pdu
    return replace(pdu, data=(pdu.parts().ahs + pdu.data)[: len(pdu.data)])


@mutant("residual-signed | RFC 7143 11.4.5.1 | a residual has 31 bits", kind=ORDERED)
def residual_signed(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, residual=pdu.residual & 0x7FFFFFFF) if isinstance(pdu, ScsiResponse) else pdu
