"""Text keys: their format, their legal values, and the result of a negotiation (RFC 7143 6.1, 6.2, 13).

One table, :data:`KEYS`, has each key's negotiation rule, default, range, and the phase that allows it.
:func:`negotiated_reply` computes the responder's reply, :func:`outcome` the values that both sides then use.
A case compares a target's reply with them, so that the rule is in the table and not in the case.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short

Pairs = tuple[tuple[str, str], ...]
"""Keys and values in the order of the text."""

NOT_UNDERSTOOD, REJECT, IRRELEVANT = "NotUnderstood", "Reject", "Irrelevant"
RESERVED_WORDS = frozenset({NOT_UNDERSTOOD, REJECT, IRRELEVANT, "None"})
"""Values with a special meaning for any key (RFC 7143 6.2)."""

PORT = 3260
"""The port of an address that names none (RFC 7143 13.8)."""
MAX_NAME = 63
"""Longest key name in bytes (RFC 7143 6.1)."""


class Negotiation(Enum):
    """How two proposals become one value (RFC 7143 6.2.1, 6.2.2)."""

    LIST = "first of the proposer's list that the responder supports"
    MINIMUM = "the smaller number"
    MAXIMUM = "the larger number"
    AND = "Yes if both are Yes"
    OR = "Yes if either is Yes"
    DECLARE = "each side declares its own; no reply"


class When(Enum):
    """Use, in RFC 7143 13's words: Initialize Only, Leading Only, Full Feature Phase Only, ALL."""

    IO = "during login"
    LO = "during the leading login"
    FFPO = "in full feature phase"
    ALL = "at any time"


@dataclass(frozen=True, slots=True)
class TextKey:
    """One key: section of RFC 7143, rule, default, and range of numbers or list of words."""

    name: str
    section: str
    negotiation: Negotiation
    when: When
    default: str | None = None
    low: int = 0
    high: int = 0
    words: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return bool(self.high)


_N, _W = Negotiation, When
_BIG = 2**24 - 1

KEYS: Mapping[str, TextKey] = {
    key.name: key
    for key in (
        TextKey("HeaderDigest", "13.1", _N.LIST, _W.IO, "None", words=("None", "CRC32C")),
        TextKey("DataDigest", "13.1", _N.LIST, _W.IO, "None", words=("None", "CRC32C")),
        TextKey("MaxConnections", "13.2", _N.MINIMUM, _W.LO, "1", 1, 65535),
        TextKey("SendTargets", "13.3", _N.DECLARE, _W.FFPO),
        TextKey("TargetName", "13.4", _N.DECLARE, _W.IO),
        TextKey("InitiatorName", "13.5", _N.DECLARE, _W.IO),
        TextKey("TargetAlias", "13.6", _N.DECLARE, _W.ALL),
        TextKey("InitiatorAlias", "13.7", _N.DECLARE, _W.ALL),
        TextKey("TargetAddress", "13.8", _N.DECLARE, _W.ALL),
        TextKey("TargetPortalGroupTag", "13.9", _N.DECLARE, _W.IO, None, 0, 65535),
        TextKey("InitialR2T", "13.10", _N.OR, _W.LO, "Yes", words=("Yes", "No")),
        TextKey("ImmediateData", "13.11", _N.AND, _W.LO, "Yes", words=("Yes", "No")),
        TextKey("MaxRecvDataSegmentLength", "13.12", _N.DECLARE, _W.ALL, "8192", 512, _BIG),
        TextKey("MaxBurstLength", "13.13", _N.MINIMUM, _W.LO, "262144", 512, _BIG),
        TextKey("FirstBurstLength", "13.14", _N.MINIMUM, _W.LO, "65536", 512, _BIG),
        TextKey("DefaultTime2Wait", "13.15", _N.MAXIMUM, _W.LO, "2", 0, 3600),
        TextKey("DefaultTime2Retain", "13.16", _N.MINIMUM, _W.LO, "20", 0, 3600),
        TextKey("MaxOutstandingR2T", "13.17", _N.MINIMUM, _W.LO, "1", 1, 65535),
        TextKey("DataPDUInOrder", "13.18", _N.OR, _W.LO, "Yes", words=("Yes", "No")),
        TextKey("DataSequenceInOrder", "13.19", _N.OR, _W.LO, "Yes", words=("Yes", "No")),
        TextKey("ErrorRecoveryLevel", "13.20", _N.MINIMUM, _W.LO, "0", 0, 2),
        TextKey("SessionType", "13.21", _N.DECLARE, _W.LO, "Normal", words=("Discovery", "Normal")),
        TextKey("TaskReporting", "13.23", _N.LIST, _W.LO, "RFC3720",
            words=("RFC3720", "ResponseFence", "FastAbort")),
        TextKey("iSCSIProtocolLevel", "13.24", _N.MINIMUM, _W.LO, "1", 0, 31),
        TextKey("AuthMethod", "12.1", _N.LIST, _W.IO, "None", words=("CHAP", "None", "KRB5", "SRP")),
    )
}  # fmt: skip
"""Every key of RFC 7143 12.1 and 13 by its name."""


