"""Decode the received bytes of one NVMe/TCP connection into events, for either side. Sans-I/O.

Theory: the caller passes received bytes to :meth:`Stream.receive_data` and calls :meth:`Stream.next_event`
until it returns :data:`NEED_DATA`. One table has the PDUs that each state allows (3.1, 3.5): the first PDU is
an ICReq (or ICResp), it comes once, and after a TermReq nothing comes.

Rules:

1. The result is an event, NEED_DATA, or a :class:`~storagetest.wire.nvme_tcp.pdu.PduError`. After an error
   the same error is raised again, because the stream has lost its framing.
2. A PLEN over ``limit`` bytes is an error at the common header, not after 4 GiB of data.
3. A wrong header digest is fatal (3.5); a wrong data digest is an event whose ``data_digest_ok`` is False,
   because the connection continues.
4. Later PDUs are checked against the negotiated :attr:`Stream.digests` and :attr:`Stream.alignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from storagetest.wire.crc import crc32c
from storagetest.wire.nvme_tcp.pdu import (
    CH_LENGTH,
    DIGEST_LENGTH,
    KINDS,
    DecodedPdu,
    Fes,
    Flag,
    PduError,
    PduType,
    decode,
    plen_of,
)

LIMIT = 16 * 1024 * 1024
"""Bytes of the largest PDU that is accepted (chosen: far above any transfer of a case)."""


class StreamRole(Enum):
    """The side that receives the bytes."""

    HOST = auto()
    CONTROLLER = auto()


class StreamState(Enum):
    """State of a connection (3.1, 3.5)."""

    NEW = auto()
    READY = auto()
    TERMINATED = auto()


class NeedData(Enum):
    """The type of :data:`NEED_DATA`, so that type checkers can distinguish it."""

    NEED_DATA = auto()


NEED_DATA = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The peer has closed. ``leftover`` has the bytes of an incomplete PDU."""

    leftover: bytes


@dataclass(frozen=True, slots=True)
class Digests:
    """Which digests the PDUs after ICReq and ICResp carry (3.3.1.1: both sides requested them)."""

    header: bool = False
    data: bool = False


Event = DecodedPdu | NeedData | EndOfStream

_FLOW: Mapping[StreamRole, Mapping[tuple[StreamState, PduType], StreamState]] = {
    StreamRole.CONTROLLER: {
        (StreamState.NEW, PduType.ICREQ): StreamState.READY,
        (StreamState.READY, PduType.CAPSULE_CMD): StreamState.READY,
        (StreamState.READY, PduType.H2C_DATA): StreamState.READY,
        (StreamState.NEW, PduType.H2C_TERM_REQ): StreamState.TERMINATED,
        (StreamState.READY, PduType.H2C_TERM_REQ): StreamState.TERMINATED,
    },
    StreamRole.HOST: {
        (StreamState.NEW, PduType.ICRESP): StreamState.READY,
        (StreamState.READY, PduType.CAPSULE_RESP): StreamState.READY,
        (StreamState.READY, PduType.C2H_DATA): StreamState.READY,
        (StreamState.READY, PduType.R2T): StreamState.READY,
        (StreamState.NEW, PduType.C2H_TERM_REQ): StreamState.TERMINATED,
        (StreamState.READY, PduType.C2H_TERM_REQ): StreamState.TERMINATED,
    },
}
"""(state, PDU) → state. Other pairs are a PDU Sequence Error, or a PDU of the wrong direction."""


