"""Queue entries and SGL descriptors (NVM Express Base 2.3, sections 4.1 to 4.3). Little-endian throughout."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io, StatusCode, status_name

PSDT_SGL = 0x40
"""PSDT 01b: the data pointer is an SGL, as for every Admin and I/O command over fabrics (Base 4.1.1).

In a fabrics command these bits are 00b or 10b (Base 4.1.2). Linux sends 01b with every command and accepts no
other value, so this host sends it too, except in the cases that test it (NVF-PSDT-…)."""

_SQE = struct.Struct("<BBHIIIQ16s6I")
_CQE = struct.Struct("<QHHHH")


@dataclass(frozen=True, slots=True)
class Command:
    """A submission queue entry (Base 4.1.1; of fabrics commands 4.1.2).

    In a fabrics command (opcode 7Fh) ``nsid`` holds FCTYPE, and ``cdw10`` to ``cdw15`` hold bytes 40 to 63.
    """

    opcode: int
    cid: int = 0
    nsid: int = 0
    flags: int = PSDT_SGL
    cdw2: int = 0
    cdw3: int = 0
    mptr: int = 0
    dptr: bytes = bytes(16)
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    cdw13: int = 0
    cdw14: int = 0
    cdw15: int = 0

    def encode(self) -> bytes:
        """Return the 64 bytes. Raises :class:`LocalProtocolError` for a field that does not fit."""
        try:
            return _SQE.pack(
                self.opcode,
                self.flags,
                self.cid,
                self.nsid,
                self.cdw2,
                self.cdw3,
                self.mptr,
                self.dptr,
                self.cdw10,
                self.cdw11,
                self.cdw12,
                self.cdw13,
                self.cdw14,
                self.cdw15,
            )
        except struct.error as error:
            raise LocalProtocolError(f"{self!r:.200} cannot be encoded: {error}") from None

    @classmethod
    def decode(cls, raw: bytes) -> Command:
        """Read a submission queue entry of 64 bytes."""
        if len(raw) != _SQE.size:
            raise RemoteProtocolError(f"an SQE has 64 bytes, not {len(raw)}: {hex_short(raw)}")
        opcode, flags, cid, nsid, cdw2, cdw3, mptr, dptr, *words = _SQE.unpack(raw)
        return cls(opcode, cid, nsid, flags, cdw2, cdw3, mptr, dptr, *words)


@dataclass(frozen=True, slots=True)
class Cqe:
    """A completion queue entry (Base 4.2.1; over fabrics there is no phase tag, Base 4.2.2).

    ``result`` is dwords 0 and 1. ``status`` is the status type << 8 | code; see
    :class:`~storagetest.wire.nvme.codes.StatusCode`.
    """

    cid: int
    status: int = StatusCode.SUCCESS
    result: int = 0
    sqhd: int = 0
    sqid: int = 0
    more: bool = False
    dnr: bool = False
    phase: bool = False
    crd: int = 0

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.status == StatusCode.SUCCESS

    @property
    def dw0(self) -> int:
        """The command-specific result of most commands."""
        return self.result & 0xFFFFFFFF

    def encode(self) -> bytes:
        """Return the 16 bytes."""
        status = self.phase | (self.status & 0x7FF) << 1 | self.crd << 12 | self.more << 14 | self.dnr << 15
        return _CQE.pack(self.result, self.sqhd, self.sqid, self.cid, status)

    @classmethod
    def decode(cls, raw: bytes) -> Cqe:
        """Read a completion queue entry of 16 bytes."""
        if len(raw) != _CQE.size:
            raise RemoteProtocolError(f"a CQE has 16 bytes, not {len(raw)}: {hex_short(raw)}")
        result, sqhd, sqid, cid, status = _CQE.unpack(raw)
        return cls(
            cid=cid,
            status=status >> 1 & 0x7FF,
            result=result,
            sqhd=sqhd,
            sqid=sqid,
            more=bool(status >> 14 & 1),
            dnr=bool(status >> 15),
            phase=bool(status & 1),
            crd=status >> 12 & 3,
        )

    def __str__(self) -> str:
        return f"CID {self.cid} {status_name(self.status)}" + (" DNR" if self.dnr else "")


def sgl(kind: int, subtype: int, *, address: int = 0, length: int = 0) -> bytes:
    """Return one SGL descriptor (Base 4.3.2): its type and subtype, an address or offset, a length."""
    return struct.pack("<QI3xB", address, length, kind << 4 | subtype)


def in_capsule(length: int, *, offset: int = 0) -> bytes:
    """Return the SGL of data in the capsule, ``offset`` bytes after its SQE: Data Block, Offset (3.3.2)."""
    return sgl(0x0, 0x1, address=offset, length=length)


def transport_sgl(length: int) -> bytes:
    """Return the SGL of data in the transport's PDUs: Transport Data Block, Transport (3.3.2)."""
    return sgl(0x5, 0xA, length=length)


NO_SGL = bytes(16)
"""The SGL of a command without data."""


def command_name(command: Command, *, admin: bool) -> str:
    """Return the name of a command; ``admin`` selects the opcodes of the admin queue."""
    kinds: tuple[type[Fctype] | type[Admin] | type[Io], int]
    if command.opcode == FABRICS:
        kinds = (Fctype, command.nsid & 0xFF)
    else:
        kinds = (Admin if admin else Io, command.opcode)
    try:
        return kinds[0](kinds[1]).name.replace("_", " ").title()
    except ValueError:
        return f"opcode {command.opcode:02x}h"
