"""A pending unit attention ends each command but INQUIRY, REPORT LUNS and REQUEST SENSE (SAM-5 5.14).

SCS-UA-EACH is about the commands on blocks that nearly every unit has; here are the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.absent_unit import absent_lun
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi import seldom_cdb as seldom
from storagetest.wire.scsi.codes import PrOut, PrType, SenseKey
from storagetest.wire.scsi.data import unmap_list
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import out_list

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.exclusive,  # a broken unit is reserved
    pytest.mark.case(section="SAM-5 5.14", level="MUST", builds_on=("SCS-UA-AGAIN",)),
]

Fields = dict[str, Any]

REPORTS: dict[str, tuple[c.CommandFormat, Fields]] = {
    "PR-IN": (c.PERSISTENT_RESERVE_IN, {"read": 8, "allocation": 8}),
    "OPERATIONS": (c.REPORT_SUPPORTED_OPERATION_CODES, {"read": 64, "allocation": 64}),
    "FUNCTIONS": (c.REPORT_TASK_MANAGEMENT, {"read": 16, "allocation": 16}),
    "GROUPS": (c.REPORT_TARGET_PORT_GROUPS, {"read": 64, "allocation": 64}),
    "LOG": (c.LOG_SENSE, {"read": 64, "page_control": 1, "allocation": 64}),
    "BUFFER": (seldom.READ_BUFFER, {"read": 4, "mode": 3, "allocation": 4}),
    "DIAGNOSTIC-PAGE": (seldom.RECEIVE_DIAGNOSTIC_RESULTS, {"read": 64, "pcv": 1, "allocation": 64}),
    "COPY": (seldom.RECEIVE_COPY_PARAMETERS, {"read": 64, "allocation": 64}),
}
"""Commands that return data about the unit."""
ACTS: dict[str, tuple[c.CommandFormat, Fields]] = {
    "SELECT-6": (c.MODE_SELECT_6, {"pf": 1}),
    "SELECT-10": (c.MODE_SELECT_10, {"pf": 1}),
    "DIAGNOSTIC": (c.SEND_DIAGNOSTIC, {}),
    "START": (c.START_STOP_UNIT, {"start": 1, "immed": 1}),
    "ALLOW": (c.PREVENT_ALLOW_MEDIUM_REMOVAL, {}),
}
"""Commands that change nothing with these fields."""
PLACED: dict[str, tuple[c.CommandFormat, Fields]] = {
    "LBAS": (c.GET_LBA_STATUS, {"read": 24, "allocation": 24}),
    "VERIFY-12": (c.VERIFY_12, {"blocks": 1}),
    "FETCH-10": (c.PRE_FETCH_10, {"blocks": 1}),
    "FETCH-16": (c.PRE_FETCH_16, {"blocks": 1}),
}
"""Commands on a block, of which no data are transferred."""


@pytest.fixture
def reset(two, scratch) -> tuple[LogicalUnit, LogicalUnit]:  # noqa: ARG001  # a reset needs a unit to erase
    """Reset the unit through the first nexus, so that the second has a unit attention; return both."""
    reset_by(*two)
    return two


def reset_by(first: LogicalUnit, second: LogicalUnit) -> None:
    """Reset the unit through ``first``, so that ``second`` has a unit attention; skip if it gets none."""
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if second.test_unit_ready().good:
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    for unit in (first, second):
        unit.clear_attentions()
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    first.clear_attentions()


def claim_reported(unit: LogicalUnit, command: c.CommandFormat, fields: Fields) -> None:
    """Claim that the command ends in the unit attention; skip if the unit refuses it without one, too."""
    answer = offered(unit.run(command, **fields))
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        unit.clear_attentions()
        again = unit.run(command, **fields)
        if again.check(SenseKey.ILLEGAL_REQUEST):
            pytest.skip(f"not supported: {again}")
    assert answer.check(SenseKey.UNIT_ATTENTION), f"{answer}: another nexus has reset the unit before"


@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=pytest.mark.case(f"SCS-UA-REPORT-{name}", kills=("attention-passed-reports",)))
      for name in REPORTS),
    *(pytest.param(name, marks=pytest.mark.case(f"SCS-UA-ACT-{name}", kills=("attention-passed-acts",)))
      for name in ACTS),
])  # fmt: skip
def test_a_unit_attention_ends_commands_about_the_unit(reset, name):
    _, second = reset
    command, fields = (REPORTS | ACTS)[name]
    claim_reported(second, command, fields)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-UA-PLACE-{name}", kills=("attention-passed-places",)))
    for name in PLACED
])  # fmt: skip
def test_a_unit_attention_ends_commands_that_look_at_blocks(reset, scratch, name):
    _, second = reset
    command, fields = PLACED[name]
    claim_reported(second, command, fields | {"lba": scratch.lba})


CHANGES = {"WVER-12": c.WRITE_AND_VERIFY_12, "WVER-10": c.WRITE_AND_VERIFY_10, "UNMAP": c.UNMAP}
"""Commands that would change the block."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-UA-CHANGE-{name}", kills=("attention-passed-changes",)))
    for name in CHANGES
])  # fmt: skip
def test_a_command_that_ends_in_a_unit_attention_changes_no_block(two, scratch, name):
    first, second = two
    old = scratch.pattern(1, seed=1820)
    assert first.write(scratch.lba, old).good
    at: Fields = {"lba": scratch.lba, "blocks": 1, "data": scratch.pattern(1, seed=1821)}
    listed = unmap_list((scratch.lba, 1))
    fields = {"data": listed, "allocation": len(listed)} if name == "UNMAP" else at
    reset_by(first, second)
    claim_reported(second, CHANGES[name], fields)
    found = first.read(scratch.lba)
    assert found.good, found
    assert found.data == old, f"a {name} that ended in a unit attention has changed the block"


