"""Broken rules of one form of a command: last block, a range past the end, no blocks, the largest transfer.

The rules, from the text (SBC-3, SPC-4):

- Each block up to the RETURNED LOGICAL BLOCK ADDRESS can be read, written, verified and compared.
- Each command on a range past it ends in LOGICAL BLOCK ADDRESS OUT OF RANGE.
- A TRANSFER LENGTH of zero is no error; for a cache, it means all blocks up to the last one.
- WRITE AND VERIFY writes its blocks, whatever BYTCHK is.
- No command transfers more than MAXIMUM TRANSFER LENGTH, and each up to it is whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from iscsi_full_unit import UnitChoices, extent
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import COMMANDS, CommandFormat
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import decode_sense

KIND, LIMITED, PROTECTED = "full", "limited", "protected"
"""The unit of iscsi_full_unit.py, without a MAXIMUM TRANSFER LENGTH and with one, and write-protected."""
MOST = 64
"""That MAXIMUM TRANSFER LENGTH."""
BLOCKS = UnitChoices().blocks
HALF, MOST_COMPARED = 512 * 1024, 16
"""Half of the bytes of the largest transfer of the cases; MAXIMUM COMPARE AND WRITE LENGTH of the unit."""

READS = (c.READ_10, c.READ_12, c.READ_16)
PLAIN_WRITES = (c.WRITE_10, c.WRITE_12, c.WRITE_16)
WRITING_VERIFIES = (c.WRITE_AND_VERIFY_10, c.WRITE_AND_VERIFY_12, c.WRITE_AND_VERIFY_16)
VERIFIES = (c.VERIFY_10, c.VERIFY_12, c.VERIFY_16)
TRANSFERS = (*READS, *PLAIN_WRITES, *WRITING_VERIFIES, c.ORWRITE_16, *VERIFIES)
SAMES = (c.WRITE_SAME_10, c.WRITE_SAME_16)
SYNCHRONIZERS = (c.SYNCHRONIZE_CACHE_10, c.SYNCHRONIZE_CACHE_16)
FETCHES = (c.PRE_FETCH_10, c.PRE_FETCH_16)


def range_of(
    talk: ProxyConnection, pdu: Pdu, commands: Collection[CommandFormat]
) -> tuple[CommandFormat, int, int] | None:
    """Return command, first block and number of blocks of the command of ``pdu``, if it is one of these."""
    block = talk.cdb(pdu)
    command = COMMANDS.get((block[0], None))
    return (command, *extent(command, block)) if command is not None and command in commands else None


def _of_last_block(family: str, commands: Collection[CommandFormat]) -> None:
    @mutant(
        f"last-block-{family} | SBC-3, LOGICAL BLOCK ADDRESS | it is past the end for {family}", kind=KIND
    )
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        found = range_of(talk, pdu, commands)
        last = ends(pdu) and not pdu.status and found and found[2] and sum(found[1:]) == BLOCKS
        return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE) if last else pdu


for _family, _commands in {
    "read": READS,
    "write": PLAIN_WRITES,
    "wver": WRITING_VERIFIES,
    "orwrite": (c.ORWRITE_16,),
    "verify": VERIFIES,
    "same": SAMES,
    "sync": SYNCHRONIZERS,
    "caw": (c.COMPARE_AND_WRITE,),
}.items():
    _of_last_block(_family, _commands)


def _past_the_end(name: str, command: CommandFormat) -> None:
    @mutant(f"past-end-{name} | SBC-3, LOGICAL BLOCK ADDRESS | {command.name} there is no error", kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        found = ends(pdu) and pdu.status == 2 and range_of(talk, pdu, (command,))
        if not found or decode_sense(pdu.sense).asc != Asc.LBA_OUT_OF_RANGE:
            return pdu
        expected = talk.commands[pdu.itt].expected_length if command in READS else 0
        return replace(good(pdu), underflow=bool(expected), residual=expected)


for _name, _command in {
    "read-10": c.READ_10,
    "read-16": c.READ_16,
    "write-10": c.WRITE_10,
    "write-16": c.WRITE_16,
    "wver-12": c.WRITE_AND_VERIFY_12,
    "wver-16": c.WRITE_AND_VERIFY_16,
    "orwrite": c.ORWRITE_16,
    "verify-10": c.VERIFY_10,
    "verify-12": c.VERIFY_12,
    "same-16": c.WRITE_SAME_16,
    "sync-10": c.SYNCHRONIZE_CACHE_10,
    "caw": c.COMPARE_AND_WRITE,
}.items():
    _past_the_end(_name, _command)


def _without_blocks(kind: str, commands: Collection[CommandFormat], words: str) -> None:
    @mutant(f"no-blocks-{kind} | SBC-3, TRANSFER LENGTH | {words}", kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        found = ends(pdu) and not pdu.status and range_of(talk, pdu, commands)
        none = found and not found[2]
        return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if none else pdu


_without_blocks("transfer", TRANSFERS, "a transfer of no blocks is refused")
_without_blocks("rest", (*SYNCHRONIZERS, *FETCHES), "a cache is refused the blocks up to the last one")

AS_VERIFY = {0x2E: 0x2F, 0xAE: 0xAF, 0x8E: 0x8F}
"""Operation codes of WRITE AND VERIFY, and those of VERIFY."""


def _compares_alone(block: bytes) -> bool:
    return block[0] in AS_VERIFY and block[1] >> 1 & 3 == 1


def _verifies(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or not _compares_alone(pdu.cdb):
        return pdu
    return replace(pdu, cdb=bytes((AS_VERIFY[pdu.cdb[0]],)) + pdu.cdb[1:])


@mutant(
    "bytchk-not-written | SBC-3 WRITE AND VERIFY | with BYTCHK 01b nothing is written",
    request=_verifies,
    kind=KIND,
)
def bytchk_not_written(talk: ProxyConnection, pdu: Any) -> Out:
    return good(pdu) if ends(pdu) and pdu.status == 2 and _compares_alone(talk.cdb(pdu)) else pdu


@mutant(
    "over-most | SBC-3 Block Limits | only READ(16) keeps to MAXIMUM TRANSFER LENGTH",
    kind=LIMITED,
)
def over_most(talk: ProxyConnection, pdu: Any) -> Out:
    found = ends(pdu) and pdu.status == 2 and range_of(talk, pdu, TRANSFERS)
    if not found or found[0] is c.READ_16 or found[2] <= MOST:
        return pdu
    expected = talk.commands[pdu.itt].expected_length if found[0] in READS else 0
    return replace(good(pdu), underflow=bool(expected), residual=expected)


def _second_half(talk: ProxyConnection, pdu: Any) -> bool:
    """Whether ``pdu`` has data of the second half of a largest transfer."""
    found = range_of(talk, pdu, (*TRANSFERS, c.COMPARE_AND_WRITE))
    if found is None:
        return False
    if found[0] is c.COMPARE_AND_WRITE:  # the second half of what it writes
        return found[2] == MOST_COMPARED and bool(
            pdu.buffer_offset + len(pdu.data) == 2 * MOST_COMPARED * 512
        )
    return found[2] * 512 == 2 * HALF and pdu.buffer_offset >= HALF


def _loses_half(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in (0x41, 0x93):
        at = slice(7, 9) if pdu.cdb[0] == 0x41 else slice(10, 14)
        blocks = int.from_bytes(pdu.cdb[at], "big")
        if blocks * 512 == 2 * HALF:
            less = (blocks // 2).to_bytes(at.stop - at.start, "big")
            return replace(pdu, cdb=pdu.cdb[: at.start] + less + pdu.cdb[at.stop :])
    if not isinstance(pdu, DataOut) or not _second_half(talk, pdu):
        return pdu
    kept = len(pdu.data) // 4 * 3 if talk.cdb(pdu)[0] == 0x89 else 0
    return replace(pdu, data=pdu.data[:kept] + bytes(len(pdu.data) - kept))


@mutant(
    "half-of-largest | SBC-3 Block Limits | the second half of the largest transfer is lost, in each form",
    request=_loses_half,
    kind=KIND,
)
def half_of_largest(talk: ProxyConnection, pdu: Any) -> Out:
    lost = isinstance(pdu, DataIn) and range_of(talk, pdu, READS) and _second_half(talk, pdu)
    return replace(pdu, data=bytes(len(pdu.data))) if lost else pdu


def _notes_ranges(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == c.UNMAP.opcode:
        talk.memory["ranges"] = pdu.data
    return pdu


@mutant(
    "unmap-last-range-counts | SBC-3 UNMAP | a range past the end is no error if the last one is not",
    request=_notes_ranges,
    kind=KIND,
)
def unmap_last_range_counts(talk: ProxyConnection, pdu: Any) -> Out:
    failed = ends(pdu) and pdu.status == 2 and talk.cdb(pdu)[0] == c.UNMAP.opcode
    if not failed or decode_sense(pdu.sense).asc != Asc.LBA_OUT_OF_RANGE:
        return pdu
    last = talk.memory["ranges"][-16:]
    return good(pdu) if int.from_bytes(last[:8], "big") + int.from_bytes(last[8:12], "big") <= BLOCKS else pdu


SELDOM_FORMS = (c.READ_10, c.READ_12, c.WRITE_AND_VERIFY_12, c.WRITE_SAME_10)


@on_request(
    "protect-of-seldom-form | SBC-3 protection information | some forms ignore their protection field",
    kind=KIND,
)
def protect_of_seldom_form(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in {one.opcode for one in SELDOM_FORMS}:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:1] + bytes((pdu.cdb[1] & 0x1F,)) + pdu.cdb[2:])


@mutant(
    "write-protected-forms | SBC-3 write protection | only WRITE(16) ends in DATA PROTECT", kind=PROTECTED
)
def write_protected_forms(talk: ProxyConnection, pdu: Any) -> Out:
    refused = ends(pdu) and pdu.status == 2 and decode_sense(pdu.sense).key == SenseKey.DATA_PROTECT
    return good(pdu) if refused and talk.cdb(pdu)[0] != c.WRITE_16.opcode else pdu
