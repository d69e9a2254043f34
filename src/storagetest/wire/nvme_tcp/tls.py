"""PSKs and identities of TLS 1.3 over NVMe/TCP (TCP Transport 1.0, section 3.6.1). Sans-I/O: no handshake.

Theory: an administrator configures one PSK on both sides (its text format: 3.6.1.5). A *retained* PSK is
derived from it with the host's NQN, unless the text marks it as a retained one. For each hash of a cipher
suite a *TLS PSK* and its *identity* are derived from that with both NQNs (3.6.1.3).

Rules:

1. No repr and no message contains a key.
2. Identities end without the NUL that 3.6.1.3 counts as their last element: every implementation omits it
   from the handshake and from the derivation.
3. Version 1 of the identity (``NVMe1…``, with a digest of the PSK) is of revision 1.1 of the standard. It
   follows libnvme, whose published vectors are in the tests, and was not checked against the text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
import zlib
from dataclasses import dataclass, field
from enum import Enum

from storagetest.errors import ConfigError

PREFIX = "NVMeTLSkey-1"


class PskHash(Enum):
    """A hash function: its specifier (3.6.1.3, 3.6.1.5), hashlib's name, and its TLS 1.3 cipher suite."""

    SHA256 = ("01", "sha256", "TLS_AES_128_GCM_SHA256", 0x1301)
    SHA384 = ("02", "sha384", "TLS_AES_256_GCM_SHA384", 0x1302)

    def __init__(self, specifier: str, algorithm: str, suite: str, number: int) -> None:
        self.specifier, self.algorithm, self.suite, self.number = specifier, algorithm, suite, number

    @property
    def size(self) -> int:
        """Length of the digest in bytes."""
        return hashlib.new(self.algorithm).digest_size


@dataclass(frozen=True, slots=True)
class ConfiguredPsk:
    """A configured PSK (3.6.1.5). ``hash`` None: it is a retained PSK already."""

    key: bytes = field(repr=False)
    hash: PskHash | None = None

    @classmethod
    def decode(cls, text: str) -> ConfiguredPsk:
        """Read ``NVMeTLSkey-1:xx:<Base64>:``. Raises :class:`ConfigError`, whose text omits the key."""
        parts = text.strip().split(":")
        if len(parts) != 4 or parts[0] != PREFIX or parts[3]:
            raise ConfigError(
                f"a TLS key has the form {PREFIX}:xx:<Base64>: (NVMe/TCP 3.6.1.5); this one has not"
            )
        hashes = {"00": None} | {known.specifier: known for known in PskHash}
        if parts[1] not in hashes:
            raise ConfigError(f"a TLS key's hash is 00, 01 or 02 (NVMe/TCP 3.6.1.5), not {parts[1]!r:.20}")
        try:
            raw = base64.b64decode(parts[2], validate=True)
        except binascii.Error as error:
            raise ConfigError(f"a TLS key is not Base64 (NVMe/TCP 3.6.1.5): {error}") from None
        key, crc = raw[:-4], raw[-4:]
        if len(key) not in (32, 48):
            raise ConfigError(f"a TLS key has 32 or 48 bytes (NVMe/TCP 3.6.1.5), not {len(key)}")
        if struct.pack("<I", zlib.crc32(key)) != crc:
            raise ConfigError("a TLS key's CRC-32 does not match, so it is not used (NVMe/TCP 3.6.1.5)")
        return cls(key, hashes[parts[1]])

    def encode(self) -> str:
        """Return the text that :meth:`decode` reads."""
        raw = self.key + struct.pack("<I", zlib.crc32(self.key))
        specifier = self.hash.specifier if self.hash else "00"
        return f"{PREFIX}:{specifier}:{base64.b64encode(raw).decode()}:"


@dataclass(frozen=True, slots=True)
class TlsKey:
    """Parameters of a TLS 1.3 handshake: a PSK, its identity and its hash."""

    identity: str
    key: bytes = field(repr=False)
    hash: PskHash = PskHash.SHA256


def tls_key(
    psk: ConfiguredPsk, hostnqn: str, subnqn: str, *, psk_hash: PskHash = PskHash.SHA256, version: int = 0
) -> TlsKey:
    """Return the key that ``hostnqn`` uses with ``subnqn`` and a cipher suite of ``psk_hash`` (3.6.1.3)."""
    retained = retained_psk(psk, hostnqn)
    digest = psk_digest(retained, hostnqn, subnqn, psk_hash) if version else ""
    name = identity(hostnqn, subnqn, psk_hash, digest=digest)
    return TlsKey(
        name, tls_psk(retained, f"{psk_hash.specifier} {digest}" if version else name, psk_hash), psk_hash
    )


def retained_psk(psk: ConfiguredPsk, hostnqn: str) -> bytes:
    """Derive the retained PSK: as long as the configured one, with the hash of its text."""
    if psk.hash is None:
        return psk.key
    return _expand(_extract(psk.key, psk.hash), "HostNQN", hostnqn.encode(), len(psk.key), psk.hash)


def identity(hostnqn: str, subnqn: str, psk_hash: PskHash, *, digest: str = "") -> str:
    """Return the identity of a retained PSK: version 1 with a ``digest``, else version 0."""
    version = 1 if digest else 0
    return f"NVMe{version}R{psk_hash.specifier} {hostnqn} {subnqn}" + (f" {digest}" if digest else "")


def psk_digest(retained: bytes, hostnqn: str, subnqn: str, psk_hash: PskHash) -> str:
    """Return the digest at the end of an identity of version 1, in Base64."""
    message = f"{hostnqn} {subnqn} NVMe-over-Fabrics".encode()
    return base64.b64encode(hmac.digest(retained, message, psk_hash.algorithm)).decode()


def tls_psk(retained: bytes, context: str, psk_hash: PskHash) -> bytes:
    """Derive the TLS PSK; ``context`` is the identity (version 0), or hash specifier and digest (1)."""
    return _expand(_extract(retained, psk_hash), "nvme-tls-psk", context.encode(), psk_hash.size, psk_hash)


def _extract(key: bytes, psk_hash: PskHash) -> bytes:
    """HKDF-Extract(0, key) (RFC 5869, section 2.2)."""
    return hmac.digest(bytes(psk_hash.size), key, psk_hash.algorithm)


def _expand(prk: bytes, label: str, context: bytes, length: int, psk_hash: PskHash) -> bytes:
    """HKDF-Expand-Label (RFC 8446, section 7.1; RFC 5869, section 2.3)."""
    full = b"tls13 " + label.encode()
    info = struct.pack(">HB", length, len(full)) + full + bytes([len(context)]) + context
    out = block = b""
    while len(out) < length:
        block = hmac.digest(prk, block + info + bytes([len(out) // psk_hash.size + 1]), psk_hash.algorithm)
        out += block
    return out[:length]
