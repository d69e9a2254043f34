"""Legal NFSv4 servers: NFS-Ganesha on loopback behind a proxy that makes choices which RFC 8881 leaves.

Each is written as a mutant is, and breaks no rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4Mutant, Nfs4ProxyConnection, of, opname, put

from storagetest.wire.nfs4.attributes import (
    REQUIRED_41,
    bitmap,
    decode_attributes,
    encode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.types import (
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SUPPATTR_EXCLCREAT,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    COMPOUND4args,
    fattr4,
    nfsstat4,
)

MOST = 3000
"""Bytes of the largest READ and WRITE."""
SUPPORTED = {
    *REQUIRED_41,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
}
"""The REQUIRED attributes, and those of a file in POSIX."""


def _short(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """READ and WRITE are of 3000 bytes at most (18.22.3, 18.32.3: a server may do fewer than asked)."""
    ops = []
    for one in arguments.argarray:
        value: Any = one.value
        if opname(one) == "READ":
            value = replace(value, count=min(value.count, MOST))
        elif opname(one) == "WRITE":
            value = replace(value, data=value.data[:MOST])
        ops.append(replace(one, value=value))
    return replace(arguments, argarray=tuple(ops))


def _one_entry(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return one entry of a page; the client asks for the rest by its cookie (18.23.3)."""
    if of(result) != nfsstat4.NFS4_OK or len(result.value.reply.entries) < 2:
        return result
    return put(result, "value.reply", lambda page: replace(page, entries=page.entries[:1], eof=False))


def _fewer(attributes: fattr4) -> fattr4:
    found = {number: value for number, value in decode_attributes(attributes).items() if number in SUPPORTED}
    for number in (FATTR4_SUPPORTED_ATTRS, FATTR4_SUPPATTR_EXCLCREAT):
        if number in found:
            found[number] = bitmap(*SUPPORTED.intersection(numbers_of(found[number])))
    return encode_attributes(found)


def _few_attributes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """A server may have no RECOMMENDED attribute (5.2)."""
    if of(result) != nfsstat4.NFS4_OK:
        return result
    if hasattr(result.value, "obj_attributes"):
        return put(result, "value.obj_attributes", _fewer)
    entries = tuple(replace(one, attrs=_fewer(one.attrs)) for one in result.value.reply.entries)
    return put(result, "value.reply", lambda page: replace(page, entries=entries))


def _small_session(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """A session has one slot, and eight operations in a COMPOUND (18.36.3: the server may lower both)."""

    def lowered(one: Any) -> Any:
        if opname(one) != "CREATE_SESSION":
            return one
        fore = one.value.csa_fore_chan_attrs
        fore = replace(fore, ca_maxoperations=min(fore.ca_maxoperations, 8), ca_maxrequests=1)
        return put(one, "value.csa_fore_chan_attrs", fore)

    return replace(arguments, argarray=tuple(map(lowered, arguments.argarray)))


LEGAL = {
    one.name: one
    for one in (
        Nfs4Mutant(
            "short-io",
            "RFC 8881 18.22.3, 18.32.3",
            "READ and WRITE do 3000 bytes of what was asked",
            (),
            request=_short,
            everywhere=True,
        ),
        Nfs4Mutant(
            "one-entry",
            "RFC 8881 18.23.3",
            "READDIR returns one entry",
            ("READDIR",),
            result=_one_entry,
            everywhere=True,
        ),
        Nfs4Mutant(
            "few-attributes",
            "RFC 8881 5.2",
            "there are no attributes but the REQUIRED ones and those of POSIX",
            ("GETATTR", "READDIR"),
            result=_few_attributes,
            everywhere=True,
        ),
        Nfs4Mutant(
            "small-session",
            "RFC 8881 18.36.3",
            "a session has one slot, and eight operations in a COMPOUND",
            (),
            request=_small_session,
            everywhere=True,
        ),
    )
}
