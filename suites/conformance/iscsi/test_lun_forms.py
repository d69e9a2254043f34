"""Addressing methods of a LUN (SAM-5 4.7): a LUN that is not listed is that of no unit.

This holds also if its low bits are those of the LUN of a unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import decode_luns
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_task import UNSUPPORTED, result

if TYPE_CHECKING:
    from storagetest.wire.iscsi.initiator import Initiator

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SAM-5 4.7", level="MUST", builds_on=("ISC-PDU-21",)),
]

FORMS = {
    "BUS": (0x01, 0x3F),  # peripheral device addressing, another bus
    "FLAT": (0x41, 0x7F),  # flat space addressing, a number over 255
    "LOGICAL": (0x81, 0xBF),  # logical unit addressing, another target
    "EXTENDED": (0xD2, 0xE2),  # extended flat space and long extended flat space addressing
}
"""First bytes of a LUN, by its addressing method. The second byte is that of the unit's own LUN."""
WELL_KNOWN = tuple(0xC100 | number for number in range(1, 7))
"""First bytes of the LUNs of well-known logical units (SPC-4, well known logical units)."""


def unlisted(session: Initiator, firsts: tuple[int, ...]) -> list[int]:
    """Return the LUNs whose first byte is one of ``firsts`` and which REPORT LUNS does not list."""
    listed = LogicalUnit(session).luns()
    if not listed.good:
        pytest.skip(f"{listed}: the units are not listed")
    low = session.lun >> 48 & 0xFF
    made = [(first << 8 | low) << 48 for first in firsts]
    return [lun for lun in made if lun not in decode_luns(listed.data)]


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"ISC-LUN-{form}", kills=(f"lun-{form.lower()}-low-byte",)))
    for form in FORMS
])  # fmt: skip
def test_a_lun_with_the_low_byte_of_a_unit_is_no_other_form_of_it(connections, scratch, form):
    """A command to it ends in LOGICAL UNIT NOT SUPPORTED, and nothing is read or written."""
    session = connections.prepared(scratch, 1)
    lba, other = scratch.lba, scratch.pattern(1, seed=981)
    for lun in unlisted(session, FORMS[form]):
        for block, read, data in (
            (cdb(c.TEST_UNIT_READY), 0, b""),
            (cdb(c.READ_16, lba=lba, blocks=1), scratch.block_size, b""),
            (cdb(c.WRITE_16, lba=lba, blocks=1), 0, other),
        ):
            done = session.command(block, read=read, data=data, lun=lun)
            answer = LogicalUnit.result(done, f"{c.describe(block)}, to LUN {lun:016x}")
            assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED), (
                f"{answer}: REPORT LUNS does not list it"
            )
            assert answer.data == b"", f"{answer}, with {len(answer.data)} bytes"
        assert scratch.read_back(session, 1) == scratch.pattern(1), f"LUN {lun:016x} was written"


@pytest.mark.case("ISC-LUN-INQUIRY", section="SPC-4 INQUIRY", kills=("lun-form-inquiry",), builds_on=())
def test_inquiry_of_a_lun_that_is_not_listed_is_not_that_of_a_unit(session):
    """It states that no unit is there (qualifier 011b or 001b), or it is refused."""
    block = cdb(c.INQUIRY, allocation=96)
    for firsts in FORMS.values():
        for lun in unlisted(session, firsts):
            done = session.command(block, read=96, lun=lun)
            assert done.status or done.data[:1][0] & 0xE0, (
                f"INQUIRY to LUN {lun:016x}, which REPORT LUNS does not list: a connected unit of type "
                f"{done.data[0]:#04x}"
            )


@pytest.mark.case(
    "ISC-LUN-RESET",
    section="RFC 7143 11.6.1, SAM-5 4.7",
    kills=("lun-form-reset",),
    level="SHOULD",
    builds_on=("ISC-TMF-04",),
)
def test_a_reset_of_a_lun_that_is_not_listed_resets_no_unit(connections, scratch):
    """It reports that the LUN does not exist; no other nexus has a unit attention."""
    session, other = connections.login(), LogicalUnit(connections.login("b"))
    assert scratch.count  # a reset needs a unit that may be erased
    for firsts in FORMS.values():
        for lun in unlisted(session, firsts):
            answer = session.task(TaskFunction.LOGICAL_UNIT_RESET, lun=lun)
            ready = other.test_unit_ready()
            assert not ready.check(SenseKey.UNIT_ATTENTION), (
                f"{ready}, after LOGICAL UNIT RESET of LUN {lun:016x}, which is not listed"
            )
            assert answer.response in (TaskResult.LUN_DOES_NOT_EXIST, *UNSUPPORTED), (
                f"{result(answer)}: LOGICAL UNIT RESET of LUN {lun:016x}, which is not listed"
            )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-LUN-KNOWN-{name}", kills=("well-known-executes",)))
    for name in ("READ-10", "READ-16", "WRITE-10", "WRITE-16", "CAPACITY")
])  # fmt: skip
@pytest.mark.case(section="SPC-4 well known logical units")
def test_a_well_known_logical_unit_has_no_blocks(connections, scratch, name):
    """Whether it is there or not, it refuses the commands of a block device."""
    session = connections.prepared(scratch, 1)
    lba, size, other = scratch.lba, scratch.block_size, scratch.pattern(1, seed=982)
    block, read, data = {
        "READ-10": (cdb(c.READ_10, lba=lba, blocks=1), size, b""),
        "READ-16": (cdb(c.READ_16, lba=lba, blocks=1), size, b""),
        "WRITE-10": (cdb(c.WRITE_10, lba=lba, blocks=1), 0, other),
        "WRITE-16": (cdb(c.WRITE_16, lba=lba, blocks=1), 0, other),
        "CAPACITY": (cdb(c.READ_CAPACITY_16, allocation=32), 32, b""),
    }[name]
    for first in WELL_KNOWN:
        done = session.command(block, read=read, data=data, lun=first << 48)
        answer = LogicalUnit.result(done, f"{c.describe(block)}, to LUN {first << 48:016x}")
        if answer.check(SenseKey.UNIT_ATTENTION):  # of the nexus and this unit
            done = session.command(block, read=read, data=data, lun=first << 48)
            answer = LogicalUnit.result(done, answer.command)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: a well-known logical unit has no blocks"
        assert answer.data == b"", f"{answer}, with {len(answer.data)} bytes"
    assert scratch.read_back(session, 1) == scratch.pattern(1), "a well-known logical unit was written"
