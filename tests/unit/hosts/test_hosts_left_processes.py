"""Processes of killed runs on every kind of host: found by their mark, ended, and verified to be gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from processes import wait_until_gone

from storagetest.errors import HostError
from storagetest.hosts import ATTACHING_ENV, Host, LocalHost, UndoStatus, _supervised_host
from storagetest.hosts._run_mark import MARK, MARK_PATTERN, new_token, parse_mark
from storagetest.hosts.left_processes import LeftCommand, end_left_commands, left_commands, parse
from storagetest.hosts.owner import Owner
from storagetest.runner.locks import exclusive

LOAD = "trap '' TERM; : {marker}; while :; do sleep 0.2; done"
"""A load that only KILL ends."""


@pytest.fixture(autouse=True)
def only_test() -> Iterator[None]:
    """No other process of this file ends what a test starts."""
    with exclusive(["test-left-processes"], timeout=300, purpose="a test of left processes"):
        yield


@pytest.fixture
def dead() -> Owner:
    """A process of this machine that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return replace(Owner.current(), pid=process.pid, start_time=1)


@contextmanager
def run_of(owner: Owner, host: Host, *argv: str) -> Iterator[str]:
    """Run a command in a thread as one of ``owner``; yield its token."""
    token = new_token(owner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_supervised_host, "new_token", lambda: token)
        started = threading.Event()

        def run() -> None:
            with suppress(HostError):  # its supervisor is killed, too
                host.run(argv, deadline=200, check=False, on_line=lambda _: started.set())

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(60)
    try:
        yield token
    finally:
        host._reap(token)
        thread.join(60)


def results_of(host: Host, token: str, **options) -> list[UndoStatus]:
    return [result.result for result in end_left_commands(host, **options)[0] if result.id == token]


def test_a_dead_owners_command_is_ended_with_all_its_processes(host, dead, marker, running) -> None:
    load = LOAD.format(marker=marker)
    with run_of(dead, host, "sh", "-c", f'setsid sh -c "$1" & echo started; {load}', "x", load) as token:
        assert running(marker)
        [found] = [left for left in left_commands(host) if left.token == token]
        # A process that setsid has not replaced yet has its name.
        assert {"sh", "sleep"} >= set(found.processes.values()) - {"timeout", "srun", "setsid"} >= {"sh"}
        assert f"of the run {dead.pid} on {dead.host}" in found.description
        assert results_of(host, token) == [UndoStatus.ENDED]
        assert running(marker) == []
        assert results_of(host, token) == []


def test_a_running_owners_command_is_neither_listed_nor_ended(host, marker, running) -> None:
    with run_of(Owner.current(), host, "sh", "-c", f"echo started; {LOAD.format(marker=marker)}") as token:
        assert results_of(host, token) == []
        assert results_of(host, token, force=False) == []
        assert running(marker)


def test_another_machines_command_is_reported_and_not_ended(local_host, dead, marker, running) -> None:
    elsewhere = replace(dead, host="elsewhere")
    with run_of(elsewhere, local_host, "sh", "-c", f"echo started; {LOAD.format(marker=marker)}") as token:
        assert results_of(local_host, token) == [UndoStatus.IN_USE]
        assert running(marker)


def test_the_supervisor_alone_is_found(local_host: LocalHost, dead: Owner) -> None:
    """It runs before the command does: nothing has the variable yet."""
    token = new_token(dead)
    with subprocess.Popen(["sh", "-c", "sleep 300; :", "storagetest", token]) as supervisor:
        assert results_of(local_host, token) == [UndoStatus.ENDED]
        supervisor.wait(20)


def test_a_load_without_its_supervisor_is_found(local_host: LocalHost, dead: Owner) -> None:
    token = new_token(dead)
    with subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: token}) as load:
        assert results_of(local_host, token) == [UndoStatus.ENDED]
        load.wait(20)


def test_a_daemon_of_an_attach_command_stays_when_the_command_has_ended(local_host, dead) -> None:
    token = new_token(dead)
    environment = {**os.environ, MARK: token, **ATTACHING_ENV}
    with subprocess.Popen(["sleep", "300"], env=environment) as daemon:
        assert results_of(local_host, token) == []
        assert daemon.poll() is None
        with subprocess.Popen(["sh", "-c", "sleep 300; :", "storagetest", token]) as attaching:
            assert results_of(local_host, token) == [UndoStatus.ENDED]
            attaching.wait(20)
        daemon.wait(20)


def test_a_process_without_the_mark_is_not_signalled(local_host: LocalHost, dead: Owner) -> None:
    """Not even one that has the owner's process id in its command line."""
    token = new_token(dead)
    with (
        subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: token}) as load,
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", str(dead.pid)]) as stranger,
    ):
        assert results_of(local_host, token) == [UndoStatus.ENDED]
        wait_until_gone(load.pid)
        assert stranger.poll() is None
        stranger.kill()


def test_a_process_that_cannot_be_ended_is_a_failure_of_its_owner(local_host, dead, monkeypatch) -> None:
    script = "storagetest.hosts.left_processes.REAP_FROM_OUTSIDE"
    monkeypatch.setattr(script, "exit 1")
    token = new_token(dead)
    with subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: token}) as load:
        results, alive = end_left_commands(local_host)
        load.kill()
    [result] = [result for result in results if result.id == token]
    assert (result.result, dead in alive) == (UndoStatus.FAILED, True)
    assert f"{load.pid} (sleep) cannot be killed: it hangs in the kernel" in result.detail


def test_processes_that_cannot_be_listed_are_an_error(local_host, monkeypatch) -> None:
    """As with /proc mounted with hidepid=2, or without grep: the list lacks even the command that lists."""
    monkeypatch.setattr("storagetest.hosts.left_processes._LIST", "echo no grep >&2")
    with pytest.raises(HostError, match=r"client1: the processes of killed runs cannot be listed: .*no grep"):
        end_left_commands(local_host)


def test_a_mark_names_its_owner() -> None:
    owner = Owner.current()
    token = new_token()
    assert parse_mark(token) == parse_mark(f"{MARK}={token}") == (token, owner)
    assert parse_mark(f"OTHER={token}") is parse_mark("STORAGETEST_RUN=0123456789abcdef") is None
    for text, status in ((token, 0), (f"{MARK}={token}", 0), (f"x{token}", 1)):
        grep = ["grep", "-qE", MARK_PATTERN]
        assert subprocess.run(grep, input=text, text=True, check=False).returncode == status


def test_the_names_of_processes_may_contain_anything(dead: Owner) -> None:
    token = new_token(dead)
    lines = [f"7/environ:{MARK}={token}\ta:b/c \td", f"8/cmdline:{token}\t(sd-pam)", "9/environ:", "x"]
    expected = LeftCommand(token, dead, {7: "a:b/c \td", 8: "(sd-pam)"})
    assert parse("\n".join(lines)) == [expected]
    assert expected.listed == "7 (a:b/c \td), 8 ((sd-pam))"
