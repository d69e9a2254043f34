"""Text keys and CHAP: the format, and what comes out of every kind of negotiation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import ALGORITHMS, Challenge, challenge_of, hexadecimal, response
from storagetest.wire.iscsi.keys import (
    KEYS,
    REJECT,
    Negotiation,
    binary,
    format_text,
    is_legal_reply,
    is_legal_value,
    negotiated_reply,
    numeric,
    outcome,
    parse_text,
    portal_of,
    short_binary,
)


def test_text_round_trip() -> None:
    pairs = (("InitiatorName", "iqn.x"), ("A", ""), ("B", "c=d"))
    assert format_text(pairs) == b"InitiatorName=iqn.x\0A=\0B=c=d\0"
    assert parse_text(format_text(pairs) + b"\0\0") == pairs


@pytest.mark.parametrize("bad", [b"novalue\0", b"=x\0", b"k" * 64 + b"=v\0", b"\xff=1\0", b"k=\xff\0"])
def test_invalid_text_raises_remote_protocol_error(bad: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_text(bad)


@pytest.mark.parametrize(
    ("address", "portal"),
    [
        ("192.0.2.1:3261,1", ("192.0.2.1", 3261)),
        ("192.0.2.1", ("192.0.2.1", 3260)),
        ("array.example.net:860", ("array.example.net", 860)),
        ("[2001:db8::1]:3261", ("2001:db8::1", 3261)),
        ("[2001:db8::1],2", ("2001:db8::1", 3260)),
    ],
)
def test_a_target_address_has_a_host_and_a_port(address: str, portal: tuple[str, int]) -> None:
    assert portal_of(address) == portal


@pytest.mark.parametrize("address", ["", ",1", ":3260", "host:many"])
def test_an_address_without_host_or_with_another_port_raises(address: str) -> None:
    with pytest.raises(RemoteProtocolError, match="TargetAddress"):
        portal_of(address)


@given(st.binary(max_size=200))
def test_parse_text_returns_pairs_or_raises(data: bytes) -> None:
    try:
        assert all(name for name, _ in parse_text(data))
    except RemoteProtocolError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("key", "proposed", "own", "result"),
    [
        ("HeaderDigest", "CRC32C,None", "None,CRC32C", "CRC32C"),
        ("HeaderDigest", "X-foo,None", "None,CRC32C", "None"),
        ("HeaderDigest", "X-foo", "None,CRC32C", REJECT),
        ("MaxBurstLength", "65536", "262144", "65536"),
        ("MaxBurstLength", "0x10000", "262144", "65536"),
        ("MaxBurstLength", "511", "262144", REJECT),
        ("MaxBurstLength", "16777216", "262144", REJECT),
        ("MaxBurstLength", "many", "262144", REJECT),
        ("DefaultTime2Wait", "0", "2", "2"),
        ("ErrorRecoveryLevel", "2", "0", "0"),
        ("ErrorRecoveryLevel", "3", "0", REJECT),
        ("InitialR2T", "No", "No", "No"),
        ("InitialR2T", "No", "Yes", "Yes"),
        ("InitialR2T", "no", "Yes", REJECT),
        ("ImmediateData", "Yes", "Yes", "Yes"),
        ("ImmediateData", "Yes", "No", "No"),
        ("iSCSIProtocolLevel", "2", "1", "1"),
        ("MaxRecvDataSegmentLength", "8192", "65536", "65536"),
    ],
)
def test_negotiated_reply_follows_the_table(key: str, proposed: str, own: str, result: str) -> None:
    assert negotiated_reply(KEYS[key], proposed, own) == result
    assert is_legal_reply(KEYS[key], proposed, result)


@pytest.mark.parametrize(
    ("key", "proposed", "replied"),
    [
        ("HeaderDigest", "None", "CRC32C"),
        ("MaxBurstLength", "65536", "65537"),
        ("MaxBurstLength", "65536", "0"),
        ("DefaultTime2Wait", "5", "4"),
        ("InitialR2T", "Yes", "No"),
        ("ImmediateData", "No", "Yes"),
        ("ImmediateData", "No", "Maybe"),
    ],
)
def test_illegal_replies_are_rejected(key: str, proposed: str, replied: str) -> None:
    assert not is_legal_reply(KEYS[key], proposed, replied)


@given(st.sampled_from(sorted(KEYS)), st.text(max_size=20), st.text(max_size=20))
def test_every_key_has_legal_replies(name: str, proposed: str, own: str) -> None:
    key = KEYS[name]
    value = own if is_legal_value(key, own) else key.default or "x"
    assert is_legal_reply(key, proposed, negotiated_reply(key, proposed, value))


def test_outcome_is_the_reply_the_declaration_or_the_default() -> None:
    held = outcome(
        [("MaxBurstLength", "65536"), ("InitialR2T", "No"), ("HeaderDigest", "CRC32C")],
        [
            ("MaxBurstLength", "32768"),
            ("HeaderDigest", REJECT),
            ("InitialR2T", "Yes"),
            ("MaxRecvDataSegmentLength", "4096"),
            ("MaxOutstandingR2T", "8"),
            ("X-com.example.new", "1"),
        ],
    )
    assert held["MaxBurstLength"] == "32768"
    assert held["HeaderDigest"] == "None"
    assert held["InitialR2T"] == "Yes"
    assert held["MaxRecvDataSegmentLength"] == "4096"
    assert held["MaxOutstandingR2T"] == "1"  # proposed by the target: our default is 1, and the minimum holds
    assert held["DefaultTime2Retain"] == "20"
    assert "X-com.example.new" not in held


@pytest.mark.parametrize(("key", "value"), [("ImmediateData", "No"), ("InitialR2T", "Yes")])
def test_a_certain_outcome_needs_no_reply(key: str, value: str) -> None:
    assert outcome([(key, value)], [])[key] == value
    assert outcome([("ImmediateData", "Yes")], [])["ImmediateData"] == "Yes"
    assert outcome([("InitialR2T", "No")], [])["InitialR2T"] == "Yes"


def test_numbers_and_binary_values() -> None:
    assert [numeric(text) for text in ("12", "0x1f", "0X1F", "", "0x", "-1", "1 ", "9" * 41)] == [
        12, 31, 31, None, None, None, None, None,
    ]  # fmt: skip
    assert binary("0x0aff") == b"\x0a\xff"
    assert binary("0bCv8=") == b"\x0a\xff"
    assert binary("0xabc") == b"\x0a\xbc"
    assert [binary(text) for text in ("0xzz", "0b***", "12", "")] == [None] * 4
    assert [short_binary(text) for text in ("12", "0x1f", "0bCv8=", "0b***", "x")] == [
        12,
        31,
        0x0AFF,
        None,
        None,
    ]


def test_every_key_has_a_legal_default() -> None:
    for key in KEYS.values():
        assert key.default is None or is_legal_value(key, key.default), key
        assert key.section.startswith(("12.", "13."))
        assert key.negotiation in Negotiation


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_chap_responses_have_the_length_of_their_digest(algorithm: int) -> None:
    assert len(response(b"secret", 1, b"challenge", algorithm)) == ALGORITHMS[algorithm][1]


def test_chap_by_md5_is_the_digest_of_identifier_secret_challenge() -> None:
    assert response(b"b", 0x61, b"c").hex() == "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321: MD5 of "abc"


def test_challenge_of_returns_a_challenge_or_raises() -> None:
    pairs = (("CHAP_A", "5"), ("CHAP_I", "0x41"), ("CHAP_C", hexadecimal(b"xyz")))
    assert challenge_of(pairs) == Challenge(5, 0x41, b"xyz")
    for bad in (
        pairs[:2],
        (("CHAP_A", "9"), *pairs[1:]),
        (pairs[0], ("CHAP_I", "256"), pairs[2]),
        (*pairs[:2], ("CHAP_C", "0x")),
        (*pairs[:2], ("CHAP_C", hexadecimal(bytes(1025)))),
    ):
        with pytest.raises(RemoteProtocolError, match="CHAP"):
            challenge_of(bad)
