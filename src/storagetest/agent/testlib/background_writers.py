"""Writers at work beside something that may lose their writes: a connection that ends, a path that goes.

    load = beside(blocks, path.drop)
    load.expect()                       # every write that was answered is there

Each writer goes round and round through places of its own, a generation a round, and waits for each answer.
So the last write that was answered in a place says what has to be there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from storagetest.agent.testlib.block_range import BlockRange
from storagetest.agent.testlib.concurrent import run_threads

__all__ = ["WriterStats", "with_background_writers"]

PAUSE = 0.1
"""Seconds of writing before and after what happens beside it."""


class WriterStats:
    """What the writers did. ``longest`` is how long a write took at most, in seconds."""

    def __init__(self, blocks: BlockRange, writers: int, places: int, width: int) -> None:
        self.blocks, self.places, self.width = blocks, places, width
        self.answered = [0] * writers
        self.longest = 0.0

    def write(self, who: int) -> None:
        """Make the next write of one of the writers."""
        turn, began = self.answered[who], time.monotonic()
        self.blocks.write(self._first(who, turn % self.places), self.width, 1 + turn // self.places)
        self.answered[who] += 1
        self.longest = max(self.longest, time.monotonic() - began)

    def expect(self) -> None:
        """Claim that in every place there is the last write that was answered."""
        for who, turns in enumerate(self.answered):
            for place in range(min(self.places, turns)):
                last = 1 + (turns - 1 - place) // self.places
                self.blocks.assert_generation(self._first(who, place), self.width, last)

    def _first(self, who: int, place: int) -> int:
        return (who * self.places + place) * self.width


def with_background_writers(
    blocks: BlockRange, what: Callable[[], object], *, writers: int = 4, places: int = 32, width: int = 1
) -> WriterStats:
    """Call ``what`` while ``writers`` write ``width`` blocks at a time, each in ``places`` of its own."""
    load = WriterStats(blocks, writers, places, width)
    over = threading.Event()

    def work(who: int) -> None:
        if who < writers:
            while not over.is_set():
                load.write(who)
            return
        try:
            time.sleep(PAUSE)
            what()
            time.sleep(PAUSE)
        finally:
            over.set()

    run_threads(work, writers + 1, over=over)
    return load
