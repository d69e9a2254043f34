"""The bytes of one NVMe/TCP connection as events, for either side of it. Sans-I/O.

Theory: one side feeds what it received with :meth:`Stream.receive_data` and takes events with
:meth:`Stream.next_event` until that says :data:`NEED_DATA`. Which PDU may come in which state is one table
(3.1, 3.5): the first PDU is an ICReq (or ICResp), it comes once, and after a TermReq nothing comes.

Rules:

1. Total: an event, NEED_DATA, or a :class:`~storagetest.wire.nvme_tcp.pdu.PduError`; after an error the same
   error for ever, because a stream that lost its framing cannot find it again.
2. A PDU that announces more than ``limit`` bytes is an error at its common header, not after 4 GiB.
3. A wrong header digest is fatal (3.5); a wrong data digest is an event whose ``data_digest_ok`` is False,
   because the connection lives on.
4. What was negotiated (:attr:`Stream.digests`, :attr:`Stream.alignment`) is held against what follows.
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
    Fes,
    Flag,
    PduError,
    PduType,
    Received,
    decode,
    plen_of,
)

__all__ = [
    "NEED_DATA",
    "Digests",
    "EndOfStream",
    "Event",
    "NeedData",
    "Role",
    "State",
    "Stream",
    "make_splitter",
]

LIMIT = 16 * 1024 * 1024
"""Bytes of the largest PDU that is accepted: no transfer of a case's comes near."""


class Role(Enum):
    """Whose received bytes these are."""

    HOST = auto()
    CONTROLLER = auto()


class State(Enum):
    """Where a connection stands."""

    NEW = auto()
    READY = auto()
    TERMINATED = auto()


class NeedData(Enum):
    """The type of :data:`NEED_DATA`, so that it can be told apart by type checkers."""

    NEED_DATA = auto()


NEED_DATA = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The peer sends no more. ``leftover`` is what it left unfinished."""

    leftover: bytes


@dataclass(frozen=True, slots=True)
class Digests:
    """Which digests the PDUs after ICReq and ICResp carry (3.3.1.1: both sides must have asked)."""

    header: bool = False
    data: bool = False


Event = Received | NeedData | EndOfStream

_FLOW: Mapping[Role, Mapping[tuple[State, PduType], State]] = {
    Role.CONTROLLER: {
        (State.NEW, PduType.ICREQ): State.READY,
        (State.READY, PduType.CAPSULE_CMD): State.READY,
        (State.READY, PduType.H2C_DATA): State.READY,
        (State.NEW, PduType.H2C_TERM_REQ): State.TERMINATED,
        (State.READY, PduType.H2C_TERM_REQ): State.TERMINATED,
    },
    Role.HOST: {
        (State.NEW, PduType.ICRESP): State.READY,
        (State.READY, PduType.CAPSULE_RESP): State.READY,
        (State.READY, PduType.C2H_DATA): State.READY,
        (State.READY, PduType.R2T): State.READY,
        (State.NEW, PduType.C2H_TERM_REQ): State.TERMINATED,
        (State.READY, PduType.C2H_TERM_REQ): State.TERMINATED,
    },
}
"""(state, PDU) → state. What is not here is a PDU Sequence Error, or a PDU of the wrong direction."""


class Stream:
    """What one side receives. ``limit`` is the largest PLEN accepted."""

    def __init__(self, role: Role, *, limit: int = LIMIT) -> None:
        self.role = role
        self.state = State.NEW
        self.digests: Digests | None = None
        self.alignment = 0
        self._limit = limit
        self._buffer = bytearray()
        self._ended = False
        self._error: PduError | None = None

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the peer's; none at all means that it has closed."""
        if data:
            self._buffer += data
        else:
            self._ended = True

    def next_event(self) -> Event:
        """Return the next event; see the module's rules."""
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
        """Refuse at the common header what can never become a PDU that we accept."""
        if not any(head[0] == known for known in PduType):
            raise PduError(f"PDU type {head[0]:02x}h is reserved (3.3)", head, fes=Fes.INVALID_HEADER_FIELD)
        kind = KINDS[PduType(head[0])]
        if kind.to_controller != (self.role is Role.CONTROLLER):
            raise PduError(f"{kind.name} goes the other way", head, fes=Fes.INVALID_HEADER_FIELD)
        if plen < CH_LENGTH or plen > self._limit:
            raise PduError(f"{kind.name}: PLEN is {plen}", head, fes=Fes.INVALID_HEADER_FIELD, fei=4)

    def _check_header_digest(self, raw: bytes) -> None:
        """Before any other field is believed: what the digest says of them (3.5)."""
        if not (self.digests and self.digests.header and Flag.HDGSTF in KINDS[PduType(raw[0])].flags):
            return
        hlen = KINDS[PduType(raw[0])].hlen
        if len(raw) < hlen + DIGEST_LENGTH or not raw[1] & Flag.HDGSTF:
            return  # the rules on PLEN and FLAGS say it better
        said = int.from_bytes(raw[hlen : hlen + DIGEST_LENGTH], "little")
        # HLEN itself may be the byte that was hit, so the digest is taken over what HLEN has to be.
        if said != crc32c(raw[:hlen]):
            raise PduError("HDGST is wrong (3.5)", raw, fes=Fes.HEADER_DIGEST_ERROR, fei=said)

    def _check(self, received: Received) -> None:
        name, raw = KINDS[received.type].name, received.raw
        if (self.state, received.type) not in _FLOW[self.role]:
            why = f"{name} has no place in a connection that is {self.state.name} (3.1)"
            raise PduError(why, raw, fes=Fes.SEQUENCE_ERROR)
        if self.digests is not None:
            self._check_digest_flags(received)
        if received.pdo and received.pdo % ((self.alignment + 1) * 4):
            why = f"{name}: PDO {received.pdo} is not a multiple of {(self.alignment + 1) * 4} (3.3)"
            raise PduError(why, raw, fes=Fes.INVALID_HEADER_FIELD, fei=3)

    def _check_digest_flags(self, received: Received) -> None:
        assert self.digests is not None
        kind = KINDS[received.type]
        for flag, wanted, there in (
            (Flag.HDGSTF, self.digests.header, received.header_digest_ok is not None),
            (Flag.DDGSTF, self.digests.data and bool(received.pdo), received.data_digest_ok is not None),
        ):
            if flag in kind.flags and wanted != there:
                why = f"{kind.name}: {flag.name} is {int(there)}, but {int(wanted)} was negotiated (3.3.1.1)"
                raise PduError(why, received.raw, fes=Fes.INVALID_HEADER_FIELD, fei=1)


def make_splitter() -> Callable[[bytes], list[bytes]]:
    """Return a function that is fed bytes and returns the whole PDUs so far, undecoded and unjudged.

    It raises :class:`ValueError` once PLEN cannot be (a ladder or a proxy wants to see what is wrong, too).
    """
    buffer = bytearray()

    def cut(data: bytes) -> list[bytes]:
        buffer.extend(data)
        return list(_whole(buffer))

    return cut


def _whole(buffer: bytearray) -> Iterator[bytes]:
    while (plen := plen_of(bytes(buffer[:CH_LENGTH]))) is not None:
        if plen < CH_LENGTH or plen > LIMIT:
            raise ValueError(f"PLEN is {plen}")
        if len(buffer) < plen:
            return
        yield bytes(buffer[:plen])
        del buffer[:plen]
