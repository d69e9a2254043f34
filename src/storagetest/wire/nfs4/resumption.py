"""Resume a COMPOUND that NFS4ERR_DELAY ended: the operations before it were executed (RFC 8881 16.2.3).

A client repeats the operation that was delayed, and none that took effect: the name that CREATE made is taken
now. The operations that are left begin with those that bring the current and the saved filehandle back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from storagetest.wire.nfs4.operations import SAVEFH, lookup, putfh
from storagetest.wire.nfs4.types import nfs_argop4, open_claim_type4

_ABSOLUTE = ("PUTFH", "PUTROOTFH", "PUTPUBFH")
_RELATIVE = ("LOOKUP", "LOOKUPP", "OPENATTR")


def filehandles(ops: Sequence[nfs_argop4], results: Sequence[Any]) -> tuple[nfs_argop4, ...]:
    """Return the operations that set both filehandles as those of ``ops`` left them that have ``results``."""
    current = list[nfs_argop4]()
    saved: list[nfs_argop4] | None = None
    for one, result in zip(ops, results, strict=False):
        name, argument = one.argop.name.removeprefix("OP_"), cast("Any", one.value)
        if name in _ABSOLUTE:
            current = [one]
        elif name in _RELATIVE:
            current = [*current, one]
        elif name == "GETFH":
            current = [putfh(result.value.value.object)]
        elif name == "CREATE":
            current = [*current, lookup(argument.objname)]
        elif name == "OPEN" and argument.claim.claim == open_claim_type4.CLAIM_NULL:
            current = [*current, lookup(argument.claim.value)]
        elif name == "SAVEFH":
            saved = current
        elif name == "RESTOREFH" and saved is not None:
            current = saved
    return (*(() if saved is None else (*saved, SAVEFH)), *current)
