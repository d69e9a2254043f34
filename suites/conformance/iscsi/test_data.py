"""Data-In, R2T, Data-Out, immediate and unsolicited data, residuals (RFC 7143 11.4, 11.7, 11.8)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, RejectReason
from storagetest.wire.iscsi.initiator import Initiator, ProbeOutcome, ScsiCompletion
from storagetest.wire.iscsi.pdu import DataOut, NopIn, NopOut, ReadyToTransfer, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.cdb import INQUIRY, MODE_SENSE_6, READ_10, READ_CAPACITY_16, WRITE_10, cdb
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.7", level="MUST")]


def write_cdb(scratch, blocks: int) -> bytes:
    """Return a WRITE(10) of the first blocks of the scratch area."""
    return cdb(WRITE_10, lba=scratch.lba, blocks=blocks)


def read_back(session: Initiator, scratch, blocks: int) -> bytes:
    """Read the first blocks of the scratch area."""
    answer = LogicalUnit(session, block_size=scratch.block_size).read(scratch.lba, blocks)
    assert answer.good, answer
    return answer.data


def prepared(connections, scratch, blocks: int = 16, **offer: str) -> Initiator:
    """Log in with ``offer``, and write a first pattern (seed 0) to the scratch area."""
    session = connections.login(offer=offer)
    answer = LogicalUnit(session, block_size=scratch.block_size).write(scratch.lba, scratch.pattern(blocks))
    assert answer.good, answer
    return session


def first_r2t(session: Initiator, scratch, blocks: int) -> tuple[ScsiCommand, ReadyToTransfer]:
    """Start a write without data and return it with the target's first R2T."""
    command = session.start(write_cdb(scratch, blocks), write=blocks * scratch.block_size)
    return command, session.expect(ReadyToTransfer)


def not_written(session: Initiator, scratch, blocks: int = 16) -> None:
    """Claim that the scratch area still holds the first pattern."""
    assert read_back(session, scratch, blocks) == scratch.pattern(blocks), "the refused data were written"


def refused(after: ProbeOutcome, observe, *reasons: RejectReason) -> None:
    """Claim that a provocation was met: by a Reject, a response that is not GOOD, or a close."""
    observe(str(after))
    responses = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse)]
    failed = any(pdu.status or pdu.response for pdu in responses)
    assert after.closed or after.reject or failed, f"accepted: {after}"
    if after.reject and reasons:
        assert after.reject.reason in reasons, f"Reject with reason {after.reject.reason:#04x}"


def read(session: Initiator, scratch, blocks: int, *, expected: int | None = None) -> ScsiCompletion:
    """READ(10) of the scratch area's start, with an expected length of our own choice."""
    block = cdb(READ_10, lba=scratch.lba, blocks=blocks)
    return session.command(block, read=blocks * scratch.block_size if expected is None else expected)


# Data-In


@pytest.mark.case("ISC-DATAIN-01", section="RFC 7143 11.7.6, 13.18", kills=("data-in-order",))
def test_data_in_comes_in_order_and_is_what_was_written(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="1024")
    assert read_back(session, scratch, 16) == scratch.pattern(16)
    assert not session.validator.violations_of("data-order")


@pytest.mark.case("ISC-DATAIN-02", section="RFC 7143 11.7.1, 13.12", kills=("data-in-long",))
def test_no_data_in_is_longer_than_our_max_recv_data_segment_length(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="512")
    done = read(session, scratch, 16)
    assert max(len(pdu.data) for pdu in done.data_ins) <= 512
    assert not session.validator.violations_of("data-length")


@pytest.mark.case("ISC-DATAIN-03", section="RFC 7143 4.2.2.4", kills=("data-sn",))
def test_data_sn_counts_from_zero_in_each_command(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="1024")
    for _ in range(2):
        done = read(session, scratch, 16)
        assert [pdu.data_sn for pdu in done.data_ins] == list(range(len(done.data_ins)))
    assert not session.validator.violations_of("data-sn")


