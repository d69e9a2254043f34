"""Warnings about renamed keys, files and options that are still accepted for one release."""

from __future__ import annotations

import warnings


class StoragetestDeprecationWarning(FutureWarning):
    """A deprecated name is in use; the next release does not accept it.

    A FutureWarning, because Python shows it by default: the user wrote a file or a command, not code.
    """


def warn_renamed(kind: str, old: str, new: str, where: str) -> None:
    """Warn that ``old``, a ``kind`` such as "key", is renamed to ``new``; ``where`` is its location."""
    message = f"{where}: the {kind} {old} is deprecated and will be removed in the next release. Use {new}."
    warnings.warn(message, StoragetestDeprecationWarning, stacklevel=2)
