"""Broken rules of one form of a command of several, and of data that an implementation may take for none.

The rules, from the text, before any case:

- SPC-4 MODE SENSE(10): it is MODE SENSE(6) with a longer header, so pages and header fields are the same.
- SBC-3 READ, WRITE: LOGICAL BLOCK ADDRESS has 21 bits in 6-byte commands, 32 bits in longer ones.
- SBC-3 READ, WRITE: a block holds what was written to it last, whatever its value and the command's size.
- SPC-4 sense data: response code 71h is an error of an earlier command, whose status was GOOD.
- SPC-2 RELEASE(6): a nexus that holds no reservation releases none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, ended_in, ends, good, sense_data
from iscsi_scsi_mutants import scsi

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense

MODE_SENSE_10 = 0x5A
RESERVE, RELEASE, CONFLICT = 0x16, 0x17, 0x18
READS, WRITES = (0x28, 0x88, 0xA8), (0x2A, 0x8A, 0xAA)
FAILING = (*WRITES, 0x8E, 0x93, 0x89)
"""Operation codes of the commands that write blocks."""
EDGE, BLOCK = 1 << 16, 512


# MODE SENSE(10)


def _late_byte(data: bytearray, cdb: bytes) -> None:
    """Change the last byte but one of the mode pages."""
    at = len(data) - 2
    if at > 10 + int.from_bytes(data[6:8], "big"):
        data[at] ^= 1


def _device_specific(data: bytearray, cdb: bytes) -> None:
    if len(data) > 3:
        data[3] ^= 0x10  # DPOFUA


def _block_length(data: bytearray, cdb: bytes) -> None:
    if len(data) >= 16 and data[7] == 8:
        data[14] ^= 0x10


_ROW = "SPC-4 MODE SENSE(10)"
scsi(f"mode10-other-page | {_ROW} | a page differs from that of MODE SENSE(6)", MODE_SENSE_10, _late_byte)
scsi(f"mode10-other-header | {_ROW} | DPOFUA is not that of MODE SENSE(6)", MODE_SENSE_10, _device_specific)
scsi(
    f"mode10-other-block-length | {_ROW} | the block descriptor is not that of MODE SENSE(6)",
    MODE_SENSE_10,
    _block_length,
)


# Addresses of more than 16 bits


def _narrow(row: str, opcodes: tuple[int, ...]) -> None:
    """A mutant that takes the lower 16 bits of an LBA of 21 or 32 bits."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in opcodes or pdu.cdb[2] & 0x80:
            return pdu
        cdb = bytearray(pdu.cdb)
        if cdb[0] == 0x0A:
            cdb[1] &= 0xE0
        else:
            cdb[2:4] = bytes(2)
        return pdu if cdb == pdu.cdb else replace(pdu, cdb=bytes(cdb))


_narrow("read-high-lba | SBC-3 READ(10), READ(12) | LBA has 16 bits", (0x28, 0xA8))
_narrow("write-high-lba | SBC-3 WRITE(10), WRITE(12) | LBA has 16 bits", (0x2A, 0xAA))
_narrow("write-6-high-lba | SBC-3 WRITE(6) | LBA has 16 bits", (0x0A,))


# Data


def _data(row: str, kind: Any, opcodes: tuple[int, ...], change: Callable[[Any, ScsiCommand], bytes]) -> None:
    """A mutant that changes the data of Data-In or of Data-Out, and immediate data."""

    def changed(talk: ProxyConnection, pdu: Pdu) -> Out:
        command = talk.commands.get(pdu.itt)
        ours = isinstance(pdu, kind) and command is not None and command.cdb[0] in opcodes and pdu.data
        if not ours or command is None:
            return pdu
        new = change(pdu, command)
        return pdu if new == pdu.data else replace(pdu, data=new)

    (mutant if kind is DataIn else on_request)(row)(changed)


def _at(pdu: Any) -> int:
    return getattr(pdu, "buffer_offset", 0)


