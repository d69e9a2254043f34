"""Broken rules of READ, WRITE and COMMIT (RFC 1813 3.3.6, 3.3.7, 3.3.21)."""

# a mutant is a row of a table

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put
from nfs3_rules import OK, accepts, forged, ignores, refuses, sets

from storagetest.wire.nfs3.types import nfs_fh3, nfsstat3, stable_how

RTMAX = 4096
"""Bytes of the largest READ of a server with small transfers."""
INVALID = (nfsstat3.NFS3ERR_ISDIR, nfsstat3.NFS3ERR_INVAL)


def first_byte(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:] if data else data


sets("read-data | RFC 1813 3.3.6 | one bit of the data is wrong", "READ", "data", first_byte)
ignores(
    "read-offset | RFC 1813 3.3.6 | READ begins at a multiple of 512",
    "READ",
    "offset",
    lambda offset: offset // 512 * 512,
)
sets(
    "read-count | RFC 1813 3.3.6 | count is one more than the data", "READ", "count", lambda count: count + 1
)


@mutant("read-more | RFC 1813 3.3.6 | READ returns more than was asked for", "READ")
def read_more(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status:
        return result
    longer = put(result, "value.data", lambda data: data + bytes(call.argument.count))
    return put(longer, "value.count", len(longer.value.data))


sets("read-eof | RFC 1813 3.3.6 | eof is never set", "READ", "eof", False)
sets("read-eof-early | RFC 1813 3.3.6 | eof is always set", "READ", "eof", True)


@mutant(
    "read-over-rtmax-eof | RFC 1813 3.3.6 | rtmax is 4 KiB, and a READ of more states eof", "FSINFO", "READ"
)
def over_rtmax_eof(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    if call.name == "FSINFO":
        return put(result, "value.rtmax", RTMAX)
    return put(result, "value.eof", True) if call.argument.count > RTMAX else result


MUTANTS["read-over-rtmax-eof"].request = lambda talk, call: (
    put(call.argument, "count", min(call.argument.count, RTMAX)) if call.name == "READ" else call.argument
)


@mutant("read-behind-data | RFC 1813 3.3.6 | a READ behind the end returns a byte", "READ")
def behind_data(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or result.value.count:
        return result
    return replace(result, value=replace(result.value, count=1, data=b"\0"))


sets(
    "read-behind-eof | RFC 1813 3.3.6 | eof is not set behind the end",
    "READ",
    "eof",
    False,
    when=lambda call, result: not result.value.count,
)
refuses(
    "read-zero-refused | RFC 1813 3.3.6 | a READ of no bytes is refused",
    "READ",
    nfsstat3.NFS3ERR_INVAL,
    when=lambda call, result: not call.argument.count,
)
sets(
    "read-hole | RFC 1813 3.3.6 | holes are read as ones",
    "READ",
    "data",
    lambda data: data.replace(b"\0", b"\xff"),
)
sets(
    "read-hole-shifted | RFC 1813 3.3.6 | data after a hole are two bytes late in a READ that begins in it",
    "READ",
    "data",
    lambda data: data[:2] + data[:-2] if data[:2] == b"\0\0" else data,
)
accepts("read-dir | RFC 1813 3.3.6 | a directory is read", *INVALID, procedures=("READ",))
accepts(
    "read-permission | RFC 1813 3.3.6 | a file without permission is read",
    nfsstat3.NFS3ERR_ACCES,
    procedures=("READ",),
)
sets(
    "read-attributes | RFC 1813 3.3.6 | the attributes of READ are of another file",
    "READ",
    "file_attributes.fileid",
    lambda number: number + 1,
)

NOWHERE = nfs_fh3(bytes(8))
forged(
    "write-lost | RFC 1813 3.3.7 | data are not written",
    "WRITE",
    lambda argument: replace(argument, file=NOWHERE),
)
ignores("write-offset | RFC 1813 3.3.7 | WRITE begins at offset 0", "WRITE", "offset", 0)
sets("write-count | RFC 1813 3.3.7 | count is more than was sent", "WRITE", "count", lambda count: count + 1)
sets(
    "write-committed | RFC 1813 3.3.7 | every WRITE is committed as UNSTABLE",
    "WRITE",
    "committed",
    stable_how.UNSTABLE,
)
mutant("write-zero | RFC 1813 3.3.7 | a WRITE of no bytes extends the file", "WRITE", part="request")(
    lambda talk, call: call.argument if call.argument.count else replace(call.argument, count=1, data=b"\0")
)
accepts("write-dir | RFC 1813 3.3.7 | a directory is written", *INVALID, procedures=("WRITE",))
accepts(
    "write-permission | RFC 1813 3.3.7 | a file without permission is written",
    nfsstat3.NFS3ERR_ACCES,
    procedures=("WRITE",),
)
accepts(
    "write-too-far | RFC 1813 3.3.7 | a WRITE past the largest file succeeds",
    nfsstat3.NFS3ERR_FBIG,
    nfsstat3.NFS3ERR_INVAL,
    procedures=("WRITE",),
)
sets(
    "write-wcc | RFC 1813 2.6 | the attributes after WRITE have the old size",
    "WRITE",
    "file_wcc.after.size",
    5,
)
mutant("write-mtime | RFC 1813 2.6 | WRITE leaves mtime as it is", "GETATTR")(
    lambda talk, call, result: (
        put(result, "value.obj_attributes.mtime.seconds", 1_000_000_000) if not result.status else result
    )
)


@mutant("write-verifier | RFC 1813 3.3.7 | each WRITE has another verifier", "WRITE")
def write_verifier(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return put(result, "value.verf", talk.memory["at"].to_bytes(8, "big")) if not result.status else result


sets(
    "commit-verifier | RFC 1813 3.3.21 | the verifier of COMMIT is not that of WRITE",
    "COMMIT",
    "verf",
    b"\1" * 8,
)
refuses("commit-range | RFC 1813 3.3.21 | COMMIT is refused with NFS3ERR_IO", "COMMIT", nfsstat3.NFS3ERR_IO)
sets(
    "commit-wcc | RFC 1813 2.6 | the attributes after COMMIT are of another file",
    "COMMIT",
    "file_wcc.after.fileid",
    lambda number: number + 1,
)

mutant("write-zero-count | RFC 1813 3.3.7 | a WRITE that was done states a count of 0", "WRITE")(
    lambda talk, call, result: put(result, "value.count", 0) if result.status == OK else result
)
