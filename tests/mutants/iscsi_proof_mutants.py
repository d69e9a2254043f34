"""Broken rules of CHAP that show in the target's own proof, and in names and numbers that look like others.

The rules, each with the fix or the report that it is from:

- RFC 7143 12.1.3: the target proves its secret with the initiator's CHAP_I and its whole CHAP_C of up to 1024
  bytes (libiscsi 196), or refuses the login if it was asked for a proof.
- RFC 7143 12.1.3: a wrong CHAP_R is refused, whatever comes with it.
- RFC 7143 6.1: CHAP_C is hexadecimal or base64, CHAP_I decimal or hexadecimal (libiscsi 473); CHAP_N is
  neither: a name that begins with ``0x`` is another one (libiscsi 472).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_login_mutants import accepted
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import binary, format_text, numeric, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

MUTUAL, CHAP = "mutual", "chap"
WRONG = "0x" + "5a" * 16


def _proves_wrongly(row: str, when: Callable[[dict[str, str]], bool]) -> None:
    """A mutant whose proof is wrong; ``when`` takes the keys that the initiator has sent."""

    @mutant(row, kind=MUTUAL)
    def change(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginResponse) or b"CHAP_R=" not in pdu.data or not when(dict(talk.offered)):
            return pdu
        pairs = [(name, WRONG if name == "CHAP_R" else value) for name, value in parse_text(pdu.data)]
        return replace(pdu, data=format_text(pairs))


_proves_wrongly("chap-proof-wrong | RFC 7143 12.1.3 | the target does not know its secret", lambda sent: True)
_proves_wrongly(
    "chap-proof-signed-identifier | RFC 7143 12.1.3 | the target's CHAP_R is wrong for a CHAP_I over 127",
    lambda sent: (numeric(sent["CHAP_I"]) or 0) > 127 and sent["CHAP_I"].isdecimal(),
)
_proves_wrongly(
    "chap-proof-of-255 | RFC 7143 12.1.3 | the target's CHAP_R is that of 255 bytes of a longer CHAP_C",
    lambda sent: len(binary(sent["CHAP_C"]) or b"") > 255,
)
_proves_wrongly(
    "chap-proof-of-hexadecimal | RFC 7143 6.1 | the target's CHAP_R is wrong for a CHAP_C in base64",
    lambda sent: sent["CHAP_C"].startswith("0b"),
)
_proves_wrongly(
    "chap-identifier-of-decimal | RFC 7143 6.1 | a hexadecimal CHAP_I counts as 0",
    lambda sent: not sent["CHAP_I"].isdecimal() and bool(numeric(sent["CHAP_I"])),
)


@mutant(
    "chap-proof-last-bits | RFC 7143 6.1 | the last two bits of the target's CHAP_R are lost", kind=MUTUAL
)
def chap_proof_last_bits(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or b"CHAP_R=" not in pdu.data:
        return pdu
    pairs = dict(parse_text(pdu.data))
    digest = binary(pairs["CHAP_R"]) or b"\0"
    pairs["CHAP_R"] = f"0x{digest[:-1].hex()}{digest[-1] & 0xFC:02x}"
    return replace(pdu, data=format_text(list(pairs.items())))


@mutant(
    "chap-mutual-not-checked | RFC 7143 12.1.3 | a wrong CHAP_R is accepted if a CHAP_C comes with it",
    kind=CHAP,
)
def chap_mutual_not_checked(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = isinstance(pdu, LoginResponse) and pdu.status and "CHAP_C" in dict(talk.offered)
    return accepted(talk, pdu) if refused and isinstance(pdu, LoginResponse) else pdu


@mutant(
    "chap-proof-missing | RFC 7143 12.1.3 | the target goes on without the proof that it owes", kind=MUTUAL
)
def chap_proof_missing(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or b"CHAP_R=" not in pdu.data:
        return pdu
    return replace(
        pdu, data=format_text(pair for pair in parse_text(pdu.data) if pair[0] not in ("CHAP_N", "CHAP_R"))
    )


@on_request("chap-name-without-prefix | RFC 7143 12.1.3 | 0x or 0b before a name is dropped", kind=CHAP)
def chap_name_without_prefix(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest):
        return pdu
    for prefix in (b"CHAP_N=0x", b"CHAP_N=0b"):
        if prefix in pdu.data:
            return replace(pdu, data=pdu.data.replace(prefix, b"CHAP_N="))
    return pdu
