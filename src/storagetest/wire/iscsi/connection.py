"""Framing of one direction of one connection: bytes in, PDUs out (RFC 7143 11.1, 11.2).

A :class:`PduReceiver` reads the bytes of one peer. Rules:

1. :meth:`~Framer.receive_data` takes bytes in any pieces. :meth:`~PduReceiver.next_event` returns the next
   :class:`ReceivedPdu`, or :data:`NEED_DATA`, or :data:`CLOSED` after :meth:`~Framer.receive_eof`.
2. A wrong digest is reported on the event and raises nothing; the caller decides whether it is an error.
3. A length over ``limit`` bytes, an unknown opcode, a broken AHS, or an end within a PDU raise
   :class:`~storagetest.errors.RemoteProtocolError` with the bytes. After it the stream has lost its framing,
   and the same error is raised again.
4. The caller enables digests between two PDUs: after the Login Response that ends the login.
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


class Signal(Enum):
    """Events that are not PDUs."""

    NEED_DATA = "need data"
    CLOSED = "closed"


NEED_DATA: Literal[Signal.NEED_DATA] = Signal.NEED_DATA
CLOSED: Literal[Signal.CLOSED] = Signal.CLOSED

LIMIT = 2**24 + 1024 + 64
"""Bytes of the longest possible PDU: a 24-bit data segment, 255 words of AHS, a header, two digests."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One PDU's bytes by segment, not decoded. ``raw`` is the whole PDU with digests and padding."""

    bhs: bytes
    ahs: bytes
    data: bytes
    padding: bytes
    raw: bytes
    header_digest: int | None = None
    data_digest: int | None = None

    @property
    def header_digest_wrong(self) -> bool:
        """Whether a header digest is present and wrong."""
        return self.header_digest is not None and self.header_digest != crc32c(self.bhs + self.ahs)

    @property
    def data_digest_wrong(self) -> bool:
        """Whether a data digest is present and wrong."""
        return self.data_digest is not None and self.data_digest != crc32c(self.data + self.padding)


@dataclass(frozen=True, slots=True)
class ReceivedPdu:
    """One PDU, with its bytes."""

    pdu: Pdu
    frame: Frame


class Framer:
    """Splits a stream into :class:`Frame` s, whatever their opcodes."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self.header_digest = False
        self.data_digest = False
        self._limit = limit
        self._buffer = bytearray()
        self._ended = False
        self._broken: str | None = None

    def receive_data(self, data: bytes) -> None:
        """Add received bytes to the buffer."""
        self._buffer += data

    def receive_eof(self) -> None:
        """Note that the peer sends no more."""
        self._ended = True

    @property
    def pending(self) -> bytes:
        """Bytes that are not yet a whole PDU."""
        return bytes(self._buffer)

    def next_frame(self) -> Frame | Signal:
        """Return the next frame, or a :class:`Signal`. Raises :class:`RemoteProtocolError` (rule 3)."""
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
        """Record that the stream has lost its framing, and return the error."""
        self._broken = message
        return RemoteProtocolError(message)

    def _sizes(self) -> tuple[int, int, int, int, int, int]:
        """Return the sizes of BHS, AHS, header digest, data, padding and data digest, in bytes."""
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


class PduReceiver(Framer):
    """A :class:`Framer` whose frames are decoded."""

    def next_event(self) -> ReceivedPdu | Signal:
        """Return the next PDU, or a :class:`Signal`. Raises :class:`RemoteProtocolError` (rule 3)."""
        frame = self.next_frame()
        if isinstance(frame, Signal):
            return frame
        try:
            return ReceivedPdu(decode(frame.bhs, frame.ahs, frame.data), frame)
        except RemoteProtocolError as error:
            raise self.fail(str(error)) from None
