"""Start of a lab: write the supervisor's input, run the supervisor, publish the result.

The order prevents that a killed `up` leaves a lab running: the supervisor inherits the lab's lock (see
lab_locks.py) and ends when its pipe from `up` closes. `up` commits on that pipe as its last step, after it
has written the files that other programs read.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from storagetest.errors import LabError
from storagetest.files import replace_file
from storagetest.lab import guest_files, initramfs, qemu, qmp, snapshots, ssh, status
from storagetest.lab.paths import package_root
from storagetest.lab.services import ForwardedPort, Running, Target
from storagetest.lab.snapshots import LabSnapshot
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.lab.subprocess_util import require, run, tail
from storagetest.lab.supervisor import COMMIT, PLAN, send_request, settings_file
from storagetest.lab.targets import targets_yaml

FACTS = "lab.json"
"""Written last: a lab directory with this file belongs to a lab that is up."""

_SSH_TIMEOUT = 300.0
"""Seconds for one command over SSH; a bound on a hang (chosen for a busy host)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Input of the supervisor. ``boot_timeout`` and ``boot_limit`` are in seconds, see supervisor_fsm.py.

    With ``snapshot``, the machines can resume from it, and ``save`` means that they boot to be saved there.
    """

    machines: Sequence[qemu.Machine]
    boot: qemu.Boot
    boot_timeout: float
    boot_limit: float
    owner: int | None
    snapshot: LabSnapshot | None = None
    save: bool = False


def check_host() -> str:
    """Return QEMU's version text. Raises :class:`LabError` if this machine cannot run a lab."""
    if platform.machine() != "x86_64":
        raise LabError(f"the lab needs an x86-64 host; this one is {platform.machine()}")
    require(["qemu-system-x86_64", "ssh", "ssh-keygen"])
    text = run(["qemu-system-x86_64", "--version"], timeout=30)
    found = qemu.version(text)
    if found < qemu.OLDEST:
        oldest, present = (".".join(map(str, version)) for version in (qemu.OLDEST, found))
        raise LabError(f"the lab needs QEMU {oldest} or later; this host has {present}")
    return text


def prepare(directory: Path, plan: Plan, early: bytes) -> None:
    """Write new keys and passwords, each machine's initramfs and settings, and the plan.

    ``early`` is the image's part of the initramfs.
    """
    authorized = ssh.make_key(directory / "id_ed25519", "storagetest-lab").with_suffix(".pub").read_bytes()
    passwords = _passwords(directory, plan.machines)
    for machine in plan.machines:
        key = ssh.make_key(directory / f"host-key-{machine.name}", machine.name).read_bytes()
        private = guest_files.Private(key, authorized, passwords)
        files = guest_files.files(machine, plan.machines, private, boot=plan.boot, save=plan.save)
        (directory / f"initrd-{machine.name}").write_bytes(early + initramfs.archive(files))
        settings = directory / settings_file(machine.name)
        settings.touch(mode=0o600)
        settings.write_text(json.dumps(guest_files.settings(machine, private)))
    write_plan(directory, plan, {})


def write_plan(directory: Path, plan: Plan, ports: Mapping[str, Mapping[str, int]]) -> None:
    """Write the plan. ``ports`` are the forwarded ports of machines that have run before."""
    machines = []
    for machine in plan.machines:
        files = plan.snapshot.files(machine.name) if plan.snapshot else None
        arguments = (machine, plan.boot, plan.machines, ports.get(machine.name))
        machines.append(
            {
                "name": machine.name,
                "argv": qemu.argv(*arguments, save=files if plan.save else None),
                "resume_argv": qemu.argv(*arguments, resume=files) if files else None,
                "state": files.state if files else None,
                "listen": qemu.listeners(machine, plan.machines),
            }
        )
    resume = plan.snapshot is not None and not plan.save
    facts = {
        "machines": machines,
        "boot_timeout": plan.boot_timeout,
        "boot_limit": plan.boot_limit,
        "owner": plan.owner,
        "resume": resume,
    }
    replace_file(directory / PLAN, json.dumps(facts, indent=1))


def _passwords(directory: Path, machines: Sequence[qemu.Machine]) -> dict[str, str]:
    """Generate a password per secret of the machines' services; write each to a file of mode 0600."""
    passwords = {}
    for machine in machines:
        for service in machine.services:
            for secret in service.secrets:
                passwords[secret.name] = secrets.token_hex(8)
                path = directory / secret.name
                path.touch(mode=0o600)
                path.write_text(passwords[secret.name])
    return passwords


@contextmanager
def machines_started(
    directory: Path, lock: BinaryIO, early: bytes, plan: Plan, key: str, progress: Callable[[str], None]
) -> Iterator[tuple[SupervisorHandle, Plan, bool]]:
    """Yield the supervisor of the started machines, their plan, and whether they were resumed.

    ``early`` is the image's part of the initramfs. ``key`` names the snapshot to resume from; if there is
    none, the machines boot and are saved first. With an empty ``key`` they only boot. If they do not resume,
    they boot, and the snapshot is removed.
    """
    snapshot = snapshots.find(key) if key else None
    with ExitStack() as stack:
        temporary = None if snapshot or not key else stack.enter_context(snapshots.new())
        plan = replace(plan, snapshot=snapshot or temporary, save=temporary is not None)
        prepare(directory, plan, early)
        supervisor = stack.enter_context(SupervisorHandle(directory, lock, kvm=plan.boot.kvm))
        booted = supervisor.wait_up(progress)
        if temporary:
            names = [machine.name for machine in plan.machines]
            progress("save: the machines' snapshot, for this lab and later ones")
            plan = replace(plan, snapshot=snapshots.save(temporary, directory, names, key), save=False)
            prepare(directory, plan, early)
            send_request(directory, json.dumps({"resume": True}))
            booted = supervisor.wait_up(progress)
        if booted:
            snapshots.discard(key)
            plan = replace(plan, snapshot=None)
        yield supervisor, plan, plan.snapshot is not None


