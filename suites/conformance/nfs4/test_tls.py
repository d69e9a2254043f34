"""RPC-with-TLS (RFC 9289): the probe, the handshake, and calls in it.

A server may have no TLS: then the probe is observed, and the cases of the handshake are skipped.
"""

from __future__ import annotations

import ssl

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.suites.conformance.nfs4.security import LOOK
from storagetest.wire.rpc import RpcConnection, auth_sys
from storagetest.wire.rpc.tls import ALPN, AUTH_TLS, STARTTLS, client_context, offers_tls, probe, verifier
from storagetest.wire.rpc.types import accepted_reply, auth_flavor, opaque_auth, reject_stat
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST", section="RFC 9289 4.1")]

REASON = "the server does not offer RPC-with-TLS: the probe of AUTH_TLS ended with {}"


@pytest.fixture
def offered(unlooked) -> RpcConnection:
    """Return a connection whose server waits for a handshake; skip if it offers none."""
    rpc = unlooked.rpc()
    reply = probe(rpc)
    if not offers_tls(reply):
        pytest.skip(REASON.format(reply.status))
    return rpc


@pytest.fixture
def secure(offered) -> RpcConnection:
    """Return a connection with TLS."""
    offered.link.start_tls(client_context(), deadline=offered.deadline)
    return offered


# The probe


@pytest.mark.case(
    "TLS-PROBE", kills=("tls-token", "tls-token-longer", "tls-verifier-flavor", "tls-probe-result")
)
def test_a_probe_is_answered_by_starttls_or_denied(unlooked, observe):
    """The verifier of a reply that offers TLS is of AUTH_NONE, with the eight bytes STARTTLS."""
    reply = probe(unlooked.rpc())
    verf = verifier(reply)
    if verf is None:
        observe(f"no TLS: {reply.status}")
        assert reply.body.value.stat == reject_stat.AUTH_ERROR, reply.status
    elif not verf.body:
        observe(f"no TLS: {reply.status} without a token")
    else:
        observe("TLS is offered")
        assert verf.body == STARTTLS, f"the token is {verf.body!r}"
        assert verf.flavor == auth_flavor.AUTH_NONE, f"the verifier has the flavor {verf.flavor}"


@pytest.mark.case("TLS-PROBE-NONE", kills=("tls-probe-silent", "tls-probe-ends"))
def test_the_connection_goes_on_after_a_probe_without_tls(unlooked):
    """A client of a server without TLS goes on in clear."""
    rpc = unlooked.rpc()
    reply = probe(rpc)
    if offers_tls(reply):
        pytest.skip("the server offers TLS")
    assert rpc.ask("COMPOUND", LOOK, cred=auth_sys()).status == "SUCCESS"


@pytest.mark.case("TLS-PROBE-PROCEDURE", kills=("tls-other-procedure",))
def test_auth_tls_is_for_the_null_procedure_only(unlooked, observe):
    rpc = unlooked.rpc()
    reply = rpc.ask("COMPOUND", LOOK, cred=AUTH_TLS)
    observe(reply.status)
    assert not isinstance(reply.body.value, accepted_reply), f"{reply.status}: a COMPOUND with AUTH_TLS"
    assert rpc.ask("NULL").status == "SUCCESS"


@pytest.mark.case("TLS-PROBE-BODY", level="MAY")
def test_a_probe_whose_credential_has_a_body(unlooked, observe):
    """The length of the credential's body is zero; what a server makes of another is not defined."""
    reply = unlooked.rpc().ask("NULL", cred=opaque_auth(auth_flavor.AUTH_TLS, b"body"))
    observe(reply.status)


# The handshake


@pytest.mark.case("TLS-HANDSHAKE", section="RFC 9289 5", kills=("tls-silent", "tls-clear-goes-on"))
def test_calls_are_executed_after_the_handshake(secure):
    assert secure.ask("NULL").status == "SUCCESS"
    assert secure.ask("COMPOUND", LOOK, cred=auth_sys()).status == "SUCCESS"


@pytest.mark.case("TLS-ALPN", section="RFC 9289 5", kills=("tls-alpn-none", "tls-alpn-other"))
def test_the_server_selects_the_protocol_of_rpc(offered):
    made = offered.link.start_tls(client_context(), deadline=offered.deadline)
    assert made.selected_alpn_protocol() == ALPN, "the server's extensions have sunrpc, and nothing else"


@pytest.mark.case("TLS-ALPN-FOREIGN", section="RFC 7301 3.2", kills=("tls-other-protocol",))
def test_a_client_of_another_protocol_has_no_reply(offered, observe):
    """A client that offers http/1.1 alone gets an alert, or no reply to a call."""
    try:
        offered.link.start_tls(client_context(protocols=("http/1.1",)), deadline=offered.deadline)
        reply = offered.ask("NULL")
    except (RemoteProtocolError, PeerClosed) as error:
        observe(type(error).__name__)
        return
    raise AssertionError(f"{reply.status}: a call in a session of another protocol")


@pytest.mark.case("TLS-VERSION", section="RFC 9289 5", kills=("tls-version",))
def test_the_version_of_tls_is_at_least_1_3(offered):
    context = client_context(highest=ssl.TLSVersion.TLSv1_2)
    try:
        made = offered.link.start_tls(context, deadline=offered.deadline)
    except RemoteProtocolError:
        return
    raise AssertionError(f"a session of {made.version()} was established")


@pytest.mark.case("TLS-CERTIFICATE", section="RFC 9289 5.2.1", level="MAY")
def test_the_certificate_of_the_server(offered, observe):
    """A server authenticates itself by a certificate, or by a pre-shared key."""
    made = offered.link.start_tls(client_context(), deadline=offered.deadline)
    found = made.getpeercert(binary_form=True)
    cipher = made.cipher()
    observe(f"{made.version()} {cipher[0] if cipher else ''}, a certificate of {len(found or b'')} bytes")


@pytest.mark.case("TLS-MANY", section="RFC 9289 4.2", kills=("tls-silent",))
def test_overlapping_calls_in_tls_are_all_answered(secure):
    procedure = secure.procedure("COMPOUND")
    sent = [secure.send(procedure, secure.encode("COMPOUND", LOOK)) for _ in range(16)]
    assert sorted(secure.receive().xid for _ in sent) == sorted(sent)


@pytest.mark.case("TLS-FRAGMENTS", section="RFC 9289 4.2", kills=("tls-silent",))
def test_records_of_rpc_are_independent_of_those_of_tls(secure):
    call = secure.encode("COMPOUND", LOOK)
    xid = secure.send(secure.procedure("COMPOUND"), call, fragments=(4, 8, 1))
    assert secure.receive(xid).status == "SUCCESS"


@pytest.mark.case("TLS-AGAIN", level="MAY")
def test_a_probe_in_tls(secure, observe):
    """A probe in an established session; a server may deny it, or answer it without a second handshake."""
    observe(probe(secure).status)


@pytest.mark.case("TLS-OTHERS", kills=("tls-ends-others",))
def test_another_connection_goes_on_in_clear(unlooked, offered):
    """TLS is of one connection. A server may require it of all: then the call is denied."""
    other = unlooked.rpc()
    before = other.ask("NULL").status
    offered.link.start_tls(client_context(), deadline=offered.deadline)
    assert offered.ask("NULL").status == "SUCCESS"
    assert other.ask("NULL").status == before
