"""Many commands of one session outstanding at the same time: each has its own data and its own response.

RFC 7143 4.2.2.1 lets an initiator send as many commands as the command window has. SAM-5 5.3.1 lets a device
server end a command in BUSY or TASK SET FULL instead of executing it: such a command is not judged.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import NOT_EXECUTED, Initiator
from storagetest.wire.iscsi.outcomes import ScsiCompletion, completion
from storagetest.wire.iscsi.pdu import DataIn, NopIn, NopOut, ReadyToTransfer, ScsiCommand, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 4.2.2.1, 11.2.1.8", level="MUST", builds_on=("ISC-CMDSN-10",)),
]

DEPTH, BLOCKS = 32, 24
"""Commands at the same time, and blocks of each (chosen)."""

UNREAD = 16 << 20
"""Bytes of data that wait in a target, if its command window and its block limits allow as many: more than
the buffers of a TCP connection hold (chosen)."""
PAUSE = 2.0
"""Seconds in which the initiator reads nothing (chosen: shorter than the deadline of a target's own ping)."""

TAGS = (0, 0x17, 0x1700, 0x17_0000, 0x1700_0000, 0x8000_0017, 0xFFFF_FFFE)
"""Task tags that differ in a byte each; the initiator may assign any but FFFFFFFFh (11.2.1.8)."""


class Outstanding:
    """Commands that :meth:`finish` sends in one piece, and gives the data that R2Ts ask for."""

    def __init__(self, session: Initiator, scratch) -> None:
        session.ping()  # its response has the command window
        self.session, self.size = session, scratch.block_size
        self.lba = scratch.lba
        self.depth = min(DEPTH, (session.numbers.max_cmd_sn - session.numbers.cmd_sn) % 2**32 + 1)
        if self.depth < 4:
            pytest.skip(f"the command window has {self.depth} commands")
        self.data: dict[int, bytes] = {}
        self.commands: dict[int, ScsiCommand] = {}
        self.pdus: list[Pdu] = []

    def read(self, number: int) -> int:
        """Add a read of the blocks of ``number``, of fewer of them for some; return its tag."""
        blocks = BLOCKS - number % 3
        return self._add(
            c.READ_16, number, blocks, ScsiCommand(read=True, expected_length=blocks * self.size)
        )

    def read_first(self, blocks: int) -> int:
        """Add a read of the first ``blocks``; return its tag."""
        return self._add(c.READ_16, 0, blocks, ScsiCommand(read=True, expected_length=blocks * self.size))

    def write(self, number: int, data: bytes) -> int:
        """Add a write of the blocks of ``number``, each second one with immediate data; return its tag."""
        allowed = self.session.parameters
        first = min(len(data), allowed.first_burst, allowed.max_send) if allowed.immediate_data else 0
        command = ScsiCommand(write=True, expected_length=len(data), data=data[: first * (number % 2)])
        return self._add(c.WRITE_16, number, BLOCKS, command, data)

    def ping(self) -> None:
        """Add a ping."""
        ping = NopOut(itt=self.session.numbers.itt(), lun=self.session.lun, immediate=True)
        self.pdus.append(self.session.assign_numbers(ping))

    def _add(
        self, form: c.CommandFormat, number: int, blocks: int, command: ScsiCommand, data: bytes = b""
    ) -> int:
        block = c.cdb(form, lba=self.lba + number * BLOCKS, blocks=blocks)
        numbered = self.session.assign_numbers(replace(command, cdb=block, lun=self.session.lun))
        self.pdus.append(numbered)
        self.commands[numbered.itt], self.data[numbered.itt] = numbered, data
        return numbered.itt

    def send(self) -> None:
        """Send all in one piece."""
        for pdu in self.pdus:
            self.session.validator.sent(pdu)
        self.session.send_raw(b"".join(pdu.encode() for pdu in self.pdus))

    def finish(self) -> dict[int, ScsiCompletion]:
        """Send all; return the completions by tag, without those that were not executed."""
        self.send()
        return self.receive()

    def receive(self) -> dict[int, ScsiCompletion]:
        """Return the completions of what was sent by tag, without those that were not executed."""
        received: dict[int, list] = {itt: [] for itt in self.commands}
        found: dict[int, ScsiCompletion] = {}
        left = {pdu.itt for pdu in self.pdus}
        for pdu in self.session.responses(f"the end of {len(left)} commands and pings", times=6.0):
            assert pdu is not None, f"closed; {len(left)} of {len(self.pdus)} requests have no response"
            itt = pdu.itt
            assert itt in left, f"no request that is outstanding has this tag: {pdu.summary()}"
            if isinstance(pdu, NopIn):
                left.remove(itt)
            else:
                received[itt].append(pdu)
            if isinstance(pdu, ReadyToTransfer):
                end = pdu.buffer_offset + pdu.desired_length
                data = self.data[itt]
                self.session.send_data(
                    self.commands[itt], data, start=pdu.buffer_offset, end=min(end, len(data)), ttt=pdu.ttt
                )
            elif isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status):
                found[itt] = completion(pdu, received[itt])
                left.remove(itt)
            if not left:
                break
        executed = {itt: one for itt, one in found.items() if one.status not in NOT_EXECUTED}
        assert executed, f"none of {len(found)} commands was executed: BUSY or TASK SET FULL"
        return executed


