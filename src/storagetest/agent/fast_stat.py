"""stat(2) without building Python's result object, which takes long.

``stat(name, STAT_BUFFER)`` is false if the call succeeded; otherwise ``os.stat(name)`` raises the error. It
calls C with the interpreter lock held: a worker has one thread, and releasing and taking the lock is a tenth
of the time. If the C library cannot be called, :func:`os.stat` is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

STAT_BUFFER: Any
stat: Callable[[bytes, Any], object]


def _stat_by_os(name: bytes, _buffer: object) -> bool:
    os.stat(name)
    return False


try:
    import ctypes

    _buffer = ctypes.create_string_buffer(512)  # a struct stat takes 144 bytes on x86-64, 128 on aarch64
    STAT_BUFFER = ctypes.byref(_buffer)
    stat = ctypes.PyDLL(None).stat
except (ImportError, OSError, AttributeError):  # no ctypes, or a glibc before 2.33, which has no such symbol
    stat, STAT_BUFFER = _stat_by_os, None
