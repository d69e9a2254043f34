"""Settings of all of the project's own tests, and the option ``--changed``."""

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy is no reason for a test to fail.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

# A shell that starts this run in the background ignores SIGINT for it and its children. Tests of Ctrl-C need
# children that do not: at an execve(2) the kernel resets a handler, but keeps an ignored signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent / "kits"))  # importlib mode leaves sys.path alone

_REACHED = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--changed", metavar="COMMIT", help="run only the test files that the changes since COMMIT reach"
    )


def pytest_configure(config: pytest.Config) -> None:
    if since := config.getoption("--changed"):
        from reach import reached_by  # only with the option

        config.stash[_REACHED] = reached_by(since)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out test files that are not reached."""
    reached = config.stash.get(_REACHED, None)
    if reached is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return True if collection_path not in reached else None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A change that no test file imports is not an error."""
    if _REACHED in session.config.stash and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
