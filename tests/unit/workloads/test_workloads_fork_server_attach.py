"""Agents forked by a client's fork server: output, errors, timeouts, and the end of all their processes."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from processes import wait_until_gone

from storagetest.counters.cpu import parse_stat
from storagetest.errors import DeadlineExceeded, HostError, NotInstalled, WorkloadError
from storagetest.hosts import Host, LocalHost
from storagetest.hosts.base import Completed
from storagetest.hosts.fast_exec import Readings, Surroundings
from storagetest.polling import wait_until
from storagetest.workloads._agent.fork_server import AgentChannel, ForkServer
from storagetest.workloads._agent.run import open_agent_session, run_agent, terminate_agent
from storagetest.workloads._fio.job import FioJob
from storagetest.workloads._fio.run import run_fio

SLEEPER = "import os, sys, time; os.setsid(); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def host() -> Iterator[Host]:
    before = leftover_directories()
    with LocalHost() as host:
        yield host
    assert leftover_directories() <= before


def leftover_directories() -> set[str]:
    """Return the directories in memory of ended programs (those of concurrent tests still run)."""
    directories = {path.name for path in Path("/dev/shm").glob("storagetest-program-*")}
    return {name for name in directories if not Path("/proc", name.split("-")[2]).exists()}


def sleeper(pid_file: Path) -> tuple[str, ...]:
    """Return a command with a child that leaves its session and writes its process id to ``pid_file``."""
    child = f'python3 -c "{SLEEPER}" {pid_file}'
    return "sh", "-c", f"{child} & pwd > {pid_file}.cwd; echo $PPID > {pid_file}.parent; sleep 600"


def measure(
    host: Host, *argv: str, deadline: float = 30.0, **surroundings: tuple[str, ...]
) -> tuple[Completed, Readings]:
    """Run a measured command by the fork server."""
    assert host.resource(ForkServer).available()
    measured = host.run_measured(argv, deadline=deadline, surroundings=Surroundings(**surroundings))
    assert measured is not None
    return measured


def run(host: Host, *argv: str, deadline: float = 30.0) -> Completed:
    return measure(host, *argv, deadline=deadline)[0]


def pid_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text(), 20, f"a pid in {path}", interval=0.02))


def test_output_counters_and_files_of_a_command_are_returned(host: Host, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("1\n")
    script = f"echo output; echo error >&2; echo 2 > {counter}; echo left > a.log; pwd > cwd; exit 3"
    done, read = measure(
        host,
        "sh",
        "-c",
        script,
        counters=(f"{tmp_path}/count*", "/nowhere/*/stat"),
        files=("a.log", "cwd", "no.log"),
    )
    assert (done.status, done.stdout, done.stderr) == (3, "output\n", "error\n")
    assert (read.before, read.after) == ({str(counter): "1\n"}, {str(counter): "2\n"})
    directory = read.files["cwd"].strip()
    assert read.files == {"a.log": "left\n", "cwd": f"{directory}\n"}
    assert not Path(directory).exists()
    assert run(host, "pwd").stdout.strip() not in {directory, str(Path.cwd())}


def test_the_next_command_does_not_start_in_the_directory_of_a_measured_one(host: Host) -> None:
    measured = run(host, "pwd").stdout
    assert host.run(["pwd"], deadline=10.0).stdout == f"{Path.cwd()}\n" != measured


def test_the_status_after_a_signal_is_that_of_a_shell(host: Host) -> None:
    assert run(host, "sh", "-c", "kill -KILL $$").status == 128 + signal.SIGKILL


def test_a_missing_program_is_not_installed(host: Host) -> None:
    with pytest.raises(NotInstalled, match="`storagetest-no-such-program` is not installed"):
        run(host, "storagetest-no-such-program")


def test_a_measured_command_is_not_run_without_a_fork_server(host: Host, tmp_path: Path) -> None:
    surroundings = Surroundings()
    made = ["touch", str(tmp_path / "made")]
    assert host.run_measured(made, deadline=10.0, surroundings=surroundings) is None
    assert not (tmp_path / "made").exists()


def ancestors(host: Host) -> tuple[int, int]:
    """Return the process ids of an agent and of the fork server."""
    host.expensive_exec = True
    request = {"command": "start_barrier", "path": "its barrier"}
    with open_agent_session(host, request, deadline=60) as session:
        session.read_line(20)
        server = parent_of_a_command(host)
        agents = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return int(agents[0]), server


def test_one_fork_server_forks_all_agents(host: Host) -> None:
    agents, servers = zip(*(ancestors(host) for _ in range(3)), strict=True)
    assert len(set(agents)) == 3
    assert len(set(servers)) == 1


def test_a_program_past_its_deadline_is_killed_with_its_children(host: Host, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match=r"localhost: `sh -c .*did not end within 2 s and was killed"):
        run(host, *sleeper(tmp_path / "pid"), deadline=2.0)
    wait_until_gone(pid_in(tmp_path / "pid"))
    assert run(host, "echo", "on").stdout == "on\n"


def test_an_interrupt_ends_the_program_on_the_client(
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
    wait_until_gone(pid_in(tmp_path / "pid"))
    assert run(host, "echo", "on").stdout == "on\n"


def test_a_measured_command_ends_when_the_fork_server_is_killed(host: Host, tmp_path: Path) -> None:
    def kill_when_it_sleeps() -> None:
        pid_in(tmp_path / "pid")
        os.kill(pid_in(tmp_path / "pid.parent"), signal.SIGKILL)

    with ThreadPoolExecutor() as threads, pytest.raises(HostError, match=r"its fork server ended .* 137"):
        threads.submit(kill_when_it_sleeps)
        run(host, *sleeper(tmp_path / "pid"))
    assert run(host, "echo", "on").stdout == "on\n"  # by a new fork server
    wait_until_gone(pid_in(tmp_path / "pid"))
    shutil.rmtree(Path((tmp_path / "pid.cwd").read_text().strip()), ignore_errors=True)  # a SIGKILL leaves it


def test_the_fork_server_survives_when_an_agent_is_killed(host: Host) -> None:
    host.expensive_exec = True
    request = {"command": "start_barrier", "path": "its barrier"}
    with pytest.raises(HostError), open_agent_session(host, request, deadline=60) as session:
        directory = json.loads(session.read_line(20))["directory"]
        server = parent_of_a_command(host)
        for agent in Path(f"/proc/{server}/task/{server}/children").read_text().split():
            os.kill(int(agent), signal.SIGKILL)
        session.read_line(20)
    assert parent_of_a_command(host) == server
    shutil.rmtree(directory, ignore_errors=True)


def test_agents_run_concurrently(host: Host, tmp_path: Path) -> None:
    wait = f"echo 1 > {tmp_path}/pid; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"
    with ThreadPoolExecutor() as threads:
        long = threads.submit(run, host, "sh", "-c", wait)
        pid_in(tmp_path / "pid")
        assert run(host, "touch", str(tmp_path / "end")).status == 0
        assert long.result(30).status == 0


def test_large_output_is_complete(host: Host) -> None:
    assert (
        run(host, "sh", "-c", "yes 0123456789abcde | head -n 400000").stdout == "0123456789abcde\n" * 400_000
    )


def test_an_interactive_agent_runs_with_other_agents(host: Host) -> None:
    host.expensive_exec = True
    request = {"command": "start_barrier", "path": "its barrier"}
    with open_agent_session(host, request, deadline=60) as session:
        directory = Path(json.loads(session.read_line(20))["directory"])
        assert directory.is_dir()
        assert run(host, "echo", "concurrent").stdout == "concurrent\n"
    assert not directory.exists()


def test_an_invalid_request_is_an_error(host: Host) -> None:
    host.expensive_exec = True
    with pytest.raises(WorkloadError, match="unknown command 'nonsense'"):
        run_agent(host, {"command": "nonsense", "path": "nothing"}, deadline=10)
    assert run(host, "echo", "on").stdout == "on\n"


def test_the_fork_server_ends_with_the_host(tmp_path: Path) -> None:
    with LocalHost() as host:
        pids = ancestors(host)
    wait_until_gone(*pids)


def test_a_host_that_is_closed_does_not_wait_for_its_program(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        with LocalHost() as host:
            waiting = threads.submit(run, host, *sleeper(tmp_path / "pid"), deadline=600.0)
            pid = pid_in(tmp_path / "pid")
        assert waiting.result(60).status == 128 + signal.SIGTERM
    wait_until_gone(pid)


def test_terminate_agent_ends_an_agent(host: Host) -> None:
    host.expensive_exec = True
    request = {"command": "sample_counters", "path": "counters", "interval": 60, "paths": ["/proc/uptime"]}
    terminated: list[int] = []

    def on_line(line: str) -> None:
        if pid := json.loads(line).get("pid"):
            terminated.append(pid)
            threading.Thread(target=terminate_agent, args=(host, pid), kwargs={"deadline": 20.0}).start()

    assert run_agent(host, request, deadline=600, on_line=on_line).extra["count"] == 1
    assert len(terminated) == 1


def test_a_stopped_fork_server_delays_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    reaped: list[str] = []  # a reap would need another command on the stopped host
    monkeypatch.setattr(LocalHost, "_reap", lambda _, token: reaped.append(token))
    with LocalHost() as host:
        fork_server = ancestors(host)[1]
        os.kill(fork_server, signal.SIGSTOP)
        with pytest.raises(HostError, match=r"did not respond within 0\.2 s"):
            terminate_agent(host, 1, deadline=0.2)
    assert not reaped
    wait_until_gone(fork_server)


def test_a_client_without_python_has_no_fork_server(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    no_python = Mock(side_effect=NotInstalled("localhost: `python3` is not installed"))
    monkeypatch.setattr(host, "interactive_exec", no_python)
    host.expensive_exec = True
    fork_server = ForkServer(host)
    assert not fork_server.available()
    assert fork_server.start_program({"command": "run_program"}, deadline=10.0) is None
    assert host.shortcut is None


def parent_of_a_command(host: Host) -> int:
    return int(host.run(["sh", "-c", "cut -d' ' -f4 /proc/$$/stat"], deadline=10.0).stdout)


def test_the_fork_server_is_the_hosts_shortcut_until_it_is_closed(host: Host) -> None:
    fork_server = host.resource(ForkServer)
    assert host.shortcut is None
    assert fork_server.available()
    server = parent_of_a_command(host)
    assert parent_of_a_command(host) == server
    host.close()
    assert host.shortcut is None
    assert parent_of_a_command(host) != server


def test_a_lost_fork_server_is_no_shortcut(host: Host) -> None:
    assert host.resource(ForkServer).available()
    pid = parent_of_a_command(host)
    with pytest.raises(HostError, match=r"its fork server ended .* 137 while running `sh"):
        host.run(["sh", "-c", f"kill -KILL {pid}; sleep 60"], deadline=60.0)
    assert parent_of_a_command(host) != pid


def test_closing_the_host_ends_a_running_command(host: Host, tmp_path: Path) -> None:
    assert host.resource(ForkServer).available()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(host.run, sleeper(tmp_path / "pid"), deadline=60.0)
        left_its_session = pid_in(tmp_path / "pid")
        host.close()
        assert "exited 143" in str(waiting.exception(20.0))  # 128 + SIGTERM
    wait_until_gone(left_its_session)


def ticks(texts: Mapping[str, str]) -> int:
    return parse_stat(texts["/proc/stat"]).total


@pytest.mark.parametrize("remote", [False, True])
def test_fio_measures_the_same_with_the_fork_server(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    host.expensive_exec = remote
    if remote:  # the fork server starts fio, and no shell
        assert host.resource(ForkServer).available()
        monkeypatch.setattr(host, "run", Mock(side_effect=AssertionError("another command was run")))
    job = FioJob(
        name="load", filename=str(tmp_path / "f"), size=1 << 20, rw="randwrite", block_size=4096,
        queue_depth=1, engine="psync", ramp=0.0, runtime=1.0, direct=False, log_interval=0.25, create=True,
    )  # fmt: skip
    done = run_fio(host, job, deadline=60.0)
    assert done.result.ios > 0
    assert done.cpu is not None
    assert 0.9 < done.counted.seconds < 30.0
    assert ticks(done.counted.after) > ticks(done.counted.before)
    assert done.series
    assert done.began is not None


def test_missing_fio_is_an_error_with_the_fork_server(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.expensive_exec = True
    monkeypatch.setattr(
        host, "run_measured", Mock(side_effect=NotInstalled("localhost: `fio` is not installed"))
    )
    job = FioJob(name="load", filename="/dev/null", size=4096, rw="read", block_size=4096)
    with pytest.raises(Exception, match="fio is missing: install the package fio"):
        run_fio(host, job, deadline=10.0)
