"""Broken rules of SMB that act between two of a kind: sessions, trees, opens, locks, requests, dialects.

Also what breaks a lease, and changes that are seldom watched.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from smb2_proxy_connection import (
    MUTANTS,
    Change,
    SmbMutant,
    SmbProxyConnection,
    context_at,
    mutant,
    put,
    requests,
    same,
)

from storagetest.wire.smb2.codes import (
    REOPEN,
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    Access,
    FileInfo,
    Flags,
    InfoType,
    SmbAttribute,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.message import NOTIFICATION, SmbMessage, decode, response, split_compound
from storagetest.wire.smb2.stream import frame

DATA_ACCESS = ~(Access.READ_ATTRIBUTES | Access.WRITE_ATTRIBUTES | Access.READ_CONTROL | Access.SYNCHRONIZE)
"""Access other than to attributes."""

ELEMENTS_AT, ELEMENT_SIZE = 88, 24
"""Where the elements of a LOCK request begin, and the size of one (2.2.26)."""

LAST_WRITE_AT = 16
"""Offset of LastWriteTime in FileBasicInformation (MS-FSCC 2.4.7)."""

DIALECTS_AT = 100
"""Where the dialects of a NEGOTIATE request begin (2.2.3)."""


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


def _kept(message: SmbMessage) -> dict[str, int]:
    names = ("message_id", "session_id", "tree_id")
    return {name: message.header[name] for name in names if name in message.header}


def _refused(talk: SmbProxyConnection, message: SmbMessage, status: SmbStatus) -> bytes:
    """Refuse a request in the server's stead, which does not receive it."""
    made = response(SmbCommand(message.command), status=status).override(**_kept(message))
    talk.send_to_host(frame(made.override(credit_charge=1, credits=max(1, message.header["credits"])).data))
    return b""


def _name(message: SmbMessage) -> str:
    return message.buffer.decode("utf-16-le", "replace").lower()


def _asked(talk: SmbProxyConnection, message: SmbMessage) -> SmbMessage | None:
    return talk.asked.get(message["message_id"])


def _both(row: str, ask: Change, *, protected: bool = False) -> Callable[[Change], Change]:
    """Register the function as a mutant of responses, with ``ask``, which changes requests."""
    return mutant(row, request=ask, protected=protected)


# Dialects


def _dialects(message: SmbMessage) -> tuple[int, ...]:
    return struct.unpack_from(f"<{message['dialect_count']}H", message.raw, DIALECTS_AT)


KNOWN = {0x0202, 0x0210, 0x02FF, 0x0300, 0x0302, 0x0311}


