"""Sense data and parameter data of any command: what their own length fields exclude."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    AsyncMessage,
    DataIn,
    LoginResponse,
    LogoutResponse,
    NopIn,
    ReadyToTransfer,
    Reject,
    ScsiResponse,
    TaskResponse,
    TextResponse,
)
from storagetest.wire.iscsi.single_pdu import findings
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat, cdb
from storagetest.wire.scsi.codes import Asc, PrIn, SenseKey
from storagetest.wire.scsi.parameter_data import parameter_faults
from storagetest.wire.scsi.sense import fixed_sense, sense_faults

HEADER = bytes(48)
SENSE = fixed_sense(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


@pytest.mark.parametrize(
    ("rule", "broken", "sound"),
    [
        ("codes", TaskResponse(response=9), TaskResponse(response=255)),
        ("codes", LogoutResponse(response=4), LogoutResponse(response=3)),
        ("codes", Reject(reason=1, data=HEADER), Reject(reason=0x0C, data=HEADER)),
        ("codes", AsyncMessage(event=6), AsyncMessage(event=5)),
        ("codes", LoginResponse(status=0x0400), LoginResponse(status=0x020B)),
        ("codes", ScsiResponse(status=1), ScsiResponse(status=1, response=0x80)),
        ("flags", TextResponse(continues=True, ttt=1), TextResponse(continues=True, final=False, ttt=1)),
        ("flags", LoginResponse(continues=True, transit=True), LoginResponse(continues=True)),
        ("reserved-nsg", LoginResponse(nsg=3), LoginResponse(nsg=3, transit=True)),
        ("flags", LoginResponse(version_active=1), LoginResponse(version_active=1, status=0x0205)),
        ("flags", ScsiResponse(overflow=True, underflow=True), ScsiResponse(underflow=True)),
        ("flags", DataIn(has_status=True, final=False), DataIn(has_status=True)),
        ("tags", Reject(reason=4, data=HEADER, itt=0), Reject(reason=4, data=HEADER, itt=NO_TAG)),
        ("tags", ReadyToTransfer(ttt=NO_TAG), ReadyToTransfer(ttt=0)),
        ("tags", TextResponse(final=False), TextResponse(final=False, ttt=0)),
        ("reserved-lun", NopIn(lun=1 << 48), NopIn(lun=1 << 48, ttt=1)),
        ("reserved-lun", DataIn(lun=1 << 48), DataIn(lun=1 << 48, acknowledge=True, ttt=1)),
        ("data-segment", TaskResponse(data=b"abcd"), TaskResponse()),
        ("reject-header", Reject(reason=4, data=bytes(4)), Reject(reason=4, data=bytes(52))),
        ("sense-length", ScsiResponse(status=2, data=b"\0\x12abc"), ScsiResponse(status=2, data=b"\0\1abc")),
    ],
)
def test_each_rule_of_one_pdu_is_found_and_excuses_its_neighbour(rule: str, broken: Pdu, sound: Pdu) -> None:
    assert [found for found, _, _ in findings(broken)] == [rule]
    assert not list(findings(sound))


@pytest.mark.parametrize(
    "data",
    [
        SENSE[:17],
        SENSE[:7] + b"\x0b" + SENSE[8:],
        b"\x71" + SENSE[1:],
        SENSE[:2] + b"\x0b" + SENSE[3:],
        SENSE[:2] + b"\x0c" + bytes(4) + SENSE[7:12] + bytes(6),
        b"\x72\x05\x24\x00\0\0\0\x04\0\x0a\x80\0",
        b"\x72\x05\x24\x00\0\x01\0\0",
        b"\x70\0",
    ],
)
def test_sense_data_that_the_standard_excludes_are_found(data: bytes) -> None:
    assert sense_faults(data)


@pytest.mark.parametrize(
    "data",
    [
        SENSE,
        b"\x71\0\x03" + bytes(4) + b"\x0a" + bytes(4) + b"\x0c\0" + bytes(4),
        fixed_sense(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY, information=5),
        b"\x72\x05\x24\x00\0\0\0\x0c\0\x0a\x80\0" + bytes(8),
        fixed_sense(SenseKey.ABORTED_COMMAND, 0x4B03),
    ],
)
def test_sense_data_that_the_standard_allows_have_no_fault(data: bytes) -> None:
    assert not sense_faults(data)


INQUIRY = bytes((0, 0, 6, 2, 31)) + bytes(31)
LUNS = b"\0\0\0\x08" + bytes(12)
MODE = bytes((13 + 2, 0, 0, 0, 0x0A, 0x0A)) + bytes(10)
OPCODES = b"\0\0\0\x08\x00\0\0\0\0\0\0\x06"
ACTION = b"\0\0\0\x08\x9e\0\0\x10\0\x01\0\x10"
READ_10 = {"options": 1, "requested_opcode": 0x28}
KEYS = bytes(7) + b"\x10" + bytes(16)


@pytest.mark.parametrize(
    ("command", "fields", "data", "sound"),
    [
        (c.INQUIRY, {}, INQUIRY, True),
        (c.INQUIRY, {}, INQUIRY[:-1], False),
        (c.INQUIRY, {}, INQUIRY + b"\0", False),
        (c.INQUIRY, {"evpd": 1, "page": 0x83}, b"\0\x83\0\x08\x01\x03\0\x04abcd", True),
        (c.INQUIRY, {"evpd": 1, "page": 0x83}, b"\0\x83\0\x08\x01\x03\0\x05abcd", False),
        (c.REPORT_LUNS, {}, LUNS, True),
        (c.REPORT_LUNS, {}, b"\0\0\0\x04" + bytes(8), False),
        (c.MODE_SENSE_6, {}, MODE, True),
        (c.MODE_SENSE_6, {}, bytes((9, 0, 0, 0)) + MODE[4:10], False),
        (c.MODE_SENSE_6, {}, bytes((9, 0, 0, 8)) + MODE[4:10], False),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, OPCODES, True),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, b"\0\0\0\x04" + OPCODES[4:8], False),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, OPCODES[:11] + b"\x0a", False),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, ACTION, True),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, ACTION[:9] + b"\0\0\x10", False),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {}, b"\0\0\0\x08\x7f\0\0\x09\0\x01\0\x20", True),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {"options": 1}, b"\0\x01\0\0", True),
        (c.REPORT_SUPPORTED_OPERATION_CODES, READ_10, b"\0\x03\0\x0a" + bytes(10), True),
        (c.REPORT_SUPPORTED_OPERATION_CODES, READ_10, b"\0\x03\0\x10" + bytes(16), False),
        (c.REPORT_SUPPORTED_OPERATION_CODES, {"options": 1}, b"\0\x83\0\x06" + bytes(6), False),
        (c.PERSISTENT_RESERVE_IN, {}, KEYS, True),
        (c.PERSISTENT_RESERVE_IN, {}, bytes(7) + b"\x0c" + bytes(12), False),
        (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.READ_RESERVATION)}, KEYS, True),
        (c.READ_CAPACITY_10, {}, bytes(8), True),
        (c.READ_CAPACITY_16, {}, bytes(12), False),
        (c.GET_LBA_STATUS, {}, b"\0\0\0\x14" + bytes(20), True),
        (c.GET_LBA_STATUS, {}, b"\0\0\0\x10" + bytes(16), False),
        (c.READ_10, {}, b"anything", True),
    ],
)
def test_data_are_as_long_as_they_state(
    command: CommandFormat, fields: dict[str, int], data: bytes, sound: bool
) -> None:
    known = {place.name for place in command.fields}
    if "allocation" in known:
        fields = fields | {"allocation": 200}
    assert (not parameter_faults(cdb(command, **fields), data, 200)) == sound
    if sound and "allocation" in known:
        cut = cdb(command, **(fields | {"allocation": 3}))
        assert not parameter_faults(cut, data[:3], 200)
        assert parameter_faults(cut, data[:4], 200)
        assert not parameter_faults(cdb(command, **fields), data[:3], 3), "the initiator takes three bytes"
