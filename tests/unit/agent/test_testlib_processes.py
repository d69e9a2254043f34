"""Whether another process waits for a lock is seen, and not guessed from the time that has passed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storagetest.agent.testlib import CannotRun, SubprocessCall, processes, run_as_user


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


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs as another user")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Make a directory that other users can enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@needs_root
def test_directory_that_is_closed_above_the_targets_is_named(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = open_directory / "closed"
    (closed / "target").mkdir(parents=True)
    closed.chmod(0o700)
    monkeypatch.setattr(processes, "target_path", str(closed / "target"))
    with pytest.raises(CannotRun, match=f"other users cannot enter {closed},"), run_as_user(54321, 54321):
        pytest.fail("not skipped")
    assert os.geteuid() == 0
    closed.chmod(0o755)
    with run_as_user(54321, 54321):
        assert os.geteuid() == 54321


@needs_root
def test_targets_own_directory_is_the_matter_of_the_case(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (open_directory / "target").mkdir(mode=0o700)
    monkeypatch.setattr(processes, "target_path", str(open_directory / "target"))
    with run_as_user(54321, 54321), pytest.raises(PermissionError):
        list((open_directory / "target").iterdir())
