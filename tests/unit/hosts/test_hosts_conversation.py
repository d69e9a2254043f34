"""A conversation with a command, on every kind of host: what is said, what goes wrong, and what stays
behind."""

from __future__ import annotations

import signal
import time

import pytest

from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import Host
from storagetest.polling import wait_until

LIFE = 60


def test_lines_go_in_and_come_out(host: Host) -> None:
    with host.converse(["cat"], deadline=LIFE) as talk:
        for words in ("one", "", "zwei, größer", "x" * 300_000):
            talk.send_line(words)
            assert talk.read_line(20) == words


def test_several_lines_at_once_are_heard_one_by_one(host: Host) -> None:
    with host.converse(["sh", "-c", "printf 'a\\nb\\nc'; printf 'd\\n'; cat"], deadline=LIFE) as talk:
        assert [talk.read_line(20) for _ in range(3)] == ["a", "b", "cd"]


def test_what_is_said_first_are_bytes_as_they_are(host: Host) -> None:
    with host.converse(
        ["sh", "-c", "head -c 3 | od -An -tx1; cat"], deadline=LIFE, first=b"\0\xff\n"
    ) as talk:
        assert talk.read_line(20).split() == ["00", "ff", "0a"]


def test_a_command_ends_when_its_stdin_does(host: Host, tmp_path) -> None:
    end = tmp_path / "end"
    with host.converse(["sh", "-c", f"cat; echo bye >{end}"], deadline=LIFE) as talk:
        talk.send_line("x")
        assert talk.read_line(20) == "x"
    assert end.read_text() == "bye\n"


def test_silence_is_late_and_the_line_goes_on(host: Host) -> None:
    with host.converse(["sh", "-c", "read x; echo $x"], deadline=LIFE) as talk:
        with pytest.raises(DeadlineExceeded, match=r"client1: `sh .*` printed nothing for 0\.2 s"):
            talk.read_line(0.2)
        talk.send_line("here")
        assert talk.read_line(20) == "here"


def test_a_command_that_ended_says_how(host: Host) -> None:
    with (
        pytest.raises(
            HostError, match=r"(?s)ended unexpectedly with status 3; its unfinished last line is 'half'.*oh"
        ),
        host.converse(["sh", "-c", "printf half; echo oh >&2; exit 3"], deadline=LIFE) as talk,
    ):
        talk.read_line(20)


def test_to_speak_to_a_command_that_ended_is_no_error_but_to_listen_is(host: Host) -> None:
    with host.converse(["true"], deadline=LIFE) as talk:
        with pytest.raises(HostError, match="status 0"):
            talk.read_line(20)
        talk.send_line("x" * 100_000)
        with pytest.raises(HostError, match="status 0"):
            talk.read_line(20)


def test_a_command_that_is_not_installed_is_named(host: Host) -> None:
    with (
        pytest.raises(HostError, match="`no-such-tool` is not installed"),
        host.converse(["no-such-tool"], deadline=LIFE) as talk,
    ):
        talk.read_line(20)


def test_the_whole_has_a_deadline(host: Host) -> None:
    with (
        pytest.raises(HostError, match="status 124"),
        host.converse(["sleep", "1000"], deadline=0.3) as talk,
    ):
        talk.read_line(30)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, AssertionError])
def test_nothing_is_left_of_a_command_that_does_not_listen(host: Host, marker, running, error) -> None:
    script = f"trap '' TERM; setsid sh -c 'sleep 1000 # {marker}' & while :; do sleep 1; done # {marker}"
    began = time.monotonic()
    try:
        with host.converse(["sh", "-c", script], deadline=LIFE):
            wait_until(lambda: running(marker), 20, "it to run")
            if error:
                raise error  # noqa: TRY301  # this is the test
    except BaseException as raised:
        assert type(raised) is error
    wait_until(lambda: not running(marker), 20, "it and its supervisor to be gone")
    assert time.monotonic() - began < LIFE - 10


def test_a_lost_connection_is_an_error_and_the_command_does_not_survive_it(
    ssh_host, sshd, marker, running
) -> None:
    with (
        pytest.raises(HostError, match=r"connection to .* lost"),
        ssh_host.converse(["sh", "-c", f"echo up; sleep 1000 # {marker}"], deadline=LIFE) as talk,
    ):
        assert talk.read_line(20) == "up"
        sshd.signal_connections(signal.SIGKILL)
        talk.read_line(20)
    assert ssh_host.run(["true"], deadline=20).ok  # connects anew, and ends what was lost
    wait_until(lambda: not running(marker), 20, "the command to be gone")
