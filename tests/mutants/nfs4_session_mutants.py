"""Broken rules of client ids, sessions and slots (RFC 8881 2.10, 18.33 to 18.38, 18.45 to 18.51)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_name_mutants import status_to, whole
from nfs4_proxy_connection import (
    MUTANTS,
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

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.types import (
    EXCHGID4_FLAG_CONFIRMED_R,
    EXCHGID4_FLAG_MASK_PNFS,
    EXCHGID4_FLAG_UPD_CONFIRMED_REC_A,
    COMPOUND4args,
    COMPOUND4res,
    nfs_opnum4,
    nfsstat4,
)

OK = nfsstat4.NFS4_OK

# EXCHANGE_ID and DESTROY_CLIENTID

FLAGS = "value.eir_flags"
field_of("exid-confirmed-new | 18.35.3 | every client id is confirmed", "EXCHANGE_ID", FLAGS, lambda old: old | EXCHGID4_FLAG_CONFIRMED_R)  # fmt: skip
field_of("exid-confirmed-off | 18.35.3 | no client id is confirmed", "EXCHANGE_ID", FLAGS, lambda old: old & ~EXCHGID4_FLAG_CONFIRMED_R)  # fmt: skip
field_of("exid-no-role | 13.1 | the server has no role", "EXCHANGE_ID", FLAGS, lambda old: old & ~EXCHGID4_FLAG_MASK_PNFS)  # fmt: skip
field_of("exid-both-roles | 13.1 | the server has all roles", "EXCHANGE_ID", FLAGS, lambda old: old | EXCHGID4_FLAG_MASK_PNFS)  # fmt: skip
field_of("exid-upd-result | 18.35.3 | the flag of an update is returned", "EXCHANGE_ID", FLAGS, lambda old: old | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A)  # fmt: skip
field_of(
    "exid-protects | 18.35.3 | SP4_MACH_CRED was not requested, and is returned",
    "EXCHANGE_ID",
    "value.eir_state_protect",
    types.state_protect4_r(
        types.state_protect_how4.SP4_MACH_CRED, types.state_protect_ops4((0, 1 << 10), ())
    ),
)


@mutant("exid-confirmed-other | 18.35.4 | a confirmed owner has another client id each time", "EXCHANGE_ID")
def other_id(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not result.value.eir_flags & EXCHGID4_FLAG_CONFIRMED_R:
        return result
    return put(result, "value.eir_clientid", lambda old: old ^ 1)


@mutant("exid-result-changes | 18.35.4 | each EXCHANGE_ID returns another server owner", "EXCHANGE_ID")
def other_server(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    talk.shared["owner"] = talk.shared.get("owner", 0) + 1
    name = f"server-{talk.shared['owner']}".encode()
    return put(result, "value.eir_server_owner", lambda old: replace(old, so_major_id=name))


def first_client_id(row: str, key: Callable[[Any], Any]) -> None:
    """Register a mutant in which EXCHANGE_IDs with the same ``key(arguments)`` have the same client id."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if of(result) != OK:
            return result
        first = talk.shared.setdefault(key(argument), result.value.eir_clientid)
        return put(result, "value.eir_clientid", first)

    mutant(row, "EXCHANGE_ID")(change)


first_client_id("exid-unconfirmed-kept | 18.35.4 | EXCHANGE_ID of an unconfirmed owner keeps its client id", lambda argument: argument.eia_clientowner)  # fmt: skip
first_client_id("exid-restart-same | 18.35.3 | a new incarnation has the client id of the old one", lambda argument: argument.eia_clientowner.co_ownerid)  # fmt: skip
first_client_id("exid-same-id | 18.35.3 | all owners have one client id", lambda argument: "all")


