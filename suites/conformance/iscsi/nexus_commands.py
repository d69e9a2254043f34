"""The commands of a block sequence through several I_T nexuses, one of which may hold a reservation.

The blocks are those of the unit, not of a nexus: what one nexus writes, each other one reads. A persistent
reservation only decides who may: a command that it excludes ends in RESERVATION CONFLICT and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from storagetest.suites.conformance.iscsi.block_commands import BLOCKS, Commands, succeeds
from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.wire.block_sequence import BlockSequence, Operation
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import NOT_EXECUTED
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrOut, PrType
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

KEYS = (0xA1A2A3A4A5A6A7A8, 0xB1B2B3B4B5B6B7B8, 0xC1C2C3C4C5C6C7C8)
"""Reservation keys of the nexuses (chosen)."""


class NexusCommands(Commands):
    """The operations through ``nexuses``, none of which is registered.

    ``again`` logs a nexus in again: it is given the number of the nexus and returns the unit through its new
    session. ``reserves``: whether the unit has persistent reservations.
    """

    def __init__(
        self,
        nexuses: Sequence[LogicalUnit],
        facts: Any,  # Facts
        scratch: Scratch,
        *,
        again: Callable[[int], LogicalUnit],
        reserves: bool,
    ) -> None:
        super().__init__(nexuses[0], facts, scratch)
        self.nexuses, self.log_in_again, self.reserves = list(nexuses), again, reserves
        types = nexuses[0].reservation_types() if reserves else None
        self.types = tuple(kind for kind in PrType if not types or kind in types)
        self.registered: set[int] = set()
        self.type: PrType | None = None
        self.holder = -1
        self.reader: int | None = None

    def operations(self) -> list[Operation]:
        """Return the operations."""
        shared = [self._through_any(operation) for operation in super().operations()]
        own: list[Operation] = [*[self.overlap] * 3, *[self.take_turns] * 3, self.reset, self.renew]
        if self.reserves:
            own += [*[self.reserve] * 3, self.end_reservation, self.preempt, *[self.refuse] * 6]
        return shared + own

    def read(self, first: int, blocks: int) -> bytes:
        """Read a range through a nexus that may read, whichever nexus wrote it."""
        writer = self.unit
        number = self._dealt(self.sequence_made, "reads") if self.reader is None else self.reader
        self.unit = self.nexuses[number]
        try:
            return super().read(first, blocks)
        except AssertionError as failure:
            raise AssertionError(f"nexus {number}: {failure}") from None
        finally:
            self.unit = writer

    # Operations

    def take_turns(self, sequence: BlockSequence) -> None:
        """Write a range four times, through one nexus after the other; one that did not write it reads it."""
        first, blocks = sequence.range("turns", self.most, sizes=(1, 2, 8, 17, 64))
        for _ in range(4):
            writer = self._through(sequence, "turns")
            self.put(sequence, first, blocks)
            others = [one for one in self._able(reading=True) if one != writer]
            self.reader = sequence.random.choice(others) if others else writer
            try:
                sequence.check(first, blocks)
            finally:
                self.reader = None

    def overlap(self, sequence: BlockSequence) -> None:
        """Begin a write through one nexus, one through another, and send the data of both after that."""
        half = BLOCKS // 2
        first, count = sequence.range("overlap", min(self.most, half - 1), sizes=(1, 3, 8, 64, 129))
        able = self._able()
        if len(able) < 2 or first + count > half:
            self._through(sequence, "overlap")
            self.put(sequence, first, count)
            return
        one, two = sequence.random.sample(able, 2)
        ranges = ((first, sequence.data(count)), (half + first, sequence.data(count)))
        sequence.say(
            f"writes of {count} blocks at blocks {first} and {half + first} at once, by {one}, {two}"
        )
        blocks = [c.cdb(c.WRITE_16, lba=self.lba + at, blocks=count) for at, _ in ranges]
        initiators: Any = [self.nexuses[number].runner for number in (one, two)]
        size = count * self.size
        command, asked = initiators[0].start_write(blocks[0], size)
        other = initiators[1].start(blocks[1], write=size)
        end = min(size, asked.buffer_offset + asked.desired_length)
        initiators[0].send_data(command, ranges[0][1], start=asked.buffer_offset, end=end, ttt=asked.ttt)
        done = [initiators[0].finish(command, ranges[0][1]), initiators[1].finish(other, ranges[1][1])]
        if done[1].status in NOT_EXECUTED:  # a unit of one command at a time
            done[1] = initiators[1].command(blocks[1], data=ranges[1][1])
        for (at, data), answer in zip(ranges, done, strict=True):
            succeeds(sequence, LogicalUnit.result(answer, f"WRITE(16) at block {at}"))
            sequence.wrote(at, data)
            sequence.check(at, count)

    def reset(self, sequence: BlockSequence) -> None:
        """Reset the unit: blocks, registrations and reservation stay as they are."""
        number = sequence.deal("nexus of a reset", range(len(self.nexuses)))
        sequence.say(f"a LOGICAL UNIT RESET through nexus {number}")
        initiator: Any = self.nexuses[number].runner
        done = initiator.task(TaskFunction.LOGICAL_UNIT_RESET)
        if done.response != TaskResult.COMPLETE:
            sequence.say(f"which had the response {done.response}")
        self._clear_attentions()
        sequence.near(0, BLOCKS - 1)

    def renew(self, sequence: BlockSequence) -> None:
        """End the session of a nexus that is not registered, and log it in again."""
        number = sequence.deal("nexus of a login", range(len(self.nexuses)))
        if number in self.registered:
            return  # SCS-PR-LOGOUT tests what becomes of a registration
        sequence.say(f"a logout of nexus {number}, and a login")
        self.nexuses[number] = self.log_in_again(number)
        self._clear_attentions()

    def reserve(self, sequence: BlockSequence) -> None:
        """Reserve the unit; one nexus at least is not registered, and so has no part in it."""
        self.end_reservation(sequence)
        numbers = sequence.random.sample(range(len(self.nexuses)), len(self.nexuses))
        members = numbers[: sequence.deal("registrants", range(1, len(numbers)))]
        for number in numbers:
            self._register(sequence, number, registered=number in members)
        kind = sequence.deal("type", self.types)
        self._out(sequence, members[0], PrOut.RESERVE, type=kind)
        self.type, self.holder = kind, members[0]

    def end_reservation(self, sequence: BlockSequence) -> None:
        """End the reservation, if there is one: by RELEASE, CLEAR, or the end of the registrations."""
        if self.type is None:
            return
        way = sequence.deal("end", (PrOut.RELEASE, PrOut.CLEAR, PrOut.REGISTER))
        if way is PrOut.REGISTER:
            for number in sorted(self.registered):
                self._register(sequence, number, registered=False)
        else:
            self._out(sequence, self.holder, way, type=self.type if way is PrOut.RELEASE else 0)
            self.registered -= self.registered if way is PrOut.CLEAR else set()
        self.type = None
        self._clear_attentions()

    def preempt(self, sequence: BlockSequence) -> None:
        """Take the reservation over through another nexus: its holder has no part in it then."""
        if self.type is None:
            return
        others = [number for number in range(len(self.nexuses)) if number != self.holder]
        number = sequence.deal("preempting nexus", others)
        if number == self.holder:
            return
        self._register(sequence, number, registered=True)
        kind = sequence.deal("type", self.types)
        victim = 0 if self.type.all_hold else KEYS[self.holder]
        self._out(sequence, number, PrOut.PREEMPT, type=kind, action_key=victim)
        self.registered = {number} if self.type.all_hold else self.registered - {self.holder}
        self.type, self.holder = kind, number
        self._clear_attentions()

    def refuse(self, sequence: BlockSequence) -> None:
        """Send a command that the reservation excludes, and a READ, through a nexus without a part in it."""
        excluded = [one for one in range(len(self.nexuses)) if one not in self._able()]
        if not excluded or self.type is None:
            return
        number = sequence.random.choice(excluded)
        first, blocks = sequence.range("refuse", self.most, sizes=(1, 2, 8))
        self._through(sequence, "refuse")
        self.fill(sequence, first, blocks)
        sequence.via = f" through nexus {number}"
        name = sequence.deal("excluded command", tuple(self._excluded()))
        answer = self._excluded()[name](self.nexuses[number], first, blocks)
        sequence.say(f"a {name} of {blocks} blocks at block {first}")
        assert answer.conflict or answer.unsupported, (
            f"{answer} from {sequence.history()}; the unit has a reservation of type {self.type.name} of "
            f"nexus {self.holder}: it has to be RESERVATION CONFLICT"
        )
        answer = self.nexuses[number].read(self.lba + first, blocks)
        sequence.say(f"a READ(16) of {blocks} blocks at block {first}")
        wanted = "RESERVATION CONFLICT" if self.type.reads_too else "GOOD"
        assert answer.conflict if self.type.reads_too else answer.good, (
            f"{answer} from {sequence.history()}; the unit has a reservation of type {self.type.name} of "
            f"nexus {self.holder}: it has to be {wanted}"
        )
        sequence.via = ""

    def _excluded(self) -> dict[str, Callable[[LogicalUnit, int, int], ScsiResult]]:
        """Return commands that change blocks; each is given the unit, the first block, and the number."""

        def new(blocks: int) -> bytes:
            return self.sequence_made.data(blocks)

        def compare(unit: LogicalUnit, first: int, _: int) -> ScsiResult:
            held = self.sequence_made.held(first, 1)
            assert held is not None
            return unit.compare_and_write(self.lba + first, held, new(1))

        def unmap(unit: LogicalUnit, first: int, _: int) -> ScsiResult:
            return unit.unmap((self.lba + first, 1))

        def same(unit: LogicalUnit, first: int, _: int) -> ScsiResult:
            return unit.run(c.WRITE_SAME_16, data=new(1), lba=self.lba + first, blocks=1)

        writes = (c.WRITE_10, c.WRITE_12, c.WRITE_16, c.WRITE_AND_VERIFY_10, c.ORWRITE_16)

        def write(command: c.CommandFormat) -> Callable[[LogicalUnit, int, int], ScsiResult]:
            return lambda unit, first, blocks: unit.write(self.lba + first, new(blocks), command=command)

        return {
            **{command.name: write(command) for command in writes},
            c.COMPARE_AND_WRITE.name: compare, c.UNMAP.name: unmap, c.WRITE_SAME_16.name: same,
        }  # fmt: skip

    # The model of the reservation

    def _able(self, *, reading: bool = False) -> list[int]:
        """Return the numbers of the nexuses that may write, or read."""
        if self.type is None or (reading and not self.type.reads_too):
            return list(range(len(self.nexuses)))
        return sorted(self.registered) if self.type.registrants else [self.holder]

    def _register(self, sequence: BlockSequence, number: int, *, registered: bool) -> None:
        if registered == (number in self.registered):
            return
        key = KEYS[number]
        sequence.say(f"REGISTER of {key if registered else 0:#x} through nexus {number}")
        succeeds(sequence, self.nexuses[number].register(key * registered, key=0 if registered else key))
        self.registered ^= {number}
        self._clear_attentions()

    def _out(self, sequence: BlockSequence, number: int, action: PrOut, **fields: Any) -> None:
        sequence.say(f"{action.name} through nexus {number} with {fields}")
        succeeds(sequence, self.nexuses[number].reserve_out(action, key=KEYS[number], **fields))

    def _clear_attentions(self) -> None:
        """Clear the unit attentions: which ones there are is tested by cases of their own."""
        for nexus in self.nexuses:
            nexus.clear_attentions()

    # Which nexus

    def _dealt(self, sequence: BlockSequence, purpose: str) -> int:
        """Return the number of a nexus that may do it."""
        number = sequence.deal(f"nexus that {purpose}", range(len(self.nexuses)))
        able = self._able(reading=purpose == "reads")
        return number if number in able else sequence.random.choice(able)

    def _through(self, sequence: BlockSequence, purpose: str) -> int:
        """Select a nexus that may write, and return its number."""
        number = self._dealt(sequence, purpose)
        self.unit = self.nexuses[number]
        return number

    def _through_any(self, operation: Operation) -> Operation:
        def run(sequence: BlockSequence) -> None:
            sequence.via = f" through nexus {self._through(sequence, 'writes')}"
            operation(sequence)
            sequence.via = ""

        return run
