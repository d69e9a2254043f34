"""Mutants of sessions and connections that are reinstated, of a login and of a preemption after another one."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, IscsiMutant, Out, ProxyConnection, mutant
from iscsi_rules import attention, good
from mutant_row import cells
from proxy import Hangup

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, LoginRequest, LoginResponse, LogoutRequest, ScsiResponse
from storagetest.wire.scsi.codes import Asc
from storagetest.wire.scsi.sense import decode_sense

PR_IN = 0x5E
"""PERSISTENT RESERVE IN."""


def both(row: str, reply: Any, request: Any, **more: Any) -> None:
    """A mutant that changes PDUs of both directions."""
    name, *words = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = IscsiMutant(name, *words, reply=reply, request=request, **more)


def _other_isid(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or pdu.tsih:
        return pdu
    if "isid" not in talk.memory:
        talk.memory["isid"] = pdu.isid
        open_ones = talk.shared.setdefault("sessions", [])
        talk.memory["twin"] = any(
            one.name == talk.name and one.memory["isid"] == pdu.isid and not one.over for one in open_ones
        )
        open_ones.append(talk)
    return replace(pdu, isid=_turned(pdu.isid)) if talk.memory["twin"] else pdu


def _own_isid(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and talk.memory.get("twin"):
        return replace(pdu, isid=_turned(pdu.isid))
    return pdu


def _turned(isid: bytes) -> bytes:
    return isid[:-1] + bytes([isid[-1] ^ 0x80])


both(
    "session-not-reinstated | RFC 7143 6.3.5 | a login with the ISID of a session leaves that session open",
    _own_isid,
    _other_isid,
)


@mutant("login-after-failed-one | RFC 7143 6.3 | the login after one to an unknown target is refused")
def login_after_failed_one(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    if pdu.status:
        talk.shared["failed"] = True
    elif pdu.status == 0 and talk.shared.pop("failed", False):
        return replace(pdu, status=0x0300, transit=False, data=b"")
    return pdu


# Reinstatement


def _once_only(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Let the first reinstatement pass."""
    if isinstance(pdu, LoginRequest) and not pdu.tsih and "isid" not in talk.memory:
        talk.memory["isid"] = pdu.isid
        key = ("logins", talk.name, pdu.isid)
        talk.shared[key] = talk.shared.get(key, 0) + 1
        talk.memory["twin"] = talk.shared[key] > 2
    if isinstance(pdu, LoginRequest) and talk.memory.get("twin"):
        return replace(pdu, isid=_turned(pdu.isid))
    return pdu


both(
    "session-reinstated-once | RFC 7143 6.3.5 | the second reinstatement leaves the old session open",
    _own_isid,
    _once_only,
)


def hangs_up(
    row: str, when: Callable[[ProxyConnection, ProxyConnection, LoginResponse], bool], **more: Any
) -> None:
    """A mutant that ends the connections of others at a login response: ``when(other, own, response)``."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        known = talk.shared.setdefault("connections", [])
        if isinstance(pdu, LoginResponse):
            for other in known:
                if other is not talk and when(other, talk, pdu):
                    other.memory["ends"] = True
            if talk not in known:
                known.append(talk)
        return pdu

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if talk.memory.get("ends"):
            raise Hangup
        return pdu

    both(row, reply, request, **more)


def _isid(talk: ProxyConnection) -> bytes:
    return talk.login.isid if talk.login is not None else b""


hangs_up(
    "isid-of-another-reinstates | RFC 7143 6.3.5 | a login ends the session of another initiator with its ISID",
    lambda other, own, response: other.name != own.name and _isid(other) == _isid(own),
)
hangs_up(
    "isid-qualifier-ignored | RFC 7143 6.3.5 | a login ends the session whose ISID has the same first 4 bytes",
    lambda other, own, response: (
        other.name == own.name and _isid(other) != _isid(own) and _isid(other)[:4] == _isid(own)[:4]
    ),
)
hangs_up(
    "failed-login-reinstates | RFC 7143 6.3.5 | a login that is refused ends the session with its ISID",
    lambda other, own, response: response.status >> 8 != 0 and _isid(other) == _isid(own),
)
hangs_up(
    "discovery-reinstates | RFC 7143 6.3.5 | a discovery session ends the normal session with its ISID",
    lambda other, own, response: (
        _is_discovery(own) and not _is_discovery(other) and _isid(other) == _isid(own)
    ),
)


def _is_discovery(talk: ProxyConnection) -> bool:
    return dict(talk.offered).get("SessionType") == "Discovery"


def _notes_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note the earlier sessions of this name and ISID, and whether this one is logged out."""
    if isinstance(pdu, LoginRequest) and "twins" not in talk.memory:
        earlier = talk.shared.setdefault((talk.name, pdu.isid), [])
        talk.memory["twins"] = [*earlier]
        earlier.append(talk)
    elif isinstance(pdu, LogoutRequest):
        talk.memory["logged out"] = True
    return pdu


def _refuses_again(row: str, when: Callable[[ProxyConnection], bool]) -> None:
    """A mutant that refuses a login with the name and ISID of an earlier session; ``when`` takes that one."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        refused = isinstance(pdu, LoginResponse) and not pdu.status and any(map(when, talk.memory["twins"]))
        return replace(pdu, status=0x0300, transit=False, tsih=0, data=b"") if refused else pdu

    both(row, reply, _notes_end)


_refuses_again(
    "isid-of-logout-refused | RFC 7143 6.3.1 | the name and ISID of a session that was logged out are refused",
    lambda earlier: "logged out" in earlier.memory,
)
_refuses_again(
    "isid-of-lost-connection-refused | RFC 7143 6.3.5 | the name and ISID of a lost connection are refused",
    lambda earlier: earlier.over and "logged out" not in earlier.memory,
)


def _as_other_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Log in a session of its own in place of a connection that is to be reinstated."""
    if isinstance(pdu, LoginRequest) and (pdu.tsih or "tsih" in talk.memory):
        talk.memory.setdefault("tsih", pdu.tsih)
        return replace(pdu, tsih=0, isid=_turned(pdu.isid))
    return pdu


def _as_same_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and "tsih" in talk.memory:
        return replace(pdu, tsih=talk.memory["tsih"], isid=_turned(pdu.isid))
    return pdu


both(
    "connection-not-reinstated | RFC 7143 6.3.4 | a connection that is reinstated goes on together with the new one",
    _as_same_session,
    _as_other_session,
)


@mutant(
    "registration-ends-with-session | SPC-4 registrations | the reinstatement of a session ends its registration"
)
def registration_ends_with_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and not pdu.status and talk.login is not None:
        key = ("logins", talk.name, talk.login.isid)
        if "counted" not in talk.memory:
            talk.memory["counted"] = talk.shared[key] = talk.shared.get(key, 0) + 1
    read_keys = isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PR_IN and not talk.cdb(pdu)[1] & 0x1F
    if read_keys and talk.memory.get("counted", 1) > 1 and len(pdu.data) >= 8:
        return replace(pdu, data=pdu.data[:4] + bytes(len(pdu.data) - 4))
    return pdu


@mutant(
    "second-preempt-unreported | SPC-4 PREEMPT | the second registration that is preempted gets no unit attention"
)
def second_preempt_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse) or not attention(pdu) or talk.cdb(pdu)[0] != 0:
        return pdu
    if decode_sense(pdu.sense).asc != Asc.REGISTRATIONS_PREEMPTED:
        return pdu
    talk.shared["reported"] = talk.shared.get("reported", 0) + 1
    return good(pdu) if talk.shared["reported"] > 1 else pdu