@pytest.mark.case("ISC-DATAIN-04", section="RFC 7143 11.7.1, 13.13", kills=("data-in-burst",))
def test_a_sequence_of_data_in_is_no_longer_than_max_burst_length(connections, scratch):
    session = prepared(connections, scratch, MaxBurstLength="2048", FirstBurstLength="2048")
    read(session, scratch, 16)
    assert not session.validator.violations_of("data-burst")


@pytest.mark.case("ISC-DATAIN-05", section="RFC 7143 11.7.3", kills=("status-without-final",))
def test_status_comes_only_with_the_final_data_in_and_only_where_it_may(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="512")
    read(session, scratch, 8)
    assert not session.validator.violations_of("data-status")


@pytest.mark.case("ISC-DATAIN-06", section="RFC 7143 11.7.1", kills=("status-without-final",))
def test_the_last_data_in_has_the_final_bit(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="1024")
    done = read(session, scratch, 16)
    assert done.data_ins[-1].final


@pytest.mark.case("ISC-DATAIN-07", section="RFC 7143 11.4.8", kills=("exp-data-sn",))
def test_exp_data_sn_counts_the_data_in_pdus(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="512")
    for blocks in (1, 4, 8):
        read(session, scratch, blocks)
    session.command(cdb(READ_10, lba=0xFFFFFFFE, blocks=1), read=scratch.block_size)
    assert not session.validator.violations_of("exp-data-sn")


@pytest.mark.case("ISC-DATAIN-08", section="RFC 7143 11.4.5, 11.7.3", kills=("residual-underflow",))
def test_less_data_than_expected_is_an_underflow_with_its_count(session):
    done = session.command(cdb(INQUIRY, allocation=36), read=4096)
    assert (len(done.data), done.underflow, done.overflow, done.residual) == (36, True, False, 4060)


@pytest.mark.case("ISC-DATAIN-09", section="RFC 7143 11.4.5, 11.7.3", kills=("residual-overflow",))
def test_more_data_than_expected_is_an_overflow_with_its_count(connections, scratch):
    session = prepared(connections, scratch)
    size = scratch.block_size
    done = read(session, scratch, 2, expected=size)
    assert len(done.data) <= size
    assert (done.overflow, done.underflow, done.residual) == (True, False, size)


@pytest.mark.case("ISC-DATAIN-10", section="RFC 7143 11.4.5", kills=("residual-overflow",))
def test_an_expected_length_of_part_of_a_block_is_an_overflow(connections, scratch, observe):
    session = prepared(connections, scratch)
    done = read(session, scratch, 1, expected=100)
    observe(f"status {done.status}, {len(done.data)} bytes, residual {done.residual}")
    assert len(done.data) <= 100
    assert (done.overflow, done.residual) == (True, scratch.block_size - 100) or done.status == 2


@pytest.mark.case("ISC-DATAIN-11", section="RFC 7143 11.4.5", kills=("residual-spurious",))
def test_a_command_that_moves_what_was_expected_has_no_residual(connections, scratch):
    session = prepared(connections, scratch)
    done = read(session, scratch, 4)
    assert (done.overflow, done.underflow, done.residual) == (False, False, 0)


