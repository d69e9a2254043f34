"""QEMU command lines: one hub, ports chosen by the kernel, relative socket paths."""

from __future__ import annotations

import itertools
from dataclasses import replace

from storagetest.lab import qemu, roles
from storagetest.lab.services import client


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


def test_the_version_is_read_as_debian_prints_it():
    assert qemu.version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright") == (7, 2)
    assert qemu.version("QEMU emulator version 10.0.2") > qemu.OLDEST > qemu.version("rubbish")


def test_kvm_and_emulation():
    expected = [(True, "kvm", "host"), (False, "tcg,thread=multi,tb-size=256", "max")]
    for kvm, accelerator, cpu in expected:
        boot = replace(BOOT, kvm=kvm)
        assert options("-accel", lab(0), boot=boot) == [accelerator]
        assert options("-cpu", lab(0), boot=boot) == [cpu]
    assert options("-M", lab(0)) == ["q35"]
