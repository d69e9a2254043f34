"""Commands with fewer bytes of data than they need: an overflow, or an error (RFC 7143 11.4.5, 11.3.4).

The initiator states an Expected Data Transfer Length that is less than the blocks, or the list, of the
CDB. A target takes no more. If it ends the command in GOOD, it states what is missing.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import PrOut
from storagetest.wire.scsi.data import first_grain, unmap_list
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING
from storagetest.wire.scsi.reservations import out_list

from .test_scsi_allocation import stated

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="RFC 7143 11.4.5.1, 11.3.4",
        level="MUST",
        kills=("short-data-silent",),
        builds_on=("SCS-RW-01",),
    ),
]

WRITES = {
    "WVER-10": c.WRITE_AND_VERIFY_10,
    "WVER-16": c.WRITE_AND_VERIFY_16,
    "ORWRITE": c.ORWRITE_16,
    "VERIFY-10": c.VERIFY_10,
    "VERIFY-16": c.VERIFY_16,
    "SAME-10": c.WRITE_SAME_10,
    "SAME-16": c.WRITE_SAME_16,
    "CAW": c.COMPARE_AND_WRITE,
}


def claim_overflow(done, asked: str, missing: int) -> None:
    """Claim that a command of fewer bytes than it needs is an error, or states what is missing."""
    answer = offered(LogicalUnit.result(done, asked))
    if answer.good:
        assert stated(done) == missing, (
            f"{answer}, with {missing} bytes less than the command needs: the residual is {stated(done):+}"
        )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-SHORT-{name}")) for name in WRITES
])  # fmt: skip
def test_blocks_that_do_not_come_are_an_overflow(connections, facts, scratch, name):
    """All but the last block comes, and half a block; the blocks behind the range keep their data."""
    command, size = WRITES[name], scratch.block_size
    compares = command is c.COMPARE_AND_WRITE
    if compares and not (facts.limits and facts.limits.max_compare_and_write):
        pytest.skip("COMPARE AND WRITE is not announced (page B0h)")
    session = connections.prepared(scratch, 4)
    old = scratch.pattern(4)
    fields = {"bytchk": 1} if command in (c.VERIFY_10, c.VERIFY_16) else {}
    blocks = 1 if name.startswith("SAME") or compares else 2
    needed = 2 * size if compares else blocks * size
    for length in sorted({size // 2, needed - size} - {0}):
        block = cdb(command, lba=scratch.lba, blocks=blocks, **fields)
        done = session.command(block, data=old[:length])
        claim_overflow(done, f"{c.describe(block)}, with {length} bytes", needed - length)
        found = scratch.read_back(session, 4)
        assert found[blocks * size :] == old[blocks * size :], (
            f"{c.describe(block)}, with {length} bytes: a block behind its range has changed"
        )
        session.ping(b"next")


@pytest.mark.case("ISC-SHORT-UNMAP", builds_on=("SCS-UNMAP-01",))
def test_descriptors_that_do_not_come_are_an_overflow(unit, facts, scratch):
    """Of two descriptors the first one comes: the blocks of the other one keep their data."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    grain = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    start = first_grain(facts.limits, scratch.lba)
    listed = unmap_list((start, grain), (start + grain, grain))
    old = scratch.pattern(grain, seed=1301)
    assert unit.write(start + grain, old).good
    block = cdb(c.UNMAP, allocation=len(listed))
    done = unit.runner.command(block, data=listed[:24])
    claim_overflow(done, f"{c.describe(block)}, with 24 bytes", len(listed) - 24)
    found = unit.read(start + grain, grain)
    assert found.data == old, "blocks of a descriptor that did not come have changed"


@pytest.mark.case("ISC-SHORT-PROUT", builds_on=RESERVING)
def test_a_reservation_list_that_does_not_come_is_an_error(unreserved):
    """The first 16 bytes of its 24 come: no overflow of it is registered silently."""
    unit, _ = unreserved
    listed = out_list(0, KEY_A)
    block = cdb(c.PERSISTENT_RESERVE_OUT, service_action=int(PrOut.REGISTER), allocation=len(listed))
    done = unit.runner.command(block, data=listed[:16])
    claim_overflow(done, f"{c.describe(block)}, with 16 bytes", len(listed) - 16)
