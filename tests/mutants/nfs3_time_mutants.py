"""Broken rules of times and owners: what stays as it was in every result, and who is taken for another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant

from storagetest.wire.nfs3.types import fattr3, ftype3, time_how, wcc_attr


def _each(value: Any, change: Callable[[fattr3], fattr3]) -> Any:
    """Return a result with each fattr3 changed, and without the attributes before a change."""
    if isinstance(value, fattr3):
        return change(value)
    if isinstance(value, wcc_attr):
        return None
    if isinstance(value, tuple):
        return tuple(_each(one, change) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(
        value, **{one.name: _each(getattr(value, one.name), change) for one in fields(value) if one.init}
    )


def _stays(row: str, field: str, files: Callable[[Call, Any], list[bytes]]) -> None:
    """A mutant that keeps a time of the ``files`` of a call, in every result, until their next SETATTR."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        kept, numbers = talk.shared.setdefault("kept", {}), talk.shared.setdefault("numbers", {})
        held = talk.shared.setdefault("held", set())
        if not hasattr(result, "status"):
            return result
        changed = files(call, result) if not result.status else []
        held.update(numbers[one] for one in changed if one in numbers)
        if call.name == "SETATTR" and not changed:
            held.discard(numbers.get(call.argument.object.data))

        def keep(one: fattr3) -> fattr3:
            if one.fileid in held and one.fileid in kept:
                return replace(one, **{field: kept[one.fileid]})
            kept[one.fileid] = getattr(one, field)
            return one

        if call.name == "GETATTR" and not result.status:
            numbers[call.argument.object.data] = result.value.obj_attributes.fileid
        if call.name == "LOOKUP" and not result.status and result.value.obj_attributes is not None:
            number = result.value.obj_attributes.fileid
            numbers[call.argument.what.dir.data, call.argument.what.name] = number
        return _each(result, keep)

    name = row.split(" |")[0]
    mutant(row)(change)
    MUTANTS[name].everywhere = True  # the cases look where they arrange, too


def _written(call: Call, result: Any) -> list[bytes]:
    return [call.argument.file.data] if call.name == "WRITE" else []


def _sized(call: Call, result: Any) -> list[bytes]:
    if call.name != "SETATTR":
        return []
    new = call.argument.new_attributes
    is_sized = new.size is not None and new.mtime.set_it == time_how.DONT_CHANGE
    return [call.argument.object.data] if is_sized else []


_stays("write-ctime-stays | RFC 1813 2.6 | WRITE leaves ctime as it is", "ctime", _written)
_stays(
    "setattr-size-mtime-stays | RFC 1813 3.3.2 | SETATTR of the size leaves mtime as it is", "mtime", _sized
)


def _keeps_ctime(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """Return a result whose ctime is that of the same file with another nlink, until ctime changes again."""
    kept = talk.shared.setdefault("kept", {})

    def keep(one: fattr3) -> fattr3:
        if one.type == ftype3.NF3DIR:
            return one
        links, ctime, shown = kept.get(one.fileid, (one.nlink, one.ctime, one.ctime))
        if links == one.nlink and ctime != one.ctime:
            shown = one.ctime
        kept[one.fileid] = one.nlink, one.ctime, shown
        return replace(one, ctime=shown)

    return _each(result, keep)


mutant("nlink-ctime-stays | RFC 1813 2.6 | a change of the nlink of a file leaves its ctime")(_keeps_ctime)
MUTANTS["nlink-ctime-stays"].everywhere = True


@mutant(
    "nlm-exclusive-stays | RFC 1813 6.1.4 | an owner's exclusive lock stays exclusive when it locks shared",
    "LOCK",
    part="request",
)
def exclusive_stays(talk: ProxyConnection, call: Call) -> Any:
    region = call.argument.alock
    key = region.fh, region.oh, region.svid
    if call.argument.exclusive:
        talk.shared[key] = True
    return replace(call.argument, exclusive=True) if key in talk.shared else call.argument
