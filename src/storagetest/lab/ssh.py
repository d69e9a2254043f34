"""Keys, and the files that ssh (and whatever reads its configuration) finds the machines by.

Every lab has keys of its own, made before its machines start: no machine spends time on that, and host keys
are known and checked from the first connection.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from storagetest.lab.process import run

__all__ = ["argv", "config", "known_hosts", "make_key"]

_LOOPBACK = "127.0.0.1"


def make_key(path: Path, comment: str) -> Path:
    """Make a key pair at ``path`` and ``path``.pub."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], timeout=30)
    return path


def config(ports: Mapping[str, int], identity: Path, known: Path) -> str:
    """Return the text of a configuration (ssh_config(5)) that reaches each machine by its name."""
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
    """Return the text of a known_hosts file (sshd(8)); a key's comment is left out."""
    return "".join(
        f"[{_LOOPBACK}]:{port} {' '.join(public_keys[name].split()[:2])}\n" for name, port in ports.items()
    )


def argv(config_path: Path, host: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs ``command`` on ``host``, or a shell there when it is empty."""
    remote = ["--", shlex.join(command)] if command else []
    return ["ssh", "-F", str(config_path), host, *remote]


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
