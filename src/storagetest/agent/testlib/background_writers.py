"""Run writers during an action that may lose their writes, for example a reset connection or a lost path.

    stats = with_background_writers(blocks, path.reset)
    stats.assert_written()              # every completed write is on the device

Each writer writes its own slots in turn, one generation per round, and waits for each write to complete.
Therefore the last completed write of a slot determines its contents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from storagetest.agent.testlib.block_range import BlockRange
from storagetest.agent.testlib.concurrent import run_threads

PAUSE = 0.1
"""Seconds of writing before and after the action (chosen)."""


class WriterStats:
    """The completed writes of each writer. ``longest`` is the longest time of a write, in seconds."""

    def __init__(self, blocks: BlockRange, writers: int, slots: int, width: int) -> None:
        self.blocks, self.slots, self.width = blocks, slots, width
        self.completed = [0] * writers
        self.longest = 0.0

    def write(self, writer: int) -> None:
        """Make the next write of a writer."""
        number, began = self.completed[writer], time.monotonic()
        self.blocks.write(self._first(writer, number % self.slots), self.width, 1 + number // self.slots)
        self.completed[writer] += 1
        self.longest = max(self.longest, time.monotonic() - began)

    def assert_written(self) -> None:
        """Assert that every slot holds its last completed write."""
        for writer, count in enumerate(self.completed):
            for slot in range(min(self.slots, count)):
                last = 1 + (count - 1 - slot) // self.slots
                self.blocks.assert_generation(self._first(writer, slot), self.width, last)

    def _first(self, writer: int, slot: int) -> int:
        return (writer * self.slots + slot) * self.width


def with_background_writers(
    blocks: BlockRange, action: Callable[[], object], *, writers: int = 4, slots: int = 32, width: int = 1
) -> WriterStats:
    """Call ``action`` while ``writers`` threads write ``width`` blocks at a time, each to its ``slots``."""
    stats = WriterStats(blocks, writers, slots, width)
    over = threading.Event()

    def work(number: int) -> None:
        if number < writers:
            while not over.is_set():
                stats.write(number)
            return
        try:
            time.sleep(PAUSE)
            action()
            time.sleep(PAUSE)
        finally:
            over.set()

    run_threads(work, writers + 1, over=over)
    return stats
