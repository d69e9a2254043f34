"""Keys, signatures, encryption and the hash of pre-authentication integrity (MS-SMB2 3.1.4, 3.1.5)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM
from cryptography.hazmat.primitives.cmac import CMAC

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import Cipher, Dialect, Flags, Signing, SmbCommand

TRANSFORM_ID = b"\xfdSMB"
"""The first bytes of an encrypted message (2.2.41)."""

TRANSFORM_SIZE = 52
"""Bytes of the transform header (2.2.41)."""

_SIGNATURE = slice(48, 64)


def derive(key: bytes, label: bytes, context: bytes, *, bits: int = 128) -> bytes:
    """Return a key of SP800-108's counter mode with HMAC-SHA256 (3.1.4.2); ``label`` without its zero."""
    data = (1).to_bytes(4, "big") + label + b"\0" + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.new(key, data, hashlib.sha256).digest()[: bits // 8]


def next_hash(value: bytes, message: bytes) -> bytes:
    """Return the hash of pre-authentication integrity after ``message`` (3.1.4.4.1)."""
    return hashlib.sha512(value + message).digest()


@dataclass(frozen=True, slots=True)
class SmbKeys:
    """The keys of a session or of one of its channels; ``encrypt`` is the client's direction."""

    signing: bytes
    encrypt: bytes = b""
    decrypt: bytes = b""


def session_keys(session_key: bytes, dialect: int, preauth: bytes, cipher: int) -> SmbKeys:
    """Return the keys of a session (3.2.5.3.1); ``preauth`` counts from dialect 3.1.1 on."""
    key = session_key[:16].ljust(16, b"\0")
    if dialect < Dialect.SMB_3_0:
        return SmbKeys(key)
    bits = 256 if cipher in (Cipher.AES_256_CCM, Cipher.AES_256_GCM) else 128
    full = session_key if bits == 256 else key
    if dialect < Dialect.SMB_3_1_1:
        return SmbKeys(
            derive(key, b"SMB2AESCMAC", b"SmbSign\0"),
            derive(key, b"SMB2AESCCM", b"ServerIn \0"),
            derive(key, b"SMB2AESCCM", b"ServerOut\0"),
        )
    return SmbKeys(
        derive(key, b"SMBSigningKey", preauth),
        derive(full, b"SMBC2SCipherKey", preauth, bits=bits),
        derive(full, b"SMBS2CCipherKey", preauth, bits=bits),
    )


def signature(message: bytes, key: bytes, algorithm: int) -> bytes:
    """Return the signature of ``message``, whose own signature field counts as zero (3.1.4.1)."""
    data = message[:48] + bytes(16) + message[64:]
    if algorithm == Signing.HMAC_SHA256:
        return hmac.new(key, data, hashlib.sha256).digest()[:16]
    if algorithm == Signing.AES_CMAC:
        cmac = CMAC(algorithms.AES(key))
        cmac.update(data)
        return cmac.finalize()
    flags = int.from_bytes(message[16:20], "little")
    is_cancel = int.from_bytes(message[12:14], "little") == SmbCommand.CANCEL
    role = bool(flags & Flags.RESPONSE) | is_cancel << 1
    nonce = message[24:32] + int(role).to_bytes(4, "little")
    return AESGCM(key).encrypt(nonce, b"", data)


def sign(message: bytes, key: bytes, algorithm: int) -> bytes:
    """Return ``message`` with the flag SIGNED and its signature."""
    flags = int.from_bytes(message[16:20], "little") | Flags.SIGNED
    flagged = message[:16] + int(flags).to_bytes(4, "little") + message[20:]
    return flagged[:48] + signature(flagged, key, algorithm) + flagged[64:]


def is_signed_right(message: bytes, key: bytes, algorithm: int) -> bool:
    """Whether the signature is that of ``message``."""
    return hmac.compare_digest(message[_SIGNATURE], signature(message, key, algorithm))


def _aead(cipher: int, key: bytes) -> AESGCM | AESCCM:
    return AESGCM(key) if cipher in (Cipher.AES_128_GCM, Cipher.AES_256_GCM) else AESCCM(key)


def nonce_size(cipher: int) -> int:
    """Return the bytes of the nonce: 12 for GCM, 11 for CCM (2.2.41)."""
    return 12 if cipher in (Cipher.AES_128_GCM, Cipher.AES_256_GCM) else 11


def encrypt(message: bytes, key: bytes, cipher: int, session_id: int, nonce: bytes) -> bytes:
    """Return ``message`` behind a transform header (3.1.4.3); ``nonce`` has :func:`nonce_size` bytes."""
    header = (
        nonce.ljust(16, b"\0")
        + len(message).to_bytes(4, "little")
        + bytes(2)
        + b"\x01\0"
        + session_id.to_bytes(8, "little")
    )
    sealed = _aead(cipher, key).encrypt(nonce, message, header)
    return TRANSFORM_ID + sealed[-16:] + header + sealed[:-16]


def transform_session(data: bytes) -> int:
    """Return the session id of an encrypted message. Raises RemoteProtocolError."""
    if len(data) < TRANSFORM_SIZE or data[:4] != TRANSFORM_ID:
        raise RemoteProtocolError(f"SMB2: no transform header (2.2.41): {hex_short(data)}")
    return int.from_bytes(data[44:52], "little")


def decrypt(data: bytes, key: bytes, cipher: int) -> bytes:
    """Return the message in ``data``. Raises :class:`RemoteProtocolError` if it is not authentic."""
    transform_session(data)
    header, sealed = data[20:TRANSFORM_SIZE], data[TRANSFORM_SIZE:] + data[4:20]
    if int.from_bytes(data[36:40], "little") != len(data) - TRANSFORM_SIZE:
        raise RemoteProtocolError(
            f"SMB2: OriginalMessageSize is not the size of what follows (2.2.41): {hex_short(data)}"
        )
    try:
        return _aead(cipher, key).decrypt(data[20 : 20 + nonce_size(cipher)], sealed, header)
    except InvalidTag:
        raise RemoteProtocolError(
            f"SMB2: an encrypted message does not authenticate with the session's key (3.1.4.3): "
            f"{hex_short(data)}"
        ) from None
