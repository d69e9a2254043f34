"""A wire case that cannot read what the target sent: a failure of the target, with a sentence.

A key that is missing, a number that is none or a structure that is too short end the body of a case in a
KeyError, a ValueError or a struct.error. Such an exception in a wire case, or in a fixture of it, becomes a
:class:`~storagetest.errors.RemoteProtocolError` if the target sent anything in that case. Its message has the
line at which the case stopped.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance.cases import wire_log_of
from storagetest.plugin.items import wire_needs

UNREADABLE = (LookupError, ValueError, ArithmeticError, TypeError, AttributeError, struct.error)
"""Exceptions of Python that data of an unexpected form or length lead to."""


_PACKAGE, _STANDARD_LIBRARY = Path(__file__).parents[2], Path(struct.__file__).parent


def describe(error: Exception) -> str:
    """Return what could not be read: the exception, and the line of the suite at which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = [each for each in frames if _is_of_a_suite(Path(each.filename))][-1:] or frames[-1:]
    place = "".join(f", at {Path(each.filename).name}:{each.lineno}: {each.line}" for each in frame)
    return f"cannot be read: {type(error).__name__}: {error}{place}"


def _is_of_a_suite(file: Path) -> bool:
    if file.is_relative_to(_PACKAGE / "suites"):
        return True
    return not (file.is_relative_to(_PACKAGE) or file.is_relative_to(_STANDARD_LIBRARY))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Report what the body of a wire case could not read."""
    try:
        return (yield)
    except UNREADABLE as error:
        fault = _as_fault(pyfuncitem, error)
        if fault is None:
            raise
        raise fault from error


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Report what a fixture of a wire case could not read."""
    try:
        return (yield)
    except UNREADABLE as error:
        fault = _as_fault(request.node, error) if request.scope == "function" else None
        if fault is None:
            raise
        raise fault from error


def _as_fault(item: pytest.Item, error: Exception) -> RemoteProtocolError | None:
    """Return the fault of the target, or None if the item is no wire case or the target sent nothing."""
    if not wire_needs(item) or not wire_log_of(item).has_received():
        return None
    return RemoteProtocolError(f"what the target sent {describe(error)}")
