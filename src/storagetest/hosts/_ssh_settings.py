"""How a host is reached over SSH: what the user says, completed from an ssh_config and the usual defaults.

What is said outright wins over the ssh_config, which wins over the defaults of ssh(1). Of ssh_config(5) these
count: HostName, Port, User, IdentityFile, UserKnownHostsFile and ProxyJump (Match, Include and patterns as
paramiko has them). A ProxyCommand is refused rather than passed over.
"""

from __future__ import annotations

import getpass
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from storagetest.hosts._paramiko import paramiko
from storagetest.hosts._supervised_host import Unreachable

__all__ = ["Endpoint", "SshSettings", "resolve"]

_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
_MOST_HOPS = 8


@dataclass(frozen=True, slots=True)
class SshSettings:
    """A host to be reached over SSH.

    ``name`` is how messages call it; ``address`` is a host name, an IP address or an alias of ``ssh_config``.
    ``password`` is the login's, or the passphrase of the key files.
    With neither ``key_files`` nor ``password`` (here or in ``ssh_config``) the agent's keys and the usual
    files in ~/.ssh are tried. ``known_hosts`` is ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts unless
    given.
    ``connect_timeout`` is in seconds, for one hop: name, connection, key exchange and login together.
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    key_files: tuple[Path, ...] = ()
    password: str | None = field(default=None, repr=False)
    known_hosts: tuple[Path, ...] = ()
    check_host_key: bool = True
    ssh_config: Path | None = None
    jump: SshSettings | None = None
    connect_timeout: float = 15.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The same, complete: nothing is left to look up."""

    name: str
    address: str
    port: int
    user: str
    key_files: tuple[Path, ...]
    password: str | None = field(repr=False)
    known_hosts: tuple[Path, ...]
    check_host_key: bool
    jump: SshSettings | None
    connect_timeout: float

    @property
    def where(self) -> str:
        """User, address and port, as messages show them."""
        return f"{self.user}@{self.address}:{self.port}"


def resolve(settings: SshSettings) -> Endpoint:
    """Complete ``settings``; :class:`HostError` where the ssh_config cannot be used."""
    said = _look_up(settings)
    if "proxycommand" in said and settings.jump is None:
        msg = (
            f"{settings.name}: {settings.ssh_config} says ProxyCommand, which is not supported; use ProxyJump"
        )
        raise Unreachable(msg)
    return Endpoint(
        name=settings.name,
        address=said.get("hostname", settings.address),
        port=settings.port or int(said.get("port", "22")),
        user=settings.user or said.get("user") or getpass.getuser(),
        key_files=settings.key_files
        or tuple(Path(name).expanduser() for name in said.get("identityfile", [])),
        password=settings.password,
        known_hosts=settings.known_hosts
        or tuple(Path(name).expanduser() for name in shlex.split(said.get("userknownhostsfile", "")))
        or (Path.home() / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts")),
        check_host_key=settings.check_host_key,
        jump=settings.jump or _jump(settings, said.get("proxyjump", "none")),
        connect_timeout=settings.connect_timeout,
    )


def _look_up(settings: SshSettings) -> paramiko.SSHConfigDict:
    if settings.ssh_config is None:
        return paramiko.SSHConfigDict()
    try:
        said = paramiko.SSHConfig.from_path(str(settings.ssh_config)).lookup(settings.address)
        int(said.get("port", 22))  # ValueError here rather than later
    except OSError as error:
        msg = f"{settings.name}: cannot read the ssh_config {settings.ssh_config}: {error.strerror}"
    except (paramiko.SSHException, ValueError, ImportError) as error:
        msg = f"{settings.name}: cannot make sense of the ssh_config {settings.ssh_config}: {error}"
    else:
        return said
    raise Unreachable(msg)


def _jump(settings: SshSettings, hops: str) -> SshSettings | None:
    """Read a ProxyJump value: hosts in the order in which they are passed, the nearest to us first."""
    jump: SshSettings | None = None
    if hops.lower() == "none":
        return jump
    if settings.name.count(" via ") >= _MOST_HOPS:
        msg = f"{settings.name}: ProxyJump in {settings.ssh_config} goes in circles"
        raise Unreachable(msg)
    for hop in hops.split(","):
        match = _HOP.fullmatch(hop.strip())
        if match is None:
            msg = f"{settings.name}: cannot make sense of ProxyJump {hops!r} in {settings.ssh_config}"
            raise Unreachable(msg)
        address = match["host"].strip("[]")
        jump = SshSettings(
            name=f"{settings.name} via {address}",
            address=address,
            port=int(match["port"]) if match["port"] else None,
            user=match["user"],
            known_hosts=settings.known_hosts,
            check_host_key=settings.check_host_key,
            ssh_config=settings.ssh_config,
            jump=jump,
            connect_timeout=settings.connect_timeout,
        )
    return jump
