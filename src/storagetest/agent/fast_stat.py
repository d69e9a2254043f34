"""stat(2) without Python's result of twenty numbers, which takes long to make.

``stat(name, PLACE)`` is false when the call succeeded; why it did not, ``os.stat(name)`` raises. The call is
C's, with the interpreter's lock held: a worker has one thread, and giving the lock away and taking it back
is a tenth of the time. Where the C library cannot be called, :func:`os.stat` does it all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["PLACE", "stat"]

PLACE: Any
stat: Callable[[bytes, Any], object]


def _slow(name: bytes, _place: object) -> bool:
    os.stat(name)
    return False


try:
    import ctypes

    _buffer = ctypes.create_string_buffer(512)  # a struct stat takes 144 bytes on x86-64, 128 on aarch64
    PLACE = ctypes.byref(_buffer)
    stat = ctypes.PyDLL(None).stat
except (ImportError, OSError, AttributeError):  # no ctypes, or a glibc before 2.33, which has no such symbol
    stat, PLACE = _slow, None