def _over_edge(pdu: Any, command: ScsiCommand) -> bytes:
    """Clear what belongs to the blocks from EDGE on, if the command begins before it."""
    wide = command.cdb[0] in (0x88, 0x8A)
    lba = int.from_bytes(command.cdb[2:10] if wide else command.cdb[2:6], "big")
    keep = min(max((EDGE - lba) * BLOCK - _at(pdu), 0), len(pdu.data)) if lba < EDGE else len(pdu.data)
    return bytes(pdu.data[:keep]) + bytes(len(pdu.data) - keep)


def _each_block(old: int, new: bytes) -> Callable[[Any, ScsiCommand], bytes]:
    """Replace the blocks of one value; the first block of the PDU begins a block of the unit."""

    def change(pdu: Any, command: ScsiCommand) -> bytes:
        if _at(pdu) % BLOCK:
            return bytes(pdu.data)
        parts = [bytes(pdu.data[at : at + BLOCK]) for at in range(0, len(pdu.data), BLOCK)]
        return b"".join(new if part == bytes((old,)) * BLOCK else part for part in parts)

    return change


_data("read-over-edge | SBC-3 READ | a read across LBA 65536 returns zeroes from there on", DataIn, READS,
      _over_edge)  # fmt: skip
_data("write-over-edge | SBC-3 WRITE | a write across LBA 65536 writes zeroes from there on",
      (ScsiCommand, DataOut), WRITES, _over_edge)  # fmt: skip
_data("ff-block-zero | SBC-3 READ | a block of FFh bytes is read as one of zeroes", DataIn, READS,
      _each_block(0xFF, bytes(BLOCK)))  # fmt: skip
_data("zero-block-kept | SBC-3 WRITE | a block of zeroes among others is written as something else",
      (ScsiCommand, DataOut), WRITES, _each_block(0x00, b"\xee" * BLOCK))  # fmt: skip


# Sense data of writes


@mutant("write-sense-deferred | SPC-4 sense data | a write that was not executed has a deferred error")
def write_sense_deferred(talk: ProxyConnection, pdu: Pdu) -> Out:
    failed = isinstance(pdu, ScsiResponse) and pdu.sense and talk.cdb(pdu)[0] in FAILING
    if not failed or attention(pdu) or not isinstance(pdu, ScsiResponse):
        return pdu
    return replace(pdu, data=pdu.data[:2] + bytes((pdu.data[2] | 1,)) + pdu.data[3:])


@mutant("write-information-zero | SBC-3 error reporting | INFORMATION of a write past the end is 0")
def write_information_zero(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse) or not pdu.sense or talk.cdb(pdu)[0] not in FAILING:
        return pdu
    sense = decode_sense(pdu.sense)
    if sense.asc != 0x2100:
        return pdu
    return ended_in(pdu, 2, sense_data(sense.key, sense.asc, information=0))


# RELEASE(6)


