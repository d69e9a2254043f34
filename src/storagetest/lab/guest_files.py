"""Files of one machine: the second part of its initramfs (see initramfs.py).

They are under /lab in the initramfs and under /run/lab in the running machine: the boot script, the machine's
settings and keys, and one script per service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files

from storagetest.lab.initramfs import File
from storagetest.lab.qemu import Boot, Machine

# Without KexAlgorithms OpenSSH agrees on sntrup761, which takes an emulated processor half a second a login.
_SSHD = """\
Port 22
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org
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


@dataclass(frozen=True, slots=True)
class Private:
    """What differs between two labs with the same parameters: a machine's keys and the lab's passwords."""

    host_key: bytes
    authorized_key: bytes
    passwords: Mapping[str, str]

    def files(self, machine: Machine) -> dict[str, bytes]:
        """Return the files of ``machine`` by their path below lab/; the passwords are those that it uses."""
        names = sorted({secret.name for service in machine.services for secret in service.secrets})
        files = {"host_key": self.host_key, "authorized_keys": self.authorized_key}
        return files | {f"secrets/{name}": self.passwords[name].encode() for name in names}


def files(
    machine: Machine,
    machines: Sequence[Machine],
    private: Private,
    *,
    boot: Boot,
    save: bool = False,
) -> dict[str, File]:
    """Return the files of ``machine`` by their path in the initramfs. ``machines`` go into /etc/hosts.

    With ``save``, the machine waits for the settings of a resumed lab.
    """
    settings = {
        "LAB_HOSTNAME": machine.name,
        "LAB_ADDRESS": machine.address,
        "LAB_UUID": machine.uuid,
    }
    hosts = ["127.0.0.1 localhost", *(f"{other.address} {other.name}" for other in machines)]
    files_by_path = {
        "init": File(_script("init.sh"), 0o755),
        "lab/boot.sh": File(_script("boot.sh")),
        "lab/lib.sh": File(_script("lib.sh")),
        "lab/resume.py": File(_script("resume.py")),
        "lab/machine.env": File(_lines(f"{name}={value}" for name, value in settings.items())),
        "lab/hosts": File(_lines(hosts)),
        "lab/sshd_config": File(_SSHD.encode()),
    }
    for name, data in private.files(machine).items():
        files_by_path[f"lab/{name}"] = File(data, 0o600)
    for service in machine.services:
        files_by_path[f"lab/services/{service.name}.sh"] = File(service.boot_script.encode())
        if service.credentials:
            files_by_path[f"lab/credentials/{service.name}.sh"] = File(service.credentials_script.encode())
    for name, wanted in (("overlay", boot.overlay is not None), ("save", save)):
        if wanted:
            files_by_path[f"lab/{name}"] = File()
    return files_by_path


def settings(machine: Machine, private: Private) -> dict[str, object]:
    """Return the settings of a resumed machine, without the time and the seed; see guest/resume.py."""
    return {"files": {f"/run/lab/{name}": data.decode() for name, data in private.files(machine).items()}}


def _script(name: str) -> bytes:
    return package_files("storagetest.lab").joinpath("guest", name).read_bytes()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
