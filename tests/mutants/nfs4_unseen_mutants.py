"""Broken rules of RFC 7530, 8881, 7862 and 8276 that were written from their text, without a look at the suite."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import COMPOUND4args, COMPOUND4res, SEQUENCE4args, nfs_opnum4, nfsstat4

OK = nfsstat4.NFS4_OK
ALL_BYTES = 0xFFFFFFFFFFFFFFFF
LARGE = 64 * 1024


def _asked(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, name: str, change: Any) -> COMPOUND4args:
    """Return the arguments with ``change`` of those of one operation."""
    out = tuple(
        replace(one, value=change(one.value)) if opname(one) == name else one for one in arguments.argarray
    )
    return replace(arguments, argarray=out)


@mutant(
    "confirm-again-stale | RFC 7530 16.34.5 | a SETCLIENTID_CONFIRM that is sent again ends with STALE_CLIENTID",
    "SETCLIENTID_CONFIRM",
)
def confirm_again_stale(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    key = argument.clientid, argument.setclientid_confirm
    if of(result) == OK and key in talk.shared:
        return failed(result, nfsstat4.NFS4ERR_STALE_CLIENTID)
    talk.shared[key] = True
    return result


@mutant(
    "open-upgrade-seqid | RFC 8881 9.7 | the seqid of a second OPEN by the same owner is that of the first",
    "OPEN",
)
def open_upgrade_seqid(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) == OK and result.value.stateid.seqid == 2:
        return put(result, "value.stateid.seqid", 1)
    return result


@mutant(
    "downgrade-keeps-write | RFC 8881 18.18 | an OPEN_DOWNGRADE to read keeps the access to write",
    "OPEN_DOWNGRADE",
    part="request",
)
def downgrade_keeps_write(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(
        talk,
        arguments,
        "OPEN_DOWNGRADE",
        lambda one: replace(
            one, share_access=one.share_access | 3 if one.share_access == 1 else one.share_access
        ),
    )


@mutant(
    "lock-to-end-half | RFC 8881 18.10 | a lock to the end of the file ends at 2^63", "LOCK", part="request"
)
def lock_to_end_half(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def half(one: Any) -> Any:
        return replace(one, length=(1 << 62) - 1) if one.length == ALL_BYTES else one

    return _asked(talk, arguments, "LOCK", half)


@mutant("lockt-owner-of-asker | RFC 8881 18.11 | LOCKT denies with the owner that asked", "LOCKT")
def lockt_owner_of_asker(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.owner", argument.owner) if of(result) == nfsstat4.NFS4ERR_DENIED else result


@mutant(
    "locku-middle-all | RFC 8881 18.12 | LOCKU of a part unlocks all from its start on",
    "LOCKU",
    part="request",
)
def locku_middle_all(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(talk, arguments, "LOCKU", lambda one: replace(one, length=ALL_BYTES))


@mutant(
    "replay-misordered | RFC 8881 2.10.6.1 | a request that is sent again on its slot ends with SEQ_MISORDERED",
    part="compound",
)
def replay_misordered(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    first = arguments.argarray[0] if arguments.argarray else None
    if first is None or opname(first) != "SEQUENCE" or results.status != OK:
        return results
    key = first.value.sa_sessionid, first.value.sa_slotid, first.value.sa_sequenceid
    if key not in talk.shared:
        talk.shared[key] = True
        return results
    one = replace(
        results.resarray[0], value=failed(results.resarray[0].value, nfsstat4.NFS4ERR_SEQ_MISORDERED)
    )
    return replace(results, status=nfsstat4.NFS4ERR_SEQ_MISORDERED, resarray=(one,))


@mutant("sequence-slot-zero | RFC 8881 18.46 | SEQUENCE names slot 0 for every slot", "SEQUENCE")
def sequence_slot_zero(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.sr_slotid", 0) if of(result) == OK else result


@mutant("sequence-target-above | RFC 8881 18.46 | the highest slot is above those of the session", "SEQUENCE")
def sequence_highest_above(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.sr_highest_slotid", lambda slot: slot + 4096) if of(result) == OK else result


@mutant(
    "destroy-session-stays | RFC 8881 18.37 | a session that is destroyed stays in use",
    "DESTROY_SESSION",
    part="request",
)
def destroy_session_stays(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    if [opname(one) for one in arguments.argarray] != ["DESTROY_SESSION"]:
        return arguments
    return replace(arguments, argarray=())


def _destroyed(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    if results.resarray or [opname(one) for one in arguments.argarray] != ["DESTROY_SESSION"]:
        return results
    done = types.nfs_resop4(nfs_opnum4.OP_DESTROY_SESSION, types.DESTROY_SESSION4res(OK))
    return replace(results, resarray=(done,))


MUTANTS["destroy-session-stays"].compound = _destroyed


@mutant(
    "second-session-gone | RFC 8881 2.10.3 | with its first session, a client loses its others",
    "SEQUENCE",
    "CREATE_SESSION",
    "DESTROY_SESSION",
)
def second_session_gone(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "csa_clientid"):
        talk.shared.setdefault(argument.csa_clientid, []).append(result.value.csr_sessionid)
    elif hasattr(argument, "dsa_sessionid"):
        for sessions in [one for one in talk.shared.values() if isinstance(one, list)]:
            if argument.dsa_sessionid in sessions:
                talk.shared.setdefault("gone", set()).update(sessions)
    elif argument.sa_sessionid in talk.shared.get("gone", ()):
        return failed(result, nfsstat4.NFS4ERR_BADSESSION)
    return result


@mutant(
    "exchange-id-again-other | RFC 8881 18.35.5 | EXCHANGE_ID of a confirmed client returns another client ID",
    "EXCHANGE_ID",
)
def exchange_id_again_other(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    confirmed = of(result) == OK and result.value.eir_flags & types.EXCHGID4_FLAG_CONFIRMED_R
    return put(result, "value.eir_clientid", lambda old: old ^ 0x100) if confirmed else result


@mutant("free-stateid-held | RFC 8881 18.38 | FREE_STATEID of a stateid with locks succeeds", "FREE_STATEID")
def free_stateid_held(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, OK) if of(result) == nfsstat4.NFS4ERR_LOCKS_HELD else result


@mutant(
    "test-stateid-later | RFC 8881 18.48 | TEST_STATEID states that all stateids after the first are valid",
    "TEST_STATEID",
)
def test_stateid_later(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.tsr_status_codes", lambda codes: (*codes[:1], *(OK for _ in codes[1:])))


@mutant("readdir-low-cookies | RFC 8881 18.23 | the cookies of the first entries are 1 and 2", "READDIR")
def readdir_low_cookies(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or argument.cookie or len(result.value.reply.entries) < 3:
        return result
    entries = result.value.reply.entries
    low = tuple(replace(one, cookie=at + 1) for at, one in enumerate(entries[:2]))
    return put(result, "value.reply.entries", low + entries[2:])


@mutant(
    "change-sticks | RFC 8881 5.8.1.4 | the change attribute of a file stays after its second value",
    "PUTFH",
    "GETATTR",
)
def change_sticks(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
    if of(result) != OK or not hasattr(argument, "attr_request"):
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_CHANGE not in values:
        return result
    handle = talk.memory.get("handle")
    seen = talk.shared.setdefault(handle, [])
    if len(seen) < 2 and values[types.FATTR4_CHANGE] not in seen:
        seen.append(values[types.FATTR4_CHANGE])
    values[types.FATTR4_CHANGE] = seen[-1]
    return put(result, "value.obj_attributes", encode_attributes(values))


@mutant(
    "verify-first-only | RFC 8881 18.30 | VERIFY compares the first attribute alone", "VERIFY", part="request"
)
def verify_first_only(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def first(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        return replace(one, obj_attributes=encode_attributes(dict(list(values.items())[:1])))

    return _asked(talk, arguments, "VERIFY", first)


@mutant(
    "results-after-failure | RFC 8881 16.2.3 | the results go on behind the one that failed", part="compound"
)
def results_after_failure(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    if results.status == OK or len(results.resarray) < 2 or len(arguments.argarray) == len(results.resarray):
        return results
    return replace(results, resarray=(*results.resarray, results.resarray[-1]))


@mutant("restorefh-nothing | RFC 8881 18.27 | RESTOREFH succeeds where nothing was saved", "RESTOREFH")
def restorefh_nothing(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, OK) if of(result) != OK else result


@mutant(
    "secinfo-keeps-handle | RFC 8881 2.6.3.1.1.8 | the current file handle is still there after SECINFO",
    part="request",
)
def secinfo_keeps_handle(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    names = [opname(one) for one in arguments.argarray]
    if not arguments.minorversion or "SECINFO" not in names[:-1]:
        return arguments
    at, array = names.index("SECINFO"), arguments.argarray
    save = types.nfs_argop4(nfs_opnum4.OP_SAVEFH)
    restore = types.nfs_argop4(nfs_opnum4.OP_RESTOREFH)
    return replace(arguments, argarray=(*array[:at], save, array[at], restore, *array[at + 1 :]))


def _without_restore(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    names = [opname(one) for one in arguments.argarray]
    if not arguments.minorversion or "SECINFO" not in names[:-1]:
        return results
    at, array = names.index("SECINFO"), results.resarray
    return replace(results, resarray=(*array[:at], *array[at + 1 : at + 2], *array[at + 3 :]))


MUTANTS["secinfo-keeps-handle"].compound = _without_restore


@mutant("seek-at-end-ok | RFC 7862 15.11.3 | SEEK from the end of the file succeeds with eof", "SEEK")
def seek_at_end_ok(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4ERR_NXIO:
        return result
    return type(result)(OK, types.seek_res4(sr_eof=True, sr_offset=argument.sa_offset))


@mutant("copy-to-end-nothing | RFC 7862 15.2.3 | a COPY with a count of 0 copies nothing", "COPY")
def copy_to_end_nothing(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or argument.ca_count:
        return result
    return put(result, "value.cr_response.wr_count", 0)


@mutant(
    "deallocate-whole-pages | RFC 7862 15.4.3 | DEALLOCATE zeroes the whole pages that its range touches",
    "DEALLOCATE",
    part="request",
)
def deallocate_whole_pages(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def wide(one: Any) -> Any:
        start = one.da_offset & ~4095
        end = -(-(one.da_offset + one.da_length) // 4096) * 4096
        return replace(one, da_offset=start, da_length=end - start) if end <= ALL_BYTES >> 1 else one

    return _asked(talk, arguments, "DEALLOCATE", wide)


@mutant(
    "setxattr-create-replaces | RFC 8276 8.4.3 | SETXATTR with CREATE replaces what is there",
    "SETXATTR",
    part="request",
)
def setxattr_create_replaces(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    either = types.setxattr_option4.SETXATTR4_EITHER
    return _asked(
        talk,
        arguments,
        "SETXATTR",
        lambda one: (
            replace(one, sxa_option=either)
            if one.sxa_option == types.setxattr_option4.SETXATTR4_CREATE
            else one
        ),
    )


for _name in ("copy-to-end-nothing", "setxattr-create-replaces"):
    MUTANTS[_name].kind = "knfsd"


# Of the same families


@mutant(
    "read-eof-large | RFC 8881 18.22.3 | eof after a read of more than 64 KiB though the file goes on", "READ"
)
def read_eof_large(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    large = of(result) == OK and len(result.value.data) > LARGE
    return put(result, "value.eof", True) if large else result


@mutant("write-large-verifier | RFC 8881 18.32.3 | writes of more than 64 KiB have another verifier", "WRITE")
def write_large_verifier(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    large = of(result) == OK and len(argument.data) > LARGE
    return put(result, "value.writeverf", b"another!") if large else result


@mutant("commit-second-verifier | RFC 8881 18.3.4 | every second COMMIT has another verifier", "COMMIT")
def commit_second_verifier(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    talk.shared["commits"] = talk.shared.get("commits", 0) + 1
    if of(result) != OK or talk.shared["commits"] % 2:
        return result
    return put(result, "value.writeverf", b"another!")


@mutant(
    "nverify-first-only | RFC 8881 18.15 | NVERIFY compares the first attribute alone",
    "NVERIFY",
    part="request",
)
def nverify_first_only(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def first(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        return replace(one, obj_attributes=encode_attributes(dict(list(values.items())[:1])))

    return _asked(talk, arguments, "NVERIFY", first)


@mutant(
    "cinfo-before-after | RFC 8881 18.25.3 | change info states that it is atomic, and has after twice",
    "CREATE",
    "LINK",
    "RENAME",
    "REMOVE",
)
def cinfo_before_after(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    field = "value.source_cinfo" if hasattr(result.value, "source_cinfo") else "value.cinfo"
    return put(result, field, lambda info: replace(info, atomic=True, before=info.after))


@mutant(
    "readdir-later-attributes | RFC 8881 18.23.3 | pages after the first have the attributes of the neighbours",
    "READDIR",
)
def readdir_later_attributes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.cookie or len(result.value.reply.entries) < 2:
        return result
    entries = result.value.reply.entries
    attributes = [one.attrs for one in entries]
    moved = tuple(
        replace(one, attrs=attrs) for one, attrs in zip(entries, attributes[1:] + attributes[:1], strict=True)
    )
    return put(result, "value.reply.entries", moved)


@mutant("lockt-length-zero | RFC 8881 18.11.3 | a denial states a lock of length 0", "LOCKT")
def lockt_length_zero(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.length", 0) if of(result) == nfsstat4.NFS4ERR_DENIED else result


@mutant(
    "retry-last-slot-only | RFC 8881 2.10.6.1 | a session keeps the reply of the slot that was used last",
    part="compound",
)
def retry_last_slot_only(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    given = arguments.argarray[0].value if arguments.argarray else None
    if not isinstance(given, SEQUENCE4args) or not results.resarray:
        return results
    slots = talk.shared.setdefault(given.sa_sessionid, {})
    again, last = slots.get(given.sa_slotid) == given.sa_sequenceid, talk.shared.get("last")
    slots[given.sa_slotid] = given.sa_sequenceid
    talk.shared["last"] = given.sa_sessionid, given.sa_slotid
    if not again or last == talk.shared["last"]:
        return results
    first = results.resarray[0]
    misordered = nfsstat4.NFS4ERR_SEQ_MISORDERED
    refusal = replace(first, value=failed(first.value, misordered))
    return replace(results, status=misordered, resarray=(refusal,))


@mutant(
    "denied-type-first | RFC 8881 18.10.3 | a denial has the type that a range was locked with first", "LOCK"
)
def denied_type_first(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) == OK:
        talk.shared.setdefault((argument.offset, argument.length), argument.locktype)
    if of(result) != nfsstat4.NFS4ERR_DENIED:
        return result
    first = talk.shared.get((result.value.offset, result.value.length), result.value.locktype)
    return put(result, "value.locktype", first)


@mutant(
    "owner-of-any-client | RFC 8881 9.1.1 | lock owners of one name are one, whatever their clients are",
    "LOCKT",
)
def owner_of_any_client(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    denied = of(result) == nfsstat4.NFS4ERR_DENIED
    return type(result)(OK) if denied and result.value.owner.owner == argument.owner.owner else result


@mutant(
    "dealloc-change-kept | RFC 8881 5.8.1.4 | DEALLOCATE leaves the change attribute", "DEALLOCATE", "GETATTR"
)
def dealloc_change_kept(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if not hasattr(argument, "attr_request"):
        talk.shared["deallocated"] = True
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_CHANGE not in values:
        return result
    if "deallocated" not in talk.shared:
        talk.shared["change"] = values[types.FATTR4_CHANGE]
    values[types.FATTR4_CHANGE] = talk.shared.get("change", values[types.FATTR4_CHANGE])
    return put(result, "value.obj_attributes", encode_attributes(values))


@mutant(
    "locku-kind-compared | RFC 8881 18.12.3 | LOCKU of another kind than the lock's is invalid",
    "LOCK",
    "LOCKU",
)
def locku_kind_compared(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    held = argument.offset, argument.length
    if hasattr(argument, "locker"):
        talk.shared[held] = argument.locktype
        return result
    other = talk.shared.get(held, argument.locktype) != argument.locktype
    return failed(result, nfsstat4.NFS4ERR_INVAL) if other else result


@mutant("set-times-31-bits | RFC 8881 5.8.2.46 | SETATTR sets times of 31 bits", "SETATTR", part="request")
def set_times_31_bits(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def shortened(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        given = values.get(types.FATTR4_TIME_MODIFY_SET)
        if given is None or given.value is None:
            return one
        values[types.FATTR4_TIME_MODIFY_SET] = put(given, "value.seconds", given.value.seconds & 0x7FFFFFFF)
        return replace(one, obj_attributes=encode_attributes(values))

    return _asked(talk, arguments, "SETATTR", shortened)
