"""Seeded random sequences of commands on blocks through three I_T nexuses, compared with a model.

The blocks are the same for each nexus, and a persistent reservation decides which of them may change or read
them (SBC-3, SPC-4). A reset of the unit and a new session change neither.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.nexus_commands import NexusCommands
from storagetest.wire.scsi.codes import PrIn
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import RESERVING

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 READ, WRITE; SPC-4 persistent reservations", level="MUST"),
]

COUNT = 129
"""Operations of one sequence (chosen): three rounds of all operations."""

KILLS = ("nexus-reads-cached",)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"SCS-NEXUS-SEQUENCE-{seed}",
                kills=KILLS,
                builds_on=("ISC-NOP-01", "ISC-DATAIN-08", "SCS-RW-05", *RESERVING),
            ),
        )
        for seed in (1, 2)
    ],
)
def test_each_nexus_reads_what_any_nexus_wrote(not_reserved, connections, facts, scratch, seed):
    def through(initiator) -> LogicalUnit:
        return LogicalUnit(initiator, block_size=facts.capacity.block_size)

    def again(number: int) -> LogicalUnit:
        isid = nexuses[number].runner.isid
        nexuses[number].runner.logout()
        nexuses[number] = through(connections.login("abc"[number], isid=isid))
        return nexuses[number]

    nexuses = [*not_reserved, through(connections.login("c"))]
    reserves = not nexuses[0].reserve_in(PrIn.READ_KEYS).unsupported
    commands = NexusCommands(nexuses, facts, scratch, again=again, reserves=reserves)
    commands.sequence(seed).run(commands.operations(), COUNT)
