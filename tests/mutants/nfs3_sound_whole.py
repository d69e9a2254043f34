"""Legal NFSv3 servers that the whole suite runs on: NFS-Ganesha on loopback behind a proxy.

Each is written as a mutant is, and breaks no rule of RFC 1813.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, Nfs3Mutant, ProxyConnection, blank, put, with_status
from nfs3_rules import OK

from storagetest.wire.nfs3.types import (
    nfsstat3,
    post_op_attr,
    post_op_fh3,
    pre_op_attr,
    stable_how,
)
from storagetest.wire.xdr import Struct, Union

IO = 4096
"""Bytes of the largest READ and WRITE of a server with small transfers."""
GIB = 1 << 30
"""Bytes of the largest file of such a server."""
_OPTIONAL = (post_op_attr, pre_op_attr, post_op_fh3)


def _bare(value: Any) -> Any:
    """Return a result without the fields that are optional."""
    if isinstance(value, Union):
        return replace(value, value=_bare(value.value))  # type: ignore[attr-defined]
    if isinstance(value, tuple):
        return tuple(_bare(one) for one in value)
    if not isinstance(value, Struct):
        return value
    optional = {name for name, codec in value.FIELDS if any(codec is one for one in _OPTIONAL)}
    fields = {name: None if name in optional else _bare(getattr(value, name)) for name, _ in value.FIELDS}
    return replace(value, **fields)


def _without_options(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """Attributes and handles of objects are optional in replies (2.6)."""
    return _bare(result)


def _is_due(talk: ProxyConnection, call: Call) -> bool:
    """Return whether this is the first call of the procedure on its connection."""
    seen = talk.memory.setdefault("seen", set())
    if call.name in ("", "NULL") or call.program != "NFS_V3" or call.name in seen:
        return False
    seen.add(call.name)
    return True


def _held_up(talk: ProxyConnection, call: Call) -> Any:
    """Keep the first call of each procedure on a connection from the server: its handles are none."""
    if not _is_due(talk, call):
        return call.argument
    talk.memory.setdefault("busy", set()).add(call.xid)
    return blank(call.procedure.argument)


def _busy(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """NFS3ERR_JUKEBOX: the client tries again with a new xid (2.6)."""
    if call.xid not in talk.memory.get("busy", ()):
        return result
    return with_status(result, nfsstat3.NFS3ERR_JUKEBOX)


def _end_of(call: Call) -> int:
    """Return the size of the file that a call wants, in bytes."""
    if call.name == "WRITE":
        return int(call.argument.offset + len(call.argument.data))
    if call.name == "SETATTR":
        return call.argument.new_attributes.size or 0
    how = call.argument.how.value if call.name == "CREATE" else None
    return getattr(how, "size", None) or 0


def _in_limits(talk: ProxyConnection, call: Call) -> Any:
    argument = call.argument
    if _end_of(call) > GIB:
        return blank(call.procedure.argument)
    if call.name == "READ":
        return replace(argument, count=min(argument.count, IO))
    if call.name != "WRITE" or argument.count != len(argument.data):
        return argument
    count = min(argument.count, IO)
    return replace(argument, count=count, data=argument.data[:IO], stable=stable_how.FILE_SYNC)


def _modest(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """State the limits (3.3.19); what is larger is NFS3ERR_FBIG (2.6). A stable WRITE needs no verifier."""
    if _end_of(call) > GIB:
        return with_status(result, nfsstat3.NFS3ERR_FBIG)
    if call.name in ("WRITE", "COMMIT") and result.status == OK:
        return put(result, "value.verf", bytes(8))
    if call.name != "FSINFO" or result.status != OK:
        return result
    sizes = dict.fromkeys(("rtmax", "rtpref", "wtmax", "wtpref"), IO)
    return replace(result, value=replace(result.value, **sizes, maxfilesize=GIB))


LEGAL = {
    one.name: one
    for one in (
        Nfs3Mutant(
            "busy",
            "RFC 1813 2.6",
            "the first call of each procedure on a connection ends with NFS3ERR_JUKEBOX",
            (),
            reply=_busy,
            request=_held_up,
            everywhere=True,
        ),
        Nfs3Mutant(
            "bare",
            "RFC 1813 2.6",
            "no reply has a post_op_attr, a pre_op_attr or a post_op_fh3",
            (),
            reply=_without_options,
            everywhere=True,
        ),
        Nfs3Mutant(
            "modest",
            "RFC 1813 3.3.7, 3.3.19",
            "READ and WRITE do 4 KiB, files have 1 GiB, which FSINFO states; all writes are stable",
            (),
            reply=_modest,
            request=_in_limits,
            everywhere=True,
        ),
    )
}
