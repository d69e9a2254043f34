"""Commands on blocks that a seeded sequence makes, each with its effect on the model of the blocks."""

from __future__ import annotations

from typing import Any

from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.wire.block_sequence import BlockSequence, Operation
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

BLOCKS = 300
"""Blocks of a sequence (chosen)."""


def succeeds(sequence: BlockSequence, answer: ScsiResult) -> None:
    """Claim that the last operation ended in GOOD."""
    assert answer.good, f"{answer} from {sequence.history()}; it has to be GOOD"


class Commands:
    """The operations of a sequence on the first blocks of ``scratch``, within the unit's limits."""

    def __init__(self, unit: LogicalUnit, facts: Any, scratch: Scratch) -> None:  # Facts
        self.unit, self.facts, self.lba = unit, facts, scratch.lba
        self.size, self.most = scratch.block_size, facts.largest
        self.lacking: set[str] = set()
        self.identity = self._identity()

    def sequence(self, seed: int) -> BlockSequence:
        """Return a sequence whose blocks have all been written."""
        made = BlockSequence(BLOCKS, self.size, seed, self.read)
        data = made.data(BLOCKS)
        for at in range(0, BLOCKS, min(self.most, 64)):
            piece = data[at * self.size : (at + min(self.most, 64)) * self.size]
            made.say("the first writes")
            succeeds(made, self.unit.write(self.lba + at, piece))
        made.wrote(0, data)
        self.sequence_made = made
        return made

    def read(self, first: int, blocks: int) -> bytes:
        """Read a range, by one of the commands."""
        data = b""
        for at in range(0, blocks, self.most):
            count = min(self.most, blocks - at)
            command = self.sequence_made.deal("read", (c.READ_10, c.READ_12, c.READ_16))
            answer = self.unit.read(self.lba + first + at, count, command=command)
            if answer.unsupported:
                answer = self.unit.read(self.lba + first + at, count)
            assert answer.good, f"{answer}: a read of {count} blocks, after {self.sequence_made.history()}"
            data += answer.data
        return data

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            *[self.write] * 7, self.rewrite, *[self.write_same] * 3, *[self.compare_and_write] * 2,
            *[self.unmap] * 2, *[self.synchronize] * 2, *[self.fail] * 2, *[self.ping] * 2,
            *[self.identify] * 2, *[self.short] * 2,
        ]  # fmt: skip

    def write(self, sequence: BlockSequence) -> None:
        """Write a range, by one of the commands."""
        command = sequence.deal("write", (c.WRITE_10, c.WRITE_12, c.WRITE_16, c.WRITE_16))
        self.put(sequence, *sequence.range("write", self.most), command=command)

    def put(
        self, sequence: BlockSequence, first: int, blocks: int, *, command: c.CommandFormat = c.WRITE_16
    ) -> None:
        """Write new data to a range of one transfer."""
        data = sequence.data(blocks)
        if command.name in self.lacking:
            command = c.WRITE_16
        sequence.say(f"a {command.name} of {blocks} blocks at block {first}")
        answer = self.unit.write(self.lba + first, data, command=command)
        if answer.unsupported and command in (c.WRITE_10, c.WRITE_12):
            self.lacking.add(command.name)
            answer = self.unit.write(self.lba + first, data)
        succeeds(sequence, answer)
        sequence.wrote(first, data)

    def fill(self, sequence: BlockSequence, first: int, blocks: int) -> None:
        """Write a range if a part of it is unknown, or zeroes."""
        if not sequence.shows(first, blocks):
            for at in range(0, blocks, self.most):
                self.put(sequence, first + at, min(self.most, blocks - at))

    def rewrite(self, sequence: BlockSequence) -> None:
        """Write a small range four times, and read it after each of them."""
        first, blocks = sequence.range("write again", self.most, sizes=(1, 2, 4))
        for number in range(4):
            data = sequence.data(blocks)
            sequence.say(f"write {number + 1} of 4 of {blocks} blocks at block {first}")
            succeeds(sequence, self.unit.write(self.lba + first, data))
            sequence.wrote(first, data)
            sequence.check(first, blocks)

    def write_same(self, sequence: BlockSequence) -> None:
        """Write one block to a range, twice: zeroes or other data."""
        if "WRITE SAME" in self.lacking:
            return
        limits = self.facts.limits
        most = (limits.max_write_same if limits else 0) or BLOCKS
        first, blocks = sequence.range("write same", most, sizes=(257, 1, 2, 17, 64, 65, 129, 257))
        start = max(0, first - 1)
        self.fill(sequence, start, min(BLOCKS, first + blocks + 1) - start)
        zeroes_first = sequence.deal("block of a write same", (True, False))
        for block in (bytes(self.size) if zeroes_first else sequence.data(1), sequence.data(1)):
            sequence.say(f"a WRITE SAME(16) of {blocks} blocks at block {first}")
            answer = self.unit.run(c.WRITE_SAME_16, data=block, lba=self.lba + first, blocks=blocks)
            if answer.unsupported:
                self.lacking.add("WRITE SAME")
                return
            succeeds(sequence, answer)
            sequence.wrote(first, block * blocks)
            sequence.check(start, min(BLOCKS, first + blocks + 1) - start)

    def compare_and_write(self, sequence: BlockSequence) -> None:
        """Compare and write blocks: with their data, and with data of which one byte differs."""
        limits = self.facts.limits
        most = limits.max_compare_and_write if limits else 1
        if "COMPARE AND WRITE" in self.lacking or not most:
            return
        first, blocks = sequence.range("compare and write", most, sizes=(1, 2, 8, 1))
        self.fill(sequence, first, blocks)
        new = sequence.held(first, blocks)
        assert new is not None
        for _ in range(2):
            held, new = new, sequence.data(blocks)
            sequence.say(f"a COMPARE AND WRITE of {blocks} blocks at block {first} with their data")
            answer = self.unit.compare_and_write(self.lba + first, held, new)
            if answer.unsupported:
                self.lacking.add("COMPARE AND WRITE")
                return
            succeeds(sequence, answer)
            sequence.wrote(first, new)
            sequence.check(first, blocks)
        for where in (0, blocks - 1):
            wrong, at = bytearray(new), where * self.size + sequence.random.randrange(self.size)
            wrong[at] ^= 0x10
            sequence.say(
                f"a COMPARE AND WRITE of {blocks} blocks at block {first}, of which byte {at} differs"
            )
            answer = self.unit.compare_and_write(self.lba + first, bytes(wrong), sequence.data(blocks))
            assert answer.check(SenseKey.MISCOMPARE), (
                f"{answer} from {sequence.history()}; it has to be MISCOMPARE"
            )

    def unmap(self, sequence: BlockSequence) -> None:
        """Unmap two ranges, whose neighbours have data, and write after it."""
        provisioning, limits = self.facts.provisioning, self.facts.limits
        if provisioning is None or not provisioning.unmap:
            return
        most = (limits.max_unmap_blocks if limits else 0) or 32
        count = min(most // 2, sequence.deal("blocks of an unmap", (1, 8, 16, 15)))
        if not count:
            return
        places = sequence.random.sample(range(1, BLOCKS - 32, 32), 2)
        ranges = [(place, count) for place in places]
        if limits and limits.max_unmap_descriptors == 1:
            ranges = ranges[:1]
        for first, blocks in ranges:
            self.fill(sequence, first - 1, blocks + 2)
        sequence.near(*ranges[0])
        sequence.say(f"an UNMAP of (block, blocks) {ranges}")
        answer = self.unit.unmap(*((self.lba + first, blocks) for first, blocks in ranges))
        succeeds(sequence, answer)
        for first, blocks in ranges:
            sequence.forgot(first, blocks)
        sequence.check(0, BLOCKS)
        self.write(sequence)

    def synchronize(self, sequence: BlockSequence) -> None:
        """Synchronize the cache, and write after it."""
        sequence.say("a SYNCHRONIZE CACHE(10)")
        answer = self.unit.run(c.SYNCHRONIZE_CACHE_10, lba=0, blocks=0)
        if not answer.unsupported:
            succeeds(sequence, answer)
        self.write(sequence)

    def fail(self, sequence: BlockSequence) -> None:
        """Read past the end of the unit, and then a range: the failure changes nothing of what follows."""
        first, blocks = sequence.range("read", self.most, sizes=(2, 3, 16, 129))
        self.fill(sequence, first, blocks)
        sequence.say("a READ(16) past the end of the unit")
        answer = self.unit.read(self.facts.capacity.blocks, 1)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer} from {sequence.history()}; it has to be LOGICAL BLOCK ADDRESS OUT OF RANGE"
        )
        sequence.check(first, blocks)

    def ping(self, sequence: BlockSequence) -> None:
        """Ping with data of any length."""
        data = sequence.random.randbytes(sequence.deal("ping", (0, 1, 3, 4, 101, 512)))
        sequence.say(f"a NOP-Out of {len(data)} bytes")
        initiator: Any = self.unit.runner
        found = initiator.ping(data).data
        assert found == data, f"{len(found)} bytes or other ones are returned from {sequence.history()}"
        sequence.range("read", 1)

    def identify(self, sequence: BlockSequence) -> None:
        """Ask for INQUIRY data and the capacity again: nothing has changed them."""
        sequence.say("INQUIRY and READ CAPACITY(16), again")
        found = self._identity()
        for name, was, now in zip(("INQUIRY", "READ CAPACITY(16)"), self.identity, found, strict=True):
            assert now == was, (
                f"{name} returns {now.hex()} and returned {was.hex()} before; nothing has changed it"
            )
        sequence.range("read", 1)

    def short(self, sequence: BlockSequence) -> None:
        """Read less than is expected: the residual is checked by the initiator."""
        first, blocks = sequence.range("short read", self.most, sizes=(1, 2, 8))
        sequence.say(f"a READ(16) of {blocks} blocks at block {first}, with {blocks + 1} expected")
        initiator: Any = self.unit.runner
        done = initiator.command(
            c.cdb(c.READ_16, lba=self.lba + first, blocks=blocks), read=(blocks + 1) * self.size
        )
        residual = done.residual if done.underflow else 0
        assert residual == self.size, (
            f"an underflow of {residual} bytes is reported, not {self.size}, from {sequence.history()}"
        )

    def _identity(self) -> tuple[bytes, bytes]:
        return self.unit.inquiry(allocation=36).data, self.unit.capacity16().data
