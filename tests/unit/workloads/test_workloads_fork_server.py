"""The fork server with small constants: it gives an agent time to remove its files, and it does not spin."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import storagetest
from storagetest.errors import WorkloadError
from storagetest.hosts import Host, LocalHost
from storagetest.polling import wait_until
from storagetest.workloads._agent import fork_server, run
from storagetest.workloads._agent.fork_server import ForkServer
from storagetest.workloads._agent.run import run_agent

# It reads what the packed agent reads (length, zip, request), but runs the modules of the source tree.
BOOTSTRAP = f"""
import os, select, sys, time, types
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
sys.path.insert(0, {str(Path(storagetest.__file__).parents[1])!r})
from storagetest.agent import command_context, fsutil
from storagetest.agent.commands import fork_server
from storagetest.agent.worker_pool import CommandError
from storagetest.agent.__main__ import main
{{changes}}
sys.exit(main())
"""

LATE_WITH_FILES = """
def late(request, job):
    job.remove_at_end(os.fsencode(request["path"]))
    raise CommandError("deadline", "late")
sys.modules["storagetest.agent.commands.late"] = types.SimpleNamespace(run=late)
fork_server._GRACE, command_context._CLEANUP_TURN = 0.1, 0.02
remove_at_once = fsutil.removal
"""

SLOWLY = """
def slowly(path):
    for _ in remove_at_once(path):
        time.sleep(0.02)
        yield
fsutil.removal = slowly
"""

NEVER = """
command_context.CLEANUP_STALL = 0.2
def never(path):
    time.sleep(600)
    yield
fsutil.removal = never
"""

COUNT_POLLS = """
class Poll:
    def __init__(self):
        self.real = select.poll()
        self.register = self.real.register
    def poll(self, timeout):
        with open({counts!r}, "a") as file:
            file.write(".")
        return self.real.poll(timeout)
fork_server.select = types.SimpleNamespace(poll=Poll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)
"""


@pytest.fixture
def host() -> Iterator[Host]:
    with LocalHost() as host:
        host.expensive_exec = True
        yield host


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that has the next fork server run with changed modules."""

    def change(text: str) -> None:
        monkeypatch.setattr(fork_server, "ARGV", (sys.executable, "-c", BOOTSTRAP.format(changes=text)))
        monkeypatch.setattr(run, "_LATER", 0.2)
        monkeypatch.setattr(run, "_EXIT_TIMEOUT", 1.0)

    return change


def made(directory: Path, count: int) -> Path:
    directory.mkdir()
    for number in range(count):
        (directory / str(number)).touch()
    return directory


def test_an_agent_past_its_deadline_removes_all_its_files(
    host: Host, changed: Callable[[str], None], tmp_path: Path
) -> None:
    changed(LATE_WITH_FILES + SLOWLY)
    files = made(tmp_path / "files", 100)  # removed in 4 s: without progress it would be killed after 0.4 s
    with pytest.raises(WorkloadError, match="late"):
        run_agent(host, {"command": "late", "path": str(files)}, deadline=0.1)
    assert not files.exists()


def test_a_removal_that_makes_no_progress_ends_with_the_error_of_the_agent(
    host: Host, changed: Callable[[str], None], tmp_path: Path
) -> None:
    changed(LATE_WITH_FILES + NEVER)
    with pytest.raises(WorkloadError, match="late"):
        run_agent(host, {"command": "late", "path": str(made(tmp_path / "files", 1))}, deadline=0.1)


def test_a_program_that_has_closed_its_streams_does_not_wake_the_fork_server(
    host: Host, changed: Callable[[str], None], tmp_path: Path
) -> None:
    counts, closed, end = tmp_path / "counts", tmp_path / "closed", tmp_path / "end"
    changed(COUNT_POLLS.format(counts=str(counts)))
    assert host.resource(ForkServer).available()
    script = f"exec >&- 2>&-; : >{closed}; while [ ! -e {end} ]; do sleep 0.05; done"
    with ThreadPoolExecutor() as threads:
        threads.submit(host.run, ["sh", "-c", script], deadline=60.0)
        try:
            wait_until(closed.exists, 30, "the program to close its streams", interval=0.01)
            before = counts.stat().st_size
            for _ in range(5):
                host.run(["sleep", "0.2"], deadline=60)
            assert counts.stat().st_size - before < 200  # a loop that spins polls thousands of times a second
        finally:
            end.touch()
