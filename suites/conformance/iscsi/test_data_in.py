"""Data-In, residuals, and the status that comes with the last one (RFC 7143 11.4, 11.7)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.outcomes import ScsiCompletion
from storagetest.wire.iscsi.pdu import ScsiCommand
from storagetest.wire.scsi.cdb import INQUIRY, MODE_SENSE_6, READ_10, READ_CAPACITY_16, TEST_UNIT_READY, cdb

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.7", level="MUST")]


def read(session: Initiator, scratch, blocks: int, *, expected: int | None = None) -> ScsiCompletion:
    """READ(10) of the scratch area's start, with an expected length of our own choice."""
    block = cdb(READ_10, lba=scratch.lba, blocks=blocks)
    return session.command(block, read=blocks * scratch.block_size if expected is None else expected)


@pytest.mark.case("ISC-DATAIN-01", section="RFC 7143 11.7.6, 13.18", kills=("data-in-order",))
def test_data_in_comes_in_order_and_is_what_was_written(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="1024")
    assert scratch.read_back(session, 16) == scratch.pattern(16)
    assert not session.validator.violations_of("data-order")


@pytest.mark.case("ISC-DATAIN-02", section="RFC 7143 11.7.1, 13.12", kills=("data-in-long",))
def test_no_data_in_is_longer_than_our_max_recv_data_segment_length(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="512")
    done = read(session, scratch, 16)
    assert max(len(pdu.data) for pdu in done.data_ins) <= 512
    assert not session.validator.violations_of("data-length")


@pytest.mark.case("ISC-DATAIN-03", section="RFC 7143 4.2.2.4", kills=("data-sn",))
def test_data_sn_counts_from_zero_in_each_command(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="1024")
    for _ in range(2):
        done = read(session, scratch, 16)
        assert [pdu.data_sn for pdu in done.data_ins] == list(range(len(done.data_ins)))
    assert not session.validator.violations_of("data-sn")


@pytest.mark.case("ISC-DATAIN-04", section="RFC 7143 11.7.1, 13.13", kills=("data-in-burst",))
def test_a_sequence_of_data_in_is_no_longer_than_max_burst_length(connections, scratch):
    session = connections.prepared(scratch, MaxBurstLength="2048", FirstBurstLength="2048")
    read(session, scratch, 16)
    assert not session.validator.violations_of("data-burst")


@pytest.mark.case("ISC-DATAIN-05", section="RFC 7143 11.7.3", kills=("status-without-final",))
def test_status_comes_only_with_the_final_data_in_and_only_where_it_may(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="512")
    read(session, scratch, 8)
    assert not session.validator.violations_of("data-status")


@pytest.mark.case("ISC-DATAIN-06", section="RFC 7143 11.7.1", kills=("status-without-final",))
def test_the_last_data_in_has_the_final_bit(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="1024")
    done = read(session, scratch, 16)
    assert done.data_ins[-1].final


@pytest.mark.case("ISC-DATAIN-07", section="RFC 7143 11.4.8", kills=("exp-data-sn",))
def test_exp_data_sn_counts_the_data_in_pdus(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="512")
    for blocks in (1, 4, 8):
        read(session, scratch, blocks)
    session.command(cdb(READ_10, lba=0xFFFFFFFE, blocks=1), read=scratch.block_size)
    assert not session.validator.violations_of("exp-data-sn")


@pytest.mark.case("ISC-DATAIN-08", section="RFC 7143 11.4.5.2, 11.7.3", kills=("residual-underflow",))
def test_less_data_than_expected_is_an_underflow_with_its_count(session):
    """However many bytes come: whether the allocation length cuts them is not judged here (SCS-INQ-03)."""
    done = session.command(cdb(INQUIRY, allocation=36), read=4096)
    missing = 4096 - len(done.data)
    found = done.underflow, done.overflow, done.residual
    assert found == (True, False, missing), (
        f"{len(done.data)} bytes came of 4096: U, O and residual are {found}; the residual is {missing}"
    )


@pytest.mark.case("ISC-DATAIN-09", section="RFC 7143 11.4.5.2, 11.7.3", kills=("residual-overflow",))
def test_more_data_than_expected_is_an_overflow_with_its_count(connections, scratch):
    """A command that fails need not state a residual: with another status than GOOD, it may (11.4.5.1)."""
    session = connections.prepared(scratch)
    size = scratch.block_size
    done = read(session, scratch, 2, expected=size)
    assert len(done.data) <= size
    assert done.status == 2 or (done.overflow, done.underflow, done.residual) == (True, False, size)


