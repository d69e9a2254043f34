"""Broken rules of second forms: ranges that end past the greatest address, caches of one nexus, second pages.

The rules, from the text, before any case:

- SBC-3: a range whose end is past the last block is out of range, however large the sum of address and number is.
- SBC-3, SAM-5: a block is that of the logical unit, not of a nexus: a change is seen through each nexus.
- SPC-4 MODE SELECT: each page of the list is set. MODE SENSE: default values do not change.
- SBC-3 COMPARE AND WRITE: INFORMATION is the offset of the first difference, in each format of sense data (SPC-4).
- SBC-3 WRITE SAME: a range that was unmapped reads as what was written, in each form of the command.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense

KIND = "full"
MODE_SENSE_6, UNMAP, SERVICE_IN, LBA_STATUS = 0x1A, 0x42, 0x9E, 0x12
SAME_10, SAME_16 = 0x41, 0x93
SELECTS = {"6": (0x15, 4), "10": (0x55, 8)}
"""Operation codes of MODE SELECT, and bytes of their headers."""
LONG = {0x88, 0x8A, 0x8E, 0x8B, 0x8F, 0x93, 0x91, 0x89, 0x90}
SHORT = {0x28, 0xA8, 0x2A, 0xAA, 0x2E, 0xAE, 0x2F, 0xAF, 0x41, 0x35, 0x34}
"""Commands on a range with addresses of 64 and of 32 bits."""
READS = {0x28, 0x88}
WRITERS = {
    "write": {0x0A, 0x2A, 0xAA, 0x8A},
    "verify": {0x2E, 0xAE, 0x8E},
    "same": {0x41, 0x93},
    "unmap": {0x42},
    "compare": {0x89, 0x8B},
}
"""Families of commands that change blocks."""
ALL_WRITERS = set().union(*WRITERS.values())


def _wraps(row: str, opcodes: set[int], size: int) -> None:
    """A mutant that takes a range that begins at the greatest address."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        block = talk.cdb(pdu)
        wrapped = block[0] in opcodes and block[2 : 2 + size] == b"\xff" * size
        return good(pdu) if ends(pdu) and wrapped and pdu.status == 2 else pdu


_wraps(
    "range-wraps-64 | SBC-3, LOGICAL BLOCK ADDRESS | the end of a range has 64 bits: a range past the greatest address is GOOD",
    LONG,
    8,
)
_wraps(
    "range-wraps-32 | SBC-3, LOGICAL BLOCK ADDRESS | the end of a range has 32 bits in commands of 10 and 12 bytes",
    SHORT,
    4,
)


def _notes_unmap(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == UNMAP:
        talk.memory["unmap"] = pdu.data[8:16] == b"\xff" * 8
    return pdu


def _unmap_wraps(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = ends(pdu) and talk.cdb(pdu)[0] == UNMAP and talk.memory.get("unmap")
    return good(pdu) if ours else pdu


both(
    "unmap-wraps | SBC-3 UNMAP | the end of a descriptor has 64 bits: one past the greatest address is GOOD",
    _unmap_wraps,
    _notes_unmap,
    kind=KIND,
)


@on_request("lbas-wraps | SBC-3 GET LBA STATUS | 32 bits of the address count", kind=KIND)
def lbas_wraps(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[:2] != bytes((SERVICE_IN, LBA_STATUS)):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:2] + bytes(4) + pdu.cdb[6:])


# A cache of each nexus


def _notes_writer(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in ALL_WRITERS:
        talk.shared["writer"] = pdu.cdb[0]
        if talk.name.endswith("-b"):
            talk.memory.clear()
    return pdu


def _stale(family: str) -> None:
    """A mutant whose nexus "b" reads what it has read before, after a command of a family."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or block[0] not in READS or not talk.name.endswith("-b"):
            return pdu
        if talk.shared.get("writer") in WRITERS[family] and block in talk.memory:
            return replace(pdu, data=talk.memory[block])
        talk.memory[block] = pdu.data
        return pdu

    both(
        f"stale-read-{family} | SBC-3 READ, WRITE | a nexus that has read a block reads it as it was before a change by another nexus: {family}",
        reply,
        _notes_writer,
        kind=KIND,
    )


for one in WRITERS:
    _stale(one)


# Lists of mode pages


def _notes_page(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if isinstance(pdu, DataIn) and block[0] == MODE_SENSE_6 and block[1] & 8 and not block[2] >> 6:
        talk.memory[pdu.data[4] & 0x3F] = pdu.data[4:]
    return pdu


def _first_page(form: str) -> None:
    opcode, head = SELECTS[form]

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataOut) or talk.cdb(pdu)[0] != opcode:
            return pdu
        second = head + 2 + pdu.data[head + 1] if len(pdu.data) > head + 1 else len(pdu.data)
        if len(pdu.data) <= second:
            return pdu
        before = talk.memory.get(pdu.data[second] & 0x3F, b"")
        return (
            replace(pdu, data=pdu.data[:second] + bytes((before[0] & 0x3F,)) + before[1:]) if before else pdu
        )

    both(
        f"mode-select-first-{form} | SPC-4 MODE SELECT({form}) | the first page of a list alone is set",
        _notes_page,
        request,
        kind=KIND,
    )


for name in SELECTS:
    _first_page(name)


@mutant(
    "mode-default-current | SPC-4 MODE SENSE, PC | default values are those that were selected", kind=KIND
)
def mode_default_current(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if isinstance(pdu, ScsiResponse) and block[0] in (0x15, 0x55) and not pdu.status and any(block[4:9]):
        talk.shared["selected"] = talk.shared.get("selected", 0) + 1
    if not isinstance(pdu, DataIn) or block[0] != MODE_SENSE_6 or block[2] >> 6 != 2 or len(pdu.data) < 8:
        return pdu
    flip = 4 if talk.shared.get("selected", 0) > 2 else 0
    return replace(pdu, data=pdu.data[:6] + bytes((pdu.data[6] ^ flip,)) + pdu.data[7:])


@mutant(
    "d-sense-miscompare | SPC-4 sense data | in descriptor format a miscompare has no INFORMATION", kind=KIND
)
def d_sense_miscompare(talk: ProxyConnection, pdu: Pdu) -> Out:
    if (
        not isinstance(pdu, ScsiResponse)
        or pdu.sense[:2] != b"\x72\x0e"
        or decode_sense(pdu.sense).information is None
    ):
        return pdu
    return replace(pdu, data=b"\0\x08" + pdu.sense[:4] + bytes(4))


# WRITE SAME


@on_request(
    "same10-unmap-kept | SBC-3 WRITE SAME(10), UNMAP | with UNMAP other blocks are written", kind=KIND
)
def same10_unmap_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != SAME_10 or not pdu.cdb[1] & 8:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:5] + bytes((pdu.cdb[5] ^ 0x80,)) + pdu.cdb[6:])


@on_request(
    "ndob-unmap-kept | SBC-3 WRITE SAME(16), NDOB | with NDOB and UNMAP nothing is written", kind=KIND
)
def ndob_unmap_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == SAME_16 and pdu.cdb[1] & 9 == 9
    return replace(pdu, cdb=bytes(16)) if ours else pdu