@requests(
    "dialect-unknown-refused | MS-SMB2 3.3.5.4 | a NEGOTIATE with an unknown dialect among others is refused"
)
def dialect_unknown_refused(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.NEGOTIATE or not set(_dialects(message)) - KNOWN:
        return message.raw
    return _refused(talk, message, SmbStatus.NOT_SUPPORTED)


@requests("dialect-last-chosen | MS-SMB2 3.3.5.4 | the last dialect of the list is chosen")
def dialect_last_chosen(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    offered = _dialects(message) if message.command == SmbCommand.NEGOTIATE else ()
    if len(offered) < 2 or offered[-1] == max(offered):
        return message.raw
    return put(message.raw, DIALECTS_AT, struct.pack("<H", offered[-1]) * len(offered))


# Sessions and trees


def _use_owner(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    owner = talk.shared.get(message.fields.get("file_id"))
    if owner is None or owner[0] is not talk or owner[1] == message.header["session_id"]:
        return message.raw
    talk.shared[message["message_id"]] = (message.header["session_id"], message.header["tree_id"])
    return message.encoded().override(session_id=owner[1], tree_id=owner[2]).data


@_both(
    "open-of-other-session | MS-SMB2 3.3.5.12 | an open is used in another session of the connection",
    _use_owner,
)
def open_of_other_session(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if "tree_id" not in message.header:
        return message.raw
    if _succeeded(message, SmbCommand.CREATE):
        talk.shared[message["file_id"]] = (talk, message.header["session_id"], message.header["tree_id"])
    own = talk.shared.pop(message["message_id"], None)
    return message.raw if own is None else message.encoded().override(session_id=own[0], tree_id=own[1]).data


@mutant("tree-second-access | MS-SMB2 2.2.10 | MaximalAccess of the second tree of a session is 0")
def tree_second_access(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.TREE_CONNECT):
        return message.raw
    session = message.header["session_id"]
    talk.shared[session] = talk.shared.get(session, 0) + 1
    return message.encoded().override(maximal_access=0).data if talk.shared[session] > 1 else message.raw


@mutant("tree-id-same | MS-SMB2 3.3.5.7 | the second tree of a session has the TreeId of the first")
def tree_id_same(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.TREE_CONNECT):
        return message.raw
    first = talk.shared.setdefault(message.header["session_id"], message.header["tree_id"])
    return message.encoded().override(tree_id=first).data


# Signatures


def _unsigned(row: str, wanted: Callable[[SmbMessage], bool]) -> None:
    @mutant(row, protected=True)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if not message.flags & Flags.SIGNED or message.status == SmbStatus.PENDING or not wanted(message):
            return message.raw
        return (
            message.encoded().override(header_flags=message.flags & ~Flags.SIGNED, signature=bytes(16)).data
        )


_unsigned(
    "error-unsigned | MS-SMB2 3.3.4.1.1 | error responses are not signed", lambda message: message.is_error
)
_unsigned(
    "final-unsigned | MS-SMB2 3.3.4.1.1 | the final response to an asynchronous request is not signed",
    lambda message: bool(message.flags & Flags.ASYNC),
)

# Requests


@mutant("compound-grants-none | MS-SMB2 3.3.1.2 | the responses of a compound grant no credit")
def compound_grants_none(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    later = talk.shared.get(talk, False)
    talk.shared[talk] = bool(message.header["next_command"])
    return message.encoded().override(credits=0).data if later or talk.shared[talk] else message.raw


@requests(
    "charge-zero-refused | MS-SMB2 3.3.5.2.5 | READ, WRITE and QUERY_INFO with a CreditCharge of 0 are refused"
)
def charge_zero_refused(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    sized = message.command in (SmbCommand.READ, SmbCommand.WRITE, SmbCommand.QUERY_INFO)
    if not sized or message.header["credit_charge"]:
        return message.raw
    return _refused(talk, message, SmbStatus.INVALID_PARAMETER)


class _OneFile(SmbProxyConnection):
    def _frame(self, data: bytes) -> bytes:
        if data[:4] != b"\xfeSMB":
            return data
        first, out = b"", b""
        for part in split_compound(data):
            message = decode(part)
            if _succeeded(message, SmbCommand.CREATE) and not message.flags & Flags.SIGNED:
                first = first or message["file_id"]
                part = message.encoded().override(file_id=first).data  # noqa: PLW2901
            out += part
        return out


class _OneFileMutant(SmbMutant):
    def rewrites(self) -> Callable[[], SmbProxyConnection]:
        return lambda: _OneFile(self, {})


MUTANTS["compound-second-file"] = _OneFileMutant(
    "compound-second-file",
    "MS-SMB2 3.3.5.2.7.1",
    "the second CREATE of a compound states the FileId of the first",
    same,
)


def _oldest(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CANCEL or not talk.shared:
        return message.raw
    return message.encoded().override(async_id=next(iter(talk.shared.values()))).data


@_both("cancel-oldest | MS-SMB2 3.3.5.16 | CANCEL ends the request that waits longest", _oldest)
def cancel_oldest(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.flags & Flags.ASYNC and message.status == SmbStatus.PENDING:
        talk.shared[message["message_id"]] = message.header["async_id"]
    else:
        talk.shared.pop(message["message_id"], None)
    return message.raw


# Leases


def _breaks_lost(row: str, wanted: Callable[[SmbMessage], bool]) -> None:
    """A mutant whose server sends no break after a request that ``wanted`` selects."""

    def note(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if wanted(message):
            talk.shared["changed"] = True
        return message.raw

    @_both(row, note)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
        return None if message.is_lease_break and "changed" in talk.shared else message.raw


_breaks_lost(
    "lease-break-lock-lost | MS-FSA 2.1.5.8 | a byte-range lock breaks no lease",
    lambda message: message.command == SmbCommand.LOCK,
)
_breaks_lost(
    "lease-break-allocation-lost | MS-FSA 2.1.5.15.1 | a change of the allocation breaks no lease",
    lambda message: message.command == SmbCommand.SET_INFO and message["info_class"] == FileInfo.ALLOCATION,
)


def _notification(row: str, **fields: int) -> None:
    """A mutant that sets fields of break notifications."""

    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.OPLOCK_BREAK or message["message_id"] != NOTIFICATION:
            return message.raw
        return message.encoded().override(**fields).data


_notification("break-session-set | MS-SMB2 3.3.4.7 | a break notification has a SessionId", session_id=0x77)
_notification("break-tree-set | MS-SMB2 3.3.4.7 | a break notification has a TreeId", tree_id=0x77)

# Durable handles


def _close_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CLOSE or message["file_id"] not in talk.shared:
        return message.raw
    made = response(SmbCommand.CLOSE).override(**_kept(message), credit_charge=1, credits=1)
    talk.send_to_host(frame(made.data))
    return b""


@_both(
    "closed-stays-durable | MS-SMB2 3.3.5.10 | a durable handle that was closed is found by a reconnect",
    _close_ignored,
)
def closed_stays_durable(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if _succeeded(message, SmbCommand.CREATE) and context_at(message, b"DHnQ", b"DH2Q"):
        talk.shared[message["file_id"]] = True
    return message.raw


# Listings


@mutant(
    "entry-after-single-lost | MS-FSA 2.1.5.6.3 | a query after one of a single entry leaves an entry out"
)
def entry_after_single_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if not _succeeded(message, SmbCommand.QUERY_DIRECTORY) or asked is None or not message.buffer:
        return message.raw
    after = talk.shared.get(asked["file_id"], False)
    talk.shared[asked["file_id"]] = bool(asked["flags"] & RETURN_SINGLE_ENTRY)
    step = int.from_bytes(message.buffer[:4], "little")
    if not after or not step or asked["flags"] & (RESTART_SCANS | REOPEN):
        return message.raw
    left = message.buffer[step:]
    return message.encoded().override(buffer_length=len(left)).data[: message["buffer_offset"]] + left


@requests("class-change-restarts | MS-FSA 2.1.5.6.3 | a query of another class begins at the first entry")
def class_change_restarts(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.QUERY_DIRECTORY:
        return message.raw
    before = talk.shared.get(message["file_id"], message["info_class"])
    talk.shared[message["file_id"]] = message["info_class"]
    if before == message["info_class"]:
        return message.raw
    return message.encoded().override(flags=message["flags"] | RESTART_SCANS).data


def _first_open(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    first = talk.shared.get(message.fields.get("file_id"))
    if message.command != SmbCommand.QUERY_DIRECTORY or first is None:
        return message.raw
    return message.encoded().override(file_id=first).data


@_both("directory-cursor-shared | MS-FSA 2.1.5.6.3 | two opens of a directory have one position", _first_open)
def directory_cursor_shared(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if _succeeded(message, SmbCommand.CREATE) and asked and message["attributes"] & SmbAttribute.DIRECTORY:
        first = talk.shared.setdefault(_name(asked), message["file_id"])
        talk.shared[message["file_id"]] = first
    return message.raw


# Locks


def _elements(message: SmbMessage) -> Iterator[tuple[int, int, int]]:
    """Return where each element of a LOCK request begins, its offset and its length."""
    end = ELEMENTS_AT + ELEMENT_SIZE * message["lock_count"]
    for at in range(ELEMENTS_AT, min(end, len(message.raw)), ELEMENT_SIZE):
        yield at, *struct.unpack_from("<QQ", message.raw, at)


@requests("lock-of-none-is-one | MS-FSA 2.1.4.10 | a lock of no byte locks one")
def lock_of_none_is_one(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    out = message.raw
    for at, _, length in _elements(message) if message.command == SmbCommand.LOCK else ():
        out = out if length else put(out, at + 8, struct.pack("<Q", 1))
    return out


@mutant("lock-own-overlap-granted | MS-FSA 2.1.4.10 | an exclusive lock over one of the same open is granted")
def lock_own_overlap_granted(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if message.command != SmbCommand.LOCK or asked is None:
        return message.raw
    held = talk.shared.setdefault(asked["file_id"], [])
    ranges = [(start, start + length) for _, start, length in _elements(asked)]
    if not message.status:
        held.extend(ranges)
    over = any(start < end and first < last for first, end in held for start, last in ranges)
    if message.status != SmbStatus.LOCK_NOT_GRANTED or not over:
        return message.raw
    return response(SmbCommand.LOCK).override(**_kept(message), credit_charge=1, credits=1).data


# Share modes


@requests(
    "attributes-open-violates | MS-FSA 2.1.5.1.2.2 | an open for attributes alone is compared with share modes"
)
def attributes_open_violates(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or not message["access"] or message["access"] & DATA_ACCESS:
        return message.raw
    return message.encoded().override(access=message["access"] | Access.READ_DATA).data


def _compare_with_file(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.CLOSE:
        held = [name for name, file in talk.shared.items() if file == message["file_id"]]
        for name in held:
            del talk.shared[name]
    file, colon, _ = _name(message).partition(":") if message.command == SmbCommand.CREATE else ("", "", "")
    return (
        _refused(talk, message, SmbStatus.SHARING_VIOLATION) if colon and file in talk.shared else message.raw
    )


@_both(
    "stream-shares-of-file | MS-FSA 2.1.5.1.2.2 | an open of a stream is compared with the opens of the file",
    _compare_with_file,
)
def stream_shares_of_file(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if _succeeded(message, SmbCommand.CREATE) and asked and not asked["share"] and ":" not in _name(asked):
        talk.shared[_name(asked)] = message["file_id"]
    return message.raw


# Changes that are seldom watched, and times


def _not_watched(row: str, kinds: SmbNotify) -> None:
    """A mutant whose server ignores bits of CompletionFilter."""

    @requests(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != SmbCommand.CHANGE_NOTIFY or not message["filter"] & kinds:
            return message.raw
        return message.encoded().override(filter=message["filter"] & ~kinds).data


_not_watched(
    "notify-other-times-never | MS-SMB2 2.2.35 | changes of the times of access and creation are not notified",
    SmbNotify.LAST_ACCESS | SmbNotify.CREATION,
)
_not_watched(
    "notify-ea-security-never | MS-SMB2 2.2.35 | changes of extended attributes and of security are not notified",
    SmbNotify.EA | SmbNotify.SECURITY,
)


def _stays(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    wanted = (InfoType.FILE, FileInfo.BASIC)
    if message.command != SmbCommand.SET_INFO or (message["info_type"], message["info_class"]) != wanted:
        return message.raw
    if message.buffer[LAST_WRITE_AT : LAST_WRITE_AT + 8] == struct.pack("<q", -1):
        talk.shared.setdefault(message["file_id"], b"")
    return message.raw


@_both("time-minus-two-ignored | MS-FSCC 2.4.7 | a LastWriteTime of -2 does not end what -1 began", _stays)
def time_minus_two_ignored(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if not _succeeded(message, SmbCommand.QUERY_INFO) or asked is None or asked["file_id"] not in talk.shared:
        return message.raw
    if asked["info_class"] != FileInfo.BASIC:
        return message.raw
    at = message["buffer_offset"] + LAST_WRITE_AT
    kept = talk.shared[asked["file_id"]] or message.raw[at : at + 8]
    talk.shared[asked["file_id"]] = kept
    return put(message.raw, at, kept)
