from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from storagetest.errors import DeadlineExceeded, HostError, NotInstalled, WorkloadError
from storagetest.hosts import Host, InteractiveProcess, LocalHost
from storagetest.workloads._agent.fork_server import AgentChannel, ForkServer
from storagetest.workloads._agent.program import ProgramResult, run_program
from storagetest.workloads._agent.run import open_agent_session, run_agent, terminate_agent
from storagetest.workloads._fio.job import FioJob
from storagetest.workloads._fio.run import run_fio

SLEEPER = "import os, sys, time; os.setsid(); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def host() -> Iterator[Host]:
    before = left()
    with LocalHost() as host:
        yield host
    assert left() <= before


def left() -> set[str]:
    """The directories in memory of programs that are no more (those of tests beside this one live)."""
    made = {path.name: path.name.split("-")[2] for path in Path("/dev/shm").glob("storagetest-program-*")}
    return {name for name, pid in made.items() if not Path("/proc", pid).exists()}


def sleeper(told: Path) -> tuple[str, ...]:
    """A command with a child that leaves its session, and writes its process id to ``told``."""
    return (
        "sh",
        "-c",
        f'python3 -c "{SLEEPER}" {told} & echo $PPID > {told}.parent; pwd > {told}.place; sleep 600',
    )


def run(host: Host, *argv: str, deadline: float = 30.0, **more: tuple[str, ...]) -> ProgramResult:
    host.expensive_exec = True
    ran = run_program(host, argv, deadline=deadline, **more)
    assert ran is not None
    return ran


