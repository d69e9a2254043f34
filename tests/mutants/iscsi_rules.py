"""What several subjects of iSCSI mutants are written with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import LoginResponse, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense, fixed_sense

__all__ = ["RFC", "attention", "check", "good", "sets", "text", "without"]

RFC = "RFC 7143 "


def sets(name: str, section: str, description: str, kind: type[Pdu], **values: Any) -> None:
    """A mutant that sets fields of every PDU of a kind; a callable is given the PDU."""

    @mutant(name, section if section[0] == "S" else RFC + section, description)
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, kind):
            return pdu
        return replace(
            pdu, **{key: value(pdu) if callable(value) else value for key, value in values.items()}
        )


def text(name: str, section: str, description: str, rewrite: Any, kind: type[Pdu] = LoginResponse) -> None:
    """A mutant that rewrites the keys of a response: ``rewrite(pairs, talk)``."""

    @mutant(name, RFC + section, description)
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, kind) or (isinstance(pdu, LoginResponse) and pdu.status):
            return pdu
        pairs = list(parse_text(pdu.data))
        return replace(pdu, data=format_text(rewrite(pairs, talk)))


def without(*names: str) -> Any:
    return lambda pairs, talk: [pair for pair in pairs if pair[0] not in names]


def attention(pdu: Pdu) -> bool:
    return isinstance(pdu, ScsiResponse) and bool(pdu.sense) and decode_sense(pdu.sense).key == 6


def good(pdu: Any) -> Any:
    return replace(pdu, status=0, data=b"", underflow=False, overflow=False, residual=0)


def check(pdu: Any, key: int, asc: int) -> ScsiResponse:
    sense = fixed_sense(key, asc)
    return ScsiResponse(
        itt=pdu.itt, status=2, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn,
        data=len(sense).to_bytes(2, "big") + sense,
    )  # fmt: skip
