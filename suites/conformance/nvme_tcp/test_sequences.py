"""Seeded random sequences of I/O commands of many sizes and offsets, compared with a model of the blocks.

The first and the second command of a kind, a command after any other, and a range that was used before have
to do the same. Every completion's fields are checked by the queue.
"""

from __future__ import annotations

import pytest

from storagetest.wire.block_sequence import BlockSequence, Operation
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import ICReq

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3")]

COUNT = 90
"""Operations of one sequence (chosen)."""


def succeeds(sequence: BlockSequence, done: CommandResult) -> None:
    """Claim that the last operation succeeded."""
    assert done.ok, f"{status_name(done.status)} from {sequence.history()}; it has to succeed"


class Commands:
    """The operations of a sequence on the blocks of ``scratch``, within the controller's limits."""

    def __init__(self, session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
        self.session, self.queue, self.scratch, self.limits = session, queue, scratch, scratch.limits
        self.nsze = session.namespace(scratch.nsid)["nsze"]

    def sequence(self, seed: int) -> BlockSequence:
        """Return a sequence whose blocks have all been written."""
        made = BlockSequence(
            self.scratch.blocks,
            self.scratch.block_size,
            seed,
            lambda at, blocks: read_blocks(self.queue, self.scratch, blocks, at=at),
        )
        made.wrote(0, write_blocks(self.queue, self.scratch, self.scratch.blocks, seed))
        return made

    def has(self, command: Io) -> bool:
        """Whether ONCS has an optional command."""
        return bool(self.session.controller["oncs"] >> ONCS_BITS[command] & 1)

    def operations(self) -> list[Operation]:
        """Return the operations that the controller supports."""
        made: list[Operation] = [self.write] * 5 + [
            self.write_fua,
            self.write_fua,
            self.rewrite,
            self.rewrite,
        ]
        made += [self.flush, self.flush, self.fail, self.identify]
        if self.has(Io.WRITE_ZEROES):
            made += [self.zeroes] * 3
        if self.has(Io.COMPARE):
            made += [self.compare] * 2
        if self.has(Io.DATASET_MANAGEMENT):
            made += [self.discard]
        if self.has(Io.COPY) and self.limits.copied([(0, 1)]):
            made += [self.copy] * 2
        if self.has(Io.VERIFY):
            made += [self.verify]
        return made

    def write(self, sequence: BlockSequence, *, fua: bool = False) -> None:
        """Write a range."""
        first, blocks = sequence.range(self.limits.transfer)
        data = sequence.data(blocks)
        sequence.say(f"a Write of {blocks} blocks at block {first}{' with FUA' * fua}")
        command = io.write(self.scratch.nsid, self.scratch.lba + first, blocks, fua=fua)
        succeeds(sequence, self.queue.run(command, data=data))
        sequence.wrote(first, data)

    def rewrite(self, sequence: BlockSequence) -> None:
        """Write a small range four times: the last data are read."""
        first, blocks = sequence.range(min(self.limits.transfer, 4))
        command = io.write(self.scratch.nsid, self.scratch.lba + first, blocks)
        for number in range(4):
            data = sequence.data(blocks)
            sequence.say(f"Write {number + 1} of 4 of {blocks} blocks at block {first}")
            succeeds(sequence, self.queue.run(command, data=data))
            sequence.wrote(first, data)
            if number % 2:
                sequence.check(first, blocks)

    def write_fua(self, sequence: BlockSequence) -> None:
        """Write a range with FUA."""
        self.write(sequence, fua=True)

    def flush(self, sequence: BlockSequence) -> None:
        """Flush, and write after it."""
        sequence.say("a Flush")
        succeeds(sequence, self.queue.run(io.flush(self.scratch.nsid)))
        self.write(sequence)

    def zeroes(self, sequence: BlockSequence) -> None:
        """Write zeroes, and half of the times new data after them."""
        first, blocks = sequence.range(self.limits.zeroes)
        sequence.say(f"a Write Zeroes of {blocks} blocks at block {first}")
        command = io.write_zeroes(self.scratch.nsid, self.scratch.lba + first, blocks)
        succeeds(sequence, self.queue.run(command))
        sequence.wrote(first, bytes(blocks * sequence.size))
        if sequence.random.random() < 0.5:
            self.write(sequence)
            sequence.check(first, blocks)

    def compare(self, sequence: BlockSequence) -> None:
        """Compare a range with its data, and with data of which one byte differs, twice."""
        first, blocks = sequence.range(self.limits.transfer)
        held = sequence.held(first, blocks)
        if held is None:
            return
        command = io.compare(self.scratch.nsid, self.scratch.lba + first, blocks)
        sequence.say(f"a Compare of {blocks} blocks at block {first} with their data")
        succeeds(sequence, self.queue.run(command, data=held))
        for _ in range(2):
            wrong = bytearray(held)
            at = sequence.random.randrange(len(wrong))
            wrong[at] ^= 0x10
            sequence.say(f"a Compare of {blocks} blocks at block {first}, of which byte {at} differs")
            done = self.queue.run(command, data=bytes(wrong))
            assert done.status == StatusCode.COMPARE_FAILURE, (
                f"{status_name(done.status)} from {sequence.history()}; it has to be COMPARE_FAILURE"
            )

    def discard(self, sequence: BlockSequence) -> None:
        """Deallocate one to three ranges that do not meet."""
        wanted = min(sequence.random.choice((1, 2, 3)), self.limits.discard_ranges)
        ranges: list[tuple[int, int]] = []
        for _ in range(wanted):
            first, blocks = sequence.range(min(self.limits.discard, 16))
            if all(first + blocks < at or at + count < first for at, count in ranges):
                ranges.append((first, blocks))
        sequence.say(f"a deallocation of (block, blocks) {ranges}")
        data = io.dsm_ranges([(self.scratch.lba + first, blocks) for first, blocks in ranges])
        command = io.dataset_management(self.scratch.nsid, len(ranges))
        succeeds(sequence, self.queue.run(command, data=data))
        for first, blocks in ranges:
            sequence.forgot(first, blocks)
        sequence.check(0, sequence.blocks)

    def copy(self, sequence: BlockSequence) -> None:
        """Copy up to two ranges of the first half to the second half."""
        half = sequence.blocks // 2
        sources = [
            (sequence.random.randrange(half - 16), sequence.random.choice((1, 3, 8))) for _ in range(2)
        ]
        ranges = self.limits.copied([(self.scratch.lba + first, blocks) for first, blocks in sources])
        held = [sequence.held(lba - self.scratch.lba, blocks) for lba, blocks in ranges]
        data = b"".join(one for one in held if one is not None)
        if None in held:
            return
        to = half + sequence.random.randrange(half - 20)
        shown = [(lba - self.scratch.lba, blocks) for lba, blocks in ranges]
        sequence.say(f"a Copy of (block, blocks) {shown} to block {to}")
        command = io.copy(self.scratch.nsid, self.scratch.lba + to, len(ranges))
        succeeds(sequence, self.queue.run(command, data=io.copy_ranges(ranges)))
        sequence.wrote(to, data)
        sequence.check(max(0, to - 1), len(data) // sequence.size + 2)

    def verify(self, sequence: BlockSequence) -> None:
        """Verify a range."""
        first, blocks = sequence.range(min(self.limits.verify, self.limits.transfer))
        sequence.say(f"a Verify of {blocks} blocks at block {first}")
        succeeds(sequence, self.queue.run(io.verify(self.scratch.nsid, self.scratch.lba + first, blocks)))

    def fail(self, sequence: BlockSequence) -> None:
        """Read past the end of the namespace, and then a range: the failure changes nothing that follows."""
        first, blocks = sequence.range(self.limits.transfer)
        sequence.say("a Read past the end of the namespace")
        done = self.queue.run(io.read(self.scratch.nsid, self.scratch.end, 1), reads=sequence.size)
        # Its status is the claim of NVB-READ-AT-END.
        assert not done.ok, f"SUCCESS from {sequence.history()}; it has to fail"
        sequence.check(first, blocks)

    def identify(self, sequence: BlockSequence) -> None:
        """Identify the namespace again: nothing has changed its size."""
        sequence.say("Identify Namespace, again")
        found = self.session.namespace(self.scratch.nsid)["nsze"]
        assert found == self.nsze, (
            f"NSZE is {found} blocks and was {self.nsze}: nothing has changed the size of the namespace"
        )
        sequence.range(self.limits.transfer)


KILLS = (
    "third-write-lost", "fua-second-lost", "write-after-flush-lost", "write-after-zeroes-lost",
    "write-odd-last-lost", "read-after-failure-wrong", "read-129-blocks-wrong", "zeroes-odd-first-kept",
    "zeroes-again-ignored", "copy-second-range-is-first",
    "compare-second-failure-passes", "write-resp-result", "identify-second-smaller",
)  # fmt: skip
"""Mutants that each sequence detects; only the first one deallocates several ranges that do not meet."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.case("NVB-SEQUENCE-1", kills=(*KILLS, "dsm-second-range-shifted"))),
        pytest.param(2, marks=pytest.mark.case("NVB-SEQUENCE-2", kills=KILLS)),
    ],
)
def test_blocks_have_the_data_that_the_commands_left(
    session: ControllerSession, queue: Queue, scratch: Scratch, seed: int
) -> None:
    commands = Commands(session, queue, scratch)
    commands.sequence(seed).run(commands.operations(), COUNT)
    assert not queue.faults, "; ".join(queue.faults)


@pytest.mark.case("NVB-SEQUENCE-DIGESTS", section="NVMe/TCP 3.3.1.1", kills=("write-odd-last-lost",))
def test_blocks_have_their_data_with_digests(bench: Harness, scratch: Scratch) -> None:
    session = bench.session(icreq=ICReq(header_digest=True, data_digest=True))
    commands = Commands(session, session.io_queue(), scratch)
    commands.sequence(3).run(commands.operations(), COUNT // 2)


@pytest.mark.case("NVB-ZEROES-ACROSS-END-KEPT", section="NVM 3.3.8", kills=("zeroes-across-end-begins",))
def test_zeroes_across_the_end_are_refused_whole(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[Io.WRITE_ZEROES] & 1 or scratch.limits.zeroes < 2:
        pytest.skip("ONCS or WZSL: no Write Zeroes of two blocks")
    end = Scratch(scratch.nsid, scratch.end - 2, 2, scratch.end, scratch.limits)
    before = read_blocks(queue, end, 2)
    try:
        data = write_blocks(queue, end, 2, 71)
        done = queue.run(io.write_zeroes(scratch.nsid, scratch.end - 1, 2))
        assert not done.ok, "3.1: Write Zeroes across the end of the namespace succeeded"
        assert read_blocks(queue, end, 2) == data, (
            "3.1: Write Zeroes across the end was refused, and has zeroed the last block"
        )
    finally:
        for at in range(2):
            piece = before[at * scratch.block_size : (at + 1) * scratch.block_size]
            queue.run(io.write(scratch.nsid, end.lba + at, 1), data=piece)
