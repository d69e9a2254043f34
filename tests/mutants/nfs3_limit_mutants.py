"""Broken rules of RFC 1813 on what fits in a field and is lost: names, owners, modes, texts, ranges.

They are of a list that was written from the text before a look for their cases.
"""

# a mutant is a row of a table

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.types import createmode3, diropargs3, nfsstat3

OK = nfsstat3.NFS3_OK
LONG = 255


def _names(call: Call) -> Iterator[bytes]:
    """Yield the names in an argument."""
    for field in ("what", "where", "object", "link", "from_", "to"):
        place = getattr(call.argument, field, None)
        if isinstance(place, diropargs3):
            yield place.name


@mutant(
    "names-254 | RFC 1813 3.3.20 | only CREATE takes names of 255 bytes",
    "LOOKUP",
    "MKDIR",
    "SYMLINK",
    "REMOVE",
    "RENAME",
    "LINK",
)
def names_254(talk: ProxyConnection, call: Call, result: Any) -> Any:
    long = any(len(name) == LONG for name in _names(call))
    return with_status(result, nfsstat3.NFS3ERR_NAMETOOLONG) if long and result.status == OK else result


@mutant("owners-16 | RFC 1813 2.5 | SETATTR sets a uid and a gid modulo 65536", "SETATTR", part="request")
def owners_16(talk: ProxyConnection, call: Call) -> Any:
    def cut(number: int | None) -> int | None:
        return number if number is None else number & 0xFFFF

    return put(put(call.argument, "new_attributes.uid", cut), "new_attributes.gid", cut)


@mutant(
    "made-mode-777 | RFC 1813 3.3.8 | CREATE and MKDIR lose the bits of a mode above 0777",
    "CREATE",
    "MKDIR",
    part="request",
)
def made_mode_777(talk: ProxyConnection, call: Call) -> Any:
    def cut(mode: int | None) -> int | None:
        return mode if mode is None else mode & 0o777

    if call.name == "MKDIR":
        return put(call.argument, "attributes.mode", cut)
    if call.argument.how.mode == createmode3.EXCLUSIVE:
        return call.argument
    return put(call.argument, "how.value.mode", cut)


@mutant("symlink-1023 | RFC 1813 3.3.10 | SYMLINK keeps 1023 bytes", "SYMLINK", part="request")
def symlink_1023(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "symlink.symlink_data", lambda text: text[:1023])


@mutant("commit-behind-invalid | RFC 1813 3.3.21 | a range behind the end is NFS3ERR_INVAL", "COMMIT")
def commit_behind_invalid(talk: ProxyConnection, call: Call, result: Any) -> Any:
    after = result.value.file_wcc.after
    behind = after is not None and call.argument.offset >= after.size > 0
    return with_status(result, nfsstat3.NFS3ERR_INVAL) if result.status == OK and behind else result
