"""Broken rules of lists that are not whole, and of a binary value in capital letters.

The rules, from the text: the lists of supported pages of SPC-4 have each page that is implemented. A text
that does not fit into one PDU goes on in the next one, where the last one ended (RFC 7143 6.2).
"""

from __future__ import annotations

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import DataIn, LoginRequest, TextResponse

INQUIRY, LOG_SENSE = 0x12, 0x4D


@mutant("vpd-page-unlisted | SPC-4 Supported VPD Pages | page B1h is there, and is not listed", kind="full")
def vpd_unlisted(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != INQUIRY or not block[1] & 1 or block[2]:
        return pdu
    listed = pdu.data[4:].replace(b"\xb1", b"")
    return replace(pdu, data=pdu.data[:2] + len(listed).to_bytes(2, "big") + listed)


@mutant("log-page-unlisted | SPC-4 LOG SENSE | only page 00h is listed, and page 0Ch is there", kind="full")
def log_unlisted(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != LOG_SENSE or block[2] & 0x3F:
        return pdu
    return replace(pdu, data=pdu.data[:2] + b"\0\x01\0"[: max(0, len(pdu.data) - 2)])


@mutant(
    "text-piece-lost | RFC 7143 6.2 | a key that the end of a PDU cuts is lost",
    kind="unsolicited",
)
def piece_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextResponse):
        return pdu
    data = pdu.data
    if talk.memory.pop("cut", False):
        data = data[data.index(b"\0") + 1 :]
    if not pdu.final:
        talk.memory["cut"] = not data.endswith(b"\0")
        data = data[: data.rindex(b"\0") + 1]
    return pdu if data == pdu.data else replace(pdu, data=data)


@mutant(
    "text-piece-again | RFC 7143 6.2, 11.11 | the second PDU of a text is the first one again",
    kind="unsolicited",
)
def piece_again(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextResponse):
        return pdu
    before = talk.memory.pop("piece", b"")
    if not pdu.final and not before:
        talk.memory["piece"] = pdu.data[: pdu.data.rindex(b"\0") + 1]
        return replace(pdu, data=talk.memory["piece"])
    return replace(pdu, data=before) if before else pdu


@on_request(
    "chap-capital-refused | RFC 7143 6.1 | a CHAP_R with capital letters in its prefix or digits is refused",
    kind="chap",
)
def chap_capital(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest):
        return pdu
    pairs = list(parse_text(pdu.data))
    proof = dict(pairs).get("CHAP_R", "")
    if not (proof[:2] in {"0X", "0B"} or (proof[:2] == "0x" and proof != proof.lower())):
        return pdu
    changed = [(key, "0x" + "00" * 16 if key == "CHAP_R" else value) for key, value in pairs]
    return replace(pdu, data=format_text(changed))
