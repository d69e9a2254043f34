"""Broken rules of EXTENDED COPY(LID1), and of RECEIVE COPY OPERATING PARAMETERS.

The rules, from the text (SPC-4), before any case:

- AVAILABLE DATA counts the bytes that follow it; the type codes that are implemented are listed in ascending order;
  an allocation length that cuts the data is no error. 3PC of INQUIRY states that there are such commands.
- No parameter list, and a segment of no blocks, are no error.
- A segment copies its blocks, all of them and no others, in the order of the list, to the LUN that its CSCD names.
- More descriptors than the maxima, types that are not implemented, descriptors that are not there, and a list that
  ends within one, are errors; so is a range past the end.
- A copy of a nexus that a reservation excludes is a conflict.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_reservation_mutants import enforces
from iscsi_rules import check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut
from storagetest.wire.scsi.codes import Asc, SenseKey

KIND = "full"
INQUIRY, COPY, PARAMETERS = 0x12, 0x83, 0x84
THIRD_PARTY_COPY = 0x08
HEADER, CSCD, SEGMENT = 16, 32, 28
"""Bytes of the parts of a parameter list."""
CODES = 44
"""Where the list of descriptor type codes begins."""
LEAST = 54
"""Bytes of allocation length that LIO requires."""
BLOCKS = 131072


@mutant("copy-3pc | SPC-4 INQUIRY, 3PC | 3PC is 0, and copies are supported", kind=KIND)
def copy_3pc(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != INQUIRY or block[1] & 1 or len(pdu.data) < 6:
        return pdu
    return replace(pdu, data=pdu.data[:5] + bytes((pdu.data[5] & ~THIRD_PARTY_COPY,)) + pdu.data[6:])


def _parameters(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes the whole operating parameters."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PARAMETERS and len(pdu.data) > CODES
        return replace(pdu, data=change(pdu.data)) if ours else pdu


def _available(data: bytes, more: int) -> bytes:
    return (int.from_bytes(data[:4], "big") + more).to_bytes(4, "big") + data[4:]


_parameters(
    "copy-available-less | SPC-4 RECEIVE COPY OPERATING PARAMETERS | AVAILABLE DATA lacks the list of type codes",
    lambda data: _available(data, -2),
)
_parameters(
    "copy-available-more | SPC-4 RECEIVE COPY OPERATING PARAMETERS | AVAILABLE DATA counts itself",
    lambda data: _available(data, 4),
)
_parameters(
    "copy-codes-order | SPC-4 RECEIVE COPY OPERATING PARAMETERS | the type codes are in descending order",
    lambda data: data[:CODES] + data[: CODES - 1 : -1],
)


@mutant(
    "copy-parameters-refused | SPC-4 allocation length | less than 54 bytes of operating parameters are an invalid field",
    kind=KIND,
)
def copy_parameters_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if block[0] != PARAMETERS or int.from_bytes(block[10:14], "big") >= LEAST:
        return pdu
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if ends(pdu) else None


@mutant(
    "copy-none-refused | SPC-4 EXTENDED COPY(LID1) | a parameter list length of zero is an error", kind=KIND
)
def copy_none_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    ours = ends(pdu) and block[0] == COPY and not any(block[10:14])
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR) if ours else pdu


# Parameter lists

Parts = tuple[bytes, list[bytes], list[bytes]]
"""Header, CSCD descriptors and segment descriptors."""


def parts(data: bytes) -> Parts | None:
    """Return the parts of a parameter list, or None if it is not whole."""
    if len(data) < HEADER:
        return None
    first, last = HEADER + int.from_bytes(data[2:4], "big"), int.from_bytes(data[8:12], "big")
    if len(data) != first + last:
        return None
    cscds = [data[at : at + CSCD] for at in range(HEADER, first, CSCD)]
    return data[:HEADER], cscds, [data[at : at + SEGMENT] for at in range(first, first + last, SEGMENT)]


def _whole(head: bytes, cscds: list[bytes], segments: list[bytes], length: int) -> bytes:
    """Return a parameter list of these descriptors, with zeros up to ``length``."""
    named, listed = b"".join(cscds), b"".join(segments)
    head = head[:2] + struct.pack(">H4xI", len(named), len(listed)) + head[12:]
    return (head + named + listed).ljust(length, b"\0")


def _lists(row: str, change: Callable[[list[bytes], list[bytes]], tuple[list[bytes], list[bytes]]]) -> None:
    """A mutant that processes other descriptors than those of the list: ``change(CSCDs, segments)``."""

    @on_request(row, kind=KIND)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataOut) or talk.cdb(pdu)[0] != COPY or (found := parts(pdu.data)) is None:
            return pdu
        return replace(pdu, data=_whole(found[0], *change(*found[1:]), len(pdu.data)))


def _segments(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes each segment descriptor."""
    _lists(row, lambda cscds, segments: (cscds, [change(one) for one in segments]))


