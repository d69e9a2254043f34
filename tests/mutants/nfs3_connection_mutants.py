"""Broken rules of RFC 1813: what depends on the connection, moved directories, names of rare forms."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.types import createmode3, nfsstat3

OK = nfsstat3.NFS3_OK


@mutant(
    "verifier-of-connection | RFC 1813 3.3.7 | each connection has another write verifier", "WRITE", "COMMIT"
)
def verifier_of_connection(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    if "number" not in talk.memory:
        talk.shared["connections"] = talk.memory["number"] = talk.shared.get("connections", 0) + 1
    return put(result, "value.verf", lambda verf: bytes([verf[0] ^ talk.memory["number"] & 0xFF]) + verf[1:])


@mutant(
    "exclusive-of-connection | RFC 1813 3.3.8 | an exclusive create is refused on another connection",
    "CREATE",
)
def exclusive_of_connection(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK or call.argument.how.mode != createmode3.EXCLUSIVE:
        return result
    key: Any = call.argument.where.dir.data, call.argument.where.name
    first = talk.shared.setdefault(key, talk)
    return result if first is talk else with_status(result, nfsstat3.NFS3ERR_EXIST)


@mutant(
    "dotdot-before-move | RFC 1813 3.2 | LOOKUP of .. leads to the parent that a directory had before a RENAME",
    "RENAME",
    "LOOKUP",
)
def dotdot_before_move(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    moved, parents = talk.shared.setdefault("moved", {}), talk.shared.setdefault("parents", {})
    if call.name == "RENAME":
        moved[call.argument.to.dir.data, call.argument.to.name] = call.argument.from_.dir
        return result
    what = call.argument.what
    if what.name == b"..":
        return put(result, "value.object", parents.get(what.dir.data, result.value.object))
    if (old := moved.get((what.dir.data, what.name))) is not None:
        parents[result.value.object.data] = old
    return result


def _listed(result: Any, wanted: Any) -> Any:
    if result.status != OK:
        return result
    return put(
        result,
        "value.reply.entries",
        lambda entries: tuple(one for one in entries if one.name in (b".", b"..") or wanted(one.name)),
    )


@mutant("readdir-no-dot | RFC 1813 3.3.16 | READDIR lists no name that begins with a dot", "READDIR")
def readdir_no_dot(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return _listed(result, lambda name: not name.startswith(b"."))


@mutant(
    "listing-plain-names | RFC 1813 3.3.17 | READDIRPLUS lists names of letters, up to 127 bytes, alone",
    "READDIRPLUS",
)
def listing_plain_names(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return _listed(result, lambda name: name.isalpha() and len(name) < 128)


@mutant(
    "unlock-of-connection | RFC 1813 6.1.4 | UNLOCK on another connection than that of LOCK releases nothing",
    "LOCK",
    "UNLOCK",
    part="request",
)
def unlock_of_connection(talk: ProxyConnection, call: Call) -> Any:
    lock = call.argument.alock
    key: Any = lock.fh, lock.oh, lock.svid
    if call.name == "LOCK":
        talk.shared.setdefault(key, talk)
    elif talk.shared.get(key, talk) is not talk:
        return put(call.argument, "alock.oh", b"another owner")
    return call.argument


@mutant(
    "unchecked-mode-truncates | RFC 1813 3.3.8 | an UNCHECKED CREATE that sets a mode and no size cuts the file",
    "CREATE",
    part="request",
)
def unchecked_mode_truncates(talk: ProxyConnection, call: Call) -> Any:
    how = call.argument.how
    if how.mode != createmode3.UNCHECKED or how.value.size is not None or how.value.mode is None:
        return call.argument
    return put(call.argument, "how.value.size", 0)
