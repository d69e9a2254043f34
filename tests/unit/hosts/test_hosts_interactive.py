"""Interactive processes on every kind of host: lines, errors, and the end of all processes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from storagetest.errors import CommandEnded, DeadlineExceeded, HostError
from storagetest.hosts import Host
from storagetest.polling import wait_until

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


def test_reading_from_an_ended_command_is_an_error_but_sending_is_not(host: Host) -> None:
    with host.interactive_exec(["true"], deadline=DEADLINE) as process:
        with pytest.raises(HostError, match="status 0"):
            process.read_line(20)
        process.send_line("x" * 100_000)
        with pytest.raises(HostError, match="status 0"):
            process.read_line(20)


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
