"""Seeded random sequences of reservation commands of three I_T nexuses, compared with a model (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reports_no_release
from storagetest.suites.conformance.iscsi.reservation_sequence import ReservationSequence
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import RESERVING

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 persistent reservations", level="MUST", builds_on=RESERVING),
]

COUNT = 105
"""Commands of one sequence (chosen): seven rounds of all operations."""


KILLS = (
    "registration-lost", "third-key-lost", "equal-keys-once", "preempt-one-of-two", "generation-clear",
    "second-preempt-unreported", "reservation-of-key", "release-foreign",
)  # fmt: skip


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.case(f"SCS-PR-SEQUENCE-{seed}", kills=KILLS)) for seed in (1, 2)],
)
def test_reservations_are_those_that_the_commands_left(unreserved, connections, facts, scratch, seed):
    nexuses = [
        *unreserved,
        LogicalUnit(connections.login("c"), block_size=facts.capacity.block_size),
    ]
    ReservationSequence(nexuses, scratch.lba, seed, silent=reports_no_release(unreserved[0])).run(COUNT)
