"""What goes into a machine at its start: the second half of its initramfs (see initramfs.py).

Everything lies under /lab there, and under /run/lab in the running machine: the boot script, this machine's
settings and keys, and one script for each service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as package_files

from storagetest.lab.initramfs import File
from storagetest.lab.qemu import Machine

__all__ = ["files"]

_SSHD = """\
Port 22
HostKey /run/lab/host_key
AuthorizedKeysFile /run/lab/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
MaxSessions 100
MaxStartups 100
PermitUserEnvironment no
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
Subsystem sftp internal-sftp
"""


def files(
    machine: Machine,
    everyone: Sequence[Machine],
    *,
    host_key: bytes,
    authorized_key: bytes,
    secrets: Mapping[str, str],
    overlay: bool,
) -> dict[str, File]:
    """Return the files of ``machine``, by path in the initramfs."""
    settings = {
        "LAB_HOSTNAME": machine.name,
        "LAB_ADDRESS": machine.address,
        "LAB_UUID": machine.uuid,
    }
    hosts = ["127.0.0.1 localhost", *(f"{other.address} {other.name}" for other in everyone)]
    wanted = {secret.name for service in machine.services for secret in service.secrets}
    made = {
        "init": File(_script("init.sh"), 0o755),
        "lab/boot.sh": File(_script("boot.sh")),
        "lab/lib.sh": File(_script("lib.sh")),
        "lab/machine.env": File(_lines(f"{name}={value}" for name, value in settings.items())),
        "lab/hosts": File(_lines(hosts)),
        "lab/sshd_config": File(_SSHD.encode()),
        "lab/host_key": File(host_key, 0o600),
        "lab/authorized_keys": File(authorized_key, 0o600),
    }
    for service in machine.services:
        made[f"lab/services/{service.name}.sh"] = File(service.script.encode())
    for name in sorted(wanted):
        made[f"lab/secrets/{name}"] = File(secrets[name].encode(), 0o600)
    if overlay:
        made["lab/overlay"] = File()
    return made


def _script(name: str) -> bytes:
    return package_files("storagetest.lab").joinpath("guest", name).read_bytes()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
