"""Broken rules of READ, WRITE and COMMIT (RFC 8881 18.3, 18.22, 18.32)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, field_of, mutant, of, put, wrong_error

from storagetest.wire.nfs4.types import COMPOUND4args, nfs_opnum4, nfsstat4, stable_how4


def argument(row: str, operation: nfs_opnum4, new: Callable[[Any], Any]) -> None:
    """Register a mutant whose server receives other arguments of ``operation``."""

    def request(_talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        ops = (
            replace(one, value=new(one.value)) if one.argop == operation else one
            for one in arguments.argarray
        )
        return replace(arguments, argarray=tuple(ops))

    mutant(row, part="request")(request)


field_of(
    "read-data | 18.22.3 | the first byte of READ is another",
    "READ",
    "value.data",
    lambda old: bytes([old[0] ^ 1]) + old[1:] if old else old,
)
field_of(
    "read-hole-shifted | 18.22.3 | data after a hole are two bytes late in a READ that begins in it",
    "READ",
    "value.data",
    lambda old: old[:2] + old[:-2] if old[:2] == b"\0\0" else old,
)
field_of("read-eof | 18.22.3 | eof is the contrary", "READ", "value.eof", lambda old: not old)
field_of(
    "read-empty | 18.22.3 | READ of nothing returns a byte", "READ", "value.data", lambda old: old or b"x"
)
wrong_error(
    "io-isdir | 18.22.3 | READ and WRITE of a directory end with another error", "READ WRITE", "ISDIR"
)
field_of(
    "write-count | 18.32.3 | WRITE counts 10000 bytes more", "WRITE", "value.count", lambda old: old + 10000
)
field_of(
    "write-committed | 18.32.3 | every WRITE is UNSTABLE4",
    "WRITE",
    "value.committed",
    stable_how4.UNSTABLE4,
)
argument(
    "write-offset | 18.32.3 | WRITE is one byte further",
    nfs_opnum4.OP_WRITE,
    lambda old: replace(old, offset=old.offset + 1),
)
field_of(
    "commit-verifier | 18.3.3 | COMMIT has a verifier of its own", "COMMIT", "value.writeverf", b"another!"
)
wrong_error(
    "write-openmode | 18.32.3 | WRITE through a read-only open ends with another error", "WRITE", "OPENMODE"
)


@mutant(
    "verifier-of-client | 18.32.3 | the write verifier differs from connection to connection",
    "WRITE",
    "COMMIT",
)
def verifier_of_client(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4_OK:
        return result
    number = talk.shared.setdefault(str(id(talk)), len(talk.shared))
    return put(result, "value.writeverf", lambda known: bytes([known[0] ^ number]) + known[1:])
