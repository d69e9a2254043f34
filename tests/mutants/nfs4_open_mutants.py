"""Broken rules of OPEN, of stateids and of owners (RFC 8881 8.2, 9.7, 18.2, 18.16, 18.18; RFC 7530 9.1, 16)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import (
    Nfs4ProxyConnection,
    failed,
    field_of,
    mutant,
    of,
    opname,
    put,
    refuses,
    wrong_error,
)
from nfs4_session_mutants import refuses_if
from nfs4_v42_mutants import after, asked

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.operations import setattr_, unchecked
from storagetest.wire.nfs4.types import (
    FATTR4_MODE,
    FATTR4_SIZE,
    OPEN4_RESULT_CONFIRM,
    COMPOUND4args,
    createmode4,
    nfsstat4,
    open_claim_type4,
)

OK = nfsstat4.NFS4_OK

for row, operations, *statuses in (
    ("open-exist | 18.16.3 | a create of a file that exists ends with another error", "OPEN", "EXIST"),
    ("open-noent | 18.16.3 | OPEN of an absent file ends with another error", "OPEN", "NOENT"),
    ("open-inval | 18.16.4 | OPEN with invalid arguments ends with another error", "OPEN", "INVAL"),
    ("open-notdir | 18.16.4 | OPEN in a file ends with another error", "OPEN", "NOTDIR"),
    ("open-nofh | 18.16.3 | OPEN without a filehandle ends with another error", "OPEN", "NOFILEHANDLE"),
    ("open-type | 18.16.4 | OPEN of what is no file ends with another error", "OPEN", "ISDIR", "SYMLINK", "WRONG_TYPE", "EXIST"),
    ("open-access | 18.16.4 | OPEN without permission ends with another error", "OPEN", "ACCESS"),
    ("share-error | 18.16.3 | an OPEN that conflicts ends with another error", "OPEN", "SHARE_DENIED"),
    ("downgrade-inval | 18.18.3 | a downgrade that is not one ends with another error", "OPEN_DOWNGRADE", "INVAL"),
    ("close-nofh | 18.2.3 | CLOSE without a filehandle ends with another error", "CLOSE", "NOFILEHANDLE"),
    ("old-stateid | 8.2.4 | an old stateid ends with another error", "READ CLOSE OPEN_DOWNGRADE", "OLD_STATEID"),
    ("bad-stateid | 8.2.4 | a bad stateid ends with another error", "READ CLOSE OPEN_DOWNGRADE", "BAD_STATEID"),
    ("bad-seqid | 9.1.7 of RFC 7530 | a sequence id out of order ends with another error", "OPEN OPEN_CONFIRM CLOSE", "BAD_SEQID"),
    ("stale-clientid | 16.28 of RFC 7530 | an absent client id ends with another error", "OPEN RENEW SETCLIENTID_CONFIRM", "STALE_CLIENTID", "EXPIRED"),
    ("scid-inuse | 16.33 of RFC 7530 | a client of another user ends with another error", "SETCLIENTID", "CLID_INUSE"),
    ("rlo-held | 16.37 of RFC 7530 | RELEASE_LOCKOWNER of an owner with locks ends with another error", "RELEASE_LOCKOWNER", "LOCKS_HELD"),
):  # fmt: skip
    wrong_error(row, operations, *statuses)

for row, operations in (
    ("open-refused | 18.16.3 | OPEN is refused", "OPEN"),
    ("downgrade-refused | 18.18.3 | OPEN_DOWNGRADE is refused", "OPEN_DOWNGRADE"),
    ("close-refused | 18.2.3 | CLOSE is refused", "CLOSE"),
    ("confirm-refused | 16.18 of RFC 7530 | OPEN_CONFIRM is refused", "OPEN_CONFIRM"),
    ("renew-refused | 16.28 of RFC 7530 | RENEW is refused", "RENEW"),
    ("rlo-refused | 16.37 of RFC 7530 | RELEASE_LOCKOWNER is refused", "RELEASE_LOCKOWNER"),
):
    refuses(row, operations)


def again(row: str, operation: str, change: Callable[[Any], Any] | None = None) -> None:
    """Register a mutant of the second of two equal requests of ``operation``; by default it is refused."""

    def result(talk: Nfs4ProxyConnection, argument: Any, found: Any) -> Any:
        if talk.memory.get("last") != argument:
            talk.memory["last"] = argument
            return found
        if change is not None:
            return change(found)
        return failed(found, nfsstat4.NFS4ERR_SERVERFAULT if of(found) == OK else nfsstat4.NFS4ERR_IO)

    mutant(row, operation)(result)


def seqid_plus(path: str) -> Callable[[Any], Any]:
    """Return a change of the stateid at ``path``: the next sequence id."""
    return lambda found: put(found, path, lambda old: replace(old, seqid=old.seqid + 1))


again("replay-open | 9.1.9 of RFC 7530 | a retransmitted OPEN has another stateid", "OPEN", seqid_plus("value.stateid"))  # fmt: skip
again("replay-failed | 9.1.9 of RFC 7530 | a retransmitted OPEN that failed has another error", "OPEN")
again("replay-downgrade | 9.1.9 of RFC 7530 | a retransmitted downgrade has another stateid", "OPEN_DOWNGRADE", seqid_plus("value.open_stateid"))  # fmt: skip
again("replay-close | 9.1.9 of RFC 7530 | a retransmitted CLOSE is refused", "CLOSE")
again(
    "scid-replay | 16.34 of RFC 7530 | a retransmitted SETCLIENTID_CONFIRM is refused", "SETCLIENTID_CONFIRM"
)


# Creation


def mode_of(argument: Any) -> createmode4 | None:
    """Return the create mode of OPEN's arguments, None without a create."""
    how = argument.openhow.value
    return None if how is None else how.mode


