"""Files of the machines: valid scripts, settings, and secrets only on the machine that uses them."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files

import pytest

from storagetest.lab import guest_files, qemu, roles
from storagetest.lab.services import client, lio, nvmet, tgt

SCRIPTS = {
    service.name: service.boot_script
    for role in roles.names()
    for service in (*roles.load(role).services, client.SERVICE)
}
SCRIPTS |= {
    name: files("storagetest.lab").joinpath("guest", name).read_text()
    for name in ("init.sh", "boot.sh", "lib.sh")
}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_is_valid_shell_without_placeholders(name):
    done = subprocess.run(
        ["sh", "-n"], input=SCRIPTS[name], text=True, capture_output=True, timeout=30, check=False
    )
    assert done.stderr == ""
    assert "@" not in SCRIPTS[name].replace("10.77.0.1@tcp", "").replace('"$@"', "")


@pytest.mark.parametrize("name", roles.names())
def test_a_role_is_complete(name):
    role = roles.load(name)
    assert role.summary
    targets = [target.name for target in role.targets]
    assert len(targets) == len(set(targets))
    assert bool(targets) == bool(role.services)
    ports = [port for service in role.services for port in service.ports.values()]
    assert len(ports) == len(set(ports))


def lab() -> list[qemu.Machine]:
    role = roles.load("kernel")
    return qemu.machines(role.memory, role.services, 1, 512, (client.SERVICE,))


PASSWORDS = {"smb-password": "s", "chap-password": "c", "chap-mutual-password": "m"}
PRIVATE = guest_files.Private(b"key", b"pub", PASSWORDS)


def made(machine: qemu.Machine, *, overlay: bool = False) -> dict:
    boot = qemu.Boot("kernel", "rootfs", "overlay" if overlay else None, kvm=False)
    return guest_files.files(machine, lab(), PRIVATE, boot=boot)


def test_secrets_go_only_to_the_machine_that_uses_them():
    appliance, client1 = (made(machine) for machine in lab())
    assert appliance["lab/secrets/smb-password"].data == b"s"
    assert appliance["lab/secrets/smb-password"].mode == 0o600
    assert not [path for path in client1 if "secrets" in path]


def test_a_resumed_machine_gets_the_same_private_files_as_a_booted_one():
    for machine in lab():
        booted = {path: file.data.decode() for path, file in made(machine).items() if file.mode == 0o600}
        settings = guest_files.settings(machine, PRIVATE)
        assert settings["files"] == {f"/run/{path}": text for path, text in booted.items()}


@pytest.mark.parametrize("name", roles.names())
def test_every_password_is_set_again_after_a_resume(name):
    for service in roles.load(name).services:
        for secret in service.secrets:
            assert f"$SECRETS/{secret.name}" in service.credentials_script
            assert f"$SECRETS/{secret.name}" not in service.script


def test_every_machine_has_its_settings_and_the_hosts_file():
    files = made(lab()[1], overlay=True)
    assert b"LAB_HOSTNAME=client1\nLAB_ADDRESS=10.77.0.11\n" in files["lab/machine.env"].data
    assert files["lab/hosts"].data == b"127.0.0.1 localhost\n10.77.0.1 appliance\n10.77.0.11 client1\n"
    assert files["init"].mode == 0o755
    assert files["lab/host_key"].mode == 0o600
    assert "lab/overlay" in files
    assert "lab/overlay" not in made(lab()[1])
    assert {name for name in files if "services" in name} == {"lab/services/client.sh"}


def test_wwids():
    assert lio.wwid(3) == "naa.600140557057e5700000000000000003"
    assert len(lio.wwid(0)) == len("naa.") + 32
    assert nvmet.wwid(2) == "uuid.57057e57-0000-4000-8000-000000000002"
    assert tgt.wwid(1) == "naa.6000000000000000000057057e570001"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_guests_wait_until_has_a_timeout():
    script = f"{SCRIPTS['lib.sh']}\nwait_until 5 test -d / && echo found; wait_until 0 false || echo timeout"
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, timeout=30, check=True)
    assert done.stdout.splitlines() == ["found", "timeout"]
