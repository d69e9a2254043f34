# ruff: noqa: ANN401  # arguments and results have the types of their operation
"""What every reply of NFSv4 has to keep, whatever its case is about (RFC 7530, RFC 8881, RFC 7862).

:class:`Nfs4Rules` sees each COMPOUND and its reply, on all connections of a harness. A fault is a sentence
that names the rule alone, so that one fault of a server is one red case.

Rules:

1. Only a reply to a COMPOUND that can be decoded is judged, and only what the server returned.
2. A stateid is compared with those before it only if no other call was open, and not for a call whose
   operations were sent before; a request whose slot had its sequence id before is not judged: the reply to it
   may be that of the first one.
3. A write verifier is compared on one connection: a server that restarts has no connection left. After an
   operation that failed it may be another: a server that could not write data changes it.
4. Stateids are compared until one is freed: a server may use its value again.
5. The change attribute of a directory is compared only between replies in a row, of which none overlaps
   another, only with a ``change_info4`` that is atomic, and not after what may set a time of access.
6. An entry may be listed again only if the directory was changed since its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.attributes import ATTRIBUTES, REQUIRED, decode_attributes, numbers_of
from storagetest.wire.nfs4.client import status_of
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_FILEHANDLE,
    FATTR4_FILEID,
    FATTR4_RDATTR_ERROR,
    FATTR4_SUPPORTED_ATTRS,
    NFS_V4,
    COMPOUND4args,
    COMPOUND4res,
    SEQUENCE4args,
    change_info4,
    createmode4,
    nfs_lock_type4,
    nfs_opnum4,
    nfsstat4,
    opentype4,
    stable_how4,
    stateid4,
)
from storagetest.wire.rpc.client import RpcConnection
from storagetest.wire.rpc.message import Reply, decode_message
from storagetest.wire.rpc.types import call_body

OK = nfsstat4.NFS4_OK
_COMPOUND = NFS_V4.procedure("COMPOUND")
_TO_END = 0xFFFF_FFFF_FFFF_FFFF
_WRITES = (nfs_lock_type4.WRITE_LT, nfs_lock_type4.WRITEW_LT)


_RESTARTED = (
    nfsstat4.NFS4ERR_STALE_CLIENTID,
    nfsstat4.NFS4ERR_STALE_STATEID,
    nfsstat4.NFS4ERR_BADSESSION,
    nfsstat4.NFS4ERR_GRACE,
)
"""Statuses after which a server may give its stateids again."""
_FREES = (
    "CLOSE",
    "DESTROY_CLIENTID",
    "EXCHANGE_ID",
    "FREE_STATEID",
    "RELEASE_LOCKOWNER",
    "SETCLIENTID_CONFIRM",
)
"""Operations that may free stateids."""


class Nfs4Rules:
    """The rules, and what the replies so far have stated."""

    def __init__(self) -> None:
        self._fileids: dict[bytes, int] = {}
        self._seqids: dict[bytes, int] = {}
        self._verifiers: dict[int, bytes] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._slots: set[tuple[bytes, int, int]] = set()
        self._changes: dict[bytes, int] = {}
        self._pages: dict[tuple[bytes, int], bytes] = {}
        self._open = 0
        self._overlap = False

    def sent(self, _call: bytes) -> None:
        """Note a call."""
        self._open += 1
        self._overlap = self._overlap or self._open > 1

    def faults(self, connection: RpcConnection, call: bytes, reply: Reply) -> list[str]:
        """Return a sentence for each rule that the reply breaks."""
        alone, self._open = not self._overlap, self._open - 1
        self._overlap = self._open > 0
        asked = _compound(call)
        if asked is None or not isinstance(reply.result, COMPOUND4res):
            self._lose_track()
            return []
        self._forget(connection, reply.result)
        again = asked.argarray in self._seen
        if again or not alone:  # a reply to a call that was sent again may be the first one (RFC 7530 9.1.9)
            self._lose_track()
        if self._is_retry(asked):
            return []
        self._seen.add(asked.argarray)
        found = [f"RFC 8881 {section}: {text}" for section, text in _as_a_whole(asked, reply.result)]
        handle: bytes | None = None
        saved: bytes | None = None
        for given, one in zip(asked.argarray, reply.result.resarray, strict=False):
            name = _name(one.resop)
            if given.argop != one.resop:
                break
            broken = list(_results(name, given.value, one.value))
            broken += self._changed(name, given.value, one, (handle, saved), alone=alone and not again)
            if status_of(one) == OK:
                saved = handle if name == "SAVEFH" else saved
                if name == "READDIR":
                    broken += self._listed(given.value, one.value, handle)
                handle = saved if name == "RESTOREFH" else _handle_after(name, given.value, one.value, handle)
                broken += self._stated(connection, name, one.value, handle)
                if alone and not again:
                    broken += self._seqid(name, one.value)
                elif (stateid := _stateid(name, one.value)) is not None:
                    self._seqids[stateid.other] = max(stateid.seqid, self._seqids.get(stateid.other, 0))
            found += [f"RFC 8881 {section}: {name}: {text}" for section, text in broken]
        return found

    def _lose_track(self) -> None:
        """Forget what only the reply before it states."""
        self._changes.clear()
        self._pages.clear()

    def _forget(self, connection: RpcConnection, result: COMPOUND4res) -> None:
        """Forget what the server may give again, or change, because of what happened."""
        if result.status in _RESTARTED or any(_name(one.resop) in _FREES for one in result.resarray):
            self._seqids.clear()
        if result.status != OK:
            self._verifiers.pop(id(connection), None)

    def _is_retry(self, asked: COMPOUND4args) -> bool:
        """Whether the slot had a request with this sequence id before, whose reply may be repeated."""
        first = asked.argarray[0].value if asked.argarray else None
        if not isinstance(first, SEQUENCE4args):
            return False
        key = first.sa_sessionid, first.sa_slotid, first.sa_sequenceid
        known = key in self._slots
        self._slots.add(key)
        return known

    def _stated(
        self, connection: RpcConnection, name: str, result: Any, handle: bytes | None
    ) -> Iterator[tuple[str, str]]:
        """Compare what is stated with what was stated before."""
        if name in ("WRITE", "COMMIT"):
            verifier = result.value.writeverf
            if self._verifiers.setdefault(id(connection), verifier) != verifier:
                yield "18.32", "the write verifier changed, on a connection that was not lost"
        if name == "GETATTR" and handle is not None:
            stated = _values(result.value.obj_attributes)
            if stated.get(FATTR4_FILEHANDLE, handle) != handle:
                yield "5.8.1.20", "filehandle is not the current filehandle"
            fileid = stated.get(FATTR4_FILEID)
            if fileid is not None and self._fileids.setdefault(handle, fileid) != fileid:
                yield "5.8.2.10", "fileid is not the one that the same filehandle had before"

    def _changed(
        self, name: str, argument: Any, one: Any, handles: tuple[bytes | None, bytes | None], *, alone: bool
    ) -> Iterator[tuple[str, str]]:
        """Compare the change attribute with the one that the reply before it stated (3.3.8, 5.8.1.4)."""
        stated = list(_change_infos(name, argument, one, handles))
        for handle, info in stated:
            if info.atomic and self._changes.get(handle, info.before) != info.before:
                yield "3.3.8", "change_info4 is atomic, and `before` is not the change of the reply before it"
        if name not in _KEEPS_CHANGE:
            self._changes.clear()
        if name in _NAMES_CHANGE:
            self._pages.clear()
        for handle, info in stated:
            if info.atomic and alone:
                self._changes[handle] = info.after
        if name == "GETATTR" and handles[0] is not None and status_of(one) == OK:
            change = _values(one.value.value.obj_attributes).get(FATTR4_CHANGE)
            if change is not None and self._changes.get(handles[0], change) != change:
                yield "3.3.8", "change is not that of the atomic change_info4 before it"

    def _listed(self, argument: Any, result: Any, handle: bytes | None) -> Iterator[tuple[str, str]]:
        """Compare a page with the entry whose cookie it begins behind."""
        if handle is None:
            return
        entries = result.value.reply.entries
        last = self._pages.get((handle, argument.cookie))
        if last is not None and last in {one.name for one in entries}:
            yield "18.23.3", "an entry comes again behind its cookie, and nothing was changed"
        self._pages |= {(handle, one.cookie): one.name for one in entries}

    def _seqid(self, name: str, result: Any) -> Iterator[tuple[str, str]]:
        stateid = _stateid(name, result)
        if stateid is None:
            return
        known = self._seqids.get(stateid.other)
        self._seqids[stateid.other] = stateid.seqid
        if not stateid.seqid:
            yield "8.2.2", "the stateid has the seqid 0"
        elif known is not None and stateid.seqid <= known < 0xFFFF_FFF0:
            yield "8.2.2", "the seqid of the stateid is not above the one that it had before"


def _compound(call: bytes) -> COMPOUND4args | None:
    """Return the argument of a call of COMPOUND; None if it is none, or cannot be decoded."""
    try:
        message, source = decode_message(call)
        body = message.body.value
        if not isinstance(body, call_body) or (body.prog, body.proc) != (NFS_V4.number, _COMPOUND.number):
            return None
        found = COMPOUND4args.unpack(source)
        source.finish("the argument")
    except RemoteProtocolError:
        return None
    return found


def _name(number: nfs_opnum4) -> str:
    return number.name.removeprefix("OP_")


def _as_a_whole(asked: COMPOUND4args, result: COMPOUND4res) -> Iterator[tuple[str, str]]:
    results = result.resarray
    if len(results) > len(asked.argarray):
        yield "16.2.3", "a COMPOUND has more results than operations"
    if results and status_of(results[-1]) != result.status:
        yield "16.2.3", "the status of a COMPOUND is not that of its last result"
    if any(status_of(one) != OK for one in results[:-1]):
        yield "16.2.3", "a COMPOUND goes on behind an operation that failed"
    if result.status == OK and len(results) != len(asked.argarray):
        yield "16.2.3", "a COMPOUND that succeeded has not a result for each operation"
    same = all(
        one.resop in (given.argop, nfs_opnum4.OP_ILLEGAL)
        for given, one in zip(asked.argarray, results, strict=False)
    )
    if not same:
        yield "16.2.3", "a result is not that of the operation in its place"


def _handle_after(name: str, argument: Any, result: Any, handle: bytes | None) -> bytes | None:
    """Return the current filehandle after an operation, None if it is not known."""
    if name == "PUTFH":
        found: bytes = argument.object
        return found
    if name == "GETFH":
        returned: bytes = result.value.object
        return returned
    return handle if name in _KEEPS else None


_KEEPS = (
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "GETATTR",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "NVERIFY",
    "OPEN_DOWNGRADE",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "SAVEFH",
    "SETATTR",
    "VERIFY",
    "WRITE",
)
"""Operations after which the current filehandle is the one before."""


_KEEPS_CHANGE = ("ACCESS", "GETATTR", "GETFH", "LOOKUP", "LOOKUPP", "NVERIFY", "PUTFH", "PUTROOTFH", "RENEW",
                 "RESTOREFH", "SAVEFH", "SECINFO", "SECINFO_NO_NAME", "SEQUENCE", "TEST_STATEID",
                 "VERIFY")  # fmt: skip
"""Operations that change no file, and no time of access."""

_NAMES_CHANGE = ("CREATE", "LINK", "OPEN", "REMOVE", "RENAME")
"""Operations that may change what a directory lists."""


def _change_infos(
    name: str, argument: Any, one: Any, handles: tuple[bytes | None, bytes | None]
) -> Iterator[tuple[bytes, change_info4]]:
    """Return the directories that a successful operation changes, with what it states of their changes."""
    value = getattr(one.value, "value", None)
    if name not in _NAMES_CHANGE or value is None or status_of(one) != OK:
        return
    handle, saved = handles
    if name == "OPEN" and argument.openhow.opentype != opentype4.OPEN4_CREATE:
        return
    if name == "RENAME":
        pairs = [(saved, value.source_cinfo), (handle, value.target_cinfo)]
    else:
        pairs = [(handle, value.cinfo)]
    for found, info in pairs:
        if found is not None and (name != "RENAME" or handle != saved):
            yield found, info


def _stateid(name: str, result: Any) -> stateid4 | None:
    """Return the stateid of opens and locks in a successful result."""
    match name:
        case "OPEN":
            found = result.value.stateid
        case "OPEN_CONFIRM" | "OPEN_DOWNGRADE":
            found = result.value.open_stateid
        case "LOCK":
            found = result.value.lock_stateid
        case "LOCKU":
            found = result.value
        case _:
            return None
    return found if isinstance(found, stateid4) else None


def _values(attributes: Any) -> Mapping[int, Any]:
    try:
        return decode_attributes(attributes)
    except RemoteProtocolError:
        return {}


# The operations


def _results(name: str, argument: Any, result: Any) -> Iterator[tuple[str, str]]:
    if name in ("LOCK", "LOCKT") and result.status == nfsstat4.NFS4ERR_DENIED:
        yield from _denied(argument, result.value)
    if name in _RULES and getattr(result, "value", None) is not None and _status(result) == OK:
        yield from _RULES[name](argument, result.value)
    if name == "SETATTR" and result.status == OK:
        asked = set(numbers_of(argument.obj_attributes.attrmask))
        if set(numbers_of(result.attrsset)) - asked:
            yield "18.30", "attrsset has attributes that were not to be set"
        if asked - set(numbers_of(result.attrsset)):
            yield "18.30", "it succeeds, and attrsset lacks attributes that were to be set"


def _status(result: Any) -> nfsstat4:
    found: nfsstat4 = getattr(result, result.DISCRIMINANT[0])
    return found


def _end(offset: int, length: int) -> int:
    return _TO_END if length == _TO_END else offset + length


def _denied(argument: Any, holder: Any) -> Iterator[tuple[str, str]]:
    first = min(argument.offset, holder.offset)
    overlap = _end(holder.offset, holder.length) > argument.offset >= first
    overlap = overlap or _end(argument.offset, argument.length) > holder.offset >= first
    if not overlap:
        yield "18.10.3", "the lock that denies it does not overlap what was asked for"
    if argument.locktype not in _WRITES and holder.locktype not in _WRITES:
        yield "18.10.3", "a read lock denies a read lock"
    locker = getattr(argument, "locker", None)
    asks = getattr(argument, "owner", None) if locker is None else getattr(locker.value, "lock_owner", None)
    if asks is not None and holder.owner == asks:
        yield "18.10.3", "it is denied by a lock of the owner that asks"


def _access(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if value.supported & ~argument.access:
        yield "18.1.3", "supported has bits that were not asked for"
    if value.access & ~value.supported:
        yield "18.1.3", "access has bits that are not supported"


def _read(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if len(value.data) > argument.count:
        yield "18.22.3", "it returns more than was asked for"
    if argument.count and not value.data and not value.eof:
        yield "18.22.3", "it returns nothing, and no eof"


def _write(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if value.count > len(argument.data):
        yield "18.32.3", "count is more than the data"
    if argument.data and not value.count:
        yield "18.32.3", "it succeeds and has written nothing"
    if value.committed < argument.stable:
        yield (
            "18.32.3",
            f"data are committed less than {stable_how4(argument.stable).name}, which was asked for",
        )


def _getattr(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    asked, returned = set(numbers_of(argument.attr_request)), set(numbers_of(value.obj_attributes.attrmask))
    if returned - asked:
        yield "18.7.3", "it returns attributes that were not asked for"
    if (asked & set(REQUIRED)) - returned - {FATTR4_RDATTR_ERROR}:
        yield "18.7.3", "it lacks an attribute that every server supports"
    supported = _values(value.obj_attributes).get(FATTR4_SUPPORTED_ATTRS, ())
    lacks = (asked & set(numbers_of(supported))) - returned
    if any("R" in ATTRIBUTES[one].access for one in lacks - {FATTR4_RDATTR_ERROR} if one in ATTRIBUTES):
        yield "18.7.3", "it lacks an attribute that supported_attrs has"


def _readdir(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    entries = value.reply.entries
    cookies = [one.cookie for one in entries]
    if len(set(cookies)) < len(cookies) or (argument.cookie and argument.cookie in cookies):
        yield "18.23.3", "a cookie comes twice"
    if {0, 1, 2} & set(cookies):
        yield "18.23.3", "an entry has the cookie 0, 1 or 2"
    if any(not one.name or b"/" in one.name or b"\0" in one.name for one in entries):
        yield "18.23.3", "an entry has a name that no file can have"
    if len({one.name for one in entries}) < len(entries):
        yield "18.23.3", "a name comes twice"
    if len(value.encode().data) > argument.maxcount:
        yield "18.23.3", "the result is longer than maxcount"
    asked = set(numbers_of(argument.attr_request))
    if any(set(numbers_of(one.attrs.attrmask)) - asked for one in entries):
        yield "18.23.3", "an entry has attributes that were not asked for"


_SPECIAL = (bytes(12), b"\xff" * 12)
"""`other` of special stateids (8.2.3)."""


def _same_other(argument: stateid4, found: stateid4) -> Iterator[tuple[str, str]]:
    if argument.other not in _SPECIAL and found.other != argument.other:
        yield "8.2.2", "a change of opens or locks gives their stateid another `other`"


def _lock(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if not argument.locker.new_lock_owner:
        yield from _same_other(argument.locker.value.lock_stateid, value.lock_stateid)


def _unlock(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    yield from _same_other(argument.lock_stateid, value)


def _open_changed(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    yield from _same_other(argument.open_stateid, value.open_stateid)


def _open(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    how = argument.openhow.value
    if how is None or argument.openhow.opentype != opentype4.OPEN4_CREATE:
        if any(value.attrset):
            yield "18.16.3", "attrset has attributes, and nothing was to be created"
        return
    is_plain = how.mode in (createmode4.UNCHECKED4, createmode4.GUARDED4)
    if is_plain and set(numbers_of(value.attrset)) - set(numbers_of(how.value.attrmask)):
        yield "18.16.3", "attrset has attributes that were not to be set"


def _create(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if set(numbers_of(value.attrset)) - set(numbers_of(argument.createattrs.attrmask)):
        yield "18.4.3", "attrset has attributes that were not to be set"


def _sequence(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    stated = value.sr_sessionid, value.sr_slotid, value.sr_sequenceid
    if stated != (argument.sa_sessionid, argument.sa_slotid, argument.sa_sequenceid):
        yield "18.46.3", "it names another session, slot or sequence id than the request"


def _seek(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if not value.sr_eof and value.sr_offset < argument.sa_offset:
        yield "and RFC 7862 15.11.3", "it returns an offset before the one that it begins at"


def _copy(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if argument.ca_count and value.cr_response.wr_count > argument.ca_count:
        yield "and RFC 7862 15.2.3", "it has copied more than was asked for"


def _test_stateid(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if len(value.tsr_status_codes) != len(argument.ts_stateids):
        yield "18.48.3", "it has not a status for each stateid"


def _create_session(argument: Any, value: Any) -> Iterator[tuple[str, str]]:
    if value.csr_sequence != argument.csa_sequence:
        yield "18.36.3", "csr_sequence is not csa_sequence"


_RULES: Mapping[str, Callable[[Any, Any], Iterator[tuple[str, str]]]] = {
    "ACCESS": _access,
    "READ": _read,
    "WRITE": _write,
    "GETATTR": _getattr,
    "READDIR": _readdir,
    "SEQUENCE": _sequence,
    "SEEK": _seek,
    "COPY": _copy,
    "TEST_STATEID": _test_stateid,
    "CREATE_SESSION": _create_session,
    "CREATE": _create,
    "OPEN": _open,
    "OPEN_CONFIRM": _open_changed,
    "OPEN_DOWNGRADE": _open_changed,
    "LOCK": _lock,
    "LOCKU": _unlock,
}