EXCLUSIVE = (createmode4.EXCLUSIVE4, createmode4.EXCLUSIVE4_1)

refuses_if("open-exclusive-refused | 18.16.3 | EXCLUSIVE4 is refused", "OPEN", lambda talk, argument: mode_of(argument) == createmode4.EXCLUSIVE4)  # fmt: skip
refuses_if("open-fh-refused | 18.16.3 | CLAIM_FH is refused", "OPEN", lambda talk, argument: argument.claim.claim == open_claim_type4.CLAIM_FH)  # fmt: skip
refuses_if("close-seqid | 18.2.3 | CLOSE has a look at the sequence id of the owner", "CLOSE", lambda talk, argument: argument.seqid != 0)  # fmt: skip


@mutant(
    "open-exclusive-again | 18.16.4 | a second exclusive create is refused, also with the same verifier",
    "OPEN",
)
def exclusive_again(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if mode_of(argument) not in EXCLUSIVE or of(result) != OK:
        return result
    if talk.memory.get("how") == argument.openhow:
        return failed(result, nfsstat4.NFS4ERR_EXIST)
    talk.memory["how"] = argument.openhow
    return result


def with_open(row: str, change: Callable[[Any], Any]) -> None:
    """Register a mutant whose server receives other arguments of OPEN: ``change(arguments)``."""

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        array = (
            replace(one, value=change(one.value)) if opname(one) == "OPEN" else one
            for one in arguments.argarray
        )
        return replace(arguments, argarray=tuple(array))

    mutant(row, part="request")(request)


def with_values(argument: Any, change: Callable[[dict[int, Any]], dict[int, Any]]) -> Any:
    """Return OPEN's arguments with other attributes, if it creates with UNCHECKED4 or GUARDED4."""
    if mode_of(argument) not in (createmode4.UNCHECKED4, createmode4.GUARDED4):
        return argument
    new = encode_attributes(change(decode_attributes(argument.openhow.value.value)))
    return replace(
        argument, openhow=replace(argument.openhow, value=replace(argument.openhow.value, value=new))
    )


def guarded_to_unchecked(argument: Any) -> Any:
    """Return OPEN's arguments with UNCHECKED4 for GUARDED4."""
    if mode_of(argument) != createmode4.GUARDED4:
        return argument
    return replace(argument, openhow=unchecked(decode_attributes(argument.openhow.value.value)))


def unchecked_to_guarded(argument: Any) -> Any:
    """Return OPEN's arguments with GUARDED4 for UNCHECKED4."""
    if mode_of(argument) != createmode4.UNCHECKED4:
        return argument
    how = argument.openhow.value
    return replace(argument, openhow=replace(argument.openhow, value=replace(how, mode=createmode4.GUARDED4)))


def excl41_without_mode(argument: Any) -> Any:
    """Return OPEN's arguments without the attributes of EXCLUSIVE4_1."""
    if mode_of(argument) != createmode4.EXCLUSIVE4_1:
        return argument
    how = argument.openhow.value
    plain = replace(how.value, cva_attrs=encode_attributes({}))
    return replace(argument, openhow=replace(argument.openhow, value=replace(how, value=plain)))


with_open("open-guarded-opens | 18.16.3 | GUARDED4 is UNCHECKED4", guarded_to_unchecked)
with_open("open-exists | 18.16.3 | UNCHECKED4 is GUARDED4", unchecked_to_guarded)
with_open("open-excl41-mode | 18.16.3 | EXCLUSIVE4_1 leaves the attributes out", excl41_without_mode)
with_open("open-keeps-size | 18.16.3 | UNCHECKED4 with size 0 leaves a file that exists", lambda argument: with_values(argument, lambda old: {key: value for key, value in old.items() if key != FATTR4_SIZE}))  # fmt: skip
with_open("open-truncates | 18.16.3 | UNCHECKED4 truncates a file that exists", lambda argument: with_values(argument, lambda old: {**old, FATTR4_SIZE: 0}))  # fmt: skip
field_of("open-attrset | 18.16.3 | the mask of the attributes that are set has another", "OPEN", "value.attrset", lambda old: (16,))  # fmt: skip
field_of("open-confirm | 18.16.3 | OPEN is to be confirmed", "OPEN", "value.rflags", lambda old: old | OPEN4_RESULT_CONFIRM)  # fmt: skip


@mutant("open-sets-mode | 18.16.3 | UNCHECKED4 sets the mode of a file that exists", part="request")
def sets_mode(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    array: list[Any] = []
    for one in arguments.argarray:
        array.append(one)
        if opname(one) == "OPEN" and mode_of(one.value) == createmode4.UNCHECKED4:
            values = decode_attributes(one.value.openhow.value.value)
            if FATTR4_MODE in values:
                array[-1:] = [one, setattr_({FATTR4_MODE: values[FATTR4_MODE]})]
    return replace(arguments, argarray=tuple(array))


@mutant("open-cinfo | 18.16.3 | the change of the directory is another one", "OPEN")
def cinfo(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.cinfo", lambda old: replace(old, atomic=True, after=old.after + 1))


@mutant("open-filehandle | 18.16.3 | the current filehandle stays that of the directory", part="compound")
def filehandle(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: Any) -> Any:
    parent, out = None, []
    for given, one in zip(arguments.argarray, results.resarray, strict=False):
        if opname(given) == "PUTFH":
            parent = given.value.object
        after_open = (
            bool(out) and opname(out[-1]) == "OPEN" and opname(one) == "GETFH" and of(one.value) == OK
        )
        out.append(replace(one, value=put(one.value, "value.object", parent)) if after_open else one)
    return replace(results, resarray=tuple(out))


def delegated(argument: Any) -> Any:
    """Return the result of OPEN with a read delegation."""
    ace = types.nfsace4(0, 0, 0, b"")
    given = types.open_read_delegation4(argument.stateid, False, ace)
    return types.open_delegation4(types.open_delegation_type4.OPEN_DELEGATE_READ, given)


@mutant("open-delegates | 18.16.3 | OPEN returns a delegation that is not wanted", "OPEN")
def delegates(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.delegation", delegated(result.value)) if of(result) == OK else result


# Share reservations

asked("share-ignored | 9.7 | the denials of an OPEN are ignored", "OPEN", share_deny=lambda old: 0)


@mutant("share-strict | 9.7 | a file has one open at a time", "OPEN")
def strict(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    talk.memory["opens"] = talk.memory.get("opens", 0) + 1
    return failed(result, nfsstat4.NFS4ERR_SHARE_DENIED) if talk.memory["opens"] > 1 else result


asked(
    "downgrade-access | 18.18.3 | OPEN_DOWNGRADE leaves the access",
    "OPEN_DOWNGRADE",
    share_access=lambda old: 3,
)
asked(
    "downgrade-deny | 18.18.3 | OPEN_DOWNGRADE leaves the denial", "OPEN_DOWNGRADE", share_deny=lambda old: 2
)


# Stateids

OTHER = b"another stat"
field_of("downgrade-other | 18.18.3 | a downgrade returns another stateid", "OPEN_DOWNGRADE", "value.open_stateid", lambda old: replace(old, other=OTHER))  # fmt: skip
field_of("downgrade-seqid | 8.2.2 | a downgrade leaves the sequence id", "OPEN_DOWNGRADE", "value.open_stateid", lambda old: replace(old, seqid=old.seqid - 1))  # fmt: skip
field_of("confirm-stateid | 9.1.4 of RFC 7530 | a confirmation leaves the sequence id", "OPEN_CONFIRM", "value.open_stateid", lambda old: replace(old, seqid=old.seqid - 1))  # fmt: skip
field_of("close-stateid | 18.2.4 | CLOSE returns a stateid that may be valid", "CLOSE", "value", lambda old: replace(old, other=OTHER))  # fmt: skip
field_of("open-seqid-first | 8.2.2 | stateids begin with the sequence id 2", "OPEN", "value.stateid", lambda old: replace(old, seqid=old.seqid + 1))  # fmt: skip
field_of("open-same-other | 8.2.1 | all opens have one stateid", "OPEN", "value.stateid", lambda old: replace(old, other=OTHER))  # fmt: skip


def second_stateid(row: str, change: Callable[[Any], Any]) -> None:
    """Register a mutant of the stateid of an open that has more than one OPEN."""

    def result(talk: Nfs4ProxyConnection, argument: Any, found: Any) -> Any:
        if of(found) != OK or argument.owner != talk.memory.get("owner"):
            talk.memory["owner"] = argument.owner
            return found
        return put(found, "value.stateid", change)

    mutant(row, "OPEN")(result)


second_stateid("upgrade-other | 18.16.3 | a second OPEN of an owner has another stateid", lambda old: replace(old, other=OTHER))  # fmt: skip
second_stateid("upgrade-seqid | 8.2.2 | a second OPEN of an owner leaves the sequence id", lambda old: replace(old, seqid=old.seqid - 1))  # fmt: skip


after("close-keeps | 18.2.3 | CLOSE succeeds, and the share stays", "CLOSE", "OPEN", lambda talk, argument, found: failed(found, nfsstat4.NFS4ERR_SHARE_DENIED))  # fmt: skip


@mutant("zero-seqid | 8.2.2 | a stateid with the sequence id 0 is old", "READ", "CLOSE", "OPEN_DOWNGRADE")
def zero(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    stateid = argument.stateid if hasattr(argument, "stateid") else argument.open_stateid
    return failed(result, nfsstat4.NFS4ERR_OLD_STATEID) if stateid.seqid == 0 else result


@mutant("current-stateid | 16.2.3.1.2 | the current stateid is not known", "READ", "CLOSE")
def current(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    stateid = argument.stateid if hasattr(argument, "stateid") else argument.open_stateid
    return failed(result, nfsstat4.NFS4ERR_BAD_STATEID) if stateid == types.stateid4(1, bytes(12)) else result


@mutant("ts-states | 18.48.3 | TEST_STATEID returns NFS4_OK for each stateid", "TEST_STATEID")
def states(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return (
        put(result, "value.tsr_status_codes", lambda old: tuple(OK for _ in old))
        if of(result) == OK
        else result
    )


refuses("fs-lock | 18.38.3 | FREE_STATEID is refused", "FREE_STATEID")


# Owners and client ids of minor version 0


@mutant("open-error-seqid | 9.1.7 of RFC 7530 | an OPEN that fails leaves the sequence id", "OPEN")
def error_seqid(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) == nfsstat4.NFS4ERR_NOENT:
        talk.memory["next"] = argument.seqid
    elif talk.memory.get("next", argument.seqid) != argument.seqid:
        return failed(result, nfsstat4.NFS4ERR_BAD_SEQID)
    return result


field_of(
    "scid-same-id | 16.33 of RFC 7530 | all clients have one client id", "SETCLIENTID", "value.clientid", 1
)


@mutant(
    "scid-restart-same | 16.33 of RFC 7530 | a new incarnation has the client id of the old one",
    "SETCLIENTID",
)
def restart_same(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.clientid", talk.shared.setdefault(argument.client.id, result.value.clientid))


@mutant(
    "scid-update | 16.33 of RFC 7530 | a client that sets its callback has another client id", "SETCLIENTID"
)
def update(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or talk.shared.setdefault("client", argument.client) != argument.client:
        return result
    talk.memory["times"] = talk.memory.get("times", 0) + 1
    return put(result, "value.clientid", lambda old: old + talk.memory["times"] - 1)


@mutant("scid-keeps-state | 16.34 of RFC 7530 | the state of an old incarnation stays", "OPEN", "RENEW")
def keeps_state(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if isinstance(argument, types.RENEW4args) and of(result) in (
        nfsstat4.NFS4ERR_STALE_CLIENTID,
        nfsstat4.NFS4ERR_EXPIRED,
    ):
        return replace(result, status=OK)
    return result


def _opens(arguments: COMPOUND4args, change: Callable[[Any], Any]) -> COMPOUND4args:
    """Return the arguments with ``change`` of those of each OPEN."""
    out = tuple(
        replace(one, value=change(one.value)) if opname(one) == "OPEN" else one for one in arguments.argarray
    )
    return replace(arguments, argarray=out)


@mutant("claim-fh-denies-nothing | 9.7 | an OPEN by CLAIM_FH denies nothing", "OPEN", part="request")
def claim_fh_denies_nothing(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    by_handle = open_claim_type4.CLAIM_FH
    return _opens(arguments, lambda one: replace(one, share_deny=0) if one.claim.claim == by_handle else one)


_WANTS = (types.OPEN4_SHARE_ACCESS_WANT_READ_DELEG, types.OPEN4_SHARE_ACCESS_WANT_ANY_DELEG)


@mutant(
    "want-counts-as-access | 18.16.3 | an OPEN that wants a delegation has access to write",
    "OPEN",
    part="request",
)
def want_counts_as_access(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def more(one: Any) -> Any:
        wants = one.share_access & types.OPEN4_SHARE_ACCESS_WANT_DELEG_MASK in _WANTS
        return put(one, "share_access", one.share_access | types.OPEN4_SHARE_ACCESS_WRITE) if wants else one

    return _opens(arguments, more)
