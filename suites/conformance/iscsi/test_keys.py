"""Text keys in the login: every kind of negotiation, illegal values, unknown keys (RFC 7143 6.1, 6.2, 13)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.keys import (
    CERTAIN,
    IRRELEVANT,
    KEYS,
    NOT_UNDERSTOOD,
    REJECT,
    Negotiation,
    is_first_burst_irrelevant,
    is_legal_reply,
    is_legal_value,
    numeric,
)
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]


def offers(*rows: tuple[str, str]) -> list[object]:
    """Return parameters, one case each; the section is the key's own."""
    return [
        pytest.param(key, value, id=f"{key}-{value}",
                     marks=pytest.mark.case(f"ISC-KEY-{at:02}", section=f"RFC 7143 6.2, {KEYS[key].section}",
                                            kills=() if at in FREE else (f"key-{key}",),
                                            no_mutant_reason="any reply is legal" if at in FREE else ""))
        for at, (key, value) in enumerate(rows, 1)
    ]  # fmt: skip


FREE = {20, 22, 24, 26, 28}
"""Offers to which a responder may answer either way."""

OFFERED = [
    ("HeaderDigest", "None"),
    ("HeaderDigest", "CRC32C,None"),
    ("DataDigest", "None"),
    ("DataDigest", "CRC32C,None"),
    ("MaxBurstLength", "65536"),
    ("MaxBurstLength", "512"),
    ("FirstBurstLength", "16384"),
    ("FirstBurstLength", "512"),
    ("MaxOutstandingR2T", "1"),
    ("MaxOutstandingR2T", "65535"),
    ("DefaultTime2Wait", "60"),
    ("DefaultTime2Wait", "0"),
    ("DefaultTime2Retain", "5"),
    ("DefaultTime2Retain", "3600"),
    ("MaxConnections", "1"),
    ("MaxConnections", "65535"),
    ("ErrorRecoveryLevel", "0"),
    ("ErrorRecoveryLevel", "2"),
    ("InitialR2T", "Yes"),
    ("InitialR2T", "No"),
    ("ImmediateData", "No"),
    ("ImmediateData", "Yes"),
    ("DataPDUInOrder", "Yes"),
    ("DataPDUInOrder", "No"),
    ("DataSequenceInOrder", "Yes"),
    ("DataSequenceInOrder", "No"),
    ("iSCSIProtocolLevel", "2"),
    ("TaskReporting", "FastAbort,ResponseFence,RFC3720"),
]


@pytest.mark.parametrize(("key", "value"), offers(*OFFERED))
def test_the_response_to_an_offer_follows_the_key(negotiate, observe, key, value):
    answers = negotiate(**{key: value})
    assert answers is not None, f"{key}={value} ended in a refused login"
    rule = KEYS[key]
    if key not in answers:
        assert (rule.negotiation, value) in CERTAIN, f"{key}={value} was not answered"
        return
    observe(f"{key}={value} -> {answers[key]}")
    new = (
        rule.section in {"13.23", "13.24"} and answers[key] == NOT_UNDERSTOOD
    )  # no RFC 3720 target knows these
    assert new or is_legal_reply(rule, value, answers[key]), f"{key}={value} was answered {answers[key]}"
    if key == "FirstBurstLength" and is_first_burst_irrelevant(answers):
        new = new or answers[key] == IRRELEVANT
    assert new or answers[key] not in {REJECT, IRRELEVANT}, f"{key}={value} was answered {answers[key]}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("MaxBurstLength", "511", marks=pytest.mark.case("ISC-KEY-31", kills=("key-range",))),
        pytest.param(
            "MaxBurstLength", "16777216", marks=pytest.mark.case("ISC-KEY-32", kills=("key-range",))
        ),
        pytest.param("MaxOutstandingR2T", "0", marks=pytest.mark.case("ISC-KEY-33", kills=("key-range",))),
        pytest.param("ErrorRecoveryLevel", "3", marks=pytest.mark.case("ISC-KEY-34", kills=("key-range",))),
        pytest.param("DefaultTime2Wait", "3601", marks=pytest.mark.case("ISC-KEY-35", kills=("key-range",))),
        pytest.param("MaxConnections", "0", marks=pytest.mark.case("ISC-KEY-36", kills=("key-range",))),
        pytest.param("InitialR2T", "Maybe", marks=pytest.mark.case("ISC-KEY-37", kills=("key-range",))),
        pytest.param("MaxBurstLength", "lots", marks=pytest.mark.case("ISC-KEY-38", kills=("key-range",))),
        pytest.param("HeaderDigest", "MD5", marks=pytest.mark.case("ISC-KEY-39", kills=("key-range",))),
        pytest.param(
            "MaxRecvDataSegmentLength", "511", marks=pytest.mark.case("ISC-KEY-40", kills=("key-range",))
        ),
    ],
)
@pytest.mark.case(section="RFC 7143 6.2.1, 6.2.2, 13", level="MUST")
def test_a_value_out_of_its_range_is_never_accepted(connections, portal, observe, key, value):
    answers = offered(connections, portal, key, value)
    if answers is None:
        observe(f"{key}={value}: the login is refused")
        return
    reply = answers.get(key)
    observe(f"{key}={value}: reply {reply}")
    assert reply == REJECT or admissible(key, reply), f"{key}={value} was accepted: reply {reply}"


