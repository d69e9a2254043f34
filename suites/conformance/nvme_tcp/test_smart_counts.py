"""What the SMART log counts of the host's reads and writes (Base 5.2.12.1.3).

A count of zero before and after is taken as not reported. Other hosts may read and write at the same time, so
a count rises by no less than what the case has done. When a controller counts is its own matter: SHOULD.
"""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import LogPage, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="SHOULD", section="Base 5.2.12.1.3", builds_on=("NVA-LOG-SMART",)),
]

EVERY = 0xFFFFFFFF
COMMANDS = 8
"""Reads, or writes, of a case, one after the other (chosen)."""

UNIT = 512_000
"""Bytes of a Data Unit: 1,000 times 512."""

UNITS = 2
"""Units that are read and written (chosen)."""

ATTEMPTS, MANY_TIMES = 3, 100
"""Attempts of a case, and how much more than it transfers may be counted (chosen)."""

COUNTERS = {
    "Data Units Read": 32,
    "Data Units Written": 48,
    "Host Read Commands": 64,
    "Host Write Commands": 80,
}
"""Offsets of the counters, of 16 bytes each."""


def _counts(session: ControllerSession) -> dict[str, int]:
    raw = session.log_page(LogPage.SMART, 512, nsid=EVERY)
    return {name: int.from_bytes(raw[at : at + 16], "little") for name, at in COUNTERS.items()}


def _claim_risen(session: ControllerSession, before: dict[str, int], least: int, *names: str) -> None:
    """Claim that each counter has risen; one that stays 0 is not reported (5.2.12.1.3)."""
    after = _counts(session)
    reported = [name for name in names if before[name] or after[name]]
    if not reported:
        pytest.skip(f"{' and '.join(names)}: 0, so the controller does not report it")
    for name in reported:
        assert after[name] - before[name] >= least, (
            f"5.2.12.1.3: {name} was {before[name]}, and is {after[name]}; required: {least} more at least"
        )


@pytest.mark.case("NVA-SMART-READS", kills=("smart-reads-stuck",))
def test_the_smart_log_counts_reads(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """The last one may be counted after its completion."""
    before = _counts(session)
    for at in range(COMMANDS):
        done = queue.run(io.read(scratch.nsid, scratch.lba + at, 1), reads=scratch.block_size)
        assert done.ok, f"NVM 3.3.4: a read ended with {status_name(done.status)}"
    _claim_risen(session, before, COMMANDS - 1, "Host Read Commands")


@pytest.mark.case("NVA-SMART-WRITES", kills=("smart-writes-stuck",))
def test_the_smart_log_counts_writes(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """The last one may be counted after its completion."""
    before = _counts(session)
    for at in range(COMMANDS):
        data = block_data(scratch.block_size, 1600 + at)
        done = queue.run(io.write(scratch.nsid, scratch.lba + at, 1), data=data)
        assert done.ok, f"NVM 3.3.6: a write ended with {status_name(done.status)}"
    _claim_risen(session, before, COMMANDS - 1, "Host Write Commands")


@pytest.mark.case("NVA-SMART-RESET", level="MUST", kills=("smart-reset",))
def test_a_controller_reset_keeps_what_the_smart_log_counts(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """The counts are of the life of the controller."""
    for turn in range(COMMANDS):
        write_blocks(queue, scratch, scratch.blocks, 1620 + turn)
        read_blocks(queue, scratch, scratch.blocks)
    before = _counts(session)
    if not any(before.values()):
        pytest.skip("all counts are 0, so the controller does not report them")
    session.disable()
    session.enable()
    after = _counts(session)
    for name, count in before.items():
        assert after[name] >= count, (
            f"5.2.12.1.3: {name} was {count}, and is {after[name]} after a controller reset"
        )


@pytest.mark.case("NVA-SMART-UNITS", kills=("smart-units-stuck",))
def test_the_smart_log_counts_data_units(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """Units of 512,000 bytes, rounded up; one more than is required is transferred."""
    before = _counts(session)
    region = scratch.blocks * scratch.block_size
    for round_ in range(-(-(UNITS + 1) * UNIT // region)):
        write_blocks(queue, scratch, scratch.blocks, 1610 + round_)
        read_blocks(queue, scratch, scratch.blocks)
    _claim_risen(session, before, UNITS, "Data Units Read", "Data Units Written")


@pytest.mark.case("NVA-SMART-UNIT-SIZE", level="MUST", kills=("smart-units-of-512",))
def test_a_data_unit_is_512000_bytes(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """Other hosts may read and write, too: in one of several attempts less than a hundredfold is counted."""
    region = scratch.blocks * scratch.block_size
    rounds = -(-(UNITS + 1) * UNIT // region)
    most = MANY_TIMES * (-(-rounds * region // UNIT) + 1)
    risen: list[dict[str, int]] = []
    for attempt in range(ATTEMPTS):
        before = _counts(session)
        for round_ in range(rounds):
            write_blocks(queue, scratch, scratch.blocks, 1640 + attempt * rounds + round_)
            read_blocks(queue, scratch, scratch.blocks)
        after = _counts(session)
        names = ("Data Units Read", "Data Units Written")
        risen.append({name: after[name] - before[name] for name in names})
        if all(count <= most for count in risen[-1].values()):
            return
    raise AssertionError(
        f"5.2.12.1.3: {rounds * region} bytes were written and read, and the Data Units have risen by "
        f"{risen}; a unit is {UNIT} bytes"
    )
