"""A lab: one appliance and its clients, started, found, described and ended.

`Lab.up` prepares everything that can be prepared (image, keys, each machine's initramfs), claims a directory,
and leaves the rest to a keeper (see keeper.py). The order matters:

1. the directory is claimed with a lock that the keeper inherits: there is no moment in which a lab exists and
   nobody holds its lock;
2. the keeper listens to a pipe until `up` commits: there is no moment in which `up` can die and leave one;
3. `up` commits last, after the files that others read are written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from storagetest.errors import LabError
from storagetest.lab import accel, guestfiles, image, initramfs, overlays, qemu, qmp, roles, ssh, status
from storagetest.lab.faults import Vm
from storagetest.lab.keeper import COMMIT, GONE, LOCK, PLAN, STATES
from storagetest.lab.paths import check_name, lab_dir, package_root, state_root
from storagetest.lab.process import require, tail
from storagetest.lab.services import client
from storagetest.lab.status import HostStatus, LabStatus, Shape
from storagetest.lab.targets import targets_yaml

__all__ = ["Lab"]

Progress = Callable[[str], None]
_FACTS = "lab.json"
_MOST_CLIENTS = 64
_CLIENT_MEMORY = 1024
_END = 30.0
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
        progress: Progress = print,
        patience: float | None = None,
    ) -> Lab:
        """Return a lab of this shape called ``name``, started unless it is up.

        With ``owner``, the lab ends when that process does; without, when :meth:`down` is called. Raises
        :class:`LabError` when another shape is up by that name, or when the lab does not start.
        """
        started = time.monotonic()
        role = roles.load(appliance)
        if not 0 <= clients <= _MOST_CLIENTS:
            raise LabError(f"a lab has up to {_MOST_CLIENTS} clients: not {clients}")
        tree = overlays.describe(overlay) if overlay else None
        shape = Shape(clients, appliance, tree.hash if tree else None)
        directory = lab_dir(name)
        if running := cls._running(name, shape):
            progress(f"lab {name} is up already: {shape.describe()}")
            return running
        require(["qemu-system-x86_64", "ssh", "ssh-keygen"])
        built = image.build(progress)
        packed = overlays.pack(tree, built, progress) if tree else None
        how = accel.choose(built.kernel, built.initrd)
        machines = qemu.machines(
            qemu.Machine(0, role.memory, role.services, role.ports),
            clients,
            qemu.Machine(0, _CLIENT_MEMORY, (client.SERVICE,)),
        )
        boot = qemu.Boot(str(built.kernel), str(built.rootfs), str(packed) if packed else None, kvm=how.kvm)
        with _claimed(name) as lock:
            progress(f"boot: {', '.join(machine.name for machine in machines)}, {how.describe()}")
            _prepare(directory, machines, boot, built, patience or _PATIENCE[how.kvm], owner)
            with _Keeper(directory, lock) as keeper:
                keeper.wait_up(progress)
                facts = LabStatus(
                    name=name,
                    shape=shape,
                    accelerator=how.describe() + (f": {how.detail}" if how.detail else ""),
                    kernel_release=built.kernel_release,
                    image=built.hash,
                    owner=owner,
                    keeper=int((directory / LOCK).read_text()),
                    seconds=round(time.monotonic() - started, 1),
                    ssh_config=str(directory / "ssh_config"),
                    targets=str(directory / "targets.yaml"),
                    hosts=tuple(_host(directory, machine) for machine in machines),
                )
                _publish(directory, facts, role)
                keeper.commit()
        progress(f"up in {facts.seconds:.1f} s: {shape.describe()}, {how.describe()}")
        return cls(directory)

    @classmethod
    def find(cls, name: str = "default") -> Lab | None:
        """Return the lab called ``name`` if it is up."""
        directory = lab_dir(name)
        with _registry():
            _prune()
        return cls(directory) if (directory / _FACTS).exists() and _alive(directory) else None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all labs that are up."""
        with _registry():
            _prune()
        return sorted(facts.parent.name for facts in state_root().glob(f"*/{_FACTS}"))

    @classmethod
    def _running(cls, name: str, shape: Shape) -> Lab | None:
        found = cls.find(name)
        if found is None:
            if lab_dir(name).exists():
                raise LabError(f"lab {name} is being started by somebody else")
            return None
        if (there := found.status().shape) != shape:
            raise LabError(
                f"lab {name} is up with another shape ({there.describe()}); end it with "
                f"`storagetest lab down --name {name}` or choose another name"
            )
        return found

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
        found = status.read(self._directory, _FACTS, STATES)
        if found is None:
            raise LabError(f"lab {self.name} is not up")
        return found

    def ssh_argv(self, host: str, command: Sequence[str] = ()) -> list[str]:
        """Return the command that runs ``command`` on ``host``; a shell there when it is empty."""
        return ssh.argv(self.ssh_config, self._host(host).name, command)

    def vm(self, host: str) -> Vm:
        """Return a machine as something that faults can be done to."""
        self._host(host)
        return Vm(host, self._directory, lambda: self._host(host))

    def console(self, host: str, lines: int = 40) -> str:
        """Return the last lines of a machine's console."""
        return tail(self._directory / f"console-{self._host(host).name}.log", lines)

    def down(self) -> None:
        """End it: its machines, its keeper, its directory."""
        _end(self._directory)

    def _host(self, name: str) -> HostStatus:
        found = self.status()
        host = found.host(name)
        if host is None:
            raise LabError(
                f"lab {self.name} has no machine {name!r}; it has {', '.join(host.name for host in found.hosts)}"
            )
        return host


