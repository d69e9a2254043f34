"""A range whose end is past the greatest address that the CDB, or a descriptor, can have (SBC-3).

The sum of the first address and the number of blocks has one bit more than the address. Without that bit the
range ends at one of the first blocks.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey

from .test_scsi_each_form import FETCHES, RANGES, SAMES, named, require_comparison, run

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3, LOGICAL BLOCK ADDRESS", level="MUST", builds_on=("SCS-RW-05",)),
]

WRAPPING = {**RANGES, **FETCHES}


def wraps(command: c.CommandFormat) -> str:
    return "range-wraps-64" if command.length == 16 else "range-wraps-32"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-WRAP-{name}", kills=(wraps(WRAPPING[name]),)))
    for name in WRAPPING
])  # fmt: skip
def test_a_range_that_ends_past_the_greatest_address_is_refused(unit, facts, scratch, name):
    """From the last address of the CDB, one block, two, and as many as end at a block of the unit."""
    command, size = WRAPPING[name], scratch.block_size
    bits = 64 if command.length == 16 else 32
    if facts.capacity.blocks >= 1 << bits:
        pytest.skip(f"{command.name} has no address past the end of the unit")
    require_comparison(command, facts)
    before = unit.read(scratch.lba).good_data()
    most = facts.limits.max_compare_and_write if command is c.COMPARE_AND_WRITE and facts.limits else 8
    for blocks in (1, 2, 8):
        if blocks > most:
            continue
        lba, data = (1 << bits) - 1, bytes(blocks * size)
        if command in FETCHES.values():
            answer = offered(unit.run(command, lba=lba, blocks=blocks))
        else:
            new = scratch.pattern(1 if named(command, SAMES) else blocks, seed=1410)
            answer = run(unit, command, lba, data, new, blocks=blocks)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), (
            f"{answer}: {blocks} blocks from {lba:X}h; the last block is {facts.capacity.last_lba}"
        )
        assert not answer.data, f"{answer}, with {len(answer.data)} bytes"
    assert unit.read(scratch.lba).data == before


@pytest.mark.case("SCS-WRAP-UNMAP", section="SBC-3 UNMAP", kills=("unmap-wraps",))
def test_an_unmap_that_ends_past_the_greatest_address_is_refused(unit, facts, scratch):
    assert scratch.count
    if facts.limits is None or not facts.limits.max_unmap_blocks:
        pytest.skip("page B0h states no maximum of UNMAP")
    for blocks in (1, 2, 8):
        if blocks <= facts.limits.max_unmap_blocks:
            answer = offered(unit.unmap(((1 << 64) - 1, blocks)))
            assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: {blocks} blocks from the last address"


@pytest.mark.case("SCS-WRAP-LBAS", section="SBC-3 GET LBA STATUS", kills=("lbas-wraps",))
def test_the_status_of_the_greatest_addresses_is_out_of_range(unit, facts):
    first = offered(unit.run(c.GET_LBA_STATUS, read=24, lba=0, allocation=24))
    if not first.good:
        pytest.skip(f"not supported: {first}")
    for lba in (facts.capacity.blocks, 1 << 32, 1 << 48, (1 << 63) + 8, (1 << 64) - 1):
        if lba < facts.capacity.blocks:
            continue
        answer = offered(unit.run(c.GET_LBA_STATUS, read=24, lba=lba, allocation=24))
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}: block {lba:X}h; the last block of the unit is {facts.capacity.last_lba}"
        )