@pytest.mark.case("ISC-DATAIN-15", section="RFC 7143 11.4.5.1", kills=("overflow-allocation",))
def test_data_that_an_allocation_length_cuts_are_no_overflow(session):
    """The data of a command are those that its CDB asks for: of what is cut there nothing remains."""
    blocks = {
        cdb(INQUIRY, allocation=16): 16,
        cdb(INQUIRY, evpd=1, page=0x83, allocation=8): 8,
        cdb(READ_CAPACITY_16, allocation=12): 12,
        cdb(MODE_SENSE_6, page=0x3F, allocation=4): 4,
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


@pytest.mark.case("ISC-DATAIN-12", section="RFC 7143 11.3.4, 11.4.5", kills=("data-in-beyond",))
def test_a_read_with_expected_length_zero_sends_no_data(connections, scratch):
    session = prepared(connections, scratch)
    command = session.send(
        ScsiCommand(read=True, expected_length=0, lun=session.lun,
                    cdb=cdb(READ_10, lba=scratch.lba, blocks=1).ljust(16, b"\0"))
    )  # fmt: skip
    done = session.finish(command)
    assert done.data == b""
    assert done.status == 2 or (done.overflow, done.residual) == (True, scratch.block_size)


@pytest.mark.case("ISC-DATAIN-13", section="RFC 7143 11.7.4", kills=("data-in-ttt",))
def test_a_data_in_that_asks_for_no_acknowledgement_has_no_target_transfer_tag(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="1024")
    done = read(session, scratch, 8)
    tags = {pdu.ttt for pdu in done.data_ins if not pdu.acknowledge}
    assert tags <= {NO_TAG, 0}, f"{tags}: without A the field is reserved, and holds no tag"


@pytest.mark.case("ISC-DATAIN-14", section="RFC 7143 11.7.2", kills=("data-in-acknowledge",))
def test_no_acknowledgement_is_asked_for_at_error_recovery_level_zero(connections, scratch):
    session = prepared(connections, scratch, MaxRecvDataSegmentLength="1024", ErrorRecoveryLevel="0")
    assert not any(pdu.acknowledge for pdu in read(session, scratch, 8).data_ins)


# R2T


@pytest.mark.case("ISC-R2T-01", section="RFC 7143 11.8.4, 13.13", kills=("r2t-over-burst", "r2t-beyond"))
def test_no_r2t_asks_for_more_than_max_burst_length(connections, scratch):
    session = prepared(
        connections, scratch, ImmediateData="No", MaxBurstLength="2048", FirstBurstLength="1024"
    )
    done = session.command(write_cdb(scratch, 32), data=scratch.pattern(32, seed=1))
    assert done.status == 0
    assert not session.validator.violations_of("r2t-length")
    assert read_back(session, scratch, 32) == scratch.pattern(32, seed=1)


@pytest.mark.case("ISC-R2T-02", section="RFC 7143 4.2.2.4, 11.8.2", kills=("r2t-sn",))
def test_r2t_sn_counts_from_zero_in_each_command(connections, scratch):
    session = prepared(
        connections, scratch, ImmediateData="No", MaxBurstLength="1024", FirstBurstLength="512"
    )
    for _ in range(2):
        done = session.command(write_cdb(scratch, 8), data=scratch.pattern(8))
        assert [pdu.r2t_sn for pdu in done.r2ts] == list(range(len(done.r2ts)))
    assert not session.validator.violations_of("r2t-sn")


@pytest.mark.case("ISC-R2T-03", section="RFC 7143 11.8, 13.19", kills=("r2t-order",))
def test_r2ts_ask_for_the_data_in_order_without_gap_or_overlap(connections, scratch):
    session = prepared(
        connections, scratch, ImmediateData="No", MaxBurstLength="1024", FirstBurstLength="512"
    )
    done = session.command(write_cdb(scratch, 16), data=scratch.pattern(16, seed=2))
    assert done.r2ts, "no R2T came, although neither immediate nor unsolicited data hold 16 blocks"
    asked = sum(pdu.desired_length for pdu in done.r2ts)
    first = min(pdu.buffer_offset for pdu in done.r2ts)
    assert first + asked == 16 * scratch.block_size, f"the R2Ts ask for {asked} bytes from {first}"
    assert not session.validator.violations_of("r2t-order")


@pytest.mark.case("ISC-R2T-04", section="RFC 7143 11.8, 13.17", kills=("r2t-outstanding",))
def test_no_more_r2ts_are_outstanding_than_max_outstanding_r2t(connections, scratch):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes",
                       MaxBurstLength="1024", FirstBurstLength="512", MaxOutstandingR2T="1")  # fmt: skip
    command, r2t = first_r2t(session, scratch, 16)
    after = session.probe_alive()
    assert not after.pdus, f"a second R2T while the first is outstanding: {after}"
    data = scratch.pattern(16)
    session.send_data(
        command, data, start=r2t.buffer_offset, end=r2t.buffer_offset + r2t.desired_length, ttt=r2t.ttt
    )
    assert session.finish(command, data).status == 0
    assert not session.validator.violations_of("r2t-outstanding")


