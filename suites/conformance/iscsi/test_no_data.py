"""A command without the data that it needs: its Expected Data Transfer Length is 0 (RFC 7143 11.3.4).

Nothing was transferred, so nothing is written, unmapped or registered: what is in the target's buffer is
left from an earlier command. The command ends in an error, or its data are an overflow (RFC 7143 11.4.5.1).
"""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import PrOut
from storagetest.wire.scsi.data import first_grain, unmap_list
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING
from storagetest.wire.scsi.reservations import out_list

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="RFC 7143 11.3.4, 11.4.5.1",
        level="SHOULD",
        kills=("left-data-executed",),
        builds_on=("SCS-RW-01",),
    ),
]

WRITES = {
    "WRITE-10": c.WRITE_10,
    "WRITE-16": c.WRITE_16,
    "VERIFY-10": c.WRITE_AND_VERIFY_10,
    "VERIFY-16": c.WRITE_AND_VERIFY_16,
    "SAME-10": c.WRITE_SAME_10,
    "SAME-16": c.WRITE_SAME_16,
    "ORWRITE": c.ORWRITE_16,
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-NO-DATA-{name}")) for name in WRITES
])  # fmt: skip
def test_a_write_without_its_data_writes_nothing(unit, scratch, name):
    """The same command had data before; then another command wrote others."""
    before, old = scratch.pattern(1, seed=971), scratch.pattern(1, seed=972)
    block = cdb(WRITES[name], lba=scratch.lba, blocks=1)
    whole = LogicalUnit.result(unit.runner.command(block, data=before), c.describe(block))
    if not whole.good:
        pytest.skip(f"not supported: {whole}")
    other = c.WRITE_10 if WRITES[name] is c.WRITE_16 else c.WRITE_16
    assert unit.write(scratch.lba, old, command=other).good
    done = unit.runner.command(block)
    found = unit.read(scratch.lba)
    assert found.good, found
    assert found.data == old, (
        f"{c.describe(block)} without data, status {done.status:#04x}: the block has "
        f"{'the data of an earlier command' if found.data == before else 'other data'}"
    )


@pytest.mark.case("ISC-NO-DATA-UNMAP", builds_on=("SCS-UNMAP-01",))
def test_unmap_without_its_list_unmaps_nothing(unit, facts, scratch):
    """The same UNMAP had a list before; then the blocks were written again."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    grain = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    start = first_grain(facts.limits, scratch.lba)
    listed, old = unmap_list((start, grain)), scratch.pattern(grain, seed=973)
    assert unit.unmap((start, grain)).good
    assert unit.write(start, old).good
    done = unit.runner.command(cdb(c.UNMAP, allocation=len(listed)))
    found = unit.read(start, grain)
    assert found.good, found
    assert found.data == old, f"UNMAP without its list, status {done.status:#04x}: the blocks have other data"


@pytest.mark.case("ISC-NO-DATA-PROUT", builds_on=RESERVING)
def test_persistent_reserve_out_without_its_list_registers_nothing(unreserved):
    """REGISTER AND IGNORE EXISTING KEY had a list before; then its registration was ended."""
    unit, _ = unreserved
    action, size = PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, len(out_list(0))
    answer = unit.reserve_out(action, action_key=KEY_A)
    if not answer.good:
        pytest.skip(f"not supported: {answer}")
    assert unit.register(0, key=KEY_A).good
    block = cdb(c.PERSISTENT_RESERVE_OUT, service_action=int(action), allocation=size)
    done = unit.runner.command(block)
    found = unit.keys()
    assert not found.keys, (
        f"{c.describe(block)} without its list, status {done.status:#04x}: keys {found.keys}"
    )
