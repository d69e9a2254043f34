"""Broken rules of a restart (RFC 7530 9.6, RFC 8881 8.4.2): grace, reclaims, identities that end or remain.

Their cases restart the server, so they have a run and a server of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4.types import (
    EXCHGID4_FLAG_CONFIRMED_R,
    OPEN4_SHARE_DENY_NONE,
    COMPOUND4args,
    LOCK4res,
    LOCK4resok,
    OPEN4res,
    OPEN4resok,
    REMOVE4res,
    REMOVE4resok,
    RENAME4res,
    RENAME4resok,
    change_info4,
    nfsstat4,
    open_claim_type4,
    open_delegation4,
    open_delegation_type4,
    stateid4,
)

GRACE = 8
"""Seconds of the server's lease and grace period in this run (chosen)."""

OK = nfsstat4.NFS4_OK
FAULT = nfsstat4.NFS4ERR_SERVERFAULT
IN_GRACE = nfsstat4.NFS4ERR_GRACE
REFUSED_RECLAIM = (nfsstat4.NFS4ERR_NO_GRACE, nfsstat4.NFS4ERR_RECLAIM_BAD)
_INVENTED = stateid4(1, b"invented 123")
_NAMES = set(MUTANTS)


def _opened() -> OPEN4res:
    none = open_delegation4(open_delegation_type4.OPEN_DELEGATE_NONE)
    return OPEN4res(OK, OPEN4resok(_INVENTED, change_info4(True, 1, 1), 0, (), none))


def _locked() -> LOCK4res:
    return LOCK4res(OK, LOCK4resok(_INVENTED))


def _is_reclaim(argument: Any) -> bool:
    claim = getattr(argument, "claim", None)
    return argument.reclaim if claim is None else claim.claim == open_claim_type4.CLAIM_PREVIOUS


def _wrong(row: str, operations: str, *statuses: nfsstat4, instead: nfsstat4 = FAULT) -> None:
    """Register a mutant that ends ``operations`` with another status than one of ``statuses``."""

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        return failed(result, instead) if of(result) in statuses else result

    mutant(row, *operations.split())(change)


# Grace


