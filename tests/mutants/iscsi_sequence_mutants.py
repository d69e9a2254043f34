"""Broken rules that show in a sequence of commands: the second of a kind, after another, of a certain size.

The rules, before any case (RFC 7143 from its text; SPC-4, SBC-3 and SAM-5 by their sections):

- SBC-3 READ, WRITE: each write of a block replaces its data, however often and after whatever command; a read
  of any number of blocks at any address returns them, by each of the commands; READ(6) has 21 bits of LBA.
- SBC-3 WRITE SAME, COMPARE AND WRITE, UNMAP: each time, each block of each range, and no neighbour.
- SAM-5 5.14: each reset establishes a unit attention.
- RFC 7143 4.2.2.2: StatSN counts each status, however many; 11.4.5: each residual is reported.
- RFC 7143 11.7.5: the offset of each Data-In, in long transfers, too; 11.18: each ping is returned whole.
- SPC-4 INQUIRY, READ CAPACITY: a request that is made again has the same answer.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_block_mutants import blocks_of, executes, reads
from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant, on_request
from iscsi_rules import ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, NopIn, ScsiCommand, ScsiResponse, TaskResponse
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.sense import decode_sense

_READS, _WRITES = {0x28, 0xA8, 0x88}, {0x2A, 0xAA, 0x8A}


def loses(row: str, when: Callable[[ProxyConnection, ScsiCommand], bool]) -> None:
    """A mutant that ends a command with immediate data in GOOD, and does nothing."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, ScsiCommand) or len(pdu.data) != pdu.expected_length or not when(talk, pdu):
            return pdu
        return replace(pdu, cdb=bytes(16), write=False, expected_length=0, data=b"", final=True)


def nth(number: int, opcodes: set[int], *, least: int = 1, by_lba: bool = True) -> Callable[..., bool]:
    """Whether a command is number ``number`` of its session of these opcodes (and of its first LBA)."""

    def matches(talk: ProxyConnection, pdu: ScsiCommand) -> bool:
        if pdu.cdb[0] not in opcodes or len(pdu.data) < least:
            return False
        counts: Counter[bytes] = talk.memory.setdefault("counts", Counter())
        key = pdu.cdb[2:10] if by_lba else b""
        counts[key] += 1
        return counts[key] == number

    return matches


loses("third-write-lost | SBC-3 WRITE | the third write of a session to one LBA is lost", nth(3, _WRITES))
loses(
    "write-same-again-lost | SBC-3 WRITE SAME | the second WRITE SAME to one LBA is lost",
    nth(2, {0x93, 0x41}),
)


def after_unmap(talk: ProxyConnection, pdu: ScsiCommand) -> bool:
    if pdu.cdb[0] == 0x42:
        talk.memory["unmaps"] = talk.memory.get("unmaps", 0) + 1
        talk.memory["armed"] = talk.memory["unmaps"] == 2
    return pdu.cdb[0] in _WRITES and bool(talk.memory.pop("armed", False))


loses(
    "unmap-again-then-write-lost | SBC-3 WRITE | the first write after the second UNMAP is lost", after_unmap
)


@on_request(
    "write-after-sync-lost | SBC-3 SYNCHRONIZE CACHE, WRITE | the write after a SYNCHRONIZE CACHE is lost"
)
def write_after_sync(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand):
        return pdu
    lost = pdu.cdb[0] in _WRITES and talk.memory.get("synced") and len(pdu.data) == pdu.expected_length
    talk.memory["synced"] = pdu.cdb[0] in {0x35, 0x91}
    if not lost:
        return pdu
    return replace(pdu, cdb=bytes(16), write=False, expected_length=0, data=b"", final=True)


