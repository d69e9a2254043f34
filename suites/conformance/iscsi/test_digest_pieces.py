"""PDUs with digests that come in two pieces: their data are stored once (RFC 7143 11.2.3)."""

from __future__ import annotations

import time

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import DataOut, ReadyToTransfer, ScsiResponse
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_digest import with_digests

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="RFC 7143 11.2.3")]

PAUSE = 0.01
"""Seconds between the two pieces of a PDU (chosen: a target that reads at once reads the first one alone)."""
TURNS = 3
"""Writes of each length, since a target may read both pieces at once (chosen)."""
HEADER = 48
"""Bytes of a header without additional segments (11.2)."""

CUTS = {"DIGEST": -4, "WITHIN": -2, "DATA": HEADER + 4, "HEADER": HEADER + 2}
"""Where a PDU is cut: before its data digest, within it, before its data, within its header digest."""


def send_cut(session: Initiator, pdu: DataOut, cut: int) -> None:
    """Send a PDU with both digests in two pieces."""
    pdu = session.assign_numbers(pdu)
    session.validator.sent(pdu)
    wire = pdu.parts().wire(header_digest=True, data_digest=True)
    session.link.send(wire[:cut], deadline=session.deadline)
    time.sleep(PAUSE)
    session.link.send(wire[cut:], deadline=session.deadline)


def write_cut(session: Initiator, lba: int, data: bytes, blocks: int, cut: int) -> ScsiResponse:
    """Write blocks; each Data-Out has as many bytes as the target takes, and comes in two pieces."""
    command, asked = session.start_write(cdb(WRITE_10, lba=lba, blocks=blocks), len(data))
    while True:
        start, end, number = asked.buffer_offset, asked.buffer_offset + asked.desired_length, 0
        while start < end:
            stop = min(end, start + session.parameters.max_send)
            part = DataOut(
                itt=command.itt, ttt=asked.ttt, lun=command.lun, final=stop == end, data_sn=number,
                buffer_offset=start, data=data[start:stop],
            )  # fmt: skip
            send_cut(session, part, cut)
            start, number = stop, number + 1
        pdu = session.receive(expected="the end of a write")
        if isinstance(pdu, ReadyToTransfer):
            asked = pdu
            continue
        assert isinstance(pdu, ScsiResponse), f"a write has {pdu.summary() if pdu else 'a close'}"
        return pdu


@pytest.mark.parametrize("name", [
    pytest.param(name, id=name.lower(), marks=pytest.mark.case(f"ISC-DIGEST-CUT-{name}")) for name in CUTS
])  # fmt: skip
@pytest.mark.case(kills=("long-data-out-lost",), builds_on=("ISC-DIGEST-03",))
def test_data_out_in_two_pieces_are_stored_once(connections, scratch, name):
    """Of one block, of as much as the target takes, and of a block more: GOOD, and the data are there."""
    session = with_digests(connections, header="yes", data="yes", ImmediateData="No", InitialR2T="Yes")
    unit, size = LogicalUnit(session, block_size=scratch.block_size), scratch.block_size
    whole = max(1, session.parameters.max_send // size)
    for blocks in sorted({1, min(whole, scratch.most), min(whole + 1, scratch.most)}):
        for turn in range(TURNS):
            data = scratch.pattern(blocks, seed=1800 + turn)
            ended = write_cut(session, scratch.lba, data, blocks, CUTS[name])
            where = f"write {turn + 1} of {blocks} blocks, cut at {name}"
            assert not ended.status, f"{where}: status {ended.status:#04x}"
            assert unit.read(scratch.lba, blocks).good_data() == data, f"{where}: other data are read"
    session.ping(b"whole")
