"""What several subjects of iSCSI mutants are written with."""

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import DataIn, LoginResponse, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense, fixed_sense


def sets(row: str, kind: type[Pdu], **values: Any) -> None:
    """A mutant that sets fields of every PDU of a kind; a callable is given the PDU."""

    def change(pdu: Pdu, talk: ProxyConnection) -> Pdu:
        return replace(
            pdu, **{key: value(pdu) if callable(value) else value for key, value in values.items()}
        )

    replies(row, kind, change)


def replies(row: str, kind: type[Pdu], change: Any, **more: Any) -> None:
    """A mutant that changes every PDU of a kind: ``change(pdu, talk)``."""

    @mutant(row, **more)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Any:
        return change(pdu, talk) if isinstance(pdu, kind) else pdu


def text(row: str, rewrite: Any, response: type[Pdu] = LoginResponse, **more: Any) -> None:
    """A mutant that rewrites the keys of a response: ``rewrite(pairs, talk)``."""

    @mutant(row, **more)
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, response) or (isinstance(pdu, LoginResponse) and pdu.status):
            return pdu
        pairs = list(parse_text(pdu.data))
        return replace(pdu, data=format_text(rewrite(pairs, talk)))


def without(*names: str) -> Any:
    return lambda pairs, talk: [pair for pair in pairs if pair[0] not in names]


def key_set_to(key: str, value: str) -> Any:
    return lambda pairs, talk: [(name, value if name == key else old) for name, old in pairs]


def ends(pdu: Pdu) -> bool:
    """Whether the PDU has the status of a command."""
    return isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status)


def attention(pdu: Pdu) -> bool:
    return isinstance(pdu, ScsiResponse) and bool(pdu.sense) and decode_sense(pdu.sense).key == 6


def good(pdu: Any) -> Any:
    return replace(pdu, status=0, data=b"", underflow=False, overflow=False, residual=0)


def ended_in(pdu: Any, status: int, data: bytes = b"") -> ScsiResponse:
    """Return the response that ends the command of ``pdu`` in another status."""
    return ScsiResponse(
        itt=pdu.itt, status=status, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn,
        data=data,
    )  # fmt: skip


def sense_data(key: int, asc: int, *, information: int | None = None) -> bytes:
    """Return the data segment of a response with sense data."""
    sense = fixed_sense(key, asc, information=information)
    return len(sense).to_bytes(2, "big") + sense


def check(pdu: Any, key: int, asc: int) -> ScsiResponse:
    return ended_in(pdu, 2, sense_data(key, asc))
