"""What a machine of the lab serves: one module a server (knfsd, Samba, LIO …), each of them one `SERVICE`.

A service is data: the script that starts it in the guest, the ports that are forwarded to the host, and the
targets that it contributes to the ready targets.yaml. A role (see roles/) is a choice of services, so two
roles share nothing that they do not both name.

The scripts run at boot, side by side, by busybox's ``sh -eu``; what they print is kept in the guest under
/run/lab/log. They find shell functions in /run/lab/lib.sh, this machine's settings in /run/lab/machine.env
and secrets in /run/lab/secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ADDRESS", "SECOND_ADDRESS", "Secret", "Service", "Target", "Value", "Wire", "resizing"]

# The appliance's address on the lab's network, the same in every lab: the networks never meet.
ADDRESS = "10.77.0.1"
SECOND_ADDRESS = "10.77.0.2"
"""One more of the appliance's, on the same network: a second path to what is served through several."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A password that each lab makes anew: a file in the lab's directory, in the guest's secrets too."""

    name: str


@dataclass(frozen=True, slots=True)
class Wire:
    """The host:port that a port is forwarded from, which is known once the lab is up: a file, too."""

    name: str

    @property
    def file(self) -> str:
        """The file's name in the lab's directory."""
        return f"wire-{self.name}"


Value = str | int | bool | Secret | Wire | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Target:
    """One entry under ``targets:``; ``comment`` teaches the reader of the file."""

    name: str
    body: Mapping[str, Value]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """One server."""

    name: str
    script: str
    ports: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    secrets: tuple[Secret, ...] = ()


def resizing(disk: str, size: int, most: int, then: str = "") -> dict[str, Value]:
    """Return controls (storagetest.config.controls) by which a disk of ``size`` MiB grows to ``most``.

    ``then`` is what tells the server, in words of the shell.
    """

    def to(mebibytes: int) -> list[Value]:
        return ["sh", "-euc", f". /run/lab/lib.sh; resize {disk} {mebibytes}" + (then and f"; {then}")]

    return {"grow": to(most), "shrink": to(size)}
