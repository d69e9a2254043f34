"""Encoding of all iSCSI PDUs: common header fields, additional headers, overriding of fields, digests.

Rules:

1. A PDU is encoded into an :class:`EncodedPdu`. :meth:`EncodedPdu.override_fields` changes any field before
   :meth:`EncodedPdu.wire` adds the digests. :meth:`EncodedPdu.wire` can also make digests and padding wrong.
2. ``lun`` is the 8-byte field as a number (SAM-5 4.7); :func:`flat_lun` returns one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.bitfields import Field, Value, bitfield, layout_of, pack, put, uint
from storagetest.wire.crc import crc32c
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import NO_TAG, Opcode

BHS_SIZE = 48
"""Bytes of the Basic Header Segment (RFC 7143 11.2.1)."""

_FRAMING = (
    bitfield("opcode", 0, 0, 6),  # 11.2.1.2
    uint("ahs_words", 4, 1),  # TotalAHSLength, 11.2.1.5
    uint("data_length", 5, 3),  # DataSegmentLength, 11.2.1.6
)
"""Fields of every header that :meth:`Pdu.parts` computes: opcode and lengths (RFC 7143 11.2.1)."""

AHS_EXTENDED_CDB, AHS_BIDIRECTIONAL = 1, 2
"""AHSType (RFC 7143 11.2.2.1)."""


def flat_lun(lun: int) -> int:
    """Return the 8-byte field of a logical unit number below 16384 (SAM-5 4.7: peripheral or flat)."""
    return lun << 48 if lun < 256 else (0x4000 | lun) << 48


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


@dataclass(frozen=True, slots=True)
class Ahs:
    """One Additional Header Segment (RFC 7143 11.2.2); ``data`` is AHS-Specific, its first byte included."""

    kind: int
    data: bytes

    def encode(self) -> bytes:
        """Return AHSLength (of the specific bytes alone), AHSType, the specific bytes and padding."""
        return _padded((len(self.data)).to_bytes(2, "big") + bytes((self.kind,)) + self.data)

    @staticmethod
    def decode_all(data: bytes) -> tuple[Ahs, ...]:
        """Read the segments in ``data``. Raises :class:`RemoteProtocolError` if a length is past the end."""
        segments, rest = [], data
        while rest:
            length = int.from_bytes(rest[:2], "big")
            if len(rest) < 4 or 3 + length > len(rest):
                raise RemoteProtocolError(
                    f"iSCSI: an AHS has length {length}, but {len(rest)} bytes are left: {hex_short(data)}"
                )
            segments.append(Ahs(rest[2], rest[3 : 3 + length]))
            rest = rest[len(_padded(rest[: 3 + length])) :]
        return tuple(segments)


@dataclass(frozen=True, slots=True)
class EncodedPdu:
    """An encoded PDU before its digests. ``layout`` has the fields that :meth:`override_fields` changes."""

    bhs: bytes
    ahs: bytes = b""
    data: bytes = b""
    layout: tuple[Field, ...] = _FRAMING

    def override_fields(self, **overrides: Value) -> EncodedPdu:
        """Return a copy with header fields overridden; an unknown name raises :class:`LocalProtocolError`."""
        fields = {field.name: field for field in self.layout}
        bhs = self.bhs
        for name, value in overrides.items():
            if name not in fields:
                raise LocalProtocolError(
                    f"no field {name!r} in this header; its fields: {', '.join(sorted(fields))}"
                )
            bhs = put(bhs, fields[name], value)
        return EncodedPdu(bhs, self.ahs, self.data, self.layout)

    def override_bytes(self, offset: int, value: bytes) -> EncodedPdu:
        """Return a copy with raw bytes of the header overridden, for example reserved bits."""
        return EncodedPdu(
            self.bhs[:offset] + value + self.bhs[offset + len(value) :], self.ahs, self.data, self.layout
        )

    def wire(
        self,
        *,
        header_digest: bool = False,
        data_digest: bool = False,
        header_digest_xor: int = 0,
        data_digest_xor: int = 0,
        padding: bytes | None = None,
    ) -> bytes:
        """Return the PDU's bytes with digests; a non-zero ``…_xor`` is XORed into a digest to make it wrong.

        The data digest covers the padding (RFC 7143 11.2.3) and is absent without data.
        """
        header = self.bhs + self.ahs
        out = header
        if header_digest:
            out += (crc32c(header) ^ header_digest_xor).to_bytes(4, "little")
        if self.data:
            data = _padded(self.data) if padding is None else self.data + padding
            out += data
            if data_digest:
                out += (crc32c(data) ^ data_digest_xor).to_bytes(4, "little")
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Pdu:
    """Base of all PDUs. A header field is annotated with its position; ``data`` is unpadded."""

    OPCODE: ClassVar[Opcode]

    itt: Annotated[int, uint("itt", 16, 4)] = NO_TAG  # 11.2.1.8
    data: bytes = b""
    ahs: tuple[Ahs, ...] = ()

    def parts(self) -> EncodedPdu:
        """Return the encoded PDU, with correct lengths."""
        ahs = b"".join(segment.encode() for segment in self.ahs)
        values: dict[str, Value] = {
            "opcode": self.OPCODE,
            "ahs_words": len(ahs) // 4,
            "data_length": len(self.data),
        }
        values |= {field.name: getattr(self, field.name) for field in layout_of(type(self))}
        layout = header_layout(type(self))
        try:
            return EncodedPdu(pack(BHS_SIZE, layout, values), ahs, self.data, layout)
        except ValueError as error:
            raise LocalProtocolError(f"{type(self).__name__}: {error}") from None

    def encode(self) -> bytes:
        """Return the PDU without digests."""
        return self.parts().wire()

    def summary(self) -> str:
        """Return one line: the class name, the fields that are not zero, then the length of the data."""
        shown = []
        for field in layout_of(type(self)):
            value = getattr(self, field.name)
            if value in (False, b"") or (value == 0 and not field.name.endswith("_sn")):
                continue
            if isinstance(value, bytes):
                shown.append(f"{field.name}={value.hex()}")
            elif field.flag:
                shown.append(field.name)
            else:
                wide = field.size > 4 or field.name in {"itt", "ttt", "referenced_itt"}
                shown.append(f"{field.name}={value:#x}" if wide else f"{field.name}={value}")
        if self.data:
            shown.append(f"data[{len(self.data)}]")
        return f"{type(self).__name__} {' '.join(shown)}"


def header_layout(kind: type[Pdu]) -> tuple[Field, ...]:
    """Return every defined field of the header of ``kind``."""
    return (*_FRAMING, *layout_of(kind))