@pytest.mark.case("ISC-R2T-05", section="RFC 7143 11.8.5", kills=("r2t-no-tag",))
def test_an_r2t_has_a_target_transfer_tag(connections, scratch):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    done = session.command(write_cdb(scratch, 4), data=scratch.pattern(4))
    assert done.r2ts
    assert NO_TAG not in {pdu.ttt for pdu in done.r2ts}


@pytest.mark.case("ISC-R2T-06", section="RFC 7143 11.3.4, 11.4.5", kills=("residual-write-underflow",))
def test_no_r2t_asks_for_data_beyond_the_expected_length(connections, scratch):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    size = scratch.block_size
    done = session.command(write_cdb(scratch, 8), data=scratch.pattern(4), expected=4 * size)
    assert all(pdu.buffer_offset + pdu.desired_length <= 4 * size for pdu in done.r2ts)
    assert done.status == 2 or (done.overflow, done.residual) == (True, 4 * size)


@pytest.mark.case("ISC-R2T-07", section="RFC 7143 11.3.4", kills=("r2t-unneeded",))
def test_a_write_that_is_all_immediate_needs_no_r2t(connections, scratch):
    session = prepared(connections, scratch)
    done = session.command(write_cdb(scratch, 2), data=scratch.pattern(2, seed=3))
    assert (done.status, done.r2ts) == (0, ())
    assert read_back(session, scratch, 2) == scratch.pattern(2, seed=3)


@pytest.mark.case("ISC-R2T-08", section="RFC 7143 11.3.4, 13.19", kills=("r2t-after-unsolicited",))
def test_r2ts_go_on_where_unsolicited_data_end(connections, scratch):
    for initial in ("Yes", "No"):
        session = prepared(
            connections, scratch, InitialR2T=initial, FirstBurstLength="4096", MaxBurstLength="16384"
        )
        for blocks in (4, 16, 48, 64):
            data = scratch.pattern(blocks, seed=88)
            done = session.command(write_cdb(scratch, blocks), data=data)
            assert done.status == 0
            assert read_back(session, scratch, blocks) == data
        broken = session.validator.violations_of("r2t-order", "r2t-length", "r2t-sn")
        assert not broken, "; ".join(broken)
        session.logout()


# Unsolicited and immediate data


@pytest.mark.parametrize(
    ("initial_r2t", "immediate"),
    [
        pytest.param("Yes", "Yes", marks=pytest.mark.case("ISC-UNSOL-01", kills=("r2t-sn",))),
        pytest.param("Yes", "No", marks=pytest.mark.case("ISC-UNSOL-02", kills=("r2t-sn",))),
        pytest.param("No", "Yes", marks=pytest.mark.case("ISC-UNSOL-03", kills=("r2t-sn",))),
        pytest.param("No", "No", marks=pytest.mark.case("ISC-UNSOL-04", kills=("r2t-sn",))),
    ],
)
@pytest.mark.case(section="RFC 7143 13.10, 13.11", level="MUST")
def test_data_are_taken_as_negotiated(connections, scratch, observe, initial_r2t, immediate):
    session = prepared(
        connections, scratch, InitialR2T=initial_r2t, ImmediateData=immediate, FirstBurstLength="4096"
    )
    observe(
        f"InitialR2T={session.negotiated['InitialR2T']} ImmediateData={session.negotiated['ImmediateData']}"
    )
    data = scratch.pattern(64, seed=4)
    done = session.command(write_cdb(scratch, 64), data=data)
    assert done.status == 0
    assert read_back(session, scratch, 64) == data
    assert not session.validator.violations, session.validator.violations_of()


# The initiator MUST NOT send so much (13.12); only 13.11 requires a refusal, and for other data.
@pytest.mark.case(
    "ISC-UNSOL-05", section="RFC 7143 13.12, 13.14", level="SHOULD", kills=("first-burst-ignored",)
)
def test_immediate_data_over_first_burst_length_are_refused_and_not_written(connections, scratch, observe):
    session = prepared(connections, scratch, FirstBurstLength="1024")
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    session.start(write_cdb(scratch, 16), data=scratch.pattern(16, seed=5))
    after = session.probe_alive()
    refused(after, observe)
    not_written(connections.login("b"), scratch)


