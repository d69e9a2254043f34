"""What every reply of NFS version 3 has to keep, whatever its case is about (RFC 1813 2.6, 3.3).

:class:`Nfs3Rules` sees each call and each reply of a harness's connections, also of those that arrange. A
fault is a sentence that names the rule alone, so that one fault of a server is one red case.

Rules:

1. Only a reply to a call that can be decoded is judged, and only a value that the server returned.
2. A directory's attributes before an operation are compared with those that the reply before it stated: only
   for two calls in a row of which none overlaps another, never for a call that is sent again, and not for the
   names ``.`` and ``..``, which mean another directory than that of the argument.
3. A write verifier is compared on one connection: a server that restarts has no connection left. After a
   WRITE or COMMIT that failed it may be another: a server that could not write data changes it.
4. The attributes of one file are compared only between replies in a row, of which the later one changes
   nothing, and only those of files that the harness has looked up or made: others may change an export's
   root. The time of access and the space in use may change at any time, and all times after a write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs3.types import (
    NFS_V3,
    createmode3,
    fattr3,
    ftype3,
    nfs_fh3,
    nfsstat3,
    stable_how,
    wcc_attr,
    wcc_data,
)
from storagetest.wire.rpc.client import RpcConnection
from storagetest.wire.rpc.message import Reply, decode_message
from storagetest.wire.rpc.types import call_body

_MADE = {"CREATE": ftype3.NF3REG, "MKDIR": ftype3.NF3DIR, "SYMLINK": ftype3.NF3LNK}


class Nfs3Rules:
    """The rules, and what the replies so far have stated."""

    def __init__(self) -> None:
        self._ids: dict[bytes, tuple[int, int]] = {}
        self._directories: dict[bytes, wcc_attr] = {}
        self._stated: dict[bytes, _Stated] = {}
        self._own: set[bytes] = set()
        self._written: set[bytes] = set()
        self._verifiers: dict[int, bytes] = {}
        self._open = 0
        self._overlap = False
        self._xids: set[bytes] = set()
        self._again: set[bytes] = set()

    def sent(self, call: bytes) -> None:
        """Note a call: while several are open, no attributes before one are known."""
        self._open += 1
        if call[:4] in self._xids:
            self._again.add(call[:4])
        self._xids.add(call[:4])
        self._overlap = self._overlap or self._open > 1

    def faults(self, connection: RpcConnection, call: bytes, reply: Reply) -> list[str]:
        """Return a sentence for each rule that the reply breaks."""
        alone, self._open = not self._overlap, self._open - 1
        self._overlap = self._open > 0
        asked = _argument(call)
        if not alone or asked is None or reply.result is None or call[:4] in self._again:
            self._directories.clear()
            self._stated.clear()
        if asked is None or reply.result is None or call[:4] in self._again:
            return []
        name, argument = asked
        found = [
            f"RFC 1813 {section}: {name}: {text}"
            for section, text in self._broken(name, argument, reply, alone=alone)
        ]
        found += self._verifier(connection, name, reply.result)
        return found

    def _broken(
        self,
        name: str,
        argument: Any,  # noqa: ANN401  # of the procedure
        reply: Reply,
        *,
        alone: bool,
    ) -> Iterator[tuple[str, str]]:
        value = getattr(reply.result, "value", None)
        for attributes in _attributes(value):
            times = attributes.atime, attributes.mtime, attributes.ctime
            if any(one.nseconds >= 1_000_000_000 for one in times):
                yield "2.5", "a time has 1,000,000,000 nanoseconds or more"
        for handle, attributes in _pairs(name, argument, value):
            known = self._ids.setdefault(handle, (attributes.fsid, attributes.fileid))
            if known != (attributes.fsid, attributes.fileid):
                yield "2.6", "attributes have another fsid or fileid than the file of their handle"
        yield from self._before(name, argument, value, alone=alone)
        yield from self._same(name, argument, value, alone=alone)
        if reply.result.status == nfsstat3.NFS3_OK and name in _RULES:
            yield from _RULES[name](argument, value)

    def _before(
        self,
        name: str,
        argument: Any,  # noqa: ANN401  # of the procedure
        value: Any,  # noqa: ANN401
        *,
        alone: bool,
    ) -> Iterator[tuple[str, str]]:
        """Compare the attributes before an operation on a directory with those of the reply before it."""
        changed = list(_directories(name, argument, value))
        for handle, wcc in changed:
            known = self._directories.get(handle)
            if known is not None and wcc.before is not None and wcc.before != known:
                yield "2.6", "the attributes before the operation are not those after the last one"
        if name in _CHANGES or name == "SETATTR":
            self._directories.clear()
        for handle, wcc in changed if alone else ():
            if wcc.after is not None:
                self._directories[handle] = wcc_attr(wcc.after.size, wcc.after.mtime, wcc.after.ctime)

    def _same(
        self,
        name: str,
        argument: Any,  # noqa: ANN401  # of the procedure
        value: Any,  # noqa: ANN401
        *,
        alone: bool,
    ) -> Iterator[tuple[str, str]]:
        """Compare attributes with those of the reply before it, if nothing has changed the file since."""
        if name not in _READS:
            self._stated.clear()
        found = getattr(value, "object" if name == "LOOKUP" else "obj", None)
        if isinstance(found, nfs_fh3) and (name != "LOOKUP" or argument.what.name not in (b".", b"..")):
            self._own.add(found.data)
        for handle, attributes in (*_pairs(name, argument, value), *_changed(name, argument, value)):
            if name in ("WRITE", "COMMIT"):
                self._written.add(handle)
            stated = _stated(attributes, has_times=handle not in self._written)
            known = self._stated.get(handle)
            if known is not None and _differ(known, stated):
                yield "2.5", "attributes are not those of the reply before it, and nothing was changed"
            if alone and handle in self._own:
                self._stated[handle] = stated

    def _verifier(self, connection: RpcConnection, name: str, result: Any) -> list[str]:  # noqa: ANN401
        if name not in ("WRITE", "COMMIT"):
            return []
        if result.status != nfsstat3.NFS3_OK:
            self._verifiers.pop(id(connection), None)
            return []
        if self._verifiers.setdefault(id(connection), result.value.verf) == result.value.verf:
            return []
        return ["RFC 1813 3.3.7: the verifier of WRITE and COMMIT changed, on a connection that was not lost"]


_Stated = tuple[tuple[object, ...], tuple[object, ...] | None]
"""What one reply states of a file; the second part, the times, is None if it may change by itself."""


def _stated(attributes: fattr3, *, has_times: bool) -> _Stated:
    one = attributes
    kept = one.type, one.mode, one.nlink, one.uid, one.gid, one.size, one.rdev
    return kept, (one.mtime, one.ctime) if has_times else None


def _differ(known: _Stated, stated: _Stated) -> bool:
    times = known[1] is not None and stated[1] is not None and known[1] != stated[1]
    return known[0] != stated[0] or times


_READS = ("GETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO",
          "PATHCONF")  # fmt: skip
"""Procedures that change nothing but times of access."""


def _changed(name: str, argument: Any, value: Any) -> Iterator[tuple[bytes, fattr3]]:  # noqa: ANN401
    """Return the handle of a file that an operation changes, with the attributes after it."""
    if name == "SETATTR" and value is not None and value.obj_wcc.after is not None:
        yield argument.object.data, value.obj_wcc.after
    if name in ("WRITE", "COMMIT") and value is not None and value.file_wcc.after is not None:
        yield argument.file.data, value.file_wcc.after


_CHANGES = ("CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK")


def _argument(call: bytes) -> tuple[str, Any] | None:
    """Return the name and the argument of a call of NFS; None if it is none, or cannot be decoded."""
    try:
        message, source = decode_message(call)
        body = message.body.value
        if not isinstance(body, call_body) or (body.prog, body.vers) != (NFS_V3.number, NFS_V3.version):
            return None
        procedure = NFS_V3.procedures.get(body.proc)
        if procedure is None or not body.proc:
            return None
        argument = procedure.argument.unpack(source)
        source.finish("the argument")
    except RemoteProtocolError:
        return None
    return procedure.name, argument


def _attributes(value: Any) -> Iterator[fattr3]:  # noqa: ANN401
    """Return all attributes in a result."""
    for field in getattr(value, "__dataclass_fields__", ()):
        one = getattr(value, field)
        if isinstance(one, wcc_data):
            one = one.after
        if isinstance(one, fattr3):
            yield one
    for entry in _entries(value):
        if getattr(entry, "name_attributes", None) is not None:
            yield entry.name_attributes


def _entries(value: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return getattr(getattr(value, "reply", None), "entries", ())


def _pairs(name: str, argument: Any, value: Any) -> Iterator[tuple[bytes, fattr3]]:  # noqa: ANN401
    """Return each handle in a call or its result with the attributes that the result states of its file."""
    about = next((one for one in _OF_ARGUMENT if one[0] == name), None)
    found: list[tuple[nfs_fh3 | None, fattr3 | None]] = []
    if about is not None:
        found += [(getattr(argument, about[1], None), getattr(value, about[2], None))]
    if name == "LOOKUP" and value is not None:
        found += [(getattr(value, "object", None), getattr(value, "obj_attributes", None))]
        found += [(argument.what.dir, value.dir_attributes)]
    if name in _MADE or name == "MKNOD":
        found += [(getattr(value, "obj", None), getattr(value, "obj_attributes", None))]
    found += [(nfs_fh3(handle), wcc.after) for handle, wcc in _directories(name, argument, value)]
    found += [
        (getattr(one, "name_handle", None), getattr(one, "name_attributes", None)) for one in _entries(value)
    ]
    for handle, attributes in found:
        if handle is not None and attributes is not None:
            yield handle.data, attributes


_OF_ARGUMENT = (
    ("GETATTR", "object", "obj_attributes"),
    ("ACCESS", "object", "obj_attributes"),
    ("READLINK", "symlink", "symlink_attributes"),
    ("READ", "file", "file_attributes"),
    ("READDIR", "dir", "dir_attributes"),
    ("READDIRPLUS", "dir", "dir_attributes"),
    ("LINK", "file", "file_attributes"),
    ("FSSTAT", "fsroot", "obj_attributes"),
    ("FSINFO", "fsroot", "obj_attributes"),
    ("PATHCONF", "object", "obj_attributes"),
)
"""Procedures whose result has attributes of a handle in the argument."""


def _directories(name: str, argument: Any, value: Any) -> Iterator[tuple[bytes, wcc_data]]:  # noqa: ANN401
    """Return the directories that an operation changes, with their weak cache consistency data."""
    if value is None or name not in _CHANGES:
        return
    if name == "RENAME":
        yield argument.from_.dir.data, value.fromdir_wcc
        yield argument.to.dir.data, value.todir_wcc
    elif name == "LINK":
        yield argument.link.dir.data, value.linkdir_wcc
    else:
        where = argument.object if name in ("REMOVE", "RMDIR") else argument.where
        if where.name not in (b".", b".."):
            yield where.dir.data, value.dir_wcc


# The procedures


def _access(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    if value.access & ~argument.access:
        yield "3.3.4", "it grants bits that were not asked for"


def _read(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    if value.count != len(value.data):
        yield "3.3.6", "count is not the number of bytes returned"
    if len(value.data) > argument.count:
        yield "3.3.6", "it returns more than was asked for"
    if argument.count and not value.data and not value.eof:
        yield "3.3.6", "it returns nothing, and no eof"
    attributes, end = value.file_attributes, argument.offset + len(value.data)
    if attributes is not None and value.eof and end < attributes.size:
        yield "3.3.6", "eof before the size that the same reply states"
    if attributes is not None and not value.eof and argument.count and end >= attributes.size:
        yield "3.3.6", "no eof at the size that the same reply states"


def _write(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    if value.count > len(argument.data):
        yield "3.3.7", "count is more than the data"
    if argument.count and not value.count:
        yield "3.3.7", "it succeeds and has written nothing"
    if value.committed < argument.stable:
        yield "3.3.7", f"data are committed less than {stable_how(argument.stable).name}, which was asked for"
    after = value.file_wcc.after
    if after is not None and value.count and after.size < argument.offset + value.count:
        yield "2.6", "the size after it is below the end of what was written"


def _setattr(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    new, after = argument.new_attributes, value.obj_wcc.after
    if after is None:
        return
    if new.size is not None and after.size != new.size:
        yield "2.6", "the size after it is not the one that was set"
    is_link = after.type == ftype3.NF3LNK  # many file systems keep no mode of a symbolic link
    if new.mode is not None and not is_link and after.mode & 0o777 != new.mode & 0o777:
        yield "2.6", "the mode after it is not the one that was set"


def _made(name: str) -> Callable[[Any, Any], Iterator[tuple[str, str]]]:
    def made(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
        attributes = value.obj_attributes
        if attributes is None:
            return
        if attributes.type != _MADE[name]:
            yield "3.3.8 to 3.3.10", f"the type of what was made is {attributes.type.name}"
        if (
            name == "CREATE"
            and argument.how.mode == createmode3.GUARDED
            and attributes.size
            not in (
                0,
                argument.how.value.size or 0,
            )
        ):
            yield "3.3.8", "what was made has a size that was not asked for"

    return made


def _link(_argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    if value.file_attributes is not None and value.file_attributes.nlink < 2:
        yield "3.3.15", "the attributes after it have less than two links"


def _readdir(argument: Any, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    entries = value.reply.entries
    cookies = [one.cookie for one in entries]
    if len(set(cookies)) < len(cookies) or 0 in cookies or argument.cookie in cookies:
        yield "3.3.16", "a cookie comes twice, or is that of the beginning"
    if any(not one.name or b"/" in one.name or b"\0" in one.name for one in entries):
        yield "3.3.16", "an entry has a name that no file can have"
    if not entries and not value.reply.eof:
        yield "3.3.16", "no entry, and not the end"
    here = value.dir_attributes
    for one in entries:
        found = getattr(one, "name_attributes", None)
        if here is None or found is None or found.fsid != here.fsid or one.name in (b".", b".."):
            continue
        if one.fileid != found.fileid:
            yield "3.3.17", "an entry's fileid is not that of its attributes"


_RULES: Mapping[str, Callable[[Any, Any], Iterator[tuple[str, str]]]] = {
    "ACCESS": _access,
    "READ": _read,
    "WRITE": _write,
    "SETATTR": _setattr,
    "CREATE": _made("CREATE"),
    "MKDIR": _made("MKDIR"),
    "SYMLINK": _made("SYMLINK"),
    "LINK": _link,
    "READDIR": _readdir,
    "READDIRPLUS": _readdir,
}
