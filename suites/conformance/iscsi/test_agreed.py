"""What a login agreed on, in use: limits that were not offered, data in any order, several R2Ts at once.

RFC 7143 6.1 and 13 (defaults, numbers), 11.8 and 13.17 (outstanding R2Ts), 13.18 and 13.19 (order of data).
"""

from __future__ import annotations

from itertools import chain

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import DataOut, ReadyToTransfer, ScsiResponse
from storagetest.wire.scsi.cdb import READ_16, WRITE_16, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 13", level="MUST")]

SEGMENT = 512
"""Bytes of a PDU's data: several PDUs make a burst (chosen)."""
BURST = 4 * SEGMENT
"""Bytes of a sequence of data: several of them make a command (chosen)."""
BLOCKS = 16
"""Blocks of a command (chosen)."""
NO_LIMITS = {"HeaderDigest": "None", "DataDigest": "None"}
"""The offer of a login without limits: those of section 13 are in force. A target may insist on digests."""
BURST_HEX = {"MaxBurstLength": hex(BURST), "FirstBurstLength": hex(SEGMENT)}
"""An offer of bursts, in hexadecimal (6.1)."""
DEFAULT_BURST = 262144
"""MaxBurstLength that was not offered (13.13)."""


def read(session: Initiator, scratch, blocks: int, data: bytes, *rules: str) -> None:
    """Read the first blocks; claim that they are ``data``, and that their Data-In keep to ``rules``."""
    done = session.command(cdb(READ_16, lba=scratch.lba, blocks=blocks), read=len(data))
    assert done.status == ScsiStatus.GOOD, f"a read of {blocks} blocks ended in status {done.status:#04x}"
    broken = session.validator.violations_of(*rules)
    assert not broken, f"{broken[0]}, with {session.negotiated}"
    assert done.is_whole, "the Data-In leave a gap, or have some bytes twice"
    assert done.data == data, f"a read of {blocks} blocks does not return what was written"


# Defaults and numbers


@pytest.mark.case(
    "ISC-DEFAULT-SEGMENT",
    section="RFC 7143 13.12, 13.13",
    kills=("segment-default-ignored",),
    builds_on=("ISC-DATAIN-02",),
)
def test_data_in_keep_to_limits_that_were_not_offered(connections, scratch, facts):
    """MaxRecvDataSegmentLength is 8192 then."""
    session = connections.login(base=NO_LIMITS)
    blocks = min(facts.largest, 64 * 1024 // scratch.block_size)
    data = scratch.pattern(blocks, seed=951)
    answer = LogicalUnit(session, block_size=scratch.block_size).write(scratch.lba, data)
    assert answer.good, answer
    read(session, scratch, blocks, data, "data-length", "data-burst")


@pytest.mark.case(
    "ISC-DEFAULT-BURST",
    section="RFC 7143 13.13, 13.10",
    kills=("burst-default-ignored",),
    builds_on=("ISC-R2T-01",),
)
def test_r2ts_keep_to_limits_that_were_not_offered(connections, scratch):
    """MaxBurstLength is 262144 then, and MaxOutstandingR2T is 1."""
    session = connections.login(base=NO_LIMITS)
    blocks = DEFAULT_BURST // scratch.block_size + BLOCKS
    data = scratch.pattern(blocks, seed=952)
    done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=blocks), data=data, immediate_length=0)
    assert done.status == ScsiStatus.GOOD, f"a write of {blocks} blocks ended in status {done.status:#04x}"
    broken = session.validator.violations_of("r2t-length", "r2t-outstanding", "r2t-order")
    assert not broken, broken[0]
    assert scratch.read_back(session, blocks) == data, "what was written is not read back"


@pytest.mark.case(
    "ISC-SEGMENT-HEX",
    section="RFC 7143 6.1, 13.12",
    kills=("segment-hexadecimal",),
    builds_on=("ISC-DATAIN-02",),
)
def test_data_in_keep_to_a_segment_length_that_is_hexadecimal(connections, scratch):
    session = connections.prepared(scratch, BLOCKS, MaxRecvDataSegmentLength="0x400")
    read(session, scratch, BLOCKS, scratch.pattern(BLOCKS), "data-length")