OBSOLETE = ("IFMarker", "OFMarker", "IFMarkInt", "OFMarkInt")
"""Keys of RFC 3720 that are answered Reject, the first two by No at the most (RFC 7143 13.25)."""

CERTAIN = frozenset({(Negotiation.AND, "No"), (Negotiation.OR, "Yes")})
"""Offers of a Boolean to which a reply is optional: only one outcome is possible (RFC 7143 6.2.2)."""


def format_text(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return ``key=value`` pairs, each ended by a NUL (RFC 7143 6.1)."""
    return b"".join(f"{key}={value}".encode() + b"\0" for key, value in pairs)


def parse_text(data: bytes) -> Pairs:
    """Read pairs. Raises :class:`RemoteProtocolError` if one has no ``=``, no name, or is not UTF-8.

    Empty entries are skipped, because they are padding; names over 63 bytes are an error (6.1).
    """
    pairs = []
    for piece in data.split(b"\0"):
        if not piece:
            continue
        name, equals, value = piece.partition(b"=")
        if not equals or not name or len(name) > MAX_NAME:
            raise RemoteProtocolError(f"iSCSI: {piece[:80]!r} is not key=value: {hex_short(data)}")
        try:
            pairs.append((name.decode("ascii"), value.decode("utf-8")))
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"iSCSI: {piece[:80]!r} is not text: {hex_short(data)}") from None
    return tuple(pairs)


def portal_of(address: str) -> tuple[str, int]:
    """Return host and port of a TargetAddress; without a port it is 3260 (RFC 7143 13.8).

    Raises RemoteProtocolError if it has neither a host nor an address.
    """
    portal = address.partition(",")[0]
    host, _, port = portal.rpartition(":") if not portal.endswith("]") and ":" in portal else (portal, "", "")
    number = int(port) if port.isdecimal() else PORT
    if not host or (port and not port.isdecimal()):
        raise RemoteProtocolError(f"iSCSI: TargetAddress {address!r} is not host[:port] (RFC 7143 13.8)")
    return host.strip("[]"), number


def numeric(value: str) -> int | None:
    """Read a numerical value, decimal or 0x… (RFC 7143 6.1); None if it is neither."""
    text, base = (value[2:], 16) if value[:2] in {"0x", "0X"} else (value, 10)
    digits = "0123456789abcdefABCDEF" if base == 16 else "0123456789"
    return int(text, base) if text and len(text) <= 40 and all(c in digits for c in text) else None


def binary(value: str) -> bytes | None:
    """Read a hex-constant 0x… or base64-constant 0b… (RFC 7143 6.1); None if it is neither."""
    try:
        if value[:2] in {"0x", "0X"}:
            return bytes.fromhex(value[2:] if len(value) % 2 == 0 else "0" + value[2:])
        if value[:2] in {"0b", "0B"}:
            return base64.b64decode(value[2:], validate=True)
    except (ValueError, binascii.Error):
        return None
    return None


def short_binary(value: str) -> int | None:
    """Read a regular-binary-value: decimal, 0x…, or 0b… in base64 (RFC 7143 6.1); None if it is none."""
    number, data = numeric(value), binary(value)
    return number if number is not None or data is None else int.from_bytes(data, "big")


def is_legal_value(key: TextKey, value: str) -> bool:
    """Return whether ``value`` is legal for ``key`` (ranges and words of section 13; else any text)."""
    if key.numeric:
        number = numeric(value)
        return number is not None and key.low <= number <= key.high
    if key.negotiation is Negotiation.LIST:
        return bool(value) and all(value.split(","))
    return not key.words or value in key.words


def negotiated_reply(key: TextKey, proposed: str, own: str) -> str:
    """Return the reply to ``proposed`` of a responder whose value is ``own`` (RFC 7143 6.2.1, 6.2.2).

    For a list, ``own`` is the responder's comma-separated list; without a common value the reply is Reject.
    """
    if not is_legal_value(key, proposed):
        return REJECT
    match key.negotiation:
        case Negotiation.LIST:
            supported = own.split(",")
            return next((word for word in proposed.split(",") if word in supported), REJECT)
        case Negotiation.MINIMUM | Negotiation.MAXIMUM:
            pick = min if key.negotiation is Negotiation.MINIMUM else max
            return str(pick(numeric(proposed) or 0, numeric(own) or 0))
        case Negotiation.AND:
            return "Yes" if proposed == own == "Yes" else "No"
        case Negotiation.OR:
            return "Yes" if "Yes" in (proposed, own) else "No"
    return own


def is_legal_reply(key: TextKey, proposed: str, replied: str) -> bool:
    """Return whether ``replied`` is legal after ``proposed``, whatever value the responder has."""
    if replied == REJECT:
        return True
    if replied == IRRELEVANT:
        return key.negotiation is not Negotiation.DECLARE
    if not is_legal_value(key, replied):
        return False
    match key.negotiation:
        case Negotiation.LIST:
            return replied in proposed.split(",")
        case Negotiation.MINIMUM:
            return (numeric(replied) or 0) <= (numeric(proposed) or 0)
        case Negotiation.MAXIMUM:
            return (numeric(replied) or 0) >= (numeric(proposed) or 0)
        case Negotiation.AND:
            return proposed == "Yes" or replied == "No"
        case Negotiation.OR:
            return proposed == "No" or replied == "Yes"
    return True


def is_first_burst_irrelevant(replied: Mapping[str, str]) -> bool:
    """Return whether a target may answer FirstBurstLength with Irrelevant (13.14).

    It may if its other replies are InitialR2T=Yes, which needs no reply, and ImmediateData=No.
    """
    return replied.get("InitialR2T", "Yes") == "Yes" and replied.get("ImmediateData") == "No"


def outcome(offered: Iterable[tuple[str, str]], replied: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values in use after a login in which the initiator ``offered`` and the target ``replied``.

    The responder's reply is the result (6.2.2). If the target proposed a key that the initiator did not
    offer, the initiator's value is the default, and both compute the result. Declarations are the target's.
    Reject, Irrelevant and NotUnderstood leave the default. A Boolean whose outcome is certain needs no reply
    (:data:`CERTAIN`).
    """
    own = dict(offered)
    result = {name: key.default for name, key in KEYS.items() if key.default is not None}
    result |= {
        name: value
        for name, value in own.items()
        if name in KEYS and (KEYS[name].negotiation, value) in CERTAIN
    }
    for name, value in replied:
        key = KEYS.get(name)
        if key is None or value in {REJECT, IRRELEVANT, NOT_UNDERSTOOD}:
            continue
        if key.negotiation is Negotiation.DECLARE or name in own:
            result[name] = value
        elif is_legal_value(key, value):
            result[name] = negotiated_reply(key, value, key.default or "")
    return result