def blocks_of(scratch, number: int, seed: int) -> bytes:
    """Return the data of the blocks of ``number``."""
    return scratch.pattern(BLOCKS, seed=seed + number)


def prepare(session: Initiator, scratch, numbers: range, seed: int) -> None:
    """Write the blocks of ``numbers``, one command after the other."""
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for number in numbers:
        answer = unit.write(scratch.lba + number * BLOCKS, blocks_of(scratch, number, seed))
        assert answer.good, answer


def check_read(one: ScsiCompletion, wanted: bytes, number: int, depth: int) -> None:
    """Claim that a read has returned the data of its blocks."""
    assert one.status == ScsiStatus.GOOD, f"read {number + 1} of {depth}: status {one.status:#04x}"
    assert one.data == wanted[: len(one.data)], f"read {number + 1} of {depth} outstanding has other data"
    assert len(one.data) >= len(wanted) * (BLOCKS - 2) // BLOCKS, (
        f"read {number + 1} has {len(one.data)} bytes"
    )


@pytest.mark.case("ISC-DEPTH-READ", kills=("deep-read-mixed",))
def test_each_of_many_outstanding_reads_has_its_data(session, scratch):
    many = Outstanding(session, scratch)
    prepare(session, scratch, range(many.depth), 300)
    sent = {many.read(number): number for number in range(many.depth)}
    for itt, one in many.finish().items():
        check_read(one, blocks_of(scratch, sent[itt], 300), sent[itt], many.depth)


@pytest.mark.case("ISC-DEPTH-WRITE", kills=("deep-write-lost",))
def test_each_of_many_outstanding_writes_is_done(session, scratch):
    """Each second write has immediate data; the data of the others come after R2Ts alone."""
    many = Outstanding(session, scratch)
    prepare(session, scratch, range(many.depth), 400)
    sent = {many.write(number, blocks_of(scratch, number, 500)): number for number in range(many.depth)}
    done = many.finish()
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for itt, number in sent.items():
        if itt in done:
            assert done[itt].status == ScsiStatus.GOOD, f"write {number + 1}: status {done[itt].status:#04x}"
        found = unit.read(scratch.lba + number * BLOCKS, BLOCKS)
        assert found.data == blocks_of(scratch, number, 500 if itt in done else 400), (
            f"{found}: not what write {number + 1} of {many.depth} outstanding ones wrote"
        )


@pytest.mark.case("ISC-DEPTH-MIXED", kills=("deep-write-lost",))
def test_outstanding_reads_and_writes_and_pings_do_not_disturb_each_other(session, scratch):
    """Every second command is a write of blocks of its own; pings are sent between them."""
    many = Outstanding(session, scratch)
    prepare(session, scratch, range(many.depth), 600)
    reads, writes = {}, {}
    for number in range(many.depth):
        if number % 2:
            writes[many.write(number, blocks_of(scratch, number, 700))] = number
        else:
            reads[many.read(number)] = number
        if number % 8 == 7:
            many.ping()
    done = many.finish()
    for itt, number in reads.items():
        if itt in done:
            check_read(done[itt], blocks_of(scratch, number, 600), number, many.depth)
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for itt, number in writes.items():
        found = unit.read(scratch.lba + number * BLOCKS, BLOCKS)
        assert found.data == blocks_of(scratch, number, 700 if itt in done else 600), (
            f"{found}: not what write {number + 1} wrote, with {many.depth} commands outstanding"
        )


