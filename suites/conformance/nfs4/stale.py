"""Handles of files that are gone (RFC 8881 4.2.2, RFC 7530 4.2.2)."""

from __future__ import annotations

from contextlib import suppress

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.nfs4.client import Done, Nfs4Client, refused
from storagetest.wire.nfs4.operations import getattr_, putfh
from storagetest.wire.nfs4.types import FATTR4_TYPE, nfsstat4

GONE = (nfsstat4.NFS4ERR_STALE, nfsstat4.NFS4ERR_FHEXPIRED)


def assert_stale(nfs: Nfs4Client, handle: bytes) -> None:
    """Assert that a file is gone; a server may keep it open for a moment after its last CLOSE."""
    found: list[Done] = []

    def is_refused() -> bool:
        found[:] = [nfs.compound(putfh(handle), getattr_(FATTR4_TYPE))]
        return found[0].status != nfsstat4.NFS4_OK

    with suppress(DeadlineExceeded):
        wait_until(is_refused, nfs.rpc.deadline / 2, "the end of a file without a name")
    refused(found[0], *GONE)
