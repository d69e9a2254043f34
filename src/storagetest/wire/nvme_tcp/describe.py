"""NVMe/TCP decoder for ladders: one summary line for each PDU, and its SGL, dwords or offending header."""

from __future__ import annotations

from collections.abc import Iterator

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.ladder import Decoder, Rung
from storagetest.wire.nvme.codes import FABRICS, Fctype
from storagetest.wire.nvme.command import Command, Cqe, command_name
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    Fes,
    Flag,
    H2CData,
    H2CTermReq,
    ICReq,
    ICResp,
    PduError,
    decode,
)
from storagetest.wire.nvme_tcp.stream import make_splitter


def decoder() -> Decoder:
    """Return a decoder for one connection's ladder."""
    cut = {True: make_splitter(), False: make_splitter()}
    describer = _Describer()

    def rungs(outgoing: bool, data: bytes) -> Iterator[Rung]:  # a Decoder's signature
        try:
            pdus = cut[outgoing](data)
        except ValueError as error:
            raise RemoteProtocolError(f"{error}: {hex_short(data)}") from None
        return (describer.rung(raw) for raw in pdus)

    return rungs


class _Describer:
    """Describes the PDUs of one connection; the Connect command selects admin or I/O opcodes."""

    def __init__(self) -> None:
        self.admin = True

    def rung(self, raw: bytes) -> Rung:
        try:
            received = decode(raw)
        except PduError as error:
            return f"broken: {error}", ()
        return f"{type(received.pdu).__name__} {self._summary(received)}{_marks(received)}", self._details(
            received
        )

    def _summary(self, received: DecodedPdu) -> str:
        match received.pdu:
            case ICReq(pfv, hpda, header, data, maxr2t):
                return f"PFV {pfv} HPDA {hpda} MAXR2T {maxr2t} HDGST {header:d} DDGST {data:d}"
            case ICResp(pfv, cpda, header, data, maxh2cdata):
                return f"PFV {pfv} CPDA {cpda} MAXH2CDATA {maxh2cdata} HDGST {header:d} DDGST {data:d}"
            case H2CTermReq(fes, fei, data) | C2HTermReq(fes, fei, data):
                return f"FES {_fes(fes)} FEI {fei:#x} with {len(data)} bytes of header"
            case CapsuleCmd(sqe, data):
                command = Command.decode(sqe)
                if command.opcode == FABRICS and command.nsid & 0xFF == Fctype.CONNECT:
                    self.admin = not command.cdw10 >> 16
                name = command_name(command, admin=self.admin)
                return f"CID {command.cid} {name} NSID {command.nsid}" + (
                    f" + {len(data)} bytes" if data else ""
                )
            case CapsuleResp(cqe):
                entry = Cqe.decode(cqe)
                return f"{entry} result {entry.result:#x} SQHD {entry.sqhd}"
            case H2CData(cccid, ttag, offset, data):
                return f"CID {cccid} TTAG {ttag} {offset} + {len(data)}"
            case C2HData(cccid, offset, data):
                return f"CID {cccid} {offset} + {len(data)}"
            case R2T(cccid, ttag, offset, length):
                return f"CID {cccid} TTAG {ttag} {offset} + {length}"
        return hex_short(received.raw)

    def _details(self, received: DecodedPdu) -> list[str]:
        match received.pdu:
            case CapsuleCmd(sqe):
                command = Command.decode(sqe)
                dwords = (command.cdw10, command.cdw11, command.cdw12, command.cdw13)
                return [
                    f"SGL {hex_short(command.dptr)}  CDW10-13 " + " ".join(f"{dword:08x}" for dword in dwords)
                ]
            case H2CTermReq(data=data) | C2HTermReq(data=data):
                return [hex_short(data)]
        return []


def _fes(number: int) -> str:
    try:
        return f"{number:02x}h ({Fes(number).name})"
    except ValueError:
        return f"{number:02x}h (reserved)"


def _marks(received: DecodedPdu) -> str:
    """Return the flags that are set and the digests that are wrong."""
    marks = [flag.name or "" for flag in (Flag.LAST_PDU, Flag.SUCCESS) if received.flags & flag]
    marks += ["HDGST WRONG"] if received.header_digest_ok is False else []
    marks += ["DDGST WRONG"] if received.data_digest_ok is False else []
    return "".join(f" {mark}" for mark in marks)