@pytest.mark.case("ISC-UNSOL-06", section="RFC 7143 13.11", kills=("immediate-data-taken",))
def test_immediate_data_are_refused_where_immediate_data_is_no(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No")
    session.start(write_cdb(scratch, 4), data=scratch.pattern(4, seed=6))
    after = session.probe_alive()
    refused(after, observe)
    not_written(connections.login("b"), scratch, 4)


@pytest.mark.case("ISC-UNSOL-07", section="RFC 7143 13.11, 13.10", kills=("unsolicited-taken",))
def test_unsolicited_data_out_are_not_taken_where_initial_r2t_is_yes(connections, scratch, observe):
    session = prepared(connections, scratch, InitialR2T="Yes", ImmediateData="No")
    size = 4 * scratch.block_size
    command = session.start(write_cdb(scratch, 4), write=size, final=False)
    session.send_data(command, scratch.pattern(4, seed=7), start=0, end=size)
    after = session.probe_alive()
    observe(str(after))
    done = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse)]
    assert not any(pdu.status == 0 for pdu in done), f"taken: {after}"
    not_written(connections.login("b"), scratch, 4)


def stands(
    connections, scratch, blocks: int, data: bytes, after: ProbeOutcome, *, whole: bool = True
) -> None:
    """Claim what no answer to a wrong transfer may break, by a look at the data through another session.

    Each of the command's blocks is the old one or its own new one; after GOOD it is the new one, if the
    initiator has sent the ``whole`` data. The blocks behind them are the old ones.
    """
    size, old = scratch.block_size, scratch.pattern(16)
    good = any(isinstance(pdu, ScsiResponse) and not (pdu.status or pdu.response) for pdu in after.pdus)
    good = good and whole
    found = read_back(connections.login("z"), scratch, 16)
    for block in range(16):
        at = slice(block * size, (block + 1) * size)
        legal = (
            [data[at]] if good and block < blocks else [old[at], data[at]] if block < blocks else [old[at]]
        )
        assert found[at] in legal, (
            f"block {block} holds other data than its own; the command was for {blocks} blocks"
            f"{', and ended in GOOD' if good else ''}: {after}"
        )


@pytest.mark.case("ISC-UNSOL-08", section="RFC 7143 13.14, 11.7.6", kills=("first-burst-cut",))
def test_data_over_first_burst_length_are_not_lost_in_a_write_that_is_good(connections, scratch, observe):
    session = prepared(connections, scratch, FirstBurstLength="1024")
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    data = scratch.pattern(16, seed=5)
    session.start(write_cdb(scratch, 8), data=data[: 8 * scratch.block_size])
    after = session.probe_alive()
    observe(str(after))
    stands(connections, scratch, 8, data, after)


# Data-Out that is wrong


@pytest.mark.case(
    "ISC-DATAOUT-01",
    section="RFC 7143 11.7.4, 11.17.1",
    level="SHOULD",
    no_mutant_reason="LIO breaks this rule itself",
)
def test_data_out_with_an_unknown_target_transfer_tag_are_not_written(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    data = scratch.pattern(4, seed=8)
    session.send_data(command, data, start=0, end=len(data), ttt=(r2t.ttt + 0x1234) % 0xFFFFFFFF)
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"
    not_written(connections.login("b"), scratch, 4)


@pytest.mark.case("ISC-DATAOUT-02", section="RFC 7143 11.8, 7.7", kills=("offset-not-checked",))
def test_data_out_at_an_offset_that_was_not_asked_for_are_refused(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 8)
    size = scratch.block_size
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, buffer_offset=4 * size,
                         data=scratch.pattern(8, seed=9)[4 * size :]))  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"


@pytest.mark.case(
    "ISC-DATAOUT-03", section="RFC 7143 11.8, 11.4.7.2", level="SHOULD", kills=("overrun-taken",)
)
def test_data_out_beyond_what_the_r2t_asked_for_are_refused(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes",
                       MaxBurstLength="1024", FirstBurstLength="512")  # fmt: skip
    command, r2t = first_r2t(session, scratch, 8)
    data = scratch.pattern(8, seed=10)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data=data[: r2t.desired_length + 512]))
    after = session.probe_alive()
    observe(str(after))
    went_on = [pdu for pdu in after.pdus if isinstance(pdu, ReadyToTransfer)]
    assert not went_on, f"the overrun was taken, and the next data are asked for: {after}"
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"


