"""What can be said about a lab that is up, as data: for people, for ``--json``, for the next command.

``lab.json`` in the lab's directory is the part that does not change while the lab is up; `up` writes it when
everything runs, so a directory without it belongs to a lab that is still starting. What changes (a machine
that reboots) is in the keeper's ``states.json``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["HostStatus", "LabStatus", "Shape", "dump", "parse"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What was asked for. Two labs of one shape are as good as each other."""

    clients: int
    appliance: str
    overlay: str | None = None

    def describe(self) -> str:
        """Say it in a few words."""
        overlay = f", overlay {self.overlay}" if self.overlay else ""
        return f"{self.appliance} appliance, {self.clients} client{'s' * (self.clients != 1)}{overlay}"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One machine. ``ports`` are forwarded: what listens in the machine, and the port of 127.0.0.1 for it."""

    name: str
    address: str
    services: tuple[str, ...]
    ports: dict[str, int]
    state: str = "ready"
    boots: int = 1


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab that is up."""

    name: str
    shape: Shape
    accelerator: str
    kernel_release: str
    image: str
    owner: int | None
    keeper: int
    seconds: float
    ssh_config: str
    targets: str
    hosts: tuple[HostStatus, ...]

    def host(self, name: str) -> HostStatus | None:
        """Return the machine called ``name``."""
        return next((host for host in self.hosts if host.name == name), None)


def dump(status: LabStatus) -> str:
    """Return ``status`` as JSON text."""
    return json.dumps(asdict(status), indent=2) + "\n"


def parse(text: str, states: str = "{}") -> LabStatus:
    """Return the status that :func:`dump` wrote, with what the keeper's ``states`` say meanwhile."""
    facts: dict[str, Any] = json.loads(text)
    now: dict[str, Any] = json.loads(states)
    hosts = []
    for host in facts.pop("hosts"):
        state = now.get(host["name"], {})
        fresh = {"state": state.get("phase", host["state"]), "boots": state.get("boots", host["boots"])}
        hosts.append(HostStatus(**{**host, **fresh, "services": tuple(host["services"])}))
    return LabStatus(**{**facts, "shape": Shape(**facts["shape"]), "hosts": tuple(hosts)})


def read(directory: Path, lab: str, states: str) -> LabStatus | None:
    """Return the status in ``directory``, or None where a lab is still starting."""
    try:
        text = (directory / lab).read_text()
    except FileNotFoundError:
        return None
    try:
        return parse(text, (directory / states).read_text())
    except FileNotFoundError:
        return parse(text)
