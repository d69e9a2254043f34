"""Services of a lab machine: one module per server (knfsd, Samba, LIO …), each with one ``SERVICE``.

A service is data: its Debian packages and kernel modules, the script that starts it in the guest, the ports
that are forwarded to the host, and its targets in the generated targets.yaml. A role (see roles/) is a list
of services.

The scripts run at boot, concurrently, with busybox's ``sh -eu``, after lib.sh is sourced and ``modules`` are
loaded. Their output is in /run/lab/log in the guest. The machine's settings are in /run/lab/machine.env,
secrets in /run/lab/secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = [
    "ADDRESS",
    "SECOND_ADDRESS",
    "ForwardedPort",
    "OverlayContents",
    "Running",
    "Secret",
    "Service",
    "Target",
    "YamlValue",
    "nfs_wire",
    "resize_controls",
    "wire_target",
]

# The appliance's address on the lab's network; the same in every lab, because the networks are isolated.
ADDRESS = "10.77.0.1"
SECOND_ADDRESS = "10.77.0.2"
"""A second address of the appliance on the same network, for targets with two paths."""

KERNEL_VERSION = "uname -r"


@dataclass(frozen=True, slots=True)
class Secret:
    """A password, generated per lab: a file in the lab's directory and in the guest's /run/lab/secrets."""

    name: str


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """The host:port that forwards to a service's port; written to a file when the lab is up."""

    name: str

    @property
    def file(self) -> str:
        """The file's name in the lab's directory."""
        return f"wire-{self.name}"


@dataclass(frozen=True, slots=True)
class Running:
    """The ``implementation`` of a target: its name, and a command there that prints its version."""

    name: str
    version: str


YamlValue = str | int | bool | Secret | ForwardedPort | Running | list["YamlValue"] | dict[str, "YamlValue"]


@dataclass(frozen=True, slots=True)
class Target:
    """One entry under ``targets:``, without the keys that :attr:`Service.all_targets` adds.

    ``comment`` is written above the entry. ``roles`` are those of published experiments that it takes.
    """

    name: str
    body: Mapping[str, YamlValue]
    comment: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OverlayContents:
    """What a service needs from an overlay, because Debian does not package it.

    ``modules`` are names of kernel modules, ``programs`` paths in the tree with their purposes, ``plugins``
    names of libraries that programs load, with their purposes. ``libraries`` are names (without ``.so``) of
    libraries that come with the programs.
    """

    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """One server."""

    name: str
    script: str
    credentials: str = ""
    """Script that sets the passwords; runs after ``script``, and after a resume from a snapshot."""
    implementation: str = ""
    """The ``implementation`` of the targets, which known issues are listed under."""
    version: str = KERNEL_VERSION
    """Shell command that prints the version of the implementation; text before its first digit is ignored."""
    packages: tuple[str, ...] = ()
    """Debian packages to install."""
    unpacked: tuple[str, ...] = ()
    """Debian packages to unpack without installation, because they conflict with installed ones."""
    modules: tuple[str, ...] = ()
    """Kernel modules to load before the script runs."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Guest ports to forward from the host's loopback, by name."""
    targets: tuple[Target, ...] = ()
    secrets: tuple[Secret, ...] = ()
    overlay: OverlayContents | None = None
    """What the service needs from an overlay; without it the service does not start."""

    @property
    def all_targets(self) -> tuple[Target, ...]:
        """The targets, with the keys that all targets of an appliance have."""
        common: dict[str, YamlValue] = {
            "implementation": Running(self.implementation, self.version),
            "server": "appliance",
            "clients": "all",
        }
        return tuple(
            replace(target, body={"protocol": target.body["protocol"], **common, **target.body})
            for target in self.targets
        )

    @property
    def boot_script(self) -> str:
        """The script that the machine runs at boot."""
        load = f"modules {' '.join(self.modules)}\n" if self.modules else ""
        return f". /run/lab/lib.sh\n{load}{self.script.lstrip()}{self.credentials.lstrip()}"

    @property
    def credentials_script(self) -> str:
        """The script that the machine runs after a resume."""
        return f". /run/lab/lib.sh\n{self.credentials.lstrip()}"


def wire_target(protocol: str, port: int, **options: YamlValue) -> dict[str, YamlValue]:
    """Return the body of a target that wire cases reach through the forwarded port named as its protocol."""
    return {
        "protocol": protocol,
        "address": ADDRESS,
        "port": port,
        "wire": ForwardedPort(protocol),
        **options,
    }


def nfs_wire() -> dict[str, YamlValue]:
    """Return the options by which wire cases reach NFS, MOUNT, lock manager and status monitor."""
    return {
        "wire": ForwardedPort("nfs"),
        "wire_mount": ForwardedPort("mountd"),
        "wire_lock": ForwardedPort("lockd"),
        "wire_status": ForwardedPort("statd"),
    }


def resize_controls(disk: str, size: int, max_size: int, notify: str = "") -> dict[str, YamlValue]:
    """Return target controls (storagetest.config.controls) that resize a disk between two sizes in MiB.

    ``notify`` is a shell command that makes the server read the new size.
    """

    def resize(mebibytes: int) -> list[YamlValue]:
        return ["sh", "-euc", f". /run/lab/lib.sh; resize {disk} {mebibytes}" + (notify and f"; {notify}")]

    return {"grow": resize(max_size), "shrink": resize(size)}
