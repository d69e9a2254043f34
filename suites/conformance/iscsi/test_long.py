"""Sessions of many commands of all kinds and sizes break no rule of RFC 7143 (4.2.2, 11.4, 11.7).

Each case compares what it reads with a model of the blocks. At its end it asserts that the validator has
found no violation: numbers, tags, lengths, flags, residuals.
"""

from __future__ import annotations

import random

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import has_twelve_byte_commands
from storagetest.suites.conformance.iscsi.windows import with_room
from storagetest.wire.iscsi.initiator import NOT_EXECUTED, Initiator
from storagetest.wire.iscsi.pdu import DataIn, NopIn, ReadyToTransfer, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 4.2.2, 11.4, 11.7", level="MUST", builds_on=("ISC-NOP-01",)),
]

TURNS = 60
"""Operations of a case (chosen: a few seconds on a slow target)."""


class Use:
    """One session, and what the blocks that it wrote must hold."""

    def __init__(self, session: Initiator, scratch, largest: int) -> None:
        self.session, self.scratch, self.largest = session, scratch, min(largest, 512)
        self.unit = LogicalUnit(session, block_size=scratch.block_size)
        self.random = random.Random(7143)  # noqa: S311  # the same operations each time
        self.twelve = has_twelve_byte_commands(self.unit, scratch.lba)
        size = scratch.block_size * self.largest
        self.model = bytearray(size)
        answer = self.unit.write(scratch.lba, bytes(size))
        assert answer.good, answer

    def turn(self, number: int) -> None:
        """Do one operation: a write, reads, or a command without blocks."""
        size, choose = self.scratch.block_size, self.random
        blocks = min(choose.choice((1, 2, 5, 8, 31, 64, 130, 257, 512)), self.largest)
        at = choose.randrange(self.largest - blocks + 1)
        lba, place = self.scratch.lba + at, slice(at * size, (at + blocks) * size)
        kind = number % 4
        if kind == 0:
            data = self.scratch.pattern(blocks, seed=1000 + number)
            command = choose.choice((c.WRITE_10, c.WRITE_12 if self.twelve else c.WRITE_10, c.WRITE_16))
            answer = self.unit.write(lba, data, command=command)
            assert answer.good, answer
            self.model[place] = data
        elif kind == 3:
            self.others(number)
        else:
            command = choose.choice((c.READ_10, c.READ_12 if self.twelve else c.READ_10, c.READ_16))
            answer = self.unit.read(lba, blocks, command=command)
            assert answer.good, answer
            assert answer.data == self.model[place], f"operation {number}, {answer}: not what was written"

    def others(self, number: int) -> None:
        """Commands that transfer no blocks, and a ping."""
        data = bytes((number + at) % 256 for at in range(number % 61))
        echoed = self.session.ping(data, immediate=number % 8 == 3).data
        assert echoed == data, f"operation {number}: a ping of {data.hex()} returned {echoed.hex()}"
        done = self.session.command(c.cdb(c.INQUIRY, allocation=36), read=36 + number)
        assert (done.status, done.response, len(done.data), done.residual) == (0, 0, 36, number), (
            f"operation {number}: an INQUIRY of 36 bytes, with {36 + number} expected, has status "
            f"{done.status:#04x}, response {done.response}, {len(done.data)} bytes and a residual of "
            f"{done.residual}, not {number}"
        )
        assert self.unit.test_unit_ready().good


def sound(session: Initiator) -> None:
    """Assert that the target broke no rule, without those that are judged elsewhere, each by itself."""
    broken = session.validator.violations_but("data-burst", "reserved-lun")
    assert not broken, f"{len(broken)} violations: {'; '.join(broken[:5])}"
    responses = [frame.pdu.response for frame in session.frames if isinstance(frame.pdu, ScsiResponse)]
    assert not any(responses), "a completed command has another response than 00h (RFC 7143 11.4.3)"


