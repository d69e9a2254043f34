"""Broken rules of logins: defaults, the first CmdSN, a session's place that is taken too early, CHAP of several.

The rules, from the text, before any case:

- RFC 7143 13.11, 13.14, 13.21: a key that neither side sends has its default (MUST).
- RFC 7143 6.3: the first request of a login has InitiatorName, that of a normal session TargetName (MUST).
- RFC 7143 11.12.8, 4.2.2.1: the CmdSN of the leading login is the first one of the session (MUST).
- RFC 7143 6.3.5: a login that succeeds takes the place of a session, and no other login does.
- RFC 7143 12.1.3: each login proves its secret by the response to its own challenge (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_login_mutants import accepted
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_reinstatement_mutants import hangs_up
from iscsi_rules import check, ends
from iscsi_strict_login import SECRET

from storagetest.wire.iscsi.chap import Challenge, challenge_of, hexadecimal, response
from storagetest.wire.iscsi.codes import LoginStatus, RejectReason
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import DataIn, LoginRequest, LoginResponse, Reject
from storagetest.wire.scsi.codes import SenseKey

STRICT, CHAP = "strict", "strict-chap"
"""The targets of tests/controllers/iscsi_strict_login.py."""
SMALL_BURST, SMALL_READ = 8192, 65536
UNEXPECTED_DATA = 0x0C0C
"""WRITE ERROR - UNEXPECTED UNSOLICITED DATA (SPC-4)."""


# Defaults


def _refuses_data(row: str, key: str, most: int) -> None:
    """A mutant that fails a write with more immediate data than ``most``, if ``key`` was not in the login."""

    @mutant(row, kind=STRICT)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        command = talk.commands.get(pdu.itt)
        refused = ends(pdu) and command is not None and len(command.data) > most
        return (
            check(pdu, SenseKey.ABORTED_COMMAND, UNEXPECTED_DATA)
            if refused and key not in dict(talk.offered)
            else pdu
        )


_refuses_data(
    "immediate-default-no | RFC 7143 13.11 | without ImmediateData in the login, it is No",
    "ImmediateData", 0,
)  # fmt: skip
_refuses_data(
    "first-burst-default-small | RFC 7143 13.14 | without FirstBurstLength in the login, it is 8192",
    "FirstBurstLength", SMALL_BURST,
)  # fmt: skip


@mutant(
    "session-type-default-discovery | RFC 7143 13.21 | a session whose login names no type executes no command",
    kind=STRICT,
)
def session_type_default_discovery(talk: ProxyConnection, pdu: Pdu) -> Out:
    if "SessionType" in dict(talk.offered) or not (isinstance(pdu, DataIn) or ends(pdu)):
        return pdu
    if not ends(pdu):
        return None
    header = talk.commands[pdu.itt].encode()[:48]
    numbers = {name: getattr(pdu, name) for name in ("stat_sn", "exp_cmd_sn", "max_cmd_sn")}
    return Reject(reason=RejectReason.PROTOCOL_ERROR, data=header, **numbers)


def _accepts_if(row: str, when: Callable[[dict[str, str]], bool]) -> None:
    """A mutant that accepts a login that lacks a key; ``when`` takes its keys."""

    @mutant(row, kind=STRICT)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        lacks = isinstance(pdu, LoginResponse) and pdu.status == LoginStatus.MISSING_PARAMETER
        return (
            accepted(talk, pdu)
            if isinstance(pdu, LoginResponse) and lacks and when(dict(talk.offered))
            else pdu
        )


_accepts_if(
    "session-type-by-target | RFC 7143 13.21 | a login without SessionType and TargetName is one of discovery",
    lambda keys: "SessionType" not in keys,
)
_accepts_if(
    "discovery-name-missing-accepted | RFC 7143 6.3 | a discovery login needs no InitiatorName",
    lambda keys: keys.get("SessionType") == "Discovery",
)


@mutant(
    "proposal-with-transit | RFC 7143 6.3 | the last Login Response proposes MaxBurstLength, if it was not offered",
    kind=STRICT,
)
def proposal_with_transit(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or not pdu.transit or "MaxBurstLength" in dict(talk.offered):
        return pdu
    return replace(pdu, data=pdu.data + format_text([("MaxBurstLength", "131072")]))


@mutant(
    "version-max-checked | RFC 7143 11.13.2 | a login is refused if the initiator has a later version, too",
    kind=STRICT,
)
def version_max_checked(talk: ProxyConnection, pdu: Pdu) -> Out:
    later = isinstance(pdu, LoginResponse) and talk.login is not None and talk.login.version_max
    return replace(pdu, status=LoginStatus.UNSUPPORTED_VERSION, transit=False, data=b"") if later else pdu


@mutant(
    "most-segment-small | RFC 7143 13.12 | with a MaxRecvDataSegmentLength of 2**24-1, a read has no more than 64 KiB",
    kind=STRICT,
)
def most_segment_small(talk: ProxyConnection, pdu: Pdu) -> Out:
    most = dict(talk.offered).get("MaxRecvDataSegmentLength") == str((1 << 24) - 1)
    cut = isinstance(pdu, DataIn) and most and len(pdu.data) > SMALL_READ
    return (
        replace(pdu, data=pdu.data[:SMALL_READ] + bytes(len(pdu.data) - SMALL_READ))
        if isinstance(pdu, DataIn) and cut
        else pdu
    )


# The first CmdSN


def _numbers(row: str, kind: str, first: int) -> None:
    """A mutant whose Login Responses to a session of ``kind`` have the window of a session from ``first`` on."""

    @mutant(row, kind=STRICT)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginResponse) or dict(talk.offered).get("SessionType") != kind:
            return pdu
        window = pdu.max_cmd_sn - pdu.exp_cmd_sn if first else 0
        return replace(pdu, exp_cmd_sn=first, max_cmd_sn=first + window)


_numbers(
    "discovery-login-numbers-zero | RFC 7143 4.2.2.1 | the Login Responses of discovery have ExpCmdSN and MaxCmdSN 0",
    "Discovery", 0,
)  # fmt: skip
_numbers(
    "discovery-numbers-from-one | RFC 7143 11.12.8 | a discovery session begins with CmdSN 1, whatever its login has",
    "Discovery", 1,
)  # fmt: skip
_numbers(
    "login-numbers-from-one | RFC 7143 11.12.8 | a normal session begins with CmdSN 1, whatever its login has",
    "Normal", 1,
)  # fmt: skip


# Reinstatement


def _same_nexus(other: ProxyConnection, own: ProxyConnection) -> bool:
    """Whether both logins have one initiator name, ISID and target."""
    if other.login is None or own.login is None:
        return False
    target = dict(other.offered).get("TargetName")
    named = other.name == own.name and dict(own.offered).get("TargetName", target) == target
    return named and other.login.isid == own.login.isid


hangs_up(
    "login-reinstates-at-once | RFC 7143 6.3.5 | the first response of a login ends the session with its name and ISID",
    lambda other, own, answer: _same_nexus(other, own),
    kind=STRICT,
)
hangs_up(
    "refused-login-reinstates | RFC 7143 6.3.5 | a refused login to the target of a session ends that session",
    lambda other, own, answer: bool(answer.status) and _same_nexus(other, own),
    kind=STRICT,
)
hangs_up(
    "chap-after-reinstatement | RFC 7143 6.3.5 | a login takes the place of a session before its secret is checked",
    lambda other, own, answer: answer.status == LoginStatus.AUTHENTICATION_FAILED and _same_nexus(other, own),
    kind=CHAP,
)


# CHAP of several logins


def _notes_challenge(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Remember the challenge of this connection, those of all, and who has logged in."""
    if isinstance(pdu, LoginResponse) and not pdu.status:
        keys = parse_text(pdu.data)
        if "CHAP_C" in dict(keys):
            talk.memory["challenge"] = challenge_of(keys)
            talk.shared.setdefault("challenges", []).append(talk.memory["challenge"])
        if pdu.tsih:
            talk.shared.setdefault("names", set()).add(talk.name)
    return pdu


