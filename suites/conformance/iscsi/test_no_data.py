"""A command without the data that it needs: its Expected Data Transfer Length is 0 (RFC 7143 11.3.4).

Nothing was transferred, so nothing is written, unmapped or registered: what is in the target's buffer is
left from an earlier command. The command ends in an error, or its data are an overflow (RFC 7143 11.4.5.1).
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import PrOut, ScsiStatus
from storagetest.wire.scsi.data import first_grain, unmap_list
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING
from storagetest.wire.scsi.reservations import out_list

from .windows import skip_if_busy

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


# Flags


def ends(session: Initiator, block: bytes, **flags: bool) -> ScsiResponse | DataIn:
    """Send a command with R or W and an expected length of 0; claim that no data come, and return its end."""
    session.send(ScsiCommand(lun=session.lun, cdb=block.ljust(16, b"\0"), **flags))
    pdu = session.receive(expected="the response of a command without data")
    name = f"{c.describe(block)} with {' and '.join(flags)} and an Expected Data Transfer Length of 0"
    assert isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status and not pdu.data), (
        f"{name} is met with {pdu.summary() if pdu else 'a close'}; it has no data"
    )
    skip_if_busy(pdu.status)
    return pdu


# "Either or both of R and W MAY be 1 when either the Expected Data Transfer Length and/or the Bidirectional
# Read Expected Data Transfer Length are 0": ESXi sets them so.
@pytest.mark.parametrize("flags", [
    pytest.param({"write": True}, id="write", marks=pytest.mark.case("ISC-FLAGS-WRITE", level="MUST", kills=(
        "no-data-flags-refused", "r2t-of-nothing"))),
    pytest.param({"read": True}, id="read", marks=pytest.mark.case("ISC-FLAGS-READ", level="MUST", kills=(
        "no-data-flags-refused",))),
    pytest.param({"read": True, "write": True}, id="both", marks=pytest.mark.case("ISC-FLAGS-BOTH", kills=(
        "no-data-flags-refused",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.3.1", builds_on=("SCS-RW-14",))
def test_a_command_that_moves_nothing_may_have_the_flags_of_one_that_does(session, scratch, flags):
    """TEST UNIT READY, and a read or a write of no block with its flag, end in GOOD and without residual."""
    moving = [c.READ_10] * ("read" in flags) + [c.WRITE_10] * ("write" in flags)
    for block in (cdb(c.TEST_UNIT_READY), *(cdb(one, lba=scratch.lba, blocks=0) for one in moving)):
        plain = session.command(block)
        if plain.status:
            pytest.skip(f"{c.describe(block)} without R and W ends in status {plain.status:#04x}")
        end = ends(session, block, **flags)
        found = end.status, end.overflow, end.underflow, end.residual
        assert found == (0, False, False, 0), (
            f"{c.describe(block)} with {' and '.join(flags)} and an Expected Data Transfer Length of 0: "
            f"status, O, U and residual are {found}; without these flags the status is 0"
        )


@pytest.mark.case(
    "ISC-FLAGS-BLOCK", section="RFC 7143 11.8.4, 11.4.5.1", level="MUST", kills=("r2t-of-nothing",)
)
def test_a_write_of_which_no_data_are_expected_asks_for_none(connections, scratch):
    """It ends in an error, or its block is an overflow; nothing is written."""
    session = connections.prepared(scratch, 1)
    end = ends(session, cdb(c.WRITE_10, lba=scratch.lba, blocks=1), write=True)
    assert end.status == ScsiStatus.CHECK_CONDITION or (end.overflow, end.residual) == (
        True,
        scratch.block_size,
    ), f"status {end.status:#04x}, O {end.overflow} and residual {end.residual} for a block that did not come"
    assert scratch.read_back(session, 1) == scratch.pattern(1), "a block that did not come was written"
