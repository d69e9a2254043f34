"""Bytes of XDR (RFC 4506): a packer that remembers where each field stands, and an unpacker that is total.

Invariants:

1. :class:`Packer` records the position of every field under its path (``what.name``, ``entries[2].cookie``),
   so that :meth:`Encoded.override` can replace it after encoding. The length word of variable-length data is
   ``PATH.length``, its padding is ``PATH.padding``.
2. :class:`Unpacker` raises nothing but :class:`~storagetest.errors.RemoteProtocolError`, and never allocates
   more than the data that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.hexdump import hex_short

Span = tuple[int, int]
"""Start and end of a field in the encoded bytes."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded bytes, and the span of each field by its path."""

    data: bytes
    spans: Mapping[str, Span] = field(default_factory=dict)

    def override(self, path: str, value: int | bytes) -> Encoded:
        """Replace the field at ``path``; an ``int`` keeps the field's width, ``bytes`` may have another size.

        Raises LocalProtocolError if there is no such field.
        """
        if path not in self.spans:
            raise LocalProtocolError(f"no field {path!r}; there are {', '.join(self.spans)}")
        start, end = self.spans[path]
        if isinstance(value, int):
            value = (value % (1 << 8 * (end - start))).to_bytes(end - start, "big")
        return self._replaced(start, end, value)

    def cut(self, path: str) -> Encoded:
        """Remove the field at ``path`` and all that follows it."""
        start = self.spans[path][0]
        return Encoded(self.data[:start], {key: span for key, span in self.spans.items() if span[1] <= start})

    def __add__(self, other: Encoded | bytes) -> Encoded:
        """Append ``other``; its spans move by the length of this."""
        at = len(self.data)
        if isinstance(other, bytes):
            return Encoded(self.data + other, self.spans)
        moved = {path: (start + at, end + at) for path, (start, end) in other.spans.items()}
        return Encoded(self.data + other.data, {**self.spans, **moved})

    def _replaced(self, start: int, end: int, value: bytes) -> Encoded:
        by = len(value) - (end - start)
        spans = {
            path: (first if first <= start else first + by, last if last <= start else last + by)
            for path, (first, last) in self.spans.items()
        }
        return Encoded(self.data[:start] + value + self.data[end:], spans)


class Packer:
    """Collects encoded bytes and the spans of their fields."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._spans: dict[str, Span] = {}
        self._open: list[tuple[str, int]] = [("", 0)]
        """The path and the start of each field that is not complete, the innermost last."""

    def at(self, name: str) -> Self:
        """Encode what follows, in a ``with`` statement, as the field ``name``; ``[2]`` is an element."""
        path = self._open[-1][0]
        self._open.append((f"{path}.{name}" if path and name[0] != "[" else path + name, len(self._data)))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        path, start = self._open.pop()
        self._spans[path] = (start, len(self._data))

    def integer(self, value: int, size: int, *, signed: bool, what: str) -> None:
        """Append an integer of ``size`` bytes. Raises LocalProtocolError if it does not fit."""
        try:
            self._data += value.to_bytes(size, "big", signed=signed)
        except (OverflowError, AttributeError, TypeError):
            raise LocalProtocolError(f"{self._open[-1][0]}: {value!r} is no {what}") from None

    def raw(self, data: bytes) -> None:
        """Append bytes as they are."""
        self._data += data

    def padded(self, data: bytes) -> None:
        """Append bytes and the zero bytes up to a multiple of four (RFC 4506 4.9, 4.10)."""
        self._data += data
        with self.at("padding"):
            self._data += b"\0" * (-len(data) % 4)

    def finish(self) -> Encoded:
        """Return what was packed."""
        return Encoded(bytes(self._data), dict(self._spans))


class Unpacker:
    """Reads XDR from ``data``. ``faults`` has a sentence for each padding byte that is not zero."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0
        self.faults: list[str] = []

    @property
    def remaining(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self.data) - self.offset

    def take(self, count: int, what: str) -> bytes:
        """Return the next ``count`` bytes. Raises RemoteProtocolError if there are fewer."""
        if count > self.remaining:
            raise self.error(f"{what}: {count} bytes are announced, {self.remaining} remain")
        start, self.offset = self.offset, self.offset + count
        return self.data[start : self.offset]

    def integer(self, size: int, *, signed: bool, what: str) -> int:
        """Return an integer of ``size`` bytes."""
        return int.from_bytes(self.take(size, what), "big", signed=signed)

    def padded(self, count: int, what: str) -> bytes:
        """Return ``count`` bytes, and skip their padding."""
        data = self.take(count, what)
        if any(padding := self.take(-count % 4, f"padding of {what}")):
            self.faults.append(f"RFC 4506 4.10: the padding of {what} is {padding.hex()}, not zero")
        return data

    def error(self, text: str) -> RemoteProtocolError:
        """Return an error with the bytes around the position."""
        start = max(0, self.offset - 16)
        return RemoteProtocolError(
            f"XDR at byte {self.offset} of {len(self.data)}: {text}; "
            f"bytes from {start}: {hex_short(self.data[start : start + 48])}"
        )

    def finish(self, what: str) -> None:
        """Raise RemoteProtocolError if bytes are left."""
        if self.remaining:
            raise self.error(f"{self.remaining} bytes follow {what}")
