"""A command that is refused returns no data: what comes with the status is left from other commands.

The data would be those of another initiator, or the memory of the target.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import require_address
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SAM-5 5.13", level="SHOULD")]

SIZE = 512
"""Expected length, and allocation length (chosen)."""
NO_SUCH = {
    "INQUIRY": cdb(c.INQUIRY, evpd=1, page=0xAB, allocation=SIZE),
    "INQUIRY-PAGE": cdb(c.INQUIRY, page=0x83, allocation=SIZE),
    "MODE-6": cdb(c.MODE_SENSE_6, page=c.NO_MODE_PAGE, allocation=255),
    "MODE-10": cdb(c.MODE_SENSE_10, page=c.NO_MODE_PAGE, allocation=SIZE),
    "LOG": cdb(c.LOG_SENSE, page=0x2B, allocation=SIZE),
    "PRIN": cdb(c.PERSISTENT_RESERVE_IN, service_action=0x1F, allocation=SIZE),
    "CAPACITY": bytes((0x9E, 0x1F, *bytes(8), 0, 0, 2, 0, 0, 0)),
    "OPCODE": c.NO_COMMAND,
}
"""Commands on what is not there: pages, service actions, an operation code."""
READS = {"READ-10": c.READ_10, "READ-12": c.READ_12, "READ-16": c.READ_16}


def claim_nothing(session, block: bytes, size: int) -> None:
    """Run a command that is refused; claim that it returns no data. Skip if it is no error."""
    done = session.command(block, read=size)
    answer = LogicalUnit.result(done, c.describe(block))
    if not answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"{answer}: not refused, which other cases are about")
    assert done.data == b"", f"{answer}, with {len(done.data)} bytes: {done.data[:16].hex(' ')}"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-REFUSED-{name}", kills=("refused-with-data",)))
    for name in NO_SUCH
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-SENSE-01",))
def test_a_command_on_what_is_not_there_returns_no_data(connections, scratch, name):
    """After a write, whose data may be in the buffer of the next command."""
    session = connections.prepared(scratch, 1)
    claim_nothing(session, NO_SUCH[name], SIZE)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-REFUSED-{name}", kills=("refused-with-data",)))
    for name in READS
])  # fmt: skip
@pytest.mark.case(section="SBC-3 READ, LBA out of range", level="MUST", builds_on=("SCS-RW-05",))
def test_a_read_past_the_end_returns_no_data(connections, facts, scratch, name):
    """After a write; the first block of the range is past the end, or the last one alone."""
    session, command, blocks = connections.prepared(scratch, 1), READS[name], facts.capacity.blocks
    require_address(command, blocks)
    for lba, count in ((blocks, 1), (blocks - 1, 2)):
        claim_nothing(session, cdb(command, lba=lba, blocks=count), count * scratch.block_size)