def refuses_if(row: str, operation: str, condition: Callable[[Nfs4ProxyConnection, Any], bool]) -> None:
    """Register a mutant that ends ``operation`` with NFS4ERR_SERVERFAULT if a condition on its arguments holds."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        return failed(result, nfsstat4.NFS4ERR_SERVERFAULT) if condition(talk, argument) else result

    mutant(row, operation)(change)


refuses_if("exid-update | 18.35.4 | an update of a client id is refused", "EXCHANGE_ID", lambda talk, argument: bool(argument.eia_flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A))  # fmt: skip
refuses_if("exid-impl | 18.35.3 | a client without an implementation id is refused", "EXCHANGE_ID", lambda talk, argument: not argument.eia_client_impl_id)  # fmt: skip

for row, operations, *statuses in (
    ("exid-update-noent | 18.35.4 | an update of an absent record ends with another error", "EXCHANGE_ID", "NOENT"),
    ("exid-update-verifier | 18.35.4 | an update with another verifier ends with another error", "EXCHANGE_ID", "NOT_SAME"),
    ("exid-update-principal | 18.35.4 | an update by another principal ends with another error", "EXCHANGE_ID", "PERM"),
    ("exid-reserved | 18.35.3 | a reserved flag ends with another error", "EXCHANGE_ID", "INVAL"),
    ("dc-stale | 18.50.3 | DESTROY_CLIENTID of an absent client id ends with another error", "DESTROY_CLIENTID", "STALE_CLIENTID"),
    ("dc-busy | 18.50.3 | DESTROY_CLIENTID of a client id with state ends with another error", "DESTROY_CLIENTID", "CLIENTID_BUSY"),
    ("rc-already | 18.51.4 | a second RECLAIM_COMPLETE ends with another error", "RECLAIM_COMPLETE", "COMPLETE_ALREADY"),
    ("rc-grace | 18.51.3 | OPEN before RECLAIM_COMPLETE ends with another error", "OPEN", "GRACE"),
    ("rc-no-grace | 18.51.3 | a reclaim after RECLAIM_COMPLETE ends with another error", "OPEN", "NO_GRACE"),
    ("cs-misordered | 18.36.4 | CREATE_SESSION with another sequence id ends with another error", "CREATE_SESSION", "SEQ_MISORDERED"),
    ("cs-stale | 18.36.4 | CREATE_SESSION of an absent client id ends with another error", "CREATE_SESSION", "STALE_CLIENTID"),
    ("cs-inuse | 18.36.4 | CREATE_SESSION by another principal ends with another error", "CREATE_SESSION", "CLID_INUSE"),
    ("cs-toosmall | 18.36.3 | CREATE_SESSION with too small a reply ends with another error", "CREATE_SESSION", "TOOSMALL"),
    ("bind-badsession | 18.34.3 | BIND_CONN_TO_SESSION of an absent session ends with another error", "BIND_CONN_TO_SESSION", "BADSESSION"),
    ("ds-badsession | 18.37.3 | DESTROY_SESSION of an absent session ends with another error", "DESTROY_SESSION", "BADSESSION"),
    ("snn-noent | 18.45.3 | SECINFO_NO_NAME of the root's parent ends with another error", "SECINFO_NO_NAME", "NOENT"),
    ("fs-held | 18.38.3 | FREE_STATEID of an open file ends with another error", "FREE_STATEID", "LOCKS_HELD"),
    ("fs-bad | 18.38.3 | FREE_STATEID of a closed file ends with another error", "FREE_STATEID", "BAD_STATEID"),
    ("seq-misordered | 18.46.3 | a sequence id out of order ends with another error", "SEQUENCE", "SEQ_MISORDERED"),
    ("seq-badsession | 18.46.3 | an absent session ends with another error", "SEQUENCE", "BADSESSION"),
    ("seq-badslot | 2.10.6.1 | an absent slot ends with another error", "SEQUENCE", "BADSLOT", "BAD_HIGH_SLOT"),
    ("seq-pos | 18.46.3 | SEQUENCE that is not the first operation ends with another error", "SEQUENCE", "SEQUENCE_POS"),
    ("rep-too-big | 2.10.6.4 | a reply over the limit ends with another error", "", "REP_TOO_BIG"),
    ("rep-too-big-to-cache | 2.10.6.4 | a reply over the size of the cache ends with another error", "", "REP_TOO_BIG_TO_CACHE"),
    ("too-many-ops | 18.36.3 | too many operations end with another error", "", "TOO_MANY_OPS"),
):  # fmt: skip
    wrong_error(row, operations, *statuses)

for row, operation in (
    ("dc-refused | 18.50.3 | DESTROY_CLIENTID fails", "DESTROY_CLIENTID"),
    ("ds-refused | 18.37.3 | DESTROY_SESSION fails", "DESTROY_SESSION"),
    ("rc-refused | 18.51.3 | RECLAIM_COMPLETE fails", "RECLAIM_COMPLETE"),
):
    refuses(row, operation)


def after_sequence(row: str, operation: str) -> None:
    """Register a mutant that ends ``operation`` with NFS4ERR_NOT_ONLY_OP in a session."""

    def change(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        names = [opname(one) for one in results.resarray]
        if names[:1] != ["SEQUENCE"] or operation not in names:
            return results
        at, status = names.index(operation), nfsstat4.NFS4ERR_NOT_ONLY_OP
        last = replace(results.resarray[at], value=failed(results.resarray[at].value, status))
        return replace(results, status=status, resarray=(*results.resarray[:at], last))

    mutant(row, part="compound")(change)


after_sequence("exid-in-session | 18.35.3 | EXCHANGE_ID after SEQUENCE is refused", "EXCHANGE_ID")
after_sequence("cs-in-session | 18.36.3 | CREATE_SESSION after SEQUENCE is refused", "CREATE_SESSION")
after_sequence("ds-in-session | 18.37.3 | DESTROY_SESSION after SEQUENCE is refused", "DESTROY_SESSION")

# NFS-Ganesha ends these COMPOUNDs without a result of the operation
for row in (
    "exid-not-only | 18.35.3 | EXCHANGE_ID with another operation ends with another error",
    "dc-not-only | 18.50.3 | DESTROY_CLIENTID with another operation ends with another error",
    "cs-not-only | 18.36.3 | CREATE_SESSION with another operation ends with another error",
    "bind-not-only | 18.34.3 | BIND_CONN_TO_SESSION with another operation ends with another error",
    "ds-not-only | 18.37.3 | DESTROY_SESSION with another operation ends with another error",
):
    whole(row, status_to("NFS4ERR_NOT_ONLY_OP", "NFS4ERR_SERVERFAULT"))
whole(
    "seq-none | 18.46.3 | an operation without SEQUENCE ends with another error",
    status_to("NFS4ERR_OP_NOT_IN_SESSION", "NFS4ERR_SERVERFAULT"),
)

# CREATE_SESSION

field_of("cs-sequence | 18.36.3 | csr_sequence is another", "CREATE_SESSION", "value.csr_sequence", lambda old: old + 1)  # fmt: skip
field_of("cs-no-slot | 18.36.3 | the session has no slot", "CREATE_SESSION", "value.csr_fore_chan_attrs", lambda old: replace(old, ca_maxrequests=0))  # fmt: skip
for bit, name in ((2, "back"), (4, "rdma"), (8, "unknown")):
    field_of(f"cs-flag-{name} | 18.36.3 | csr_flags has {bit:#x}, which was not requested", "CREATE_SESSION", "value.csr_flags", lambda old, bit=bit: old | bit)  # fmt: skip


def larger(old: types.channel_attrs4) -> types.channel_attrs4:
    """Return the attributes of a channel with one more byte in each size."""
    return replace(
        old,
        ca_headerpadsize=old.ca_headerpadsize + 1,
        ca_maxrequestsize=old.ca_maxrequestsize + (1 << 22),
        ca_maxresponsesize=old.ca_maxresponsesize + (1 << 22),
        ca_maxresponsesize_cached=old.ca_maxresponsesize_cached + (1 << 22),
    )


field_of("cs-fore-larger | 18.36.3 | sizes of the fore channel are increased", "CREATE_SESSION", "value.csr_fore_chan_attrs", larger)  # fmt: skip
field_of("cs-back-larger | 18.36.3 | sizes of the back channel are increased", "CREATE_SESSION", "value.csr_back_chan_attrs", larger)  # fmt: skip
field_of("cs-back-changed | 18.36.3 | operations and slots of the back channel are changed", "CREATE_SESSION", "value.csr_back_chan_attrs",
         lambda old: replace(old, ca_maxoperations=old.ca_maxoperations + 1, ca_maxrequests=old.ca_maxrequests + 1))  # fmt: skip


@mutant("cs-replay | 18.36.4 | a retry of CREATE_SESSION returns another session", "CREATE_SESSION")
def other_session(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    key = (argument.csa_clientid, argument.csa_sequence)
    talk.shared[key] = talk.shared.get(key, 0) + 1
    count = talk.shared[key] - 1
    return put(result, "value.csr_sessionid", lambda old: bytes([old[0] ^ count]) + old[1:])


@mutant("cs-same-session | 18.36.3 | all sessions have one id", "CREATE_SESSION")
def same_session(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.csr_sessionid", talk.shared.setdefault("id", result.value.csr_sessionid))


def ends_after(row: str, event: str, minimum: int = 1, *, other: bool = False) -> None:
    """Register a mutant: after ``minimum`` successes of ``event``, SEQUENCE of the first session that was
    seen (``other``: of any other) ends with NFS4ERR_BADSESSION."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if isinstance(argument, types.SEQUENCE4args):
            first = talk.shared.setdefault("first", argument.sa_sessionid)
            ended = talk.shared.get("count", 0) >= minimum and (argument.sa_sessionid != first) == other
            return failed(result, nfsstat4.NFS4ERR_BADSESSION) if ended else result
        talk.shared["count"] = talk.shared.get("count", 0) + (of(result) == OK)
        return result

    mutant(row, "SEQUENCE", event)(change)


