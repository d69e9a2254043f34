"""Text in pieces, cut at any place, long text, empty values (RFC 7143 6.1, 6.2): in a login and after it.

A request with C has a part of the text. The answer is that to the whole, wherever it was cut.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, Stage
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, Pairs, format_text, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, TextRequest, TextResponse

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.2", level="MUST")]

KEY = "X-org.storagetest.last"
"""A private key: no target knows it, and each answers NotUnderstood (6.2)."""
OTHER = "X-org.storagetest.then"
CUTS: dict[str, tuple[int, ...]] = {
    "NAME": (5,),
    "EQUALS": (len(KEY),),
    "VALUE": (len(KEY) + 1,),
    "WITHIN": (len(KEY) + 2,),
    "BEFORE-NUL": (len(KEY) + 3,),
    "NUL": (len(KEY) + 4,),
    "THREE": (5, len(KEY) + 2),
    "FOUR": (5, len(KEY) + 1, len(KEY) + 9),
    "EMPTY": (0,),
}
"""Where a text is cut, in bytes from its key KEY on."""
LONGEST = 8000
"""Bytes of a long text, at most: a target takes 8192 in a login without a declaration (13.12)."""


def cut(text: bytes, places: tuple[int, ...]) -> list[bytes]:
    """Return the pieces of a text, which is cut at ``places`` from the key KEY on."""
    start = text.index(KEY.encode())
    ends = [start + place for place in places] if places != (0,) else [0]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def begin(session: Initiator, piece: bytes, **fields: int) -> TextResponse:
    """Send a piece with C and return its response; skip if text in pieces is refused."""
    session.send(TextRequest(final=False, continues=True, data=piece, **fields))
    answer = session.receive(expected="an empty Text Response")
    if not isinstance(answer, TextResponse):
        pytest.skip(f"text that continues is met with {answer.summary() if answer else 'a close'}")
    if answer.data or answer.ttt == NO_TAG:
        pytest.skip(f"a piece of a text is answered {answer.summary()} (ISC-TEXT-10, ISC-TEXT-CUT)")
    return answer


def end(session: Initiator, piece: bytes, last: TextResponse) -> Pairs:
    """Send the last piece of a text; return the keys of the whole answer."""
    session.send(TextRequest(itt=last.itt, ttt=last.ttt, data=piece))
    data = b""
    for pdu in session.responses("the end of a text response"):
        assert isinstance(pdu, TextResponse), (
            f"the last piece of a text is answered {pdu.summary() if pdu else 'by a close'}"
        )
        data += pdu.data
        if pdu.final:
            break
        session.ask_for_more(last.itt, pdu.ttt)
    return parse_text(data)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-TEXT-CUT-{name}", kills=kills)) for name, kills in (
        ("NAME", ("text-cut-name-lost",)), ("EQUALS", ("text-cut-name-lost",)),
        ("VALUE", ("text-cut-value-lost",)), ("WITHIN", ("text-cut-value-lost",)),
        ("NUL", ("text-cut-whole-lost",)),
        ("BEFORE-NUL", ("text-cut-value-lost",)), ("THREE", ("text-third-piece-lost",)),
        ("FOUR", ("text-third-piece-lost",)), ("EMPTY", ("text-empty-piece-ends",)))
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 6.2, 11.10.2, 11.11", builds_on=("ISC-TEXT-CUT", "ISC-TEXT-TOGETHER", "ISC-DISC-01")
)
def test_a_text_that_is_cut_at_any_place_is_answered_as_one(discovery, name):
    whole = discovery.text(("SendTargets", "All"))
    text = format_text([("SendTargets", "All"), (KEY, "12"), (OTHER, "3")])
    *first, last = cut(text, CUTS[name])
    answer = begin(discovery, first[0])
    for piece in first[1:]:
        answer = begin(discovery, piece, itt=answer.itt, ttt=answer.ttt)
    found = end(discovery, last, answer)
    for pair in (*whole, (KEY, NOT_UNDERSTOOD), (OTHER, NOT_UNDERSTOOD)):
        assert pair in found, (
            f"a text in the pieces {[*first, last]} is answered without {pair[0]}={pair[1]}: {found}. "
            "It is to be answered as in one piece"
        )


@pytest.mark.case(
    "ISC-TEXT-CUT-APART",
    section="RFC 7143 6.2, 11.10",
    kills=("text-pieces-of-all",),
    builds_on=("ISC-TEXT-CUT", "ISC-TEXT-TOGETHER"),
)
def test_text_in_pieces_of_two_sessions_is_kept_apart(connections):
    """The first pieces of both come before the rest of either; the key of each is in two pieces."""
    sessions = [connections.discovery(letter) for letter in "de"]
    keys = (KEY, OTHER)
    begun = [
        begin(session, b"SendTargets=All\0" + key[:-2].encode())
        for session, key in zip(sessions, keys, strict=True)
    ]
    for session, key, first in zip(sessions, keys, begun, strict=True):
        found = end(session, f"{key[-2:]}=1\0".encode(), first)
        assert (key, NOT_UNDERSTOOD) in found, f"the text of a session with {key} is answered {found}"
        assert "TargetName" in dict(found), f"SendTargets=All in the first piece is not answered: {found}"
        strange = [name for name, _ in found if name.startswith("X-") and name != key]
        assert not strange, f"a session that sent {key} has an answer to {strange}"


@pytest.mark.case(
    "ISC-TEXT-LONG",
    section="RFC 7143 6.2, 13.12",
    kills=("long-text-cut",),
    builds_on=("ISC-TEXT-TOGETHER",),
)
def test_each_key_of_a_long_text_is_answered(discovery):
    """A text as long as the target takes in one PDU, and of 8000 bytes at most."""
    most = min(LONGEST, discovery.parameters.max_send)
    keys = [(f"X-org.storagetest.{number:03}", "v" * 60) for number in range(LONGEST // 84)]
    while len(format_text(keys)) > most:
        keys.pop()
    found = dict(discovery.text(*keys))
    missing = [name for name, _ in keys if found.get(name) != NOT_UNDERSTOOD]
    assert not missing, (
        f"{len(missing)} of {len(keys)} keys of a text of {len(format_text(keys))} bytes are not answered "
        f"NotUnderstood: {missing[0]}; the target takes {discovery.parameters.max_send} bytes"
    )


@pytest.mark.case(
    "ISC-TEXT-NO-VALUE",
    section="RFC 7143 6.1, 6.2",
    kills=("empty-value-unanswered",),
    builds_on=("ISC-TEXT-TOGETHER",),
)
def test_a_key_with_an_empty_value_is_answered_in_a_text(discovery):
    """6.1: a text value has zero or more characters."""
    found = dict(discovery.text((KEY, ""), (OTHER, "1")))
    assert found == {KEY: NOT_UNDERSTOOD, OTHER: NOT_UNDERSTOOD}, (
        f"a text with {KEY}= and {OTHER}=1 is answered {found}. Neither key is known"
    )


@pytest.mark.case(
    "ISC-KEY-NO-VALUE",
    section="RFC 7143 6.1, 6.2",
    kills=("empty-value-unanswered-in-login",),
    builds_on=("ISC-KEY-42",),
)
def test_a_key_with_an_empty_value_is_answered_in_a_login(negotiate):
    found = negotiate(**{KEY: "", OTHER: "1"})
    assert found is not None, f"a login with {KEY}= is refused"
    for key in (KEY, OTHER):
        assert found.get(key) == NOT_UNDERSTOOD, f"{key} of a login with {KEY}= is answered {found.get(key)}"


@pytest.mark.case(
    "ISC-TEXT-AFTER-REJECT",
    section="RFC 7143 11.17, C",
    kills=("text-lost-after-reject",),
    builds_on=("ISC-DISC-01", "ISC-DISC-AGAIN"),
)
def test_a_text_request_after_one_that_was_rejected_is_answered(connections, observe):
    """The target may also close; a session that goes on after the Reject goes on as before."""
    session = connections.discovery()
    whole = session.text(("SendTargets", "All"))
    session.send(TextRequest(immediate=True, ttt=0x1234, data=b"X-org.storagetest.a=1\0"))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    if after.reject is None or after.closed or after.unresponsive:
        pytest.skip(f"the target does not reject but: {after}")
    session.send(TextRequest(data=b"SendTargets=All\0"))
    answer = session.receive(expected="the Text Response after a Reject")
    assert isinstance(answer, TextResponse), (
        f"SendTargets=All after a Reject is met with {answer.summary() if answer else 'a close'}"
    )
    if answer.final:
        found = parse_text(answer.data)
        assert found == whole, f"SendTargets=All is answered {found} after a Reject, and {whole} before it"


# Logins


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-LOGIN-CUT-{name}", kills=kills)) for name, kills in (
        ("NAME", ("login-cut-name-lost",)), ("EQUALS", ("login-cut-name-lost",)),
        ("VALUE", ("login-cut-value-lost",)), ("WITHIN", ("login-cut-value-lost",)),
        ("NUL", ("login-cut-whole-lost",)),
        ("BEFORE-NUL", ("login-cut-value-lost",)), ("THREE", ("login-third-piece-lost",)),
        ("FOUR", ("login-third-piece-lost",)))
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.2, 11.12.2", builds_on=("ISC-LOGIN-23", "ISC-LOGIN-CUT", "ISC-KEY-42"))
def test_a_login_text_that_is_cut_at_any_place_is_answered_as_one(connections, portal, name):
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: it decides how many exchanges a login takes")
    made = connections.open()
    text = format_text([
        ("InitiatorName", made.name), ("SessionType", "Normal"), ("TargetName", portal.iqn),
        ("HeaderDigest", "None"), ("DataDigest", "None"), (KEY, "12"), (OTHER, "3"),
    ])  # fmt: skip
    stays = LoginRequest(itt=0x52, isid=b"\x80storb", transit=False, csg=Stage.OPERATIONAL, nsg=0)
    *first, last = cut(text, CUTS[name])
    for piece in first:
        response = made.send_login(replace(stays, continues=True, data=piece))
        assert not response.status, f"the piece {piece!r} of a login is refused: {response.status:04x}"
        if response.data:
            pytest.skip("the response to text that continues is not empty (ISC-LOGIN-23)")
    response = made.send_login(replace(stays, data=last))
    assert not response.status, f"the last piece {last!r} of a login is refused: {response.status:04x}"
    found = dict(parse_text(response.data))
    for key in (KEY, OTHER):
        assert found.get(key) == NOT_UNDERSTOOD, (
            f"a login text in the pieces {[*first[-1:], last]} is answered {found}, without "
            f"{key}={NOT_UNDERSTOOD}. It is to be answered as in one piece"
        )
