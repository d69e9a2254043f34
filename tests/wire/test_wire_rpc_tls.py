"""RPC-with-TLS: the probe and the handshake, against a server on loopback that has TLS or not."""

from __future__ import annotations

import ssl

import pytest
from secure_nfs import Fault, SecureNfs, server_context

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.types import NFS_V4
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.tls import client_context, offers_tls, probe, verifier
from storagetest.wire.tcp import RecordedConnection


def test_a_call_after_the_handshake_is_recorded_in_clear() -> None:
    with (
        SecureNfs(tls=server_context(Fault())) as server,
        RecordedConnection.connect("127.0.0.1", server.port, deadline=60) as link,
    ):
        rpc = RpcConnection(link, NFS_V4, deadline=60)
        reply = probe(rpc)
        assert offers_tls(reply)
        assert verifier(reply).body == b"STARTTLS"
        made = link.start_tls(client_context(), deadline=60)
        assert (made.version(), made.selected_alpn_protocol()) == ("TLSv1.3", "sunrpc")
        before = len(link.transcript)
        assert rpc.ask("NULL").status == "SUCCESS"
        call, answer = link.transcript[before:]
        assert call.outgoing
        assert not answer.outgoing
        assert call.data[4:8] == answer.data[4:8], "the xid"


def test_a_handshake_that_is_refused_is_the_peers_fault() -> None:
    with (
        SecureNfs(tls=server_context(Fault())) as server,
        RecordedConnection.connect("127.0.0.1", server.port, deadline=60) as link,
    ):
        probe(RpcConnection(link, NFS_V4, deadline=60))
        with pytest.raises(RemoteProtocolError, match="the TLS handshake failed"):
            link.start_tls(client_context(highest=ssl.TLSVersion.TLSv1_2), deadline=60)
        assert link.receive(deadline=60) == b""


def test_a_server_without_tls_denies_the_probe() -> None:
    with SecureNfs() as server, RecordedConnection.connect("127.0.0.1", server.port, deadline=60) as link:
        rpc = RpcConnection(link, NFS_V4, deadline=60)
        reply = probe(rpc)
        assert not offers_tls(reply)
        assert verifier(reply) is None
        assert rpc.ask("NULL").status == "SUCCESS"
