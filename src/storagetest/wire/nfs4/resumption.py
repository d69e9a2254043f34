"""Resume a COMPOUND that NFS4ERR_DELAY ended: the operations before it were executed (RFC 8881 16.2.3).

A client repeats the operation that was delayed, and none that took effect: the name that CREATE made is taken
now. The operations that are left begin with those that bring the current and the saved filehandle back, and
name the stateid that was the current one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from storagetest.wire.nfs4.operations import CURRENT, SAVEFH, lookup, putfh
from storagetest.wire.nfs4.types import nfs_argop4, open_claim_type4, stateid4

_ABSOLUTE = ("PUTFH", "PUTROOTFH", "PUTPUBFH")
_RELATIVE = ("LOOKUP", "LOOKUPP", "OPENATTR")
_RETURN_STATEID = ("OPEN", "OPEN_DOWNGRADE", "LOCK", "LOCKU", "CLOSE", "LAYOUTGET", "LAYOUTRETURN")


def filehandles(ops: Sequence[nfs_argop4], results: Sequence[Any]) -> tuple[nfs_argop4, ...]:
    """Return the operations that set both filehandles as those of ``ops`` left them that have ``results``."""
    current = list[nfs_argop4]()
    saved: list[nfs_argop4] | None = None
    for one, result in zip(ops, results, strict=False):
        name, argument = _name(one), cast("Any", one.value)
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


def left(ops: Sequence[nfs_argop4], results: Sequence[Any]) -> tuple[nfs_argop4, ...]:
    """Return the operations of ``ops`` that have no ``results``.

    They name the stateid that an executed one made the current one, or the saved one (16.2.3.1.2): the
    server has forgotten it.
    """
    current = saved = None
    remaining = list[nfs_argop4]()
    for at, one in enumerate(ops):
        executed, name = at < len(results), _name(one)
        if not executed:
            remaining.append(one if current is None else _with_stateid(one, current))
        if name in _RETURN_STATEID:
            current = _stateid_of(results[at]) if executed else None  # the server has this one
        elif name in (*_ABSOLUTE, *_RELATIVE, "CREATE"):
            current = None
        elif name == "SAVEFH":
            saved = current
        elif name == "RESTOREFH":
            current = saved
    return tuple(remaining)


def _name(one: nfs_argop4) -> str:
    return one.argop.name.removeprefix("OP_")


def _stateid_of(result: Any) -> stateid4 | None:  # noqa: ANN401  # the type of the operation's result
    """Return the stateid that a successful operation returned."""
    value = result.value.value
    inside = [getattr(value, one.name) for one in fields(value)] if is_dataclass(value) else []
    return next((one for one in (value, *inside) if isinstance(one, stateid4)), None)


def _with_stateid(one: nfs_argop4, current: stateid4) -> nfs_argop4:
    """Return the operation with ``current`` in the place of the special stateid that means it."""
    if not is_dataclass(one.value):
        return one
    named = {field.name: current for field in fields(one.value) if getattr(one.value, field.name) == CURRENT}
    return replace(one, value=replace(cast("Any", one.value), **named)) if named else one
