"""Broken rules of several connections of one client (RFC 8881 2.10.3, 2.10.5, 2.10.6)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, failed, mutant, of, opname

from storagetest.wire.nfs4.types import COMPOUND4args, nfsstat4

OK = nfsstat4.NFS4_OK


def is_creator(talk: Nfs4ProxyConnection, session: bytes) -> bool:
    """Return whether the session was created on this connection, or the proxy has not seen where."""
    return talk.shared.get(session, talk) is talk


def created(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> bool:
    """Remember a session that was created; return whether this was CREATE_SESSION."""
    if not hasattr(argument, "csa_clientid"):
        return False
    if of(result) == OK:
        talk.shared.setdefault(result.value.csr_sessionid, talk)
    return True


@mutant("conn-slots | 2.10.6.1 | each connection has sequence ids of its own", "CREATE_SESSION", "SEQUENCE")
def conn_slots(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if created(talk, argument, result) or of(result) != OK or is_creator(talk, argument.sa_sessionid):
        return result
    slot = argument.sa_sessionid, argument.sa_slotid
    number = talk.memory.get(slot, 0) + 1
    talk.memory[slot] = number
    return failed(result, nfsstat4.NFS4ERR_SEQ_MISORDERED) if argument.sa_sequenceid != number else result


@mutant(
    "conn-slots-anew | 2.10.6.1 | the first sequence id of a slot on a connection is accepted if it is 1",
    part="request",
)
def conn_slots_anew(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    if not arguments.argarray or opname(arguments.argarray[0]) != "SEQUENCE":
        return arguments
    first: Any = arguments.argarray[0]
    asked = first.value
    last = talk.shared.get(asked.sa_slotid, {}).get(asked.sa_sessionid, 0)
    is_first = asked.sa_slotid not in talk.memory
    talk.memory[asked.sa_slotid] = True
    if is_first and asked.sa_sequenceid == 1 and last > 1:
        first = replace(first, value=replace(asked, sa_sequenceid=last + 1))
        return replace(arguments, argarray=(first, *arguments.argarray[1:]))
    talk.shared.setdefault(asked.sa_slotid, {})[asked.sa_sessionid] = asked.sa_sequenceid
    return arguments


@mutant(
    "conn-second-slow | 2.10.3.1 | a slot other than the first belongs to the connection of CREATE_SESSION",
    "CREATE_SESSION",
    "SEQUENCE",
)
def conn_second_slow(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if created(talk, argument, result) or of(result) != OK or not argument.sa_slotid:
        return result
    if is_creator(talk, argument.sa_sessionid):
        return result
    return failed(result, nfsstat4.NFS4ERR_CONN_NOT_BOUND_TO_SESSION)


@mutant(
    "conn-state | 2.10.3 | a stateid is bad on another connection than that of its OPEN",
    "OPEN",
    "READ",
    "WRITE",
)
def conn_state(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "openhow"):
        talk.shared[result.value.stateid.other] = talk
        return result
    foreign = talk.shared.get(argument.stateid.other, talk) is not talk
    return failed(result, nfsstat4.NFS4ERR_BAD_STATEID) if foreign else result


@mutant(
    "conn-closed | 2.10.5.1 | the state of a client ends with the connection that it was made on",
    "OPEN",
    "WRITE",
)
def conn_closed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "openhow"):
        talk.shared[result.value.stateid.other] = talk
        return result
    maker = talk.shared.get(argument.stateid.other, talk)
    return failed(result, nfsstat4.NFS4ERR_BAD_STATEID) if maker.over else result


@mutant(
    "conn-one-session | 2.10.3 | a session is gone once another is created on its connection",
    "CREATE_SESSION",
    "SEQUENCE",
)
def conn_one_session(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "csa_clientid"):
        talk.memory["session"] = result.value.csr_sessionid
        return result
    gone = talk.memory.get("session", argument.sa_sessionid) != argument.sa_sessionid
    return failed(result, nfsstat4.NFS4ERR_BADSESSION) if gone else result


@mutant(
    "conn-create | 18.36.3 | a client id is unknown on another connection than that of EXCHANGE_ID",
    "EXCHANGE_ID",
    "CREATE_SESSION",
)
def conn_create(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "eia_clientowner"):
        talk.shared[result.value.eir_clientid] = talk
        return result
    foreign = talk.shared.get(argument.csa_clientid, talk) is not talk
    return failed(result, nfsstat4.NFS4ERR_STALE_CLIENTID) if foreign else result


@mutant("conn-destroy | 18.37.3 | DESTROY_SESSION on another connection than the first destroys nothing", part="request")  # fmt: skip
def conn_destroy(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    names = [opname(one) for one in arguments.argarray]
    if names != ["DESTROY_SESSION"]:
        if names[:1] == ["SEQUENCE"]:
            talk.shared.setdefault(arguments.argarray[0].value.sa_sessionid, talk)  # type: ignore[union-attr]
        return arguments
    one: Any = arguments.argarray[0]
    if is_creator(talk, one.value.dsa_sessionid):
        return arguments
    return replace(arguments, argarray=())
