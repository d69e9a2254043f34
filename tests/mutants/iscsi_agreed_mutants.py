"""Broken rules of what a login agreed on, in use: limits by default, hexadecimal numbers, data in any order.

The rules, from the text (RFC 7143), before any case:

- 13.12: MaxRecvDataSegmentLength is 8192 if it was not declared; 6.1: it may be hexadecimal (MUST).
- 13.13: MaxBurstLength is 262144 if it was not offered (MUST).
- 11.7.6, 13.18, 13.19: data are placed by their Buffer Offset, in whatever order they come (MUST).
- 13.17: with several R2Ts outstanding, each gets the data of its own range (MUST).
- 11.7.6, 11.8.4: Buffer Offset has 32 bits (MUST).
- 11.17.4: a Reject has the header of the PDU that it rejects, each one its own (MUST).
- 4.2.2.1: a command that has ended, in whatever way, has no place in the window (MUST).
- 11.6.1: a task management function is done, whether it is immediate or not (MUST).
- 11.2.1.8: the Initiator Task Tag is any number of 32 bits but FFFFFFFFh (MUST).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import MUTANTS, Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.codes import NO_TAG, LogoutResult, Stage, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import Pairs, format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutResponse,
    ReadyToTransfer,
    Reject,
    Response,
    ScsiResponse,
    TaskResponse,
)
from storagetest.wire.scsi.codes import ScsiStatus

KIND = "unsolicited"
"""The small target, which takes data in any order, sends several R2Ts, and rejects what it does not know."""
SEGMENT = "MaxRecvDataSegmentLength"


# Limits


# LIO answers such a login by empty Data-In without end, so these two run before the small target.


@on_request(
    "segment-default-ignored | RFC 7143 13.12 | without MaxRecvDataSegmentLength, there is no limit",
    kind=KIND,
)
def segment_default_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or pdu.nsg != Stage.FULL_FEATURE or SEGMENT in dict(talk.offered):
        return pdu
    return replace(pdu, data=pdu.data + format_text([(SEGMENT, "262144")]))


@on_request("segment-hexadecimal | RFC 7143 6.1, 13.12 | MaxRecvDataSegmentLength in hexadecimal is no limit")
def segment_hexadecimal(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or not dict(talk.offered).get(SEGMENT, "").startswith("0x"):
        return pdu
    pairs = [(name, "262144" if name == SEGMENT else value) for name, value in parse_text(pdu.data)]
    return replace(pdu, data=format_text(pairs))


def reads_numbers_wrong(row: str, key: str, taken: str) -> None:
    """A mutant that agrees on a hexadecimal number of a login as offered, and uses another one."""
    name = row.partition(" | ")[0]

    def is_hexadecimal(talk: ProxyConnection) -> bool:
        return dict(talk.offered).get(key, "").lower().startswith("0x")

    @on_request(row, kind=KIND)
    def wrong(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginRequest) or not is_hexadecimal(talk):
            return pdu
        return replace(pdu, data=format_text(with_value(parse_text(pdu.data), key, taken)))

    def agreed(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginResponse) or not is_hexadecimal(talk):
            return pdu
        offered = str(int(dict(talk.offered)[key], 16))
        return replace(pdu, data=format_text(with_value(parse_text(pdu.data), key, offered)))

    MUTANTS[name].reply = agreed


def with_value(pairs: Pairs, key: str, new: str) -> Pairs:
    """Return the keys of a text, with another value of ``key``."""
    return tuple((name, new if name == key else value) for name, value in pairs)


reads_numbers_wrong(
    "burst-hexadecimal | RFC 7143 6.1, 13.13 | MaxBurstLength in hexadecimal is no limit",
    "MaxBurstLength",
    "262144",
)
reads_numbers_wrong(
    "first-burst-hexadecimal | RFC 7143 6.1, 13.14 | FirstBurstLength in hexadecimal is not observed",
    "FirstBurstLength",
    "65536",
)
reads_numbers_wrong(
    "outstanding-hexadecimal | RFC 7143 6.1, 13.17 | MaxOutstandingR2T in hexadecimal is not observed",
    "MaxOutstandingR2T",
    "3",
)


@mutant(
    "burst-default-ignored | RFC 7143 13.13 | without MaxBurstLength, an R2T asks for all the rest", kind=KIND
)
def burst_default_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ReadyToTransfer) or "MaxBurstLength" in dict(talk.offered):
        return pdu
    return replace(pdu, desired_length=talk.commands[pdu.itt].expected_length - pdu.buffer_offset)


# Order


def _counted(talk: ProxyConnection, pdu: DataIn | DataOut) -> Pdu:
    """Give a PDU the offset that follows those of the data before it."""
    places = talk.memory.setdefault("places", {})
    place = places.get(pdu.itt, 0)
    places[pdu.itt] = place + len(pdu.data)
    return pdu if place == pdu.buffer_offset else replace(pdu, buffer_offset=place)


@mutant(
    "data-in-offset-counted | RFC 7143 11.7.6, 13.18 | Data-In in any order have offsets as if in order",
    kind=KIND,
)
def data_in_offset_counted(talk: ProxyConnection, pdu: Pdu) -> Out:
    return _counted(talk, pdu) if isinstance(pdu, DataIn) else pdu


@on_request(
    "data-out-offset-counted | RFC 7143 11.7.6, 13.18 | Data-Out are stored in the order in which they come",
    kind=KIND,
)
def data_out_offset_counted(talk: ProxyConnection, pdu: Pdu) -> Out:
    return _counted(talk, pdu) if isinstance(pdu, DataOut) else pdu


# R2Ts


def _note_r2t(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note by how much the data of a second R2T of a command are misplaced: they go to the first one's."""
    if isinstance(pdu, ReadyToTransfer):
        waiting = talk.memory.setdefault("waiting", {})
        first = next((r2t for r2t in waiting.values() if r2t.itt == pdu.itt), pdu)
        talk.memory.setdefault("shift", {})[pdu.ttt] = first.buffer_offset - pdu.buffer_offset
        waiting[pdu.ttt] = pdu
    return pdu


