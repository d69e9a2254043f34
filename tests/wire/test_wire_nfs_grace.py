"""The look at a server that has just been started waits for the end of its grace period."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ganesha import EXPORT, Ganesha, ganesha, is_installed

from storagetest.wire.nfs3 import harness as nfs3
from storagetest.wire.nfs3.client import attributes
from storagetest.wire.nfs3.types import nfsstat3
from storagetest.wire.nfs4 import harness as nfs4
from storagetest.wire.nfs4.client import ok
from storagetest.wire.nfs4.operations import unchecked
from storagetest.wire.nfs4.state import StateOwner

pytestmark = pytest.mark.skipif(not is_installed(), reason="nfs-ganesha is not installed")

WITHIN = 1.0
"""Deadline of a reply, in seconds: far less than the grace period."""


@pytest.fixture
def server() -> Iterator[Ganesha]:
    with ganesha(lease=5, grace=8) as started:
        yield started


def test_nfsv4_opens_are_not_refused_after_the_look(server: Ganesha) -> None:
    facts = nfs4.look(nfs4.Nfs4Endpoint("127.0.0.1", server.nfs, EXPORT, WITHIN), b"run")
    with nfs4.Nfs4Harness(facts.endpoint) as bench:
        owner = StateOwner(bench.client(1))
        ok(owner.try_open(facts.directory, b"file", how=unchecked()))


def test_nfsv3_changes_are_not_refused_after_the_look(server: Ganesha) -> None:
    endpoint = nfs3.Nfs3Endpoint("127.0.0.1", server.nfs, EXPORT, WITHIN, server.mount, server.lock, 0)
    facts = nfs3.look(endpoint, b"run")
    with nfs3.Nfs3Harness(endpoint) as bench:
        assert bench.client().setattr(facts.directory, attributes(mode=0o755)).status == nfsstat3.NFS3_OK
