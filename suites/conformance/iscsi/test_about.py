"""What the other cases read of a unit first: modules run by name, so a fault of it is red under its name."""

from __future__ import annotations

import pytest

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="SBC-3, SPC-4",
        level="MUST",
        no_mutant_reason="mutants leave the session's look at the unit alone",
    ),
]


@pytest.mark.case("SCS-LOOK-01")
def test_the_capacity_is_read_first(facts):
    assert facts.capacity.blocks > 0


@pytest.mark.case("SCS-LOOK-02")
def test_the_list_of_vpd_pages_is_read_first(facts):
    assert facts.pages


@pytest.mark.case("SCS-LOOK-03", section="RFC 7143 11.4.5, 11.7")
def test_reads_of_the_unit_are_whole_before_anything_is_written(facts):
    """The look for a signature: a read that ends in GOOD with a residual, or with gaps, proves nothing."""
    assert facts.scratch.count > 0