@on_request(
    "r2t-second-misplaced | RFC 7143 13.17, 11.7.6 | of two outstanding R2Ts, the data of the second are "
    "stored in the place of the first",
    kind=KIND,
    reply=_note_r2t,
)
def r2t_second_misplaced(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataOut) or pdu.ttt == NO_TAG:
        return pdu
    if pdu.final:
        talk.memory["waiting"].pop(pdu.ttt, None)
    shift = talk.memory["shift"].get(pdu.ttt, 0)
    return replace(pdu, buffer_offset=pdu.buffer_offset + shift) if shift else pdu


# Tags


@mutant("task-tag-byte | RFC 7143 11.2.1.8 | a task has the three low bytes of its task tag")
def task_tag_byte(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, (DataIn, ReadyToTransfer, ScsiResponse)) and pdu.itt >> 24:
        return replace(pdu, itt=pdu.itt & 0xFFFFFF)
    return pdu


# Offsets of long transfers


@mutant("data-in-offset-18-bits | RFC 7143 11.7.6 | the Buffer Offset of a Data-In has 18 bits", kind=KIND)
def data_in_offset_18_bits(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and pdu.buffer_offset >> 18:
        return replace(pdu, buffer_offset=pdu.buffer_offset & 0x3FFFF)
    return pdu


@mutant("r2t-offset-18-bits | RFC 7143 11.8.4 | the Buffer Offset of an R2T has 18 bits", kind=KIND)
def r2t_offset_18_bits(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer) and pdu.buffer_offset >> 18:
        return replace(pdu, buffer_offset=pdu.buffer_offset & 0x3FFFF)
    return pdu


# Second rejects, places in the window, functions


@mutant(
    "reject-first-header | RFC 7143 11.17.4 | each Reject of a connection has the header of the first",
    kind=KIND,
)
def reject_first_header(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, Reject):
        return pdu
    first = talk.memory.setdefault("first", pdu.data)
    return pdu if first == pdu.data else replace(pdu, data=first)


def narrows(row: str, ends: Callable[[ProxyConnection, Pdu], bool], kind: str | None = None) -> None:
    """A mutant whose command window is narrower by one after each PDU that ``ends`` selects."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        lost = talk.memory["lost"] = talk.memory.get("lost", 0) + ends(talk, pdu)
        if not lost or not isinstance(pdu, Response):
            return pdu
        window = (pdu.max_cmd_sn - pdu.exp_cmd_sn + 1) % 2**32
        return replace(pdu, max_cmd_sn=(pdu.max_cmd_sn - min(lost, window)) % 2**32)


narrows(
    "max-cmd-sn-of-failed | RFC 7143 4.2.2.1 | a command that fails keeps its place in the window",
    lambda talk, pdu: isinstance(pdu, ScsiResponse) and pdu.status == ScsiStatus.CHECK_CONDITION,
)
narrows(
    "max-cmd-sn-of-aborted | RFC 7143 4.2.2.1 | a command that is aborted keeps its place in the window",
    lambda talk, pdu: isinstance(pdu, TaskResponse) and pdu.response == TaskResult.COMPLETE,
    KIND,
)


@mutant("function-queued-refused | RFC 7143 11.6.1 | a function that is not immediate is rejected", kind=KIND)
def function_queued_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskResponse) and pdu.itt in talk.tasks and not talk.tasks[pdu.itt].immediate:
        return replace(pdu, response=TaskResult.REJECTED)
    return pdu


# Counts and lengths of requests


@on_request("data-out-sn-byte | RFC 7143 11.7.5 | a Data-Out whose DataSN is over 255 is lost", kind=KIND)
def data_out_sn_byte(talk: ProxyConnection, pdu: Pdu) -> Out:
    return None if isinstance(pdu, DataOut) and pdu.data_sn > 255 else pdu


@mutant("logout-cid-not-zero | RFC 7143 11.14.3 | a connection whose CID is not 0 is not found")
def logout_cid_not_zero(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LogoutResponse) and talk.login is not None and talk.login.cid:
        return replace(pdu, response=LogoutResult.CID_NOT_FOUND)
    return pdu


@on_request("login-text-cut | RFC 7143 6.2 | keys after 4096 bytes of a login are lost", kind=KIND)
def login_text_cut(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or len(pdu.data) <= 4096:
        return pdu
    return replace(pdu, data=pdu.data[: pdu.data.rindex(b"\0", 0, 4096) + 1])