def _count(one: bytes, count: Callable[[int], int]) -> bytes:
    return one[:10] + count(int.from_bytes(one[10:12], "big")).to_bytes(2, "big") + one[12:]


def _next_block(one: bytes) -> bytes:
    return one[:20] + (int.from_bytes(one[20:28], "big") + 1).to_bytes(8, "big")


_segments(
    "copy-next-block | SPC-4 segment descriptors | the blocks are written one block behind their place",
    _next_block,
)
_segments(
    "copy-one-block | SPC-4 segment descriptors | one block of each segment is copied",
    lambda one: _count(one, lambda blocks: min(blocks, 1)),
)
_segments(
    "copy-zero-is-one | SPC-4 segment descriptors | a segment of no blocks copies one",
    lambda one: _count(one, lambda blocks: max(blocks, 1)),
)
_segments(
    "copy-source-32-bits | SPC-4 segment descriptors | 32 bits of the address of the source count",
    lambda one: one[:12] + bytes(4) + one[16:],
)
_segments(
    "copy-index-ignored | SPC-4 segment descriptors | each CSCD descriptor ID is that of the first one",
    lambda one: one[:4] + bytes(4) + one[8:],
)
_segments(
    "copy-any-segment | SPC-4 segment descriptors | each type of segment is from block device to block device",
    lambda one: b"\x02" + one[1:],
)
_lists(
    "copy-first-segment | SPC-4 EXTENDED COPY(LID1) | the first segment alone is processed",
    lambda cscds, segments: (cscds, segments[:1]),
)
_lists(
    "copy-segments-backwards | SPC-4 EXTENDED COPY(LID1) | the last segment is processed first",
    lambda cscds, segments: (cscds, segments[::-1]),
)
_lists(
    "copy-any-name | SPC-4 CSCD descriptors | each designator is that of the first descriptor",
    lambda cscds, segments: (cscds[:1] * len(cscds), segments),
)
_lists(
    "copy-any-cscd | SPC-4 CSCD descriptors | each type is that of an identification descriptor",
    lambda cscds, segments: ([b"\xe4" + one[1:] for one in cscds], segments),
)
_lists(
    "copy-cscds-unlimited | SPC-4 EXTENDED COPY(LID1) | more CSCD descriptors than the maximum are taken",
    lambda cscds, segments: (cscds[:2], segments),
)
_lists(
    "copy-segments-unlimited | SPC-4 EXTENDED COPY(LID1) | more segments than the maximum are taken",
    lambda cscds, segments: (cscds, segments[:4]),
)


def _succeeds(talk: ProxyConnection, pdu: Any, asc: int) -> Out:
    """Return GOOD for a copy that ended in the additional sense code ``asc``."""
    ours = ends(pdu) and talk.cdb(pdu)[0] == COPY and pdu.status == 2
    return good(pdu) if ours and pdu.sense[12:14] == asc.to_bytes(2, "big") else pdu


def _notes_target(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == COPY and (found := parts(pdu.data)) is not None:
        talk.memory["past"] = any(int.from_bytes(one[20:28], "big") >= BLOCKS for one in found[2])
    return pdu


both("copy-past-good | SPC-4 segment descriptors | a copy to blocks past the end is GOOD", lambda talk, pdu: _succeeds(talk, pdu, Asc.LBA_OUT_OF_RANGE) if talk.memory.get("past") else pdu, _notes_target, kind=KIND)  # fmt: skip


@mutant(
    "copy-short-list | SPC-4 EXTENDED COPY(LID1) | a list that ends within a descriptor is GOOD", kind=KIND
)
def copy_short_list(talk: ProxyConnection, pdu: Pdu) -> Out:
    return _succeeds(talk, pdu, Asc.PARAMETER_LIST_LENGTH_ERROR)


enforces("reservation-copy", "a copy of another nexus is no conflict", {COPY}, conflict=False, kind=KIND)
