"""Seeded random sequences of commands on several I/O queues, with commands of the admin queue between them.

The model is that of test_sequences.py: the blocks. Each operation is given a queue, and what it has left is
read through the queues by turns. Between them a log page is read, a feature is set and read, an Abort names a
command that is complete, and a queue is disconnected and connected again.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nvme_tcp.test_sequences import Commands, succeeds
from storagetest.wire.block_sequence import BlockSequence, Operation
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Feature, LogPage, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Scratch, read_blocks

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3")]

COUNT = 120
"""Operations of one sequence (chosen): three rounds of all operations."""

QUEUES = 3
"""I/O queues of a sequence, if the controller grants as many (chosen)."""

CLOSED = 2.0
"""Seconds in which the connection of a disconnected queue is closed (chosen, as in test_queue_again.py)."""

TIMEOUTS = (600_000, 660_000, 900_000)
"""Keep Alive Timeouts in ms that are set (chosen): longer than a sequence."""


EVERY = 0xFFFFFFFF
"""NSID of a log page of the controller (Base 5.2.12.1.3)."""


class QueueCommands(Commands):
    """The operations of a sequence on ``queues``, by QID; ``queue`` is that of the current operation."""

    def __init__(self, session: ControllerSession, scratch: Scratch) -> None:
        first = session.io_queue(qid=1)
        super().__init__(session, first, scratch)
        granted = min(QUEUES, session.io_queues_granted)
        self.queues = {1: first} | {qid: session.io_queue(qid=qid) for qid in range(2, granted + 1)}
        self.timeout: int | None = None

    def sequence(self, seed: int) -> BlockSequence:
        """Return a sequence whose blocks are read through the queues by turns."""
        made = super().sequence(seed)

        def read(at: int, blocks: int) -> bytes:
            reader = self.queues[made.deal("QID that reads", tuple(self.queues))]
            return read_blocks(reader, self.scratch, blocks, at=at)

        made.read = read
        return made

    def on_a_queue(self, operation: Operation) -> Operation:
        """Return ``operation`` on the queue that is dealt for it."""
        name = getattr(operation, "__name__", "operation")

        def run(sequence: BlockSequence) -> None:
            qid = sequence.deal(f"QID of {name}", tuple(self.queues))
            self.queue = self.queues[qid]
            operation(sequence)
            sequence.log[-1] += f" on I/O queue {qid}"

        return run

    def operations(self) -> list[Operation]:
        """Return those of one queue, on each, and those between them."""
        made = [self.on_a_queue(one) for one in super().operations()]
        made += [self.log_page, self.abort, self.abort, self.features, self.features, self.namespaces]
        if self.session.controller["ofcs"] & 1:
            made += [self.on_a_queue(self.connect_again)] * 2
        return [*made, self.between_reads, self.between_reads]

    def between_reads(self, sequence: BlockSequence) -> None:
        """Read a range through each queue, write it through one, and read it through each again."""
        first, blocks = sequence.range("write between reads", self.limits.transfer, sizes=(1, 2, 8, 17))
        writer = sequence.deal("QID of a write between reads", tuple(self.queues))
        self.fill(sequence, first, blocks)
        for _ in self.queues:
            sequence.check(first, blocks)
        self.queue = self.queues[writer]
        self.put(sequence, first, blocks)
        for qid, queue in self.queues.items():
            found = read_blocks(queue, self.scratch, blocks, at=first)
            assert found == sequence.held(first, blocks), (
                f"NVM 3.3.4: I/O queue {qid} returns other data than I/O queue {writer} wrote, after "
                f"{sequence.history()}"
            )

    def then_write(self, sequence: BlockSequence) -> None:
        """Write a range through the queue that is dealt."""
        self.queue = self.queues[sequence.deal("QID of a write after a command", tuple(self.queues))]
        self.write(sequence)

    def log_page(self, sequence: BlockSequence) -> None:
        """Read the SMART log page, and write."""
        sequence.say("Get Log Page of the SMART log")
        succeeds(
            sequence, self.session.admin.run(admin.get_log_page(LogPage.SMART, 512, nsid=EVERY), reads=512)
        )
        self.then_write(sequence)

    def abort(self, sequence: BlockSequence) -> None:
        """Abort a command that is complete: nothing is aborted, and the next command is not, either."""
        qid = sequence.deal("QID of an Abort", tuple(self.queues))
        cid = self.queues[qid].submit(io.flush(self.scratch.nsid))
        sequence.say(f"a Flush on I/O queue {qid}")
        succeeds(sequence, self.queues[qid].wait(cid))
        sequence.say(f"an Abort of that Flush, which is complete, on I/O queue {qid}")
        done = self.session.admin.run(admin.abort(sqid=qid, cid=cid))
        succeeds(sequence, done)
        assert done.cqe.dw0 & 1, (
            f"Base 5.2.1.2: bit 0 is set if nothing was aborted, after {sequence.history()}"
        )
        self.queue = self.queues[qid]
        self.write(sequence)

    def features(self, sequence: BlockSequence) -> None:
        """Compare the Keep Alive Timeout with what was read after it was set; set another, and write."""
        current = admin.get_features(Feature.KATO)
        done = self.session.admin.run(current)
        if self.timeout is not None:
            succeeds(sequence, done)
            assert done.cqe.dw0 == self.timeout, (
                f"Base 5.2.26: the Keep Alive Timeout is {done.cqe.dw0} ms and was {self.timeout} ms when it "
                f"was last set, after {sequence.history()}"
            )
        value = sequence.deal("Keep Alive Timeout", TIMEOUTS)
        sequence.say(f"Set Features of a Keep Alive Timeout of {value} ms")
        # The suite's other cases judge whether it is supported, and how the value is rounded.
        if self.session.admin.run(admin.set_features(Feature.KATO, value)).ok:
            done = self.session.admin.run(current)
            succeeds(sequence, done)
            self.timeout = done.cqe.dw0
        self.then_write(sequence)

    def namespaces(self, sequence: BlockSequence) -> None:
        """The namespace stays in the list of active namespaces."""
        sequence.say("Identify of the active namespaces")
        assert self.scratch.nsid in self.session.namespaces(), (
            f"Base 5.2.13: namespace {self.scratch.nsid} is not in the list of active namespaces any more, "
            f"after {sequence.history()}"
        )
        self.then_write(sequence)

    def connect_again(self, sequence: BlockSequence) -> None:
        """Disconnect the queue, connect it again by its QID, and write through it and another one."""
        qid = next(one for one, queue in self.queues.items() if queue is self.queue)
        sequence.say(f"a Disconnect of I/O queue {qid}")
        done = self.queue.run(fabrics.disconnect())
        assert done.ok, f"Base 6.4: {status_name(done.status)} from {sequence.history()}"
        self.queue.wait_for_close(deadline=CLOSED)
        self.queue.close()
        self.queue = self.queues[qid] = self.session.io_queue(qid=qid)
        self.write(sequence)


KILLS = (
    "write-after-abort-lost", "write-after-log-lost", "write-after-set-features-lost",
    "write-after-disconnect-lost", "queue-2-zeroes-ignored", "queue-2-compare-passes", "queue-2-dsm-shifted",
    "queue-cache", "write-of-queue-again-lost", "kato-lost-with-queue",
)  # fmt: skip
"""Mutants that each sequence detects, whatever its seed."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.case(f"NVB-SEQUENCE-QUEUES-{seed}", kills=KILLS))
        for seed in (1, 2)
    ],
)
def test_blocks_have_the_data_that_the_commands_of_all_queues_left(
    session: ControllerSession, scratch: Scratch, seed: int
) -> None:
    commands = QueueCommands(session, scratch)
    if len(commands.queues) < 2:
        pytest.skip("the controller grants one I/O queue")
    commands.sequence(seed).run(commands.operations(), COUNT)
    faults = [fault for queue in commands.queues.values() for fault in queue.faults]
    assert not faults, "; ".join(faults)