@pytest.mark.case("ISC-DATAOUT-12", section="RFC 7143 11.7.6", kills=("offset-replaced",))
def test_data_out_of_whole_length_at_another_offset_are_not_stored_at_the_right_one(
    connections, scratch, observe
):
    """The first R2T gets the data of the second one, with their own offset; further R2Ts get their own."""
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes",
                       MaxBurstLength="2048", FirstBurstLength="2048")  # fmt: skip
    data = scratch.pattern(16, seed=9)
    command, r2t = first_r2t(session, scratch, 8)
    wrong = r2t.buffer_offset + r2t.desired_length
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, buffer_offset=wrong,
                         data=data[wrong : wrong + r2t.desired_length]))  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    for pdu in after.pdus:
        if isinstance(pdu, ReadyToTransfer) and session.logged_in:
            end = pdu.buffer_offset + pdu.desired_length
            session.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
            after = session.probe_alive()
    stands(connections, scratch, 8, data, after, whole=False)


@pytest.mark.case("ISC-DATAOUT-13", section="RFC 7143 11.7.6, 11.3.4", kills=("overrun-kept",))
def test_data_out_beyond_the_expected_length_change_no_other_block(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    size, data = scratch.block_size, scratch.pattern(16, seed=10)
    command, r2t = first_r2t(session, scratch, 4)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, final=False, data=data[: 3 * size]))
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=1, buffer_offset=3 * size,
                         data=data[3 * size : 6 * size]))  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    stands(connections, scratch, 4, data, after)


@pytest.mark.case(
    "ISC-DATAOUT-04", section="RFC 7143 11.7.1, 13.17", level="SHOULD", kills=("final-not-checked",)
)
def test_a_sequence_without_its_final_bit_does_not_end_the_command(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    data = scratch.pattern(4, seed=11)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, final=False, data=data))
    after = session.probe_alive()
    observe(str(after))
    good = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and not pdu.status]
    assert not good, f"the command ended: {after}"


@pytest.mark.case("ISC-DATAOUT-05", section="RFC 7143 7.9, 11.7.5", kills=("data-sn-not-checked",))
def test_data_out_with_a_data_sn_out_of_sequence_is_not_accepted_silently(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    data = scratch.pattern(4, seed=12)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=7, data=data))
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"


@pytest.mark.case(
    "ISC-DATAOUT-11", section="RFC 7143 11.2.4, 7.3", no_mutant_reason="LIO breaks this rule itself"
)
def test_the_data_of_a_refused_data_out_are_not_taken_for_pdus(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    hidden = session.assign_numbers(NopOut(immediate=True, itt=0x7777)).encode()
    data = hidden.ljust(4 * scratch.block_size, b"\0")
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=7, data=data))
    after = session.probe_alive()
    observe(str(after)[:200])
    answered = [pdu for pdu in after.pdus if isinstance(pdu, NopIn) and pdu.itt == 0x7777]
    assert not answered, f"a ping that stood in the data was answered: {after}"


@pytest.mark.case("ISC-DATAOUT-06", section="RFC 7143 11.7", kills=("data-out-unknown-task",))
def test_data_out_for_a_task_that_does_not_exist_do_no_harm(connections, scratch, observe):
    session = prepared(connections, scratch)
    session.send(DataOut(itt=0x4444, ttt=NO_TAG, data=scratch.pattern(1, seed=13)))
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) for pdu in after.pdus), str(after)
    not_written(connections.login("b"), scratch, 1)


