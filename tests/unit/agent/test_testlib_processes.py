"""Whether another process waits for a lock is seen, and not guessed from the time that has passed."""

from __future__ import annotations

import fcntl
from pathlib import Path

from storagetest.agent.testlib import SubprocessCall


def test_call_that_waits_for_a_lock_is_blocked(tmp_path: Path) -> None:
    path = tmp_path / "f"

    def wait() -> None:
        with path.open("wb") as mine:
            fcntl.lockf(mine, fcntl.LOCK_EX)

    with path.open("wb") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        other = SubprocessCall(wait, [])
        assert other.is_blocked(fcntl.F_SETLKW, tmp_path)
    assert other.result(within=60) is None


def test_call_that_waits_for_nothing_is_not(tmp_path: Path) -> None:
    other = SubprocessCall(lambda: "ended", [])
    assert not other.is_blocked(fcntl.F_SETLKW, tmp_path, within=60)
    assert other.result(within=60) == "ended"
