"""Broken rules of the stages of a login, and of additional headers under a header digest.

The rules, from the text (RFC 7143), before any case:

- 6.3, 11.12.3: a login may go from the security stage straight to the full feature phase. Its last response
  has the TSIH of the new session (11.13.3), and the session is served.
- 6.3: the stage changes by T of a request and of its response, and in no other way.
- 11.2.3: the header digest covers the basic header segment and the additional header segments.
- 4.2.2.1: a Logout that is not immediate advances ExpCmdSN, also in a discovery session.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace

from iscsi_login_mutants import accepted
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import LoginResponse, LogoutResponse, ScsiCommand
from storagetest.wire.iscsi.validator import plus


@mutant(
    "login-straight-no-session | RFC 7143 11.13.3 | a login from the security stage straight to the full feature phase ends with TSIH 0",
    kind="unsolicited",
)
def straight_no_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    straight = isinstance(pdu, LoginResponse) and pdu.transit and pdu.csg == Stage.SECURITY
    return replace(pdu, tsih=0) if straight and pdu.nsg == Stage.FULL_FEATURE else pdu


@mutant(
    "login-stage-changes-alone | RFC 7143 6.3 | a request of another stage than the agreed one is accepted",
    kind="unsolicited",
)
def stage_changes_alone(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    first = not talk.memory.get("answered")
    talk.memory["answered"] = True
    return accepted(talk, pdu) if pdu.status and not first else pdu


@mutant(
    "exp-cmd-sn-of-discovery-logout | RFC 7143 4.2.2.1 | the Logout of a discovery session does not advance ExpCmdSN"
)
def discovery_logout(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LogoutResponse) and ("SessionType", "Discovery") in talk.offered:
        return replace(pdu, exp_cmd_sn=plus(pdu.exp_cmd_sn, -1))
    return pdu


@on_request(
    "digest-without-ahs | RFC 7143 11.2.3 | the header digest of a command with additional headers counts as wrong: the command is discarded",
    kind="digests",
)
def digest_without_ahs(talk: ProxyConnection, pdu: Pdu) -> Out:
    return None if isinstance(pdu, ScsiCommand) and pdu.ahs and talk.digests[0] else pdu


@on_request(
    "digest-of-ahs-not-checked | RFC 7143 11.2.3 | a wrong header digest of a command with additional headers is not noticed",
    kind="digests",
)
def digest_of_ahs_not_checked(talk: ProxyConnection, pdu: Pdu) -> Out:
    wrong = isinstance(pdu, ScsiCommand) and pdu.ahs and talk.memory["frame"].header_digest_wrong
    return talk.wire(pdu) if wrong else pdu
