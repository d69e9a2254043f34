"""A session's one look at a target: what fails is a failure once, and the reason of every skip after it.

A session-scoped fixture makes a :class:`Look`; the cases call :meth:`Look.get`. The first case that needs a
look that failed raises its exception: a violation by the target is a failure, any other exception an error.
The other cases that need it are skipped *because of that failure*. So a target that cannot be looked at never
gives a run in which everything was skipped and nothing failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.plugin.conformance.odd_data import UNREADABLE, describe

T = TypeVar("T")


class Look(Generic[T]):
    """The result of ``look``, which is called once and at once. ``subject`` names it in messages.

    If the look ``after`` has no result, ``look`` is not called, and the failure is that of ``after``.
    ``look`` calls :func:`pytest.skip`, or raises :class:`NotOffered`, if the target is sound, but its cases
    cannot run: then all are skipped.
    """

    def __init__(self, subject: str, look: Callable[[], T], *, after: Look[Any] | None = None) -> None:
        self._subject = subject
        self._after = after if after is not None and after.result is None else None
        self._failed_in = ""
        self._result: tuple[T] | None = None
        self._skip_reason = ""
        self._error: Exception | None = None
        if self._after is not None:
            return
        try:
            self._result = (look(),)
        except (pytest.skip.Exception, NotOffered) as skip:
            self._skip_reason = str(skip)
        except UNREADABLE as error:
            self._error = RemoteProtocolError(f"{subject} {describe(error)}")
        except Exception as error:  # raised in the first case that needs the result
            self._error = error

    @property
    def result(self) -> T | None:
        """The result, or None if there is none; reports nothing."""
        return self._result[0] if self._result else None

    @property
    def error(self) -> Exception | None:
        """Why the look failed, or None; reports nothing."""
        return self._error

    def get(self) -> T:
        """Return the result; if there is none, fail the first case that calls this, and skip the others."""
        if self._result is not None:
            return self._result[0]
        if self._after is not None:
            self._after.get()
        if self._error is None:
            pytest.skip(self._skip_reason)
        case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if self._failed_in in ("", case):
            self._failed_in = case
            raise self._error
        reason = str(self._error).partition("\n")[0] or type(self._error).__name__
        pytest.skip(f"{self._subject} failed in {self._failed_in.rpartition('::')[2]}: {reason}")
