"""R2T, Data-Out, immediate and unsolicited data, residuals (RFC 7143 11.4, 11.7, 11.8)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.windows import skip_if_busy, with_room
from storagetest.wire.iscsi.codes import NO_TAG, RejectReason
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.outcomes import ProbeOutcome
from storagetest.wire.iscsi.pdu import DataOut, NopIn, NopOut, ReadyToTransfer, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.cdb import WRITE_10, cdb

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.7", level="MUST")]


def write_cdb(scratch, blocks: int) -> bytes:
    """Return a WRITE(10) of the first blocks of the scratch area."""
    return cdb(WRITE_10, lba=scratch.lba, blocks=blocks)


def first_r2t(session: Initiator, scratch, blocks: int) -> tuple[ScsiCommand, ReadyToTransfer]:
    """Start a write without data and return it with the target's first R2T."""
    return session.start_write(write_cdb(scratch, blocks), blocks * scratch.block_size)


def not_written(session: Initiator, scratch, blocks: int = 16) -> None:
    """Claim that the scratch area still holds the first pattern."""
    assert scratch.read_back(session, blocks) == scratch.pattern(blocks), "the refused data were written"


def after_close(connections, session: Initiator) -> Initiator:
    """Close the session, whose write may still wait for data, and return that of another initiator.

    A unit may execute the commands of all initiators one after the other.
    """
    session.logged_in = False
    session.link.close()
    return connections.login("b")


def refused(after: ProbeOutcome, observe, *reasons: RejectReason) -> None:
    """Claim that a provocation was met: by a Reject, a response that is not GOOD, or a close."""
    observe(str(after))
    responses = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse)]
    failed = any(pdu.status or pdu.response for pdu in responses)
    assert after.closed or after.reject or failed, f"accepted: {after}"
    if after.reject and reasons:
        assert after.reject.reason in reasons, f"Reject with reason {after.reject.reason:#04x}"


# R2T


@pytest.mark.case("ISC-R2T-01", section="RFC 7143 11.8.4, 13.13", kills=("r2t-over-burst", "r2t-beyond"))
def test_no_r2t_asks_for_more_than_max_burst_length(connections, scratch):
    session = connections.prepared(
        scratch, ImmediateData="No", MaxBurstLength="2048", FirstBurstLength="1024"
    )
    done = session.command(write_cdb(scratch, 32), data=scratch.pattern(32, seed=1))
    assert done.status == 0
    assert not session.validator.violations_of("r2t-length")
    assert scratch.read_back(session, 32) == scratch.pattern(32, seed=1)


@pytest.mark.case("ISC-R2T-02", section="RFC 7143 4.2.2.4, 11.8.2", kills=("r2t-sn", "r2t-other-lun"))
def test_r2t_sn_counts_from_zero_in_each_command(connections, scratch):
    session = connections.prepared(scratch, ImmediateData="No", MaxBurstLength="1024", FirstBurstLength="512")
    for _ in range(2):
        done = session.command(write_cdb(scratch, 8), data=scratch.pattern(8))
        assert [pdu.r2t_sn for pdu in done.r2ts] == list(range(len(done.r2ts)))
    assert not session.validator.violations_of("r2t-sn")


@pytest.mark.case("ISC-R2T-03", section="RFC 7143 11.8, 13.19", kills=("r2t-order",))
def test_r2ts_ask_for_the_data_in_order_without_gap_or_overlap(connections, scratch):
    session = connections.prepared(scratch, ImmediateData="No", MaxBurstLength="1024", FirstBurstLength="512")
    done = session.command(write_cdb(scratch, 16), data=scratch.pattern(16, seed=2))
    assert done.r2ts, "no R2T came, although neither immediate nor unsolicited data hold 16 blocks"
    asked = sum(pdu.desired_length for pdu in done.r2ts)
    first = min(pdu.buffer_offset for pdu in done.r2ts)
    assert first + asked == 16 * scratch.block_size, f"the R2Ts ask for {asked} bytes from {first}"
    assert not session.validator.violations_of("r2t-order")


@pytest.mark.case("ISC-R2T-04", section="RFC 7143 11.8, 13.17", kills=("r2t-outstanding",))
def test_no_more_r2ts_are_outstanding_than_max_outstanding_r2t(connections, scratch):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes",
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    done = session.command(write_cdb(scratch, 4), data=scratch.pattern(4))
    assert done.r2ts
    assert NO_TAG not in {pdu.ttt for pdu in done.r2ts}