class SupervisorHandle:
    """The supervisor as `up` sees it; leaving the context without :meth:`commit` ends the lab."""

    def __init__(self, directory: Path, lock: BinaryIO, *, kvm: bool) -> None:
        self._directory = directory
        self._kvm = kvm
        path = os.pathsep.join(filter(None, (str(package_root()), os.environ.get("PYTHONPATH"))))
        with (directory / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "storagetest.lab.supervisor", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._committed = False

    def __enter__(self) -> SupervisorHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        if not self._committed:
            while self._stdout.read(1 << 16):  # end of file: the supervisor has removed the lab
                pass
        self._stdout.close()
        self._process.wait()

    def wait_up(self, progress: Callable[[str], None]) -> bool:
        """Wait until all machines are up; return whether those that should resume did not, and were booted.

        Raises :class:`LabError` with the machine that failed.
        """
        booted = False
        for line in self._stdout:
            event = json.loads(line)
            match event["event"]:
                case "up":
                    return booted
                case "not resumed":
                    booted = True
                    progress(f"resume: {event['machine']} failed ({event['reason']}); booting")
                case "retry":
                    progress(f"boot: {event['machine']} again ({event['reason']})")
                case "failed":
                    raise LabError(self._failure(event["machine"], event["reason"]))
        raise LabError(f"the lab's supervisor exited: {tail(self._directory / 'supervisor.log')}")

    def commit(self) -> None:
        """Let the lab outlive `up`."""
        self._stdin.write(COMMIT)
        self._stdin.flush()
        self._committed = True

    def _failure(self, machine: str, reason: str) -> str:
        console = tail(self._directory / f"console-{machine}.log", 12)
        text = f"{machine} did not start: {reason}"
        if console:
            text += f"\nEnd of its console:\n{console}"
        return f"{text}\n{advice(os.getloadavg()[0], os.cpu_count() or 1, kvm=self._kvm)}"


def advice(load: float, processors: int, *, kvm: bool) -> str:
    """Return what to do about a lab that does not start, on a host with this load average."""
    sentences = ["What to do: run the command again."]
    if load > 2 * processors:
        sentences.append(
            f"This host is busy (load average {load:.0f}, {processors} processor{'s' * (processors != 1)}): "
            "wait until it is less so, or start fewer machines (--clients 1)."
        )
    if not kvm:
        sentences.append("The machines are emulated; with access to /dev/kvm they start much faster.")
    sentences.append('docs/lab.md, "If a lab does not start", has the causes.')
    return " ".join(sentences)


def host_status(directory: Path, machine: qemu.Machine) -> HostStatus:
    """Return the status of a ready machine, with its forwarded ports as QEMU reports them."""
    forwarded = qmp.forwarded(directory / f"qmp-{machine.name}")
    return HostStatus(
        name=machine.name,
        address=machine.address,
        services=tuple(service.name for service in machine.services),
        ports={name: forwarded[port] for name, port in machine.forwards.items()},
    )


def publish(
    directory: Path, facts: LabStatus, targets: tuple[Target, ...], snapshot: LabSnapshot | None
) -> None:
    """Write the files that other programs read; the status file last, with an atomic rename.

    ``snapshot`` is the one that the machines resumed from; it keeps the versions of its implementations.
    """
    ports = {host.name: host.ports["ssh"] for host in facts.hosts}
    keys = {name: (directory / f"host-key-{name}.pub").read_text() for name in ports}
    known = directory / "known_hosts"
    known.write_text(ssh.known_hosts(ports, keys))
    (directory / "ssh_config").write_text(ssh.config(ports, directory / "id_ed25519", known))
    for name, port in next(host.ports for host in facts.hosts if host.name == qemu.APPLIANCE).items():
        (directory / ForwardedPort(name).file).write_text(f"127.0.0.1:{port}\n")
    clients = [host.name for host in facts.hosts if host.name != qemu.APPLIANCE]
    versions = _versions(directory, targets, snapshot)
    text = targets_yaml(facts.name, facts.shape.describe(), directory, clients, targets, versions)
    (directory / "targets.yaml").write_text(text)
    replace_file(directory / FACTS, status.dump(facts))


def _versions(
    directory: Path, targets: tuple[Target, ...], snapshot: LabSnapshot | None
) -> dict[Running, str]:
    """Return the version of each implementation, as the appliance reports it; "" if a command prints none."""
    found = {value for target in targets for value in target.body.values() if isinstance(value, Running)}
    running = sorted(found, key=lambda each: each.name)
    if not running:
        return {}
    lines = snapshot.versions(len(running)) if snapshot else None
    if lines is None:
        script = "\n".join(f"echo \"$({each.version} 2>&1 | tr '\\n' ' ')\"" for each in running)
        command = ssh.argv(directory / "ssh_config", qemu.APPLIANCE, ["sh", "-c", script])
        lines = run(command, timeout=_SSH_TIMEOUT).splitlines()
        if snapshot and any(map(version_in, lines)):
            snapshot.keep_versions(lines)
    return {each: version_in(line) for each, line in zip(running, lines, strict=True)}


def version_in(text: str) -> str:
    """Return the first word of ``text`` that is a version, from its first digit on."""
    match = re.search(r"(?<![\w.])[vV]?(\d+(?:\.\d+)+[\w.~+-]*)", text)
    return match[1] if match else ""
