"""RPC-with-TLS (RFC 9289): the probe for it, and the settings of a client's handshake.

A client asks with a NULL call whose credential has the flavor AUTH_TLS. A server with TLS answers with the
verifier ``STARTTLS``; the client's next bytes are those of a TLS handshake.
"""

from __future__ import annotations

import ssl

from storagetest.wire.rpc.client import RpcConnection
from storagetest.wire.rpc.message import Reply
from storagetest.wire.rpc.types import accept_stat, accepted_reply, auth_flavor, opaque_auth

AUTH_TLS = opaque_auth(auth_flavor.AUTH_TLS, b"")
"""The credential of a probe (RFC 9289 4.1)."""

STARTTLS = b"STARTTLS"
"""The body of the verifier of a server that has TLS (RFC 9289 4.1)."""

ALPN = "sunrpc"
"""The protocol in the handshake's ALPN (RFC 9289 8.2)."""


def probe(rpc: RpcConnection) -> Reply:
    """Ask on ``rpc`` whether the server has TLS, and return its reply."""
    return rpc.ask("NULL", cred=AUTH_TLS)


def verifier(reply: Reply) -> opaque_auth | None:
    """Return the verifier of a reply; None if the call was denied."""
    body = reply.body.value
    return body.verf if isinstance(body, accepted_reply) else None


def offers_tls(reply: Reply) -> bool:
    """Return whether the reply to a probe has the token that starts TLS, whatever its flavor is."""
    verf = verifier(reply)
    return verf is not None and reply.accepted == accept_stat.SUCCESS and verf.body.startswith(STARTTLS)


def client_context(
    *,
    protocols: tuple[str, ...] = (ALPN,),
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLContext:
    """Return the settings of a handshake. The server's certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = highest
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
