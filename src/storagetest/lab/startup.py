"""Start of a lab: write the supervisor's input, run the supervisor, publish the result.

The order prevents that a killed `up` leaves a lab running: the supervisor inherits the lab's lock (see
lab_locks.py) and ends when its pipe from `up` closes. `up` commits on that pipe as its last step, after it
has written the files that other programs read.
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
from storagetest.lab import guest_files, initramfs, qemu, qmp, ssh, status
from storagetest.lab.paths import package_root
from storagetest.lab.services import ForwardedPort, Target
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.lab.subprocess_util import require, run, tail
from storagetest.lab.supervisor import COMMIT, PLAN
from storagetest.lab.targets import targets_yaml

__all__ = [
    "FACTS",
    "Plan",
    "SupervisorHandle",
    "check_host",
    "host_status",
    "prepare",
    "publish",
    "write_plan",
]

FACTS = "lab.json"
"""Written last: a lab directory with this file belongs to a lab that is up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Input of the supervisor. ``boot_timeout`` is in seconds, see supervisor_fsm.py."""

    machines: Sequence[qemu.Machine]
    boot: qemu.Boot
    boot_timeout: float
    owner: int | None


def check_host() -> None:
    """Raise :class:`LabError` if this machine cannot run a lab."""
    if platform.machine() != "x86_64":
        raise LabError(f"the lab needs an x86-64 host; this one is {platform.machine()}")
    require(["qemu-system-x86_64", "ssh", "ssh-keygen"])
    found = qemu.version(run(["qemu-system-x86_64", "--version"], timeout=30))
    if found < qemu.OLDEST:
        oldest, present = (".".join(map(str, version)) for version in (qemu.OLDEST, found))
        raise LabError(f"the lab needs QEMU {oldest} or later; this host has {present}")


def prepare(directory: Path, plan: Plan, early: bytes) -> None:
    """Write the keys, the passwords, each machine's initramfs and the plan.

    ``early`` is the image's part of the initramfs.
    """
    authorized = ssh.make_key(directory / "id_ed25519", "storagetest-lab").with_suffix(".pub").read_bytes()
    passwords = _passwords(directory, plan.machines)
    for machine in plan.machines:
        key = ssh.make_key(directory / f"host-key-{machine.name}", machine.name)
        files = guest_files.files(
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
    """Write the plan. ``ports`` are the forwarded ports of machines that have run before."""
    machines = [
        {
            "name": machine.name,
            "argv": qemu.argv(machine, plan.boot, plan.machines, ports.get(machine.name)),
            "listen": qemu.listeners(machine, plan.machines),
        }
        for machine in plan.machines
    ]
    text = json.dumps(
        {"machines": machines, "boot_timeout": plan.boot_timeout, "owner": plan.owner}, indent=1
    )
    new = directory / f"{PLAN}.new"
    new.write_text(text)
    new.replace(directory / PLAN)


def _passwords(directory: Path, machines: Sequence[qemu.Machine]) -> dict[str, str]:
    """Generate a password per secret of the machines' services; write each to a file of mode 0600."""
    made = {}
    for machine in machines:
        for service in machine.services:
            for secret in service.secrets:
                made[secret.name] = secrets.token_hex(8)
                path = directory / secret.name
                path.touch(mode=0o600)
                path.write_text(made[secret.name])
    return made


class SupervisorHandle:
    """The supervisor as `up` sees it; leaving the context without :meth:`commit` ends the lab."""

    def __init__(self, directory: Path, lock: BinaryIO) -> None:
        self._directory = directory
        path = os.pathsep.join(filter(None, (str(package_root()), os.environ.get("PYTHONPATH"))))
        with (directory / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "storagetest.lab.supervisor", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        self._committed = False

    def __enter__(self) -> SupervisorHandle:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if not self._committed:
            while self._process.stdout.read(1 << 16):  # end of file: the supervisor has removed the lab
                pass
        self._process.stdout.close()
        self._process.wait()

    def wait_up(self, progress: Callable[[str], None]) -> None:
        """Wait until all machines are up. Raises :class:`LabError` with the machine that failed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            match event["event"]:
                case "up":
                    return
                case "retry":
                    progress(f"boot: {event['machine']} again ({event['reason']})")
                case "failed":
                    raise LabError(self._failure(event["machine"], event["reason"]))
        raise LabError(f"the lab's supervisor exited: {tail(self._directory / 'supervisor.log')}")

    def commit(self) -> None:
        """Let the lab outlive `up`."""
        assert self._process.stdin is not None
        self._process.stdin.write(COMMIT)
        self._process.stdin.flush()
        self._committed = True

    def _failure(self, machine: str, reason: str) -> str:
        console = tail(self._directory / f"console-{machine}.log", 12)
        return f"{machine} did not start: {reason}" + (f"\nEnd of its console:\n{console}" if console else "")


def host_status(directory: Path, machine: qemu.Machine) -> HostStatus:
    """Return the status of a ready machine, with its forwarded ports as QEMU reports them."""
    forwarded = qmp.forwarded(directory / f"qmp-{machine.name}")
    return HostStatus(
        name=machine.name,
        address=machine.address,
        services=tuple(service.name for service in machine.services),
        ports={name: forwarded[port] for name, port in machine.forwards.items()},
    )


def publish(directory: Path, facts: LabStatus, targets: tuple[Target, ...]) -> None:
    """Write the files that other programs read; the status file last, with an atomic rename."""
    ports = {host.name: host.ports["ssh"] for host in facts.hosts}
    keys = {name: (directory / f"host-key-{name}.pub").read_text() for name in ports}
    known = directory / "known_hosts"
    known.write_text(ssh.known_hosts(ports, keys))
    (directory / "ssh_config").write_text(ssh.config(ports, directory / "id_ed25519", known))
    for name, port in next(host.ports for host in facts.hosts if host.name == qemu.APPLIANCE).items():
        (directory / ForwardedPort(name).file).write_text(f"127.0.0.1:{port}\n")
    clients = [host.name for host in facts.hosts if host.name != qemu.APPLIANCE]
    text = targets_yaml(facts.name, facts.shape.describe(), directory, clients, targets)
    (directory / "targets.yaml").write_text(text)
    new = directory / f"{FACTS}.new"
    new.write_text(status.dump(facts))
    new.replace(directory / FACTS)