@mutant("release6-conflict | SPC-2 RELEASE(6) | RELEASE(6) of another nexus is a conflict")
def release6_conflict(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not ends(pdu):
        return pdu
    opcode = talk.cdb(pdu)[0]
    holder = talk.shared.get("six")
    if opcode == RESERVE and not pdu.status:  # type: ignore[attr-defined]
        talk.shared["six"] = talk.name
    elif opcode == RELEASE and holder == talk.name:
        talk.shared.pop("six")
    elif opcode == RELEASE and holder is not None:
        return replace(pdu, status=CONFLICT)  # type: ignore[type-var]
    return pdu


@mutant("release6-of-another | SPC-2 RELEASE(6) | RELEASE(6) of another nexus ends the reservation")
def release6_of_another(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not ends(pdu):
        return pdu
    opcode, status = talk.cdb(pdu)[0], pdu.status  # type: ignore[attr-defined]
    holder = talk.shared.get("holder")
    if opcode == RESERVE and not status:
        talk.shared.update(holder=talk.name, released=False)
    elif opcode == RELEASE and holder == talk.name:
        talk.shared.clear()
    elif opcode == RELEASE and holder is not None:
        talk.shared["released"] = True
    return good(pdu) if status == CONFLICT and talk.shared.get("released") else pdu


# Many commands at the same time

DEEP = 6
MUCH = 2 << 20
"""Bytes (chosen)."""


@mutant("deep-read-mixed | RFC 7143 11.2.1.8 | with 6 reads outstanding, one has the data of another")
def deep_read_mixed(talk: ProxyConnection, pdu: Pdu) -> Out:
    done = talk.memory.setdefault("done", set())
    reads = [itt for itt, one in talk.commands.items() if one.cdb[0] in READS and itt not in done]
    if ends(pdu):
        done.add(pdu.itt)
    if not isinstance(pdu, DataIn) or len(reads) < DEEP:
        return pdu
    data = talk.memory.setdefault("data", pdu.data)
    return replace(pdu, data=data) if len(data) == len(pdu.data) and data != pdu.data else pdu


def unread_bytes(talk: ProxyConnection) -> int:
    """Return the bytes that reads ask for and that have no response yet."""
    done = talk.memory.get("done", ())
    return sum(
        one.expected_length for itt, one in talk.commands.items() if one.cdb[0] in READS and itt not in done
    )


@mutant(
    "unread-byte-lost | RFC 7143 4.2.2.1 | with 2 MiB of reads outstanding, data are moved by a byte",
)
def unread_byte_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    waiting = unread_bytes(talk)
    if ends(pdu):
        talk.memory.setdefault("done", set()).add(pdu.itt)
    if not isinstance(pdu, DataIn) or waiting < MUCH:
        return pdu
    return replace(pdu, data=pdu.data[1:] + pdu.data[:1])


@mutant(
    "unread-close-ends | RFC 7143 7.5 | after a connection that ended during 2 MiB of reads, reads fail",
)
def unread_close_ends(talk: ProxyConnection, pdu: Pdu) -> Out:
    if unread_bytes(talk) >= MUCH:
        talk.shared["unread"] = talk
    if ends(pdu):
        talk.memory.setdefault("done", set()).add(pdu.itt)
    before = talk.shared.get("unread", talk)
    if before is talk or not before.over or not unread_bytes(before):
        return pdu
    return ended_in(pdu, 8) if ends(pdu) and talk.commands[pdu.itt].cdb[0] in READS else pdu  # BUSY


@on_request(
    "deep-write-lost | RFC 7143 4.2.2.1 | with 3 writes outstanding, solicited data are written as zeroes"
)
def deep_write_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    waiting = talk.memory.setdefault("waiting", set())
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in WRITES and pdu.expected_length > len(pdu.data):
        waiting.add(pdu.itt)
    if not isinstance(pdu, DataOut) or pdu.itt not in talk.commands:
        return pdu
    deep = len(waiting) >= DEEP // 2
    if pdu.buffer_offset + len(pdu.data) == talk.commands[pdu.itt].expected_length:
        waiting.discard(pdu.itt)
    return replace(pdu, data=bytes(len(pdu.data))) if deep else pdu


# Two logical units


@on_request(
    "read-of-written-unit | SAM-5 4.7 | a read of another LUN returns the blocks of the unit written last"
)
def read_of_written_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand):
        return pdu
    if pdu.cdb[0] in WRITES:
        talk.shared["written"] = pdu.lun
    ours = pdu.cdb[0] in READS and "written" in talk.shared
    return replace(pdu, lun=talk.shared["written"]) if ours and pdu.lun != talk.shared["written"] else pdu


@mutant("name-of-first-unit | SPC-4 Device Identification | all logical units have the name of the first one")
def name_of_first_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    cdb = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or cdb[0] != 0x12 or not cdb[1] & 1 or cdb[2] != 0x83:
        return pdu
    name = talk.shared.setdefault("name", pdu.data)
    return replace(pdu, data=name) if name != pdu.data else pdu