@pytest.mark.case("SCS-UA-PR-OUT", kills=("attention-passed-register",))
def test_a_registration_that_ends_in_a_unit_attention_is_none(unreserved):
    """REGISTER ends in the unit attention, no key is listed, and the same REGISTER is done after that."""
    first, second = unreserved
    before = first.keys()
    reset_by(first, second)
    fields: Fields = {"service_action": int(PrOut.REGISTER), "data": out_list(0, KEY_B), "allocation": 24}
    claim_reported(second, c.PERSISTENT_RESERVE_OUT, fields)
    assert first.keys() == before, "a REGISTER that ended in a unit attention was done"
    second.clear_attentions()
    claim(second.register(KEY_B), allowed=True)


@pytest.mark.case("SCS-UA-RESERVE-6", kills=("attention-passed-reserve6",))
def test_a_reserve_6_that_ends_in_a_unit_attention_reserves_nothing(not_reserved, scratch):
    first, second = not_reserved
    offered(second.run(c.RESERVE_6))
    second.run(c.RELEASE_6)
    reset_by(first, second)
    claim_reported(second, c.RESERVE_6, {})
    claim(first.write(scratch.lba, scratch.pattern(1, seed=1822)), allowed=True)


# Commands that end otherwise, and leave the unit attention pending


def of_absent(command: c.CommandFormat, **fields: Any) -> Callable[[LogicalUnit], ScsiResult]:
    """Return a function that sends a command to a LUN that no logical unit of the target has."""

    def send(unit: LogicalUnit) -> ScsiResult:
        session: Any = unit.runner
        block = c.cdb(command, **fields)
        done = session.command(block, read=fields.get("allocation", 0), lun=absent_lun(session))
        return LogicalUnit.result(done, f"{c.describe(block)}, to a LUN that is not there")

    return send


REFUSED: dict[str, Callable[[LogicalUnit], ScsiResult]] = {
    "OPERATION": lambda unit: LogicalUnit.result(unit.runner.command(c.NO_COMMAND), "operation code 6Bh"),
    "PAGE": lambda unit: unit.inquiry(0xAB),
    "LUNS": lambda unit: unit.luns(select=0x7F),
    "ABSENT-READY": of_absent(c.TEST_UNIT_READY),
    "ABSENT-INQUIRY": of_absent(c.INQUIRY, allocation=36),
    "ABSENT-SENSE": of_absent(c.REQUEST_SENSE, allocation=18),
}
"""Commands that are refused, or are about another logical unit."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-UA-KEPT-{name}",
        kills=("attention-lost-absent",) if name.startswith("ABSENT") else ("attention-lost-refused",),
    ))
    for name in REFUSED
])  # fmt: skip
def test_a_unit_attention_that_a_command_does_not_report_stays(reset, name):
    """The command ends in the unit attention, or the next TEST UNIT READY does."""
    _, second = reset
    answer = REFUSED[name](second)
    if answer.check(SenseKey.UNIT_ATTENTION) and not name.startswith("ABSENT"):
        return
    ready = second.test_unit_ready()
    assert ready.check(SenseKey.UNIT_ATTENTION), (
        f"{ready}, after {answer}: another nexus has reset the unit before, and that was not reported"
    )


@pytest.mark.case(
    "SCS-UA-KEPT-CONFLICT", kills=("attention-lost-conflict",), builds_on=("SCS-UA-AGAIN", *RESERVING)
)
def test_a_reservation_conflict_ends_no_unit_attention(unreserved, scratch):
    """A write that a reservation excludes ends in the unit attention, or the next TEST UNIT READY does."""
    first, second = unreserved
    reserved(first, PrType.WRITE_EXCLUSIVE)
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    first.clear_attentions()
    if not second.clear_attentions():
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    first.clear_attentions()
    answer = second.write(scratch.lba, scratch.pattern(1, seed=1823))
    if answer.check(SenseKey.UNIT_ATTENTION):
        return
    claim(answer, allowed=False)
    ready = second.test_unit_ready()
    assert ready.check(SenseKey.UNIT_ATTENTION), (
        f"{ready}, after {answer}: another nexus has reset the unit before, and that was not reported"
    )