def large_reads(
    session: Initiator, scratch, seed: int, waiting: int = UNREAD
) -> tuple[Outstanding, dict[int, int], bytes]:
    """Write the first blocks; return reads of them, not sent yet, the blocks of each tag, and the data.

    They ask for ``waiting`` bytes, or as many as the limits allow.
    """
    many = Outstanding(session, scratch)
    most = min(scratch.most, scratch.count, waiting // many.depth // many.size)
    data = scratch.pattern(most, seed=seed)
    answer = LogicalUnit(session, block_size=scratch.block_size).write(scratch.lba, data)
    assert answer.good, answer
    blocks = {}
    for number in range(many.depth):
        count = max(1, most - number)
        blocks[many.read_first(count)] = count
    return many, blocks, data


@pytest.mark.parametrize(("segment", "waiting"), [
    pytest.param(None, UNREAD, marks=pytest.mark.case("ISC-DEPTH-UNREAD")),
    pytest.param(512, UNREAD // 4, marks=pytest.mark.case("ISC-DEPTH-UNREAD-SMALL")),
])  # fmt: skip
@pytest.mark.case(kills=("unread-byte-lost",), builds_on=("ISC-DEPTH-READ",))
def test_data_that_wait_for_a_slow_initiator_are_whole(connections, scratch, segment, waiting):
    """The data of all reads are more than the connection takes while the initiator reads nothing of it.

    The connection is full anywhere in a PDU: in a header as well, if each PDU has 512 bytes of data.
    """
    session = connections.login(offer={"MaxRecvDataSegmentLength": str(segment)} if segment else None)
    many, blocks, data = large_reads(session, scratch, 1000, waiting)
    many.send()
    time.sleep(PAUSE)
    for number, (itt, one) in enumerate(many.receive().items(), 1):
        wanted = data[: blocks[itt] * many.size]
        assert one.status == ScsiStatus.GOOD, f"read {number} of {many.depth}: status {one.status:#04x}"
        assert one.data == wanted, (
            f"read {number} of {many.depth} whose data waited has {len(one.data)} bytes of {len(wanted)}, "
            "or other ones"
        )


@pytest.mark.case(
    "ISC-DEPTH-UNREAD-CLOSE",
    section="RFC 7143 7.5, 4.2.2.1",
    kills=("unread-close-ends",),
    builds_on=("ISC-DEPTH-READ",),
)
def test_a_connection_that_ends_while_data_wait_harms_no_other_session(connections, scratch):
    """Three connections end so; a session that was there before, and a new one, read what was written."""
    other = connections.login("other")
    for turn in range(3):
        session = connections.login(f"slow{turn}")
        many, _, data = large_reads(session, scratch, 1100 + turn)
        many.send()
        time.sleep(PAUSE / 4)
        session.logged_in = False
        session.link.close()
        for reader in (other, connections.login(f"new{turn}")):
            answer = LogicalUnit(reader, block_size=many.size).read(scratch.lba, len(data) // many.size)
            assert answer.good, f"{answer}: after a connection ended while its data waited"
            assert answer.data == data, (
                "after a connection ended while its data waited, a read has other data"
            )


@pytest.mark.case("ISC-DEPTH-TAGS", section="RFC 7143 11.2.1.8", kills=("task-tag-byte",))
def test_a_task_tag_is_all_of_its_bytes(session, scratch):
    """Reads and writes by turns, all outstanding, whose tags differ in one byte."""
    many = Outstanding(session, scratch)
    tags = TAGS[: many.depth]
    prepare(session, scratch, range(len(tags)), 800)
    for number, tag in enumerate(tags):
        session.numbers.next_itt = tag
        if number % 2:
            many.write(number, blocks_of(scratch, number, 900))
        else:
            many.read(number)
    done = many.finish()
    session.numbers.next_itt = 0x100
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for number, tag in enumerate(tags):
        if tag in done and number % 2 == 0:
            check_read(done[tag], blocks_of(scratch, number, 800), number, len(tags))
        found = unit.read(scratch.lba + number * BLOCKS, BLOCKS)
        wanted = blocks_of(scratch, number, 900 if tag in done and number % 2 else 800)
        assert found.data == wanted, f"{found}: not the data of the command with tag {tag:#x}"
