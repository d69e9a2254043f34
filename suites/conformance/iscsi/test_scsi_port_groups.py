"""REPORT TARGET PORT GROUPS (SPC-4): what a descriptor states of its group. The command is optional."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import TargetPortGroup, decode_target_port_groups
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 REPORT TARGET PORT GROUPS", level="MUST", builds_on=("SCS-GROUPS-TPGS",)),
]

ALLOCATION = 4096
STATES = {0x0: 0x01, 0x1: 0x02, 0x2: 0x04, 0x3: 0x08, 0x4: 0x10, 0xE: 0x40, 0xF: 0x80}
"""ASYMMETRIC ACCESS STATE, and its bit of byte 1: active/optimized, active/non-optimized, standby,
unavailable, logical block dependent, offline, and transitioning."""
MOST_STATUS = 2
"""The highest STATUS CODE that is not reserved: altered by implicit asymmetric logical unit access."""


def groups(unit: LogicalUnit) -> tuple[TargetPortGroup, ...]:
    """Return the groups; skip if there is no such command."""
    answer = offered(unit.run(c.REPORT_TARGET_PORT_GROUPS, read=ALLOCATION, allocation=ALLOCATION))
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    assert answer.good, answer
    return decode_target_port_groups(answer.data)


@pytest.mark.case("SCS-GROUPS-STATE", kills=("groups-state-reserved",))
def test_the_state_of_each_group_is_one_that_is_defined(unit):
    for group in groups(unit):
        assert group.state in STATES, (
            f"group {group.number} has the state {group.state:x}h, which is reserved: {group}"
        )


@pytest.mark.case(
    "SCS-GROUPS-SUPPORTED", kills=("groups-state-unsupported",), builds_on=("SCS-GROUPS-STATE",)
)
def test_the_state_of_each_group_is_one_that_it_supports(unit):
    found = [group for group in groups(unit) if group.supported]
    if not found:
        pytest.skip("no group states which states it supports (SPC-3)")
    for group in found:
        assert group.supported & STATES[group.state], (
            f"group {group.number} has the state {group.state:x}h, and byte 1, {group.supported:02x}h, "
            "states that it is not supported"
        )


@pytest.mark.case("SCS-GROUPS-STATUS", kills=("groups-status-reserved",))
def test_the_status_code_of_each_group_is_one_that_is_defined(unit):
    for group in groups(unit):
        assert group.status <= MOST_STATUS, (
            f"group {group.number} has the STATUS CODE {group.status:02x}h, which is reserved: {group}"
        )


@pytest.mark.case("SCS-GROUPS-ONCE", kills=("groups-twice", "groups-port-twice"))
def test_no_group_and_no_port_is_reported_twice(unit):
    """Each port is in one group."""
    found = groups(unit)
    numbers = [group.number for group in found]
    assert len(numbers) == len(set(numbers)), f"a group is reported twice: {found}"
    ports = [port for group in found for port in group.ports]
    assert len(ports) == len(set(ports)), f"a port is reported twice: {found}"
