"""The class ``Lab``: start, find, query and end a lab of one appliance and its clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab import image, kvm, lab_locks, overlays, qemu, roles, snapshots, ssh, startup, status
from storagetest.lab.fault_injection import FaultableVm
from storagetest.lab.paths import lab_dir, state_root
from storagetest.lab.services import client
from storagetest.lab.status import HostStatus, LabSpec, LabStatus
from storagetest.lab.subprocess_util import tail
from storagetest.lab.supervisor import LOCK, STATES
from storagetest.polling import wait_until

_MAX_CLIENTS = 64
_CLIENT_MEMORY = 1024  # MiB
# Seconds of silence, in time in which it could run, after which a machine counts as hung, by KVM; chosen.
_BOOT_TIMEOUT = {True: 20.0, False: 60.0}
_BOOT_LIMIT = 1200.0
"""Seconds of a start as a whole, on the clock (chosen: 60 times a boot under emulation on an idle host)."""

_OTHER_UP_TIMEOUT = 3 * _BOOT_LIMIT
"""Seconds that another `up` of the same lab may take: a resume, a boot and one more."""


class Lab:
    """A running lab."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def up(
        cls,
        name: str = "default",
        *,
        clients: int = 2,
        appliance: str = "kernel",
        overlay: Path | None = None,
        owner: int | None = None,
        progress: Callable[[str], None] = print,
        boot_timeout: float | None = None,
        cold: bool = False,
    ) -> Lab:
        """Return the lab called ``name`` with these parameters; start it unless it is up.

        The machines resume from a snapshot. If none exists, they boot once and are saved. With ``cold`` they
        boot, and no snapshot is used or made.

        With ``owner``, a pid, the lab ends with that process; without, when :meth:`down` is called.
        ``boot_timeout`` is the longest silence of a machine's console during its boot, in seconds in which it
        could run. Raises
        :class:`LabError` if a lab with this name and other parameters is up, or if the lab does not start.
        """
        began = time.monotonic()
        appliance = roles.current_name(appliance)
        role = roles.load(appliance)
        if not 0 <= clients <= _MAX_CLIENTS:
            raise LabError(f"--clients {clients}: use 0 to {_MAX_CLIENTS}")
        tree = overlays.describe(overlay) if overlay else None
        spec = LabSpec(clients, appliance, tree.hash if tree else None)
        directory = lab_dir(name)
        if found := cls._up_already(name, spec, progress):
            return found
        qemu_version = startup.check_host()
        built = image.build(role.recipe, progress)
        packed = overlays.pack(tree, built, progress) if tree else None
        accelerator = kvm.choose(built.kernel, built.initrd)
        machines = qemu.machines(role.memory, role.services, clients, _CLIENT_MEMORY, (client.SERVICE,))
        boot = qemu.Boot(
            str(built.kernel), str(built.rootfs), str(packed) if packed else None, kvm=accelerator.kvm
        )
        plan = startup.Plan(
            machines, boot, boot_timeout or _BOOT_TIMEOUT[accelerator.kvm], _BOOT_LIMIT, owner
        )
        key = "" if cold else snapshots.key_of(machines, boot, qemu_version)
        try:
            with lab_locks.create_locked(directory) as lock:
                progress(
                    f"start: {', '.join(machine.name for machine in machines)}, {accelerator.describe()}"
                )
                starting = startup.machines_started(
                    directory, lock, built.initrd.read_bytes(), plan, key, progress
                )
                with starting as (supervisor, plan, resumed):
                    facts = LabStatus(
                        name=name,
                        shape=spec,
                        accelerator=accelerator.describe()
                        + (f": {accelerator.detail}" if accelerator.detail else ""),
                        kernel_release=built.kernel_release,
                        image=built.hash,
                        owner=owner,
                        supervisor=int((directory / LOCK).read_text()),
                        seconds=round(time.monotonic() - began, 1),
                        ssh_config=str(directory / "ssh_config"),
                        targets=str(directory / "targets.yaml"),
                        hosts=tuple(startup.host_status(directory, machine) for machine in machines),
                        snapshot=key if resumed else "",
                    )
                    startup.write_plan(directory, plan, {host.name: host.ports for host in facts.hosts})
                    startup.publish(directory, facts, role.targets, plan.snapshot)
                    supervisor.commit()
        except FileExistsError:
            raise LabError(
                f"lab {name}: another process has just started it. Run the command again."
            ) from None
        progress(f"up in {facts.seconds:.1f} s ({facts.start}): {spec.describe()}, {accelerator.describe()}")
        return cls(directory)

    @classmethod
    def _up_already(cls, name: str, spec: LabSpec, progress: Callable[[str], None]) -> Lab | None:
        """Return the lab called ``name`` if it is up; wait for it if another process is starting it."""
        directory = lab_dir(name)
        found = cls.find(name)
        if found is None and lab_locks.alive(directory):
            progress(f"lab {name}: another process starts it, waiting")
            wait_until(
                lambda: cls.find(name) is not None or not lab_locks.alive(directory),
                _OTHER_UP_TIMEOUT,
                f"lab {name}, which another process starts",
                interval=0.5,
                error=LabError,
            )
            found = cls.find(name)
        if found is None:
            return None
        running = found.status()
        down = f"`storagetest lab down --name {name}`"
        if running.shape != spec:
            raise LabError(
                f"lab {name}: it is up with other parameters ({running.shape.describe()}). "
                f"Run {down}, or use --name."
            )
        if stopped := [host.name for host in running.hosts if host.state in {"ended", "failed"}]:
            raise LabError(f"lab {name}: it is up, but {', '.join(stopped)} has stopped. Run {down}.")
        progress(f"lab {name} is up already: {spec.describe()}")
        return found

    @classmethod
    def find(cls, name: str = "default") -> Lab | None:
        """Return the lab called ``name`` if it is up, else None."""
        directory = lab_dir(name)
        lab_locks.prune()
        return cls(directory) if (directory / startup.FACTS).exists() else None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all running labs."""
        lab_locks.prune()
        return sorted(facts.parent.name for facts in state_root().glob(f"[!.]*/{startup.FACTS}"))

    @classmethod
    def end(cls, name: str = "default") -> bool:
        """End the lab called ``name``, even if it is still starting; return whether it existed."""
        directory = lab_dir(name)
        existed = lab_locks.alive(directory)
        lab_locks.end(directory)
        return existed

    def down(self) -> None:
        """End the lab: its machines, its supervisor, its directory."""
        lab_locks.end(self._directory)

    @property
    def name(self) -> str:
        """The lab's name."""
        return self._directory.name

    @property
    def hosts(self) -> tuple[HostStatus, ...]:
        """The machines, the appliance first."""
        return self.status().hosts

    @property
    def ssh_config(self) -> Path:
        """Path of the SSH configuration, which has an entry per machine."""
        return self._directory / "ssh_config"

    @property
    def targets_yaml(self) -> Path:
        """The generated targets.yaml."""
        return self._directory / "targets.yaml"

    def status(self) -> LabStatus:
        """Return the present status. Raises :class:`LabError` if the lab is not up."""
        found = status.read(self._directory, startup.FACTS, STATES)
        if found is None:
            raise LabError(f"lab {self.name} is not up")
        return found

    def ssh_argv(self, host: str, command: Sequence[str] = ()) -> list[str]:
        """Return the ssh command that runs ``command`` on ``host``, or a shell if ``command`` is empty."""
        return ssh.argv(self.ssh_config, self._host(host).name, command)

    def vm(self, host: str) -> FaultableVm:
        """Return a machine for fault injection."""
        self._host(host)
        return FaultableVm(host, self._directory, self.status)

    def console(self, host: str, lines: int = 40) -> str:
        """Return the last lines of a machine's console."""
        return tail(self._directory / f"console-{self._host(host).name}.log", lines)

    def _host(self, name: str) -> HostStatus:
        found = self.status()
        host = found.host(name)
        if host is None:
            known = ", ".join(other.name for other in found.hosts)
            raise LabError(f"lab {self.name}: no machine {name!r}. Its machines: {known}.")
        return host
