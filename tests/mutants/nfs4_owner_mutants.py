"""Broken rules of owners: their client id, an incarnation that is not confirmed, locks to the end."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4.types import COMPOUND4args, COMPOUND4res, nfsstat4

OK, DENIED = nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_DENIED
WHOLE = 0xFFFF_FFFF_FFFF_FFFF


def _refused(
    row: str, status: nfsstat4, wanted: Callable[[Nfs4ProxyConnection, str, Any, Any], bool]
) -> None:
    """Register a mutant that ends the first successful operation for which ``wanted`` holds with ``status``."""

    def compound(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        for at, (given, one) in enumerate(zip(arguments.argarray, results.resarray, strict=False)):
            if of(one.value) == OK and wanted(talk, opname(given), given.value, one.value):
                last = replace(one, value=failed(one.value, status))
                return replace(results, status=status, resarray=(*results.resarray[:at], last))
        return results

    mutant(row, part="compound")(compound)


def _of_another_client(talk: Nfs4ProxyConnection, name: str, given: Any, result: Any) -> bool:
    """Whether the client id of an owner is not that of the session."""
    if name == "CREATE_SESSION":
        talk.shared[result.value.csr_sessionid] = given.csa_clientid
    elif name == "SEQUENCE":
        talk.memory["client"] = talk.shared.get(given.sa_sessionid)
    owner = None
    if name in ("OPEN", "LOCKT"):
        owner = given.owner
    elif name == "LOCK" and given.locker.new_lock_owner:
        owner = given.locker.value.lock_owner
    known = talk.memory.get("client")
    return owner is not None and known is not None and owner.clientid != known


_refused(
    "owner-clientid-compared | 18.16.3 | an owner whose client id is not that of the session is refused",
    nfsstat4.NFS4ERR_STALE_CLIENTID,
    _of_another_client,
)


def _of_replaced_client(talk: Nfs4ProxyConnection, name: str, given: Any, result: Any) -> bool:
    """Whether the stateid is of a client for which SETCLIENTID has made a record of another incarnation."""
    kept = talk.shared
    if name == "SETCLIENTID":
        record = given.client.id, given.client.verifier
        kept[result.value.clientid] = record
        confirmed = kept.get(record[0])
        if confirmed is not None and confirmed[0] != record[1]:
            kept["dead", confirmed[1]] = True
    elif name == "SETCLIENTID_CONFIRM" and given.clientid in kept:
        owner, verifier = kept[given.clientid]
        kept[owner] = verifier, given.clientid
    elif name == "OPEN":
        kept[result.value.stateid.other] = given.owner.clientid
    elif name in ("READ", "WRITE", "LOCK", "CLOSE"):
        stateid = getattr(given, "stateid", None) or getattr(given, "open_stateid", None)
        if name == "LOCK" and given.locker.new_lock_owner:
            stateid = given.locker.value.open_stateid
        return stateid is not None and ("dead", kept.get(stateid.other)) in kept
    return False


_refused(
    "scid-drops-state | 16.33 of RFC 7530 | SETCLIENTID of a new incarnation ends the state of the confirmed one",
    nfsstat4.NFS4ERR_EXPIRED,
    _of_replaced_client,
)


def _to_end(bits: int) -> None:
    """Register a mutant that states a lock to the end with offsets of ``bits`` bits."""

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        if of(result) != DENIED or result.value.length not in (0, WHOLE):
            return result
        return put(result, "value.length", (1 << bits) - 1 - result.value.offset)

    row = f"lock-to-end-{bits} | 18.11.3 | a lock to the end denies others with a range of {bits} bits"
    mutant(row, "LOCK", "LOCKT")(change)


_to_end(31)
_to_end(63)
