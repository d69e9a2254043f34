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
def unless_serial(session: Initiator, others: Iterable[Initiator]) -> Iterator[None]:
    """Skip if the body, of ``session``, is not answered while a task of one of ``others`` is outstanding.

    A unit may serve one nexus after the other, for example while a write waits for its data. It serves the
    session when the connections of the others are closed; if it does not, the timeout is the failure.
    """
    try:
        yield
    except ResponseTimeout:
        waiting = [one for one in others if one is not session and one.validator.has_outstanding_tasks]
        if not waiting:
            raise
        for one in waiting:
            one.logged_in = False
            one.link.close()
        if session.receive() is None:
            raise
        pytest.skip("the unit serves no other nexus while a task waits for its data")


def skip_if_serial(session: Initiator) -> None:
    """Skip if a write waits for its data, and the target serves nothing else until they come."""
    if session.probe_alive().unresponsive:
        pytest.skip("the target answers no ping while a write waits for its data")
