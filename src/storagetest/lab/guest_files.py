"""Files of one machine: the second part of its initramfs (see initramfs.py).

They are under /lab in the initramfs and under /run/lab in the running machine: the boot script, the machine's
settings and keys, and one script per service.
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
    machines: Sequence[Machine],
    *,
    host_key: bytes,
    authorized_key: bytes,
    secrets: Mapping[str, str],
    overlay: bool,
) -> dict[str, File]:
    """Return the files of ``machine`` by their path in the initramfs. ``machines`` go into /etc/hosts."""
    settings = {
        "LAB_HOSTNAME": machine.name,
        "LAB_ADDRESS": machine.address,
        "LAB_UUID": machine.uuid,
    }
    hosts = ["127.0.0.1 localhost", *(f"{other.address} {other.name}" for other in machines)]
    secret_names = {secret.name for service in machine.services for secret in service.secrets}
    files_by_path = {
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
        files_by_path[f"lab/services/{service.name}.sh"] = File(service.boot_script.encode())
    for name in sorted(secret_names):
        files_by_path[f"lab/secrets/{name}"] = File(secrets[name].encode(), 0o600)
    if overlay:
        files_by_path["lab/overlay"] = File()
    return files_by_path


def _script(name: str) -> bytes:
    return package_files("storagetest.lab").joinpath("guest", name).read_bytes()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
