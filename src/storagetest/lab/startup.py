"""Starting a lab: what is prepared before the keeper, the keeper's other side, and what is published after.

The order matters, and `Lab.up` keeps it: the keeper inherits the lab's lock (see claims.py) and listens to a
pipe until `up` commits, which `up` does last, after the files that others read are written. So there is no
moment in which `up` can die and leave a lab behind.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from storagetest.errors import LabError
from storagetest.lab import guestfiles, initramfs, qemu, qmp, ssh, status
from storagetest.lab.keeper import COMMIT, PLAN
from storagetest.lab.paths import package_root
from storagetest.lab.process import require, run, tail
from storagetest.lab.services import Target, Wire
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.lab.targets import targets_yaml

__all__ = ["FACTS", "Keeper", "Plan", "check_host", "prepare", "publish", "running", "write_plan"]

FACTS = "lab.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the keeper is to run. ``patience`` is in seconds, see policy.py."""

    machines: Sequence[qemu.Machine]
    boot: qemu.Boot
    patience: float
    owner: int | None


def check_host() -> None:
    """Raise :class:`LabError`, saying what to do, where this machine cannot have a lab."""
    if platform.machine() != "x86_64":
        raise LabError(f"the lab's machines are x86-64, and so must this one be: not {platform.machine()}")
    require(["qemu-system-x86_64", "ssh", "ssh-keygen"])
    found = qemu.version(run(["qemu-system-x86_64", "--version"], timeout=30))
    if found < qemu.OLDEST:
        oldest, here = (".".join(map(str, version)) for version in (qemu.OLDEST, found))
        raise LabError(f"the lab needs QEMU {oldest} or later; here is {here}")


def prepare(directory: Path, plan: Plan, early: bytes) -> None:
    """Write all that the keeper needs: keys, passwords, the plan, and each machine's initramfs.

    ``early`` is the half of the initramfs that came with the image.
    """
    authorized = ssh.make_key(directory / "id_ed25519", "storagetest-lab").with_suffix(".pub").read_bytes()
    passwords = _passwords(directory, plan.machines)
    for machine in plan.machines:
        key = ssh.make_key(directory / f"host-key-{machine.name}", machine.name)
        files = guestfiles.files(
            machine,
            plan.machines,
            host_key=key.read_bytes(),
            authorized_key=authorized,
            secrets=passwords,
            overlay=plan.boot.overlay is not None,
        )
        (directory / f"initrd-{machine.name}").write_bytes(early + initramfs.archive(files))
    write_plan(directory, plan, {})


def write_plan(directory: Path, plan: Plan, ports: Mapping[str, Mapping[str, int]]) -> None:
    """Write what the keeper runs, with the ``ports`` of the machines whose ports are known."""
    machines = [
        {
            "name": machine.name,
            "argv": qemu.argv(machine, plan.boot, plan.machines, ports.get(machine.name)),
            "listen": qemu.listeners(machine, plan.machines),
        }
        for machine in plan.machines
    ]
    text = json.dumps({"machines": machines, "patience": plan.patience, "owner": plan.owner}, indent=1)
    new = directory / f"{PLAN}.new"
    new.write_text(text)
    new.replace(directory / PLAN)


def _passwords(directory: Path, machines: Sequence[qemu.Machine]) -> dict[str, str]:
    """Make a password for each secret of the machines' services, each a file that only its owner may read."""
    made = {}
    for machine in machines:
        for service in machine.services:
            for secret in service.secrets:
                made[secret.name] = secrets.token_hex(8)
                path = directory / secret.name
                path.touch(mode=0o600)
                path.write_text(made[secret.name])
    return made


class Keeper:
    """`up`'s side of the keeper: leaving it without a commit ends the lab."""

    def __init__(self, directory: Path, lock: BinaryIO) -> None:
        self._directory = directory
        path = os.pathsep.join(filter(None, (str(package_root()), os.environ.get("PYTHONPATH"))))
        with (directory / "keeper.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "storagetest.lab.keeper", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        self._committed = False

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if not self._committed:
            while self._process.stdout.read(1 << 16):  # it closes its end when nothing is left of the lab
                pass
        self._process.stdout.close()
        self._process.wait()

    def wait_up(self, progress: Callable[[str], None]) -> None:
        """Return when all machines are up; :class:`LabError` says which is not."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            match told["event"]:
                case "up":
                    return
                case "retry":
                    progress(f"boot: {told['machine']} again ({told['why']})")
                case "failed":
                    raise LabError(self._failure(told["machine"], told["why"]))
        raise LabError(f"the lab's keeper ended: {tail(self._directory / 'keeper.log')}")

    def commit(self) -> None:
        """From here on the lab is not `up`'s any more."""
        assert self._process.stdin is not None
        self._process.stdin.write(COMMIT)
        self._process.stdin.flush()
        self._committed = True

    def _failure(self, machine: str, why: str) -> str:
        console = tail(self._directory / f"console-{machine}.log", 12)
        return f"{machine} did not start: {why}" + (
            f"\nThe end of its console:\n{console}" if console else ""
        )


def running(directory: Path, machine: qemu.Machine) -> HostStatus:
    """Return the status of a machine that has just become ready, with the ports that its QEMU was given."""
    given = qmp.forwarded(directory / f"qmp-{machine.name}")
    return HostStatus(
        name=machine.name,
        address=machine.address,
        services=tuple(service.name for service in machine.services),
        ports={what: given[port] for what, port in machine.forwards.items()},
    )


def publish(directory: Path, facts: LabStatus, targets: tuple[Target, ...]) -> None:
    """Write the files that others read; the one that says that the lab is up comes last, and whole."""
    ports = {host.name: host.ports["ssh"] for host in facts.hosts}
    keys = {name: (directory / f"host-key-{name}.pub").read_text() for name in ports}
    known = directory / "known_hosts"
    known.write_text(ssh.known_hosts(ports, keys))
    (directory / "ssh_config").write_text(ssh.config(ports, directory / "id_ed25519", known))
    for what, port in next(host.ports for host in facts.hosts if host.name == qemu.APPLIANCE).items():
        (directory / Wire(what).file).write_text(f"127.0.0.1:{port}\n")
    clients = [host.name for host in facts.hosts if host.name != qemu.APPLIANCE]
    text = targets_yaml(facts.name, facts.shape.describe(), directory, clients, targets)
    (directory / "targets.yaml").write_text(text)
    new = directory / f"{FACTS}.new"
    new.write_text(status.dump(facts))
    new.replace(directory / FACTS)
