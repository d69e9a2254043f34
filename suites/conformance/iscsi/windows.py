"""The command window (RFC 7143 4.2.2.1): a target may take one command at a time."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.initiator import Initiator


def with_room(session: Initiator, count: int) -> None:
    """Ping, whose response has the window; skip if the target takes fewer than ``count`` commands."""
    session.ping()
    if session.window < count:
        pytest.skip(f"the target takes {session.window} commands now, not {count}")
