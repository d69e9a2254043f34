"""Format a transcript as a text ladder: one arrow for each PDU, with its time and its fields.

A decoder belongs to one connection and receives each chunk in order, so it may keep state (half a PDU, the
digests that were negotiated). It returns the PDUs that this chunk completes. If it raises
:class:`~storagetest.errors.RemoteProtocolError`, the ladder shows the error, and from there on only the bytes
of that direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hexdump
from storagetest.wire.tcp import Chunk

Rung = tuple[str, Sequence[str]]
"""One PDU: a summary line, and lines of detail."""

Decoder = Callable[[bool, bytes], Iterable[Rung]]
"""``decoder(outgoing, data)``: the PDUs that ``data`` completes in that direction."""

_OUT, _IN = "──▶", "◀──"


def ladder(transcript: Sequence[Chunk], decoder: Decoder, *, title: str = "") -> str:
    """Return the text ladder of ``transcript``; times are milliseconds after the first chunk."""
    lines = [title] if title else []
    began = transcript[0].time if transcript else 0.0
    broken: set[bool] = set()
    for chunk in transcript:
        arrow = _OUT if chunk.outgoing else _IN
        lead = f"{(chunk.time - began) * 1000:10.3f}  {arrow}"
        if chunk.outgoing in broken:
            lines += _raw(lead, chunk.data)
            continue
        try:
            for summary, details in decoder(chunk.outgoing, chunk.data):
                lines.append(f"{lead} {summary}")
                lines += [f"{'':16}{detail}" for detail in details]
        except RemoteProtocolError as error:
            broken.add(chunk.outgoing)
            lines.append(f"{lead} not decoded: {error}")
            lines += _raw(lead, chunk.data)
    return "\n".join(lines) + "\n"


def _raw(lead: str, data: bytes) -> list[str]:
    return [f"{lead} {len(data)} bytes", *(f"{'':16}{line}" for line in hexdump(data, limit=96))]
