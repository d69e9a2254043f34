"""Broken rules of SCSI: INQUIRY, VPD pages, blocks, sense data."""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant
from iscsi_rules import check, ends, good, sense_data

from storagetest.wire.iscsi.codes import Attribute
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.sense import decode_sense

# SCSI


def scsi(row: str, opcode: int | set[int], change: Any, *, evpd: int | None = None) -> None:
    """A mutant that changes the data of a command; ``change(bytearray, cdb)`` in place, or returns new data."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if (
            not isinstance(pdu, DataIn)
            or block[0] not in (opcode if isinstance(opcode, set) else {opcode})
            or (evpd is not None and (not block[1] & 1 or block[2] != evpd))
        ):
            return pdu
        data = bytearray(pdu.data)
        changed = change(data, block)
        return replace(pdu, data=bytes(data if changed is None else changed))


def put(at: int, value: int) -> Any:
    def change(data: bytearray, block: bytes) -> None:
        if len(data) > at:
            data[at] = value

    return change


def add(at: int, value: int) -> Any:
    def change(data: bytearray, block: bytes) -> None:
        if len(data) > at:
            data[at] = (data[at] + value) & 0xFF

    return change


def standard(change: Any) -> Any:
    return lambda data, block: None if block[1] & 1 else change(data, block)


def cut(change: Any, under: int = 64) -> Any:
    """Only where the allocation length is short (the last byte of a 6-byte CDB's)."""
    return lambda data, block: change(data, block) if block[4] < under else None


_INQ, _VPD = "SPC-4 INQUIRY", "SPC-4 VPD"
scsi(f"inquiry-type | {_INQ} | the peripheral device type is wrong", 0x12, standard(put(0, 0x05)))
scsi(f"inquiry-length | {_INQ} | ADDITIONAL LENGTH is too large by one", 0x12, standard(add(4, 1)))
scsi(
    f"inquiry-truncation | {_INQ} | ADDITIONAL LENGTH follows the allocation length",
    0x12,
    cut(standard(put(4, 0))),
)
scsi(f"inquiry-ascii | {_INQ} | the vendor is not ASCII", 0x12, standard(put(9, 0x01)))
scsi(
    f"vpd-order | {_VPD} | the pages are not in order",
    0x12,
    lambda data, block: data[:4] + data[4:][::-1],
    evpd=0,
)
scsi(f"vpd-code | {_VPD} | a page has a wrong code", 0x12, put(1, 0x81), evpd=0x80)
scsi(
    f"designators-missing | {_VPD} | the unit has no unique designator",
    0x12,
    lambda data, block: bytes((data[0], 0x83, 0, 0)),
    evpd=0x83,
)
scsi(f"naa-length | {_VPD} | an NAA designator is truncated", 0x12,
     lambda data, block: bytes(data[:2]) + b"\0\x0e" + bytes(data[4:7]) + b"\x0a" + bytes(data[8:18]), evpd=0x83)  # fmt: skip
scsi(f"vpd-truncation | {_VPD} | PAGE LENGTH follows the allocation length", 0x12, cut(put(3, 4)), evpd=0x83)
scsi("block-limits-length | SBC-3 Block Limits | the page has a wrong length", 0x12,
     lambda data, block: bytes(data[:2]) + b"\0\x10" + bytes(data[4:20]), evpd=0xB0)  # fmt: skip
scsi("capacity-mismatch | SBC-3 READ CAPACITY | the two READ CAPACITY differ", 0x25, add(3, 1))
scsi("lun-not-reported | SPC-4 REPORT LUNS | the unit is not listed", 0xA0, lambda data, block: bytes(8))
scsi("lun-list-length | SPC-4 REPORT LUNS | LUN LIST LENGTH is too large by 8", 0xA0, add(3, 8))
scsi(
    "report-luns-long | SPC-4 REPORT LUNS | the allocation length is exceeded",
    0xA0,
    lambda data, block: bytes(data).ljust(16, b"\0"),
)
scsi("mode-length | SPC-4 MODE SENSE(6) | MODE DATA LENGTH is too large by one", 0x1A, add(0, 1))
scsi("request-sense | SPC-4 REQUEST SENSE | old sense data are returned", 0x03, put(2, 0x05))
scsi("read-corrupt | SBC-3 READ | a read returns one wrong byte", {0x08, 0x28, 0x88, 0xA8}, add(300, 1))
scsi(f"serial-binary | {_VPD} | the serial number is not printable", 0x12, put(4, 1), evpd=0x80)
scsi("capacity-truncation | SBC-3 READ CAPACITY | a short allocation changes the data", 0x9E,
     lambda data, block: add(0, 1)(data, block) if int.from_bytes(block[10:14], "big") < 32 else None)  # fmt: skip
scsi("mode-page-differs | SPC-4 MODE SENSE | a page that is requested alone differs", 0x1A,
     lambda data, block: add(len(data) - 1, 1)(data, block) if block[2] & 0x3F == 8 else None)  # fmt: skip
scsi("mode10-length | SPC-4 MODE SENSE(10) | MODE DATA LENGTH is too large by one", 0x5A, add(1, 1))


@mutant("tur-busy | SPC-4 TEST UNIT READY | the unit is always BUSY")
def tur_busy(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return replace(pdu, status=8) if isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == 0 else pdu


@mutant(
    "ordered-busy | SAM-5 task attributes | a command with the ORDERED attribute is BUSY", kind="unsolicited"
)
def ordered_busy(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    is_ordered = isinstance(pdu, ScsiResponse) and talk.commands[pdu.itt].attribute == Attribute.ORDERED
    return replace(pdu, status=8) if is_ordered else pdu


@mutant("sense-lost | SAM-5 5.13 | CHECK CONDITION has no sense data")
def sense_lost(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return (
        replace(pdu, data=b"")
        if isinstance(pdu, ScsiResponse) and pdu.status == 2 and talk.cdb(pdu)[0] == c.NO_COMMAND[0]
        else pdu
    )


@mutant("sense-length | RFC 7143 11.4.7.2 | SenseLength exceeds the data")
def sense_length(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    bad = isinstance(pdu, ScsiResponse) and pdu.status == 2 and talk.cdb(pdu)[0] == c.NO_COMMAND[0]
    return replace(pdu, data=b"\x01\x00" + pdu.data[2:]) if bad else pdu


def forgives(row: str, opcodes: set[int], key: int, asc: int | None = None) -> None:
    """Return a mutant that responds GOOD instead of CHECK CONDITION."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, ScsiResponse) or not pdu.sense or talk.cdb(pdu)[0] not in opcodes:
            return pdu
        sense = decode_sense(pdu.sense)
        return good(pdu) if sense.key == key and asc in (None, sense.asc) else pdu


forgives(f"inquiry-page-accepted | {_INQ} | a page code without EVPD is accepted", {0x12}, 5)
forgives(f"vpd-page-accepted | {_VPD} | an unsupported page is accepted", {0x12}, 5)
forgives("mode-page-accepted | SPC-4 MODE SENSE | an unsupported mode page is accepted", {0x1A}, 5)
forgives(
    "lba-range-good | SBC-3 | access to blocks past the end is no error",
    {0x28, 0x2A, 0x2F, 0x35, 0x42, 0x88, 0x8A, 0x93},
    5,
    0x2100,
)
forgives("lba-range-wrap | SBC-3 | an LBA near the maximum wraps round", {0x88}, 5, 0x2100)
forgives("miscompare-good | SBC-3 COMPARE AND WRITE | a miscompare is no error", {0x89}, 0xE)
forgives("wrong-lun-answered | SAM-5 4.7 | a unit that does not exist answers", {0x00}, 5, 0x2500)
forgives("out-length-accepted | SPC-4 PERSISTENT RESERVE OUT | a short parameter list is accepted", {0x5F}, 5)
forgives(
    "out-action-accepted | SPC-4 PERSISTENT RESERVE OUT | an undefined service action is accepted",
    {0x5F},
    5,
)
forgives("preempt-zero-accepted | SPC-4 preempting | PREEMPT of key 0 is accepted", {0x5F}, 5, 0x2600)


forgives("protect-accepted | SBC-3 protection | RDPROTECT without protection is ignored", {0x88}, 5, 0x2400)
forgives(
    "caw-length-accepted | SBC-3 COMPARE AND WRITE | a length over the maximum is accepted",
    {0x89},
    5,
    0x2400,
)
forgives(
    "write-same-length-accepted | SBC-3 WRITE SAME | a length over the maximum is accepted",
    {0x93},
    5,
    0x2400,
)
forgives("unmap-list-accepted | SBC-3 UNMAP | an invalid parameter list is accepted", {0x42}, 5)
forgives("capacity-lba-empty | SBC-3 READ CAPACITY | with an LBA it returns no data", {0x25}, 5)


def refuses(row: str, opcode: int, when: Any = lambda block: True) -> None:
    """A mutant that answers INVALID FIELD IN CDB where a command was GOOD."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        mine = ends(pdu) and block[0] == opcode and when(block)
        return check(pdu, 5, 0x2400) if mine and not pdu.status else pdu  # type: ignore[attr-defined]


refuses("zero-blocks-refused | SBC-3 READ, WRITE | a transfer of no blocks is refused", 0x28,
        lambda block: block[7:9] == b"\0\0")  # fmt: skip
refuses("sync-cache-refused | SBC-3 SYNCHRONIZE CACHE | SYNCHRONIZE CACHE is refused", 0x35)
refuses("verify-refused | SBC-3 VERIFY | a VERIFY of existing blocks is refused", 0x2F)
refuses("unmap-refused | SBC-3 UNMAP | UNMAP is refused although LBPU is set", 0x42)
refuses(f"inquiry-zero-refused | {_INQ} | an allocation length of zero is refused", 0x12,
        lambda block: block[3:5] == b"\0\0")  # fmt: skip


@mutant("request-sense-hardware | SPC-4 REQUEST SENSE | DESC ends in a hardware error")
def request_sense_hardware(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    return check(pdu, 4, 0x4400) if block[0] == 0x03 and block[1] & 1 and hasattr(pdu, "status") else pdu


@mutant("miscompare-offset | SBC-3 COMPARE AND WRITE | INFORMATION is not the offset of the miscompare")
def miscompare_offset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiResponse) or talk.cdb(pdu)[0] != 0x89 or not pdu.sense:
        return pdu
    return replace(pdu, data=sense_data(0xE, 0x1D00, information=1))
