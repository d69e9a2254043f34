"""NEGOTIATE, its contexts, and the validation of it (MS-SMB2 3.3.5.4, 3.3.5.15.12)."""

from __future__ import annotations

import pytest

from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import validate_negotiate
from storagetest.wire.smb2.codes import SHA_512, Capability, Cipher, ContextType, Dialect, Signing, SmbStatus
from storagetest.wire.smb2.connection import DIALECTS, default_contexts
from storagetest.wire.smb2.harness import expect
from storagetest.wire.tcp import PeerClosed

pytestmark = [
    pytest.mark.needs("smb-wire"),
    pytest.mark.case(section="MS-SMB2 3.3.5.4", level="MUST"),
]


def case(identifier, value, *kills, **more):
    return pytest.param(value, marks=pytest.mark.case(identifier, kills=kills, **more))


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-NEG-01", Dialect.SMB_2_0_2, "dialect-other"),
        case("SMB-NEG-02", Dialect.SMB_2_1, "dialect-other"),
        case("SMB-NEG-03", Dialect.SMB_3_0, "dialect-other"),
        case("SMB-NEG-04", Dialect.SMB_3_0_2, "dialect-other"),
        case("SMB-NEG-05", Dialect.SMB_3_1_1, "dialect-other"),
    ],
)
def test_the_one_offered_dialect_is_chosen_or_none(bench, dialect):
    connection = bench.connect()
    message = connection.call(connection.negotiate_request([dialect]))
    expect(message, SmbStatus.SUCCESS, SmbStatus.NOT_SUPPORTED)
    assert message.status or message["dialect"] == dialect


@pytest.mark.case("SMB-NEG-06", kills=("dialect-other",))
def test_the_chosen_dialect_is_one_of_those_that_were_offered(bench):
    assert bench.connect().negotiate().dialect in DIALECTS


