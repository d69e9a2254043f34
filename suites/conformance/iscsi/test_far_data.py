"""Transfers of more than 16 MiB: buffer offsets and lengths of more than 24 bits (RFC 7143 11.7.5, 11.8.3).

Nothing is written: the data that are sent are those that a VERIFY compares. A unit that is smaller, or that
announces a MAXIMUM TRANSFER LENGTH of less, is skipped.
"""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .optional_commands import offered

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="RFC 7143 11.7.5")]

FAR = 1 << 24
"""The first buffer offset that has more than 24 bits."""
PIECE = 1024
"""Blocks of a short read with which a long one is compared (chosen)."""


@pytest.fixture
def blocks(facts, scratch) -> int:
    """Return the number of blocks of a transfer that ends past ``FAR``; skip if it is too many."""
    count = FAR // scratch.block_size + 3
    if scratch.lba + count > facts.capacity.blocks:
        pytest.skip(f"the unit has {facts.capacity.blocks} blocks; {scratch.lba + count} are needed")
    most = facts.limits.max_transfer if facts.limits else 0
    if most and count > most:
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {most} blocks; {count} are needed")
    return count


def in_pieces(unit: LogicalUnit, facts, lba: int, blocks: int) -> bytes:
    """Return blocks, read with short reads."""
    piece = min(PIECE, facts.largest)
    return b"".join(
        unit.read(lba + first, min(piece, blocks - first)).good_data() for first in range(0, blocks, piece)
    )


@pytest.mark.parametrize("offer", [
    pytest.param({}, id="default", marks=pytest.mark.case("ISC-FAR-READ", builds_on=("SCS-RW-01",))),
    pytest.param({"MaxBurstLength": "16776192", "MaxRecvDataSegmentLength": "262144"}, id="burst",
                 marks=pytest.mark.case("ISC-FAR-READ-BURST", builds_on=("ISC-FAR-READ",))),
])  # fmt: skip
@pytest.mark.case(kills=("offset-three-bytes", "far-data-repeated"))
def test_a_read_of_more_than_16_mib_has_each_block_in_its_place(connections, facts, scratch, blocks, offer):
    """It begins with blocks that were written, so that data of its begin are not those of its end."""
    unit = LogicalUnit(connections.login(offer=offer), block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(min(64, scratch.most), seed=1600)).good
    wanted = in_pieces(unit, facts, scratch.lba, blocks)
    answer = unit.read(scratch.lba, blocks)
    if answer.check(SenseKey.ILLEGAL_REQUEST) and facts.limits is None:
        pytest.skip(f"{answer}: the unit announces no limit (page B0h), and may have one")
    found = answer.good_data()
    assert len(found) == len(wanted), f"{answer}: {len(found)} bytes of {len(wanted)}"
    size = unit.block_size
    wrong = [at for at in range(0, len(wanted), size) if found[at : at + size] != wanted[at : at + size]]
    assert not wrong, (
        f"{answer}: {len(wrong)} blocks, the first at byte {wrong[0]:#x}, are other than those of short reads"
    )


@pytest.mark.case(
    "ISC-FAR-VERIFY",
    section="RFC 7143 11.8.3, SBC-3 VERIFY(16)",
    kills=("r2t-offset-three-bytes", "far-data-out-dropped"),
    builds_on=("SCS-VERIFY-01",),
)
def test_data_out_of_more_than_16_mib_are_each_in_their_place(unit, facts, scratch, blocks):
    """A VERIFY with the data that are there is GOOD; with one other byte in its last block, a miscompare."""
    held = unit.read(scratch.lba).good_data()
    offered(unit.run(c.VERIFY_16, data=held, lba=scratch.lba, blocks=1, bytchk=1))
    assert unit.write(scratch.lba, scratch.pattern(min(64, scratch.most), seed=1610)).good
    data = in_pieces(unit, facts, scratch.lba, blocks)
    other = data[:-1] + bytes((data[-1] ^ 1,))
    same, changed = (
        unit.run(c.VERIFY_16, data=sent, lba=scratch.lba, blocks=blocks, bytchk=1) for sent in (data, other)
    )
    if same.check(SenseKey.ILLEGAL_REQUEST) and facts.limits is None:
        pytest.skip(f"{same}: the unit announces no limit (page B0h), and may have one")
    assert same.good, f"{same}: the data are those that short reads return"
    assert changed.check(SenseKey.MISCOMPARE), f"{changed}: the last byte is not that of the unit"