@on_request(
    "caw-again-keeps | SBC-3 COMPARE AND WRITE | the second COMPARE AND WRITE of a session writes what it compares"
)
def caw_again(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != 0x89 or len(pdu.data) != pdu.expected_length:
        return pdu
    talk.memory["caws"] = talk.memory.get("caws", 0) + 1
    half = len(pdu.data) // 2
    return replace(pdu, data=pdu.data[:half] * 2) if talk.memory["caws"] == 2 else pdu


executes("write-same-count-byte | SBC-3 WRITE SAME | a number of blocks over 255 loses its high byte", {0x93},
         lambda block, data: block.__setitem__(12, 0) if block[13] else None)  # fmt: skip


@on_request(
    "write-odd-last-lost | SBC-3 WRITE | the last block of a write of an odd number over 16 is zeroes"
)
def write_odd(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = pdu.cdb if isinstance(pdu, ScsiCommand) else talk.cdb(pdu)
    if not isinstance(pdu, (ScsiCommand, DataOut)) or block[0] not in _WRITES or not pdu.data:
        return pdu
    _, count = blocks_of(block)
    end = len(pdu.data) + (pdu.buffer_offset if isinstance(pdu, DataOut) else 0)
    return (
        replace(pdu, data=pdu.data[:-512] + bytes(512))
        if count > 16 and count % 2 and end == 512 * count
        else pdu
    )


def of_129(data: bytearray, lba: int, count: int, talk: ProxyConnection) -> None:
    if count == 129:
        data[-1] ^= 1


reads(
    "read-129-blocks-wrong | SBC-3 READ | the last byte of each Data-In of a read of 129 blocks is wrong",
    of_129,
)
executes("read-odd-lba | SBC-3 READ(10) | reads of several blocks from an odd LBA begin one block early", {0x28},
         lambda block, data: block.__setitem__(5, block[5] - 1) if block[5] & 1 and block[8] > 1 else None)  # fmt: skip
executes("read6-high-lba | SBC-3 READ(6) | the upper five bits of an LBA are ignored", {0x08},
         lambda block, data: block.__setitem__(1, block[1] & 0xE0))  # fmt: skip


@mutant(
    "read-after-failure-wrong | SBC-3 READ | the read after a command that ended in CHECK CONDITION has a wrong byte"
)
def read_after_failure(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiResponse):
        talk.memory["failed"] = pdu.status == 2 and decode_sense(pdu.sense).key == 5
        return pdu
    if not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] not in _READS or not talk.memory.pop("failed", False):
        return pdu
    return replace(pdu, data=bytes((pdu.data[0] ^ 1,)) + pdu.data[1:])


@mutant(
    "data-in-late-flipped | RFC 7143 11.7 | the data of the 17th and later Data-In of a read are shifted by a byte"
)
def late_data_in(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    late = isinstance(pdu, DataIn) and pdu.data_sn >= 16
    return replace(pdu, data=pdu.data[1:] + pdu.data[:1]) if late else pdu  # type: ignore[attr-defined,type-var]


@mutant("attention-of-second-reset | SAM-5 5.14 | the second reset of a unit establishes no unit attention")
def second_reset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    asked = talk.tasks.get(pdu.itt)
    if isinstance(pdu, TaskResponse) and asked is not None and asked.function == 5:
        talk.shared["resets"] = talk.shared.get("resets", 0) + 1
    lost = isinstance(pdu, ScsiResponse) and pdu.sense and talk.shared.get("resets", 0) >= 2
    return good(pdu) if lost and decode_sense(pdu.sense).key == 6 else pdu  # type: ignore[attr-defined]


@mutant("residual-second-lost | RFC 7143 11.4.5 | only the first underflow of a session is reported")
def second_residual(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not ends(pdu) or not getattr(pdu, "underflow", False):
        return pdu
    talk.memory["residuals"] = talk.memory.get("residuals", 0) + 1
    if talk.memory["residuals"] < 2:
        return pdu
    fields: Any = {"underflow": False, "residual": 0}
    return replace(pdu, **fields)


@mutant(
    "stat-sn-after-64 | RFC 7143 4.2.2.2 | the 64th status of a session and later ones have StatSN of one less"
)
def late_stat_sn(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not ends(pdu):
        return pdu
    talk.memory["ended"] = talk.memory.get("ended", 0) + 1
    number: Any = pdu
    return replace(number, stat_sn=plus(number.stat_sn, -1)) if talk.memory["ended"] >= 64 else pdu


@mutant("ping-later-cut | RFC 7143 11.18 | the fourth ping of a session and later ones lose their last byte")
def later_ping(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, NopIn) or not pdu.data:
        return pdu
    talk.memory["pings"] = talk.memory.get("pings", 0) + 1
    return replace(pdu, data=pdu.data[:-1]) if talk.memory["pings"] >= 4 else pdu


@mutant(
    "inquiry-third-differs | SPC-4 INQUIRY | the third standard INQUIRY of a session has another revision"
)
def third_inquiry(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x12 or block[1] & 1 or len(pdu.data) < 36:
        return pdu
    talk.memory["inquiries"] = talk.memory.get("inquiries", 0) + 1
    other = pdu.data[:32] + bytes((pdu.data[32] ^ 1,)) + pdu.data[33:]
    return replace(pdu, data=other) if talk.memory["inquiries"] == 3 else pdu


@mutant(
    "capacity-again-smaller | SBC-3 READ CAPACITY | after a write of the last block the capacity is one block less"
)
def smaller_after_last(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x9E or len(pdu.data) < 8:
        return pdu
    last = int.from_bytes(pdu.data[:8], "big")
    written = last in talk.shared.get("written", ())
    return replace(pdu, data=(last - written).to_bytes(8, "big") + pdu.data[8:])


def _notes_writes(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in _WRITES:
        lba, count = blocks_of(pdu.cdb)
        talk.shared.setdefault("written", set()).add(lba + count - 1)
    return pdu


MUTANTS["capacity-again-smaller"].request = _notes_writes
