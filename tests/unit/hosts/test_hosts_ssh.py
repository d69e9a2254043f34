"""SSH: the settings, the connection and its commands."""

import getpass
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import paramiko
import pytest

from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import LocalHost, SlurmHost, SshHost, SshSettings, _supervised_host
from storagetest.hosts._ssh_settings import resolve
from storagetest.hosts.ssh import without_close_errors
from storagetest.polling import wait_until


def client_port(host: SshHost) -> str:
    return host.run(["sh", "-c", "echo $SSH_CONNECTION"], deadline=20).stdout.split()[1]


@pytest.mark.parametrize(("kind", "expensive"), [(LocalHost, False), (SshHost, True), (SlurmHost, True)])
def test_only_remote_hosts_have_an_expensive_exec(kind, expensive: bool) -> None:
    assert kind.expensive_exec is expensive


def test_the_host_connects_at_its_first_command(closed_port: int) -> None:
    SshHost(SshSettings("client1", "127.0.0.1", port=closed_port)).close()


def test_one_connection_serves_all_commands_and_threads(ssh_host: SshHost) -> None:
    with ThreadPoolExecutor(6) as threads:
        ports = list(threads.map(client_port, [ssh_host] * 6))
    assert ports == [client_port(ssh_host)] * 6


def test_commands_above_the_session_limit_of_sshd_wait(ssh_host: SshHost) -> None:
    with ThreadPoolExecutor(25) as threads:
        runs = [threads.submit(ssh_host.run, ["sleep", "0.5"], deadline=60) for _ in range(25)]
    assert all(run.result().ok for run in runs)


def test_a_closed_host_reconnects(ssh_host: SshHost) -> None:
    before = client_port(ssh_host)
    ssh_host.close()
    assert client_port(ssh_host) != before


def test_a_connection_lost_between_commands_is_replaced(ssh_host: SshHost, sshd) -> None:
    before = client_port(ssh_host)
    sshd.signal_connections(signal.SIGKILL)
    assert client_port(ssh_host) != before


def lose_connection(host: SshHost, sshd, marker: str = "", deadline: float = 200) -> None:
    """Run a command whose connection is lost after its first line."""
    with pytest.raises(
        HostError, match=r"client1: connection to \S+@127.0.0.1:\d+ lost while running `sh -c"
    ):
        host.run(
            ["sh", "-c", f"echo up; sleep 300; : {marker}"],
            deadline=deadline,
            on_line=lambda _: sshd.signal_connections(signal.SIGKILL),
        )


def test_a_connection_lost_during_a_command_is_an_error(ssh_host: SshHost, sshd, marker, running) -> None:
    """The error names the command; the lost command is killed before the next one starts."""
    lose_connection(ssh_host, sshd, marker)
    assert running(marker)
    assert ssh_host.run(["echo", "back"], deadline=20).stdout == "back\n"
    assert running(marker) == []


def test_a_command_on_a_lost_connection_ends_at_its_deadline(ssh_host, sshd, marker, running) -> None:
    lose_connection(ssh_host, sshd, marker, deadline=3)
    wait_until(lambda: not running(marker), 30, "the command's end on the host")


@pytest.mark.parametrize(
    ("whole_server", "state"),
    [(False, "and was killed"), (True, "and may still run: the host no longer answers")],
)
def test_the_controllers_deadline_ends_a_command_on_a_host_that_hangs(
    ssh_host, sshd, marker, running, monkeypatch, whole_server, state
) -> None:
    """Its sshd is stopped and sends nothing, not even an error. The next command reconnects."""
    monkeypatch.setattr(_supervised_host, "MARGIN", 0.5)
    monkeypatch.setattr(_supervised_host, "REAP_LIMIT", 2.0 if whole_server else 60.0)

    def stop(_: str) -> None:
        sshd.signal_connections(signal.SIGSTOP)
        if whole_server:
            os.kill(sshd.pid, signal.SIGSTOP)

    try:
        with pytest.raises(DeadlineExceeded, match=f"did not end within 4 s {state}"):
            ssh_host.run(["sh", "-c", f"echo up; sleep 300; : {marker}"], deadline=4, on_line=stop)
        os.kill(sshd.pid, signal.SIGCONT)
        assert ssh_host.run(["echo", "back"], deadline=20).stdout == "back\n"
        assert running(marker) == []
    finally:
        os.kill(sshd.pid, signal.SIGCONT)
        sshd.signal_connections(signal.SIGKILL)


def test_other_commands_continue_on_a_distrusted_connection(ssh_host: SshHost, tmp_path: Path) -> None:
    up = threading.Event()
    script = f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo done"
    before = client_port(ssh_host)
    with ThreadPoolExecutor() as threads:
        run = threads.submit(ssh_host.run, ["sh", "-c", script], deadline=60, on_line=lambda _: up.set())
        try:
            assert up.wait(30)
            ssh_host._distrust_connection()
            assert client_port(ssh_host) != before
        finally:
            (tmp_path / "go").touch()
    assert run.result().stdout == "up\ndone\n"


def test_a_jump_host_is_used(settings: SshSettings) -> None:
    jump = replace(settings, name="jump")
    with SshHost(replace(settings, jump=jump)) as host:
        assert host.run(["echo", "beyond"], deadline=20).stdout == "beyond\n"
        host.push(b"\0" * 100_000, "/dev/shm/storagetest-jump-test")
        assert host.pull("/dev/shm/storagetest-jump-test") == b"\0" * 100_000
        host.run(["rm", "/dev/shm/storagetest-jump-test"], deadline=20)