def _digest(challenge: Challenge) -> str:
    return hexadecimal(response(SECRET.encode(), challenge.identifier, challenge.challenge))


def _proves(row: str, when: Callable[[ProxyConnection, str], bool], *, right: bool = True) -> None:
    """A mutant that takes a response as right (or as wrong) if ``when(talk, CHAP_R)`` is true."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginRequest) or b"CHAP_R=" not in pdu.data or "challenge" not in talk.memory:
            return pdu
        keys = dict(parse_text(pdu.data))
        if not when(talk, keys["CHAP_R"]):
            return pdu
        proof = _digest(talk.memory["challenge"]) if right else hexadecimal(bytes(16))
        return replace(pdu, data=format_text([*{**keys, "CHAP_R": proof}.items()]))

    mutant(row, request=request, kind=CHAP)(_notes_challenge)


_proves(
    "chap-remembered | RFC 7143 12.1.3 | any secret is right for an initiator that has proven its own before",
    lambda talk, proof: talk.name in talk.shared.get("names", ()),
)
_proves(
    "chap-any-challenge | RFC 7143 12.1.3 | the response to the challenge of any login is right",
    lambda talk, proof: proof in map(_digest, talk.shared["challenges"]),
)


_proves(
    "chap-of-discovery | RFC 7143 12.1.3 | any secret is right in a discovery session",
    lambda talk, proof: dict(talk.offered).get("SessionType") == "Discovery",
)
_proves(
    "chap-last-challenge | RFC 7143 12.1.3 | only the response to the last challenge of the target is right",
    lambda talk, proof: talk.shared["challenges"][-1] != talk.memory["challenge"],
    right=False,
)
