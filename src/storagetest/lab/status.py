"""Status of a running lab as data, for messages, ``--json`` and other commands.

``lab.json`` in the lab's directory is the constant part. `up` writes it when all machines are ready, so a
directory without it belongs to a lab that is still starting. The machines' states are in the supervisor's
``states.json``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from storagetest.lab import roles


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The parameters of a lab: labs with equal parameters are interchangeable."""

    clients: int
    appliance: str
    overlay: str | None = None

    def describe(self) -> str:
        """Return a short text for messages."""
        overlay = f", overlay {self.overlay}" if self.overlay else ""
        return f"{self.appliance} appliance, {self.clients} client{'s' * (self.clients != 1)}{overlay}"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One machine. ``ports`` are the forwarded ports of 127.0.0.1, by the name of the guest's port."""

    name: str
    address: str
    services: tuple[str, ...]
    ports: dict[str, int]
    state: str = "ready"
    boots: int = 1


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A running lab. ``supervisor`` and ``owner`` are pids, ``seconds`` is how long the start took.

    ``snapshot`` is the name of the snapshot that the machines were resumed from; empty if they were booted.
    """

    name: str
    shape: LabSpec
    accelerator: str
    kernel_release: str
    image: str
    owner: int | None
    supervisor: int
    seconds: float
    ssh_config: str
    targets: str
    hosts: tuple[HostStatus, ...]
    snapshot: str = ""

    @property
    def start(self) -> str:
        """How the machines were started: "resumed" or "booted"."""
        return "resumed" if self.snapshot else "booted"

    def host(self, name: str) -> HostStatus | None:
        """Return the machine called ``name``."""
        return next((host for host in self.hosts if host.name == name), None)


def dump(status: LabStatus) -> str:
    """Return ``status`` as JSON text."""
    # `keeper` is the former name of `supervisor`, kept for one release.
    return json.dumps({**asdict(status), "keeper": status.supervisor}, indent=2) + "\n"


def parse(text: str, states: str = "{}") -> LabStatus:
    """Return the status that :func:`dump` wrote, updated with the supervisor's ``states``.

    The text may be from an earlier release, with former names of a role and of ``supervisor``.
    """
    facts: dict[str, Any] = json.loads(text)
    now: dict[str, Any] = json.loads(states)
    facts["supervisor"] = facts.pop("keeper")
    shape: dict[str, Any] = facts.pop("shape")
    shape["appliance"] = roles.RENAMED.get(shape["appliance"], shape["appliance"])
    hosts = []
    for host in facts.pop("hosts"):
        state = now.get(host["name"], {})
        fresh = {"state": state.get("phase", host["state"]), "boots": state.get("boots", host["boots"])}
        hosts.append(HostStatus(**{**host, **fresh, "services": tuple(host["services"])}))
    return LabStatus(**{**facts, "shape": LabSpec(**shape), "hosts": tuple(hosts)})


def read(directory: Path, lab: str, states: str) -> LabStatus | None:
    """Return the status in ``directory``, or None if the lab is not up yet."""
    try:
        text = (directory / lab).read_text()
    except FileNotFoundError:
        return None
    try:
        return parse(text, (directory / states).read_text())
    except FileNotFoundError:
        return parse(text)
