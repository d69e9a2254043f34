"""Broken rules of numbers that pass a limit, of addresses, and of keys that few initiators send.

The rules, each with the fix or the report that it is from where there is one:

- RFC 7143 4.2.2.1: CmdSN has 32 bits without a sign (open-iscsi 430 is the initiator's side).
- RFC 7143 13.8: TargetAddress is an address of the portal (0.0.0.0 in SPDK 2291), and IPv6 has brackets.
- RFC 7143 13.25: the keys of markers are answered Reject (Linux c04a6091).
- RFC 7143 6.2: each key of each request is answered.
- RFC 7143 11.4.5.1: a residual is of bytes that were expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import text

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    LoginRequest,
    LoginResponse,
    Reject,
    Request,
    ScsiResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.scsi.codes import ScsiStatus

# CmdSN


def _loses_from(row: str, limit: int) -> None:
    """A mutant that loses the commands from CmdSN ``limit`` on, if the login had a lower one."""

    @on_request(row)
    def change(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, LoginRequest):
            talk.memory["first"] = pdu.cmd_sn
        elif isinstance(pdu, Request) and not pdu.immediate and talk.memory["first"] < limit <= pdu.cmd_sn:
            return None
        return pdu


_loses_from("cmd-sn-signed | RFC 7143 4.2.2.1 | a CmdSN of 2**31 or more is below all others", 2**31)
_loses_from("cmd-sn-three-bytes | RFC 7143 4.2.2.1 | a CmdSN has three bytes", 2**24)
_loses_from("cmd-sn-two-bytes | RFC 7143 4.2.2.1 | a CmdSN has two bytes", 2**16)


# Addresses


def _addresses(row: str, change: Callable[[str], str]) -> None:
    """A mutant that lists other addresses; ``change`` takes one without its portal group tag."""

    def rewrite(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
        listed = []
        for name, value in pairs:
            portal, comma, tag = value.rpartition(",")
            listed.append((name, change(portal) + comma + tag) if name == "TargetAddress" else (name, value))
        return listed

    text(row, rewrite, TextResponse)


_addresses(
    "address-any | RFC 7143 13.8 | the address of a portal is the one it listens on",
    lambda portal: "0.0.0.0:3260",
)
_addresses(
    "address-without-brackets | RFC 7143 13.8 | an IPv6 address has no brackets",
    lambda portal: "2001:db8::2:3260",
)
_addresses(
    "address-port-zero | RFC 7143 13.8 | a portal has port 0", lambda portal: f"{portal.rpartition(':')[0]}:0"
)


# Keys


@mutant("marker-keys-not-understood | RFC 7143 13.25 | the keys of markers are NotUnderstood")
def marker_keys_not_understood(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or b"Mark" not in pdu.data:
        return pdu
    pairs = [(name, NOT_UNDERSTOOD if "FMark" in name else value) for name, value in parse_text(pdu.data)]
    return replace(pdu, data=format_text(pairs))


def _counts_requests(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginRequest):
        talk.memory["requests"] = talk.memory.get("requests", 0) + 1
    return pdu


def _answers_first(talk: ProxyConnection, pdu: Pdu) -> Out:
    later = isinstance(pdu, LoginResponse) and not pdu.status and talk.memory.get("requests", 0) > 1
    if not later or not isinstance(pdu, LoginResponse):
        return pdu
    return replace(pdu, data=format_text(pair for pair in parse_text(pdu.data) if pair[1] != NOT_UNDERSTOOD))


both(
    "later-keys-unanswered | RFC 7143 6.2 | an unknown key of a login's second request is not answered",
    _answers_first,
    _counts_requests,
)


def _notes_text(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TextRequest):
        talk.memory["lists"] = b"SendTargets=" in pdu.data
    return pdu


def _answers_list(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextResponse) or not talk.memory.get("lists"):
        return pdu
    return replace(pdu, data=format_text(pair for pair in parse_text(pdu.data) if pair[1] != NOT_UNDERSTOOD))


both(
    "text-key-together-unanswered | RFC 7143 6.2 | a key in one text with SendTargets is not answered",
    _answers_list,
    _notes_text,
    kind="unsolicited",
)


# Rejects


def _reject_digest(row: str, **spoil: int) -> None:
    """A mutant that spoils a digest of each Reject."""

    @mutant(row)
    def change(talk: ProxyConnection, pdu: Pdu) -> Out:
        digest = talk.digests["data_digest_xor" in spoil]
        return talk.wire(pdu, **spoil) if isinstance(pdu, Reject) and digest else pdu


_reject_digest(
    "header-digest-of-reject | RFC 7143 11.2.3 | the header digest of a Reject is wrong", header_digest_xor=1
)
_reject_digest(
    "data-digest-of-reject | RFC 7143 11.2.3 | the data digest of a Reject is wrong", data_digest_xor=1
)


# Residuals


@mutant("residual-kept | RFC 7143 11.4.5.1 | a command that fails has the residual of an earlier one")
def residual_kept(talk: ProxyConnection, pdu: Any) -> Out:
    if not getattr(pdu, "underflow", False):
        kept = talk.memory.get("residual", 0)
        fails = isinstance(pdu, ScsiResponse) and pdu.status == ScsiStatus.CHECK_CONDITION
        return replace(pdu, underflow=True, residual=kept) if fails and kept else pdu
    talk.memory["residual"] = pdu.residual
    return pdu