def until_gone(pid: int) -> bool:
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def pid_in(path: Path) -> int:
    end = time.monotonic() + 20.0
    while not (path.exists() and path.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    return int(path.read_text())


def test_what_a_command_says_and_leaves_comes_back(host: Host, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("1\n")
    script = f"echo said; echo complained >&2; echo 2 > {counter}; echo left > a.log; pwd > place; exit 3"
    ran = run(host, "sh", "-c", script, count=(f"{tmp_path}/count*",), files=("a.log", "place", "no.log"))
    assert (ran.status, ran.out, ran.err) == (3, "said\n", "complained\n")
    assert (ran.before, ran.after) == ({str(counter): "1\n"}, {str(counter): "2\n"})
    place = ran.files["place"].strip()
    assert ran.files == {"a.log": "left\n", "place": f"{place}\n"}
    assert not Path(place).exists()


def test_a_signal_is_told_as_a_shell_tells_it(host: Host) -> None:
    assert run(host, "sh", "-c", "kill -KILL $$").status == 128 + signal.SIGKILL


def test_a_program_that_is_not_there_is_told(host: Host) -> None:
    host.expensive_exec = True
    assert run_program(host, ["storagetest-no-such-program"], deadline=10.0) is None


def forebears(host: Host) -> tuple[int, int]:
    """Return the process ids of an agent and of whom it was forked from."""
    said = run(host, "sh", "-c", "echo $PPID; cut -d' ' -f4 /proc/$PPID/stat").out.split()
    return int(said[0]), int(said[1])


def test_one_attendant_forks_all_agents(host: Host) -> None:
    agents, servers = zip(*(forebears(host) for _ in range(3)), strict=True)
    assert len(set(agents)) == 3
    assert len(set(servers)) == 1


def test_what_is_late_is_killed_with_all_that_it_started(host: Host, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match=r"localhost: `sh -c .*did not end within 2 s and was killed"):
        run(host, *sleeper(tmp_path / "pid"), deadline=2.0)
    assert until_gone(pid_in(tmp_path / "pid"))
    assert run(host, "echo", "on").out == "on\n"


def test_an_interrupt_here_ends_the_program_there(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(host, "true").status == 0

    def interrupted(_self: AgentChannel, _deadline: float) -> bytes:
        pid_in(tmp_path / "pid")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(AgentChannel, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(host, *sleeper(tmp_path / "pid"))
    assert until_gone(pid_in(tmp_path / "pid"))
    assert run(host, "echo", "on").out == "on\n"


def when_it_sleeps(tmp_path: Path, kill: Callable[[int], int]) -> threading.Thread:
    """Once the sleeper is there, SIGKILL the process that ``kill`` names, given the agent's id."""

    def act() -> None:
        pid_in(tmp_path / "pid")
        os.kill(kill(pid_in(tmp_path / "pid.parent")), signal.SIGKILL)

    killer = threading.Thread(target=act)
    killer.start()
    return killer


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_attendant_that_is_killed_takes_its_agents_along(host: Host, tmp_path: Path) -> None:
    killer = when_it_sleeps(tmp_path, parent_of)
    with pytest.raises(HostError, match=r"the agent was lost: .*ended unexpectedly"):
        run(host, *sleeper(tmp_path / "pid"))
    killer.join()
    assert until_gone(pid_in(tmp_path / "pid"))
    assert run(host, "echo", "on").out == "on\n"  # by a new one, which is asked for only now
    shutil.rmtree(
        Path((tmp_path / "pid.place").read_text().strip()), ignore_errors=True
    )  # a SIGKILL leaves it


def test_an_agent_that_is_killed_leaves_the_others_alone(host: Host, tmp_path: Path) -> None:
    fork_server = forebears(host)[1]
    killer = when_it_sleeps(tmp_path, lambda agent: agent)
    with pytest.raises(WorkloadError, match="ended without a result: it was killed"):
        run(host, *sleeper(tmp_path / "pid"))
    killer.join()
    assert forebears(host)[1] == fork_server
    shutil.rmtree(Path((tmp_path / "pid.place").read_text().strip()))
    host.close()
    assert until_gone(pid_in(tmp_path / "pid"))  # what it had started ends with the fork_server


def test_agents_run_side_by_side(host: Host, tmp_path: Path) -> None:
    wait = f"echo 1 > {tmp_path}/pid; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"
    long = threading.Thread(target=run, args=(host, "sh", "-c", wait))
    long.start()
    pid_in(tmp_path / "pid")
    assert run(host, "touch", str(tmp_path / "end")).status == 0
    long.join(30)
    assert not long.is_alive()


def test_much_that_is_said_comes_whole(host: Host) -> None:
    said = run(host, "sh", "-c", "yes 0123456789abcde | head -n 400000").out
    assert said == "0123456789abcde\n" * 400_000


def test_a_conversation_goes_both_ways(host: Host) -> None:
    host.expensive_exec = True
    request = {"command": "start_barrier", "path": "its door"}
    with open_agent_session(host, request, deadline=60) as talk:
        place = Path(json.loads(talk.read_line(20))["directory"])
        assert place.is_dir()
        assert run(host, "echo", "beside it").out == "beside it\n"
    assert not place.exists()


def test_what_is_wrong_with_a_request_is_said(host: Host) -> None:
    host.expensive_exec = True
    with pytest.raises(WorkloadError, match="unknown command 'nonsense'"):
        run_agent(host, {"command": "nonsense", "path": "nothing"}, deadline=10)
    assert run(host, "echo", "on").out == "on\n"


def test_it_ends_with_the_host(tmp_path: Path) -> None:
    with LocalHost() as host:
        pids = forebears(host)
    assert all(until_gone(pid) for pid in pids)


def test_a_host_that_is_closed_does_not_wait_for_its_program(tmp_path: Path) -> None:
    ended: list[BaseException] = []

    def waits(host: Host) -> None:
        try:
            run(host, *sleeper(tmp_path / "pid"), deadline=600.0)
        except (HostError, WorkloadError) as error:
            ended.append(error)

    with LocalHost() as host:
        waiting = threading.Thread(target=waits, args=(host,))
        waiting.start()
        pid = pid_in(tmp_path / "pid")
    waiting.join(60)
    assert not waiting.is_alive()
    assert ended
    assert until_gone(pid)


def test_an_agent_is_told_to_end(host: Host) -> None:
    host.expensive_exec = True
    request = {
        "command": "sample_counters",
        "path": "its counters",
        "interval": 60,
        "paths": ["/proc/uptime"],
    }
    told: list[int] = []

    def hear(line: str) -> None:
        pid = json.loads(line).get("pid")
        if pid:
            told.append(pid)
            threading.Thread(target=terminate_agent, args=(host, pid), kwargs={"deadline": 20.0}).start()

    assert run_agent(host, request, deadline=600, on_line=hear).extra["count"] == 1
    assert len(told) == 1


def test_an_attendant_that_falls_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reaped: list[str] = []  # which is done after waiting in vain, by another command on the silent host
    monkeypatch.setattr(LocalHost, "_reap", lambda _, token: reaped.append(token))
    with LocalHost() as host:
        fork_server = forebears(host)[1]
        os.kill(fork_server, signal.SIGSTOP)
        with pytest.raises(HostError, match=r"did not respond within 0\.2 s"):
            terminate_agent(host, 1, deadline=0.2)
    assert not reaped
    assert until_gone(fork_server)


def test_a_client_without_python_has_none(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_python(*_: object, **__: object) -> Iterator[InteractiveProcess]:
        raise NotInstalled("localhost: `python3` is not installed")
        yield

    monkeypatch.setattr(host, "converse", no_python)
    host.expensive_exec = True
    fork_server = ForkServer(host)
    assert not fork_server.available()
    assert fork_server.start_program({"command": "run_program"}, deadline=10.0) is None
    assert host.shortcut is None


def test_it_is_the_hosts_shortcut_until_it_is_closed(host: Host) -> None:
    fork_server = host.resource(ForkServer)
    assert host.shortcut is None
    assert fork_server.available()
    parent = ["sh", "-c", "cut -d' ' -f4 /proc/$$/stat"]
    ours = int(host.run(parent, deadline=10.0).stdout)
    assert int(host.run(parent, deadline=10.0).stdout) == ours
    host.close()
    assert host.shortcut is None
    assert int(host.run(parent, deadline=10.0).stdout) != ours


def test_one_that_is_lost_is_no_shortcut(host: Host) -> None:
    assert host.resource(ForkServer).available()
    parent = ["sh", "-c", "cut -d' ' -f4 /proc/$$/stat"]
    pid = int(host.run(parent, deadline=10.0).stdout)
    with pytest.raises(HostError, match=r"its fork server ended .* 137 while running `sh"):
        host.run(["sh", "-c", f"kill -KILL {pid}; sleep 60"], deadline=60.0)
    assert int(host.run(parent, deadline=10.0).stdout) != pid


def test_a_command_that_is_under_way_when_it_is_closed_ends(host: Host, tmp_path: Path) -> None:
    assert host.resource(ForkServer).available()
    told = tmp_path / "told"
    failed: list[Exception] = []

    def wait() -> None:
        try:
            host.run(sleeper(told), deadline=60.0)
        except HostError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    left_its_session = pid_in(told)
    host.close()
    waiting.join(20.0)
    assert "exited 143" in str(failed[0])  # it has been told to end, and has said so
    assert until_gone(left_its_session)


@pytest.mark.parametrize("far", [False, True])
def test_fio_measures_the_same_by_it_as_by_the_script(host: Host, tmp_path: Path, far: bool) -> None:
    host.expensive_exec = far  # a client over SSH is
    job = FioJob(
        name="load", filename=str(tmp_path / "f"), size=1 << 20, rw="randwrite", block_size=4096,
        queue_depth=1, engine="psync", ramp=0.0, runtime=1.0, direct=False, log_interval=0.25, create=True,
    )  # fmt: skip
    done = run_fio(host, job, deadline=60.0)
    assert done.result.ios > 0
    assert done.cpu is not None
    assert 0.9 < done.counted.seconds < 30.0
    before, after = (_ticks(texts) for texts in (done.counted.before, done.counted.after))
    assert after > before
    assert done.series
    assert done.began is not None


def test_fio_that_is_missing_is_told_by_it_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.expensive_exec = True
    monkeypatch.setattr("storagetest.workloads._fio.run.run_program", lambda *_, **__: None)
    job = FioJob(name="load", filename="/dev/null", size=4096, rw="read", block_size=4096)
    with pytest.raises(Exception, match="fio is missing: install the package fio"):
        run_fio(host, job, deadline=10.0)


def _ticks(texts: Mapping[str, str]) -> int:
    return sum(int(word) for word in texts["/proc/stat"].splitlines()[0].split()[1:])
