"""The reads at the edges of holes that the cases of NFSv3 and NFSv4 make."""

from __future__ import annotations

from collections.abc import Iterator

PAGE = 4096
"""Bytes of a page of most servers; ``SPARSE`` has its data in whole pages."""
_DATA = bytes(1 + number % 251 for number in range(PAGE))
SPARSE = bytes(2 * PAGE) + _DATA + bytes(2 * PAGE) + _DATA
"""What a file has whose pages 2 and 5 were written, and no others."""
WRITES = {2 * PAGE: _DATA, 5 * PAGE: _DATA}
"""The data of ``SPARSE`` by their offsets."""


def hole_edges() -> Iterator[tuple[int, int]]:
    """Yield offset and length of reads that begin or end in a hole, at a page or near it."""
    for begin in (0, 1, PAGE, PAGE + 1, 2 * PAGE - 2, 2 * PAGE - 1, 3 * PAGE - 1, 3 * PAGE + 1):
        for end in (2 * PAGE + 2, 3 * PAGE, 3 * PAGE + 1, 5 * PAGE + 1, 6 * PAGE):
            if begin < end:
                yield begin, end - begin
