"""Bytes in JSON, both ways: the controller and the hand on a client say them to each other.

A value is what JSON knows, lists and objects of values, or bytes, which become ``{"bytes": base64 of
zlib}``: what tests write is mostly one pattern over and over, so a MiB of it is a kilobyte on the line.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

__all__ = ["decode_bytes", "encode_bytes"]


def encode_bytes(value: Any) -> Any:  # noqa: ANN401  # any value
    """Return ``value`` as JSON takes it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(zlib.compress(bytes(value), 1)).decode()}
    if isinstance(value, (list, tuple)):
        return [encode_bytes(one) for one in value]
    if isinstance(value, dict):
        return {name: encode_bytes(one) for name, one in value.items()}
    return value


def decode_bytes(value: Any) -> Any:  # noqa: ANN401  # any value
    """Return what :func:`dress` was given. Raises :class:`ValueError`."""
    if isinstance(value, list):
        return [decode_bytes(one) for one in value]
    if isinstance(value, dict):
        if set(value) == {"bytes"}:
            try:
                return zlib.decompress(base64.b64decode(value["bytes"], validate=True))
            except (zlib.error, TypeError) as error:
                raise ValueError(f"these are no bytes: {error}") from None
        return {name: decode_bytes(one) for name, one in value.items()}
    return value
