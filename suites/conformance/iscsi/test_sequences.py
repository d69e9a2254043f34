"""Seeded random sequences of SCSI commands of many sizes and offsets, compared with a model of the blocks.

The first and the second command of a kind, a command after any other, and a range that was used before have
to do the same. The initiator checks the numbers and the residuals of every response.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.block_commands import Commands
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")]

COUNT = 96
"""Operations of one sequence (chosen): four rounds, in which every deck of shapes is dealt."""

HIGH = 1 << 16
"""An address that needs more than 16 of the 21 bits of READ(6)."""


@pytest.mark.case("SCS-READ6-HIGH", section="SBC-3 READ(6)", kills=("read6-high-lba",))
def test_read_6_has_the_blocks_of_its_21_bit_address(unit, facts, scratch):
    """LOGICAL BLOCK ADDRESS of READ(6) has 21 bits: the blocks are those that READ(16) has there."""
    lba = HIGH + scratch.lba
    if lba >= facts.capacity.blocks:
        pytest.skip(f"the unit has {facts.capacity.blocks} blocks: no address has more than 16 bits")
    before, size = unit.read(lba).data, facts.capacity.block_size
    try:
        for at, seed in ((scratch.lba, 96), (lba, 97)):
            assert unit.write(at, scratch.pattern(1, seed=seed)).good
        block = bytes((c.READ_6.opcode, lba >> 16, lba >> 8 & 0xFF, lba & 0xFF, 1, 0))
        answer = LogicalUnit.result(unit.runner.command(block, read=size), f"READ(6) of LBA {lba}")
    finally:
        unit.write(lba, before)
    if answer.unsupported:
        pytest.skip("READ(6) is not supported")
    assert answer.good, answer
    assert answer.data == scratch.pattern(1, seed=97), (
        f"READ(6) of LBA {lba} returns other data than were written"
    )


@pytest.mark.case("SCS-CAP-AGAIN", section="SBC-3 READ CAPACITY(16)", kills=("capacity-again-smaller",))
def test_capacity_is_the_same_after_a_write_of_the_last_block(unit, facts, scratch):
    last = facts.capacity.last_lba
    before, data = unit.capacity16().data, unit.read(last).data
    assert unit.write(last, scratch.pattern(1, seed=99)).good
    after = unit.capacity16().data
    unit.write(last, data)
    assert after == before, (
        f"READ CAPACITY(16) returns {after.hex()} after a write of the last block, {before.hex()} before it"
    )


@pytest.mark.case("SCS-UA-AGAIN", section="SAM-5 5.14", kills=("attention-of-second-reset",))
def test_each_reset_of_the_unit_establishes_a_unit_attention(two):
    """A target that reports the first LOGICAL UNIT RESET by a unit attention reports each later one, too."""
    first, second = two
    for number in range(1, 4):
        done = first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
        assert done.response == TaskResult.COMPLETE, f"reset {number} of the unit: response {done.response}"
        found = second.clear_attentions()
        if not found and number == 1:
            pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
        assert found, f"reset {number} of the unit establishes no unit attention, and the first one did"
        first.clear_attentions()


KILLS = (
    "third-write-lost", "write-same-again-lost", "write-same-count-byte", "unmap-again-then-write-lost",
    "write-after-sync-lost", "caw-again-keeps", "write-odd-last-lost", "read-129-blocks-wrong",
    "read-odd-lba",
    "read-after-failure-wrong", "residual-second-lost", "ping-later-cut", "inquiry-third-differs",
    "stat-sn-after-64",
)  # fmt: skip


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"SCS-SEQUENCE-{seed}",
                kills=KILLS,
                builds_on=("ISC-NOP-01", "ISC-DATAIN-08", "SCS-RW-05"),
            ),
        )
        for seed in (1, 2)
    ],
)
def test_blocks_have_the_data_that_the_commands_left(unit, facts, scratch, seed):
    commands = Commands(unit, facts, scratch)
    commands.sequence(seed).run(commands.operations(), COUNT)
    found = unit.runner.validator.violations_but("data-burst", "reserved-lun")  # each judged by itself
    assert not found, f"{len(found)} violations: {'; '.join(found[:3])}"
