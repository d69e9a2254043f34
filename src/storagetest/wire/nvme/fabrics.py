"""The fabrics commands (NVM Express Base 2.3, section 6). Each function returns a command without its CID."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.codes import FABRICS, PROPERTY_SIZE, Fctype
from storagetest.wire.nvme.command import NO_SGL, Command

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
"""The well-known name of discovery subsystems (Base 3.1.3.3)."""

ANY_CONTROLLER = 0xFFFF
"""CNTLID that requests any controller, in the dynamic controller model (Base 6.3)."""

ANY_STATIC_CONTROLLER = 0xFFFE
"""CNTLID that requests any controller, in the static controller model, in which FFFFh is refused (6.3)."""

DATA_LENGTH = 1024
NQN_LENGTH = 256


@dataclass(frozen=True, slots=True)
class ConnectData:
    """The data of a Connect command (Base 6.3): 1024 bytes. ``subnqn`` and ``hostnqn`` may be raw bytes."""

    hostid: bytes
    cntlid: int
    subnqn: str | bytes
    hostnqn: str | bytes

    def encode(self) -> bytes:
        """Return the bytes; an NQN that is too long is cut, one given as ``bytes`` is not terminated."""
        return b"".join(
            (
                self.hostid[:16].ljust(16, b"\0"),
                struct.pack("<H", self.cntlid),
                bytes(238),
                _nqn(self.subnqn),
                _nqn(self.hostnqn),
                bytes(256),
            )
        )

    @classmethod
    def decode(cls, raw: bytes) -> ConnectData:
        """Read the data of a Connect command."""
        if len(raw) != DATA_LENGTH:
            raise RemoteProtocolError(f"Connect has {DATA_LENGTH} bytes of data, not {len(raw)} (6.3)")
        return cls(
            raw[:16], struct.unpack_from("<H", raw, 16)[0], *(_text(raw[at : at + 256]) for at in (256, 512))
        )


def _nqn(name: str | bytes) -> bytes:
    raw = name if isinstance(name, bytes) else name.encode() + b"\0"
    return raw[:NQN_LENGTH].ljust(NQN_LENGTH, b"\0")


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def connect(*, qid: int, sqsize: int, kato: int = 0, cattr: int = 0, recfmt: int = 0) -> Command:
    """Connect (6.3). ``sqsize`` is zero's based; ``kato`` in milliseconds."""
    return Command(
        FABRICS, nsid=Fctype.CONNECT, cdw10=recfmt | qid << 16, cdw11=sqsize | cattr << 16, cdw12=kato
    )


def property_get(offset: int, *, size: int | None = None) -> Command:
    """Property Get (6.5) of a property of ``size`` bytes (4 or 8)."""
    eight = (size or _size(offset)) == 8
    return Command(FABRICS, nsid=Fctype.PROPERTY_GET, dptr=NO_SGL, cdw10=int(eight), cdw11=offset)


def property_set(offset: int, value: int, *, size: int | None = None) -> Command:
    """Property Set (6.6)."""
    eight = (size or _size(offset)) == 8
    return Command(
        FABRICS,
        nsid=Fctype.PROPERTY_SET,
        dptr=NO_SGL,
        cdw10=int(eight),
        cdw11=offset,
        cdw12=value & 0xFFFFFFFF,
        cdw13=value >> 32,
    )


def _size(offset: int) -> int:
    return PROPERTY_SIZE.get(offset, 4)


def disconnect(*, recfmt: int = 0) -> Command:
    """Disconnect (6.4): ends an I/O queue."""
    return Command(FABRICS, nsid=Fctype.DISCONNECT, dptr=NO_SGL, cdw10=recfmt)


def authentication(fctype: Fctype, *, secp: int = 0xE9, spsp: int = 0x0101, length: int = 0) -> Command:
    """Authentication Send (6.2) or Receive (6.1)."""
    return Command(FABRICS, nsid=fctype, cdw10=spsp << 8 | secp << 24, cdw11=length)
