"""Residuals of transfers in several PDUs, and lengths that are no multiple of a block or of four bytes.

RFC 7143 11.4.5 (residuals), 11.7.6 (offsets of data), 11.8.4 (R2T), 13.12 to 13.14 (limits of any length).
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.outcomes import ScsiCompletion
from storagetest.wire.scsi.cdb import INQUIRY, MODE_SENSE_6, READ_10, READ_16, WRITE_10, WRITE_16, cdb
from storagetest.wire.scsi.codes import ScsiStatus

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.4.5", level="MUST", builds_on=("ISC-DATAIN-01",)),
]

BLOCKS = 8
"""Blocks of a transfer: several PDUs of SEGMENT bytes (chosen)."""
SEGMENT = 512
"""Our MaxRecvDataSegmentLength, the least that is legal (13.12)."""
ODD = 1001
"""A length that is legal for each of the three keys, and no multiple of four (13.12 to 13.14)."""


def ended(done: ScsiCompletion) -> ScsiCompletion:
    """Return a completion; skip if the target refuses the command, which 11.4.5 does not forbid."""
    if done.status == ScsiStatus.CHECK_CONDITION:
        pytest.skip(f"a command with another expected length is refused: sense {done.sense.hex()}")
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}"
    return done


def stated(done: ScsiCompletion) -> int:
    """Return the residual with its sign: positive for an overflow, negative for an underflow."""
    return done.residual * (done.overflow - done.underflow)


# Residuals


@pytest.mark.parametrize("command", [
    pytest.param(command, marks=pytest.mark.case(f"ISC-RESIDUAL-NONE-{name}"))
    for name, command in {
        "READ-10": READ_10, "READ-16": READ_16, "INQUIRY": INQUIRY, "MODE": MODE_SENSE_6,
    }.items()
])  # fmt: skip
@pytest.mark.case(kills=("residual-of-nothing",), builds_on=("ISC-DATAIN-08",))
def test_a_command_that_returns_no_data_states_all_that_was_expected(connections, command):
    """No blocks, or an allocation length of zero: all that was expected is the residual."""
    session = connections.login()
    fields = {"page": 0x3F} if command is MODE_SENSE_6 else {}
    done = ended(session.command(cdb(command, **fields), read=SEGMENT))
    assert not done.data, f"{len(done.data)} bytes came of a command that returns none"
    assert stated(done) == -SEGMENT, (
        f"the residual is {stated(done):+}, of {SEGMENT} bytes that were expected and did not come"
    )


@pytest.mark.parametrize("more", [
    pytest.param(-SEGMENT, id="block", marks=pytest.mark.case("ISC-RESIDUAL-READ-OVER")),
    pytest.param(-3 * SEGMENT, id="blocks", marks=pytest.mark.case("ISC-RESIDUAL-READ-OVER-MORE")),
    pytest.param(-1, id="byte", marks=pytest.mark.case("ISC-RESIDUAL-READ-OVER-BYTE")),
])  # fmt: skip
@pytest.mark.case(kills=("residual-of-many",))
def test_a_read_of_several_data_in_states_its_overflow(connections, scratch, more):
    """What came is the beginning of the blocks, and with the residual it is all of them."""
    session = connections.prepared(scratch, MaxRecvDataSegmentLength=str(SEGMENT))
    whole = scratch.pattern(BLOCKS)
    done = ended(session.command(cdb(READ_10, lba=scratch.lba, blocks=BLOCKS), read=len(whole) + more))
    assert done.data == whole[: len(done.data)], "the data that came are not the beginning of the blocks"
    assert (len(done.data), stated(done)) == (len(whole) + more, -more), (
        f"{len(done.data)} of {len(whole)} bytes came in {len(done.data_ins)} Data-In, and the residual is "
        f"{stated(done):+}; {len(whole) + more} were expected"
    )


@pytest.mark.parametrize("command", [
    pytest.param(WRITE_10, id="10", marks=pytest.mark.case("ISC-RESIDUAL-WRITE-OVER-10")),
    pytest.param(WRITE_16, id="16", marks=pytest.mark.case("ISC-RESIDUAL-WRITE-OVER-16")),
])  # fmt: skip
@pytest.mark.case(kills=("residual-write-overflow",), builds_on=())
def test_a_write_of_fewer_bytes_than_the_command_has_states_its_overflow(connections, scratch, command):
    """A write is GOOD with an overflow of what was not transferred, or it is refused."""
    session = connections.prepared(scratch)
    data, size = scratch.pattern(BLOCKS, seed=312), scratch.block_size
    short = data[: (BLOCKS - 2) * size]
    done = ended(session.command(cdb(command, lba=scratch.lba, blocks=BLOCKS), data=short))
    assert stated(done) == 2 * size, (
        f"GOOD for {BLOCKS} blocks, with data for {BLOCKS - 2}; the residual is {stated(done):+}"
    )


@pytest.mark.parametrize("more", [
    pytest.param(SEGMENT, id="block", marks=pytest.mark.case("ISC-RESIDUAL-READ-UNDER")),
    pytest.param(1, id="byte", marks=pytest.mark.case("ISC-RESIDUAL-READ-UNDER-BYTE")),
])  # fmt: skip
@pytest.mark.case(kills=("residual-of-many",))
def test_a_read_of_several_data_in_states_its_underflow(connections, scratch, more):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength=str(SEGMENT))
    whole = scratch.pattern(BLOCKS)
    done = ended(session.command(cdb(READ_10, lba=scratch.lba, blocks=BLOCKS), read=len(whole) + more))
    assert (done.data, stated(done)) == (whole, -more), (
        f"{len(done.data)} of {len(whole)} bytes came, and the residual is {stated(done):+}; "
        f"{len(whole) + more} were expected"
    )


@pytest.mark.parametrize("immediate", [
    pytest.param("Yes", marks=pytest.mark.case(
        "ISC-RESIDUAL-WRITE-IMMEDIATE", kills=("residual-write-underflow",))),
    pytest.param("No", marks=pytest.mark.case(
        "ISC-RESIDUAL-WRITE-R2T", kills=("residual-of-write-by-r2t",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-R2T-01",))
def test_a_write_states_its_underflow_however_its_data_come(connections, scratch, immediate):
    """More is expected than the CDB names: the blocks after the last one that it names are kept."""
    session = connections.prepared(scratch, BLOCKS, ImmediateData=immediate, InitialR2T="Yes")
    size, new = scratch.block_size, scratch.pattern(BLOCKS, seed=141)
    for blocks in (1, 3):
        block = cdb(WRITE_10, lba=scratch.lba, blocks=blocks)
        done = ended(session.command(block, data=new[: 4 * size], expected=4 * size))
        assert stated(done) == (blocks - 4) * size, (
            f"{blocks} of 4 blocks are written, and the residual is {stated(done):+}"
        )
        wanted = new[: blocks * size] + scratch.pattern(BLOCKS)[blocks * size :]
        assert scratch.read_back(session, BLOCKS) == wanted, f"not {blocks} blocks were written"


# Lengths that are no multiple of a block


@pytest.mark.parametrize("length", [
    pytest.param(length, marks=pytest.mark.case(f"ISC-ODD-IMMEDIATE-{length}"))
    for length in (1, 100, 511, 513, 1023)
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.8.4, 11.7.6", kills=("r2t-offset-of-block",), builds_on=("ISC-R2T-01",)
)
def test_an_r2t_asks_from_where_immediate_data_end(connections, scratch, length):
    """Immediate data of any length up to FirstBurstLength are legal (11.7.4)."""
    session = connections.prepared(scratch, ImmediateData="Yes", InitialR2T="Yes")
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    data = scratch.pattern(4, seed=142)
    command = session.start(cdb(WRITE_10, lba=scratch.lba, blocks=4), write=len(data), data=data[:length])
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}"
    asked = [(pdu.buffer_offset, pdu.desired_length) for pdu in done.r2ts]
    assert asked, "no R2T came, although the immediate data are no whole block"
    assert asked[0][0] == length, (
        f"the first R2T asks from offset {asked[0][0]}; the immediate data have {length} bytes"
    )
    assert scratch.read_back(session, 4) == data, f"not what was written; the R2Ts asked for {asked}"


LIMITS = ("data-length", "data-order", "data-burst", "r2t-length", "r2t-order", "residual")
"""Rules of the validator on the sizes of PDUs and bursts."""


@pytest.mark.parametrize("key", [
    pytest.param("MaxRecvDataSegmentLength", marks=pytest.mark.case(
        "ISC-ODD-SEGMENT", section="RFC 7143 13.12, 11.7.6", kills=("data-in-of-whole-words",))),
    pytest.param("MaxBurstLength", marks=pytest.mark.case(
        "ISC-ODD-BURST", section="RFC 7143 13.13, 11.8.4", kills=("r2t-of-whole-words",))),
    pytest.param("FirstBurstLength", marks=pytest.mark.case(
        "ISC-ODD-FIRST", section="RFC 7143 13.14, 11.8.4", kills=("r2t-offset-of-block",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-R2T-01",))
def test_a_limit_may_be_any_number_of_bytes(connections, scratch, key):
    """13.12 to 13.14: 512 to 2**24-1, not only multiples. Two reads and two writes are whole under it."""
    offer = {"ImmediateData": "Yes", "InitialR2T": "No", "FirstBurstLength": "513", key: str(ODD)}
    session = connections.prepared(scratch, **offer)
    answered = dict(session.replied).get(key, str(ODD))
    if key != "MaxRecvDataSegmentLength" and answered != str(ODD):
        pytest.skip(f"{key} is {answered}, of {ODD} that were offered")
    for seed in (143, 144):
        data = scratch.pattern(BLOCKS, seed=seed)
        done = session.command(cdb(WRITE_10, lba=scratch.lba, blocks=BLOCKS), data=data)
        assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x} of a write with {key}={ODD}"
        assert scratch.read_back(session, BLOCKS) == data, f"not what was written, with {key}={ODD}"
    rules = tuple(rule for rule in LIMITS if rule != "data-burst" or key == "MaxRecvDataSegmentLength")
    broken = session.validator.violations_of(*rules)
    assert not broken, f"with {key}={ODD}: {'; '.join(broken[:3])}"
