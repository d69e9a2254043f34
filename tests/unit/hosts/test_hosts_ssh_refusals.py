"""Each cause of a failed connection: one clear message, in time and without a secret."""

import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import SshHost, SshSettings
from storagetest.polling import wait_until


def works(settings: SshSettings, **changes: Any) -> bool:
    with SshHost(replace(settings, **changes)) as host:
        return host.run(["true"], deadline=20).ok


def refusal(settings: SshSettings, **changes: Any) -> str:
    with SshHost(replace(settings, **changes)) as host, pytest.raises(HostError) as caught:
        host.run(["true"], deadline=20)
    assert not isinstance(caught.value, DeadlineExceeded)
    message = str(caught.value)
    assert message.startswith(settings.name)
    return message


def test_wrong_key(settings: SshSettings, other_key: Path) -> None:
    message = refusal(settings, key_files=(other_key,))
    assert f"{settings.user}@127.0.0.1:{settings.port} refused the login with the key {other_key}" in message


def test_wrong_password_is_not_shown(settings: SshSettings) -> None:
    message = refusal(settings, key_files=(), password="hunter2")
    assert "refused the login with a password (it accepts publickey)" in message
    assert "hunter2" not in message
    assert "hunter2" not in repr(replace(settings, password="hunter2"))


def test_the_right_key_is_used_after_a_wrong_one(settings: SshSettings, other_key: Path) -> None:
    assert works(settings, key_files=(other_key, *settings.key_files))


def test_wrong_user(settings: SshSettings) -> None:
    assert "no-such-user@127.0.0.1" in refusal(settings, user="no-such-user")


def test_key_file_that_is_missing_or_no_key(settings: SshSettings, tmp_path: Path) -> None:
    assert f"cannot read the key {tmp_path}/none" in refusal(settings, key_files=(tmp_path / "none",))
    (tmp_path / "text").write_text("open sesame")
    message = refusal(settings, key_files=(tmp_path / "text",))
    assert f"{tmp_path}/text is not a usable private key" in message
    assert "sesame" not in message


def test_key_with_a_passphrase(settings: SshSettings, tmp_path: Path) -> None:
    key = tmp_path / "locked"
    shutil.copy(settings.key_files[0], key)
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "hunter2", "-f", key], check=True, timeout=30)
    locked = replace(settings, key_files=(key,))
    assert f"the key {key} for" in refusal(locked)
    assert "is not the passphrase of the key" in refusal(locked, password="hunter3")
    assert works(locked, password="hunter2")


def test_passphrase_is_not_sent_as_password(settings: SshSettings, tmp_path: Path, other_key: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "hunter2", "-f", other_key], check=True, timeout=30)
    message = refusal(settings, key_files=(other_key,), password="hunter2")
    assert re.search(rf"refused the login with the key {other_key} \(|with the key {other_key};", message)


def test_unknown_host_key(settings: SshSettings, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    message = refusal(settings, known_hosts=(file,))
    assert "is unknown: it shows ssh-ed25519 SHA256:" in message
    assert f"ssh-keyscan -p {settings.port} 127.0.0.1 >> {file}" in message


def test_changed_host_key(stranger: SshSettings) -> None:
    message = refusal(stranger)
    assert re.search(
        r"HAS CHANGED: it shows ssh-ed25519 SHA256:\S+ ?, but \S+ has ssh-ed25519 SHA256:", message
    )
    assert f"ssh-keygen -R '[127.0.0.1]:{stranger.port}' -f {stranger.known_hosts[0]}" in message


def test_check_host_key_false_skips_the_check(stranger: SshSettings) -> None:
    assert works(stranger, check_host_key=False)


def test_damaged_known_hosts(settings: SshSettings, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("[127.0.0.1]:1 ssh-ed25519 A\n")
    assert str(file) in refusal(settings, known_hosts=(file,))


def test_refused_port(closed_port: int) -> None:
    message = refusal(SshSettings("client1", "127.0.0.1", port=closed_port, user="root"))
    assert f"root@127.0.0.1:{closed_port} refused the connection" in message


@pytest.mark.parametrize("address", ["no-such-host.invalid", "a" * 80 + ".invalid"])
def test_name_that_does_not_resolve(address: str) -> None:
    message = refusal(SshSettings("client1", address, user="root", connect_timeout=10))
    assert f"root@{address}:22" in message
    assert "does not resolve" in message or "did not answer within 10 s" in message


def test_no_route() -> None:
    """Class E (RFC 1112 section 4) has no route; a kernel returns an error, a firewall drops the packet."""
    message = refusal(SshSettings("client1", "240.0.0.1", user="root", connect_timeout=2))
    assert "root@240.0.0.1:22" in message


def test_a_port_that_sends_nothing(settings: SshSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        started = time.monotonic()
        message = refusal(settings, port=port, login_timeout=1.5)
        assert time.monotonic() - started < 15
    assert f"127.0.0.1:{port} did not answer within 1.5 s" in message


def test_a_port_with_another_protocol(settings: SshSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"220 mail ready\r\n")

        with ThreadPoolExecutor() as threads:
            threads.submit(serve)
            message = refusal(settings, port=server.getsockname()[1], connect_timeout=5)
    assert "did not complete the SSH handshake" in message


def test_a_jump_host_that_cannot_connect_further(settings: SshSettings, closed_port: int) -> None:
    jump = replace(settings, name="jump")
    message = refusal(settings, port=closed_port, jump=jump)
    assert f"the jump host {jump.user}@127.0.0.1:{jump.port} cannot connect to" in message
    assert f"127.0.0.1:{closed_port}" in message


def test_a_jump_host_that_refuses(settings: SshSettings, closed_port: int) -> None:
    with (
        SshHost(replace(settings, jump=replace(settings, name="jump", port=closed_port))) as host,
        pytest.raises(HostError, match=rf"^jump: \S+:{closed_port} refused the connection"),
    ):
        host.run(["true"], deadline=20)


def test_no_free_session_before_the_deadline(settings: SshSettings, tmp_path: Path) -> None:
    """Nine commands run; the error of the tenth names the limit that it waited for."""
    up: list[str] = []
    argv = ["sh", "-c", f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"]
    with SshHost(settings) as host, ThreadPoolExecutor(9) as threads:
        for _ in range(9):
            threads.submit(host.run, argv, deadline=60, on_line=up.append)
        try:
            wait_until(lambda: len(up) == 9, 30, "nine commands under way")
            with pytest.raises(DeadlineExceeded, match="9 commands, the limit of a connection"):
                host.run(["true"], deadline=0.2)
        finally:
            (tmp_path / "go").touch()
            threads.shutdown()
        assert host.run(["true"], deadline=20).ok
