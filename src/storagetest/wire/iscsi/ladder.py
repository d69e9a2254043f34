"""iSCSI decoder for :func:`storagetest.wire.ladder.ladder`: PDUs with their text keys, CDB or sense."""

from __future__ import annotations

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.connection import Frame, Framer
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import outcome, parse_text
from storagetest.wire.iscsi.pdu import (
    LoginRequest,
    LoginResponse,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TextRequest,
    TextResponse,
    decode,
)
from storagetest.wire.ladder import Decoder, Rung
from storagetest.wire.scsi.cdb import describe
from storagetest.wire.scsi.sense import decode_sense

PORT = 3260
"""The TCP port of iSCSI, which selects Wireshark's dissector (RFC 7143 13.8, IANA)."""

_SECRET = frozenset({"CHAP_R", "CHAP_C"})


def make_decoder() -> Decoder:
    """Return a decoder for one connection; digests begin after the login that negotiates them."""
    streams = {True: Framer(), False: Framer()}
    offered: list[tuple[str, str]] = []
    replied: list[tuple[str, str]] = []

    def decoder(outgoing: bool, data: bytes) -> list[Rung]:
        stream = streams[outgoing]
        rungs: list[Rung] = []
        stream.receive_data(data)
        while isinstance(frame := stream.next_frame(), Frame):
            try:
                pdu = decode(frame.bhs, frame.ahs, frame.data)
            except RemoteProtocolError:
                rungs.append((f"opcode {frame.bhs[0] & 0x3F:#04x}", [hex_short(frame.raw)]))
                continue
            rungs.append((pdu.summary() + _digests(frame), details(pdu)))
            if isinstance(pdu, LoginRequest):
                offered.extend(_pairs(pdu))
            elif isinstance(pdu, LoginResponse):
                replied.extend(_pairs(pdu))
                if pdu.transit and pdu.nsg == Stage.FULL_FEATURE and not pdu.status:
                    keys = outcome(offered, replied)
                    for framer in streams.values():
                        framer.header_digest = keys["HeaderDigest"] == "CRC32C"
                        framer.data_digest = keys["DataDigest"] == "CRC32C"
        return rungs

    return decoder


def details(pdu: Pdu) -> list[str]:
    """Return the detail lines of a PDU: text keys, CDB, sense data or rejected header. Never raises."""
    match pdu:
        case LoginRequest() | LoginResponse() | TextRequest() | TextResponse():
            pairs = _pairs(pdu)
            return [f"{name}={'…' if name in _SECRET else value}" for name, value in pairs]
        case ScsiCommand():
            return [describe(pdu.cdb)]
        case ScsiResponse() if pdu.sense:
            try:
                return [str(decode_sense(pdu.sense))]
            except RemoteProtocolError as error:
                return [str(error)]
        case Reject():
            return [f"of {hex_short(pdu.data)}"]
    return []


def _pairs(pdu: Pdu) -> list[tuple[str, str]]:
    try:
        return list(parse_text(pdu.data))
    except RemoteProtocolError:
        return [("(not key=value)", hex_short(pdu.data))]


def _digests(frame: Frame) -> str:
    wrong = " header digest wrong" if frame.header_digest_wrong else ""
    return wrong + (" data digest wrong" if frame.data_digest_wrong else "")
