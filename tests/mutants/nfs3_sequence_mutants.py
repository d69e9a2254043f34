"""Broken rules of RFC 1813 that show in what several calls leave: data, names, locks and attributes."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put

from storagetest.wire.nfs3.types import set_atime, set_mtime, stable_how

PAGE = 4096
LARGE = 64 * 1024


def _cut(argument: Any, count: int) -> Any:
    return replace(argument, data=argument.data[:count], count=count)


def _as_asked(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """Return the result of a WRITE that states all bytes that the client sent."""
    return (
        result if result.status or call.name != "WRITE" else put(result, "value.count", call.argument.count)
    )


@mutant(
    "write-odd-last-kept | RFC 1813 3.3.7 | the last byte of a write of more than 4 KiB at an odd offset stays old",
    "WRITE",
    part="request",
)
def write_odd_last_kept(talk: ProxyConnection, call: Call) -> Any:
    odd = call.argument.offset % 2 and call.argument.count > PAGE
    return _cut(call.argument, call.argument.count - 1) if odd else call.argument


MUTANTS["write-odd-last-kept"].reply = _as_asked


@mutant(
    "write-across-64k-cut | RFC 1813 3.3.7 | a write across a multiple of 64 KiB ends there",
    "WRITE",
    part="request",
)
def write_across_64k_cut(talk: ProxyConnection, call: Call) -> Any:
    border = (call.argument.offset | (LARGE - 1)) + 1
    across = call.argument.offset % LARGE and call.argument.offset + call.argument.count > border
    return _cut(call.argument, border - call.argument.offset) if across else call.argument


MUTANTS["write-across-64k-cut"].reply = _as_asked


@mutant(
    "unstable-after-commit-lost | RFC 1813 3.3.21 | UNSTABLE writes after a COMMIT are lost",
    "WRITE",
    "COMMIT",
    part="request",
)
def unstable_after_commit_lost(talk: ProxyConnection, call: Call) -> Any:
    if call.name == "COMMIT":
        talk.shared["committed"] = True
        return call.argument
    lost = "committed" in talk.shared and call.argument.stable == stable_how.UNSTABLE
    return _cut(call.argument, 0) if lost else call.argument


MUTANTS["unstable-after-commit-lost"].reply = _as_asked


@mutant(
    "shrunk-data-returns | RFC 1813 3.3.2 | a file that was made shorter and longer has a byte of its old data",
    "SETATTR",
    "READ",
)
def shrunk_data_returns(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status:
        return result
    if call.name == "SETATTR":
        size = call.argument.new_attributes.size
        if size is not None:
            talk.shared[call.argument.object] = min(size, talk.shared.get(call.argument.object, size))
        return result
    data, at = result.value.data, talk.shared.get(call.argument.file, -1) - call.argument.offset
    returns = 0 <= at < len(data) and not data[at]
    return put(result, "value.data", data[:at] + b"A" + data[at + 1 :]) if returns else result


@mutant("times-swapped | RFC 1813 3.3.2 | SETATTR of both times swaps them", "SETATTR", part="request")
def times_swapped(talk: ProxyConnection, call: Call) -> Any:
    new = call.argument.new_attributes
    if new.atime.value is None or new.mtime.value is None:
        return call.argument
    swapped = replace(
        new,
        atime=set_atime(new.mtime.set_it, new.mtime.value),
        mtime=set_mtime(new.atime.set_it, new.atime.value),
    )
    return replace(call.argument, new_attributes=swapped)


@mutant(
    "mode-with-size-lost | RFC 1813 3.3.2 | SETATTR of mode and size sets the size", "SETATTR", part="request"
)
def mode_with_size_lost(talk: ProxyConnection, call: Call) -> Any:
    if call.argument.new_attributes.size is None:
        return call.argument
    return put(call.argument, "new_attributes.mode", None)


@mutant(
    "rename-other-fileid | RFC 1813 3.3.14 | a file has another fileid after a RENAME", "RENAME", "LOOKUP"
)
def rename_other_fileid(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status:
        return result
    if call.name == "RENAME":
        talk.shared[call.argument.to] = True
    elif call.argument.what in talk.shared:
        return put(result, "value.obj_attributes.fileid", lambda number: number + 1)
    return result


@mutant(
    "rename-listed-twice | RFC 1813 3.3.14 | a file that was renamed is listed by its old name, too",
    "RENAME",
    "READDIR",
    "READDIRPLUS",
)
def rename_listed_twice(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status:
        return result
    if call.name == "RENAME":
        talk.shared[call.argument.to.name] = call.argument.from_.name
        return result
    entries: list[Any] = []
    for one in result.value.reply.entries:
        entries.append(one)
        if one.name in talk.shared:
            entries.append(replace(one, name=talk.shared[one.name]))
    return put(result, "value.reply.entries", tuple(entries))


@mutant("readlink-slash-lost | RFC 1813 3.3.5 | READLINK leaves a slash at the end out", "READLINK")
def readlink_slash_lost(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return result if result.status else put(result, "value.data", lambda text: text.rstrip(b"/"))


NAMES = {
    "LOOKUP": ("what.name",),
    "CREATE": ("where.name",),
    "MKDIR": ("where.name",),
    "SYMLINK": ("where.name",),
    "REMOVE": ("object.name",),
    "RMDIR": ("object.name",),
    "RENAME": ("from_.name", "to.name"),
    "LINK": ("link.name",),
}


@mutant(
    "names-lower-case | RFC 1813 3.3.20 | names are kept in lower case, and case_insensitive is FALSE",
    *NAMES,
    part="request",
)
def names_lower_case(talk: ProxyConnection, call: Call) -> Any:
    argument = call.argument
    for path in NAMES[call.name]:
        argument = put(argument, path, lambda name: name.lower())
    return argument


@mutant("nlm-holder-32 | RFC 1813 6.1.4 | TEST states the low 32 bits of the holder's range", "TEST")
def nlm_holder_32(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.stat.value is None:
        return result
    low = put(result, "stat.value.l_offset", lambda offset: offset & 0xFFFFFFFF)
    return put(low, "stat.value.l_len", lambda length: length & 0xFFFFFFFF)
