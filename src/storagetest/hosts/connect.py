"""Make the Host of a client or server of the targets file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storagetest.config.models import HostConfig
from storagetest.hosts.base import Host
from storagetest.hosts.local import LocalHost
from storagetest.hosts.slurm import SlurmHost

if TYPE_CHECKING:
    from storagetest.hosts._ssh_settings import SshSettings


def connect(machine: HostConfig) -> Host:
    """Return the host that ``machine`` describes. It connects at its first command."""
    if machine.transport == "local":
        return LocalHost(machine.name)
    if machine.transport == "slurm":
        return SlurmHost(machine.name, machine.node, job=machine.job)
    from storagetest.hosts.ssh import SshHost  # noqa: PLC0415  # paramiko is slow to import

    return SshHost(_settings(machine))


def _settings(machine: HostConfig) -> SshSettings:
    from storagetest.hosts._ssh_settings import SshSettings  # noqa: PLC0415  # as above

    return SshSettings(
        name=machine.name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        key_files=(machine.key,) if machine.key else (),
        password=machine.password.reveal() if machine.password else None,
        known_hosts=(machine.known_hosts,) if machine.known_hosts else (),
        check_host_key=machine.host_key_check,
        ssh_config=machine.ssh_config,
        jump=_settings(machine.jump) if machine.jump else None,
        connect_timeout=machine.connect_timeout,
        login_timeout=machine.login_timeout,
    )
