"""Format bytes for messages, in hexadecimal and cut to a limit."""

from __future__ import annotations

_WORD = 4


def hex_short(data: bytes, *, limit: int = 64) -> str:
    """Return ``data`` in hexadecimal, four bytes a word, cut: ``00018000 80000000 … (128 bytes)``."""
    head = data[:limit].hex(" ", -_WORD)
    if not data:
        return "(no bytes)"
    return head if len(data) <= limit else f"{head} … ({len(data)} bytes)"


def hexdump(data: bytes, *, limit: int = 256) -> list[str]:
    """Return ``data`` as lines of 16 bytes with their offset, cut after ``limit`` bytes."""
    lines = [f"{at:04x}  {data[at : at + 16].hex(' ', -_WORD)}" for at in range(0, min(len(data), limit), 16)]
    if len(data) > limit:
        lines.append(f"…     {len(data) - limit} more bytes")
    return lines
