"""A lab: one appliance and its clients, started, found, described and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab import accel, claims, image, overlays, qemu, roles, ssh, start, status
from storagetest.lab.faults import Vm
from storagetest.lab.keeper import LOCK, STATES
from storagetest.lab.paths import lab_dir, state_root
from storagetest.lab.process import tail
from storagetest.lab.services import client
from storagetest.lab.status import HostStatus, LabStatus, Shape
from storagetest.polling import wait_until

__all__ = ["Lab"]

_MOST_CLIENTS = 64
_CLIENT_MEMORY = 1024  # MiB
_SOMEBODY_ELSE = 600.0
# Seconds without a milestone after which a machine counts as hung. Emulation on a loaded machine is slow.
_PATIENCE = {True: 20.0, False: 60.0}


class Lab:
    """A lab that is up."""

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
        patience: float | None = None,
    ) -> Lab:
        """Return a lab of this shape called ``name``, started unless it is up.

        With ``owner``, the lab ends when that process does; without, when :meth:`down` is called.
        ``patience`` is how many seconds a machine may be silent at its start. Raises :class:`LabError` when
        another shape is up by that name, or when the lab does not start.
        """
        began = time.monotonic()
        role = roles.load(appliance)
        if not 0 <= clients <= _MOST_CLIENTS:
            raise LabError(f"a lab has up to {_MOST_CLIENTS} clients: not {clients}")
        tree = overlays.describe(overlay) if overlay else None
        shape = Shape(clients, appliance, tree.hash if tree else None)
        directory = lab_dir(name)
        if found := cls._up_already(name, shape, progress):
            return found
        start.check_host()
        built = image.build(role.recipe, progress)
        packed = overlays.pack(tree, built, progress) if tree else None
        how = accel.choose(built.kernel, built.initrd)
        machines = qemu.machines(role.memory, role.services, clients, _CLIENT_MEMORY, (client.SERVICE,))
        boot = qemu.Boot(str(built.kernel), str(built.rootfs), str(packed) if packed else None, kvm=how.kvm)
        plan = start.Plan(machines, boot, patience or _PATIENCE[how.kvm], owner)
        try:
            with claims.claimed(directory) as lock:
                progress(f"boot: {', '.join(machine.name for machine in machines)}, {how.describe()}")
                start.prepare(directory, plan, built.initrd.read_bytes())
                with start.Keeper(directory, lock) as keeper:
                    keeper.wait_up(progress)
                    facts = LabStatus(
                        name=name,
                        shape=shape,
                        accelerator=how.describe() + (f": {how.detail}" if how.detail else ""),
                        kernel_release=built.kernel_release,
                        image=built.hash,
                        owner=owner,
                        keeper=int((directory / LOCK).read_text()),
                        seconds=round(time.monotonic() - began, 1),
                        ssh_config=str(directory / "ssh_config"),
                        targets=str(directory / "targets.yaml"),
                        hosts=tuple(start.running(directory, machine) for machine in machines),
                    )
                    start.write_plan(directory, plan, {host.name: host.ports for host in facts.hosts})
                    start.publish(directory, facts, role.targets)
                    keeper.commit()
        except FileExistsError:
            raise LabError(f"lab {name} was started by somebody else just now") from None
        progress(f"up in {facts.seconds:.1f} s: {shape.describe()}, {how.describe()}")
        return cls(directory)

    @classmethod
    def _up_already(cls, name: str, shape: Shape, progress: Callable[[str], None]) -> Lab | None:
        """Return the lab called ``name`` if it is up, after waiting for it where somebody is starting it."""
        directory = lab_dir(name)
        found = cls.find(name)
        if found is None and claims.alive(directory):
            progress(f"lab {name} is being started by somebody else, waiting")
            wait_until(
                lambda: cls.find(name) is not None or not claims.alive(directory),
                _SOMEBODY_ELSE,
                f"lab {name}, which somebody else is starting",
                interval=0.5,
                error=LabError,
            )
            found = cls.find(name)
        if found is None:
            return None
        there = found.status()
        again = f"end it with `storagetest lab down --name {name}`"
        if there.shape != shape:
            raise LabError(
                f"lab {name} is up as another one ({there.shape.describe()}); {again}, or name yours"
            )
        if broken := [host.name for host in there.hosts if host.state in {"ended", "failed"}]:
            raise LabError(f"lab {name} is up, but {', '.join(broken)} is not any more; {again}")
        progress(f"lab {name} is up already: {shape.describe()}")
        return found

    @classmethod
    def find(cls, name: str = "default") -> Lab | None:
        """Return the lab called ``name`` if it is up."""
        directory = lab_dir(name)
        claims.prune()
        return cls(directory) if (directory / start.FACTS).exists() else None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all labs that are up."""
        claims.prune()
        return sorted(facts.parent.name for facts in state_root().glob(f"[!.]*/{start.FACTS}"))

    @classmethod
    def end(cls, name: str = "default") -> bool:
        """End the lab called ``name``, up or still starting; return whether there was one."""
        directory = lab_dir(name)
        there = claims.alive(directory)
        claims.end(directory)
        return there

    def down(self) -> None:
        """End it: its machines, its keeper, its directory."""
        claims.end(self._directory)

    @property
    def name(self) -> str:
        """Its name."""
        return self._directory.name

    @property
    def hosts(self) -> tuple[HostStatus, ...]:
        """Its machines, the appliance first."""
        return self.status().hosts

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration that knows its machines by name."""
        return self._directory / "ssh_config"

    @property
    def targets_yaml(self) -> Path:
        """The ready targets.yaml."""
        return self._directory / "targets.yaml"

    def status(self) -> LabStatus:
        """Return what there is to know; :class:`LabError` if it is not up any more."""
        found = status.read(self._directory, start.FACTS, STATES)
        if found is None:
            raise LabError(f"lab {self.name} is not up")
        return found

    def ssh_argv(self, host: str, command: Sequence[str] = ()) -> list[str]:
        """Return the command that runs ``command`` on ``host``; a shell there when it is empty."""
        return ssh.argv(self.ssh_config, self._host(host).name, command)

    def vm(self, host: str) -> Vm:
        """Return a machine as something that faults can be done to."""
        self._host(host)
        return Vm(host, self._directory, self.status)

    def console(self, host: str, lines: int = 40) -> str:
        """Return the last lines of a machine's console."""
        return tail(self._directory / f"console-{self._host(host).name}.log", lines)

    def _host(self, name: str) -> HostStatus:
        found = self.status()
        host = found.host(name)
        if host is None:
            known = ", ".join(other.name for other in found.hosts)
            raise LabError(f"lab {self.name} has no machine {name!r}; it has {known}")
        return host