OFFERS = {
    "defaults": {},
    "digests": {"HeaderDigest": "CRC32C,None", "DataDigest": "CRC32C,None"},
    "r2t-only": {
        "ImmediateData": "No",
        "InitialR2T": "Yes",
        "MaxBurstLength": "16384",
        "FirstBurstLength": "8192",
    },
    "unsolicited": {"InitialR2T": "No", "FirstBurstLength": "12288", "MaxBurstLength": "65536"},
    "small-segments": {"MaxRecvDataSegmentLength": "1024", "MaxOutstandingR2T": "4"},
}


@pytest.mark.parametrize(
    "offer",
    [
        pytest.param(OFFERS["defaults"], id="defaults",
                     marks=pytest.mark.case(
                         "ISC-LONG-01", kills=("data-sn", "read-twentieth-corrupt", "stat-sn-after-64"))),
        pytest.param(OFFERS["digests"], id="digests",
                     marks=pytest.mark.case("ISC-LONG-02", kills=("header-digest-twelfth",))),
        pytest.param(OFFERS["r2t-only"], id="r2t-only",
                     marks=pytest.mark.case("ISC-LONG-03", kills=("r2t-sn", "r2t-offset-16-bits"))),
        pytest.param(OFFERS["unsolicited"], id="unsolicited",
                     marks=pytest.mark.case("ISC-LONG-04", kills=("r2t-after-unsolicited",))),
        pytest.param(OFFERS["small-segments"], id="small-segments",
                     marks=pytest.mark.case(
                         "ISC-LONG-05",
                         kills=("data-in-order", "data-in-late-flipped", "data-in-offset-16-bits"))),
    ],
)  # fmt: skip
@pytest.mark.case(builds_on=("ISC-NOP-01", "ISC-DATAIN-08"))
def test_many_operations_are_right_and_break_no_rule(connections, scratch, facts, offer):
    session = connections.login(offer=offer)
    use = Use(session, scratch, facts.largest)
    for number in range(TURNS):
        use.turn(number)
    sound(session)


