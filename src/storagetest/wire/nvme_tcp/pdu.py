"""The PDUs of NVMe/TCP (NVM Express TCP Transport 1.0, section 3.6.2): encode, decode, override fields.

Theory: every PDU begins with a common header of eight bytes (3.6.2.1): type, flags, HLEN (length of the
header without digest), PDO (offset of the data) and PLEN (the whole PDU). After the header may come
HDGST, then padding up to PDO, then data, then DDGST. So a PDU describes its own framing: no negotiated state
is needed to cut it, and what was negotiated is checked afterwards (:mod:`.stream`).

Rules:

1. A PDU's class holds its fields; :func:`encode` computes the framing (HLEN, PDO, PLEN, flags, digests).
2. :func:`decode` is total: any bytes give a :class:`DecodedPdu`, or a :class:`PduError` that carries the
   Fatal Error Status and the Fatal Error Information of the receiver's TermReq (3.6.2.4, 3.6.2.5).
3. A wrong digest is no decoding error; it is in :attr:`DecodedPdu.header_digest_ok` and ``data_digest_ok``.
4. A wrong PDU is a valid one that is encoded and then changed by :func:`override_field`.

All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.bitfields import Field, octets, put
from storagetest.wire.crc import crc32c
from storagetest.wire.hexdump import hex_short

PORT = 4420
"""The port that IANA assigned to NVMe over Fabrics (3.1.2)."""

CH_LENGTH = 8
"""Bytes of the common header (3.6.2.1)."""

DIGEST_LENGTH = 4
TERM_DATA_MAX = 128
"""Bytes of the offending header that a TermReq can carry: PLEN is 24 to 152 (3.6.2.4, 3.6.2.5)."""

HPDA_MAX = 31
"""The largest alignment, in dwords and zero's based (3.6.2.2, 3.6.2.3)."""

MAXH2CDATA_MIN = 4096
"""The smallest MAXH2CDATA that a controller should send, in bytes (3.6.2.3)."""


class PduType(IntEnum):
    """PDU-Type (3.3, 3.6.2.1). KDReq and KDResp are of revision 1.1; not checked against its text."""

    ICREQ = 0x00
    ICRESP = 0x01
    H2C_TERM_REQ = 0x02
    C2H_TERM_REQ = 0x03
    CAPSULE_CMD = 0x04
    CAPSULE_RESP = 0x05
    H2C_DATA = 0x06
    C2H_DATA = 0x07
    R2T = 0x09
    KD_REQ = 0x0A
    KD_RESP = 0x0B


class Flag(IntFlag):
    """FLAGS of the common header; the PDU type decides which are defined."""

    HDGSTF = 0x01  # 3.6.2.6 to .10: HDGST is present
    DDGSTF = 0x02  # 3.6.2.6, .8, .9: DDGST is present
    LAST_PDU = 0x04  # 3.6.2.8, .9: the last PDU of this transfer
    SUCCESS = 0x08  # 3.6.2.9: the command is complete, no CapsuleResp follows


class Fes(IntEnum):
    """Fatal Error Status (3.6.2.4, 3.6.2.5)."""

    INVALID_HEADER_FIELD = 0x01  # FEI: the byte offset of the field
    SEQUENCE_ERROR = 0x02
    HEADER_DIGEST_ERROR = 0x03  # FEI: the digest that was received
    OUT_OF_RANGE = 0x04
    LIMIT_EXCEEDED = 0x05  # R2T limit (to the controller), data transfer limit (to the host)
    UNSUPPORTED_PARAMETER = 0x06  # FEI: the byte offset of the parameter


class PduError(RemoteProtocolError):
    """The peer's PDU is invalid; ``fes`` and ``fei`` are the fields of the TermReq for it."""

    def __init__(
        self, message: str, raw: bytes, *, fes: Fes = Fes.INVALID_HEADER_FIELD, fei: int = 0
    ) -> None:
        super().__init__(f"{message}: {hex_short(raw)}")
        self.fes = fes
        self.fei = fei
        self.raw = raw


def _fields(*fields: tuple[str, int, int]) -> Mapping[str, Field]:
    common = (("TYPE", 0, 1), ("FLAGS", 1, 1), ("HLEN", 2, 1), ("PDO", 3, 1), ("PLEN", 4, 4))
    return {name: octets(name, offset, size) for name, offset, size in common + fields}


