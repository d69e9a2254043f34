"""Reports of MAINTENANCE IN that few initiators ask for (SPC-4): their lengths. Each is optional."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import seldom_cdb as s
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 MAINTENANCE IN", level="MUST"),
]

ALLOCATION = 4096
REPORTS = {
    "IDENTIFYING": (s.REPORT_IDENTIFYING_INFORMATION, slice(2, 4), 4),
    "ALIASES": (s.REPORT_ALIASES, slice(0, 4), 4),
    "PRIORITY": (s.REPORT_PRIORITY, slice(0, 4), 4),
    "TIMESTAMP": (s.REPORT_TIMESTAMP, slice(0, 2), 2),
}
"""Each with its length field, and the byte from which it counts."""


def report(unit: LogicalUnit, name: str, allocation: int = ALLOCATION) -> ScsiResult:
    """Send the command; skip if the unit does not have it."""
    answer = offered(unit.run(REPORTS[name][0], read=allocation, allocation=allocation))
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    return answer


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-REPORT-{name}", kills=("report-length",)))
    for name in REPORTS
])  # fmt: skip
def test_the_length_of_a_report_is_that_of_its_data(unit, name):
    answer = report(unit, name)
    assert answer.good, answer
    _, field, after = REPORTS[name]
    assert len(answer.data) >= after, f"{answer}: {len(answer.data)} bytes"
    whole = after + int.from_bytes(answer.data[field], "big")
    assert len(answer.data) == min(whole, ALLOCATION), (
        f"{answer}: it states {whole} bytes, and {len(answer.data)} came: {answer.data[:16].hex(' ')}"
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-REPORT-CUT-{name}", kills=("report-cut-length",)))
    for name in REPORTS
])  # fmt: skip
@pytest.mark.case(section="SPC-4 allocation length")
def test_a_report_is_cut_and_keeps_its_length(unit, name):
    _, field, after = REPORTS[name]
    whole = report(unit, name)
    assert whole.good, whole
    for allocation in (0, 1, after):
        answer = report(unit, name, allocation)
        assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
        assert len(answer.data) == min(allocation, len(whole.data)), f"{answer}: {len(answer.data)} bytes"
        if allocation >= field.stop:
            assert answer.data[field] == whole.data[field], (
                f"{answer}: the length {answer.data[field].hex()}; that of the whole is "
                f"{whole.data[field].hex()}"
            )


@pytest.mark.case("SCS-REPORT-TIME", section="SPC-4 REPORT TIMESTAMP", kills=("timestamp-backwards",))
def test_the_timestamp_does_not_go_back(unit):
    """Of several readings, none is less than the one before it."""
    found = []
    for _ in range(4):
        answer = report(unit, "TIMESTAMP")
        assert answer.good, answer
        if len(answer.data) < 10:
            pytest.skip(f"no timestamp: {answer.data.hex()}")
        found.append(int.from_bytes(answer.data[4:10], "big"))
    assert found == sorted(found), f"the timestamps are {found}"
