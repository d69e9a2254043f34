"""Record marking of RPC over TCP (RFC 5531 11): a record is one fragment or several; the last is marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short

LAST = 0x8000_0000
"""The highest bit of a fragment's header: the last fragment of the record (RFC 5531 11)."""

LIMIT = 4 * 1024 * 1024
"""The longest record that is received; a longer one is an error (chosen)."""

NEED_DATA: Literal["need data"] = "need data"


@dataclass(frozen=True, slots=True)
class RpcRecord:
    """A whole record: the ``data`` of its fragments, and the fragments' sizes."""

    data: bytes
    fragments: tuple[int, ...]


def fragment(data: bytes, *, last: bool = True, length: int | None = None) -> bytes:
    """Return ``data`` as a fragment; ``length`` overrides the size in its header."""
    size = len(data) if length is None else length
    return (size | (LAST if last else 0)).to_bytes(4, "big") + data


def frame(data: bytes, *sizes: int) -> bytes:
    """Return ``data`` as a record: fragments of ``sizes`` bytes, and a last one with the rest."""
    out, at = b"", 0
    for size in sizes:
        out += fragment(data[at : at + size], last=False)
        at += size
    return out + fragment(data[at:])


class RecordReceiver:
    """Cuts a stream into records. Sans-I/O: :meth:`receive_data`, then :meth:`next_event`."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._record = bytearray()
        self._fragments: list[int] = []

    @property
    def pending(self) -> bytes:
        """The bytes that are not yet part of a record that was returned."""
        return bytes(self._record + self._buffer)

    def receive_data(self, data: bytes) -> None:
        """Add bytes of the stream."""
        self._buffer += data

    def next_event(self) -> RpcRecord | Literal["need data"]:
        """Return the next record. Raises RemoteProtocolError if it is longer than the limit."""
        while len(self._buffer) >= 4:
            header = int.from_bytes(self._buffer[:4], "big")
            size = header & ~LAST
            if size + len(self._record) > self._limit:
                raise RemoteProtocolError(
                    f"RFC 5531 11: a record of more than {self._limit} bytes is announced: the header is "
                    f"{header:#010x} after {len(self._record)} bytes; {hex_short(bytes(self._buffer[4:]))}"
                )
            if len(self._buffer) < 4 + size:
                break
            self._record += self._buffer[4 : 4 + size]
            del self._buffer[: 4 + size]
            self._fragments.append(size)
            if header & LAST:
                record = RpcRecord(bytes(self._record), tuple(self._fragments))
                self._record.clear()
                self._fragments.clear()
                return record
        return NEED_DATA
