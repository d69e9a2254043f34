"""A nexus that has read a block reads what another nexus has changed since, by each command (SBC-3).

A cache of a device server, or of one of its ports, is no reason for older data.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_reservation_limits import access
from .test_scsi_write_protect import NAMES

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST", builds_on=("SCS-RW-01",)),
]

TIMES = 3
"""Reads before the change (chosen): a cache may keep a block that is read twice."""


def kind(command: c.CommandFormat) -> str:
    """Return the family of a command that writes."""
    families = {"SAME": "same", "VERIFY": "verify", "UNMAP": "unmap", "COMPARE": "compare", "OR": "compare"}
    return next((name for word, name in families.items() if word in command.name[:18]), "write")


@pytest.mark.parametrize("command", [
    pytest.param(
        command, id=name.lower(),
        marks=pytest.mark.case(f"SCS-FRESH-{name}", kills=(f"stale-read-{kind(command)}",)),
    )
    for command, name in NAMES.items()
])  # fmt: skip
def test_what_another_nexus_changed_is_read(two, connections, facts, scratch, command):
    """Through a nexus that has read the block before, and through one that is new, the block is the same."""
    if command is c.UNMAP and not (facts.provisioning and facts.provisioning.reads_zero):
        pytest.skip("unmapped blocks do not read as zeroes (LBPRZ of page B2h): their data may change")
    own, other = two
    before = scratch.pattern(1)
    assert own.write(scratch.lba, before).good
    for reads in (c.READ_16, c.READ_10):
        for _ in range(TIMES):
            answer = other.read(scratch.lba, command=reads)
            assert answer.good, answer
            assert answer.data == before, f"{answer}: not what was written"
    changed = offered(access(own, scratch, command))
    if not changed.good:
        pytest.skip(f"not executed: {changed}")
    new = LogicalUnit(connections.login("n"), block_size=scratch.block_size)
    wanted = new.read(scratch.lba).good_data()
    for reads in (c.READ_16, c.READ_10):
        answer = other.read(scratch.lba, command=reads)
        assert answer.good, answer
        assert answer.data == wanted, (
            f"{answer}, after {changed.command} of another nexus: "
            f"{'the data from before it' if answer.data == before else answer.data[:16].hex()}; a nexus that "
            f"has not read the block before reads {wanted[:16].hex()}..."
        )
