"""QERR of the Control mode page: what a CHECK CONDITION does to the other commands (SPC-4, SAM-5).

A write waits for its data, and another command of its nexus ends in CHECK CONDITION. A target that serves one
command after the other has no such two commands: then nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.cdb import INQUIRY, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import ResponseTimeout

from .test_scsi_edges import CONTROL, current_page, mode_select, selectable_page
from .test_scsi_mode_masks import CHANGEABLE
from .test_scsi_second_forms import set_back
from .test_task import send_asked
from .test_third_nexus import BLOCKS, at, ends_with, waiting

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.exclusive,  # QERR is that of every initiator
    pytest.mark.case(section="SPC-4 Control mode page, QERR", level="MUST", builds_on=("SCS-SENSE-01",)),
]

AT, QERR = 4 + 3, 0x06
"""The byte of the field in a list of MODE SELECT(6), and its bits."""
NONE, ALL, OWN = 0b00, 0b01, 0b11
"""QERR: no other command, all of the task set, and all of the nexus are aborted."""
TST_AT = 4 + 2
"""The byte whose upper three bits are TST: 0 is one task set of all nexuses."""
REFUSED = cdb(INQUIRY, page=0x83, allocation=36)
"""A page code without EVPD is an invalid field (SPC-4 INQUIRY)."""
Write = tuple[Initiator, ScsiCommand, ReadyToTransfer]


def fails(session: Initiator) -> None:
    """Send a command that ends in CHECK CONDITION; skip if it has no such end while a write waits."""
    sent = session.start(REFUSED, read=36)
    came = session.probe_alive().pdus
    ended = [pdu.status for pdu in came if isinstance(pdu, ScsiResponse) and pdu.itt == sent.itt]
    if ended != [ScsiStatus.CHECK_CONDITION]:
        session.validator.forget(sent.itt)
        pytest.skip(f"INQUIRY with a page code and without EVPD ended with {ended} while a write waits")


def is_spared(write: Write, scratch, place: int, where: str) -> None:
    """Send the data of a write, and claim that it ends with GOOD and that they are there."""
    session, command, r2t = write
    data = scratch.pattern(BLOCKS, seed=1600 + place)
    send_asked(session, command, data, r2t)
    try:
        ended = LogicalUnit.result(session.finish(command, data), where)
    except ResponseTimeout as overdue:
        raise AssertionError(f"{where} has no end after a CHECK CONDITION of another command") from overdue
    assert ended.good, f"{ended}: it ended with a CHECK CONDITION of another command"
    unit = LogicalUnit(session, block_size=scratch.block_size)
    unit.clear_attentions()
    assert at(unit, scratch, place) == data, f"{ended}, and its data were not written"


def is_aborted(write: Write, scratch, place: int, old: bytes, where: str) -> None:
    """Send the data of a write, and claim that it does not end with GOOD, and that they are not written."""
    session, command, r2t = write
    ended = ends_with(session, command, scratch.pattern(BLOCKS, seed=1610 + place), r2t)
    assert ScsiStatus.GOOD not in ended, f"{where}: GOOD after a CHECK CONDITION of another command"
    unit = LogicalUnit(session, block_size=scratch.block_size)
    unit.clear_attentions()
    assert at(unit, scratch, place) == old, f"{where}: its data were written"


@pytest.fixture
def looks(unit) -> tuple[LogicalUnit, bytes]:
    """Return the unit and its Control mode page, as a list of MODE SELECT(6)."""
    page = current_page(unit, CONTROL)
    if len(page) <= AT:
        pytest.skip(f"the Control mode page has no QERR: {page.hex()}")
    return unit, page


@pytest.mark.case("SCS-QERR-NONE", kills=("error-aborts-own", "error-aborts-all"))
def test_a_check_condition_ends_no_other_command_if_qerr_is_0(looks, connections, scratch):
    """A write of the nexus that had it, and one of another nexus."""
    if looks[1][AT] & QERR:
        pytest.skip(f"QERR is {looks[1][AT] >> 1 & 3:02b}b")
    writes = [waiting(connections, scratch, letter, place) for place, letter in enumerate("bc")]
    fails(writes[0][0])
    is_spared(writes[0], scratch, 0, "a write of the same nexus")
    is_spared(writes[1], scratch, 1, "a write of another nexus")


@pytest.fixture
def selected(looks, scratch, pytestconfig, request) -> Iterator[LogicalUnit]:
    """Set QERR to the value of the case; skip if that is not possible. Set it back at the end."""
    unit, value = looks[0], request.param
    before, mask = selectable_page(unit, CONTROL), current_page(unit, CONTROL, control=CHANGEABLE)
    wanted = before[:AT] + bytes((before[AT] & ~QERR | value << 1,)) + before[AT + 1 :]
    if len(mask) <= AT or (before[AT] ^ wanted[AT]) & ~mask[AT]:
        pytest.skip(f"QERR is not changeable: {mask.hex()}")
    if before[TST_AT] >> 5:
        pytest.skip(f"TST is {before[TST_AT] >> 5}: each I_T nexus has a task set of its own")
    assert scratch.count
    try:
        answer = mode_select(unit, wanted)
        if not answer.good:
            pytest.skip(f"QERR of {value:02b}b is not supported: {answer}")
        yield unit
    finally:
        unit.clear_attentions()
        set_back(unit, CONTROL, before, pytestconfig)


@pytest.mark.parametrize(("selected", "others"), [
    pytest.param(ALL, True, id="all", marks=pytest.mark.case(
        "SCS-QERR-ALL", kills=("qerr-ignored", "qerr-all-is-own"))),
    pytest.param(OWN, False, id="own", marks=pytest.mark.case(
        "SCS-QERR-OWN", kills=("qerr-ignored", "qerr-own-is-all"))),
], indirect=["selected"])  # fmt: skip
def test_a_check_condition_aborts_what_qerr_states(selected, connections, scratch, others):
    """With 01b all commands of the task set, with 11b those of the nexus that had the CHECK CONDITION."""
    old = [at(selected, scratch, place) for place in range(2)]
    writes = [waiting(connections, scratch, letter, place) for place, letter in enumerate("bc")]
    fails(writes[0][0])
    is_aborted(writes[0], scratch, 0, old[0], "a write of the same nexus")
    if others:
        is_aborted(writes[1], scratch, 1, old[1], "a write of another nexus")
    else:
        is_spared(writes[1], scratch, 1, "a write of another nexus")
