"""Broken rules of ISID and TSIH in the responses of a login.

The rules, from the text (RFC 7143), before any case:

- 11.13: a Login Response has an ISID, which is that of the request (SHOULD: no sentence demands it).
- 11.13.3: for a new session the target MUST generate a TSIH that is not 0, and MUST return it in the final
  response only; the other responses have the TSIH of their request.
- 4.2.7 and 6.3: a discovery session is a session; its login is no exception.
"""

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import LoginResponse


def _final(pdu: Pdu) -> bool:
    return isinstance(pdu, LoginResponse) and pdu.transit and pdu.nsg == Stage.FULL_FEATURE


def _later(talk: ProxyConnection) -> bool:
    """Count the responses of the connection; return whether this one is the second or a later one."""
    talk.memory["responses"] = talk.memory.get("responses", 0) + 1
    return bool(talk.memory["responses"] > 1)


def _discovery(talk: ProxyConnection) -> bool:
    return ("SessionType", "Discovery") in talk.offered


@mutant("login-isid-first | RFC 7143 11.13 | a Login Response that is not the last one has ISID 0")
def isid_first(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, isid=bytes(6)) if isinstance(pdu, LoginResponse) and not _final(pdu) else pdu


@mutant("login-isid-last | RFC 7143 11.13 | the last of several Login Responses has another ISID")
def isid_last(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and _later(talk) and _final(pdu):
        return replace(pdu, isid=pdu.isid[:5] + bytes([pdu.isid[5] ^ 1]))
    return pdu


@mutant("login-isid-discovery | RFC 7143 11.13 | the Login Response of a discovery session has ISID 0")
def isid_discovery(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, isid=bytes(6)) if isinstance(pdu, LoginResponse) and _discovery(talk) else pdu


@mutant("login-tsih-early | RFC 7143 11.13.3 | each response of a login has a TSIH")
def tsih_early(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, tsih=0x7171) if isinstance(pdu, LoginResponse) and not pdu.status else pdu


@mutant("login-tsih-changes | RFC 7143 11.13.3 | the responses of a login have different TSIHs")
def tsih_changes(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and not pdu.status and not _final(pdu):
        _later(talk)
        return replace(pdu, tsih=0x7170 + talk.memory["responses"])
    return pdu


@mutant("tsih-zero-later | RFC 7143 11.13.3 | a login of several exchanges ends with TSIH 0")
def tsih_zero_later(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, tsih=0) if isinstance(pdu, LoginResponse) and _later(talk) and _final(pdu) else pdu


@mutant("tsih-zero-discovery | RFC 7143 11.13.3 | a discovery session has TSIH 0")
def tsih_zero_discovery(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, tsih=0) if _final(pdu) and _discovery(talk) else pdu
