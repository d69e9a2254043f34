"""Warnings about renamed keys, files and options that are still accepted for one release."""

from __future__ import annotations

import warnings

__all__ = ["StoragetestDeprecationWarning", "warn_renamed"]


class StoragetestDeprecationWarning(FutureWarning):
    """Something still works, and stops working in the next release.

    A FutureWarning, because Python shows it by default: the reader wrote a file or a command, not code.
    """


def warn_renamed(kind: str, old: str, new: str, where: str) -> None:
    """Warn that ``old``, a ``kind`` such as "key", is now called ``new``; ``where`` is its place."""
    message = f"{where}: the {kind} {old} is deprecated and goes with the next release. Use {new}."
    warnings.warn(message, StoragetestDeprecationWarning, stacklevel=2)