@pytest.mark.case("ISC-DATAIN-10", section="RFC 7143 11.4.5", kills=("residual-overflow",))
def test_an_expected_length_of_part_of_a_block_is_an_overflow(connections, scratch, observe):
    session = connections.prepared(scratch)
    done = read(session, scratch, 1, expected=100)
    observe(f"status {done.status}, {len(done.data)} bytes, residual {done.residual}")
    assert len(done.data) <= 100
    assert (done.overflow, done.residual) == (True, scratch.block_size - 100) or done.status == 2


@pytest.mark.case("ISC-DATAIN-11", section="RFC 7143 11.4.5", kills=("residual-spurious",))
def test_a_command_that_moves_what_was_expected_has_no_residual(connections, scratch):
    session = connections.prepared(scratch)
    done = read(session, scratch, 4)
    assert (done.overflow, done.underflow, done.residual) == (False, False, 0)


@pytest.mark.case(
    "ISC-RESIDUAL-OTHER",
    section="RFC 7143 11.4.5.1",
    kills=("residual-kept",),
    builds_on=("ISC-DATAIN-08",),
)
def test_no_command_has_the_residual_of_another_one(session, facts):
    """A command that fails may state none. An underflow is of its own bytes, whatever came before."""
    commands = {
        "TEST UNIT READY": (cdb(TEST_UNIT_READY), 0),
        "READ(10) past the end": (cdb(READ_10, lba=0xFFFFFFFE, blocks=1), facts.capacity.block_size),
    }
    for what, (block, expected) in commands.items():
        before = session.command(cdb(INQUIRY, allocation=36), read=65536)
        done = session.command(block, read=expected)
        stated = done.residual if done.underflow else 0
        assert stated <= expected, (
            f"{what}, of {expected} expected bytes: status {done.status}, and a residual of {stated}; "
            f"the command before it has {before.residual}"
        )


@pytest.mark.case(
    "ISC-DATAIN-15",
    section="RFC 7143 11.4.5.1",
    kills=("overflow-allocation", "second-residual-zero"),
    builds_on=("ISC-DATAIN-08",),
)
def test_data_that_an_allocation_length_cuts_are_no_overflow(session):
    """The data of a command are those that its CDB asks for: of what is cut there nothing remains."""
    blocks = {
        cdb(INQUIRY, allocation=16): 16,
        cdb(INQUIRY, evpd=1, page=0x83, allocation=8): 8,
    }
    optional = {
        cdb(READ_CAPACITY_16, allocation=12): 12,
        cdb(MODE_SENSE_6, page=0x3F, allocation=4): 4,
    }
    blocks |= {
        block: length for block, length in optional.items() if session.command(block, read=length).status == 0
    }
    for block, length in blocks.items():
        for expected in (length, length + 100):
            done = session.command(block, read=expected)
            assert done.status == 0, f"status {done.status:#04x} of CDB {block.hex()}"
            found = (len(done.data), done.overflow, done.underflow, done.residual if done.underflow else 0)
            assert found == (length, False, expected > length, expected - length), (
                f"CDB {block.hex()}, of {expected}: {found[0]} bytes, O={found[1]}, U={found[2]}, "
                f"residual {done.residual}"
            )


@pytest.mark.case("ISC-DATAIN-12", section="RFC 7143 11.3.4, 11.4.5.2", kills=("data-in-beyond",))
def test_a_read_with_expected_length_zero_sends_no_data(connections, scratch):
    session = connections.prepared(scratch)
    command = ScsiCommand(read=True, expected_length=0, lun=session.lun,
                          cdb=cdb(READ_10, lba=scratch.lba, blocks=1).ljust(16, b"\0"))  # fmt: skip
    done = session.until_executed(lambda: session.finish(session.send(command)))
    assert done.data == b""
    assert done.status == 2 or (done.overflow, done.residual) == (True, scratch.block_size)


@pytest.mark.case("ISC-DATAIN-13", section="RFC 7143 11.7.4", kills=("data-in-ttt",))
def test_a_data_in_that_asks_for_no_acknowledgement_has_no_target_transfer_tag(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="1024")
    done = read(session, scratch, 8)
    tags = {pdu.ttt for pdu in done.data_ins if not pdu.acknowledge}
    assert tags <= {NO_TAG, 0}, f"{tags}: without A the field is reserved, and holds no tag"


@pytest.mark.case("ISC-DATAIN-14", section="RFC 7143 11.7.2", kills=("data-in-acknowledge",))
def test_no_acknowledgement_is_asked_for_at_error_recovery_level_zero(connections, scratch):
    session = connections.prepared(scratch, MaxRecvDataSegmentLength="1024", ErrorRecoveryLevel="0")
    assert not any(pdu.acknowledge for pdu in read(session, scratch, 8).data_ins)