@pytest.mark.case(
    "ISC-LONG-LARGEST",
    section="RFC 7143 11.7.6, 11.8.4",
    kills=("data-in-offset-18-bits", "r2t-offset-18-bits"),
    builds_on=("ISC-LONG-01",),
)
def test_the_largest_transfer_has_every_byte_in_its_place(connections, scratch, facts):
    """As many blocks as one command may transfer, of those that are overwritten: more than MaxBurstLength."""
    data = scratch.pattern(facts.largest, seed=68)
    session = connections.login(offer={"InitialR2T": "Yes", "ImmediateData": "No"})
    unit = LogicalUnit(session, block_size=scratch.block_size)
    answer = unit.write(scratch.lba, data)
    assert answer.good, answer
    parts = max(1, facts.largest // 64)  # small reads, whose offsets are small
    found = b"".join(
        unit.read(scratch.lba + at, min(parts, facts.largest - at)).data
        for at in range(0, facts.largest, parts)
    )
    assert found == data, f"a write of {facts.largest} blocks has stored other data"
    answer = unit.read(scratch.lba, facts.largest)
    assert answer.good, answer
    assert answer.data == data, f"a read of {facts.largest} blocks returns other data"
    sound(session)


@pytest.mark.case("ISC-LONG-06", section="RFC 7143 4.2.2.1, 4.2.5.1", kills=("data-of-another-task",))
def test_many_reads_at_once_each_get_their_own_data(connections, scratch):
    session = connections.login(offer={"MaxRecvDataSegmentLength": "1024"})
    unit, size = LogicalUnit(session, block_size=scratch.block_size), scratch.block_size
    data = scratch.pattern(64, seed=66)
    assert unit.write(scratch.lba, data).good
    session.ping()
    window = (session.numbers.max_cmd_sn - session.numbers.cmd_sn) % 2**32 + 1
    commands = {}
    for at in range(min(window, 16)):
        block = c.cdb(c.READ_10, lba=scratch.lba + at, blocks=4)
        commands[session.start(block, read=4 * size).itt] = at
    found = {tag: bytearray(4 * size) for tag in commands}
    ended: dict[int, int] = {}
    for pdu in session.responses("the end of all reads"):
        assert isinstance(pdu, (DataIn, ScsiResponse)), f"received {pdu}; due: Data-In or SCSI Response"
        if isinstance(pdu, DataIn):
            found[pdu.itt][pdu.buffer_offset : pdu.buffer_offset + len(pdu.data)] = pdu.data
        if isinstance(pdu, ScsiResponse) or pdu.has_status:
            executed = pdu.status not in NOT_EXECUTED
            assert not executed or pdu.status == 0, f"{pdu.summary()}: a READ of blocks of the unit"
            ended[pdu.itt] = pdu.status
        if len(ended) == len(commands):
            break
    for tag, at in commands.items():
        assert ended[tag] in NOT_EXECUTED or found[tag] == data[at * size : (at + 4) * size], (
            f"the read of block {at} has other data than its own"
        )
    sound(session)


def finish_both(session, command, data, others):
    """Receive until ``command`` and ``others`` have their status; return it and the data, by task tag."""
    found = {one.itt: bytearray() for one in (command, *others)}
    ended = {}
    while len(ended) < len(found):
        pdu = session.receive()
        assert pdu is not None, "closed before the commands ended"
        if isinstance(pdu, NopIn):
            continue
        assert pdu.itt in found, f"received {pdu}"
        if isinstance(pdu, ReadyToTransfer):
            end = pdu.buffer_offset + pdu.desired_length
            session.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
            continue
        if isinstance(pdu, DataIn):
            found[pdu.itt][pdu.buffer_offset :] = pdu.data
        if isinstance(pdu, ScsiResponse) or pdu.has_status:
            ended[pdu.itt] = (pdu.status, bytes(found[pdu.itt]))
    return ended


@pytest.mark.case("ISC-LONG-07", section="RFC 7143 4.2.5.1, 11.8", kills=("r2t-sn",))
def test_reads_and_pings_during_a_write_disturb_nothing(connections, scratch, observe):
    """A target may serve one command after the other: then the read ends when the write has its data."""
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes", "MaxBurstLength": "2048",
                                       "FirstBurstLength": "2048"})  # fmt: skip
    with_room(session, 2)
    unit, size = LogicalUnit(session, block_size=scratch.block_size), scratch.block_size
    old, new = scratch.pattern(16, seed=70), scratch.pattern(16, seed=71)
    assert unit.write(scratch.lba, old).good
    assert unit.write(scratch.lba + 100, old).good
    scratch.require(16)
    command, asked = session.start_write(c.cdb(c.WRITE_10, lba=scratch.lba, blocks=16), 16 * size)
    waits = []
    try:
        for _ in range(3):
            read = session.start(c.cdb(c.READ_10, lba=scratch.lba + 100, blocks=2), read=2 * size)
            waits = [read]
            done = session.finish(read)
            executed = done.status not in NOT_EXECUTED
            assert not executed or (done.status, done.data) == (0, old[: 2 * size]), "a read during a write"
            waits = []
            assert session.ping(b"meanwhile").data == b"meanwhile"
    except ResponseTimeout:
        observe("nothing is served while a write waits for its data")
    session.send_data(command, new, start=asked.buffer_offset, end=asked.buffer_offset + asked.desired_length,
                      ttt=asked.ttt)  # fmt: skip
    ended = finish_both(session, command, new, waits)
    assert ended[command.itt] == (0, b"")
    assert all(ended[read.itt] == (0, old[: 2 * size]) for read in waits), "a read that waited for a write"
    assert unit.read(scratch.lba, 16).data == new
    assert unit.read(scratch.lba + 100, 16).data == old
    sound(session)
