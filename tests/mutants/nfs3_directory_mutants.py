"""Broken rules of directories, file systems and MOUNT (RFC 1813 3.3.16 to 3.3.20, 5.2)."""

# a mutant is a row of a table

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status
from nfs3_rules import OK, sets

from storagetest.wire.nfs3.mount import mountres3, mountres3_ok, mountstat3
from storagetest.wire.nfs3.types import FSF3_LINK, FSF3_SYMLINK, nfs_fh3, nfsstat3, nfstime3
from storagetest.wire.rpc.message import encode_status
from storagetest.wire.rpc.types import accept_stat, accepted_data

LISTS = ("READDIR", "READDIRPLUS")


def entries(row: str, change: Any, *procedures: str) -> None:
    """A mutant that changes the entries of every page."""

    def reply(talk: ProxyConnection, call: Call, result: Any) -> Any:
        return (
            put(result, "value.reply.entries", lambda old: change(old, call))
            if result.status == OK
            else result
        )

    mutant(row, *(procedures or LISTS))(reply)


@mutant("readdir-small-refused | RFC 1813 3.3.16 | a page of less than 2 KiB is too small", *LISTS)
def small_refused(talk: ProxyConnection, call: Call, result: Any) -> Any:
    size = call.argument.count if call.name == "READDIR" else call.argument.maxcount
    wanted = result.status == OK and size < 2048
    return with_status(result, nfsstat3.NFS3ERR_TOOSMALL) if wanted else result


entries(
    "readdir-drops | RFC 1813 3.3.16 | the entry before the last of a page is left out",
    lambda old, call: old[:-2] + old[-1:],
)
entries(
    "readdir-repeats | RFC 1813 3.3.16 | the last entry of a page is returned twice",
    lambda old, call: old + old[-1:],
)
entries(
    "readdir-same-cookies | RFC 1813 3.3.16 | all cookies of a page are the same",
    lambda old, call: tuple(replace(one, cookie=7) for one in old),
)
entries(
    "readdir-fileid | RFC 1813 3.3.16 | fileid is not that of the file",
    lambda old, call: tuple(replace(one, fileid=one.fileid + 1) for one in old),
)
entries(
    "readdir-large | RFC 1813 3.3.16 | a page is longer than was asked for",
    lambda old, call: old and (*old[:-1], replace(old[-1], name=b"n" * 8192)),
)
entries(
    "readdirplus-handles | RFC 1813 3.3.17 | handles are none",
    lambda old, call: tuple(replace(one, name_handle=nfs_fh3(bytes(8))) for one in old),
    "READDIRPLUS",
)
entries(
    "readdirplus-attributes | RFC 1813 3.3.17 | sizes are wrong",
    lambda old, call: tuple(put(one, "name_attributes.size", lambda size: size + 1) for one in old),
    "READDIRPLUS",
)
mutant("readdir-cookie | RFC 1813 3.3.16 | a page begins an entry later than its cookie", "READDIR")(
    lambda talk, call, result: (
        put(result, "value.reply.entries", lambda old: old[1:])
        if result.status == OK and call.argument.cookie
        else result
    )
)
mutant(
    "readdir-cookie-ignored | RFC 1813 3.3.16 | READDIR begins at the first entry, whatever its cookie is",
    "READDIR",
    part="request",
)(lambda talk, call: put(call.argument, "cookie", 0))
sets("readdir-eof-never | RFC 1813 3.3.16 | eof is never set", "READDIR", "reply.eof", False)
mutant("readdir-toosmall | RFC 1813 3.3.16 | a count for no entry is refused with NFS3ERR_IO", *LISTS)(
    lambda talk, call, result: (
        with_status(result, nfsstat3.NFS3ERR_IO)
        if getattr(call.argument, "count", None) == 8 or getattr(call.argument, "maxcount", None) == 8
        else result
    )
)

sets("fsstat-bytes | RFC 1813 3.3.18 | more is free than there is", "FSSTAT", "abytes", (1 << 64) - 1)
sets("fsstat-files | RFC 1813 3.3.18 | more files are free than there are", "FSSTAT", "afiles", (1 << 64) - 1)
sets(
    "fsinfo-preferred | RFC 1813 3.3.19 | the preferred size is over the largest",
    "FSINFO",
    "rtpref",
    (1 << 32) - 1,
)
sets(
    "fsinfo-properties | RFC 1813 3.3.19 | links are not supported, and made",
    "FSINFO",
    "properties",
    lambda bits: bits & ~(FSF3_LINK | FSF3_SYMLINK),
)
sets("fsinfo-delta | RFC 1813 3.3.19 | time_delta is 0", "FSINFO", "time_delta", nfstime3(0, 0))


@mutant("fsinfo-changes | RFC 1813 3.3.19 | rtmax is another in each reply", "FSINFO")
def fsinfo_changes(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return put(result, "value.rtmax", 65536 * talk.memory["at"])


@mutant("pathconf-differs | RFC 1813 3.3.19 | linkmax is another in each reply", "PATHCONF")
def pathconf_differs(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return put(result, "value.linkmax", talk.memory["at"])


sets("pathconf-name-max | RFC 1813 3.3.20 | name_max is 0", "PATHCONF", "name_max", 0)
sets("pathconf-case | RFC 1813 3.3.20 | case_preserving is not set", "PATHCONF", "case_preserving", False)


# MOUNT


@mutant("mnt-handle | RFC 1813 5.2.1 | the handle of MNT is none", "MNT")
def mnt_handle(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.fhandle", bytes(8))


@mutant("mnt-refused | RFC 1813 5.2.1 | MNT of an export is refused", "MNT")
def mnt_refused(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return mountres3(mountstat3.MNT3ERR_ACCES)


@mutant("mnt-flavors | RFC 1813 5.2.1 | MNT states no flavor that works", "MNT")
def mnt_flavors(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.auth_flavors", (390003,))


@mutant(
    "mnt-other-root | RFC 1813 5.2.1 | the second MNT of a path is of another export", "MNT", part="request"
)
def mnt_other_root(talk: ProxyConnection, call: Call) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return b"/run/readonly" if talk.memory["at"] > 1 else call.argument


@mutant("mnt-absent-accepted | RFC 1813 5.2.1 | MNT of what is not exported succeeds", "MNT", part="message")
def mnt_absent(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    header = encode_status(call.xid, accepted_data(accept_stat.SUCCESS))
    return (header + mountres3(mountstat3.MNT3_OK, mountres3_ok(bytes(8), (1,))).encode()).data


mutant("export-empty | RFC 1813 5.2.5 | the list of exports is empty", "EXPORT")(
    lambda talk, call, result: ()
)
for _name, _procedures in (("dump", ("DUMP",)), ("umnt", ("UMNT", "UMNTALL"))):
    mutant(
        f"{_name}-fails | RFC 1813 5.2.3 | {' and '.join(_procedures)} end with SYSTEM_ERR",
        *_procedures,
        part="message",
    )(lambda talk, call, data: encode_status(call.xid, accepted_data(accept_stat.SYSTEM_ERR)).data)