_TERM = (("FES", 8, 2), ("FEI", 10, 4), ("RSVD", 14, 10))
_DATA = (("CCCID", 8, 2), ("TTAG", 10, 2), ("DATAO", 12, 4), ("DATAL", 16, 4), ("RSVD", 20, 4))

FIELDS: Mapping[PduType, Mapping[str, Field]] = {
    PduType.ICREQ: _fields(
        ("PFV", 8, 2), ("HPDA", 10, 1), ("DGST", 11, 1), ("MAXR2T", 12, 4), ("RSVD", 16, 112)
    ),
    PduType.ICRESP: _fields(
        ("PFV", 8, 2), ("CPDA", 10, 1), ("DGST", 11, 1), ("MAXH2CDATA", 12, 4), ("RSVD", 16, 112)
    ),
    PduType.H2C_TERM_REQ: _fields(*_TERM),
    PduType.C2H_TERM_REQ: _fields(*_TERM),
    PduType.CAPSULE_CMD: _fields(("CCSQE", 8, 64)),
    PduType.CAPSULE_RESP: _fields(("RCCQE", 8, 16)),
    PduType.H2C_DATA: _fields(*_DATA),
    PduType.C2H_DATA: _fields(("CCCID", 8, 2), ("RSVD0", 10, 2), *_DATA[2:]),
    PduType.R2T: _fields(("CCCID", 8, 2), ("TTAG", 10, 2), ("R2TO", 12, 4), ("R2TL", 16, 4), ("RSVD", 20, 4)),
    PduType.KD_REQ: _fields(),
    PduType.KD_RESP: _fields(),
}
"""Every field of every PDU (3.6.2.2 to 3.6.2.10): for encoding, decoding, overriding, and the FEI."""


def _body_struct(fields: Mapping[str, Field]) -> struct.Struct:
    """Return the header after the common one: numbers of up to four bytes, else bytes; RSVD is zero."""
    codes = {1: "B", 2: "H", 4: "I"}
    return struct.Struct(
        "<"
        + "".join(
            f"{field.size}x" if name.startswith("RSVD") else codes.get(field.size, f"{field.size}s")
            for name, field in fields.items()
            if field.offset >= CH_LENGTH
        )
    )


