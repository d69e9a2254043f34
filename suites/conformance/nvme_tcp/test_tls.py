"""TLS 1.3 with a pre-shared key (NVMe/TCP 3.6.1), for a target with ``tls_key`` and ``host_nqn``."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.config import Variant
from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme_tcp import Identity, SubsystemEndpoint, encode
from storagetest.wire.nvme_tcp.harness import Harness
from storagetest.wire.nvme_tcp.pdu import ICReq
from storagetest.wire.nvme_tcp.tls import ConfiguredPsk, PskHash, TlsKey, tls_key
from storagetest.wire.openssl_psk import PskTls
from storagetest.wire.tcp import RecordedConnection

pytestmark = [
    pytest.mark.needs("nvme-tcp-tls-wire"),
    pytest.mark.case(
        level="MUST",
        section="NVMe/TCP 3.6.1.3",
        no_mutant_reason="a proxy sees only ciphertext; tests/wire has a TLS server that errs",
    ),
]

Observe = Callable[[str], None]

STRANGER = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
NOWHERE = "nqn.2024-01.org.example:no-such"


@pytest.fixture
def name(variant: Variant) -> Identity:
    """Return the one host that the key is for."""
    host = variant.options.host_nqn
    return Identity(host, uuid.uuid5(uuid.NAMESPACE_URL, host).bytes)


@pytest.fixture
def psk(variant: Variant) -> ConfiguredPsk:
    """Return the configured PSK."""
    return ConfiguredPsk.decode(variant.options.tls_key.reveal())


def dialled(endpoint: SubsystemEndpoint, key: TlsKey) -> RecordedConnection:
    connector = PskTls(key.identity, key.key, key.hash.suite, key.hash.number).connect
    return RecordedConnection.connect(
        endpoint.address, endpoint.port, deadline=endpoint.deadline, connector=connector
    )


def session_of(bench: Harness, name: Identity, key: TlsKey) -> list[int]:
    """Connect with ``key``; return the active namespaces."""
    connector = PskTls(key.identity, key.key, key.hash.suite, key.hash.number).connect
    bench.endpoint = replace(bench.endpoint, connector=connector)
    session = bench.session(identity=name)
    session.io_queue()
    return session.namespaces()


@pytest.mark.case("NVT-TLS-SHA256", section="NVMe/TCP 3.6.1.2")
def test_a_session_by_tls_aes_128_gcm_sha256(bench: Harness, name: Identity, psk: ConfiguredPsk) -> None:
    assert session_of(bench, name, tls_key(psk, name.nqn, bench.endpoint.subnqn))


@pytest.mark.case("NVT-TLS-SHA384", section="NVMe/TCP 3.6.1.2", level="SHOULD")
def test_a_session_by_tls_aes_256_gcm_sha384(bench: Harness, name: Identity, psk: ConfiguredPsk) -> None:
    key = tls_key(psk, name.nqn, bench.endpoint.subnqn, psk_hash=PskHash.SHA384)
    assert session_of(bench, name, key)


@pytest.mark.case("NVT-TLS-PSK-WRONG")
def test_another_psk_is_refused_in_the_handshake(
    endpoint: SubsystemEndpoint, name: Identity, psk: ConfiguredPsk
) -> None:
    other = ConfiguredPsk(bytes(byte ^ 0x5A for byte in psk.key), psk.hash)
    with pytest.raises(RemoteProtocolError, match="the handshake failed"):
        dialled(endpoint, tls_key(other, name.nqn, endpoint.subnqn)).close()


@pytest.mark.case("NVT-TLS-IDENTITY-HOST")
def test_the_identity_of_another_host_is_refused(
    endpoint: SubsystemEndpoint, name: Identity, psk: ConfiguredPsk
) -> None:
    key = tls_key(psk, name.nqn, endpoint.subnqn)
    stranger = replace(key, identity=key.identity.replace(name.nqn, STRANGER))
    with pytest.raises(RemoteProtocolError, match="the handshake failed"):
        dialled(endpoint, stranger).close()


@pytest.mark.case("NVT-TLS-IDENTITY-SUBSYSTEM")
def test_the_identity_of_another_subsystem_is_refused(
    endpoint: SubsystemEndpoint, name: Identity, psk: ConfiguredPsk
) -> None:
    key = tls_key(psk, name.nqn, NOWHERE)
    with pytest.raises(RemoteProtocolError, match="the handshake failed"):
        dialled(endpoint, key).close()


@pytest.mark.case("NVT-TLS-EARLY-DATA", section="NVMe/TCP 3.6.1.6")
def test_early_data_is_not_used(endpoint: SubsystemEndpoint, name: Identity, psk: ConfiguredPsk) -> None:
    key = tls_key(psk, name.nqn, endpoint.subnqn)
    tls = PskTls(key.identity, key.key, key.hash.suite, key.hash.number)
    result = tls.send_early_data(endpoint.address, endpoint.port, endpoint.deadline, encode(ICReq()))
    assert result != "accepted", "3.6.1.6: 0-RTT data shall not be used"


@pytest.mark.case("NVT-TLS-CLEAR", section="NVMe/TCP 3.6.1.6", level="MAY")
def test_an_icreq_in_clear(endpoint: SubsystemEndpoint, observe: Observe) -> None:
    with RecordedConnection.connect(endpoint.address, endpoint.port, deadline=endpoint.deadline) as link:
        link.send(encode(ICReq()))
        try:
            answer = link.receive(deadline=0.5)
        except RemoteProtocolError:
            answer = b""
    observe("answered by ICResp" if answer[:1] == b"\1" else "not answered by ICResp")
