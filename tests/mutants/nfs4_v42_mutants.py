"""Broken rules of minor version 2 (RFC 7862 15) and of extended attributes (RFC 8276 8).

NFS-Ganesha serves SEEK, ALLOCATE and DEALLOCATE. The mutants of the others are of the kind ``knfsd``.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import (
    MUTANTS,
    Nfs4ProxyConnection,
    failed,
    field_of,
    mutant,
    of,
    put,
    refuses,
    wrong_error,
)
from nfs4_session_mutants import counted, refuses_if

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import COMPOUND4args, nfs_opnum4, nfsstat4

OK = nfsstat4.NFS4_OK
FAR = 1 << 22


@contextmanager
def on_knfsd() -> Iterator[None]:
    """Register the mutants of the block for the lab's knfsd."""
    before = set(MUTANTS)
    yield
    for name in set(MUTANTS) - before:
        MUTANTS[name].kind = "knfsd"


def with_fields(
    array: tuple[Any, ...], number: int, changes: Mapping[str, Callable[[Any], Any]]
) -> tuple[Any, ...]:
    """Return operations in which those of one number have other fields: ``changes`` of the old values."""
    out = []
    for one in array:
        if one.argop == number:
            fields: dict[str, Any] = {name: new(getattr(one.value, name)) for name, new in changes.items()}
            out.append(replace(one, value=replace(one.value, **fields)))
        else:
            out.append(one)
    return tuple(out)


def asked(row: str, operation: str, **changes: Callable[[Any], Any]) -> None:
    """Register a mutant whose server receives other fields of ``operation``."""
    number = nfs_opnum4[f"OP_{operation}"]

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        return replace(arguments, argarray=with_fields(arguments.argarray, number, changes))

    mutant(row, part="request")(request)


def after(
    row: str, event: str, operation: str, change: Callable[[Nfs4ProxyConnection, Any, Any], Any]
) -> None:
    """Register a mutant of the results of ``operation`` after an ``event`` that succeeded on the connection."""
    argument_type = getattr(types, f"{event}4args")

    def result(talk: Nfs4ProxyConnection, argument: Any, found: Any) -> Any:
        if isinstance(argument, argument_type):
            talk.memory["after"] = argument
            return found
        return change(talk, argument, found) if "after" in talk.memory and of(found) == OK else found

    mutant(row, event, operation)(result)


