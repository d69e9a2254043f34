"""Commands that a target cannot take now: beyond its window (RFC 7143 4.2.2.1), or BUSY (SAM-5 5.3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from storagetest.wire.iscsi.initiator import NOT_EXECUTED, Initiator
from storagetest.wire.tcp import ResponseTimeout


def with_room(session: Initiator, count: int) -> None:
    """Ping, whose response has the window; skip if the target takes fewer than ``count`` commands."""
    session.ping()
    if session.window < count:
        pytest.skip(f"the target takes {session.window} commands now, not {count}")


def skip_if_busy(*statuses: int) -> None:
    """Skip if one of several outstanding commands was not executed: BUSY or TASK SET FULL (SAM-5 5.3.1)."""
    if busy := [status for status in statuses if status in NOT_EXECUTED]:
        pytest.skip(f"the target executes {len(statuses) - len(busy)} of {len(statuses)} commands: {busy}")


@contextmanager
def unless_serial(others: Iterable[Initiator]) -> Iterator[None]:
    """Skip if the body is not answered while a write of one of ``others``, other nexuses, waits for its data.

    A unit may serve one nexus after the other.
    """
    try:
        yield
    except ResponseTimeout:
        if any(one.validator.has_outstanding_tasks for one in others):
            pytest.skip("the unit serves no other nexus while a write waits for its data")
        raise


def skip_if_serial(session: Initiator) -> None:
    """Skip if a write waits for its data, and the target serves nothing else until they come."""
    if session.probe_alive().unresponsive:
        pytest.skip("the target answers no ping while a write waits for its data")
