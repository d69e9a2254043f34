"""Broken rules of the times that a server keeps by itself: one stays as it was over a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, mutant, of, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes, numbers_of
from storagetest.wire.nfs4.types import nfsstat4

OK = nfsstat4.NFS4_OK


def _stays(row: str, number: int, operation: str, concerns: Callable[[Any], bool]) -> None:
    """Register a mutant that keeps a time in GETATTR from the first ``operation`` of a file on."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if hasattr(argument, "object"):
            talk.memory["handle"] = argument.object
        handle = talk.memory.get("handle")
        if of(result) != OK:
            return result
        kept, held = talk.shared.setdefault("kept", {}), talk.shared.setdefault("held", set())
        if not hasattr(argument, "attr_request"):
            if not hasattr(argument, "object") and concerns(argument):
                held.add(handle)
            return result
        values = decode_attributes(result.value.obj_attributes)
        if number not in values:
            return result
        if handle not in held:
            kept[handle] = values[number]
        values[number] = kept.get(handle, values[number])
        return put(result, "value.obj_attributes", encode_attributes(values))

    mutant(row, "PUTFH", "GETATTR", operation)(change)


_stays(
    "setattr-size-time-modify-stays | RFC 8881 18.30 | a SETATTR of the size leaves time_modify",
    types.FATTR4_TIME_MODIFY,
    "SETATTR",
    lambda argument: types.FATTR4_SIZE in numbers_of(argument.obj_attributes.attrmask),
)
_stays(
    "write-time-metadata-stays | RFC 8881 5.8.2 | WRITE leaves time_metadata",
    types.FATTR4_TIME_METADATA,
    "WRITE",
    lambda _argument: True,
)
