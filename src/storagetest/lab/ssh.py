"""SSH keys, ssh_config and known_hosts of a lab.

Each lab has its own keys, generated on the host before the machines start. So the guests spend no time on
them, and host keys are checked from the first connection on.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from storagetest.lab.subprocess_util import run

_LOOPBACK = "127.0.0.1"


def make_key(path: Path, comment: str) -> Path:
    """Generate a key pair in ``path`` and ``path``.pub, which it replaces; return ``path``."""
    path.unlink(missing_ok=True)  # ssh-keygen would ask
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], timeout=30)
    return path


def config(ports: Mapping[str, int], identity: Path, known: Path) -> str:
    """Return the text of an ssh_config(5) file with one entry per machine."""
    return "".join(
        f"Host {name}\n"
        f"    HostName {_LOOPBACK}\n"
        f"    Port {port}\n"
        f"    User root\n"
        f"    IdentityFile {_quoted(identity)}\n"
        f"    IdentitiesOnly yes\n"
        f"    UserKnownHostsFile {_quoted(known)}\n"
        f"    StrictHostKeyChecking yes\n"
        f"    LogLevel ERROR\n\n"
        for name, port in ports.items()
    )


def known_hosts(ports: Mapping[str, int], public_keys: Mapping[str, str]) -> str:
    """Return the text of a known_hosts file (sshd(8)), without the comments of the keys."""
    return "".join(
        f"[{_LOOPBACK}]:{port} {' '.join(public_keys[name].split()[:2])}\n" for name, port in ports.items()
    )


def argv(config_path: Path, host: str, command: Sequence[str]) -> list[str]:
    """Return the ssh command that runs ``command`` on ``host``, or a shell if ``command`` is empty."""
    remote = ["--", shlex.join(command)] if command else []
    return ["ssh", "-F", str(config_path), host, *remote]


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
