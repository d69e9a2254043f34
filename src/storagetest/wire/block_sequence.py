"""A seeded random sequence of block commands, each compared with a model of the blocks.

The engine knows no protocol: a suite gives it operations, which make a command and note its effect in the
model. After each operation the blocks around it are read, by ``read``, and at the end all blocks are. A block
that was deallocated is unknown until it is written: a target may return its data or something else. A
mismatch is an AssertionError that names the last operations.

The seed selects an order, and not what occurs. Sizes, places and whatever else an operation varies are dealt
from decks, one for each purpose: each shape of a deck comes before one of them comes again. A sequence with
at least as many operations as its decks have shapes has them all, whatever the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storagetest.wire.sequences.dealer import Dealer

AGAIN = 0
"""In place of a size: a range that was used before."""

SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129, *[AGAIN] * 6)
"""Blocks of a range: around the powers of two (chosen)."""

Operation = Callable[["BlockSequence"], None]


class BlockSequence(Dealer):
    """The model of ``blocks`` blocks of ``size`` bytes; ``read(first, count)`` returns the target's data."""

    def __init__(self, blocks: int, size: int, seed: int, read: Callable[[int, int], bytes]) -> None:
        super().__init__(seed)
        self.blocks, self.size, self.read = blocks, size, read
        self.known: list[bytes | None] = [None] * blocks
        self.log: list[str] = []
        self.via = ""  # appended to the operations of the log: how they reach the target
        self._used: list[tuple[int, int]] = []
        self._near: tuple[int, int] = (0, 0)

    def run(self, operations: Sequence[Operation], count: int) -> None:
        """Make ``count`` operations: each of them in each round, in another order each time."""
        for _ in range(count):
            self.deal("operation", operations)(self)
            first, blocks = self._near
            start = max(0, first - 1)
            self.check(start, min(self.blocks, first + blocks + 1) - start)
        self.check(0, self.blocks)

    def range(
        self, purpose: str, most: int, *, sizes: Sequence[int] = SIZES, odd: bool | None = None
    ) -> tuple[int, int]:
        """Return (first block, number) of up to ``most`` blocks; the number is dealt from ``sizes``.

        ``odd``: whether the first block has an odd number; None: any.
        """
        size = self.deal(f"blocks of a {purpose}", sizes)
        if size == AGAIN and self._used:
            first, count = self.random.choice(self._used[-4:])
        else:
            count = min(size or 1, most, self.blocks - 1)
            first = self.random.randrange(self.blocks - count)
            if odd is not None and first % 2 != odd:
                first += 1
            self._used.append((first, count))
        return self.near(first, min(count, most))

    def near(self, first: int, blocks: int) -> tuple[int, int]:
        """Note the range that the operation is about, and return it."""
        self._near = first, blocks
        return self._near

    def data(self, blocks: int) -> bytes:
        """Return data of which no two blocks are equal."""
        return self.random.randbytes(blocks * self.size)

    def say(self, operation: str) -> None:
        """Note an operation for the messages."""
        self.log.append(operation + self.via)

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

    def shows(self, first: int, blocks: int) -> bool:
        """Whether all blocks of a range are known and have data that no other operation leaves: no zeroes."""
        return all(one is not None and any(one) for one in self.known[first : first + blocks])

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
