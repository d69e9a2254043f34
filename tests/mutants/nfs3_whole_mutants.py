"""Broken rules of RFC 1813 and RFC 5531 on cookies of the middle, . and .., and numbers that are cut.

They are of a list that was written from the text before a look for their cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put
from rpc_records import body_of

from storagetest.wire.nfs3.types import nfsstat3
from storagetest.wire.rpc.message import decode_message
from storagetest.wire.rpc.record import frame
from storagetest.wire.rpc.types import auth_flavor, authsys_parms, call_body, opaque_auth
from storagetest.wire.xdr import decode

OK = nfsstat3.NFS3_OK


@mutant(
    "cookie-of-last | RFC 1813 3.3.16 | a listing from any cookie of a reply goes on behind the last entry of that reply",
    "READDIR",
    "READDIRPLUS",
    part="request",
)
def cookie_of_last(talk: ProxyConnection, call: Call) -> Any:
    key = _place(call, call.argument.cookie)
    return put(call.argument, "cookie", talk.shared.get(key, call.argument.cookie))


def _place(call: Call, cookie: int) -> str:
    return f"{call.argument.dir.data.hex()} {cookie}"


def _note_last(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status == OK:
        cookies = [one.cookie for one in result.value.reply.entries]
        talk.shared.update({_place(call, cookie): cookies[-1] for cookie in cookies})
    return result


MUTANTS["cookie-of-last"].reply = _note_last


@mutant("dots-alike | RFC 1813 3.2 | a listing states of .. what it states of .", "READDIR", "READDIRPLUS")
def dots_alike(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    entries = result.value.reply.entries
    dot = next((one for one in entries if one.name == b"."), None)
    changed = tuple(
        replace(dot, name=one.name, cookie=one.cookie) if dot is not None and one.name == b".." else one
        for one in entries
    )
    return put(result, "value.reply.entries", changed)


@mutant(
    "rdev-cut | RFC 1813 2.6 | the numbers of a device are cut to 8 and 16 bits",
    "GETATTR",
    "LOOKUP",
    "MKNOD",
)
def rdev_cut(talk: ProxyConnection, call: Call, result: Any) -> Any:
    def cut(device: Any) -> Any:
        return replace(device, specdata1=device.specdata1 & 0xFF, specdata2=device.specdata2 & 0xFFFF)

    return put(result, "value.obj_attributes.rdev", cut) if result.status == OK else result


@mutant(
    "groups-eight | RFC 5531 A | the groups of a credential after the eighth are ignored",
    "ACCESS",
    part="inbound",
)
def groups_eight(talk: ProxyConnection, data: bytes) -> bytes:
    record = body_of(data)
    body = decode_message(record)[0].body.value
    if not isinstance(body, call_body) or body.cred.flavor != auth_flavor.AUTH_SYS:
        return data
    known: authsys_parms = decode(authsys_parms, body.cred.body)
    fewer = opaque_auth(auth_flavor.AUTH_SYS, replace(known, gids=known.gids[:8]).encode().data)
    return frame(record.replace(body.cred.encode().data, fewer.encode().data, 1))


@mutant(
    "size-of-a-word | RFC 1813 3.3.2 | a SETATTR of a size sets its lower 32 bits", "SETATTR", part="request"
)
def size_of_a_word(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "new_attributes.size", lambda size: size and size & 0xFFFFFFFF)