@pytest.mark.case(
    "ISC-BURST-HEX",
    section="RFC 7143 6.1, 13.13",
    kills=("burst-hexadecimal",),
    builds_on=("ISC-R2T-01",),
)
def test_r2ts_keep_to_a_burst_length_that_is_hexadecimal(connections, scratch):
    session = connections.prepared(scratch, BLOCKS, **BURST_HEX, ImmediateData="No")
    data = scratch.pattern(BLOCKS, seed=955)
    done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), data=data)
    assert done.status == ScsiStatus.GOOD, f"the write ended in status {done.status:#04x}"
    broken = session.validator.violations_of("r2t-length", "r2t-order")
    assert not broken, f"{broken[0]}, with {session.negotiated}"
    assert scratch.read_back(session, BLOCKS) == data, "what was written is not read back"


@pytest.mark.case(
    "ISC-BURST-HEX-READ",
    section="RFC 7143 6.1, 13.13",
    kills=("burst-hexadecimal",),
    builds_on=("ISC-DATAIN-04",),
)
def test_data_in_keep_to_a_burst_length_that_is_hexadecimal(connections, scratch):
    session = connections.prepared(scratch, BLOCKS, **BURST_HEX)
    read(session, scratch, BLOCKS, scratch.pattern(BLOCKS), "data-burst")


@pytest.mark.case(
    "ISC-FIRST-HEX",
    section="RFC 7143 6.1, 13.14",
    kills=("first-burst-hexadecimal",),
    builds_on=("ISC-UNSOL-03", "ISC-UNSOL-04"),
)
def test_unsolicited_data_of_a_length_that_is_hexadecimal_are_written(connections, scratch):
    """They end at FirstBurstLength, with and without immediate data. R2Ts ask for the rest."""
    for immediate in ("Yes", "No"):
        session = connections.prepared(
            scratch, BLOCKS, FirstBurstLength="0X400", InitialR2T="No", ImmediateData=immediate
        )
        if session.parameters.initial_r2t:
            pytest.skip("InitialR2T=Yes")
        data = scratch.pattern(BLOCKS, seed=956)
        done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), data=data)
        assert done.status == ScsiStatus.GOOD, f"the write ended in status {done.status:#04x}"
        broken = session.validator.violations_of("r2t-length", "r2t-order")
        assert not broken, f"{broken[0]}, with {session.negotiated}"
        found = scratch.read_back(session, BLOCKS)
        assert found == data, f"not what was written, with {session.negotiated}"


@pytest.mark.case(
    "ISC-OUTSTANDING-HEX",
    section="RFC 7143 6.1, 13.17",
    kills=("outstanding-hexadecimal",),
    builds_on=("ISC-R2T-04",),
)
def test_r2ts_keep_to_a_number_that_is_hexadecimal(connections, scratch):
    session = connections.prepared(
        scratch,
        BLOCKS,
        MaxOutstandingR2T="0x1",
        MaxBurstLength=str(SEGMENT),
        FirstBurstLength=str(SEGMENT),
        InitialR2T="Yes",
        ImmediateData="No",
    )
    data = scratch.pattern(BLOCKS, seed=957)
    command, first = session.start_write(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), len(data))
    more = [pdu for pdu in session.probe_alive().pdus if isinstance(pdu, ReadyToTransfer)]
    for r2t in (first, *more):
        start = r2t.buffer_offset
        session.send_data(command, data, start=start, end=start + r2t.desired_length, ttt=r2t.ttt)
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"the write ended in status {done.status:#04x}"
    assert not more, f"{1 + len(more)} R2Ts are outstanding, with {session.negotiated}"


# Order (13.18, 13.19)


def orders(*kills: str, builds_on: str, claim: str) -> pytest.MarkDecorator:
    """Return the parameters of a claim: the offers of DataPDUInOrder and DataSequenceInOrder."""
    return pytest.mark.parametrize(
        ("pdus", "sequences"),
        [
            pytest.param(
                pdus,
                sequences,
                marks=pytest.mark.case(f"ISC-ORDER-{claim}-{name}", kills=kills, builds_on=(builds_on,)),
            )
            for name, pdus, sequences in (
                ("PDUS", "No", "Yes"),
                ("SEQUENCES", "Yes", "No"),
                ("NEITHER", "No", "No"),
            )
        ],
    )


def in_any_order(connections, scratch, pdus: str, sequences: str, **more: str) -> Initiator:
    """Log in with an offer of any order, and write a first pattern; skip if the target keeps to order."""
    offer = {"DataPDUInOrder": pdus, "DataSequenceInOrder": sequences, "MaxBurstLength": str(BURST)}
    offer |= {"FirstBurstLength": str(BURST), "InitialR2T": "Yes", "ImmediateData": "No"}
    session = connections.prepared(scratch, BLOCKS, **offer, **more)
    agreed = session.parameters
    if agreed.data_pdu_in_order and agreed.data_sequence_in_order:
        pytest.skip("DataPDUInOrder=Yes and DataSequenceInOrder=Yes: the target keeps to order")
    return session


