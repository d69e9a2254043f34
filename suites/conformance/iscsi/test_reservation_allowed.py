"""Which commands of another nexus a persistent reservation allows and excludes (tables of SPC-4 and SBC-3).

The cases of READ, WRITE and VERIFY are in ``test_reservations.py`` and ``test_reservation_limits.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reserve_6
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="SPC-4, SBC-3 reservations, allowed commands", level="MUST", builds_on=RESERVING
    ),
]

ABOUT_THE_UNIT: tuple[tuple[c.CommandFormat, dict[str, Any]], ...] = (
    (c.INQUIRY, {"read": 36, "allocation": 36}),
    (c.REPORT_LUNS, {"read": 16, "allocation": 16}),
    (c.REQUEST_SENSE, {"read": 18, "allocation": 18}),
    (c.READ_CAPACITY_10, {"read": 8}),
    (c.READ_CAPACITY_16, {"read": 32, "allocation": 32}),
    (c.LOG_SENSE, {"read": 64, "page_control": 1, "allocation": 64}),
    (c.REPORT_TARGET_PORT_GROUPS, {"read": 64, "allocation": 64}),
    *(
        (c.PERSISTENT_RESERVE_IN, {"read": 64, "service_action": int(action), "allocation": 64})
        for action in PrIn
    ),
)
"""Commands that every reservation allows, with their fields."""


def answers(
    unit: LogicalUnit, commands: Iterable[tuple[c.CommandFormat, dict[str, Any]]]
) -> list[ScsiResult]:
    """Run the commands, and return the results of those that the unit has."""
    found = [unit.run(command, **fields) for command, fields in commands]
    absent = (Asc.INVALID_COMMAND_OPERATION_CODE, Asc.INVALID_FIELD_IN_CDB)
    return [one for one in found if not one.check(SenseKey.ILLEGAL_REQUEST, *absent)]


def of_blocks(lba: int) -> tuple[tuple[c.CommandFormat, dict[str, Any]], ...]:
    """Return the commands that look at blocks and read none of them."""
    return (
        (c.PRE_FETCH_10, {"lba": lba, "blocks": 1}),
        (c.PRE_FETCH_16, {"lba": lba, "blocks": 1}),
        (c.GET_LBA_STATUS, {"read": 24, "lba": lba, "allocation": 24}),
    )


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-ALLOWED-{kind.value}")) for kind in PrType
])  # fmt: skip
@pytest.mark.case(level="SHOULD", kills=("reservation-capacity",))
def test_commands_about_the_unit_are_allowed_without_a_registration(unreserved, scratch, kind):
    """Those that look at blocks are allowed unless access is exclusive."""
    a, b = unreserved
    reserved(a, kind)
    commands = ABOUT_THE_UNIT if kind.reads_too else (*ABOUT_THE_UNIT, *of_blocks(scratch.lba))
    for answer in answers(b, commands):
        assert not answer.conflict, f"{answer}; a reservation of type {kind:d} allows it"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-START-{kind.value}", kills=("reservation-start",)))
    for kind in PrType
])  # fmt: skip
@pytest.mark.case(section="SBC-3 reservations", level="SHOULD")
def test_a_start_of_another_nexus_is_allowed(unreserved, kind):
    """With IMMED and without, and with a POWER CONDITION of 0: only a stop is excluded."""
    a, b = unreserved
    reserved(a, kind)
    for answer in answers(b, [(c.START_STOP_UNIT, {"start": 1, "immed": immed}) for immed in (0, 1)]):
        assert not answer.conflict, f"{answer}; a reservation of type {kind:d} allows a start"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-REGISTRANT-{kind.value}"))
    for kind in PrType if kind.registrants
])  # fmt: skip
@pytest.mark.case(level="SHOULD", kills=("registrant-seldom",))
def test_every_command_of_a_registrant_is_allowed(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    block = {"data": scratch.pattern(1, seed=250), "lba": scratch.lba, "blocks": 1}
    there = {"lba": scratch.lba, "blocks": 1}
    found = answers(b, (
        *ABOUT_THE_UNIT, *of_blocks(scratch.lba),
        (c.SYNCHRONIZE_CACHE_10, there), (c.SYNCHRONIZE_CACHE_16, there), (c.VERIFY_10, there),
        (c.WRITE_SAME_10, block), (c.WRITE_SAME_16, block), (c.ORWRITE_16, block),
        (c.WRITE_AND_VERIFY_10, block), (c.WRITE_AND_VERIFY_16, block),
        (c.MODE_SENSE_6, {"read": 255, "page": 0x3F, "allocation": 255}),
        (c.MODE_SELECT_6, {"pf": 1}),
    ))  # fmt: skip
    found += [b.unmap((scratch.lba, 1)), b.compare_and_write(scratch.lba, block["data"], block["data"])]
    for answer in found:
        assert not answer.conflict, f"{answer}; a reservation of type {kind:d} allows it to a registrant"


@pytest.mark.case("SCS-PR-EXCLUDED-BLOCKS", section="SBC-3 reservations", kills=("reservation-prefetch",))
def test_exclusive_access_excludes_commands_that_look_at_blocks(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    found = answers(b, of_blocks(scratch.lba))
    if not found:
        pytest.skip("neither PRE-FETCH nor GET LBA STATUS is supported")
    for answer in found:
        claim(answer, allowed=False)


@pytest.mark.case(
    "SCS-R6-LOOK", section="SPC-2 RESERVE(6)", kills=("reserve6-look",), builds_on=("SCS-R6-01",)
)
def test_inquiry_report_luns_and_request_sense_are_allowed_under_reserve_6(not_reserved):
    a, b = not_reserved
    reserve_6(a)
    try:
        for answer in answers(b, ABOUT_THE_UNIT[:3]):
            assert not answer.conflict, f"{answer}; RESERVE(6) of another nexus allows it"
    finally:
        a.run(c.RELEASE_6)


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-RELEASE-6-{kind:d}"))
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 exceptions to RESERVE(6) and RELEASE(6)", kills=("release6-ends-persistent",)
)
def test_release_6_ends_no_persistent_reservation(unreserved, scratch, kind):
    """Of the holder, or of a nexus without a registration: it is a conflict, or GOOD without an effect."""
    a, b = unreserved
    reserved(a, kind)
    for nexus in (a, b):
        answer = nexus.run(c.RELEASE_6)
        if answer.unsupported:
            pytest.skip("RELEASE(6) is not supported")
        assert answer.good or answer.conflict, answer
        held = b.reservation()
        assert (held.held, held.type) == (True, kind), f"{answer}, and then {held}"
        assert b.keys().keys == (KEY_A,), f"{answer}, and then the keys are {b.keys().keys}"
        claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
