"""Logical block provisioning (SBC-3 4.7): READ CAPACITY(16), page B2h and the commands state one thing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storagetest.wire.iscsi.look import good_data, vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import Capacity, Provisioning, decode_capacity16, decode_provisioning

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 logical block provisioning", level="MUST"),
]

PROVISIONING = 0xB2
"""The Logical Block Provisioning page (SBC-3)."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a unit states of its provisioning: READ CAPACITY(16), and page B2h if page 00h lists it."""

    capacity: Capacity
    page: Provisioning | None

    @property
    def listed(self) -> Provisioning:
        """Page B2h; skip if the unit has none."""
        if self.page is None:
            pytest.skip("page 00h has no page B2h")
        return self.page


@pytest.fixture
def stated(unit) -> Stated:
    """Read them through the session of the case."""
    capacity = decode_capacity16(good_data(unit.capacity16()))
    listed = PROVISIONING in vpd_page(unit, 0x00).body
    return Stated(capacity, decode_provisioning(vpd_page(unit, PROVISIONING)) if listed else None)


@pytest.mark.case("SCS-VPD-08", section="SBC-3 READ CAPACITY(16), LBPME", kills=("lbpme-clear",))
def test_a_unit_that_unmaps_blocks_manages_their_provisioning(stated):
    """LBPME of 0 is a fully provisioned unit, whose blocks neither UNMAP nor WRITE SAME unmaps."""
    offers = stated.listed.unmap or stated.listed.write_same_unmap
    assert not offers or stated.capacity.provisioned_thin, "LBPU or LBPWS without LBPME"


@pytest.mark.case(
    "SCS-LBP-METHOD", section="SBC-3 4.7, LBPME", level="SHOULD", kills=("lbp-page-missing", "lbp-no-method")
)
def test_a_unit_that_manages_provisioning_states_how(stated):
    """LBPME of 1: page B2h is there, and has at least one of the commands that unmap blocks."""
    if not stated.capacity.provisioned_thin:
        pytest.skip("LBPME is 0")
    page = stated.page
    assert page is not None, "LBPME of READ CAPACITY(16) is 1, and page 00h has no page B2h"
    assert page.unmap or page.write_same_unmap or page.write_same10_unmap, (
        f"LBPME of READ CAPACITY(16) is 1, and page B2h has no command that unmaps blocks: {page}"
    )


@pytest.mark.case("SCS-LBP-ANCHOR", section="SBC-3 UNMAP, ANCHOR", kills=("unmap-anchor-accepted",))
@pytest.mark.usefixtures("scratch")
def test_blocks_are_not_anchored_without_anc_sup(unit, stated):
    """The parameter list has no descriptor, so nothing is unmapped if it is accepted."""
    page = stated.listed
    if not page.unmap or page.anchor:
        pytest.skip(f"UNMAP is not supported, or ANC_SUP is 1: {page}")
    empty = bytes((0, 6, *bytes(6)))
    answer = unit.run(c.UNMAP, data=empty, anchor=1, allocation=len(empty))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
        f"{answer}: ANCHOR is 1, and ANC_SUP of page B2h is 0"
    )