@mutant("grace-open | 8.4.2.1 | a new OPEN is granted in the grace period", "OPEN")
def grace_open(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return _opened() if of(result) == IN_GRACE else result


_wrong(
    "grace-open-error | 8.4.2.1 | a new OPEN in the grace period ends with another error", "OPEN", IN_GRACE
)


@mutant("grace-lock | 8.4.2.1 | a new LOCK is granted in the grace period", "LOCK")
def grace_lock(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return _locked() if of(result) == IN_GRACE else result


_wrong(
    "grace-lock-error | 8.4.2.1 | a new LOCK in the grace period ends with another error", "LOCK", IN_GRACE
)


@mutant("grace-read | 8.4.2.1 | READ in the grace period ends with NFS4ERR_NO_GRACE", "READ")
def grace_read(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, nfsstat4.NFS4ERR_NO_GRACE)


@mutant("grace-read-zero | 18.22.3 | READ after a restart returns zeros", "READ")
def grace_read_zero(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.data", lambda data: bytes(len(data))) if of(result) == OK else result


_wrong(
    "grace-names | 8.4.2.1 | REMOVE and RENAME in the grace period end with NFS4ERR_NO_GRACE",
    "REMOVE RENAME", OK, IN_GRACE, instead=nfsstat4.NFS4ERR_NO_GRACE,
)  # fmt: skip


@mutant(
    "grace-names-forged | 8.4.2.1 | REMOVE and RENAME in the grace period only return NFS4_OK",
    "REMOVE",
    "RENAME",
)
def grace_names_forged(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != IN_GRACE:
        return result
    change = change_info4(True, 1, 1)
    removed = isinstance(result, REMOVE4res)
    return REMOVE4res(OK, REMOVE4resok(change)) if removed else RENAME4res(OK, RENAME4resok(change, change))


@mutant("grace-endless | 8.4.2.1 | the grace period does not end", "OPEN")
def grace_endless(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    talk.shared["grace"] = talk.shared.get("grace", False) or of(result) == IN_GRACE
    held = talk.shared["grace"] and not _is_reclaim(argument) and of(result) == OK
    return failed(result, IN_GRACE) if held else result


# Reclaims


@mutant("reclaim-open | 8.4.2.1 | a reclaim of an open ends with NFS4ERR_NO_GRACE", "OPEN")
def reclaim_open(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    refuses = _is_reclaim(argument) and of(result) == OK
    return failed(result, nfsstat4.NFS4ERR_NO_GRACE) if refuses else result


@mutant("reclaim-lock | 8.4.2.1 | a reclaim of a lock ends with NFS4ERR_NO_GRACE", "LOCK")
def reclaim_lock(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    refuses = _is_reclaim(argument) and of(result) == OK
    return failed(result, nfsstat4.NFS4ERR_NO_GRACE) if refuses else result


def _request(row: str, operation: str, change: Any) -> None:
    """Register a mutant whose server sees another argument of a reclaim."""

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        array = tuple(
            replace(one, value=change(one.value))
            if opname(one) == operation and _is_reclaim(one.value)
            else one
            for one in arguments.argarray
        )
        return replace(arguments, argarray=array)

    mutant(row, part="request")(request)


_request(
    "reclaim-open-lost | 8.4.2.1 | a reclaimed open denies nothing",
    "OPEN",
    lambda given: replace(given, share_deny=OPEN4_SHARE_DENY_NONE),
)
_request(
    "reclaim-lock-lost | 8.4.2.1 | a reclaimed lock is of another range",
    "LOCK",
    lambda given: replace(given, offset=1 << 40),
)


@mutant("reclaim-granted | 8.4.2.1 | any reclaim of an open is granted, at any time", "OPEN")
def reclaim_granted(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return _opened() if of(result) in REFUSED_RECLAIM else result


_wrong(
    "reclaim-open-error | 8.4.2.1 | a reclaim of an open that is refused ends with another error",
    "OPEN", *REFUSED_RECLAIM,
)  # fmt: skip


@mutant("reclaim-lock-granted | 8.4.2.1 | a lock is reclaimed at any time", "LOCK")
def reclaim_lock_granted(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return _locked() if of(result) in REFUSED_RECLAIM else result


_wrong(
    "reclaim-lock-error | 8.4.2.1 | a reclaim of a lock that is refused ends with another error",
    "LOCK", *REFUSED_RECLAIM,
)  # fmt: skip

# What ends with the server

_CLIENTID_OPS = "RENEW SETCLIENTID_CONFIRM CREATE_SESSION OPEN"
_wrong(
    "restart-clientid | 2.4 | a client id of before the restart ends with another error",
    _CLIENTID_OPS, nfsstat4.NFS4ERR_STALE_CLIENTID,
)  # fmt: skip


@mutant(
    "restart-clientid-kept | 2.4 | a client id of before the restart is accepted", *_CLIENTID_OPS.split()[:2]
)
def clientid_kept(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, OK) if of(result) == nfsstat4.NFS4ERR_STALE_CLIENTID else result


_wrong(
    "restart-stateid | 8.2.4 | a stateid of before the restart ends with another error",
    "READ CLOSE LOCKU", nfsstat4.NFS4ERR_STALE_STATEID, nfsstat4.NFS4ERR_BAD_STATEID,
)  # fmt: skip
_wrong(
    "restart-session | 8.4.2.1 | a session of before the restart ends with another error",
    "SEQUENCE", nfsstat4.NFS4ERR_BADSESSION,
)  # fmt: skip


@mutant(
    "restart-confirmed | 18.35.4 | EXCHANGE_ID after a restart returns a confirmed client id", "EXCHANGE_ID"
)
def restart_confirmed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.eir_flags", lambda flags: flags | EXCHGID4_FLAG_CONFIRMED_R)


@mutant(
    "restart-same-id | 2.4 | a client has the same client id after a restart", "EXCHANGE_ID", "SETCLIENTID"
)
def restart_same_id(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    name = "eir_clientid" if hasattr(result.value, "eir_clientid") else "clientid"
    owner = getattr(argument, "client", None) or argument.eia_clientowner
    return put(result, f"value.{name}", talk.shared.setdefault(owner, getattr(result.value, name)))


def _renamed(row: str, path: str) -> None:
    """Register a mutant whose second EXCHANGE_ID returns another value."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        talk.shared["count"] = talk.shared.get("count", 0) + 1
        return put(result, path, b"another") if talk.shared["count"] > 1 else result

    mutant(row, "EXCHANGE_ID")(change)


_renamed(
    "restart-owner | 2.5 | the server owner changes with a restart", "value.eir_server_owner.so_major_id"
)
_renamed("restart-scope | 2.10.4 | the server scope changes with a restart", "value.eir_server_scope")


@mutant("restart-verifier | 18.32.3 | the write verifier remains after a restart", "WRITE", "COMMIT")
def restart_verifier(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.writeverf", b"constant") if of(result) == OK else result


@mutant("restart-commit-verifier | 18.3.3 | COMMIT has the verifier of before the restart", "COMMIT")
def restart_commit_verifier(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.writeverf", talk.shared.setdefault("verifier", result.value.writeverf))


@mutant("restart-handle | 4.2.2 | a persistent filehandle is stale after a restart", "GETFH", "PUTFH")
def restart_handle(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if argument is None or type(result).__name__ == "GETFH4res":
        talk.shared.setdefault(result.value.object, talk)
        return result
    known = talk.shared.get(argument.object, talk)
    return result if known is talk else failed(result, nfsstat4.NFS4ERR_STALE)


for name in set(MUTANTS) - _NAMES:
    MUTANTS[name].kind = "restart"
