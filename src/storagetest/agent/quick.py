"""stat(2) without Python's result of twenty numbers, which takes longer to make than the call itself.

``stat(name, PLACE)`` is 0 when the call succeeded; :func:`complain` raises why it did not. Where the C
library cannot be called, :func:`os.stat` does it, more slowly.
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["PLACE", "complain", "stat"]

stat: Callable[[bytes, int], int]


def _slow(name: bytes, _place: int) -> int:
    os.stat(name)
    return 0


def complain(name: bytes) -> None:
    """Raise the :class:`OSError` of the last call that failed."""
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), name)


try:
    import ctypes

    _buffer = ctypes.create_string_buffer(512)  # a struct stat takes 144 bytes on x86-64, 128 on aarch64
    PLACE = ctypes.addressof(_buffer)
    stat = ctypes.CDLL(None, use_errno=True).stat
    stat.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
except (ImportError, OSError, AttributeError):  # no ctypes, or a glibc before 2.33, which has no such symbol
    stat, PLACE = _slow, 0
