"""REPORT TARGET PORT GROUPS (SPC-4): what a descriptor states of its group. SET TARGET PORT GROUPS.

Both are optional. A group is only ever set to the state that it has, or to what has to be refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import TargetPortGroup, decode_target_port_groups
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.seldom_cdb import REPORT_EXTENDED_GROUPS, SET_TARGET_PORT_GROUPS

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


# The extended parameter data format

EXTENDED = 1
"""PARAMETER DATA FORMAT, of the CDB; FORMAT TYPE of the header (byte 4, from bit 4) is the same."""


@pytest.mark.case(
    "SCS-GROUPS-EXTENDED",
    section="SPC-4 REPORT TARGET PORT GROUPS, PARAMETER DATA FORMAT",
    kills=("groups-extended-length", "groups-extended-format"),
)
def test_the_extended_format_has_its_header_and_the_same_groups(unit):
    """RETURN DATA LENGTH counts all that follows it, also the four bytes that this header has more."""
    plain = groups(unit)
    answer = unit.run(REPORT_EXTENDED_GROUPS, read=ALLOCATION, format=EXTENDED, allocation=ALLOCATION)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"the extended format is not supported: {answer}")
    assert answer.good, answer
    data = answer.data
    assert len(data) >= 8, f"{answer}: {data.hex(' ')}"
    if data == unit.run(c.REPORT_TARGET_PORT_GROUPS, read=ALLOCATION, allocation=ALLOCATION).data:
        pytest.skip("the format is ignored: the header is that of the short format")
    assert data[4] >> 4 & 7 == EXTENDED, f"{answer}: FORMAT TYPE is {data[4] >> 4 & 7}: {data.hex(' ')}"
    stated, due = int.from_bytes(data[:4], "big"), 4 + sum(8 + 4 * len(one.ports) for one in plain)
    assert stated == due, (
        f"{answer}: RETURN DATA LENGTH is {stated}; with {len(plain)} groups, {due} bytes follow it: "
        f"{data.hex(' ')}"
    )
    found = decode_target_port_groups((stated - 4).to_bytes(4, "big") + data[8:])
    assert found == plain, f"{answer}: {found}; without the extended header: {plain}"


# SET TARGET PORT GROUPS

EXPLICIT = 0x20
"""Of TPGS in byte 5 of standard INQUIRY data."""
RESERVED_STATES = (0x5, 0xD)
UNDONE = "SCS-GROUPS-SET: the state of a target port group has changed: set it at the target"


def group_list(*descriptors: tuple[int, int]) -> bytes:
    """Return a parameter list of states and groups."""
    return bytes(4) + b"".join(bytes((state, 0)) + number.to_bytes(2, "big") for state, number in descriptors)


@pytest.fixture
def settable(unit, scratch, pytestconfig) -> Iterator[tuple[LogicalUnit, tuple[TargetPortGroup, ...]]]:
    """Yield a unit whose groups can be set, and its groups; set the states back that have changed."""
    assert scratch.count
    if not unit.inquiry().good_data()[5] & EXPLICIT:
        pytest.skip("TPGS of INQUIRY: no explicit asymmetric access")
    before = groups(unit)
    yield unit, before
    unit.clear_attentions()
    states = {one.number: one.state for one in before}
    changed = [one for one in groups(unit) if one.state != states.get(one.number)]
    if changed:
        set_groups(
            unit, group_list(*((states[one.number], one.number) for one in changed if one.number in states))
        )
        if {one.number: one.state for one in groups(unit)} != states:
            stop_run(pytestconfig, UNDONE)


def set_groups(unit: LogicalUnit, data: bytes) -> ScsiResult:
    """Send SET TARGET PORT GROUPS; skip if it is not supported."""
    return offered(unit.run(SET_TARGET_PORT_GROUPS, data=data, allocation=len(data)))


@pytest.mark.case(
    "SCS-GROUPS-SET-TPGS", section="SPC-4 TPGS", level="SHOULD", kills=("groups-set-unsupported",)
)
def test_a_unit_with_explicit_access_has_set_target_port_groups(settable):
    """An empty list of descriptors, or none, changes nothing; whatever it ends in, the command is known."""
    unit, _ = settable
    for data in (b"", bytes(4)):
        answer = unit.run(SET_TARGET_PORT_GROUPS, data=data, allocation=len(data))
        assert not answer.unsupported, f"{answer}; TPGS of INQUIRY states that groups can be set"


@pytest.mark.case(
    "SCS-GROUPS-SET-SAME",
    section="SPC-4 SET TARGET PORT GROUPS",
    level="SHOULD",
    kills=("groups-set-refused",),
)
def test_a_group_can_be_set_to_the_state_that_it_has(settable):
    """Of the groups that are active; their states stay, and so do those of the others."""
    unit, before = settable
    active = [one for one in before if one.state in (0, 1)]
    if not active:
        pytest.skip(f"no group is active: {before}")
    answer = set_groups(unit, group_list(*((one.state, one.number) for one in active)))
    assert answer.good, f"{answer}: each group was set to the state that it has"
    unit.clear_attentions()
    states = [(one.number, one.state) for one in groups(unit)]
    assert states == [(one.number, one.state) for one in before], f"{answer}, and the states are {states}"


@pytest.mark.parametrize("what", [
    pytest.param("STATE", marks=pytest.mark.case("SCS-GROUPS-SET-STATE", kills=("groups-set-any-state",))),
    pytest.param("GROUP", marks=pytest.mark.case("SCS-GROUPS-SET-GROUP", kills=("groups-set-any-group",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 SET TARGET PORT GROUPS")
def test_a_reserved_state_and_a_group_that_is_not_there_are_refused(settable, what):
    """No group changes its state."""
    unit, before = settable
    one, numbers = before[0], {group.number for group in before}
    absent = next(number for number in range(0xFFF0, 0, -1) if number not in numbers)
    lists = [(state, one.number) for state in RESERVED_STATES] if what == "STATE" else [(one.state, absent)]
    for state, number in lists:
        answer = set_groups(unit, group_list((state, number)))
        assert answer.check(SenseKey.ILLEGAL_REQUEST), (
            f"{answer}: state {state:X}h of group {number:04X}h; the groups are {before}"
        )
        assert groups(unit) == before, f"{answer}, and the groups are {groups(unit)}; they were {before}"