class _Keeper:
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

    def __enter__(self) -> _Keeper:
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

    def wait_up(self, progress: Progress) -> None:
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
        return f"{machine} did not start: {why}" + (f"\nThe end of its console:\n{console}" if console else "")


@contextmanager
def _registry() -> Iterator[None]:
    """Hold the lock under which labs' directories come and are pruned; never for long."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _locked(path: Path) -> bool:
    """Whether somebody holds the lock at ``path``."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _alive(directory: Path) -> bool:
    """Whether a keeper, or an `up` that has not started one yet, holds the lab's lock."""
    return _locked(directory / LOCK)


def _prune() -> None:
    """Remove what killed keepers left; their machines died with them."""
    for directory in state_root().iterdir():
        if directory.is_dir() and not _alive(directory):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _claimed(name: str) -> Iterator[BinaryIO]:
    """Make the lab's directory and hold its lock; whoever inherits the lock goes on holding it."""
    directory = lab_dir(name)
    with _registry():
        _prune()
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            raise LabError(f"lab {name} is being started by somebody else") from None
        lock = (directory / LOCK).open("w+b")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        with lock:
            yield lock
    except BaseException:
        # Where a keeper was started, it has renamed the directory by now.
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _prepare(
    directory: Path,
    machines: list[qemu.Machine],
    boot: qemu.Boot,
    built: image.Image,
    patience: float,
    owner: int | None,
) -> None:
    """Write all that the keeper needs: keys, passwords, each machine's initramfs, and the plan."""
    authorized = ssh.make_key(directory / "id_ed25519", "storagetest-lab").with_suffix(".pub").read_bytes()
    passwords = {secret.name: secrets.token_hex(8) for machine in machines for service in machine.services for secret in service.secrets}
    for name, password in passwords.items():
        _private(directory / name, password)
    early = built.initrd.read_bytes()
    for machine in machines:
        key = ssh.make_key(directory / f"host-key-{machine.name}", machine.name)
        files = guestfiles.files(
            machine,
            machines,
            host_key=key.read_bytes(),
            authorized_key=authorized,
            secrets=passwords,
            overlay=boot.overlay is not None,
        )
        (directory / f"initrd-{machine.name}").write_bytes(early + initramfs.archive(files))
    plan = {
        "machines": [
            {
                "name": machine.name,
                "argv": qemu.argv(machine, boot, machines),
                "listen": qemu.listeners(machine, machines),
            }
            for machine in machines
        ],
        "patience": patience,
        "owner": owner,
    }
    (directory / PLAN).write_text(json.dumps(plan, indent=1))


def _private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _host(directory: Path, machine: qemu.Machine) -> HostStatus:
    """Return a machine's status, with the ports that its QEMU was given."""
    given = qmp.forwarded(directory / f"qmp-{machine.name}")
    return HostStatus(
        name=machine.name,
        address=machine.address,
        services=tuple(service.name for service in machine.services),
        ports={what: given[port] for what, port in machine.forwards.items()},
    )


def _publish(directory: Path, facts: LabStatus, role: roles.Role) -> None:
    """Write the files that others read."""
    ports = {host.name: host.ports["ssh"] for host in facts.hosts}
    keys = {name: (directory / f"host-key-{name}.pub").read_text() for name in ports}
    known = directory / "known_hosts"
    known.write_text(ssh.known_hosts(ports, keys))
    (directory / "ssh_config").write_text(ssh.config(ports, directory / "id_ed25519", known))
    clients = [host.name for host in facts.hosts if host.name != qemu.APPLIANCE]
    targets = tuple(target for service in role.services for target in service.targets)
    (directory / "targets.yaml").write_text(
        targets_yaml(facts.name, facts.shape.describe(), directory, clients, targets)
    )
    new = directory / f"{_FACTS}.new"
    new.write_text(status.dump(facts))
    new.replace(directory / _FACTS)


def _end(directory: Path) -> None:
    """Have the keeper end the lab, and wait for that."""
    with contextlib.suppress(OSError, ValueError):
        keeper = os.pidfd_open(int((directory / LOCK).read_text()))
        try:
            # The lock is still held: that number is the keeper's, not a later process's.
            if _alive(directory):
                signal.pidfd_send_signal(keeper, signal.SIGTERM)
                if not select.select([keeper], [], [], _END)[0]:
                    signal.pidfd_send_signal(keeper, signal.SIGKILL)
                    select.select([keeper], [], [], _END)
        finally:
            os.close(keeper)
    with _registry():
        _prune()
