"""What every kind of host keeps to; interactive programs, and a node of a Slurm job."""

import os
import secrets
import shlex
import signal
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from storagetest.config.models import HostConfig
from storagetest.errors import CommandEnded, DeadlineExceeded, HostError, NotInstalled
from storagetest.hosts import Host, LocalHost, SlurmHost, _output, _supervised_host
from storagetest.hosts.connect import connect
from storagetest.measure.run import Sample
from storagetest.polling import wait_until
from storagetest.runner.start_barriers import StartBarrier
from storagetest.runner.synchronized_start import run_synchronized
from storagetest.workloads._fio.job import barrier_option


def test_a_command_receives_its_arguments_unchanged(host: Host) -> None:
    words = ["a b", "$HOME", "'", '"', "*", "", "\\", "new\nline", "ü", "!x"]
    done = host.run(["printf", "[%s]\n", *words], deadline=20)
    assert done.stdout == "".join(f"[{word}]\n" for word in words)
    assert (done.status, done.ok, done.stderr, done.host) == (0, True, "", "client1")


def test_failure_names_host_command_status_and_stderr(host: Host) -> None:
    with pytest.raises(HostError, match=r"(?s)client1: `sh -c .*` exited 3:\nno such volume"):
        host.run(["sh", "-c", "echo no such volume >&2; exit 3"], deadline=20)
    done = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"], deadline=20, check=False)
    assert (done.status, done.stdout, done.stderr) == (3, "out\n", "err\n")


@pytest.mark.parametrize("check", [True, False])
def test_a_command_that_is_not_installed_is_an_error(host: Host, check: bool) -> None:
    with pytest.raises(NotInstalled, match=r"client1: `no-such-tool` is not installed \(not on PATH"):
        host.run(["no-such-tool", "--version"], deadline=20, check=check)


def test_a_file_that_is_not_executable_is_an_error(host: Host) -> None:
    with pytest.raises(HostError, match="`/etc/passwd` cannot be executed"):
        host.run(["/etc/passwd"], deadline=20, check=False)


@pytest.mark.parametrize(("script", "status"), [("no-such-tool", 127), ("exit 124", 124)])
def test_a_status_of_a_shell_or_of_timeout_is_an_ordinary_status(
    host: Host, script: str, status: int
) -> None:
    assert host.run(["sh", "-c", script], deadline=60, check=False).status == status


def test_has_searches_sbin(host: Host) -> None:
    assert host.has("cat")
    assert not host.has("no-such-tool")
    assert "/usr/sbin" in host.run(["sh", "-c", "echo $PATH"], deadline=20).stdout.strip().split(":")


def test_read_returns_text_or_none(host: Host) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.read("/proc/sys/kernel/random/boot_id") == boot_id
    assert host.read("/no/such/file") is None


def test_environment_and_locale(host: Host) -> None:
    assert host.run(["sh", "-c", 'echo "$A|$LC_ALL"'], deadline=20, env={"A": "x y'$"}).stdout == "x y'$|C\n"


def test_the_environment_of_a_local_host_is_in_no_command_line() -> None:
    secret = secrets.token_hex(8)
    find = 'printf %s "$SECRET" | grep -alf - /proc/[0-9]*/cmdline; echo "$SECRET"'
    with LocalHost(environment={"SECRET": secret}) as host:
        assert host.run(["sh", "-c", find], deadline=20).stdout == f"{secret}\n"
        done = host.run(["sh", "-c", find], deadline=20, env={"SECRET": secret})
        assert "/cmdline" in done.stdout  # that of `env` is: the search does find it


def test_stdin_can_be_larger_than_any_buffer(host: Host) -> None:
    data = b"0123456789abcdef" * (6 << 16)
    assert host.run(["cat"], deadline=60, stdin=data).stdout.encode() == data


def test_unread_stdin_is_no_error(host: Host) -> None:
    assert host.run(["true"], deadline=20, stdin=b"x" * (8 << 20)).ok


