"""A file's bytes as the standards define them, in memory: the model of the cases of sequences."""

from __future__ import annotations

BLOCK = 4096


class ByteModel:
    """Size and data of a file of any size; what was never written reads as zeroes and takes no memory."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: dict[int, bytearray] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Return what a read returns: up to ``length`` bytes, none from the end of the file on."""
        end = min(self.size, offset + length)
        return self._bytes(offset, end) if end > offset else b""

    def write(self, offset: int, data: bytes) -> None:
        """Replace the bytes from ``offset`` on; a write past the end extends the file."""
        for number, start, end in _pieces(offset, offset + len(data)):
            block = self._blocks.setdefault(number, bytearray(BLOCK))
            at = number * BLOCK + start - offset
            block[start:end] = data[at : at + end - start]
        self.size = max(self.size, offset + len(data) if data else 0)

    def truncate(self, size: int) -> None:
        """Set the size; bytes beyond it are gone, and read as zeroes if the file grows again."""
        for number in [number for number in self._blocks if number * BLOCK >= size]:
            del self._blocks[number]
        if size % BLOCK and size // BLOCK in self._blocks:
            self._blocks[size // BLOCK][size % BLOCK :] = bytes(BLOCK - size % BLOCK)
        self.size = size

    def zero(self, offset: int, length: int) -> None:
        """Replace a range by zeroes; the size stays."""
        for number, start, end in _pieces(offset, offset + length):
            if number in self._blocks:
                self._blocks[number][start:end] = bytes(end - start)

    def extend(self, size: int) -> None:
        """Raise the size to ``size`` at least."""
        self.size = max(self.size, size)

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that were written since they were last cut."""
        return sorted(self._blocks)

    def _bytes(self, offset: int, end: int) -> bytes:
        zeroes = bytes(BLOCK)
        return b"".join(
            bytes(self._blocks.get(number, zeroes)[start:stop])
            for number, start, stop in _pieces(offset, end)
        )


def _pieces(offset: int, end: int) -> list[tuple[int, int, int]]:
    """Return (block, start in it, end in it) of each block of a range."""
    return [
        (number, max(offset - number * BLOCK, 0), min(end - number * BLOCK, BLOCK))
        for number in range(offset // BLOCK, -(-end // BLOCK))
    ]


def first_difference(found: bytes, wanted: bytes) -> str:
    """Return a phrase: where two byte strings differ, and in how many bytes. Empty if they are equal."""
    if found == wanted:
        return ""
    if len(found) != len(wanted):
        return f"{len(found)} bytes instead of {len(wanted)}"
    wrong = [at for at, (one, two) in enumerate(zip(found, wanted)) if one != two]
    zeroes = ", zeroes in their place" if not any(found[at] for at in wrong) else ""
    return f"{len(wrong)} wrong bytes from byte {wrong[0]} of the range to byte {wrong[-1]}{zeroes}"
