"""The list of log subpages, and the SCSI Ports page (SPC-4): what they state is what else the unit states."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.bitfields import require_bytes
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_agreement import listed
from .test_scsi_seldom import RELATIVE_PORT, port_designators

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 LOG SENSE", level="MUST"),
]

ALLOCATION = 4096
SUBPAGES, ALL_SUBPAGES = 0x00, 0xFF
"""Page and subpage code of the list of log pages and subpages."""
SUBPAGE_FORMAT = 0x40
"""SPF, of byte 0 of a log page."""
MOST = 64
"""Pages that are read, at most (chosen)."""
SCSI_PORTS = 0x88


def log_page(unit: LogicalUnit, code: int, subpage: int) -> ScsiResult:
    """Read the cumulative values of a log page."""
    return offered(
        unit.run(
            c.LOG_SENSE, read=ALLOCATION, page_control=1, page=code, subpage=subpage, allocation=ALLOCATION
        )
    )


def subpages(unit: LogicalUnit) -> list[tuple[int, int]]:
    """Return the pages and subpages of the list; skip if there is none."""
    answer = log_page(unit, SUBPAGES, ALL_SUBPAGES)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"no list of subpages: {answer}")
    data = answer.good_data()
    require_bytes(data, 4, "SCSI: a log page")
    body = data[4 : 4 + int.from_bytes(data[2:4], "big")]
    assert not len(body) % 2, f"{answer}: {len(body)} bytes are no pairs of page and subpage: {data.hex(' ')}"
    return [(body[at] & 0x3F, body[at + 1]) for at in range(0, len(body), 2)]


@pytest.mark.case("SCS-LOG-SUBPAGES-LIST", kills=("log-subpages-order", "log-subpages-lack"))
def test_the_list_of_log_subpages_is_ascending_and_has_each_page(unit):
    found = subpages(unit)
    shown = [f"{code:02X}h/{subpage:02X}h" for code, subpage in found]
    assert found == sorted(set(found)), f"the list of pages and subpages is not ascending: {shown}"
    plain = log_page(unit, SUBPAGES, 0).good_data()
    missing = sorted({code & 0x3F for code in plain[4:]} - {code for code, _ in found})
    assert not missing, f"pages {missing} of the list of pages are not among the pages and subpages: {shown}"


@pytest.mark.case(
    "SCS-LOG-SUBPAGES-EACH", kills=("log-subpages-lack", "log-subpage-code"),
    builds_on=("SCS-LOG-SUBPAGES-LIST",),
)  # fmt: skip
def test_each_listed_log_subpage_is_returned_with_its_codes(unit):
    for code, subpage in subpages(unit)[:MOST]:
        answer = log_page(unit, code, subpage)
        assert answer.good, f"{answer}; the list has page {code:02X}h, subpage {subpage:02X}h"
        require_bytes(answer.data, 4, "SCSI: a log page")
        spf = bool(answer.data[0] & SUBPAGE_FORMAT)
        stated = answer.data[0] & 0x3F, answer.data[1] if spf else 0
        assert stated == (code, subpage), (
            f"{answer}: the page states {answer.data[:4].hex(' ')}; page {code:02X}h, subpage "
            f"{subpage:02X}h was asked for"
        )


def ports(unit: LogicalUnit) -> Iterator[tuple[int, bytes]]:
    """Yield the relative port identifier and the target port descriptors of each port of page 88h."""
    rest = listed(unit, SCSI_PORTS).body
    while rest:
        require_bytes(rest, 8, "SCSI: a port of page 88h")
        end = 8 + int.from_bytes(rest[6:8], "big")
        require_bytes(rest, end + 4, "SCSI: a port of page 88h, INITIATOR PORT TRANSPORTID LENGTH")
        last = end + 4 + int.from_bytes(rest[end + 2 : end + 4], "big")
        require_bytes(rest, last, "SCSI: a port of page 88h, TARGET PORT DESCRIPTORS LENGTH")
        yield int.from_bytes(rest[2:4], "big"), rest[end + 4 : last]
        rest = rest[last:]


@pytest.mark.case("SCS-VPD-PORTS", section="SPC-4 SCSI Ports VPD page", kills=("ports-page-other",))
def test_the_port_of_the_session_is_among_the_scsi_ports(unit):
    """The relative target port identifier of page 83h is one of page 88h; none is there twice."""
    found = [number for number, _ in ports(unit)]
    assert len(found) == len(set(found)), f"page 88h has a port twice: {found}"
    assert 0 not in found, f"page 88h has the relative port identifier 0, which is reserved: {found}"
    for number in port_designators(unit, RELATIVE_PORT):
        assert number in found, f"page 83h has the relative target port {number}, page 88h the ports {found}"


@pytest.mark.case(
    "SCS-VPD-PORTS-NAMES", section="SPC-4 SCSI Ports VPD page", kills=("ports-page-association",),
    builds_on=("SCS-VPD-PORTS",),
)  # fmt: skip
def test_the_descriptors_of_the_scsi_ports_are_designators_of_target_ports(unit):
    """Each descriptor has the association of a target port, and they fill their length."""
    for number, descriptors in ports(unit):
        rest = descriptors
        while rest:
            require_bytes(rest, 4, f"SCSI: a designator of port {number} of page 88h")
            require_bytes(rest, 4 + rest[3], f"SCSI: a designator of port {number} of page 88h")
            association = rest[1] >> 4 & 3
            assert association == 1, f"port {number} of page 88h: ASSOCIATION is {association:02b}b, not 01b"
            rest = rest[4 + rest[3] :]