@pytest.mark.case(section="RFC 7143 13.18, 13.19, 11.7.6")
@orders("data-in-offset-counted", claim="READ", builds_on="ISC-DATAIN-01")
def test_data_in_that_come_in_any_order_are_the_whole_data(connections, scratch, pdus, sequences):
    session = in_any_order(connections, scratch, pdus, sequences, MaxRecvDataSegmentLength=str(SEGMENT))
    read(session, scratch, BLOCKS, scratch.pattern(BLOCKS), "data-order", "data-burst", "data-sn")


def send_last_first(session: Initiator, r2t: ReadyToTransfer, data: bytes) -> None:
    """Answer an R2T; if the order of PDUs is free, the last part of the data goes first (13.18)."""
    end = r2t.buffer_offset + r2t.desired_length
    size = min(SEGMENT, session.parameters.max_send)
    starts = list(range(r2t.buffer_offset, end, size))
    if not session.parameters.data_pdu_in_order:
        starts.reverse()
    for number, at in enumerate(starts):
        session.send(DataOut(itt=r2t.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=at,
                             final=at == starts[-1], data=data[at : min(at + size, end)]))  # fmt: skip


def write_last_first(session: Initiator, block: bytes, data: bytes) -> int:
    """Run a write, send the data of each R2T by :func:`send_last_first`, and return the status."""
    _, first = session.start_write(block, len(data))
    for pdu in chain((first,), session.responses("the end of a write", times=4)):
        if isinstance(pdu, ScsiResponse):
            return pdu.status
        assert isinstance(pdu, ReadyToTransfer), f"a write is met with {pdu}"
        send_last_first(session, pdu, data)
    raise AssertionError  # responses() does not end


@pytest.mark.case(section="RFC 7143 13.18, 13.19, 11.7.6")
@orders("data-out-offset-counted", claim="WRITE", builds_on="ISC-DATAOUT-09")
def test_data_out_that_come_in_any_order_are_written_at_their_offsets(connections, scratch, pdus, sequences):
    session = in_any_order(connections, scratch, pdus, sequences)
    data = scratch.pattern(BLOCKS, seed=953)
    status = write_last_first(session, cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), data)
    assert status == ScsiStatus.GOOD, f"the write ended in status {status:#04x}"
    broken = session.validator.violations_of("r2t-order", "r2t-length", "r2t-sn")
    assert not broken, f"{broken[0]}, with {session.negotiated}"
    assert scratch.read_back(session, BLOCKS) == data, "not what was written: Data-Out have offsets (11.7.6)"


# R2Ts (13.17)


@pytest.mark.case(
    "ISC-R2T-SEVERAL",
    section="RFC 7143 11.8, 13.17",
    kills=("r2t-second-misplaced",),
    builds_on=("ISC-R2T-04",),
)
def test_r2ts_that_are_outstanding_together_each_get_their_data(connections, scratch, observe):
    """They are answered in the order in which they came (11.8)."""
    session = connections.prepared(
        scratch,
        BLOCKS,
        MaxOutstandingR2T="3",
        MaxBurstLength=str(BURST),
        FirstBurstLength=str(BURST),
        InitialR2T="Yes",
        ImmediateData="No",
    )
    if session.parameters.max_outstanding_r2t < 2:
        pytest.skip("MaxOutstandingR2T=1")
    data = scratch.pattern(BLOCKS, seed=954)
    command, first = session.start_write(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), len(data))
    more = session.probe_alive().pdus
    assert all(isinstance(pdu, ReadyToTransfer) for pdu in more), f"a write is met with {more}"
    observe(f"{1 + len(more)} R2Ts are outstanding")
    for r2t in (first, *more):
        start = r2t.buffer_offset
        session.send_data(command, data, start=start, end=start + r2t.desired_length, ttt=r2t.ttt)
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"the write ended in status {done.status:#04x}"
    broken = session.validator.violations_of("r2t-outstanding", "r2t-order", "r2t-length", "r2t-sn")
    assert not broken, broken[0]
    assert scratch.read_back(session, BLOCKS) == data, "what was written is not read back"