@pytest.mark.case(
    "ISC-DATAOUT-07",
    section="RFC 7143 11.7.1, 7.10",
    level="SHOULD",
    no_mutant_reason="the mutants' target takes segments as long as a burst: it is skipped there",
)
def test_a_data_out_over_the_targets_max_recv_data_segment_length_is_refused(connections, scratch, observe):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    most = session.parameters.max_send
    if most >= session.parameters.max_burst:
        pytest.skip(f"MaxRecvDataSegmentLength {most} is not under MaxBurstLength: no larger length is legal")
    blocks = most // scratch.block_size + 2
    command, r2t = first_r2t(session, scratch, blocks)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data=bytes(most + scratch.block_size)))
    after = session.probe_alive()
    refused(after, observe)


@pytest.mark.case("ISC-DATAOUT-08", section="RFC 7143 11.4.5", kills=("residual-write-underflow",))
def test_a_write_of_less_than_expected_is_an_underflow_with_its_count(connections, scratch, observe):
    session = prepared(connections, scratch)
    size = scratch.block_size
    done = session.command(write_cdb(scratch, 1), data=scratch.pattern(2, seed=14), expected=2 * size)
    observe(f"status {done.status}, residual {done.residual}")
    assert done.status == 2 or (done.underflow, done.residual) == (True, size)


@pytest.mark.case("ISC-DATAOUT-09", section="RFC 7143 11.7.1", kills=("offset-not-checked",))
def test_small_data_out_pdus_make_one_write(connections, scratch):
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    data = scratch.pattern(8, seed=15)
    command, r2t = first_r2t(session, scratch, 8)
    for number, at in enumerate(range(0, len(data), 100)):
        piece = data[at : at + 100]
        session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=at,
                             final=at + 100 >= len(data), data=piece))  # fmt: skip
    assert session.finish(command, data).status == 0
    assert read_back(session, scratch, 8) == data


@pytest.mark.case("ISC-DATAOUT-10", section="RFC 7143 4.2.5.1", kills=("r2t-over-burst",))
def test_two_writes_whose_data_are_interleaved_are_both_right(connections, scratch, observe):
    """A target may ask for the data of one write after the other: then nothing is interleaved.

    No sentence of RFC 7143 requires that it serves two commands at once; 4.2.5.1 keeps their data apart.
    """
    session = prepared(connections, scratch, ImmediateData="No", InitialR2T="Yes")
    data, size = scratch.pattern(8, seed=16), scratch.block_size
    blocks = [cdb(WRITE_10, lba=scratch.lba + at, blocks=4) for at in (0, 4)]
    commands = [session.start(block, write=4 * size) for block in blocks]
    parts = {command.itt: data[at * 4 * size :][: 4 * size] for at, command in enumerate(commands)}
    asked: list[ReadyToTransfer] = []
    answers: dict[int, int] = {}
    together = 0
    while len(answers) < 2:
        pdus = [session.receive()]
        if isinstance(pdus[0], ReadyToTransfer) and len(asked) + len(answers) == 0:
            pdus += session.probe_alive().pdus  # the other write's R2T, if the target serves both
        for pdu in pdus:
            assert isinstance(pdu, (ReadyToTransfer, ScsiResponse)), (
                f"received {pdu}; due: R2T or SCSI Response"
            )
            if isinstance(pdu, ScsiResponse):
                answers[pdu.itt] = pdu.status
            else:
                asked.append(pdu)
        together = max(together, len(asked))
        send_interleaved(session, asked, parts)
        asked.clear()
    observe("both writes are served at once" if together == 2 else "one write is served after the other")
    assert list(answers.values()) == [0, 0], (
        f"status {answers}, by task tag; two writes within the unit are GOOD"
    )
    assert read_back(session, scratch, 8) == data


def send_interleaved(session: Initiator, asked: list[ReadyToTransfer], parts: dict[int, bytes]) -> None:
    """Send the data for each of ``asked`` in two Data-Out, those of several R2Ts in turn."""
    for half in (0, 1):
        for r2t in asked:
            middle = (r2t.desired_length + 1) // 2
            start = r2t.buffer_offset + (middle if half else 0)
            stop = r2t.buffer_offset + (r2t.desired_length if half else middle)
            session.send(DataOut(itt=r2t.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=half, buffer_offset=start,
                                 final=half == 1, data=parts[r2t.itt][start:stop]))  # fmt: skip
