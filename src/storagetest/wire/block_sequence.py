"""A seeded random sequence of block commands, each compared with a model of the blocks.

The engine knows no protocol: a suite gives it operations, which make a command and note its effect in the
model. After each operation the blocks around it are read, by ``read``, and at the end all blocks are. A block
that was deallocated is unknown until it is written: a target may return its data or something else. A
mismatch is an AssertionError that names the last operations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

SIZES = (1, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129)
"""Blocks of a range: around the powers of two (chosen)."""

Operation = Callable[["BlockSequence"], None]


class BlockSequence:
    """The model of ``blocks`` blocks of ``size`` bytes; ``read(first, count)`` returns the target's data."""

    def __init__(self, blocks: int, size: int, seed: int, read: Callable[[int, int], bytes]) -> None:
        self.blocks, self.size, self.read = blocks, size, read
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.known: list[bytes | None] = [None] * blocks
        self.log: list[str] = []
        self._used: list[tuple[int, int]] = []
        self._near: tuple[int, int] = (0, 0)

    def run(self, operations: Sequence[Operation], count: int) -> None:
        """Make ``count`` operations: each of them in each round, in another order each time."""
        order: list[Operation] = []
        for _ in range(count):
            if not order:
                order = self.random.sample(list(operations), len(operations))
            order.pop()(self)
            first, blocks = self._near
            start = max(0, first - 1)
            self.check(start, min(self.blocks, first + blocks + 1) - start)
        self.check(0, self.blocks)

    def range(self, most: int) -> tuple[int, int]:
        """Return (first block, number) of up to ``most`` blocks, often a range that was used before."""
        if self._used and self.random.random() < 0.5:
            first, count = self.random.choice(self._used[-4:])
        else:
            count = min(self.random.choice(SIZES), self.blocks)
            first = self.random.randrange(self.blocks - count + 1)
            self._used.append((first, count))
        self._near = first, min(count, most)
        return self._near

    def data(self, blocks: int) -> bytes:
        """Return data of which no two blocks are equal."""
        return self.random.randbytes(blocks * self.size)

    def say(self, operation: str) -> None:
        """Note an operation for the messages."""
        self.log.append(operation)

    def wrote(self, first: int, data: bytes) -> None:
        """Note that blocks have new data."""
        for at in range(len(data) // self.size):
            self.known[first + at] = data[at * self.size : (at + 1) * self.size]

    def forgot(self, first: int, blocks: int) -> None:
        """Note that blocks were deallocated."""
        self.known[first : first + blocks] = [None] * blocks

    def held(self, first: int, blocks: int) -> bytes | None:
        """Return the data of a range, or None if a block of it is unknown."""
        some = self.known[first : first + blocks]
        return b"".join(one for one in some if one is not None) if None not in some else None

    def check(self, first: int, blocks: int) -> None:
        """Read a range and compare it with the model."""
        found = self.read(first, blocks)
        assert len(found) == blocks * self.size, (
            f"a read of {blocks} blocks returns {len(found)} bytes instead of {blocks * self.size}, after "
            f"{self.history()}"
        )
        wrong = [
            at
            for at in range(blocks)
            if self.known[first + at] not in (None, found[at * self.size : (at + 1) * self.size])
        ]
        assert not wrong, (
            f"{len(wrong)} of {blocks} blocks from block {first} on have {self._guess(wrong, found)}, the "
            f"first of them block {first + wrong[0]}, after {self.history()}"
        )

    def _guess(self, wrong: Sequence[int], found: bytes) -> str:
        seen = found[wrong[0] * self.size : (wrong[0] + 1) * self.size]
        if not any(seen):
            return "zeroes in place of their data"
        others = [at for at, one in enumerate(self.known) if one == seen]
        return f"the data of another block ({others[0]})" if others else "other data than was written"

    def history(self, last: int = 6) -> str:
        """Return the last operations as a phrase."""
        before = self.log[-last:-1]
        return (self.log[-1] if self.log else "nothing") + (
            f" (before it: {'; '.join(before)})" if before else ""
        )
