"""SEND DIAGNOSTIC (SPC-4): the default self-test, a command that asks for nothing, and what is reserved.

The command is optional. A device server that has it has the default self-test; without UNITOFFL and DEVOFFL
the test does nothing that a later command could notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrIn, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 SEND DIAGNOSTIC", level="MUST"),
]

PAGE = 0x3E
"""Code of a diagnostic page that no standard defines (SPC-4 has 3Fh, SES the codes up to 2Fh)."""
RESERVED_CODES = (3, 7)
"""Of SELF-TEST CODE."""


def diagnostic(unit: LogicalUnit, *, data: bytes = b"", **fields: int) -> ScsiResult:
    """Send the command; skip if the device server does not have it."""
    return offered(unit.run(c.SEND_DIAGNOSTIC, data=data, allocation=len(data), **fields))


def state(unit: LogicalUnit) -> dict[str, Any]:
    """Return what the device server reports of itself: capacity, mode pages, registrations."""
    asked = {
        "READ CAPACITY(16)": unit.capacity16(),
        "MODE SENSE": unit.run(c.MODE_SENSE_10, read=4096, page=0x3F, allocation=4096),
        "READ KEYS": unit.reserve_in(PrIn.READ_KEYS),
        "READ RESERVATION": unit.reserve_in(PrIn.READ_RESERVATION),
    }
    return {name: (answer.status, answer.data) for name, answer in asked.items()}


@pytest.mark.case(
    "SCS-DIAG-SELF",
    kills=(
        "self-test-refused",
        "self-test-busy",
        "self-test-reported",
        "self-test-data-lost",
        "self-test-modes",
    ),
)
def test_the_default_self_test_passes_and_changes_nothing(two, connections, scratch):
    """Blocks, capacity, mode pages and registrations stay, and no nexus has a unit attention."""
    own, other = two
    data = scratch.pattern(4, seed=301)
    written = own.write(scratch.lba, data)
    assert written.good, written
    before = state(own)
    answer = diagnostic(own, selftest=1)
    assert answer.good, f"{answer}: SELFTEST is the form that each device server with the command has"
    for unit, name in ((own, "the nexus of the self-test"), (other, "another nexus")):
        ready = unit.test_unit_ready()
        assert ready.good, f"{ready}: {name}, after a self-test with GOOD"
    after = state(own)
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"after a self-test {changed} are other: {[after[name] for name in changed]}"
    found = scratch.read_back(connections.login("r"), 4)
    assert found == data, "the blocks have other data after a self-test"


@pytest.mark.parametrize("pf", [
    pytest.param(0, marks=pytest.mark.case("SCS-DIAG-NONE")),
    pytest.param(1, marks=pytest.mark.case("SCS-DIAG-NONE-PF")),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 SEND DIAGNOSTIC, PARAMETER LIST LENGTH", level="SHOULD", kills=("self-test-only",)
)
def test_no_self_test_and_no_parameter_list_are_no_error(unit, scratch, pf):
    assert scratch.count
    answer = diagnostic(unit, pf=pf)
    assert answer.good, f"{answer}; a parameter list length of zero is no error"


@pytest.mark.parametrize("code", [
    pytest.param(code, marks=pytest.mark.case(f"SCS-DIAG-CODE-{code}", kills=("self-test-any-code",)))
    for code in RESERVED_CODES
])  # fmt: skip
@pytest.mark.case(section="SPC-4 SEND DIAGNOSTIC, SELF-TEST CODE")
def test_a_reserved_self_test_code_is_refused(unit, scratch, code):
    """A reserved value of a field that is defined is an error (SPC-4 3.3)."""
    assert scratch.count
    answer = diagnostic(unit, code=code)
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the SELF-TEST CODE {code:03b}b is reserved"


@pytest.mark.case(
    "SCS-DIAG-PAGE",
    section="SPC-4 SEND DIAGNOSTIC, diagnostic pages",
    level="SHOULD",
    kills=("diagnostic-any-page",),
)
def test_a_diagnostic_page_that_is_not_there_is_refused(unit, scratch):
    """As a whole page, and as a list that ends within its header."""
    assert scratch.count
    page = bytes((PAGE, 0, 0, 4)) + bytes(4)
    for data in (page, page[:3]):
        answer = diagnostic(unit, data=data, pf=1)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), (
            f"{answer}, with the list {data.hex()}: there is no diagnostic page {PAGE:02x}h"
        )


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-DIAG-{kind:d}", kills=("reservation-diagnostic",)))
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 reservations, allowed commands", builds_on=(*RESERVING, "SCS-DIAG-SELF"))
def test_a_self_test_of_another_nexus_is_a_conflict(unreserved, kind):
    a, b = unreserved
    reserved(a, kind)
    claim(diagnostic(b, selftest=1), allowed=False)
    claim(diagnostic(a, selftest=1), allowed=True)
