"""Broken rules of what a login agreed on: a session has the values of another one (RFC 7143 6.2, 6.3.5, 13)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection
from iscsi_reinstatement_mutants import both

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, NopIn

KIND = "unsolicited"


def _first(talk: ProxyConnection, key: str, value: str, *, old: bool) -> str:
    """Return the first value of ``key``: of all sessions, or of those with this name and ISID."""
    whose: Any = (key, talk.name, talk.login.isid) if old and talk.login else key
    values: list[str] = talk.shared.setdefault(whose, [value])
    return values[0]


def takes_first(row: str, key: str, *, old: bool) -> None:
    """A mutant whose target takes the value of the first login; it answers with that of the request."""

    def with_value(pdu: Any, value: str) -> Any:
        pairs = parse_text(pdu.data)
        return replace(pdu, data=format_text((n, value if n == key else v) for n, v in pairs))

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginRequest) or f"{key}=".encode() not in pdu.data:
            return pdu
        talk.memory["own"] = own = dict(parse_text(pdu.data))[key]
        first = _first(talk, key, own, old=old)
        talk.memory["changed"] = first != own
        return with_value(pdu, first) if first != own else pdu

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = isinstance(pdu, LoginResponse) and talk.memory.get("changed")
        if not ours or f"{key}=".encode() not in pdu.data or key == "MaxRecvDataSegmentLength":
            return pdu
        return with_value(pdu, talk.memory["own"])

    both(row, reply, request, kind=KIND)


def has_digests_of_first(row: str, *, old: bool) -> None:
    """A mutant whose pings have digests, or none, as the first login agreed on."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, LoginResponse) and pdu.transit and pdu.nsg == Stage.FULL_FEATURE:
            values = dict([*talk.offered, *talk.replied])
            talk.memory["first"] = _first(talk, "DataDigest", values.get("DataDigest", "None"), old=old)
        if not isinstance(pdu, NopIn):
            return pdu
        first = talk.memory.get("first") == "CRC32C"
        if first == talk.digests[1]:
            return pdu
        return pdu.parts().wire(header_digest=first, data_digest=first)

    both(row, reply, lambda _, pdu: pdu, kind="digests")


for _old, _name, _words in (
    (False, "first", "the first session"),
    (True, "old", "the session whose place it takes"),
):
    for _subject, _key in (
        ("segment", "MaxRecvDataSegmentLength"),
        ("first-burst", "FirstBurstLength"),
        ("outstanding", "MaxOutstandingR2T"),
        *((("burst", "MaxBurstLength"),) if _old else ()),
    ):
        takes_first(
            f"{_subject}-of-{_name}-login | RFC 7143 6.2 | a session has the {_key} of {_words}",
            _key,
            old=_old,
        )
    has_digests_of_first(
        f"digest-of-{_name}-login | RFC 7143 6.2 | a session has the digests of {_words}", old=_old
    )
