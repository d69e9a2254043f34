"""``blocks``: a range of the case's own on a device that may be overwritten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Blocks", "give"]

SPAN = 4 << 20
"""Bytes of one case's range."""


class Blocks:
    """``fd`` is open for reading and writing; ``offset`` and ``length`` (bytes) are the range's.

    ``logical`` and ``physical`` are the sizes of a block, in bytes.
    """

    def __init__(self, path: str, fd: int, offset: int, length: int, logical: int, physical: int) -> None:
        self.path, self.fd, self.offset, self.length = path, fd, offset, length
        self.logical, self.physical = logical, physical


@contextmanager
def give(path: str, case: dict[str, Any]) -> Iterator[Blocks]:
    """Open the device and lend the range; what is written there stays."""
    fd = os.open(path, os.O_RDWR)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        offset = case["index"] * SPAN % max(SPAN, size // SPAN * SPAN)
        queue = f"/sys/class/block/{os.path.basename(os.path.realpath(path))}/queue"
        sizes = [_number(f"{queue}/{name}_block_size", 512) for name in ("logical", "physical")]
        yield Blocks(path, fd, offset, min(SPAN, size), *sizes)
    finally:
        os.close(fd)


def _number(path: str, otherwise: int) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return otherwise
