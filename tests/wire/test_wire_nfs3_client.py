"""CREATE calls of the NFSv3 client that overlap, on a server of our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import pytest

from storagetest.wire.nfs3.client import Nfs3Client
from storagetest.wire.nfs3.types import (
    NFS_V3,
    CREATE3res,
    CREATE3resfail,
    CREATE3resok,
    nfs_fh3,
    nfsstat3,
    wcc_data,
)
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.server import RpcServer
from storagetest.wire.tcp import RecordedConnection, listen

DIRECTORY = nfs_fh3(b"directory")
NAMES = [b"a", b"b", b"c"]
UNCHANGED = wcc_data(None, None)


@contextmanager
def client(*busy: bytes, refuses: bytes = b"") -> Iterator[tuple[Nfs3Client, list[bytes]]]:
    """Yield a client, and the names that its server creates. It is ``busy`` when first asked for some."""
    created: list[bytes] = []
    waits = list(busy)

    def serve(procedure: str, argument: Any) -> CREATE3res:
        name = argument.where.name
        assert (procedure, argument.where.dir) == ("CREATE", DIRECTORY)
        if name in waits:
            waits.remove(name)
            return CREATE3res(nfsstat3.NFS3ERR_JUKEBOX, CREATE3resfail(UNCHANGED))
        if name == refuses:
            return CREATE3res(nfsstat3.NFS3ERR_ACCES, CREATE3resfail(UNCHANGED))
        created.append(name)
        return CREATE3res(nfsstat3.NFS3_OK, CREATE3resok(nfs_fh3(name), None, UNCHANGED))

    with (
        RpcServer(listen("127.0.0.1"), {NFS_V3: serve}) as server,
        RecordedConnection.connect("127.0.0.1", server.port, deadline=60) as link,
    ):
        yield Nfs3Client(RpcConnection(link, NFS_V3, deadline=60)), created


def test_all_calls_are_sent_before_a_reply_is_read() -> None:
    with client() as (nfs, created):
        nfs.create_all(DIRECTORY, NAMES)
        assert created == NAMES
        sent = takewhile(lambda chunk: chunk.outgoing, nfs.rpc.link.transcript)
        assert len(list(sent)) == len(NAMES)


def test_a_call_that_has_to_wait_is_repeated() -> None:
    with client(b"b") as (nfs, created):
        nfs.create_all(DIRECTORY, NAMES)
        assert created == [b"a", b"c", b"b"]


def test_a_refused_call_is_a_failed_claim() -> None:
    with client(refuses=b"b") as (nfs, _), pytest.raises(AssertionError, match="NFS3ERR_ACCES"):
        nfs.create_all(DIRECTORY, NAMES)