def test_output_on_both_streams_does_not_deadlock(host: Host) -> None:
    script = "head -c 8000000 /dev/zero >&2; head -c 8000000 /dev/zero; head -c 8000000 /dev/zero >&2"
    done = host.run(["sh", "-c", script], deadline=60)
    assert (len(done.stdout), len(done.stderr)) == (8_000_000, 16_000_000)


def test_output_that_is_not_utf8_is_replaced(host: Host) -> None:
    lines: list[str] = []
    done = host.run(["printf", r"a\377b\nc\303\274"], deadline=20, on_line=lines.append)
    assert done.stdout == "a\ufffdb\ncü"
    assert lines == ["a\ufffdb", "cü"]


def test_lines_arrive_while_the_command_runs(host: Host, tmp_path: Path) -> None:
    """The command continues only after its first line has been received."""
    observed: list[str] = []

    def on_line(line: str) -> None:
        observed.append(line)
        (tmp_path / "go").touch()

    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.05; done; echo second; printf third'
    host.run(["sh", "-c", script, "x", str(tmp_path / "go")], deadline=30, on_line=on_line)
    assert observed == ["first", "second", "third"]


def test_too_much_output_is_an_error_and_ends_the_command(host: Host, marker, running, monkeypatch) -> None:
    monkeypatch.setattr(_output, "OUTPUT_LIMIT", 1 << 20)
    with pytest.raises(HostError, match="printed more than 1 MiB and was killed"):
        host.run(["yes", marker], deadline=60)
    assert running(marker) == []


def test_deadline_ends_the_whole_process_group(host: Host, marker, running) -> None:
    script = f"echo working on it; sh -c 'sleep 300; : {marker}' & sleep 300; : {marker}"
    with pytest.raises(
        DeadlineExceeded, match=r"(?s)client1: `sh -c .* within 1 s and was killed.*working on it"
    ):
        host.run(["sh", "-c", script], deadline=1)
    assert running(marker) == []


@pytest.mark.usefixtures("short_grace")
def test_deadline_ends_processes_that_ignore_sigterm_or_left_the_session(host: Host, marker, running) -> None:
    stubborn = f"trap '' TERM; while :; do sleep 0.2; done; : {marker}"
    with pytest.raises(DeadlineExceeded, match="and was killed"):
        host.run(["sh", "-c", f'setsid sh -c "$1" & {stubborn}', "x", stubborn], deadline=1)
    assert running(marker) == []


def test_deadline_ends_processes_that_the_supervisor_left(host: Host, marker, running, monkeypatch) -> None:
    """Under load the supervisor's attempts may all end too early."""
    script = _supervised_host._SUPERVISE
    monkeypatch.setattr(_supervised_host, "_SUPERVISE", script.replace("reap 10", ": reap"))
    with pytest.raises(DeadlineExceeded, match="and was killed"):
        host.run(["sh", "-c", f"setsid sh -c 'sleep 300; : {marker}' & sleep 300; : {marker}"], deadline=1)
    assert running(marker) == []


@pytest.mark.parametrize(("ended", "state"), [(False, "still runs"), (None, "may still run")])
def test_a_command_that_may_still_run_is_reported(
    local_host: LocalHost, monkeypatch, ended: bool | None, state: str
) -> None:
    monkeypatch.setattr(local_host, "_reap", lambda _: ended)
    with pytest.raises(DeadlineExceeded, match=f"did not end within 0.1 s .*{state}"):
        local_host.run(["sleep", "300"], deadline=0.1)


