"""Broken rules of blocks and of the unit's pages that a first, small or single command does not show."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, good
from iscsi_scsi_mutants import forgives, refuses, scsi

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand, ScsiResponse, TaskResponse
from storagetest.wire.scsi.sense import decode_sense


def executes(row: str, opcodes: Iterable[int], change: Callable[[bytearray, bytes], bytes | None]) -> None:
    """A mutant that executes another CDB than it receives; ``change(cdb, data)`` in place, returns other data."""
    known = frozenset(opcodes)

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in known:
            return pdu
        block = bytearray(pdu.cdb)
        data = change(block, pdu.data)
        if bytes(block) == pdu.cdb and data is None:
            return pdu
        return replace(pdu, cdb=bytes(block), data=pdu.data if data is None else data)


def add_to(start: int, length: int, value: int) -> Callable[[bytearray, bytes], None]:
    """Add ``value`` to a field of the CDB that is not zero."""

    def change(block: bytearray, data: bytes) -> None:
        number = int.from_bytes(block[start : start + length], "big")
        if number:
            block[start : start + length] = ((number + value) % 256**length).to_bytes(length, "big")

    return change


def action(of: Iterable[int], becomes: int) -> Callable[[bytearray, bytes], None]:
    """Replace a service action."""
    replaced = frozenset(of)

    def change(block: bytearray, data: bytes) -> None:
        if block[1] & 0x1F in replaced:
            block[1] = block[1] & 0xE0 | becomes

    return change


# Blocks


def low_lba(block: bytearray, data: bytes) -> None:
    block[2:6] = bytes(4)


executes("lba-low-half | SBC-3 READ(16) | the high half of an LBA is ignored", {0x88}, low_lba)
executes("write-lba-low-half | SBC-3 WRITE(16) | the high half of an LBA is ignored", {0x8A}, low_lba)
executes("unmap-one-more | SBC-3 UNMAP | the block after the range is unmapped, too", {0x42},
         lambda block, data: data[:16] + (int.from_bytes(data[16:20], "big") + 1).to_bytes(4, "big") + data[20:]
         if len(data) >= 24 and int.from_bytes(data[16:20], "big") else None)  # fmt: skip
executes("write-same-one-more | SBC-3 WRITE SAME | one block more is written", {0x93, 0x41},
         lambda block, data: add_to(10 if block[0] == 0x93 else 7, 4 if block[0] == 0x93 else 2, 1)(block, data))  # fmt: skip
executes("write-same-one-less | SBC-3 WRITE SAME | the last block of a long range is not written", {0x93},
         lambda block, data: add_to(10, 4, -1)(block, data) if block[13] > 16 or block[12] else None)  # fmt: skip
executes("zeroes-kept | SBC-3 WRITE SAME | a range that is written with zeroes is not changed", {0x93},
         lambda block, data: data[:-1] + b"\1" if data and not any(data) else None)  # fmt: skip


@on_request("write-verify-nothing | SBC-3 WRITE AND VERIFY | the data are not written")
def write_verify_nothing(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in {0x2E, 0x8E, 0xAE}:
        return pdu
    return replace(pdu, cdb=bytes(16), write=False, expected_length=0, data=b"", final=True)


def blocks_of(block: bytes) -> tuple[int, int]:
    """Return LBA and number of blocks of a READ or WRITE of 10, 12 or 16 bytes."""
    lba, count = {
        0x2: ((2, 6), (7, 9)), 0xA: ((2, 6), (6, 10)), 0x8: ((2, 10), (10, 14)),
    }[block[0] >> 4]  # fmt: skip
    return int.from_bytes(block[lba[0] : lba[1]], "big"), int.from_bytes(block[count[0] : count[1]], "big")


_READS, _WRITES = {0x28, 0xA8, 0x88}, {0x2A, 0xAA, 0x8A}


def reads(row: str, change: Callable[[bytearray, int, int, ProxyConnection], None], size: int = 512) -> None:
    """A mutant that changes what a READ returns: ``change(data, lba of the data, blocks of the command, talk)``."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or block[0] not in _READS or not pdu.data:
            return pdu
        lba, count = blocks_of(block)
        data = bytearray(pdu.data)
        change(data, lba + pdu.buffer_offset // size, count, talk)
        return pdu if bytes(data) == pdu.data else replace(pdu, data=bytes(data))


def at_end(over: int) -> Any:
    """Change the last byte of a PDU, in a command of more than ``over`` blocks."""

    def change(data: bytearray, lba: int, count: int, talk: ProxyConnection) -> None:
        if count > over:
            data[-1] ^= 0x40

    return change


def nth_read(number: int) -> Any:
    def change(data: bytearray, lba: int, count: int, talk: ProxyConnection) -> None:
        talk.memory["reads"] = talk.memory.get("reads", 0) + 1
        if talk.memory["reads"] == number:
            data[0] ^= 0x01

    return change


reads("read-long-corrupt | SBC-3 READ | the end of a read of more than 256 blocks is wrong", at_end(256))
reads(
    "read-twentieth-corrupt | SBC-3 READ | the twentieth read of a session returns a wrong byte", nth_read(20)
)


@on_request("read-other-nexus-stale | SAM-5 | an initiator does not see what another has written last")
def other_nexus(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in _WRITES and len(pdu.data) == pdu.expected_length:
        lba, count = blocks_of(pdu.cdb)
        for at in range(count):
            talk.shared.setdefault("now", {})
            now, old = talk.shared["now"], talk.shared.setdefault("old", {})
            if lba + at in now:
                old[lba + at] = now[lba + at][1]
            now[lba + at] = (id(talk), pdu.data[at * 512 : at * 512 + 512])
    return pdu


def stale(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] not in _READS or len(pdu.data) % 512:
        return pdu
    lba, now, old = (
        blocks_of(block)[0] + pdu.buffer_offset // 512,
        talk.shared.get("now", {}),
        talk.shared.get("old", {}),
    )
    data = bytearray(pdu.data)
    for at in range(len(data) // 512):
        if lba + at in old and now[lba + at][0] != id(talk):
            data[at * 512 : at * 512 + 512] = old[lba + at]
    return pdu if bytes(data) == pdu.data else replace(pdu, data=bytes(data))


MUTANTS["read-other-nexus-stale"].reply = stale


executes("read10-blocks-byte | SBC-3 READ(10) | a transfer length over 255 loses its high byte", {0x28},
         lambda block, data: block.__setitem__(7, 0) if block[8] else None)  # fmt: skip
executes("read6-zero-blocks | SBC-3 READ(6) | a transfer length of 0 is no blocks, not 256", {0x08},
         lambda block, data: block.__setitem__(slice(0, 16), bytes((0x28, *bytes(15)))) if not block[4] else None)  # fmt: skip
forgives("lba-range-good-12 | SBC-3 | 12-byte commands past the end are no error", {0xA8, 0xAA}, 5, 0x2100)
forgives("lba-range-good-caw | SBC-3 | COMPARE AND WRITE past the end is no error", {0x89}, 5, 0x2100)
forgives(
    "lba-range-good-verify | SBC-3 | WRITE AND VERIFY and VERIFY(16) past the end are no error",
    {0x2E, 0x8E, 0x8F, 0x91},
    5,
    0x2100,
)

forgives(
    "write-same-10-range | SBC-3 WRITE SAME | WRITE SAME(10) past the end is no error", {0x41}, 5, 0x2100
)


# COMPARE AND WRITE: the place of the first difference, from a model of the written blocks


@on_request(
    "caw-tail-ignored | SBC-3 COMPARE AND WRITE | a difference after the first 256 bytes is no miscompare"
)
def caw_remembers(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand):
        return pdu
    model = talk.shared.setdefault("model", {})
    if pdu.cdb[0] in _WRITES and len(pdu.data) == pdu.expected_length:
        lba, count = blocks_of(pdu.cdb)
        model.update({lba + at: pdu.data[at * 512 : at * 512 + 512] for at in range(count)})
    elif pdu.cdb[0] == 0x89:
        lba, count = int.from_bytes(pdu.cdb[2:10], "big"), pdu.cdb[13]
        held = b"".join(model.get(lba + at, bytes(512)) for at in range(count))
        given = pdu.data[: count * 512]
        differs = [at for at, (one, two) in enumerate(zip(held, given, strict=False)) if one != two]
        talk.memory[pdu.itt] = differs[0] if differs else None
    return pdu


def caw_forgives(after: int) -> Any:
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        first = talk.memory.get(pdu.itt) if talk.cdb(pdu)[0] == 0x89 else None
        wrong = isinstance(pdu, ScsiResponse) and pdu.status == 2 and first is not None and first >= after
        return good(pdu) if wrong else pdu

    return reply


MUTANTS["caw-tail-ignored"].reply = caw_forgives(256)


# Pages


@mutant(
    "designator-changes | SPC-4 Device Identification | the second read of page 83h returns other designators"
)
def designator_changes(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[:3] != b"\x12\1\x83" or len(pdu.data) < 24:
        return pdu
    talk.memory["asked"] = talk.memory.get("asked", 0) + 1
    return replace(pdu, data=pdu.data[:-1] + bytes((pdu.data[-1] ^ 1,))) if talk.memory["asked"] == 2 else pdu


@mutant("serial-per-session | SPC-4 Unit Serial Number | each session reads another serial number")
def serial_per_session(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[:3] != b"\x12\1\x80" or len(pdu.data) < 5:
        return pdu
    number = talk.shared.setdefault("sessions", {}).setdefault(id(talk), len(talk.shared["sessions"]))
    return replace(pdu, data=pdu.data[:-1] + bytes((0x30 + number % 10,)))


def vpd_type(data: bytearray, block: bytes) -> None:
    if block[1] & 1 and data:
        data[0] = 0x05


scsi(
    "vpd-device-type | SPC-4 VPD | a page's peripheral device type is another than the unit's", 0x12, vpd_type
)


def second_page(data: bytearray, block: bytes) -> None:
    at = 4 + data[3] if len(data) > 4 else 0
    if block[2] & 0x3F != 0x3F and at and len(data) > at:
        data[at] = data[at] & 0xC0 | (data[at] + 1) & 0x3F


scsi(
    "mode-page-code | SPC-4 MODE SENSE | a page that is requested alone has another page's code",
    0x1A,
    second_page,
)


scsi("mode10-page-code | SPC-4 MODE SENSE(10) | a page that is requested alone has another page's code", 0x5A,
     lambda data, block: bytes(data[:8]) + bytes((data[8] ^ 1,)) + bytes(data[9:]) if block[2] & 0x3F != 0x3F and len(data) > 8 else None)  # fmt: skip


def one_page_less(data: bytearray, block: bytes) -> bytes | None:
    if not block[2] & 0xC0 or len(data) < 8:
        return None
    cut = data[: 4 + data[3]] + data[4 + data[3] + 2 + data[5 + data[3]] :]
    return bytes((len(cut) - 1,)) + bytes(cut[1:])


scsi(
    "mode-changeable-differs | SPC-4 MODE SENSE | the changeable values lack the first page",
    0x1A,
    one_page_less,
)


def last_byte_of_a_cut(data: bytearray, block: bytes) -> None:
    length = block[4] if block[0] == 0x1A else int.from_bytes(block[7:9], "big")
    if len(data) == length > 4:
        data[-1] ^= 0x5A


scsi(
    "mode-cut | SPC-4 MODE SENSE | data that the allocation length cuts end in another byte",
    {0x1A, 0x5A},
    last_byte_of_a_cut,
)


refuses(
    "mode-zero-refused | SPC-4 MODE SENSE | an allocation length of zero is refused",
    0x1A,
    lambda block: not block[4],
)


def length_of_a_cut(data: bytearray, block: bytes) -> None:
    if block[1] & 1 and block[2] == 0xB0 and len(data) == int.from_bytes(block[3:5], "big") > 4:
        data[3] = len(data) - 4


scsi(
    "vpd-page-cut | SPC-4 VPD | PAGE LENGTH of page B0h follows the allocation length", 0x12, length_of_a_cut
)


@mutant("vpd-page-padded | SPC-4 VPD | a VPD page is padded with zeroes up to the allocation length")
def vpd_page_padded(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x12 or not block[1] & 1:
        return pdu
    wanted = int.from_bytes(block[3:5], "big")
    return replace(pdu, data=pdu.data.ljust(wanted, b"\0"), underflow=False, residual=0)


def clear_dbd(block: bytearray, data: bytes) -> None:
    block[1] &= ~0x08


executes(
    "mode-dbd-ignored | SPC-4 MODE SENSE | a block descriptor is returned in spite of DBD",
    {0x1A, 0x5A},
    clear_dbd,
)


def wrong_block_length(data: bytearray, block: bytes) -> None:
    if len(data) >= 12 and data[3] == 8:
        data[10] ^= 0x10


scsi(
    "mode-block-length | SBC-3 MODE SENSE | the block descriptor's block length is not the unit's",
    0x1A,
    wrong_block_length,
)
executes("capacity-any-action | SBC-3 SERVICE ACTION IN | an undefined service action is READ CAPACITY(16)", {0x9E},
         action((0x00, 0x01, 0x0F, 0x1F), 0x10))  # fmt: skip
executes("pr-in-any-action | SPC-4 PERSISTENT RESERVE IN | an undefined service action is READ KEYS", {0x5E},
         action(range(4, 32), 0))  # fmt: skip
executes("pr-out-any-action | SPC-4 PERSISTENT RESERVE OUT | the undefined service action 0Ah is REGISTER AND IGNORE EXISTING KEY", {0x5F},
         action((0x0A,), 6))  # fmt: skip


def type_masked(block: bytearray, data: bytes) -> None:
    if block[2] & 0x0F in (2, 9, 15):
        block[2] = block[2] & 0xF0 | 1


executes(
    "pr-type-undefined | SPC-4 RESERVE | an undefined type is reserved as Write Exclusive",
    {0x5F},
    type_masked,
)


# Sense data and unit attentions


@mutant("sense-deferred | SPC-4 sense data | a current error is reported as deferred")
def sense_deferred(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if (
        not isinstance(pdu, ScsiResponse)
        or pdu.status != 2
        or pdu.data[2:3] not in (b"\x70", b"\xf0", b"\x72")
    ):
        return pdu
    return replace(pdu, data=pdu.data[:2] + bytes((pdu.data[2] | 1,)) + pdu.data[3:])


@mutant(
    "sense-again | SAM-5 5.13, SPC-4 REQUEST SENSE | REQUEST SENSE returns sense data that were delivered before"
)
def sense_again(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiResponse) and pdu.sense and decode_sense(pdu.sense).key == 5:
        talk.memory["sense"] = pdu.sense
    elif isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == 3 and "sense" in talk.memory:
        return replace(pdu, data=talk.memory.pop("sense")[: len(pdu.data)].ljust(len(pdu.data), b"\0"))
    return pdu


@mutant(
    "attention-on-first-inquiry | SPC-4 INQUIRY | INQUIRY as the first command of a session ends in a unit attention"
)
def first_inquiry(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not ends(pdu) or talk.memory.setdefault("first", pdu.itt) != pdu.itt or talk.cdb(pdu)[0] != 0x12:
        return pdu
    return check(pdu, 6, 0x2900)


@mutant("attention-for-one | SAM-5 5.14 | only one initiator gets the unit attention of a reset")
def attention_for_one(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    asked = talk.tasks.get(pdu.itt)
    if isinstance(pdu, TaskResponse) and asked is not None and asked.function == 5:
        talk.shared["informed"] = None
    if not isinstance(pdu, ScsiResponse) or not pdu.sense or "informed" not in talk.shared:
        return pdu
    if decode_sense(pdu.sense).key != 6:
        return pdu
    talk.shared["informed"] = talk.shared["informed"] or id(talk)
    return pdu if talk.shared["informed"] == id(talk) else good(pdu)


@mutant(
    "sense-other-format | SPC-4 Control mode page, D_SENSE | sense data are in descriptor format although D_SENSE is 0"
)
def sense_other_format(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiResponse) or pdu.status != 2 or pdu.data[2:3] not in (b"\x70", b"\xf0"):
        return pdu
    seen = decode_sense(pdu.sense)
    sense = bytes((0x72, seen.key, seen.asc >> 8, seen.asc & 0xFF, 0, 0, 0, 0))
    return replace(pdu, data=len(sense).to_bytes(2, "big") + sense)


# Reservations


def unguarded(row: str, opcodes: set[int]) -> None:
    """A mutant that turns a RESERVATION CONFLICT of some commands into GOOD."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        conflict = isinstance(pdu, ScsiResponse) and pdu.status == 0x18 and talk.cdb(pdu)[0] in opcodes
        return good(pdu) if conflict else pdu


unguarded(
    "reservation-other-writes | SPC-4 reservations | UNMAP, WRITE SAME and COMPARE AND WRITE pass a reservation",
    {0x42, 0x41, 0x93, 0x89},
)
unguarded(
    "reservation-verify | SPC-4 reservations | VERIFY and WRITE AND VERIFY pass a reservation",
    {0x2F, 0x8F, 0x2E, 0x8E},
)


def pr_out_conflict_good(row: str, which: int) -> None:
    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        conflict = isinstance(pdu, ScsiResponse) and pdu.status == 0x18
        return good(pdu) if conflict and block[0] == 0x5F and block[1] & 0x1F == which else pdu


pr_out_conflict_good(
    "clear-unregistered | SPC-4 CLEAR | CLEAR with a wrong key or without a registration succeeds", 3
)
pr_out_conflict_good("release-any-key | SPC-4 RELEASE | RELEASE with a wrong key succeeds", 2)


@mutant("generation-failed | SPC-4 PRGENERATION | a refused PERSISTENT RESERVE OUT is counted")
def generation_failed(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if isinstance(pdu, ScsiResponse) and pdu.status == 0x18 and block[0] == 0x5F:
        talk.shared["failed"] = talk.shared.get("failed", 0) + 1
    if isinstance(pdu, DataIn) and block[0] == 0x5E and block[1] & 0x1F < 2 and len(pdu.data) >= 4:
        number = int.from_bytes(pdu.data[:4], "big") + talk.shared.get("failed", 0)
        return replace(pdu, data=number.to_bytes(4, "big") + pdu.data[4:])
    return pdu


@mutant(
    "reset-clears-registrations | SPC-4 persistent reservations | a logical unit reset ends registrations and the reservation"
)
def reset_clears(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    asked = talk.tasks.get(pdu.itt)
    if asked is not None and asked.function == 5 and isinstance(pdu, TaskResponse):
        talk.shared["reset"] = True
    block = talk.cdb(pdu)
    if block[0] == 0x5F and isinstance(pdu, ScsiResponse):
        talk.shared["reset"] = False
    cleared = (
        talk.shared.get("reset") and isinstance(pdu, DataIn) and block[0] == 0x5E and block[1] & 0x1F < 2
    )
    return (
        replace(pdu, data=(pdu.data[:4] + bytes(len(pdu.data) - 4)))
        if cleared and isinstance(pdu, DataIn)
        else pdu
    )
