"""Broken rules of text in pieces, in a login and after it, of long text and of empty values (RFC 7143 6.1, 6.2)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, Reject, TextRequest, TextResponse

KIND = "unsolicited"
MOST = 4096
"""Bytes of a text that a mutant takes."""

Cut = Callable[[bytes], bytes]


def _last(piece: bytes) -> bytes:
    """Return what follows the last NUL of a piece."""
    return piece.rpartition(b"\0")[2]


def without_name(piece: bytes) -> bytes:
    last = _last(piece)
    return piece[: len(piece) - len(last)] if last.startswith(b"X-") and b"=" not in last else piece


def without_value(piece: bytes) -> bytes:
    last = _last(piece)
    return piece[: len(piece) - len(last)] if last.startswith(b"X-") and b"=" in last else piece


def without_whole(piece: bytes) -> bytes:
    last = _last(piece[:-1]) if piece.endswith(b"\0") else b""
    return piece[: len(piece) - len(last) - 1] if last.startswith(b"X-") else piece


def loses(row: str, request: type[TextRequest] | type[LoginRequest], cut: Cut) -> None:
    """A mutant that loses a part of each piece that has C."""

    @on_request(row, kind=KIND)
    def lose(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, request) or not pdu.continues:
            return pdu
        data = cut(pdu.data)
        return pdu if data == pdu.data else replace(pdu, data=data)


for _name, _request, _words in (("text", TextRequest, "a text"), ("login", LoginRequest, "a login text")):
    loses(
        f"{_name}-cut-name-lost | RFC 7143 6.2 | of a key name that is cut in {_words} the first part is lost",
        _request,
        without_name,
    )
    loses(
        f"{_name}-cut-value-lost | RFC 7143 6.2 | of a pair that is cut in its value in {_words} the first part is lost",
        _request,
        without_value,
    )
    loses(
        f"{_name}-cut-whole-lost | RFC 7143 6.2 | the last pair is lost if {_words} is cut behind it",
        _request,
        without_whole,
    )


def loses_third(row: str, request: type[TextRequest] | type[LoginRequest]) -> None:
    """A mutant that keeps the first piece of a text and the last one."""

    @on_request(row, kind=KIND)
    def lose(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, request):
            return pdu
        again = talk.memory.get("piece", False)
        talk.memory["piece"] = pdu.continues
        return replace(pdu, data=b"") if again and pdu.continues else pdu


loses_third(
    "text-third-piece-lost | RFC 7143 6.2 | of a text in three pieces the second one is lost", TextRequest
)
loses_third(
    "login-third-piece-lost | RFC 7143 6.2 | of a login text in three pieces the second one is lost",
    LoginRequest,
)


@on_request(
    "text-empty-piece-ends | RFC 7143 6.2 | the pieces of a text after an empty one are lost", kind=KIND
)
def empty_piece(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextRequest):
        return pdu
    lost = talk.memory.get("empty", False) and pdu.ttt != NO_TAG
    talk.memory["empty"] = pdu.continues and not pdu.data
    return replace(pdu, data=b"") if lost else pdu


@on_request(
    "text-pieces-of-all | RFC 7143 6.2 | pieces of text are kept in one place for all sessions", kind=KIND
)
def pieces_of_all(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextRequest):
        return pdu
    if pdu.continues:
        first = b"" if pdu.ttt == NO_TAG else talk.shared.get("pieces", b"")
        talk.shared["pieces"] = first + pdu.data
        return replace(pdu, data=b"")
    if pdu.ttt == NO_TAG or not pdu.data:
        return pdu
    return replace(pdu, data=talk.shared.get("pieces", b"") + pdu.data)


@on_request(
    "long-text-cut | RFC 7143 13.12 | the keys of a text after its first 4096 bytes are lost", kind=KIND
)
def long_text(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextRequest) or len(pdu.data) <= MOST:
        return pdu
    return replace(pdu, data=pdu.data[: pdu.data.rindex(b"\0", 0, MOST) + 1])


def drops_empty(row: str, request: type[TextRequest] | type[LoginRequest]) -> None:
    """A mutant that does not see a private key whose value is empty."""

    @on_request(row, kind=KIND)
    def drop(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, request) or b"=\0" not in pdu.data or pdu.continues:
            return pdu
        kept = [pair for pair in parse_text(pdu.data) if pair[1] or not pair[0].startswith("X-")]
        return replace(pdu, data=format_text(kept))


drops_empty(
    "empty-value-unanswered | RFC 7143 6.1 | a key with an empty value is not answered in a text", TextRequest
)
drops_empty(
    "empty-value-unanswered-in-login | RFC 7143 6.1 | a key with an empty value is not answered in a login",
    LoginRequest,
)


@mutant(
    "text-lost-after-reject | RFC 7143 11.17 | after a Reject each text is answered without text", kind=KIND
)
def lost_after_reject(talk: ProxyConnection, pdu: Pdu) -> Out:
    talk.memory["rejected"] = talk.memory.get("rejected", False) or isinstance(pdu, Reject)
    return replace(pdu, data=b"") if isinstance(pdu, TextResponse) and talk.memory["rejected"] else pdu
