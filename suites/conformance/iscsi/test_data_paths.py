"""Data of commands that are no plain writes, on each path that RFC 7143 4.2.5.2 has for them.

Parameter lists and blocks to compare come as the data of a write do: as immediate data, as unsolicited
Data-Out, after an R2T, in part each, and in several Data-Out. The command has the same effect on each path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.data import first_grain
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING

from .test_scsi_edges import CACHING, CONTROL, current_page

if TYPE_CHECKING:
    from storagetest.suites.conformance.iscsi.scratch import Scratch
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.iscsi.outcomes import ScsiCompletion

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 4.2.5.2, 11.3.4", level="MUST"),
]

PATHS = {
    "SOLICITED": {"InitialR2T": "Yes", "ImmediateData": "No"},
    "PIECES": {"InitialR2T": "Yes", "ImmediateData": "No"},
    "SPLIT": {"InitialR2T": "Yes", "ImmediateData": "Yes"},
    "UNSOLICITED": {"InitialR2T": "No", "ImmediateData": "No"},
}
"""What a login offers for each path."""
PIECE = 8
"""Bytes of one Data-Out of PIECES, and of the immediate data of SPLIT (chosen)."""


class Path:
    """A session whose commands send their data on one path."""

    def __init__(self, session: Initiator, path: str) -> None:
        self.session, self.path = session, path
        if path == "PIECES":
            session.parameters = replace(session.parameters, max_send=PIECE)

    def command(self, cdb: bytes, *, read: int = 0, data: bytes = b"") -> ScsiCompletion:
        """Run a command."""
        part = min(PIECE, len(data)) if self.path == "SPLIT" and data else None
        return self.session.command(cdb, read=read, data=data, immediate_length=part)


@pytest.fixture
def through(connections, facts) -> Callable[[str], LogicalUnit]:
    """Return a function that returns the unit through a path; skip if the login refuses the path."""

    def log_in(path: str) -> LogicalUnit:
        session = connections.login("p", offer=PATHS[path])
        agreed = {name: session.negotiated[name] for name in PATHS[path]}
        if agreed != PATHS[path]:
            pytest.skip(f"the target answers {agreed} to {PATHS[path]}")
        return LogicalUnit(Path(session, path), block_size=facts.capacity.block_size, largest=facts.largest)

    return log_in


def by_path(name: str, **more: Any) -> Any:
    """Mark a function for each path: cases NAME-PATH."""
    return pytest.mark.parametrize("path", [
        pytest.param(path, marks=pytest.mark.case(
            f"ISC-PATH-{name}-{path}", kills=(f"path-{path.lower()}",), **more))
        for path in PATHS
    ])  # fmt: skip


def good(answer: ScsiResult) -> None:
    """Claim that a command ended in GOOD; skip if the unit does not have it."""
    assert offered(answer).good, answer


def holds(unit: LogicalUnit, lba: int, data: bytes, answer: ScsiResult) -> None:
    """Claim what blocks hold; each is read alone."""
    size = unit.block_size
    for at in range(len(data) // size):
        found = unit.read(lba + at)
        assert found.good, found
        assert found.data == data[at * size :][:size], (
            f"{answer}, and block {at} has other data than it writes"
        )


@by_path("SAME-10", builds_on=("SCS-SAME-01",))
def test_write_same_10_writes_its_block(through, scratch, path):
    same(through(path), scratch, c.WRITE_SAME_10, 985)


@by_path("SAME-16", builds_on=("SCS-SAME-01",))
def test_write_same_16_writes_its_block(through, scratch, path):
    same(through(path), scratch, c.WRITE_SAME_16, 986)


def same(unit: LogicalUnit, scratch: Scratch, command: c.CommandFormat, seed: int) -> None:
    """Write one block to three, and read them."""
    block = scratch.pattern(1, seed=seed)
    for at in range(3):
        assert unit.write(scratch.lba + at, bytes(scratch.block_size)).good
    answer = unit.run(command, data=block, lba=scratch.lba, blocks=3)
    good(answer)
    holds(unit, scratch.lba, block * 3, answer)


@by_path("WVER-10", builds_on=("SCS-WVER-01",))
def test_write_and_verify_10_writes_its_blocks(through, scratch, path):
    unit, data = through(path), scratch.pattern(2, seed=987)
    answer = unit.write(scratch.lba, data, command=c.WRITE_AND_VERIFY_10)
    good(answer)
    holds(unit, scratch.lba, data, answer)


@by_path("WVER-16", builds_on=("SCS-WVER-01",))
def test_write_and_verify_16_writes_its_blocks(through, scratch, path):
    unit, data = through(path), scratch.pattern(2, seed=988)
    answer = unit.write(scratch.lba, data, command=c.WRITE_AND_VERIFY_16)
    good(answer)
    holds(unit, scratch.lba, data, answer)


@by_path("ORWRITE", builds_on=("SCS-ORWRITE-01",))
def test_orwrite_stores_the_or_of_old_and_new_data(through, scratch, path):
    unit, old, new = through(path), scratch.pattern(2, seed=989), scratch.pattern(2, seed=990)
    assert unit.write(scratch.lba, old).good
    answer = unit.write(scratch.lba, new, command=c.ORWRITE_16)
    good(answer)
    holds(unit, scratch.lba, bytes(one | two for one, two in zip(old, new, strict=True)), answer)


@by_path("CAW", builds_on=("SCS-CAW-01", "SCS-CAW-02"))
def test_compare_and_write_compares_and_writes(through, scratch, path):
    """A difference in the last byte of what it compares is a miscompare; then it writes."""
    unit, old, new = through(path), scratch.pattern(1, seed=991), scratch.pattern(1, seed=992)
    assert unit.write(scratch.lba, old).good
    wrong = old[:-1] + bytes((old[-1] ^ 1,))
    answer = offered(unit.compare_and_write(scratch.lba, wrong, new))
    assert answer.check(SenseKey.MISCOMPARE), f"{answer}: the last byte differs"
    holds(unit, scratch.lba, old, answer)
    answer = unit.compare_and_write(scratch.lba, old, new)
    good(answer)
    holds(unit, scratch.lba, new, answer)


@by_path("VERIFY", builds_on=("SCS-VERIFY-01", "SCS-VERIFY-02"))
def test_verify_compares_each_byte(through, scratch, path):
    """Equal blocks are no error; a difference in the first or the last byte is a miscompare."""
    unit, data = through(path), scratch.pattern(2, seed=993)
    assert unit.write(scratch.lba, data).good
    answer = unit.run(c.VERIFY_10, data=data, lba=scratch.lba, blocks=2, bytchk=1)
    good(answer)
    for at in (0, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1
        answer = unit.run(c.VERIFY_10, data=bytes(wrong), lba=scratch.lba, blocks=2, bytchk=1)
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}: byte {at} differs"


@by_path("UNMAP", builds_on=("SCS-UNMAP-01",))
def test_unmap_takes_its_descriptors(unit, through, facts, scratch, path):
    """A range past the end is refused as on any path; that of a good list reads as zeroes if LBPRZ is 1."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    past = (facts.capacity.blocks, 1)
    other = unit.unmap(past)
    unit = through(path)
    grain = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    start = first_grain(facts.limits, scratch.lba)
    assert unit.write(start, scratch.pattern(grain, seed=994)).good
    if other.check(SenseKey.ILLEGAL_REQUEST):
        answer = unit.unmap(past)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the range is past the end"
    answer = unit.unmap((start, grain))
    assert answer.good, answer
    if facts.provisioning.reads_zero:
        holds(unit, start, bytes(grain * scratch.block_size), answer)