class Stream:
    """The bytes that one side receives. ``limit`` is the largest PLEN accepted."""

    def __init__(self, role: StreamRole, *, limit: int = LIMIT) -> None:
        self.role = role
        self.state = StreamState.NEW
        self.digests: Digests | None = None
        self.alignment = 0
        self._limit = limit
        self._buffer = bytearray()
        self._ended = False
        self._error: PduError | None = None

    def receive_data(self, data: bytes) -> None:
        """Add bytes from the peer; empty ``data`` means that it has closed."""
        if data:
            self._buffer += data
        else:
            self._ended = True

    @property
    def unfinished(self) -> int:
        """Bytes that were received of a PDU that is not complete."""
        return len(self._buffer)

    def next_event(self) -> Event:
        """Return the next event. Raises :class:`~storagetest.wire.nvme_tcp.pdu.PduError` (rules 1 to 4)."""
        if self._error is not None:
            raise self._error
        try:
            return self._next()
        except PduError as error:
            self._error = error
            raise

    def _next(self) -> Event:
        plen = plen_of(bytes(self._buffer[:CH_LENGTH]))
        if plen is not None:
            self._check_common(bytes(self._buffer[: max(CH_LENGTH, min(self._buffer[2], 128))]), plen)
        if plen is None or len(self._buffer) < plen:
            return EndOfStream(bytes(self._buffer)) if self._ended else NEED_DATA
        raw = bytes(self._buffer[:plen])
        self._check_header_digest(raw)
        received = decode(raw)
        self._check(received)
        del self._buffer[:plen]
        self.state = _FLOW[self.role][self.state, received.type]
        return received

    def _check_common(self, head: bytes, plen: int) -> None:
        """Check the common header. Raises :class:`PduError` for a wrong type, direction or PLEN."""
        if not any(head[0] == known for known in PduType):
            raise PduError(f"PDU type {head[0]:02x}h is reserved (3.3)", head)
        kind = KINDS[PduType(head[0])]
        if kind.to_controller != (self.role is StreamRole.CONTROLLER):
            raise PduError(f"{kind.name} has the wrong direction", head)
        if plen < CH_LENGTH or plen > self._limit:
            raise PduError(f"{kind.name}: PLEN is {plen}", head, fei=4)

    def _check_header_digest(self, raw: bytes) -> None:
        """Check the header digest, before any other field is used (3.5)."""
        if not (self.digests and self.digests.header and Flag.HDGSTF in KINDS[PduType(raw[0])].flags):
            return
        hlen = KINDS[PduType(raw[0])].hlen
        if len(raw) < hlen + DIGEST_LENGTH or not raw[1] & Flag.HDGSTF:
            return  # the checks of PLEN and FLAGS report it
        digest = int.from_bytes(raw[hlen : hlen + DIGEST_LENGTH], "little")
        # HLEN itself may be the damaged byte, so the digest covers the length that HLEN must have.
        if digest != crc32c(raw[:hlen]):
            raise PduError("HDGST is wrong (3.5)", raw, fes=Fes.HEADER_DIGEST_ERROR, fei=digest)

    def _check(self, received: DecodedPdu) -> None:
        name, raw = KINDS[received.type].name, received.raw
        if (self.state, received.type) not in _FLOW[self.role]:
            reason = f"{name} is not allowed in a connection that is {self.state.name} (3.1)"
            raise PduError(reason, raw, fes=Fes.SEQUENCE_ERROR)
        if self.digests is not None:
            self._check_digest_flags(received)
        if received.pdo and received.pdo % ((self.alignment + 1) * 4):
            reason = f"{name}: PDO {received.pdo} is not a multiple of {(self.alignment + 1) * 4} (3.3)"
            raise PduError(reason, raw, fei=3)

    def _check_digest_flags(self, received: DecodedPdu) -> None:
        assert self.digests is not None
        kind = KINDS[received.type]
        for flag, negotiated, present in (
            (Flag.HDGSTF, self.digests.header, received.header_digest_ok is not None),
            (Flag.DDGSTF, self.digests.data and bool(received.pdo), received.data_digest_ok is not None),
        ):
            if flag in kind.flags and negotiated != present:
                values = f"is {int(present)}, but {int(negotiated)} was negotiated (3.3.1.1)"
                raise PduError(f"{kind.name}: {flag.name} {values}", received.raw, fei=1)


def make_splitter() -> Callable[[bytes], list[bytes]]:
    """Return a function that takes bytes and returns the PDUs that they complete, not decoded or checked.

    It raises :class:`ValueError` for an impossible PLEN only, because a ladder or a proxy also needs invalid
    PDUs.
    """
    buffer = bytearray()

    def split(data: bytes) -> list[bytes]:
        buffer.extend(data)
        return list(_complete_pdus(buffer))

    return split


def _complete_pdus(buffer: bytearray) -> Iterator[bytes]:
    while (plen := plen_of(bytes(buffer[:CH_LENGTH]))) is not None:
        if plen < CH_LENGTH or plen > LIMIT:
            raise ValueError(f"PLEN is {plen}")
        if len(buffer) < plen:
            return
        yield bytes(buffer[:plen])
        del buffer[:plen]
