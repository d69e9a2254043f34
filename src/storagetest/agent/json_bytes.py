"""Encode bytes in JSON and decode them: the format of a syscall session's requests and results.

A value is a JSON value, or bytes, which become ``{"bytes": base64 of zlib}``. Tests mostly write repeated
patterns, so a MiB takes a kilobyte in a message.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any


def encode_bytes(value: Any) -> Any:  # noqa: ANN401  # any value
    """Return ``value`` with all bytes encoded."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(zlib.compress(bytes(value), 1)).decode()}
    if isinstance(value, (list, tuple)):
        return [encode_bytes(item) for item in value]
    if isinstance(value, dict):
        return {name: encode_bytes(item) for name, item in value.items()}
    return value


def decode_bytes(value: Any) -> Any:  # noqa: ANN401  # any value
    """Return the value that :func:`encode_bytes` has encoded. Raises :class:`ValueError`."""
    if isinstance(value, list):
        return [decode_bytes(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {"bytes"}:
            try:
                return zlib.decompress(base64.b64decode(value["bytes"], validate=True))
            except (zlib.error, TypeError) as error:
                raise ValueError(f"invalid encoded bytes: {error}") from None
        return {name: decode_bytes(item) for name, item in value.items()}
    return value