@pytest.mark.case("ISC-R2T-06", section="RFC 7143 11.3.4, 11.4.5", kills=("residual-write-underflow",))
def test_no_r2t_asks_for_data_beyond_the_expected_length(connections, scratch):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    size = scratch.block_size
    done = session.command(write_cdb(scratch, 8), data=scratch.pattern(4), expected=4 * size)
    assert all(pdu.buffer_offset + pdu.desired_length <= 4 * size for pdu in done.r2ts)
    assert done.status == 2 or (done.overflow, done.residual) == (True, 4 * size)


@pytest.mark.case("ISC-R2T-07", section="RFC 7143 11.3.4", kills=("r2t-unneeded",))
def test_a_write_that_is_all_immediate_needs_no_r2t(connections, scratch):
    session = connections.prepared(scratch)
    taken = session.parameters
    blocks = min(2, taken.max_send // scratch.block_size, taken.first_burst // scratch.block_size)
    if not taken.immediate_data or not blocks:
        pytest.skip(f"no block is immediate: {taken.immediate_data}, PDUs of {taken.max_send} bytes")
    done = session.command(write_cdb(scratch, blocks), data=scratch.pattern(blocks, seed=3))
    assert (done.status, done.r2ts) == (0, ())
    assert scratch.read_back(session, blocks) == scratch.pattern(blocks, seed=3)


@pytest.mark.case("ISC-R2T-08", section="RFC 7143 11.3.4, 13.19", kills=("r2t-after-unsolicited",))
def test_r2ts_go_on_where_unsolicited_data_end(connections, scratch, facts):
    for initial in ("Yes", "No"):
        session = connections.prepared(
            scratch, InitialR2T=initial, FirstBurstLength="4096", MaxBurstLength="16384"
        )
        for blocks in (count for count in (4, 16, 48, 64) if count <= facts.largest):
            data = scratch.pattern(blocks, seed=88)
            done = session.command(write_cdb(scratch, blocks), data=data)
            assert done.status == 0
            assert scratch.read_back(session, blocks) == data
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
    session = connections.prepared(
        scratch, InitialR2T=initial_r2t, ImmediateData=immediate, FirstBurstLength="4096"
    )
    observe(
        f"InitialR2T={session.negotiated['InitialR2T']} ImmediateData={session.negotiated['ImmediateData']}"
    )
    data = scratch.pattern(64, seed=4)
    done = session.command(write_cdb(scratch, 64), data=data)
    assert done.status == 0
    assert scratch.read_back(session, 64) == data
    broken = session.validator.violations_of("r2t-length", "r2t-order", "r2t-outstanding", "r2t-sn")
    assert not broken, f"{len(broken)} violations: {'; '.join(broken[:3])}"


# The initiator MUST NOT send so much (13.12); only 13.11 requires a refusal, and for other data.
@pytest.mark.case(
    "ISC-UNSOL-05", section="RFC 7143 13.12, 13.14", level="SHOULD", kills=("first-burst-ignored",)
)
def test_immediate_data_over_first_burst_length_are_refused_and_not_written(connections, scratch, observe):
    session = connections.prepared(scratch, FirstBurstLength="1024")
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    session.start(write_cdb(scratch, 16), data=scratch.pattern(16, seed=5))
    after = session.probe_alive()
    refused(after, observe)
    not_written(connections.login("b"), scratch)


@pytest.mark.case("ISC-UNSOL-06", section="RFC 7143 13.11", kills=("immediate-data-taken",))
def test_immediate_data_are_refused_where_immediate_data_is_no(connections, scratch, observe):
    session = connections.prepared(scratch, ImmediateData="No")
    session.start(write_cdb(scratch, 4), data=scratch.pattern(4, seed=6))
    after = session.probe_alive()
    refused(after, observe)
    not_written(connections.login("b"), scratch, 4)


@pytest.mark.case("ISC-UNSOL-07", section="RFC 7143 13.11, 13.10", kills=("unsolicited-taken",))
def test_unsolicited_data_out_are_not_taken_where_initial_r2t_is_yes(connections, scratch, observe):
    session = connections.prepared(scratch, InitialR2T="Yes", ImmediateData="No")
    size = 4 * scratch.block_size
    command = session.start(write_cdb(scratch, 4), write=size, final=False)
    session.send_data(command, scratch.pattern(4, seed=7), start=0, end=size)
    after = session.probe_alive()
    observe(str(after))
    done = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse)]
    assert not any(pdu.status == 0 for pdu in done), f"taken: {after}"
    not_written(after_close(connections, session), scratch, 4)


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
    found = scratch.read_back(connections.login("z"), 16)
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
    session = connections.prepared(scratch, FirstBurstLength="1024")
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    data = scratch.pattern(4, seed=8)
    session.send_data(command, data, start=0, end=len(data), ttt=(r2t.ttt + 0x1234) % 0xFFFFFFFF)
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"
    not_written(after_close(connections, session), scratch, 4)