def zeros(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return READ's result with zeros."""
    return put(result, "value.data", lambda old: bytes(len(old)))


def smaller(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return GETATTR's result with one byte less in size."""
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_SIZE not in values:
        return result
    changed = {**values, types.FATTR4_SIZE: values[types.FATTR4_SIZE] - 1}
    return put(result, "value.obj_attributes", encode_attributes(changed))


# SEEK, ALLOCATE, DEALLOCATE


@mutant("seek-data-asked | RFC 7862 15.11.3 | SEEK of data returns the offset that it was asked for", "SEEK")
def seek_data_asked(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    data = of(result) == OK and argument.sa_what == types.data_content4.NFS4_CONTENT_DATA
    return put(result, "value.sr_offset", argument.sa_offset) if data else result


field_of("seek-offset | 15.11.3 | SEEK returns another offset", "SEEK", "value.sr_offset", lambda old: old + FAR)  # fmt: skip
field_of("seek-eof | 15.11.3 | SEEK always is at the end", "SEEK", "value.sr_eof", True)


@mutant("seek-nothing | 15.11.3 | SEEK that finds nothing ends with NFS4ERR_NXIO", "SEEK")
def nothing(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, nfsstat4.NFS4ERR_NXIO) if of(result) == OK and result.value.sr_eof else result


asked("alloc-ignored | 15.1.3 | ALLOCATE does nothing", "ALLOCATE", aa_offset=lambda old: 0, aa_length=lambda old: 1)  # fmt: skip
asked("alloc-truncates | 15.1.3 | ALLOCATE inside a file changes its size", "ALLOCATE", aa_offset=lambda old: FAR)  # fmt: skip
asked("dealloc-ignored | 15.4.3 | DEALLOCATE does nothing", "DEALLOCATE", da_offset=lambda old: FAR)
asked("dealloc-more | 15.4.3 | DEALLOCATE deallocates the next 4096 bytes too", "DEALLOCATE", da_length=lambda old: old + 4096)  # fmt: skip
after("dealloc-truncates | 15.4.3 | DEALLOCATE changes the size", "DEALLOCATE", "GETATTR", smaller)
after("dealloc-stays | 15.4.3 | what is written after DEALLOCATE reads as zero", "DEALLOCATE", "READ", zeros)
counted("dealloc-again | 15.4.3 | a second DEALLOCATE of a range is invalid", "DEALLOCATE", nfsstat4.NFS4ERR_INVAL)  # fmt: skip
for row, operations, *statuses in (
    ("seek-nxio | 15.11.3 | SEEK beyond the end ends with another error", "SEEK", "NXIO"),
    ("seek-stateid | 15.11.3 | SEEK with a bad stateid ends with another error", "SEEK", "BAD_STATEID"),
    ("alloc-mode | 15.1.3 | ALLOCATE of a file open for READ ends with another error", "ALLOCATE", "OPENMODE", "BAD_STATEID", "ACCESS"),
    ("alloc-nospc | 15.1.3 | ALLOCATE of too much space ends with another error", "ALLOCATE", "NOSPC", "FBIG", "DQUOT"),
    ("dealloc-mode | 15.4.3 | DEALLOCATE of a file open for READ ends with another error", "DEALLOCATE", "OPENMODE", "BAD_STATEID", "ACCESS"),
    ("layoutget | 18.43.3 | LAYOUTGET without layouts ends with another error", "LAYOUTGET", "LAYOUTUNAVAILABLE", "UNKNOWN_LAYOUTTYPE"),
):  # fmt: skip
    wrong_error(row, operations, *statuses)

refuses("layoutreturn-none | 18.44.3 | LAYOUTRETURN of nothing ends with NFS4ERR_SERVERFAULT", "LAYOUTRETURN")

# READ_PLUS, COPY and what has no server

CONTENTS = "value.rpr_contents"
DATA, HOLE = types.data_content4.NFS4_CONTENT_DATA, types.data_content4.NFS4_CONTENT_HOLE


def flipped(old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return contents in which the first byte of each piece of data is another."""
    return tuple(
        put(one, "value.d_data", lambda data: bytes([data[0] ^ 1]) + data[1:])
        if one.rpc_content == DATA and one.value.d_data
        else one
        for one in old
    )


def hollow(old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return contents in which each piece of data is a hole."""
    return tuple(
        replace(one, rpc_content=HOLE, value=types.data_info4(one.value.d_offset, len(one.value.d_data)))
        if one.rpc_content == DATA
        else one
        for one in old
    )


def more(old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return contents with one byte more."""
    return (*old, types.read_plus_content(DATA, types.data4(0, b"x")))


with on_knfsd():
    field_of("rp-bytes | 15.10.3 | READ_PLUS returns other bytes", "READ_PLUS", CONTENTS, flipped)
    field_of("rp-hole | 15.10.3 | READ_PLUS returns data as a hole", "READ_PLUS", CONTENTS, hollow)
    field_of("rp-past | 15.10.3 | READ_PLUS returns one byte more", "READ_PLUS", CONTENTS, more)
    field_of("rp-eof | 15.10.3 | READ_PLUS never is at the end", "READ_PLUS", "value.rpr_eof", False)
    field_of("rp-not-eof | 15.10.3 | READ_PLUS always is at the end", "READ_PLUS", "value.rpr_eof", True)
    wrong_error("rp-dir | 15.10.3 | READ_PLUS of a directory ends with another error", "READ_PLUS", "ISDIR")
    asked("copy-ignored | 15.2.3 | COPY writes elsewhere", "COPY", ca_dst_offset=lambda old: old + FAR)
    asked("copy-target-begin | 15.2.3 | COPY writes at the beginning of the target", "COPY", ca_dst_offset=lambda _: 0)  # fmt: skip
    asked("copy-more | 15.2.3 | COPY copies one byte more than was asked for", "COPY", ca_count=lambda old: old + bool(old))  # fmt: skip
    asked("copy-start | 15.2.3 | COPY begins one byte later in the source", "COPY", ca_src_offset=lambda old: old + 1)  # fmt: skip
    RESPONSE = "value.cr_response"
    field_of("copy-count | 15.2.3 | COPY returns a larger count", "COPY", f"{RESPONSE}.wr_count", lambda old: old + 1)  # fmt: skip
    field_of("copy-async | 15.2.3 | a synchronous COPY has a copy stateid", "COPY", f"{RESPONSE}.wr_callback_id", (types.stateid4(1, bytes(12)),))  # fmt: skip
    after("copy-truncates-source | 15.2.3 | the source reads as zero after COPY", "COPY", "READ", zeros)
    wrong_error("copy-stateid | 15.2.3 | COPY with a bad stateid ends with another error", "COPY", "BAD_STATEID")  # fmt: skip
    wrong_error("copy-nosaved | 15.2.3 | COPY without a saved filehandle ends with another error", "COPY", "NOFILEHANDLE")  # fmt: skip

    @mutant("copy-verifier | 15.2.3 | each COPY has another verifier", "COPY")
    def verifier(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if of(result) != OK:
            return result
        talk.memory["copies"] = talk.memory.get("copies", 0) + 1
        return put(result, "value.cr_response.wr_writeverf", talk.memory["copies"].to_bytes(8, "big"))

    @mutant(
        "v42-illegal | 13 | an optional operation is illegal",
        "LAYOUTERROR",
        "LAYOUTSTATS",
        "OFFLOAD_STATUS",
        "OFFLOAD_CANCEL",
    )
    def illegal(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        return failed(result, nfsstat4.NFS4ERR_OP_ILLEGAL)


# Extended attributes


def support(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_XATTR_SUPPORT not in values:
        return result
    return put(
        result, "value.obj_attributes", encode_attributes({**values, types.FATTR4_XATTR_SUPPORT: False})
    )


def last_value(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value", talk.memory["after"].sxa_value)


NAMES = "value.lxr_names"
with on_knfsd():
    mutant("xattr-support | 8.2.1 | xattr_support is FALSE, and the operations succeed", "GETATTR")(support)
    field_of("xattr-value | 8.4.1 | GETXATTR returns one byte more", "GETXATTR", "value", lambda old: old + b"x")  # fmt: skip
    after("xattr-mixed | 8.4.1 | GETXATTR returns the value that was set last", "SETXATTR", "GETXATTR", last_value)  # fmt: skip
    asked("xattr-ignored | 8.4.2 | SETXATTR sets another attribute", "SETXATTR", sxa_key=lambda old: old + b"_")  # fmt: skip
    refuses_if("xattr-create | 8.4.2 | SETXATTR4_CREATE fails", "SETXATTR", lambda talk, argument: argument.sxa_option == types.setxattr_option4.SETXATTR4_CREATE)  # fmt: skip
    refuses_if("xattr-replace | 8.4.2 | SETXATTR4_REPLACE fails", "SETXATTR", lambda talk, argument: argument.sxa_option == types.setxattr_option4.SETXATTR4_REPLACE)  # fmt: skip
    field_of("xattr-cinfo | 8.4.2 | change_info4 has other values than the file", "SETXATTR", "value", types.change_info4(True, 1, 2))  # fmt: skip
    field_of("xattr-remove-cinfo | 8.4.4 | change_info4 has other values than the file", "REMOVEXATTR", "value", types.change_info4(True, 1, 2))  # fmt: skip
    refuses("xattr-remove | 8.4.4 | REMOVEXATTR fails", "REMOVEXATTR")
    field_of("xattr-list-lost | 8.4.3 | LISTXATTRS leaves the first name out", "LISTXATTRS", NAMES, lambda old: old[1:])  # fmt: skip
    field_of("xattr-list-prefix | 8.4.3 | names have the prefix of a name space", "LISTXATTRS", NAMES, lambda old: tuple(b"user." + one for one in old))  # fmt: skip
    field_of("xattr-list-big | 8.4.3 | LISTXATTRS returns more than maxcount", "LISTXATTRS", NAMES, lambda old: (*old, b"x" * 200))  # fmt: skip
    field_of("xattr-list-eof | 8.4.3 | LISTXATTRS never is at the end", "LISTXATTRS", "value.lxr_eof", False)
    field_of("xattr-list-none | 8.4.3 | a file without attributes has one", "LISTXATTRS", NAMES, lambda old: old or (b"name",))  # fmt: skip
    for row, operations, *statuses in (
        ("xattr-noxattr | 8.3.1 | an absent attribute ends with another error", "GETXATTR SETXATTR REMOVEXATTR", "NOXATTR"),
        ("xattr-exist | 8.4.2 | SETXATTR4_CREATE of an attribute that exists ends with another error", "SETXATTR", "EXIST"),
        ("xattr-big | 8.3.2 | too big a value ends with another error", "SETXATTR", "XATTR2BIG", "NOSPC", "DQUOT"),
        ("xattr-list-toosmall | 8.4.3 | too small a maxcount ends with another error", "LISTXATTRS", "TOOSMALL"),
        ("xattr-nofh | 8.4.1 | GETXATTR without a filehandle ends with another error", "GETXATTR", "NOFILEHANDLE"),
    ):  # fmt: skip
        wrong_error(row, operations, *statuses)
