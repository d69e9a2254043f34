"""Bytes in, PDUs out: the framing of one direction of one connection (RFC 7143 11.1, 11.2).

A :class:`Connection` reads what one peer sends. Rules:

1. :meth:`~Framer.receive_data` takes bytes in any pieces; :meth:`~Connection.next_event` gives the next
   :class:`Received`, or :data:`NEED_DATA`, or :data:`CLOSED` after :meth:`~Connection.receive_eof`.
2. A digest that is wrong is reported on the event and never an error: whether it is one, the reader says.
3. A length over ``limit`` bytes, an unknown opcode, a broken AHS, or an end within a PDU raise
   :class:`~storagetest.errors.RemoteProtocolError` with the bytes; after it the stream has no frame any more,
   and the same error is raised again.
4. Digests start when the reader says so, between two PDUs: after the Login Response that ends the login.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from storagetest.errors import RemoteProtocolError
from storagetest.wire.crc import crc32c
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.encoding import BHS_SIZE, Pdu
from storagetest.wire.iscsi.pdu import decode

__all__ = ["CLOSED", "NEED_DATA", "Connection", "Frame", "Framer", "Received", "Signal"]


class Signal(Enum):
    """What is no PDU."""

    NEED_DATA = "need data"
    CLOSED = "closed"


NEED_DATA: Literal[Signal.NEED_DATA] = Signal.NEED_DATA
CLOSED: Literal[Signal.CLOSED] = Signal.CLOSED

LIMIT = 2**24 + 1024 + 64
"""The longest PDU there can be: a 24-bit data segment, 255 words of AHS, a header, two digests."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One PDU's bytes, cut apart but not decoded. ``raw`` is all of it, digests and padding included."""

    bhs: bytes
    ahs: bytes
    data: bytes
    padding: bytes
    raw: bytes
    header_digest: int | None = None
    data_digest: int | None = None

    @property
    def header_digest_wrong(self) -> bool:
        """Whether a header digest is there and wrong."""
        return self.header_digest is not None and self.header_digest != crc32c(self.bhs + self.ahs)

    @property
    def data_digest_wrong(self) -> bool:
        """Whether a data digest is there and wrong."""
        return self.data_digest is not None and self.data_digest != crc32c(self.data + self.padding)


@dataclass(frozen=True, slots=True)
class Received:
    """One PDU, with its bytes."""

    pdu: Pdu
    frame: Frame


class Framer:
    """Cuts a stream into :class:`Frame` s; any opcode will do."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self.header_digest = False
        self.data_digest = False
        self._limit = limit
        self._buffer = bytearray()
        self._ended = False
        self._broken: str | None = None

    def receive_data(self, data: bytes) -> None:
        """Take in bytes."""
        self._buffer += data

    def receive_eof(self) -> None:
        """Note that the peer sends no more."""
        self._ended = True

    @property
    def pending(self) -> bytes:
        """Bytes that are not yet a whole PDU."""
        return bytes(self._buffer)

    def next_frame(self) -> Frame | Signal:
        """Return the next frame; see the module's rules."""
        if self._broken is not None:
            raise RemoteProtocolError(self._broken)
        buffer = self._buffer
        sizes = self._sizes() if len(buffer) >= BHS_SIZE else None
        if sizes is None or len(buffer) < sum(sizes):
            if not self._ended:
                return NEED_DATA
            if buffer:
                raise self.fail(f"iSCSI: the connection ended within a PDU: {hex_short(bytes(buffer))}")
            return CLOSED
        ahs, header_digest, data, padding, data_digest = sizes[1:]
        at = BHS_SIZE + ahs
        frame = Frame(
            bhs=bytes(buffer[:BHS_SIZE]),
            ahs=bytes(buffer[BHS_SIZE:at]),
            header_digest=int.from_bytes(buffer[at : at + 4], "little") if header_digest else None,
            data=bytes(buffer[at + header_digest : at + header_digest + data]),
            padding=bytes(buffer[at + header_digest + data : at + header_digest + data + padding]),
            data_digest=(
                int.from_bytes(buffer[sum(sizes) - 4 : sum(sizes)], "little") if data_digest else None
            ),
            raw=bytes(buffer[: sum(sizes)]),
        )
        del buffer[: sum(sizes)]
        return frame

    def fail(self, message: str) -> RemoteProtocolError:
        """Remember that the stream has no frame any more, and return the error."""
        self._broken = message
        return RemoteProtocolError(message)

    def _sizes(self) -> tuple[int, int, int, int, int, int]:
        """Sizes of: BHS, AHS, header digest, data, padding, data digest."""
        ahs = self._buffer[4] * 4
        data = int.from_bytes(self._buffer[5:8], "big")
        if BHS_SIZE + ahs + data > self._limit:
            head = hex_short(bytes(self._buffer[:BHS_SIZE]))
            raise self.fail(f"iSCSI: a PDU of {BHS_SIZE + ahs + data} bytes, over {self._limit}: {head}")
        return (
            BHS_SIZE,
            ahs,
            4 if self.header_digest else 0,
            data,
            -data % 4,
            4 if self.data_digest and data else 0,
        )


class Connection(Framer):
    """A :class:`Framer` whose frames are decoded."""

    def next_event(self) -> Received | Signal:
        """Return the next PDU; see the module's rules."""
        frame = self.next_frame()
        if isinstance(frame, Signal):
            return frame
        try:
            return Received(decode(frame.bhs, frame.ahs, frame.data), frame)
        except RemoteProtocolError as error:
            raise self.fail(str(error)) from None