@by_path("SELECT-6", builds_on=("SCS-MSEL-01",))
def test_mode_select_6_takes_its_list(unit, through, scratch, path):
    select(unit, through(path), scratch, c.MODE_SELECT_6)


@by_path("SELECT-10", builds_on=("SCS-MSEL-01",))
def test_mode_select_10_takes_its_list(unit, through, scratch, path):
    select(unit, through(path), scratch, c.MODE_SELECT_10)


def select(plain: LogicalUnit, unit: LogicalUnit, scratch: Scratch, command: c.CommandFormat) -> None:
    """The current values of two pages are no error; a page that is not there is refused as on any path."""
    assert scratch.count
    listed = current_page(unit, CONTROL) + current_page(unit, CACHING)[4:]
    if command is c.MODE_SELECT_10:
        listed = bytes(8) + listed[4:]
    page = 8 if command is c.MODE_SELECT_10 else 4
    good(unit.run(command, data=listed, pf=1, allocation=len(listed)))
    wrong = listed[:page] + bytes((c.NO_MODE_PAGE,)) + listed[page + 1 :]
    if plain.run(command, data=wrong, pf=1, allocation=len(wrong)).check(SenseKey.ILLEGAL_REQUEST):
        answer = unit.run(command, data=wrong, pf=1, allocation=len(wrong))
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the list has page {c.NO_MODE_PAGE:02X}h"


@by_path("PROUT", builds_on=RESERVING)
@pytest.mark.usefixtures("unreserved")
def test_persistent_reserve_out_takes_its_key(through, path):
    unit = through(path)
    answer = unit.register(KEY_A)
    assert answer.good, answer
    assert unit.keys().keys == (KEY_A,), f"{answer}: the keys are {unit.keys().keys}, not {KEY_A:x}"
    answer = unit.register(0, key=KEY_A)
    assert answer.good, answer
    assert not unit.keys().keys, f"{answer}: the keys are {unit.keys().keys}, and none was left"
