"""CRC32C (Castagnoli), the digest of iSCSI (RFC 7143 §13.1) and of NVMe/TCP (3.3.1.1)."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes) -> int:
    """Return the CRC32C of ``data``; both protocols put it on the wire least significant byte first."""
    value: int = google_crc32c.value(data)
    return value