def admissible(key: str, reply: str | None) -> bool:
    """Whether an acceptor may select this in place of Reject: a value that the key allows (6.2.2).

    Of a list it may select only what was proposed (6.2.1), and a declaration is not selected at all (7.12).
    """
    rule = KEYS[key]
    if reply is None or rule.negotiation in (Negotiation.LIST, Negotiation.DECLARE):
        return False
    return is_legal_value(rule, reply)


def offered(connections, portal, key: str, value: str) -> dict[str, str] | None:
    """Offer ``key`` in a login; return the replies, or None if the login was refused or closed."""
    initiator = connections.open()
    try:
        initiator.login(target=portal.iqn, offer={key: value}, credentials=portal.credentials)
    except (LoginRefused, PeerClosed):
        return None
    return dict(initiator.replied)


@pytest.mark.case("ISC-KEY-41", section="RFC 7143 6.2", kills=("not-understood",))
def test_a_key_that_is_not_known_is_answered_not_understood(negotiate):
    answers = negotiate(StoragetestNoSuchKey="1")
    assert answers is not None, "an unknown key ended in a refused login"
    assert answers.get("StoragetestNoSuchKey") == NOT_UNDERSTOOD


@pytest.mark.case("ISC-KEY-42", section="RFC 7143 6.2, 13.22", kills=("not-understood",))
def test_a_private_key_that_is_not_known_is_answered_not_understood(negotiate):
    answers = negotiate(**{"X-org.storagetest.key": "1"})
    assert answers is not None, "an unknown key ended in a refused login"
    assert answers.get("X-org.storagetest.key") == NOT_UNDERSTOOD


@pytest.mark.case("ISC-KEY-43", section="RFC 7143 6.1", kills=("key-case",))
def test_key_names_are_case_sensitive(negotiate):
    answers = negotiate(maxburstlength="65536")
    assert answers is not None, "an unknown key ended in a refused login"
    assert answers.get("maxburstlength") == NOT_UNDERSTOOD


@pytest.mark.case(
    "ISC-KEY-MANY", section="RFC 7143 6.2, 13.12", kills=("login-text-cut",), builds_on=("ISC-KEY-42",)
)
def test_each_key_of_a_long_login_text_is_answered(negotiate):
    """A data segment of the login has 8192 bytes at most: this one has more than 7000."""
    keys = {f"X-org.storagetest.{number:03}": "v" * 60 for number in range(85)}
    answers = negotiate(**keys)
    assert answers is not None, f"a login with {len(keys)} private keys is refused"
    missing = [name for name in keys if answers.get(name) != NOT_UNDERSTOOD]
    assert not missing, f"{len(missing)} of {len(keys)} keys are not answered NotUnderstood: {missing[0]}"


