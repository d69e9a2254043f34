"""Keys by their order, their further values and their stage: what a login offers, and what comes too late.

RFC 7143 6.2 (negotiation), 6.2.1 (lists), 13 (keys; "Use" is where a key may be negotiated).
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import (
    IRRELEVANT,
    KEYS,
    NOT_UNDERSTOOD,
    REJECT,
    Negotiation,
    format_text,
    is_legal_reply,
    numeric,
    parse_text,
)
from storagetest.wire.iscsi.pdu import LoginRequest, TextRequest, TextResponse
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

NO_DIGESTS = {"HeaderDigest": "None", "DataDigest": "None"}
"""A login that offers little else."""


def replies_to(connections, portal, offer: dict[str, str]) -> dict[str, str] | None:
    """Offer these keys, in their order; return the replies, or None if the login is refused."""
    initiator: Initiator = connections.open()
    try:
        initiator.login(
            target=portal.iqn, base=NO_DIGESTS, offer=offer, credentials=portal.credentials
        )  # fmt: skip
    except (LoginRefused, PeerClosed):
        return None
    return dict(initiator.replied)


# Order


@pytest.mark.parametrize("steps", [
    pytest.param(1, marks=pytest.mark.case("ISC-KEY-ORDER-ONE", kills=("first-burst-before-max",))),
    pytest.param(2, marks=pytest.mark.case("ISC-KEY-ORDER-LATER", kills=("first-burst-later",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 13.14", builds_on=("ISC-KEY-45",))
def test_first_burst_length_is_limited_wherever_it_stands(connections, portal, observe, steps):
    """It stands before MaxBurstLength in one request, or alone in the request after that one."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: it decides how many exchanges a login takes")
    first, most = ("FirstBurstLength", "65536"), ("MaxBurstLength", "8192")
    initiator: Initiator = connections.open()
    identity = [("InitiatorName", initiator.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    identity += NO_DIGESTS.items()
    requests = [[*identity, first, most]] if steps == 1 else [[*identity, most], [first]]
    replied: dict[str, str] = {}
    for pairs in requests:
        request = LoginRequest(
            itt=0x51, isid=b"\x80order", data=format_text(pairs), transit=False, csg=Stage.OPERATIONAL, nsg=0
        )
        response = initiator.send_login(request)
        if response.status:
            observe(f"the login is refused: {response.status:04x}")
            return
        replied |= dict(parse_text(response.data))
        if first[0] in replied and first not in pairs:
            pytest.skip(
                f"the target proposes {first[0]} itself: it is not for the initiator to offer it again"
            )
    found = {key: numeric(replied.get(key, "")) for key, _ in (first, most)}
    assert None not in found.values(), f"not each key is answered with a number: {replied}"
    assert (found["FirstBurstLength"] or 0) <= (found["MaxBurstLength"] or 0), (
        f"FirstBurstLength is over MaxBurstLength: {found}, of {len(requests)} requests"
    )


# Preference (6.2.1)


@pytest.mark.parametrize(("key", "first", "second"), [
    pytest.param(key, *values, marks=pytest.mark.case(
        f"ISC-KEY-PREFER-{key.removesuffix('Digest').upper()}{ending}",
        section=f"RFC 7143 6.2.1, {KEYS[key].section}", kills=(kill,)))
    for key in ("HeaderDigest", "DataDigest")
    for ending, values, kill in (
        ("", ("None", "CRC32C"), "list-order-ignored"),
        ("-CRC32C", ("CRC32C", "None"), "list-none-preferred"),
    )
])  # fmt: skip
def test_the_first_value_that_the_target_takes_is_selected(connections, portal, key, first, second):
    """Of "None,CRC32C" it selects None, if it takes None alone; of "CRC32C,None" CRC32C likewise."""
    alone = replies_to(connections, portal, {key: first})
    if alone is None or alone.get(key) != first:
        pytest.skip(f"the target does not take {key}={first}")
    offer = f"{first},{second}"
    reply = (replies_to(connections, portal, {key: offer}) or {}).get(key)
    assert reply == first, f"{key}={offer} is answered {reply}; {key}={first} is answered {first}"


# Further values

VALUES = {
    "iSCSIProtocolLevel": ("0", "1", "31"),
    "ErrorRecoveryLevel": ("1",),
    "MaxConnections": ("2", "3"),
    "MaxOutstandingR2T": ("2", "16"),
    "DefaultTime2Wait": ("1", "3", "3600"),
    "DefaultTime2Retain": ("0", "1", "21"),
    "MaxBurstLength": ("513", "8192", "16777215"),
    "FirstBurstLength": ("513", "8192", "262144"),
}
"""Numbers at the limits of their keys, at the defaults and next to them (13)."""
RECENT = ("13.23", "13.24")
"""Keys that RFC 3720 does not have."""


@pytest.mark.parametrize("key", [
    pytest.param(key, marks=pytest.mark.case(
        f"ISC-KEY-VALUES-{key.upper()}", section=f"RFC 7143 6.2.2, {KEYS[key].section}",
        kills=(f"key-{key}", *(("protocol-level-two",) if key == "iSCSIProtocolLevel" else ()))))
    for key in VALUES
])  # fmt: skip
def test_the_reply_to_each_number_follows_the_result_function(connections, portal, observe, key):
    rule, found = KEYS[key], {}
    for value in VALUES[key]:
        replies = replies_to(connections, portal, {key: value})
        assert replies is not None, f"{key}={value} ended in a refused login"
        reply = found[value] = replies.get(key)
        if rule.section in RECENT and reply == NOT_UNDERSTOOD:
            continue
        if reply is None:  # a target need not answer what decides nothing (6.2.2)
            continue
        assert is_legal_reply(rule, value, reply), f"{key}={value} was answered {reply}"
    observe(str(found))


# Obsolete keys (13.25), and keys of later requests


@pytest.mark.parametrize(("key", "value", "allowed"), [
    pytest.param(key, value, allowed, marks=pytest.mark.case(
        f"ISC-KEY-OBSOLETE-{key.upper()}", kills=("marker-keys-not-understood",)))
    for key, value, allowed in (
        ("IFMarker", "Yes", (REJECT, "No")),
        ("OFMarker", "Yes", (REJECT, "No")),
        ("IFMarkInt", "2048~8192", (REJECT,)),
        ("OFMarkInt", "2048~8192", (REJECT,)),
    )
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 13.25", builds_on=("ISC-KEY-42",))
def test_an_obsolete_key_of_markers_is_known_and_refused(connections, portal, key, value, allowed):
    """It is answered Reject, a marker by No at the most, and never NotUnderstood."""
    replies = replies_to(connections, portal, {key: value})
    assert replies is not None, f"{key}={value} ended in a refused login"
    reply = replies.get(key)
    assert reply in allowed, f"{key}={value} was answered {reply}; 13.25 allows {' or '.join(allowed)}"


@pytest.mark.parametrize("stage", [
    pytest.param(Stage.OPERATIONAL, marks=pytest.mark.case("ISC-KEY-LATER-STEP")),
    pytest.param(Stage.SECURITY, marks=pytest.mark.case("ISC-KEY-LATER-STAGE")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 6.2", level="MUST", kills=("later-keys-unanswered",), builds_on=("ISC-KEY-42",)
)
def test_a_key_of_a_later_request_is_answered_as_one_of_the_first(connections, portal, stage):
    """The first request has the names alone, in this stage; the keys come with the second one."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: its logins have several requests in all cases")
    initiator: Initiator = connections.open()
    names = [("InitiatorName", initiator.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    names += [("AuthMethod", "None")] if stage == Stage.SECURITY else []
    leaves = stage == Stage.SECURITY
    first = LoginRequest(itt=0x52, isid=b"\x80later", data=format_text(names), csg=stage,
                         transit=leaves, nsg=Stage.OPERATIONAL if leaves else 0)  # fmt: skip
    response = initiator.send_login(first)
    assert response.status == 0, f"a login that begins without keys: status {response.status:04x}"
    if leaves and not response.transit:
        pytest.skip("the target stays in the security stage")
    keys = {"X-org.storagetest.later": "1", "MaxOutstandingR2T": "1", "DefaultTime2Wait": "5"}
    proposed = dict(parse_text(response.data))
    second = LoginRequest(itt=0x52, isid=b"\x80later", csg=Stage.OPERATIONAL, transit=False, nsg=0,
                          data=format_text((*NO_DIGESTS.items(), *keys.items())))  # fmt: skip
    replied = dict(parse_text(initiator.send_login(second).data))
    missing = [key for key in keys if key not in replied and key not in proposed]
    assert not missing, f"{missing[0]}={keys[missing[0]]} of the second request is not answered: {replied}"
    unknown = replied["X-org.storagetest.later"]
    assert unknown == NOT_UNDERSTOOD, f"a private key of the second request is answered {unknown}"


# Too late

ONLY_IN_LOGIN = {
    name: key.default or ""
    for name, key in KEYS.items()
    if key.negotiation is not Negotiation.DECLARE and name not in ("MaxBurstLength", "AuthMethod")
}
"""Keys of use IO or LO with their defaults; MaxBurstLength is that of ISC-TEXT-06."""


@pytest.mark.parametrize("key", [
    pytest.param(key, marks=pytest.mark.case(
        f"ISC-TEXT-LATE-{key.upper()}", section=f"RFC 7143 13, {KEYS[key].section}",
        kills=("login-key-in-text",), builds_on=("ISC-TEXT-06",)))
    for key in ONLY_IN_LOGIN
])  # fmt: skip
def test_a_key_of_the_login_is_not_negotiated_after_it(connections, observe, key):
    """Its use is IO or LO: in full feature phase a target selects no value, whatever is in force."""
    session = connections.login()
    value = ONLY_IN_LOGIN[key]
    session.send(TextRequest(data=format_text([(key, value)])))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    for pdu in after.pdus:
        if isinstance(pdu, TextResponse):
            reply = dict(parse_text(pdu.data)).get(key, REJECT)
            assert reply in (REJECT, NOT_UNDERSTOOD, IRRELEVANT), (
                f"{key}={value} in full feature phase is answered {reply}"
            )
