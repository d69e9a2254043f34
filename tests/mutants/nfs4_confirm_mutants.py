"""Broken rules of OPEN_CONFIRM (RFC 7530 9.1.7, 9.1.9, 16.18)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_open_mutants import again, seqid_plus
from nfs4_proxy_connection import Nfs4ProxyConnection, mutant, of, wrong_error

from storagetest.wire.nfs4.types import OPEN_CONFIRM4res, OPEN_CONFIRM4resok, nfsstat4

again(
    "replay-confirm | 9.1.9 of RFC 7530 | a retransmitted OPEN_CONFIRM has another stateid",
    "OPEN_CONFIRM",
    seqid_plus("value.open_stateid"),
)
again("replay-confirm-refused | 9.1.9 of RFC 7530 | a retransmitted OPEN_CONFIRM is refused", "OPEN_CONFIRM")
wrong_error(
    "confirm-stateid-error | 16.18.5 of RFC 7530 | OPEN_CONFIRM with another stateid ends with another error",
    "OPEN_CONFIRM",
    "BAD_STATEID",
)


def _succeeds_instead_of(status: nfsstat4) -> Callable[[Nfs4ProxyConnection, Any, Any], Any]:
    """Return a change of an OPEN_CONFIRM that ended with ``status``: it succeeds."""

    def result(talk: Nfs4ProxyConnection, argument: Any, found: Any) -> Any:
        if of(found) != status:
            return found
        held = replace(argument.open_stateid, seqid=argument.open_stateid.seqid + 1 & 0xFFFFFFFF)
        return OPEN_CONFIRM4res(nfsstat4.NFS4_OK, OPEN_CONFIRM4resok(held))

    return result


mutant(
    "confirm-other-seqid | 9.1.7 of RFC 7530 | OPEN_CONFIRM succeeds with any sequence id", "OPEN_CONFIRM"
)(_succeeds_instead_of(nfsstat4.NFS4ERR_BAD_SEQID))
mutant("confirm-any-stateid | 16.18.5 of RFC 7530 | OPEN_CONFIRM succeeds with any stateid", "OPEN_CONFIRM")(
    _succeeds_instead_of(nfsstat4.NFS4ERR_BAD_STATEID)
)
