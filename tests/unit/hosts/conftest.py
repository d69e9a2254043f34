"""Real hosts: this machine, an sshd on loopback, and a Slurm cluster on loopback."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from processes import children, processes

from storagetest.hosts import Host, LocalHost, SlurmHost, SshHost, SshSettings, _supervised_host
from storagetest.polling import wait_until
from storagetest.workloads._agent.fork_server import ForkServer

sys.path.insert(0, str(Path(__file__).parent))  # for slurm_cluster: importlib mode leaves sys.path alone

import slurm_cluster

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {home}/host_key
PidFile none
AuthorizedKeysFile {home}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
AllowTcpForwarding yes
"""


@dataclass(frozen=True)
class Sshd:
    """An sshd on loopback that accepts the current user with ``key``."""

    pid: int
    port: int
    home: Path

    @property
    def settings(self) -> SshSettings:
        return SshSettings(
            name="client1",
            address="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            key_files=(self.home / "key",),
            known_hosts=(self.home / "known_hosts",),
            connect_timeout=10.0,
        )

    def connections(self) -> set[int]:
        """Return the process ids of the servers of the connections."""
        return children(self.pid)

    def signal_connections(self, number: signal.Signals) -> None:
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):  # it ended with the connection it jumped through
                os.kill(pid, number)


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=30)
    return path


def known_hosts_line(port: int, key: Path) -> str:
    return f"[127.0.0.1]:{port} {key.with_suffix('.pub').read_text()}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts_ssh(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except ConnectionError:
        return False


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None or shutil.which("ssh-keygen") is None:
        pytest.skip("sshd is not installed here (Debian: openssh-server)")
    home = tmp_path_factory.mktemp("sshd")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd requires it
    port = free_port()
    make_key(home / "host_key")
    shutil.copy(make_key(home / "key").with_suffix(".pub"), home / "authorized_keys")
    (home / "known_hosts").write_text(known_hosts_line(port, home / "host_key"))
    (home / "sshd_config").write_text(_CONFIG.format(port=port, home=home))
    with (home / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", home / "sshd_config"], stderr=log)
    try:
        wait_until(lambda: server.poll() is not None or _accepts_ssh(port), 15, f"an sshd on port {port}")
        assert server.poll() is None, (home / "log").read_text()
        yield Sshd(server.pid, port, home)
    finally:
        for pid in children(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.kill()
        server.wait()


@pytest.fixture
def settings(sshd: Sshd) -> SshSettings:
    return sshd.settings


@pytest.fixture
def ssh_host(settings: SshSettings) -> Iterator[SshHost]:
    with SshHost(settings) as host:
        yield host


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Slurm]:
    """A Slurm cluster with a job on two nodes, both of them this machine."""
    if missing := slurm_cluster.missing_programs():
        pytest.skip(f"{', '.join(missing)}: missing (Debian: slurmctld, slurmd, slurm-client, munge)")
    ports = tuple(free_port() for _ in range(slurm_cluster.NODES + 1))
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm"), ports) as started:
        yield started


@pytest.fixture
def slurm_host(slurm: slurm_cluster.Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHost]:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    with SlurmHost("client1", 1, job=slurm.job) as host:
        yield host


@pytest.fixture
def local_host() -> Iterator[LocalHost]:
    with LocalHost("client1") as host:
        yield host


FORK_SERVER = "with fork server"


KINDS = ("local", "ssh", "slurm")


@pytest.fixture(params=[*KINDS, *(f"{kind} {FORK_SERVER}" for kind in KINDS)])
def host(request: pytest.FixtureRequest) -> Host:
    """Each kind of host, without and with a shortcut."""
    kind, _, fork_server = request.param.partition(" ")
    host: Host = request.getfixturevalue(f"{kind}_host")
    if fork_server:
        assert host.resource(ForkServer).available()
        assert host.shortcut is not None
    return host


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SIGKILL follow SIGTERM after half a second."""
    reap = _supervised_host.REAP_FROM_OUTSIDE
    assert "reap 40 TERM" in reap
    monkeypatch.setattr(_supervised_host, "REAP_FROM_OUTSIDE", reap.replace("reap 40", "reap 5"))
    monkeypatch.setattr(_supervised_host, "GRACE", 0.5)


@pytest.fixture
def marker() -> str:
    """A word that no other process has in its command line."""
    return f"st-marker-{uuid.uuid4().hex}"


@pytest.fixture
def running():
    """Return a function that lists the processes with a word in their command line."""

    def find(word: str) -> list[str]:
        return [f"{pid}: {line}" for pid, _, line in processes() if word in line]

    return find


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed here (Debian: openssh-client)")
    return make_key(tmp_path / "other_key")


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.fixture
def stranger(settings: SshSettings, other_key: Path, tmp_path: Path) -> SshSettings:
    """Settings whose known_hosts has another key than the server's."""
    file = tmp_path / "known_hosts"
    file.write_text(known_hosts_line(settings.port or 22, other_key))
    return replace(settings, known_hosts=(file,))
