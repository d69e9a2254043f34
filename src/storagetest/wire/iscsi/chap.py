"""CHAP as iSCSI carries it (RFC 7143 12.1.3; RFC 1994; the algorithms' numbers are IANA's PPP registry)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.keys import Pairs, binary, numeric

ALGORITHMS: Mapping[int, tuple[str, int]] = {
    5: ("md5", 16),  # RFC 1994; MUST be implemented (RFC 7143 12.1.3)
    6: ("sha1", 20),
    7: ("sha256", 32),
    8: ("sha3_256", 32),
}
"""CHAP_A to hashlib's name and the length of a response in bytes."""

MAX_CHALLENGE = 1024
"""Longest CHAP_C in bytes (RFC 7143 12.1.3: binary values not over 1024 bytes)."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A peer's challenge: algorithm (CHAP_A), identifier (CHAP_I), challenge (CHAP_C)."""

    algorithm: int
    identifier: int
    challenge: bytes


def hexadecimal(data: bytes) -> str:
    """Return a hex-constant."""
    return f"0x{data.hex()}"


def response(secret: bytes, identifier: int, challenge: bytes, algorithm: int = 5) -> bytes:
    """Return the digest over identifier, secret and challenge (RFC 1994 4.1)."""
    make: Callable[..., hashlib._Hash] = getattr(hashlib, ALGORITHMS[algorithm][0])
    return make(bytes((identifier & 0xFF,)) + secret + challenge, usedforsecurity=False).digest()


def challenge_of(pairs: Pairs) -> Challenge:
    """Read CHAP_A, CHAP_I and CHAP_C. Raises :class:`RemoteProtocolError` if one is absent or invalid."""
    keys = dict(pairs)
    algorithm, identifier = numeric(keys.get("CHAP_A", "")), numeric(keys.get("CHAP_I", ""))
    challenge = binary(keys.get("CHAP_C", ""))
    if (
        algorithm not in ALGORITHMS
        or algorithm is None
        or identifier is None
        or identifier > 255
        or not challenge
    ):
        shown = {name: value[:80] for name, value in keys.items()}
        raise RemoteProtocolError(f"iSCSI: no usable CHAP challenge (CHAP_A, CHAP_I, CHAP_C) in {shown}")
    if len(challenge) > MAX_CHALLENGE:
        raise RemoteProtocolError(f"iSCSI: CHAP_C has {len(challenge)} bytes, over {MAX_CHALLENGE}")
    return Challenge(algorithm, identifier, challenge)
