"""The lab's machines: roles, QEMU's command lines, and what runs in a machine."""

import argparse
import importlib.util
import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from storagetest.lab import cli, guest_files, qemu, roles
from storagetest.lab.paths import lab_dir
from storagetest.lab.reference import page
from storagetest.lab.services import Running, client, lio, nvmet, tgt
from storagetest.lab.startup import version_in
from storagetest.lab.targets import targets_yaml

ROOT = Path(__file__).parents[3]
TOY = '''
"""A server for this test."""

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import ADDRESS, Service, Target

_TARGET = {"protocol": "nfs", "address": ADDRESS, "export": "/toy"}
SERVICE = Service(
    "toyd",
    "toyd --port 2050\\n",
    implementation="toyfs",
    packages=("toy-server",),
    unpacked=("toy-tools",),
    modules=("toy-ko",),
    ports={"toy": 2050},
    targets=(Target("toy-nfs", _TARGET),),
)
ROLE = Role(summary="a toy server", services=(SERVICE,), debian="sid", smoke_tests=(SmokeTest(("toy-nfs",)),))
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Add a role by one module, and nothing else."""
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr(roles, "__path__", [*roles.__path__, str(tmp_path)])
    yield "toy"
    sys.modules.pop("storagetest.lab.roles.toy", None)


def test_the_command_line_offers_it(toy: str, capsys: pytest.CaptureFixture[str]):
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["lab", "up", "--help"])
    assert "empty, kernel, pnfs, smb, smb1, toy, userspace" in " ".join(capsys.readouterr().out.split())


def test_the_image_has_its_packages(toy: str):
    recipe = roles.load(toy).recipe
    assert recipe.suite == "sid"
    assert {"toy-server", "linux-image-cloud-amd64", *client.SERVICE.packages} <= set(recipe.packages)
    assert recipe.unpacked == ("toy-tools",)
    assert "samba" not in recipe.packages
    assert "toy-server" not in roles.load("kernel").recipe.packages


def test_roles_on_one_debian_release_share_an_image():
    assert roles.load("kernel").recipe == roles.load("userspace").recipe == roles.load("empty").recipe
    assert {"samba", "nfs-ganesha"} <= set(roles.load("empty").recipe.packages)
    assert roles.load("smb").recipe.hash() != roles.load("kernel").recipe.hash()


def test_a_machine_loads_its_modules_and_runs_its_script(toy: str):
    role = roles.load(toy)
    machines = qemu.machines(role.memory, role.services, 1, 512, (client.SERVICE,))
    boot = qemu.Boot("kernel", "rootfs", None, kvm=False)
    files = guest_files.files(machines[0], machines, guest_files.Private(b"", b"", {}), boot=boot)
    script = files["lab/services/toyd.sh"].data
    assert script == b". /run/lab/lib.sh\nmodules toy-ko\ntoyd --port 2050\n"
    assert machines[0].forwards == {"ssh": 22, "toy": 2050}


def test_the_generated_targets_file_has_its_targets(toy: str):
    text = targets_yaml("default", "spec", lab_dir("default"), ["client1"], roles.load(toy).targets, {})
    assert yaml.safe_load(text)["targets"]["toy-nfs"] == {
        "protocol": "nfs",
        "implementation": "toyfs",
        "server": "appliance",
        "clients": "all",
        "address": "10.77.0.1",
        "export": "/toy",
    }
    (running,) = {target.body["implementation"] for target in roles.load(toy).targets}
    assert isinstance(running, Running)
    versions = {running: "6.1.0-56"}
    text = targets_yaml("default", "spec", lab_dir("default"), ["client1"], roles.load(toy).targets, versions)
    named = yaml.safe_load(text)["targets"]["toy-nfs"]["implementation"]
    assert named == {"name": "toyfs", "version": "6.1.0-56"}


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("6.1.0-56-cloud-amd64 ", "6.1.0-56-cloud-amd64"),
        ("Version 4.17.12-Debian ", "4.17.12-Debian"),
        ("1.0.85 ", "1.0.85"),
        ("NFS-Ganesha Release = V4.3 ", "4.3"),
        ("cat: /sys/fs/lustre/version: No such file or directory ", ""),
        ("sh: 1: tgtd: not found ", ""),
    ],
)
def test_the_version_is_found_in_what_a_server_prints(printed: str, version: str):
    assert version_in(printed) == version


def test_the_reference_page_has_its_tables(toy: str):
    text = page()
    assert "| [`toy`](#toy) | a toy server | sid | 3072 |" in text
    assert "## toy\n\nA server for this test." in text
    assert "| `toy-nfs` | `nfs` | `toyfs` |" in text


def test_the_lab_tests_run_its_smoke_tests(toy: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "lab")
    spec = importlib.util.spec_from_file_location("roles_smoke_tests", ROOT / "tests/lab/test_roles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert toy in module.ROLES


def lab(clients: int) -> list[qemu.Machine]:
    role = roles.load("kernel")
    return qemu.machines(role.memory, role.services, clients, 1024, (client.SERVICE,))


BOOT = qemu.Boot("/cache/vmlinuz", "/cache/a,b.squashfs", None, kvm=False)


def options(name: str, machines: list[qemu.Machine], index: int = 0, boot: qemu.Boot = BOOT) -> list[str]:
    """The values of QEMU's option ``name`` for one of the machines; the first is the appliance."""
    argv = qemu.argv(machines[index], boot, machines)
    return [value for option, value in itertools.pairwise(argv) if option == name]


def test_names_and_addresses():
    assert [(machine.name, machine.address) for machine in lab(2)] == [
        ("appliance", "10.77.0.1"),
        ("client1", "10.77.0.11"),
        ("client2", "10.77.0.12"),
    ]
    assert len({machine.uuid for machine in lab(2)}) == 3
    assert [machine.uuid for machine in lab(2)] == [machine.uuid for machine in lab(2)]


def test_the_appliance_has_one_listening_socket_for_each_client():
    machines = lab(2)
    assert qemu.listeners(machines[0], machines) == ["net-client1", "net-client2"]
    assert qemu.listeners(machines[1], machines) == []
    assert options("-netdev", machines)[:5] == [
        "hubport,id=data,hubid=0",
        "stream,id=link-client1,server=on,addr.type=fd,addr.str={fd:net-client1}",
        "hubport,id=plug-link-client1,hubid=0,netdev=link-client1",
        "stream,id=link-client2,server=on,addr.type=fd,addr.str={fd:net-client2}",
        "hubport,id=plug-link-client2,hubid=0,netdev=link-client2",
    ]


def test_a_client_connects_to_its_socket_by_a_relative_path():
    assert options("-netdev", lab(2), 2)[:3] == [
        "hubport,id=data,hubid=0",
        "stream,id=link-client2,server=off,addr.type=unix,addr.path=net-client2",
        "hubport,id=plug-link-client2,hubid=0,netdev=link-client2",
    ]


def test_forwarded_ports_are_chosen_by_the_kernel_and_nothing_leaves_the_machine():
    machines = lab(1)
    (admin,) = [value for value in options("-netdev", machines) if "user," in value]
    assert "restrict=on" in admin
    assert admin.count("hostfwd=tcp:127.0.0.1:0-:") == admin.count("hostfwd=") == len(machines[0].forwards)
    ports = {"ssh": 22, "nfs": 2049, "iscsi": 3260, "nvme-tcp": 4420, "smb": 445}
    assert ports.items() <= machines[0].forwards.items()
    assert machines[1].forwards == {"ssh": 22}


def test_a_machine_that_is_started_anew_gets_the_ports_it_had():
    machines = lab(1)
    argv = qemu.argv(machines[1], BOOT, machines, {"ssh": 4711})
    assert [value for value in argv if value.endswith(",hostfwd=tcp:127.0.0.1:4711-:22")]


def test_cards_have_addresses_of_their_own():
    machines = lab(3)
    devices = [value for index in range(len(machines)) for value in options("-device", machines, index)]
    macs = [part for value in devices for part in value.split(",") if part.startswith("mac=")]
    assert len(macs) == len(set(macs)) == 8


def test_an_overlay_is_a_second_disk_and_commas_are_escaped():
    disk = "file=/cache/a,,b.squashfs,format=raw,if=none,id=disk0,readonly=on,cache=unsafe"
    assert options("-drive", lab(0)) == [disk]
    assert len(options("-drive", lab(0), boot=replace(BOOT, overlay="/cache/over"))) == 2


def test_all_machines_have_the_shared_disk_without_a_lock_and_through_one_cache():
    role = roles.load("pnfs")
    machines = qemu.machines(1024, role.services, 2, 512, role.client_services, shared_disk=role.shared_disk)
    for machine in machines:
        argv = qemu.argv(machine, BOOT, machines)
        (drive,) = [value for value in argv if value.startswith("file=shared-disk,")]
        assert {"file.locking=off", "cache=unsafe", "id=shared"} <= set(drive.split(","))
        assert any(value.startswith("virtio-blk-pci,drive=shared,serial=shared-disk,") for value in argv)
    assert not [value for value in qemu.argv(lab(0)[0], BOOT, lab(0)) if "shared-disk" in value]


def test_clients_run_what_their_role_adds():
    role = roles.load("pnfs")
    machines = qemu.machines(1024, role.services, 1, 512, (client.SERVICE, *role.client_services))
    scripts = guest_files.files(machines[1], machines, guest_files.Private(b"", b"", {}), boot=BOOT)
    assert {"lab/services/client.sh", "lab/services/pnfs-client.sh"} <= set(scripts)
    assert "lab/services/pnfs-client.sh" not in guest_files.files(
        machines[0], machines, guest_files.Private(b"", b"", {}), boot=BOOT
    )


def test_the_version_is_read_as_debian_prints_it():
    assert qemu.version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright") == (7, 2)
    assert qemu.version("QEMU emulator version 10.0.2") > qemu.OLDEST > qemu.version("rubbish")


def test_kvm_and_emulation():
    expected = [(True, "kvm", "host"), (False, "tcg,thread=multi,tb-size=256", "max,erms=off")]
    for kvm, accelerator, cpu in expected:
        boot = replace(BOOT, kvm=kvm)
        assert options("-accel", lab(0), boot=boot) == [accelerator]
        assert options("-cpu", lab(0), boot=boot) == [cpu]
    assert options("-M", lab(0)) == ["q35"]


SCRIPTS = {
    service.name: service.boot_script
    for role in roles.names()
    for service in (*roles.load(role).services, *roles.load(role).client_services, client.SERVICE)
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


def one_client() -> list[qemu.Machine]:
    role = roles.load("kernel")
    return qemu.machines(role.memory, role.services, 1, 512, (client.SERVICE,))


PASSWORDS = {"smb-password": "s", "chap-password": "c", "chap-mutual-password": "m"}
PRIVATE = guest_files.Private(b"key", b"pub", PASSWORDS)


def made(machine: qemu.Machine, *, overlay: bool = False) -> dict:
    boot = qemu.Boot("kernel", "rootfs", "overlay" if overlay else None, kvm=False)
    return guest_files.files(machine, one_client(), PRIVATE, boot=boot)


def test_secrets_go_only_to_the_machine_that_uses_them():
    appliance, client1 = (made(machine) for machine in one_client())
    assert appliance["lab/secrets/smb-password"].data == b"s"
    assert appliance["lab/secrets/smb-password"].mode == 0o600
    assert not [path for path in client1 if "secrets" in path]


def test_a_resumed_machine_gets_the_same_private_files_as_a_booted_one():
    for machine in one_client():
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
    files = made(one_client()[1], overlay=True)
    assert b"LAB_HOSTNAME=client1\nLAB_ADDRESS=10.77.0.11\n" in files["lab/machine.env"].data
    assert files["lab/hosts"].data == b"127.0.0.1 localhost\n10.77.0.1 appliance\n10.77.0.11 client1\n"
    assert files["init"].mode == 0o755
    assert files["lab/host_key"].mode == 0o600
    assert "lab/overlay" in files
    assert "lab/overlay" not in made(one_client()[1])
    assert {name for name in files if "services" in name} == {"lab/services/client.sh"}


def test_wwids():
    assert lio.wwid(3) == "naa.600140557057e5700000000000000003"
    assert len(lio.wwid(0)) == len("naa.") + 32
    assert nvmet.wwid(2) == "uuid.57057e57-0000-4000-8000-000000000002"
    assert tgt.wwid(1) == "naa.6000000000000000000057057e570001"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_wait_until_in_a_machine_has_a_timeout():
    script = f"{SCRIPTS['lib.sh']}\nwait_until 5 test -d / && echo found; wait_until 0 false || echo timeout"
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, timeout=30, check=True)
    assert done.stdout.splitlines() == ["found", "timeout"]