@pytest.mark.case("ISC-DATAOUT-02", section="RFC 7143 11.8, 7.7", kills=("offset-not-checked",))
def test_data_out_at_an_offset_that_was_not_asked_for_are_refused(connections, scratch, observe):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes",
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes",
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


@pytest.mark.case(
    "ISC-DATAOUT-04", section="RFC 7143 11.7.1, 13.17", level="SHOULD", kills=("final-not-checked",)
)
def test_a_sequence_without_its_final_bit_does_not_end_the_command(connections, scratch, observe):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    data = scratch.pattern(4, seed=11)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, final=False, data=data))
    after = session.probe_alive()
    observe(str(after))
    good = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and not pdu.status]
    assert not good, f"the command ended: {after}"


@pytest.mark.case("ISC-DATAOUT-05", section="RFC 7143 7.9, 11.7.5", kills=("data-sn-not-checked",))
def test_data_out_with_a_data_sn_out_of_sequence_is_not_accepted_silently(connections, scratch, observe):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    command, r2t = first_r2t(session, scratch, 4)
    hidden = session.assign_numbers(NopOut(immediate=True, itt=0x7777)).encode()
    data = hidden.ljust(4 * scratch.block_size, b"\0")
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=7, data=data))
    after = session.probe_alive(reject_decides=True)
    observe(str(after)[:200])
    answered = [pdu for pdu in after.pdus if isinstance(pdu, NopIn) and pdu.itt == 0x7777]
    assert not answered, f"a ping that stood in the data was answered: {after}"


@pytest.mark.case("ISC-DATAOUT-06", section="RFC 7143 11.7", kills=("data-out-unknown-task",))
def test_data_out_for_a_task_that_does_not_exist_do_no_harm(connections, scratch, observe):
    session = connections.prepared(scratch)
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
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
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
    session = connections.prepared(scratch)
    size = scratch.block_size
    done = session.command(write_cdb(scratch, 1), data=scratch.pattern(2, seed=14), expected=2 * size)
    observe(f"status {done.status}, residual {done.residual}")
    assert done.status == 2 or (done.underflow, done.residual) == (True, size)


@pytest.mark.case("ISC-DATAOUT-09", section="RFC 7143 11.7.1", kills=("offset-not-checked",))
def test_small_data_out_pdus_make_one_write(connections, scratch):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    data = scratch.pattern(8, seed=15)
    command, r2t = first_r2t(session, scratch, 8)
    end = r2t.desired_length
    for number, at in enumerate(range(0, end, 100)):
        piece = data[at : min(at + 100, end)]
        session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=at,
                             final=at + 100 >= end, data=piece))  # fmt: skip
    assert session.finish(command, data).status == 0
    assert scratch.read_back(session, 8) == data


@pytest.mark.case("ISC-DATAOUT-10", section="RFC 7143 4.2.5.1", kills=("r2t-over-burst",))
def test_two_writes_whose_data_are_interleaved_are_both_right(connections, scratch, observe):
    """A target may ask for the data of one write after the other: then nothing is interleaved.

    No sentence of RFC 7143 requires that it serves two commands at once; 4.2.5.1 keeps their data apart.
    """
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    with_room(session, 2)
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
            if isinstance(pdu, NopIn):
                continue  # the response to the ping, from a target that serves nothing during a write
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
    skip_if_busy(*answers.values())
    assert list(answers.values()) == [0, 0], (
        f"status {answers}, by task tag; two writes within the unit are GOOD"
    )
    assert scratch.read_back(connections.login("b"), 8) == data


def send_interleaved(session: Initiator, asked: list[ReadyToTransfer], parts: dict[int, bytes]) -> None:
    """Send the data for each of ``asked`` in two Data-Out or more, those of several R2Ts in turn."""
    most = min([session.parameters.max_send, *((r2t.desired_length + 1) // 2 for r2t in asked)])
    longest = max((r2t.desired_length for r2t in asked), default=0)
    for number, at in enumerate(range(0, longest, most)):
        for r2t in (one for one in asked if at < one.desired_length):
            start, size = r2t.buffer_offset + at, min(most, r2t.desired_length - at)
            session.send(DataOut(itt=r2t.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=start,
                                 final=at + size == r2t.desired_length,
                                 data=parts[r2t.itt][start : start + size]))  # fmt: skip