def test_a_command_that_has_not_started_yet_is_killed(
    local_host: LocalHost, marker, running, monkeypatch, tmp_path: Path
) -> None:
    """The supervisor runs, but `timeout` has not started the command, so nothing has the run's mark."""
    slow = tmp_path / "timeout"
    slow.write_text(f"#!/bin/sh\n: >{tmp_path}/started\nsleep 300\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    argv = _supervised_host.supervised(["sh", "-c", f": {marker}"], "0123456789abcdef" * 2, 200.0, {})
    with subprocess.Popen(argv, start_new_session=True) as process:
        wait_until((tmp_path / "started").exists, 30, "the slow timeout(1)", interval=0.01)
        assert local_host._reap("0123456789abcdef" * 2)
        assert running(marker) == []
        process.wait(30)


def test_a_deadline_of_zero_starts_nothing(host: Host, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="was not started"):
        host.run(["touch", str(tmp_path / "started")], deadline=0)
    assert not (tmp_path / "started").exists()


def test_an_error_in_on_line_ends_the_command(host: Host, marker, running) -> None:
    def on_line(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.run(["sh", "-c", f"echo x; sleep 300; : {marker}"], deadline=200, on_line=on_line)
    assert running(marker) == []


def test_run_does_not_wait_for_a_daemon_that_keeps_stdout_open(host: Host, marker, running) -> None:
    """The command itself has ended long before its deadline."""
    if isinstance(host, SlurmHost) and host.shortcut is None:
        pytest.xfail("a step ends for srun when no process on the node has its stdout open")
    done = host.run(["sh", "-c", f"sh -c 'sleep 30; : {marker}' & echo up"], deadline=300)
    for process in running(marker):
        os.kill(int(process.partition(":")[0]), signal.SIGKILL)
    assert done.stdout == "up\n"
    assert done.seconds < 25


def test_several_threads_at_once(host: Host) -> None:
    def work(number: int) -> list[str]:
        command = ["sh", "-c", f"sleep 0.1; echo {number}"]
        return [host.run(command, deadline=60).stdout for _ in range(3)]

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(work, range(12))) == [[f"{number}\n"] * 3 for number in range(12)]


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_push_and_pull_keep_every_byte(host: Host, tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    path = tmp_path / "some where" / "ü" / "file"
    host.push(data, str(path), mode=0o640)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert host.pull(str(path)) == data
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_push_replaces_a_file_as_a_whole(host: Host, tmp_path: Path) -> None:
    """A process that has the old file open still reads the old content."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        host.push(b"brand new", str(path))
        assert reader.read() == b"old"
    assert path.read_bytes() == b"brand new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_push_is_visible_only_when_whole_and_with_its_mode(host: Host, tmp_path: Path) -> None:
    """A poller of the name never sees an incomplete file or another mode."""
    path = tmp_path / "file"
    observed: set[tuple[int, int]] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            if path.exists():
                status = path.stat()
                observed.add((status.st_size, stat.S_IMODE(status.st_mode)))

    with ThreadPoolExecutor() as threads:
        threads.submit(watch)
        try:
            host.push(bytes(4 << 20), str(path), mode=0o604)
            wait_until(lambda: observed, 10, "the watcher to see the file")
        finally:
            stop.set()
    assert observed == {(4 << 20, 0o604)}


def test_push_and_pull_report_the_cause_of_a_failure(host: Host, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"client1: cannot read /no/such/file: .*No such file"):
        host.pull("/no/such/file")
    with pytest.raises(HostError, match=r"client1: cannot write /dev/null/x: "):
        host.push(b"x", "/dev/null/x")
    with pytest.raises(HostError, match=rf"(?s)cannot write {tmp_path}: "):
        host.push(b"x", str(tmp_path))
    assert list(tmp_path.parent.glob("*.part")) == []
    with pytest.raises(HostError, match="must be absolute"):
        host.push(b"x", "relative")


def test_stdin_is_in_no_command_line(host: Host, marker, running, tmp_path: Path) -> None:
    """The command lines are read while the command runs."""
    observed: list[list[str]] = []
    script = "read -r secret; echo ready; read -r more; echo $secret | wc -c"
    done = host.run(
        ["sh", "-c", script],
        deadline=30,
        stdin=f"{marker}\nmore\n".encode(),
        on_line=lambda _: observed.append(running(marker)),
    )
    assert done.stdout == f"ready\n{len(marker) + 1}\n"
    assert observed == [[], []]


def test_close_can_be_called_twice(host: Host) -> None:
    host.close()
    host.close()


DEADLINE = 60


def test_lines_are_sent_and_received(host: Host) -> None:
    with host.interactive_exec(["cat"], deadline=DEADLINE) as process:
        for line in ("one", "", "zwei, größer", "x" * 300_000):
            process.send_line(line)
            assert process.read_line(20) == line


def test_several_lines_at_once_are_read_one_by_one(host: Host) -> None:
    argv = ["sh", "-c", "printf 'a\\nb\\nc'; printf 'd\\n'; cat"]
    with host.interactive_exec(argv, deadline=DEADLINE) as process:
        assert [process.read_line(20) for _ in range(3)] == ["a", "b", "cd"]


def test_first_is_sent_unchanged(host: Host) -> None:
    argv = ["sh", "-c", "head -c 3 | od -An -tx1; cat"]
    with host.interactive_exec(argv, deadline=DEADLINE, first=b"\0\xff\n") as process:
        assert process.read_line(20).split() == ["00", "ff", "0a"]


def test_a_command_ends_at_the_end_of_its_stdin(host: Host, tmp_path) -> None:
    end = tmp_path / "end"
    with host.interactive_exec(["sh", "-c", f"cat; echo bye >{end}"], deadline=DEADLINE) as process:
        process.send_line("x")
        assert process.read_line(20) == "x"
    assert end.read_text() == "bye\n"


def test_a_read_that_times_out_does_not_end_the_process(host: Host) -> None:
    with host.interactive_exec(["sh", "-c", "read x; echo $x"], deadline=DEADLINE) as process:
        with pytest.raises(DeadlineExceeded, match=r"client1: `sh .*` printed nothing for 0\.2 s"):
            process.read_line(0.2)
        process.send_line("here")
        assert process.read_line(20) == "here"


@pytest.mark.parametrize(
    ("argv", "deadline", "message"),
    [
        (["sh", "-c", "printf half; echo oh >&2; exit 3"], DEADLINE,
         r"(?s)ended unexpectedly with status 3; its unfinished last line is 'half'.*oh"),
        (["no-such-tool"], DEADLINE, "`no-such-tool` is not installed"),
        (["sleep", "1000"], 0.3, "status 124"),
    ],
    ids=["ended", "not installed", "past its deadline"],
)  # fmt: skip
def test_a_process_that_ends_early_is_an_error(
    host: Host, argv: list[str], deadline: float, message: str
) -> None:
    with pytest.raises(HostError, match=message), host.interactive_exec(argv, deadline=deadline) as process:
        process.read_line(30)


@pytest.mark.parametrize("kind", ["local_host", "ssh_host"])  # srun waits for the end of a step's stdout
def test_an_end_is_noticed_although_a_daemon_keeps_stdout_open(request, kind: str, marker, running) -> None:
    host = request.getfixturevalue(kind)
    argv = ["sh", "-c", f"sh -c 'sleep 300; : {marker}' & echo up; exit 3"]
    with host.interactive_exec(argv, deadline=DEADLINE) as process:
        assert process.read_line(20) == "up"
        with pytest.raises(CommandEnded, match="status 3"):
            process.read_line(20)
        assert running(marker) != []
        for line in running(marker):
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)


def test_too_much_stderr_of_an_interactive_process_is_an_error(host: Host, monkeypatch) -> None:
    monkeypatch.setattr(_output, "OUTPUT_LIMIT", 1 << 20)
    script = "head -c 2000000 /dev/zero >&2; read line"
    started = host.interactive_exec(["sh", "-c", script], deadline=DEADLINE)
    with started as process, pytest.raises(HostError, match="printed more than 1 MiB"):
        process.read_line(20)


def test_reading_from_an_ended_command_is_an_error_but_sending_is_not(host: Host) -> None:
    with host.interactive_exec(["true"], deadline=DEADLINE) as process:
        with pytest.raises(HostError, match="status 0"):
            process.read_line(20)
        process.send_line("x" * 100_000)
        with pytest.raises(HostError, match="status 0"):
            process.read_line(20)


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("error", [None, KeyboardInterrupt, AssertionError])
def test_command_that_ignores_stdin_is_killed_with_its_children(host: Host, marker, running, error) -> None:
    script = f"trap '' TERM; setsid sh -c 'sleep 1000 # {marker}' & while :; do sleep 1; done # {marker}"
    started_at = time.monotonic()
    try:
        with host.interactive_exec(["sh", "-c", script], deadline=DEADLINE):
            wait_until(lambda: running(marker), 20, "the command to run")
            if error:
                raise error  # noqa: TRY301  # this is the test
    except BaseException as raised:
        assert type(raised) is error
    wait_until(lambda: not running(marker), 20, "the command and its supervisor to end")
    assert time.monotonic() - started_at < DEADLINE - 10


def test_a_lost_connection_is_an_error_and_ends_the_command(ssh_host, sshd, marker, running) -> None:
    argv = ["sh", "-c", f"echo up; sleep 1000 # {marker}"]
    with (
        pytest.raises(HostError, match=r"connection to .* lost"),
        ssh_host.interactive_exec(argv, deadline=DEADLINE) as process,
    ):
        assert process.read_line(20) == "up"
        sshd.signal_connections(signal.SIGKILL)
        process.read_line(20)
    assert ssh_host.run(["true"], deadline=20).ok  # reconnects, and ends the lost command
    wait_until(lambda: not running(marker), 20, "the command to end")


def test_each_node_is_a_separate_host(slurm, slurm_host):
    for number in range(2):
        with SlurmHost(f"client{number}", number, job=slurm.job) as host:
            assert host.run(["printenv", "SLURMD_NODENAME"], deadline=60).stdout == f"n{number}\n"


def test_the_default_job_is_the_current_one(slurm, slurm_host, monkeypatch):
    config = HostConfig("node", "slurm", node=0)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with (
        connect(config) as host,
        pytest.raises(HostError, match="node: no Slurm job: run pytest within"),
    ):
        host.run(["true"], deadline=60)
    monkeypatch.setenv("SLURM_JOB_ID", str(slurm.job))
    with connect(config) as host:
        assert host.run(["printenv", "SLURMD_NODENAME"], deadline=60).stdout == "n0\n"


@pytest.mark.parametrize(("job", "node"), [(999999, 0), (0, 7)])
def test_a_missing_job_or_node_is_a_host_error(slurm, slurm_host, job, node):
    with (
        SlurmHost("client9", node, job=job or slurm.job) as host,
        pytest.raises(HostError, match="client9: no step"),
    ):
        host.run(["true"], deadline=60)


def test_no_step_is_left_after_a_deadline(slurm, slurm_host, marker, running):
    with pytest.raises(DeadlineExceeded):
        slurm_host.run(["sh", "-c", f"sleep 600; : {marker}"], deadline=1)
    assert not running(marker)

    def only_the_job() -> bool:
        steps = slurm.output("squeue", "--steps", "--noheader", "--format=%i").split()
        return all(step.endswith((".extern", ".interactive")) for step in steps)

    wait_until(only_the_job, 60, "the end of all steps", interval=0.2)


def test_loads_on_the_nodes_start_at_the_same_time(slurm, slurm_host):
    with ExitStack() as stack:
        hosts = [stack.enter_context(SlurmHost(f"c{number}", number, job=slurm.job)) for number in range(2)]
        barriers = [stack.enter_context(StartBarrier(host)) for host in hosts]

        def load(barrier: StartBarrier):
            def run(start) -> Sample:
                (option,) = barrier_option(start.directory, 1)
                script = f"sh -c {shlex.quote(option.removeprefix('--exec_prerun='))}; cat /proc/uptime"
                uptime = barrier.host.run(["sh", "-c", script], deadline=60).stdout
                return Sample({}, 0.1, 1, evidence={"up": uptime})

            return run

        runs = run_synchronized(barriers, [load(barrier) for barrier in barriers])
    assert [run.client for run in runs] == ["c0", "c1"]
    assert all(float(run.sample.evidence["up"].split()[0]) >= run.instant - 0.05 for run in runs)
    assert all(abs(run.clock.wall - (time.time() - time.monotonic())) < 5 for run in runs)