@pytest.mark.parametrize("number", [
    pytest.param("0x10000", marks=pytest.mark.case("ISC-KEY-44", kills=("key-hexadecimal",))),
    pytest.param("0xFA00", marks=pytest.mark.case(
        "ISC-KEY-HEX-CAPITAL", kills=("hexadecimal-capital",), builds_on=("ISC-KEY-44",))),
    pytest.param("0XFa00", marks=pytest.mark.case(
        "ISC-KEY-HEX-X", kills=("hexadecimal-capital",), builds_on=("ISC-KEY-44",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.1", level="MUST")
def test_a_number_may_be_hexadecimal(negotiate, number):
    """The prefix and the digits are small letters or capital ones."""
    answers = negotiate(MaxBurstLength=number, FirstBurstLength="512")
    assert answers is not None, "a hexadecimal number ended in a refused login"
    value = answers.get("MaxBurstLength")
    assert value is not None, f"MaxBurstLength={number} was not answered"
    assert 512 <= (numeric(value) or 0) <= int(number, 16), f"MaxBurstLength={number} was answered by {value}"


@pytest.mark.case("ISC-KEY-45", section="RFC 7143 13.14", kills=("first-burst-over-max",))
def test_first_burst_length_never_ends_up_over_max_burst_length(negotiate, observe):
    answers = negotiate(MaxBurstLength="8192", FirstBurstLength="65536")
    if answers is None:
        observe("the login is refused")
        return
    if answers["FirstBurstLength"] == IRRELEVANT and is_first_burst_irrelevant(answers):
        observe("FirstBurstLength is irrelevant: InitialR2T=Yes and ImmediateData=No")
        return
    first, most = numeric(answers["FirstBurstLength"]), numeric(answers["MaxBurstLength"])
    observe(f"FirstBurstLength={first} MaxBurstLength={most}")
    assert first is not None
    assert most is not None
    assert first <= most, f"FirstBurstLength {first} is over MaxBurstLength {most}"


@pytest.mark.case("ISC-KEY-46", section="RFC 7143 13.12", kills=("max-recv-declared",))
def test_max_recv_data_segment_length_of_the_target_is_in_its_range(session):
    declared = dict(session.replied).get("MaxRecvDataSegmentLength", "8192")
    assert 512 <= (numeric(declared) or 0) <= 2**24 - 1


@pytest.mark.case("ISC-KEY-47", section="RFC 7143 6.3", kills=("answer-twice",))
def test_no_key_is_answered_twice(session):
    names = [name for name, _ in session.replied if not name.startswith("CHAP_")]
    assert sorted(set(names)) == sorted(names)


# Section 13 states the senders of each key, and forbids the others by no keyword of RFC 2119.
@pytest.mark.case("ISC-KEY-SENDER", section="RFC 7143 13", level="SHOULD", kills=("initiator-key-sent",))
def test_the_target_sends_no_key_of_the_initiator(session):
    """Section 13 has the senders of each key; that of these is the initiator."""
    sent = {name for name, _ in session.replied} & {"InitiatorName", "InitiatorAlias", "SessionType"}
    assert not sent, f"the target has sent {', '.join(sorted(sent))}, whose sender is the initiator"


@pytest.mark.case("ISC-KEY-48", section="RFC 7143 6.2.1", no_mutant_reason="LIO breaks this rule itself")
def test_a_list_with_unknown_words_is_answered_with_the_first_that_is_known(negotiate):
    answers = negotiate(HeaderDigest="X-storagetest,None")
    assert answers is not None, "a list with an unknown word ended in a refused login"
    assert answers.get("HeaderDigest") == "None"


@pytest.mark.case("ISC-KEY-49", section="RFC 7143 6.2", level="SHOULD", kills=("discovery-key",))
def test_a_key_that_means_nothing_in_a_discovery_session_is_harmless(connections):
    made = connections.discovery(offer={"InitialR2T": "No"})
    assert dict(made.replied).get("InitialR2T", IRRELEVANT) in {IRRELEVANT, "Yes", "No"}
    assert made.text(("SendTargets", "All"))


@pytest.mark.case("ISC-KEY-50", section="RFC 7143 6.1", level="MAY", no_mutant_reason="a MAY never fails")
def test_a_key_name_of_more_than_63_bytes_is_refused(connections, portal):
    assert offered(connections, portal, "X-" + "k" * 70, "1") is None
