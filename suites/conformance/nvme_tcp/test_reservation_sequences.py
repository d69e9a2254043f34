"""Seeded random sequences of reservation commands of three hosts, compared with a model (Base 8.1.24)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nvme_tcp.reservation_sequence import ReservationSequence
from storagetest.wire.nvme_tcp.harness import Harness
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(section="Base 8.1.24", level="MUST", builds_on=(*HOLDING, "NVR-CLEAR-01")),
]

COUNT = 105
"""Commands of one sequence (chosen): seven rounds of all operations."""

KILLS = (
    "replace-releases", "unregister-ends-shared", "notice-of-unregister-lost", "notice-nsid",
    "report-two-registrants", "reservation-of-controller", "generation-preempt-abort",
    "notice-read-by-another", "reserve-once",
)  # fmt: skip
FIRST_KILLS = ("preempt-zero-ignored", "preempt-first-of-key")


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.case("NVR-SEQUENCE-1", kills=KILLS + FIRST_KILLS)),
        pytest.param(2, marks=pytest.mark.case("NVR-SEQUENCE-2", kills=KILLS)),
    ],
)
def test_reservations_are_those_that_the_commands_left(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness, seed: int
) -> None:
    session = bench.session(name="third host's admin queue")
    third = ReservingHost(session, session.io_queue(), hosts[0].scratch, 0xC3)
    sequence = ReservationSequence((*hosts, third), seed)
    try:
        sequence.run(COUNT)
    finally:
        sequence.end()
