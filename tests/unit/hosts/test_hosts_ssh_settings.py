"""Resolution of SSH settings: the user's values, an ssh_config, and the defaults."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from storagetest.errors import HostError
from storagetest.hosts import SshSettings
from storagetest.hosts._ssh_settings import resolve

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
