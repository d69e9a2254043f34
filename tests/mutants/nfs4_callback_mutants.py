"""Broken rules of the back channel, delegations and asynchronous copies, on the lab's knfsd (RFC 8881, 7862).

NFS-Ganesha's VFS grants no delegation.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, failed, field_of, mutant, of, put, refuses, wrong_error
from nfs4_session_mutants import refuses_if
from nfs4_v42_mutants import after, on_knfsd, with_fields

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.types import CB_COMPOUND4args, nfs_cb_opnum4, nfsstat4

OK = nfsstat4.NFS4_OK
SEQUENCE, RECALL = nfs_cb_opnum4.OP_CB_SEQUENCE, nfs_cb_opnum4.OP_CB_RECALL
OFFLOAD = nfs_cb_opnum4.OP_CB_OFFLOAD


def called(row: str, number: nfs_cb_opnum4, **changes: Callable[[Any], Any]) -> None:
    """Register a mutant whose client receives other fields of a callback operation."""

    def callback(talk: Nfs4ProxyConnection, given: CB_COMPOUND4args) -> CB_COMPOUND4args:
        return replace(given, argarray=with_fields(given.argarray, number, changes))

    mutant(row, part="callback")(callback)


def has_recall(given: CB_COMPOUND4args) -> bool:
    """Whether a callback recalls a delegation."""
    return RECALL in [one.argop for one in given.argarray]


def own_stateid(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return OPEN's result with the stateid of the open as that of the delegation."""
    if of(result) != OK or not hasattr(result.value.delegation.value, "stateid"):
        return result
    return put(result, "value.delegation.value.stateid", result.value.stateid)


def kept(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return DELEGRETURN's result with NFS4_OK."""
    return failed(result, OK)


def second_owner(talk: Nfs4ProxyConnection, argument: Any) -> bool:
    """Whether another client has opened a file before."""
    owners = talk.shared.setdefault("owners", set())
    owners.add(argument.owner.clientid)
    return len(owners) > 1


with on_knfsd():
    called("cb-session | 20.9.3 | CB_SEQUENCE has another session", SEQUENCE, csa_sessionid=lambda old: bytes(16))  # fmt: skip
    called("cb-slot | 20.9.3 | CB_SEQUENCE has a slot that the back channel has not", SEQUENCE, csa_slotid=lambda old: old + 99)  # fmt: skip
    called("cb-sequence | 18.36.4 | the first CB_SEQUENCE of a slot has the sequence id 2", SEQUENCE, csa_sequenceid=lambda old: old + 1)  # fmt: skip
    called("recall-stateid | 20.2.3 | CB_RECALL has another stateid", RECALL, stateid=lambda old: replace(old, other=bytes(12)))  # fmt: skip
    called("recall-handle | 20.2.3 | CB_RECALL has another filehandle", RECALL, fh=lambda old: old[:-1] + bytes([old[-1] ^ 1]))  # fmt: skip
    mutant("recall-lost | 10.4.4 | no delegation is recalled", part="callback")(
        lambda talk, given: None if has_recall(given) else given
    )
    mutant("cb-minor | 19.2.3 | a callback has the minor version 0", part="callback")(
        lambda talk, given: replace(given, minorversion=0)
    )
    mutant("cb-not-first | 20.9.3 | CB_SEQUENCE is the last operation of a callback", part="callback")(
        lambda talk, given: replace(given, argarray=(*given.argarray[1:], given.argarray[0]))
    )
    mutant("offload-lost | 15.2.3 | the end of an asynchronous COPY is not reported", part="callback")(
        lambda talk, given: None if OFFLOAD in [one.argop for one in given.argarray] else given
    )
    mutant(
        "offload-status | 15.9.3 | OFFLOAD_STATUS of a copy ends with NFS4ERR_SERVERFAULT", "OFFLOAD_STATUS"
    )(lambda talk, argument, result: failed(result, nfsstat4.NFS4ERR_SERVERFAULT))
    wrong_error("recall-delay | 10.4.4 | OPEN that conflicts with a delegation ends with another error", "OPEN", "DELAY")  # fmt: skip
    field_of("deleg-stateid | 10.4 | the stateid of a delegation is bad", "OPEN", "value.delegation.value.stateid", types.stateid4(7, b"storagetest!"))  # fmt: skip
    mutant("deleg-same | 8.2.1 | a delegation has the stateid of the open", "OPEN")(own_stateid)
    mutant("deleg-writes | 10.4 | the stateid of a read delegation writes", "WRITE")(
        lambda talk, argument, result: types.WRITE4res(
            OK, types.WRITE4resok(len(argument.data), types.stable_how4.FILE_SYNC4, bytes(8))
        )
    )
    refuses("delegreturn-refused | 18.6.3 | DELEGRETURN fails", "DELEGRETURN")
    mutant("delegreturn-kept | 18.6.3 | DELEGRETURN of a bad stateid succeeds", "DELEGRETURN")(kept)
    after(
        "delegreturn-closes | 18.6.3 | the open ends with its delegation",
        "DELEGRETURN",
        "READ",
        lambda talk, argument, result: failed(result, nfsstat4.NFS4ERR_BAD_STATEID),
    )
    refuses_if("deleg-readers | 10.4 | OPEN of a second client conflicts with a read delegation", "OPEN", second_owner)  # fmt: skip
    refuses_if("recall-late | 10.4.4 | OPEN fails after the delegation was returned", "OPEN", second_owner)