ends_after("restart-ends-old | 18.35.4 | EXCHANGE_ID of a new incarnation ends the sessions of the old one", "EXCHANGE_ID", 2)  # fmt: skip
ends_after("cs-ends-first | 18.36.4 | a second CREATE_SESSION ends the first session", "CREATE_SESSION", 2)
ends_after("other-session-state | 2.10.1 | a second session cannot be used", "CREATE_SESSION", 2, other=True)
ends_after("ds-ends-state | 18.37.3 | DESTROY_SESSION ends the other sessions of the client", "DESTROY_SESSION", other=True)  # fmt: skip


@mutant("restart-keeps-old | 18.36.4 | SEQUENCE of a session that has ended succeeds", part="compound")
def keeps_old(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    if results.status != nfsstat4.NFS4ERR_BADSESSION or opname(results.resarray[0]) != "SEQUENCE":
        return results
    given = arguments.argarray[0].value
    made = types.SEQUENCE4resok(given.sa_sessionid, given.sa_sequenceid, given.sa_slotid, 0, 0, 0)
    first = replace(results.resarray[0], value=types.SEQUENCE4res(OK, made))
    return replace(results, status=OK, resarray=(first,))


refuses_if("restart-keeps-shares | 18.35.4 | a second client that opens a file is denied", "OPEN",
           lambda talk, argument: len(talk.shared.setdefault("owners", set()) | {argument.owner.clientid}) > 1 or bool(talk.shared["owners"].add(argument.owner.clientid)))  # fmt: skip

# Connections

field_of("bind-direction | 18.34.3 | BIND_CONN_TO_SESSION returns CDFS4_BOTH for CDFC4_FORE", "BIND_CONN_TO_SESSION", "value.bctsr_dir", types.channel_dir_from_server4.CDFS4_BOTH)  # fmt: skip
field_of("bind-session | 18.34.3 | BIND_CONN_TO_SESSION returns another session", "BIND_CONN_TO_SESSION", "value.bctsr_sessid", bytes(16))  # fmt: skip
field_of("bind-rdma | 18.34.3 | a bound connection is in RDMA mode", "BIND_CONN_TO_SESSION", "value.bctsr_use_conn_in_rdma_mode", True)  # fmt: skip


@mutant("bind-none | 18.34.3 | BIND_CONN_TO_SESSION returns the opposite channel", "BIND_CONN_TO_SESSION")
def opposite(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    front = argument.bctsa_dir == types.channel_dir_from_client4.CDFC4_FORE_OR_BOTH
    found = types.channel_dir_from_server4
    return put(result, "value.bctsr_dir", found.CDFS4_BACK if front else found.CDFS4_FORE)


def counted(row: str, operation: str, status: nfsstat4) -> None:
    """Register a mutant in which a second ``operation`` on a connection ends with ``status``."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        talk.memory["count"] = talk.memory.get("count", 0) + 1
        return failed(result, status) if talk.memory["count"] > 1 else result

    mutant(row, operation)(change)


counted("bind-again | 18.34.3 | a second BIND_CONN_TO_SESSION is invalid", "BIND_CONN_TO_SESSION", nfsstat4.NFS4ERR_INVAL)  # fmt: skip


def foreign_connection(row: str, status: nfsstat4) -> None:
    """Register a mutant: SEQUENCE on a connection without CREATE_SESSION or BIND_CONN_TO_SESSION fails."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if not isinstance(argument, types.SEQUENCE4args):
            talk.memory["bound"] = True
            return result
        return result if "bound" in talk.memory else failed(result, status)

    mutant(row, "SEQUENCE", "CREATE_SESSION", "BIND_CONN_TO_SESSION")(change)


foreign_connection("seq-not-bound | 18.34.3 | a connection needs BIND_CONN_TO_SESSION without state protection", nfsstat4.NFS4ERR_CONN_NOT_BOUND_TO_SESSION)  # fmt: skip
foreign_connection("reconnect-ends | 2.10.5.1 | a session ends with its connection", nfsstat4.NFS4ERR_BADSESSION)  # fmt: skip


@mutant("ds-not-last | 18.37.3 | DESTROY_SESSION before other operations in its session succeeds", part="compound")  # fmt: skip
def not_last(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    last = results.resarray[-1]
    if last.resop != nfs_opnum4.OP_DESTROY_SESSION or of(last.value) == OK or len(results.resarray) < 2:
        return results
    return replace(results, status=OK, resarray=(*results.resarray[:-1], replace(last, value=failed(last.value, OK))))  # fmt: skip


# State and security

field_of("snn-empty | 18.45.3 | SECINFO_NO_NAME lists no flavor", "SECINFO_NO_NAME", "value", ())
CODES = "value.tsr_status_codes"
field_of("ts-bad | 18.48.3 | TEST_STATEID finds every stateid bad", "TEST_STATEID", CODES, lambda old: (nfsstat4.NFS4ERR_BAD_STATEID,) * len(old))  # fmt: skip
field_of("ts-valid | 18.48.3 | TEST_STATEID finds every stateid valid", "TEST_STATEID", CODES, lambda old: (OK,) * len(old))  # fmt: skip
field_of("ts-short | 18.48.3 | TEST_STATEID returns one status for all", "TEST_STATEID", CODES, lambda old: old[:1])  # fmt: skip


@mutant("current-fh-kept | 16.2.3.1 | a COMPOUND begins with the filehandle of the last one", part="request")
def fh_kept(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    found = [one for one in arguments.argarray if one.argop == nfs_opnum4.OP_PUTFH]
    kept = talk.memory.get("handle")
    talk.memory["handle"] = found[-1] if found else kept
    names = [opname(one) for one in arguments.argarray]
    if names[1:] != ["GETATTR"] or kept is None:
        return arguments
    return replace(arguments, argarray=(arguments.argarray[0], kept, arguments.argarray[1]))


# SEQUENCE

for field, new in (
    ("session", lambda old: bytes(16)),
    ("slot", lambda old: old + 1),
    ("id", lambda old: old + 1),
):
    name = {"session": "sr_sessionid", "slot": "sr_slotid", "id": "sr_sequenceid"}[field]
    field_of(f"seq-{field} | 18.46.3 | {name} is another", "SEQUENCE", f"value.{name}", new)
field_of("seq-highest | 18.46.3 | sr_highest_slotid is 0", "SEQUENCE", "value.sr_highest_slotid", 0)
field_of("seq-highest-more | 18.46.3 | sr_highest_slotid is a slot that is refused", "SEQUENCE", "value.sr_highest_slotid", 100_000)  # fmt: skip
field_of("seq-target | 18.46.3 | sr_target_highest_slotid is a slot that is refused", "SEQUENCE", "value.sr_target_highest_slotid", 100_000)  # fmt: skip
field_of("seq-status | 18.46.3 | sr_status_flags has SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED", "SEQUENCE", "value.sr_status_flags", types.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED)  # fmt: skip
refuses_if("seq-refuses-slots | 18.36.3 | the last slot of a session is refused", "SEQUENCE", lambda talk, argument: argument.sa_slotid == 15)  # fmt: skip


@mutant("seq-misordered-counts | 2.10.6.1.2 | a SEQUENCE that fails uses its sequence id up", "SEQUENCE")
def counts(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) == nfsstat4.NFS4ERR_SEQ_MISORDERED:
        talk.memory["failed"] = True
        return result
    return failed(result, nfsstat4.NFS4ERR_SEQ_MISORDERED) if "failed" in talk.memory else result


@mutant("seq-one-counter | 2.10.6.1 | all slots of all sessions share one sequence id", "SEQUENCE")
def one_counter(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    wanted = talk.shared.get("next", argument.sa_sequenceid)
    if of(result) != OK:
        return result
    talk.shared["next"] = argument.sa_sequenceid + 1
    return result if argument.sa_sequenceid == wanted else failed(result, nfsstat4.NFS4ERR_SEQ_MISORDERED)


# Retries


def is_retry(talk: Nfs4ProxyConnection, argument: types.SEQUENCE4args) -> bool:
    """Whether this sequence id of this slot was used before, on any connection; the call records it."""
    key = (argument.sa_sessionid, argument.sa_slotid, argument.sa_sequenceid)
    talk.shared[key] = talk.shared.get(key, 0) + 1
    return bool(talk.shared[key] > 1)


def on_retry(row: str, change: Callable[[COMPOUND4args, COMPOUND4res], COMPOUND4res]) -> None:
    """Register a mutant of the reply to a retry of a request in a session."""

    def compound(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        first = arguments.argarray[:1]
        if not first or first[0].argop != nfs_opnum4.OP_SEQUENCE or not is_retry(talk, first[0].value):
            return results
        return change(arguments, results)

    mutant(row, part="compound")(compound)


def ends_with(status: nfsstat4, *, at: int = -1) -> Callable[[COMPOUND4args, COMPOUND4res], COMPOUND4res]:
    """Return a change that ends the reply with ``status`` at a result."""

    def change(arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        last = replace(results.resarray[at], value=failed(results.resarray[at].value, status))
        return replace(
            results, status=status, resarray=(*results.resarray[: at % len(results.resarray)], last)
        )

    return change


def second_execution(arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    names = [opname(one) for one in results.resarray]
    for name, status in (("CREATE", nfsstat4.NFS4ERR_EXIST), ("REMOVE", nfsstat4.NFS4ERR_NOENT)):
        if name in names:
            return ends_with(status, at=names.index(name))(arguments, results)
    return results


on_retry("retry-executed | 2.10.6.1 | a retry is executed again", second_execution)
on_retry("retry-other-error | 2.10.6.1.3 | a retry of a request that failed ends with another error", ends_with(nfsstat4.NFS4ERR_SERVERFAULT))  # fmt: skip
on_retry("retry-alone | 2.10.6.1.1 | a retry of SEQUENCE alone is misordered", ends_with(nfsstat4.NFS4ERR_SEQ_MISORDERED, at=0))  # fmt: skip
on_retry("retry-uncached-first | 2.10.6.1.3 | SEQUENCE of a retry ends with NFS4ERR_RETRY_UNCACHED_REP", ends_with(nfsstat4.NFS4ERR_RETRY_UNCACHED_REP, at=0))  # fmt: skip
on_retry("false-retry-status | 2.10.6.1.3 | a false retry ends with NFS4ERR_SERVERFAULT", ends_with(nfsstat4.NFS4ERR_SERVERFAULT, at=0))  # fmt: skip


@mutant("retry-ends-slot | 2.10.6.1 | a slot is bad after a retry", "SEQUENCE")
def ends_slot(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if is_retry(talk, argument):
        talk.memory["ended"] = True
        return result
    return failed(result, nfsstat4.NFS4ERR_BADSLOT) if "ended" in talk.memory else result


@mutant("false-retry-executed | 2.10.6.1.3.1 | a false retry is executed as a new request", part="request")
def executed(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    first = arguments.argarray[:1]
    if not first or first[0].argop != nfs_opnum4.OP_SEQUENCE:
        return arguments
    if is_retry(talk, first[0].value):
        talk.shared["more"] = talk.shared.get("more", 0) + 1
    changed = put(first[0], "value.sa_sequenceid", lambda old: old + talk.shared.get("more", 0))
    return replace(arguments, argarray=(changed, *arguments.argarray[1:]))


@mutant("parallel-executed | 2.10.6.2 | a retry before the reply ends with NFS4ERR_EXIST", part="compound")
def parallel(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    first = arguments.argarray[:1]
    if not first or first[0].argop != nfs_opnum4.OP_SEQUENCE or not is_retry(talk, first[0].value):
        return results
    given = first[0].value
    done = types.SEQUENCE4resok(given.sa_sessionid, given.sa_sequenceid, given.sa_slotid, 0, 0, 0)
    made = types.nfs_resop4(nfs_opnum4.OP_SEQUENCE, types.SEQUENCE4res(OK, done))
    handle = types.nfs_resop4(nfs_opnum4.OP_PUTFH, types.PUTFH4res(OK))
    exists = types.nfs_resop4(nfs_opnum4.OP_CREATE, types.CREATE4res(nfsstat4.NFS4ERR_EXIST))
    return replace(results, status=nfsstat4.NFS4ERR_EXIST, resarray=(made, handle, exists))


@mutant("parallel-mixed | 2.10.6.1 | a reply has the handle that another slot's reply has", "GETFH")
def mixed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    talk.memory.setdefault("handle", result.value.object)
    return put(result, "value.object", talk.memory["handle"])


# Limits


@mutant("rep-size | 18.36.3 | a reply has more bytes than were agreed", part="compound")
def long_reply(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    return replace(results, tag=results.tag + b"x" * 1024) if len(results.resarray) > 4 else results


def refuses_long(row: str, least: int, status: nfsstat4) -> None:
    """Register a mutant that ends a COMPOUND of at least ``least`` operations with ``status`` at the last one."""

    def change(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        if len(results.resarray) < least or results.status != OK:
            return results
        return ends_with(status)(arguments, results)

    mutant(row, part="compound")(change)


refuses_long("rep-not-cached | 2.10.6.4 | a reply that is not to be cached ends with NFS4ERR_REP_TOO_BIG_TO_CACHE", 12, nfsstat4.NFS4ERR_REP_TOO_BIG_TO_CACHE)  # fmt: skip
refuses_long("most-ops | 18.36.3 | as many operations as agreed are too many", 8, nfsstat4.NFS4ERR_TOO_MANY_OPS)  # fmt: skip

# Rules that NFS-Ganesha does not keep; the lab's knfsd does

for row, operations, *statuses in (
    ("exid-inuse | 18.35.4 | EXCHANGE_ID of another principal's owner ends with another error", "EXCHANGE_ID", "CLID_INUSE"),
    ("other-client-stateid | 8.2.4 | a stateid of another client ends with another error", "READ", "BAD_STATEID", "STALE_STATEID"),
    ("dc-busy-open | 18.50.3 | DESTROY_CLIENTID of a client id with an open file ends with another error", "DESTROY_CLIENTID", "CLIENTID_BUSY"),
    ("cs-first-zero | 18.36.3 | the sequence id 0 of a new slot ends with another error", "SEQUENCE", "SEQ_MISORDERED"),
    ("rc-nofh | 18.51.3 | RECLAIM_COMPLETE without a filehandle ends with another error", "RECLAIM_COMPLETE", "NOFILEHANDLE"),
    ("false-retry-user | 2.10.6.1.3.1 | a retry by another user ends with another error", "SEQUENCE", "SEQ_FALSE_RETRY"),
    ("req-too-big | 2.10.6.4 | a request over the limit ends with another error", "", "REQ_TOO_BIG"),
):  # fmt: skip
    wrong_error(row, operations, *statuses)
    MUTANTS[row.partition("|")[0].strip()].kind = "knfsd"
refuses("bctl-refused | 18.33.3 | BACKCHANNEL_CTL fails", "BACKCHANNEL_CTL")
MUTANTS["bctl-refused"].kind = "knfsd"
