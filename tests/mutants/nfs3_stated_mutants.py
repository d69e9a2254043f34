"""Broken rules of RFC 1813 of a third list: one field of a reply, and what only calls that arrange had tried."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, ignores, mutant, put

from storagetest.wire.nfs3.types import nfsstat3

OK = nfsstat3.NFS3_OK


def _seconds(one: Any) -> Any:
    return one if one.value is None else replace(one, value=replace(one.value, nseconds=0))


@mutant("setattr-seconds | RFC 1813 3.3.2 | SETATTR sets whole seconds", "SETATTR", part="request")
def setattr_seconds(talk: ProxyConnection, call: Call) -> Any:
    changed = put(call.argument, "new_attributes.mtime", _seconds)
    return put(changed, "new_attributes.atime", _seconds)


@mutant("pathconf-linkmax-one | RFC 1813 3.3.20 | linkmax is 1", "PATHCONF")
def pathconf_linkmax_one(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.linkmax", 1) if result.status == OK else result


def _sizeless(how: Any) -> Any:
    return replace(how, value=replace(how.value, size=None)) if not isinstance(how.value, bytes) else how


ignores("create-size-ignored | RFC 1813 3.3.8 | CREATE ignores the size", "CREATE", "how", _sizeless)
ignores(
    "symlink-255 | RFC 1813 3.3.10 | SYMLINK keeps 255 bytes",
    "SYMLINK",
    "symlink.symlink_data",
    lambda text: text[:255],
)
ignores(
    "setattr-mode-low | RFC 1813 2.5 | SETATTR ignores the upper bits of a mode",
    "SETATTR",
    "new_attributes.mode",
    lambda mode: None if mode is None else mode & 0o777,
)


@mutant("rdev-swapped | RFC 1813 2.5 | rdev has the numbers of a device in the wrong order", "GETATTR")
def rdev_swapped(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    return put(
        result,
        "value.obj_attributes.rdev",
        lambda one: replace(one, specdata1=one.specdata2, specdata2=one.specdata1),
    )


def _of_before(wcc: Any) -> Any:
    if wcc.before is None or wcc.after is None:
        return wcc
    before = wcc.before
    after = replace(wcc.after, size=before.size, mtime=before.mtime, ctime=before.ctime)
    return replace(wcc, after=after)


@mutant("symlink-after-old | RFC 1813 2.6 | the directory's attributes after a SYMLINK are old", "SYMLINK")
def symlink_after_old(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.dir_wcc", _of_before) if result.status == OK else result


@mutant("link-after-old | RFC 1813 2.6 | the directory's attributes after a LINK are old", "LINK")
def link_after_old(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.linkdir_wcc", _of_before) if result.status == OK else result


@mutant("access-size | RFC 1813 3.3.4 | the attributes of ACCESS have another size", "ACCESS")
def access_size(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK or result.value.obj_attributes is None:
        return result
    return put(result, "value.obj_attributes.size", lambda size: size + 1)


@mutant(
    "gid-with-uid | RFC 1813 3.3.2 | SETATTR of owner and group sets the owner alone",
    "SETATTR",
    part="request",
)
def gid_with_uid(talk: ProxyConnection, call: Call) -> Any:
    both = call.argument.new_attributes.uid is not None
    return put(call.argument, "new_attributes.gid", None) if both else call.argument


@mutant("uid-gid-swapped | RFC 1813 2.5 | uid is the group, and gid the owner", "GETATTR")
def uid_gid_swapped(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    return put(result, "value.obj_attributes", lambda one: replace(one, uid=one.gid, gid=one.uid))


@mutant("maxfilesize-2g | RFC 1813 3.3.19 | maxfilesize is 2 GiB where files may be larger", "FSINFO")
def maxfilesize_2g(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.maxfilesize", (1 << 31) - 1) if result.status == OK else result


def _of_31_bits(one: Any) -> Any:
    return one if one.value is None else put(one, "value.seconds", lambda seconds: seconds & 0x7FFFFFFF)


@mutant("times-31-bits | RFC 1813 2.5 | SETATTR sets times of 31 bits", "SETATTR", part="request")
def times_31_bits(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "new_attributes.mtime", _of_31_bits)
