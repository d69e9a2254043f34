"""SSH settings of a host, completed from an ssh_config and the defaults of ssh(1).

Explicit settings take precedence over the ssh_config, and that over the defaults of ssh(1). Supported
keywords of ssh_config(5): HostName, Port, User, IdentityFile, UserKnownHostsFile and ProxyJump (Match,
Include and patterns as in paramiko). A ProxyCommand is an error.
"""

from __future__ import annotations

import getpass
import re
import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path

from storagetest.hosts._paramiko import paramiko
from storagetest.hosts._supervised_host import Unreachable

_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
_MAX_HOPS = 8


@dataclass(frozen=True, slots=True)
class SshSettings:
    """The settings of an SSH connection.

    ``name`` is used in messages; ``address`` is a host name, an IP address or an alias of ``ssh_config``.
    ``password`` is the login's, or the passphrase of the key files.
    With neither ``key_files`` nor ``password`` (here or in ``ssh_config``) the agent's keys and the usual
    files in ~/.ssh are tried. ``known_hosts`` is ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts unless
    given.
    ``connect_timeout`` (name and connection) and ``login_timeout`` (key exchange and login) are in seconds,
    for one hop.
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
    login_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Endpoint(SshSettings):
    """Complete settings, without defaults to look up."""

    port: int = 22
    user: str = ""

    @property
    def where(self) -> str:
        """User, address and port, for messages."""
        return f"{self.user}@{self.address}:{self.port}"


def resolve(settings: SshSettings) -> Endpoint:
    """Complete ``settings``. Raises :class:`HostError` if the ssh_config cannot be used."""
    config = _look_up(settings)
    if "proxycommand" in config and settings.jump is None:
        file = settings.ssh_config
        raise Unreachable(
            f"{settings.name}: {file} has a ProxyCommand, which is not supported; use ProxyJump"
        )
    completed = {
        "address": config.get("hostname", settings.address),
        "port": settings.port or int(config.get("port", "22")),
        "user": settings.user or config.get("user") or getpass.getuser(),
        "key_files": settings.key_files
        or tuple(Path(name).expanduser() for name in config.get("identityfile", [])),
        "known_hosts": settings.known_hosts
        or tuple(Path(name).expanduser() for name in shlex.split(config.get("userknownhostsfile", "")))
        or (Path.home() / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts")),
        "jump": settings.jump or _jump(settings, config.get("proxyjump", "none")),
    }
    given = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return Endpoint(**{**given, **completed})


def _look_up(settings: SshSettings) -> paramiko.SSHConfigDict:
    if settings.ssh_config is None:
        return paramiko.SSHConfigDict()
    try:
        config = paramiko.SSHConfig.from_path(str(settings.ssh_config)).lookup(settings.address)
        int(config.get("port", 22))  # ValueError here rather than later
    except OSError as error:
        msg = f"{settings.name}: cannot read the ssh_config {settings.ssh_config}: {error.strerror}"
    except (paramiko.SSHException, ValueError, ImportError) as error:
        msg = f"{settings.name}: cannot parse the ssh_config {settings.ssh_config}: {error}"
    else:
        return config
    raise Unreachable(msg)


def _jump(settings: SshSettings, hops: str) -> SshSettings | None:
    """Parse a ProxyJump value: hosts in the order of the connection, the nearest one first."""
    jump: SshSettings | None = None
    if hops.lower() == "none":
        return jump
    if settings.name.count(" via ") >= _MAX_HOPS:
        raise Unreachable(f"{settings.name}: ProxyJump in {settings.ssh_config} is a loop")
    for hop in hops.split(","):
        match = _HOP.fullmatch(hop.strip())
        if match is None:
            raise Unreachable(f"{settings.name}: cannot parse ProxyJump {hops!r} in {settings.ssh_config}")
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
            login_timeout=settings.login_timeout,
        )
    return jump