def test_a_jump_host_lost_during_a_command_is_an_error(settings: SshSettings, sshd) -> None:
    with SshHost(replace(settings, jump=replace(settings, name="jump"))) as host:
        lose_connection(host, sshd)
        assert host.run(["echo", "back"], deadline=20).stdout == "back\n"


@pytest.mark.parametrize("error", [EOFError, OSError("lost"), paramiko.SSHException("lost")])
def test_closing_a_tunnel_whose_connection_is_lost_raises_nothing(error) -> None:
    channel = Mock(close=Mock(side_effect=error))
    lost = channel.close
    without_close_errors(channel).close()
    lost.assert_called_once()


def test_an_alias_of_an_ssh_config_is_used(settings: SshSettings, tmp_path: Path) -> None:
    config = tmp_path / "ssh config"
    config.write_text(
        f"""
Host storage-* jump
    HostName 127.0.0.1
    Port {settings.port}
    User {settings.user}
    IdentityFile {settings.key_files[0]}
    UserKnownHostsFile {settings.known_hosts[0]}
Host storage-behind
    ProxyJump jump
"""
    )
    for alias in ("storage-1", "storage-behind"):
        with SshHost(SshSettings("client1", alias, ssh_config=config)) as host:
            assert host.run(["echo", "hello"], deadline=20).stdout == "hello\n"


CONFIG = """
Host box
    HostName 192.0.2.7
    Port 2022
    User lab
    IdentityFile ~/keys/%h
    UserKnownHostsFile /a/known "/b c/known"
Host deep
    ProxyJump admin@outer:2200,[2001:db8::1]
Host loop
    ProxyJump loop
Host command
    ProxyCommand nc %h %p
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config"
    file.write_text(CONFIG)
    return file


def test_defaults() -> None:
    resolved = resolve(SshSettings("c", "192.0.2.1"))
    assert resolved.where == f"{getpass.getuser()}@192.0.2.1:22"
    assert resolved.known_hosts == (Path.home() / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts"))
    assert (resolved.key_files, resolved.password, resolved.jump) == ((), None, None)
    assert resolved.check_host_key


def test_an_alias_is_resolved_by_the_ssh_config(config: Path) -> None:
    resolved = resolve(SshSettings("c", "box", ssh_config=config))
    assert resolved.where == "lab@192.0.2.7:2022"
    assert resolved.key_files == (Path.home() / "keys/192.0.2.7",)
    assert resolved.known_hosts == (Path("/a/known"), Path("/b c/known"))


def test_explicit_settings_override_the_ssh_config(config: Path) -> None:
    explicit = SshSettings(
        "c", "box", port=1, user="u", key_files=(Path("/k"),), known_hosts=(Path("/h"),), ssh_config=config
    )
    resolved = resolve(explicit)
    assert resolved.where == "u@192.0.2.7:1"
    assert (resolved.key_files, resolved.known_hosts) == ((Path("/k"),), (Path("/h"),))


def test_a_chain_of_jumps_is_resolved_from_the_nearest_host(config: Path) -> None:
    inner = resolve(SshSettings("c", "deep", ssh_config=config)).jump
    assert resolve(inner).where == f"{getpass.getuser()}@2001:db8::1:22"
    outer = inner.jump
    assert resolve(outer).where == "admin@outer:2200"
    assert resolve(outer).jump is None


def test_a_loop_of_jumps_is_an_error(config: Path) -> None:
    def follow() -> None:
        hop: SshSettings | None = SshSettings("c", "loop", ssh_config=config)
        while hop is not None:
            hop = resolve(hop).jump

    with pytest.raises(HostError, match="is a loop"):
        follow()


def test_a_proxy_command_is_refused(config: Path) -> None:
    with pytest.raises(
        HostError, match=r"c: .*config has a ProxyCommand, which is not supported; use ProxyJump"
    ):
        resolve(SshSettings("c", "command", ssh_config=config))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the ssh_config .*/config: No such file"),
        ("garbage\n", "cannot parse the ssh_config .*/config"),
        ("Port many\n", "cannot parse the ssh_config .*/config"),
    ],
)
def test_an_ssh_config_that_cannot_be_read_is_an_error(
    tmp_path: Path, text: str | None, message: str
) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text)
    with pytest.raises(HostError, match=f"c: {message}"):
        resolve(SshSettings("c", "box", ssh_config=config))


def test_a_machine_that_answers_late_is_no_machine_that_is_down(sshd) -> None:
    os.kill(sshd.pid, signal.SIGSTOP)  # its kernel still accepts connections
    timer = threading.Timer(2, os.kill, (sshd.pid, signal.SIGCONT))
    timer.start()
    try:
        with SshHost(replace(sshd.settings, connect_timeout=1)) as host:
            assert host.run(["true"], deadline=60).ok
    finally:
        timer.join()


def test_a_new_connection_has_the_time_of_a_login_for_its_first_session(settings: SshSettings) -> None:
    """An older connection may be lost, so its time is that of a connection."""
    transport = Mock()
    host = SshHost(replace(settings, connect_timeout=1, login_timeout=5))
    with patch.object(host, "_connect", return_value=transport):
        for _ in range(2):
            host._open_channel(host._session, timeout=20)
    assert [call.kwargs["timeout"] for call in transport.open_session.call_args_list] == [5, 1]
