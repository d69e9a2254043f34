"""The SSH connection: kept, shared, lost and made anew; jump hosts; ssh_config."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import SshHost, SshSettings, _supervised_host
from storagetest.polling import wait_until


def client_port(host: SshHost) -> str:
    return host.run(["sh", "-c", "echo $SSH_CONNECTION"], deadline=20).stdout.split()[1]


def test_nothing_is_contacted_before_the_first_command(closed_port: int) -> None:
    SshHost(SshSettings("client1", "127.0.0.1", port=closed_port)).close()


def test_one_connection_serves_all_commands_and_threads(ssh_host: SshHost) -> None:
    ports: list[str] = []
    threads = [threading.Thread(target=lambda: ports.append(client_port(ssh_host))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ports) == 6
    assert set(ports) == {client_port(ssh_host)}


def test_more_commands_than_sshd_takes_sessions_wait_their_turn(ssh_host: SshHost) -> None:
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(ssh_host.run(["sleep", "0.5"], deadline=60).ok))
        for _ in range(25)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 25


def test_a_closed_host_connects_anew(ssh_host: SshHost) -> None:
    before = client_port(ssh_host)
    ssh_host.close()
    assert client_port(ssh_host) != before


def test_a_connection_lost_between_commands_goes_unnoticed(ssh_host: SshHost, sshd) -> None:
    before = client_port(ssh_host)
    sshd.signal_connections(signal.SIGKILL)
    assert client_port(ssh_host) != before


def test_a_connection_lost_in_mid_command(ssh_host: SshHost, sshd, marker, running) -> None:
    """It is said so; the next command works; and what was under way is gone before that starts."""
    with pytest.raises(
        HostError, match=r"client1: connection to \S+@127.0.0.1:\d+ lost while running `sh -c"
    ):
        ssh_host.run(
            ["sh", "-c", f"echo up; sleep 300; : {marker}"],
            deadline=200,
            on_line=lambda _: sshd.signal_connections(signal.SIGKILL),
        )
    assert running(marker)
    assert ssh_host.run(["echo", "back"], deadline=20).stdout == "back\n"
    assert running(marker) == []


def test_what_ran_on_a_lost_connection_ends_by_its_deadline_without_us(
    ssh_host, sshd, marker, running
) -> None:
    with pytest.raises(HostError, match="lost while running"):
        ssh_host.run(
            ["sh", "-c", f"echo up; sleep 300; : {marker}"],
            deadline=3,
            on_line=lambda _: sshd.signal_connections(signal.SIGKILL),
        )
    wait_until(lambda: not running(marker), 30, "the command's end on the host")


@pytest.mark.parametrize(
    ("all_of_it", "how"), [(False, "and was killed"), (True, "and may still run: the host no longer answers")]
)
def test_a_host_that_hangs_is_left_by_our_own_deadline(
    ssh_host, sshd, marker, running, monkeypatch, all_of_it, how
) -> None:
    """Its sshd is stopped: nothing comes any more, not even an error. The next command connects anew."""
    monkeypatch.setattr(_supervised_host, "MARGIN", 0.5)
    monkeypatch.setattr(_supervised_host, "REAP_LIMIT", 2.0)

    def stop(_: str) -> None:
        sshd.signal_connections(signal.SIGSTOP)
        if all_of_it:
            os.kill(sshd.pid, signal.SIGSTOP)

    try:
        with pytest.raises(DeadlineExceeded, match=f"did not end within 4 s {how}"):
            ssh_host.run(["sh", "-c", f"echo up; sleep 300; : {marker}"], deadline=4, on_line=stop)
        os.kill(sshd.pid, signal.SIGCONT)
        assert ssh_host.run(["echo", "back"], deadline=20).stdout == "back\n"
        assert running(marker) == []
    finally:
        os.kill(sshd.pid, signal.SIGCONT)
        sshd.signal_connections(signal.SIGKILL)


def test_other_commands_outlive_a_connection_that_is_set_aside(ssh_host: SshHost, tmp_path: Path) -> None:
    results: list[str] = []
    up = threading.Event()
    script = [
        "sh",
        "-c",
        'echo up; while [ ! -e "$1" ]; do sleep 0.1; done; echo done',
        "x",
        str(tmp_path / "go"),
    ]

    def work() -> None:
        results.append(ssh_host.run(script, deadline=60, on_line=lambda _: up.set()).stdout)

    before = client_port(ssh_host)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert up.wait(30)
        ssh_host._distrust_connection()
        assert client_port(ssh_host) != before
    finally:
        (tmp_path / "go").touch()
        thread.join()
    assert results == ["up\ndone\n"]


def test_through_a_jump_host(settings: SshSettings) -> None:
    jump = replace(settings, name="gate")
    with SshHost(replace(settings, jump=jump)) as host:
        assert host.run(["echo", "beyond"], deadline=20).stdout == "beyond\n"
        host.push(b"\0" * 100_000, "/dev/shm/storagetest-jump-test")
        assert host.pull("/dev/shm/storagetest-jump-test") == b"\0" * 100_000
        host.run(["rm", "/dev/shm/storagetest-jump-test"], deadline=20)


def test_a_jump_host_lost_in_mid_command(settings: SshSettings, sshd) -> None:
    with SshHost(replace(settings, jump=replace(settings, name="gate"))) as host:
        with pytest.raises(HostError, match="lost while running"):
            host.run(
                ["sh", "-c", "echo up; sleep 30"],
                deadline=20,
                on_line=lambda _: sshd.signal_connections(signal.SIGKILL),
            )
        assert host.run(["echo", "back"], deadline=20).stdout == "back\n"


def test_by_an_alias_of_an_ssh_config(settings: SshSettings, tmp_path: Path) -> None:
    config = tmp_path / "ssh config"
    config.write_text(
        f"""
Host storage-* gate
    HostName 127.0.0.1
    Port {settings.port}
    User {settings.user}
    IdentityFile {settings.key_files[0]}
    UserKnownHostsFile {settings.known_hosts[0]}
Host storage-behind
    ProxyJump gate
"""
    )
    for alias in ("storage-1", "storage-behind"):
        with SshHost(SshSettings("client1", alias, ssh_config=config)) as host:
            assert host.run(["echo", "hello"], deadline=20).stdout == "hello\n"