_BODIES = {pdu_type: _body_struct(fields) for pdu_type, fields in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class PduFormat:
    """Properties of a PDU type: its name, HLEN, direction, defined flags, section."""

    name: str
    hlen: int
    to_controller: bool
    flags: Flag
    section: str


_DIGESTS = Flag.HDGSTF | Flag.DDGSTF

KINDS: Mapping[PduType, PduFormat] = {
    PduType.ICREQ: PduFormat("ICReq", 128, True, Flag(0), "3.6.2.2"),
    PduType.ICRESP: PduFormat("ICResp", 128, False, Flag(0), "3.6.2.3"),
    PduType.H2C_TERM_REQ: PduFormat("H2CTermReq", 24, True, Flag(0), "3.6.2.4"),
    PduType.C2H_TERM_REQ: PduFormat("C2HTermReq", 24, False, Flag(0), "3.6.2.5"),
    PduType.CAPSULE_CMD: PduFormat("CapsuleCmd", 72, True, _DIGESTS, "3.6.2.6"),
    PduType.CAPSULE_RESP: PduFormat("CapsuleResp", 24, False, Flag.HDGSTF, "3.6.2.7"),
    PduType.H2C_DATA: PduFormat("H2CData", 24, True, _DIGESTS | Flag.LAST_PDU, "3.6.2.8"),
    PduType.C2H_DATA: PduFormat("C2HData", 24, False, _DIGESTS | Flag.LAST_PDU | Flag.SUCCESS, "3.6.2.9"),
    PduType.R2T: PduFormat("R2T", 24, False, Flag.HDGSTF, "3.6.2.10"),
    # Kickstart discovery (1.1): reserved on a connection between host and controller, so not decoded.
    PduType.KD_REQ: PduFormat("KDReq", 28, True, Flag(0), "3.6.2"),
    PduType.KD_RESP: PduFormat("KDResp", 28, False, Flag(0), "3.6.2"),
}


@dataclass(frozen=True, slots=True)
class ICReq:
    """Initialize Connection Request (3.6.2.2). ``hpda`` in dwords and ``maxr2t`` are zero's based."""

    pfv: int = 0
    hpda: int = 0
    header_digest: bool = False
    data_digest: bool = False
    maxr2t: int = 0


@dataclass(frozen=True, slots=True)
class ICResp:
    """Initialize Connection Response (3.6.2.3). ``cpda`` in dwords, zero's based; ``maxh2cdata`` in bytes."""

    pfv: int = 0
    cpda: int = 0
    header_digest: bool = False
    data_digest: bool = False
    maxh2cdata: int = 0x20000


@dataclass(frozen=True, slots=True)
class H2CTermReq:
    """Host to Controller Terminate Connection Request (3.6.2.4); ``data`` is the offending PDU's header."""

    fes: int
    fei: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class C2HTermReq:
    """Controller to Host Terminate Connection Request (3.6.2.5); ``data`` is the offending PDU's header."""

    fes: int
    fei: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class CapsuleCmd:
    """Command Capsule (3.6.2.6): a submission queue entry of 64 bytes and in-capsule ``data``."""

    sqe: bytes
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class CapsuleResp:
    """Response Capsule (3.6.2.7): a completion queue entry of 16 bytes."""

    cqe: bytes


@dataclass(frozen=True, slots=True)
class H2CData:
    """Host to Controller Data (3.6.2.8); ``offset`` from the start of the command's data, in bytes."""

    cccid: int
    ttag: int
    offset: int
    data: bytes
    last: bool = True


@dataclass(frozen=True, slots=True)
class C2HData:
    """Controller to Host Data (3.6.2.9)."""

    cccid: int
    offset: int
    data: bytes
    last: bool = True
    success: bool = False


@dataclass(frozen=True, slots=True)
class R2T:
    """Ready to Transfer (3.6.2.10): ``length`` bytes from ``offset`` of the command's data are requested."""

    cccid: int
    ttag: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class KdReq:
    """Kickstart Discovery Request: only its bytes after the common header."""

    body: bytes


@dataclass(frozen=True, slots=True)
class KdResp:
    """Kickstart Discovery Response: only its bytes after the common header."""

    body: bytes


Pdu = (
    ICReq
    | ICResp
    | H2CTermReq
    | C2HTermReq
    | CapsuleCmd
    | CapsuleResp
    | H2CData
    | C2HData
    | R2T
    | KdReq
    | KdResp
)

_TYPES: Mapping[type, PduType] = {
    ICReq: PduType.ICREQ,
    ICResp: PduType.ICRESP,
    H2CTermReq: PduType.H2C_TERM_REQ,
    C2HTermReq: PduType.C2H_TERM_REQ,
    CapsuleCmd: PduType.CAPSULE_CMD,
    CapsuleResp: PduType.CAPSULE_RESP,
    H2CData: PduType.H2C_DATA,
    C2HData: PduType.C2H_DATA,
    R2T: PduType.R2T,
    KdReq: PduType.KD_REQ,
    KdResp: PduType.KD_RESP,
}

_CH = struct.Struct("<BBBBI")


@dataclass(frozen=True, slots=True)
class DecodedPdu:
    """A decoded PDU with its bytes and its framing.

    ``header_digest_ok`` and ``data_digest_ok`` are None if there is no such digest.
    """

    pdu: Pdu
    raw: bytes
    type: PduType
    flags: int
    pdo: int
    header_digest_ok: bool | None
    data_digest_ok: bool | None

    @property
    def header_digest(self) -> int | None:
        """HDGST as it was received."""
        if self.header_digest_ok is None:
            return None
        at = self.raw[2]
        return int.from_bytes(self.raw[at : at + DIGEST_LENGTH], "little")

    @property
    def padding(self) -> bytes:
        """PAD: the bytes before the data that align them (3.3)."""
        return self.raw[self.raw[2] + DIGEST_LENGTH * (self.header_digest_ok is not None) : self.pdo]


def encode(pdu: Pdu, *, header_digest: bool = False, data_digest: bool = False, alignment: int = 0) -> bytes:
    """Return the bytes of ``pdu`` with valid framing.

    The digests are those that were negotiated; ``alignment`` is the receiver's CPDA or HPDA, as in the PDU
    (dwords, zero's based). Raises :class:`LocalProtocolError` for a field that does not fit.
    """
    kind_type = _TYPES[type(pdu)]
    kind = KINDS[kind_type]
    try:
        body, data, flags = _body(pdu)
    except (struct.error, OverflowError) as error:
        raise LocalProtocolError(f"{pdu!r:.200} cannot be encoded: {error}") from None
    header_digest = header_digest and Flag.HDGSTF in kind.flags
    data_digest = data_digest and Flag.DDGSTF in kind.flags and bool(data)
    flags |= Flag.HDGSTF * header_digest | Flag.DDGSTF * data_digest
    end = CH_LENGTH + len(body) + DIGEST_LENGTH * header_digest
    pdo = 0
    if data and Flag.DDGSTF in kind.flags:
        step = (alignment + 1) * 4
        pdo = -(-end // step) * step
    padding = max(pdo - end, 0)
    plen = end + padding + len(data) + DIGEST_LENGTH * data_digest
    header = _CH.pack(kind_type, flags, min(CH_LENGTH + len(body), 255), pdo & 0xFF, plen) + body
    out = [header]
    if header_digest:
        out.append(_digest(header))
    out += [bytes(padding), data]
    if data_digest:
        out.append(_digest(data))
    return b"".join(out)


def _digest(data: bytes) -> bytes:
    return crc32c(data).to_bytes(DIGEST_LENGTH, "little")


def _body(pdu: Pdu) -> tuple[bytes, bytes, int]:
    """Return the header after the common one, the data, and the flags that are not digests'."""
    pack = _BODIES[_TYPES[type(pdu)]].pack
    match pdu:
        case ICReq(pfv, pda, header, data, last) | ICResp(pfv, pda, header, data, last):
            return pack(pfv, pda, header | data << 1, last), b"", 0
        case H2CTermReq(fes, fei, term_data) | C2HTermReq(fes, fei, term_data):
            return pack(fes, fei), term_data, 0
        case CapsuleCmd(sqe, in_capsule):
            return _exactly(sqe, 64), in_capsule, 0
        case CapsuleResp(cqe):
            return _exactly(cqe, 16), b"", 0
        case H2CData(cccid, ttag, offset, payload, is_last):
            return pack(cccid, ttag, offset, len(payload)), payload, Flag.LAST_PDU * is_last
        case C2HData(cccid, offset, payload, is_last, success):
            flags = Flag.LAST_PDU * is_last | Flag.SUCCESS * success
            return pack(cccid, offset, len(payload)), payload, flags
        case R2T(cccid, ttag, offset, length):
            return pack(cccid, ttag, offset, length), b"", 0
        case KdReq(body) | KdResp(body):
            return body, b"", 0


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise struct.error(f"{size} bytes are required, not {len(data)}")
    return data


def plen_of(head: bytes) -> int | None:
    """Return PLEN once ``head`` holds the common header, else None."""
    return int.from_bytes(head[4:8], "little") if len(head) >= CH_LENGTH else None


def decode(raw: bytes) -> DecodedPdu:
    """Decode one whole PDU (``raw`` is PLEN bytes). Raises :class:`PduError`."""
    pdu_type = _type(raw)
    kind = KINDS[pdu_type]
    _, flags, hlen, pdo, _ = _CH.unpack_from(raw)
    if pdu_type in (PduType.KD_REQ, PduType.KD_RESP):
        opaque = KdReq(raw[CH_LENGTH:]) if pdu_type is PduType.KD_REQ else KdResp(raw[CH_LENGTH:])
        return DecodedPdu(opaque, raw, pdu_type, flags, pdo, None, None)
    if hlen != kind.hlen:
        raise PduError(f"{kind.name}: HLEN is {hlen}, not {kind.hlen} ({kind.section})", raw, fei=2)
    if len(raw) < hlen:
        raise PduError(f"{kind.name}: PLEN is less than HLEN", raw, fei=4)
    header_ok = data_ok = None
    end = hlen
    if flags & kind.flags & Flag.HDGSTF:
        end += DIGEST_LENGTH
        if len(raw) < end:
            raise PduError(f"{kind.name}: no space for HDGST", raw, fei=4)
        header_ok = raw[hlen:end] == _digest(raw[:hlen])
    data = b""
    if Flag.DDGSTF in kind.flags:
        data, data_ok = _data(raw, kind, flags, pdo, end)
    elif kind.hlen == 24 and Flag.HDGSTF not in kind.flags:  # a TermReq
        data = raw[hlen:]
        if len(data) > TERM_DATA_MAX:
            raise PduError(f"{kind.name}: PLEN is over 152", raw, fei=4)
    elif len(raw) != end:
        raise PduError(f"{kind.name}: PLEN is not {end}", raw, fei=4)
    return DecodedPdu(_read(pdu_type, raw, data, flags), raw, pdu_type, flags, pdo, header_ok, data_ok)


def _type(raw: bytes) -> PduType:
    if len(raw) < CH_LENGTH or plen_of(raw) != len(raw):
        raise PduError("PLEN is not the number of bytes", raw, fei=4)
    try:
        return PduType(raw[0])
    except ValueError:
        raise PduError(f"PDU type {raw[0]:02x}h is reserved (3.3)", raw) from None


def _data(raw: bytes, kind: PduFormat, flags: int, pdo: int, end: int) -> tuple[bytes, bool | None]:
    """Return the data of a PDU, and whether its digest is correct (None: no digest)."""
    if len(raw) == end and not flags & Flag.DDGSTF:
        return b"", None
    if pdo < end or pdo > len(raw):
        raise PduError(f"{kind.name}: PDO is {pdo}", raw, fei=3)
    if not flags & Flag.DDGSTF:
        return raw[pdo:], None
    stop = len(raw) - DIGEST_LENGTH
    if stop < pdo:
        raise PduError(f"{kind.name}: no space for DDGST", raw, fei=4)
    return raw[pdo:stop], raw[stop:] == _digest(raw[pdo:stop])


def _read(pdu_type: PduType, raw: bytes, data: bytes, flags: int) -> Pdu:
    values = _BODIES[pdu_type].unpack_from(raw, CH_LENGTH)
    match pdu_type:
        case PduType.ICREQ | PduType.ICRESP:
            pfv, pda, digests, last = values
            cls = ICReq if pdu_type is PduType.ICREQ else ICResp
            return cls(pfv, pda, bool(digests & 1), bool(digests & 2), last)
        case PduType.H2C_TERM_REQ | PduType.C2H_TERM_REQ:
            term = H2CTermReq if pdu_type is PduType.H2C_TERM_REQ else C2HTermReq
            return term(values[0], values[1], data)
        case PduType.CAPSULE_CMD:
            return CapsuleCmd(values[0], data)
        case PduType.CAPSULE_RESP:
            return CapsuleResp(*values)
        case PduType.R2T:
            return R2T(*values)
    if values[-1] != len(data):
        raise PduError(
            f"{KINDS[pdu_type].name}: DATAL is {values[-1]}, but {len(data)} bytes of data are present",
            raw,
            fei=4,
        )
    last_pdu = bool(flags & Flag.LAST_PDU)
    if pdu_type is PduType.H2C_DATA:
        cccid, ttag, offset, _ = values
        return H2CData(cccid, ttag, offset, data, last_pdu)
    cccid, offset, _ = values
    return C2HData(cccid, offset, data, last_pdu, bool(flags & Flag.SUCCESS))


def override_field(raw: bytes, field: str, value: int | bytes, *, redigest: bool = True) -> bytes:
    """Return ``raw`` with ``field`` overridden: a name of :data:`FIELDS`, or HDGST or DDGST.

    Unless ``redigest`` is false, a header digest is computed again, so that only ``field`` is wrong.
    ``value`` is a number, or bytes of the field's size.
    """
    pdu_type, flags, hlen = PduType(raw[0]), raw[1], raw[2]
    if field == "HDGST":
        position = octets(field, hlen, DIGEST_LENGTH)
    elif field == "DDGST":
        position = octets(field, len(raw) - DIGEST_LENGTH, DIGEST_LENGTH)
    else:
        position = FIELDS[pdu_type][field]
    new = value if isinstance(value, bytes) else value.to_bytes(position.size, "little")
    if len(new) != position.size:
        raise LocalProtocolError(f"{field} has {position.size} bytes, not {len(new)}")
    out = put(raw, position, new)
    if redigest and field not in ("HDGST", "DDGST") and flags & Flag.HDGSTF & KINDS[pdu_type].flags:
        out = out[:hlen] + _digest(out[:hlen]) + out[hlen + DIGEST_LENGTH :]
    return out