@pytest.mark.case("SMB-NEG-07", kills=("accepts-negotiate", "status-negotiate"))
def test_a_dialect_count_of_zero_is_an_invalid_parameter(bench):
    connection = bench.connect()
    message = connection.call(connection.negotiate_request([]))
    expect(message, SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-NEG-08", kills=("accepts-negotiate", "status-negotiate"))
def test_no_common_dialect_is_not_supported(bench):
    connection = bench.connect()
    expect(connection.call(connection.negotiate_request([0x0299])), SmbStatus.NOT_SUPPORTED)


@pytest.mark.case(
    "SMB-NEG-09",
    kills=(
        "negotiate-again-answered",
        "close-hidden",
    ),
)
def test_a_second_negotiate_ends_the_connection(bench):
    connection = bench.connect()
    connection.negotiate()
    connection.send(connection.negotiate_request())
    closed = connection.closed()
    if not closed:
        bench.before_session()  # a server that answers nothing but NEGOTIATE is the failure of another case
    assert closed, "the connection is still open"


@pytest.mark.parametrize(
    "contexts",
    [
        case("SMB-NEG-10", (), "accepts-negotiate", "status-negotiate"),
        case("SMB-NEG-25", (c.preauth(), c.preauth()), no_mutant_reason="smbd breaks this rule itself"),
    ],
)
def test_not_one_preauth_context_is_an_invalid_parameter(bench, contexts):
    connection = bench.connect()
    message = connection.call(connection.negotiate_request([Dialect.SMB_3_1_1], contexts=contexts))
    expect(message, SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-NEG-11", kills=("accepts-negotiate", "status-negotiate"))
def test_unknown_hashes_alone_are_no_overlap(bench):
    connection = bench.connect()
    asked = connection.negotiate_request([Dialect.SMB_3_1_1], contexts=[c.preauth(hashes=(0x77,))])
    expect(connection.call(asked), SmbStatus.NO_PREAUTH_INTEGRITY_HASH_OVERLAP)


@pytest.mark.case("SMB-NEG-12", section="MS-SMB2 2.2.4.1.1", kills=("preauth-hash-other",))
def test_the_chosen_hash_is_sha_512(bench):
    negotiated = bench.connect().negotiate([Dialect.SMB_3_1_1])
    assert c.chosen(negotiated.contexts, ContextType.PREAUTH_INTEGRITY) == SHA_512


@pytest.mark.parametrize(
    "cipher",
    [
        case("SMB-NEG-13", Cipher.AES_128_CCM, "cipher-other"),
        case("SMB-NEG-14", Cipher.AES_128_GCM, "cipher-other"),
        case("SMB-NEG-15", Cipher.AES_256_CCM, "cipher-other"),
        case("SMB-NEG-16", Cipher.AES_256_GCM, "cipher-other"),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.4.1.2, 3.3.5.4")
def test_the_chosen_cipher_was_offered(bench, cipher):
    negotiated = bench.connect().negotiate([Dialect.SMB_3_1_1], contexts=default_contexts(ciphers=[cipher]))
    assert c.chosen(negotiated.contexts, ContextType.ENCRYPTION) in (None, 0, cipher)


@pytest.mark.parametrize(
    "signing",
    [
        case("SMB-NEG-17", Signing.HMAC_SHA256, "signing-other"),
        case("SMB-NEG-18", Signing.AES_CMAC, "signing-other"),
        case("SMB-NEG-19", Signing.AES_GMAC, "signing-other"),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.4.1.7, 3.3.5.4")
def test_the_chosen_signing_algorithm_was_offered_or_is_aes_cmac(bench, signing):
    contexts = default_contexts(signings=[signing])
    negotiated = bench.connect().negotiate([Dialect.SMB_3_1_1], contexts=contexts)
    # without a common algorithm, AES-CMAC is used (3.3.5.4)
    assert c.chosen(negotiated.contexts, ContextType.SIGNING) in (None, signing, Signing.AES_CMAC)


@pytest.mark.case("SMB-NEG-20", level="SHOULD", section="MS-SMB2 2.2.4", kills=("max-sizes-zero",))
def test_the_largest_sizes_are_at_least_64_kib(bench):
    message = bench.connect().negotiate().message
    assert min(message["max_read"], message["max_write"], message["max_transact"]) >= 65536


@pytest.mark.case("SMB-NEG-21", kills=("server-guid-changes",))
def test_the_server_guid_is_the_same_on_every_connection(bench):
    first, second = (bench.connect().negotiate().message["server_guid"] for _ in range(2))
    assert first == second


@pytest.mark.case("SMB-NEG-22", kills=("capabilities-of-3-in-2",))
def test_dialect_2_0_2_has_no_capability_but_dfs(bench):
    capabilities = bench.connect().negotiate([Dialect.SMB_2_0_2]).capabilities
    assert not capabilities & ~Capability.DFS


@pytest.mark.case("SMB-NEG-23", kills=("security-mode-zero",))
def test_signing_is_always_enabled(bench):
    assert bench.connect().negotiate().message["security_mode"] & 1


@pytest.mark.case("SMB-NEG-24", section="MS-SMB2 2.2.4", kills=("status-success-lost",))
def test_unknown_negotiate_contexts_are_ignored(bench):
    connection = bench.connect()
    contexts = [*default_contexts(), (0x7777, b"unknown")]
    expect(connection.call(connection.negotiate_request([Dialect.SMB_3_1_1], contexts=contexts)))


VALIDATE = pytest.mark.case(section="MS-SMB2 3.3.5.15.12")


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-VAL-01", Dialect.SMB_2_1, "downgrade"),
        case("SMB-VAL-02", Dialect.SMB_3_0, "downgrade"),
        case("SMB-VAL-03", Dialect.SMB_3_0_2, "downgrade"),
    ],
)
@VALIDATE
def test_validation_repeats_what_was_negotiated(bench, dialect):
    tree = bench.tree([dialect])
    negotiated = tree.session.connection.settled.message
    message = validate_negotiate(tree)
    if dialect < Dialect.SMB_3_0 and message.status == SmbStatus.NOT_SUPPORTED:
        pytest.skip("a server without SMB 3 need not validate the negotiation (3.3.5.15.12)")
    expect(message)
    values = (negotiated["capabilities"], negotiated["server_guid"], negotiated["security_mode"], dialect)
    data = message.buffer
    found = (data[:4], data[4:20], data[20:22], data[22:24])
    assert [int.from_bytes(found[at], "little") if at != 1 else found[at] for at in range(4)] == list(values)


@pytest.mark.parametrize(
    "lie",
    [
        case("SMB-VAL-04", {"guid": b"another guid, so"}, "close-hidden"),
        case("SMB-VAL-05", {"mode": 3}, "close-hidden"),
        case("SMB-VAL-06", {"dialects": (0x0202,)}, "close-hidden"),
        case("SMB-VAL-07", {"capabilities": 0x1}, "close-hidden"),
    ],
)
@VALIDATE
def test_a_negotiation_that_was_changed_ends_the_connection(bench, lie):
    tree = bench.tree([Dialect.SMB_3_0])
    with pytest.raises(PeerClosed):
        validate_negotiate(tree, **lie)


@pytest.mark.case("SMB-VAL-08", no_mutant_reason="smbd breaks this rule itself")
@VALIDATE
def test_a_validation_in_3_1_1_ends_the_connection(bench):
    tree = bench.tree([Dialect.SMB_3_1_1])
    with pytest.raises(PeerClosed):
        validate_negotiate(tree)
