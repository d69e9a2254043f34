"""QEMU command lines: one hub, ports chosen by the kernel, relative socket paths."""

from __future__ import annotations

import itertools

from storagetest.lab import qemu, roles
from storagetest.lab.services import client


def lab(clients: int) -> list[qemu.Machine]:
    role = roles.load("kernel")
    return qemu.machines(role.memory, role.services, clients, 1024, (client.SERVICE,))


def options(argv: list[str], name: str) -> list[str]:
    return [value for option, value in itertools.pairwise(argv) if option == name]


BOOT = qemu.Boot("/cache/vmlinuz", "/cache/a,b.squashfs", None, kvm=False)


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
    networks = options(qemu.argv(machines[0], BOOT, machines), "-netdev")
    assert networks[:5] == [
        "hubport,id=data,hubid=0",
        "stream,id=link-client1,server=on,addr.type=fd,addr.str={fd:net-client1}",
        "hubport,id=plug-link-client1,hubid=0,netdev=link-client1",
        "stream,id=link-client2,server=on,addr.type=fd,addr.str={fd:net-client2}",
        "hubport,id=plug-link-client2,hubid=0,netdev=link-client2",
    ]


def test_a_client_connects_to_its_socket_by_a_relative_path():
    machines = lab(2)
    networks = options(qemu.argv(machines[2], BOOT, machines), "-netdev")
    assert networks[:3] == [
        "hubport,id=data,hubid=0",
        "stream,id=link-client2,server=off,addr.type=unix,addr.path=net-client2",
        "hubport,id=plug-link-client2,hubid=0,netdev=link-client2",
    ]


def test_forwarded_ports_are_chosen_by_the_kernel_and_nothing_leaves_the_machine():
    machines = lab(1)
    (admin,) = [
        value for value in options(qemu.argv(machines[0], BOOT, machines), "-netdev") if "user," in value
    ]
    assert "restrict=on" in admin
    assert admin.count("hostfwd=tcp:127.0.0.1:0-:") == admin.count("hostfwd=") == len(machines[0].forwards)
    assert {"ssh": 22, "nfs": 2049, "iscsi": 3260, "nvme-tcp": 4420, "smb": 445}.items() <= machines[
        0
    ].forwards.items()
    assert machines[1].forwards == {"ssh": 22}


def test_a_machine_that_is_started_anew_gets_the_ports_it_had():
    machines = lab(1)
    networks = options(qemu.argv(machines[1], BOOT, machines, {"ssh": 4711}), "-netdev")
    assert networks[-1].endswith(",hostfwd=tcp:127.0.0.1:4711-:22")


def test_cards_have_addresses_of_their_own():
    machines = lab(3)
    devices = [
        value for machine in machines for value in options(qemu.argv(machine, BOOT, machines), "-device")
    ]
    macs = [part for value in devices for part in value.split(",") if part.startswith("mac=")]
    assert len(macs) == len(set(macs)) == 8


def test_an_overlay_is_a_second_disk_and_commas_are_escaped():
    machines = lab(0)
    plain = options(qemu.argv(machines[0], BOOT, machines), "-drive")
    assert plain == ["file=/cache/a,,b.squashfs,format=raw,if=none,id=disk0,readonly=on,cache=unsafe"]
    over = qemu.Boot(BOOT.kernel, BOOT.rootfs, "/cache/over", kvm=False)
    assert len(options(qemu.argv(machines[0], over, machines), "-drive")) == 2


def test_the_version_is_read_as_debian_prints_it():
    assert qemu.version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright") == (7, 2)
    assert qemu.version("QEMU emulator version 10.0.2") > qemu.OLDEST > qemu.version("rubbish")


def test_kvm_and_emulation():
    machines = lab(0)
    fast = qemu.argv(machines[0], qemu.Boot("k", "r", None, kvm=True), machines)
    slow = qemu.argv(machines[0], BOOT, machines)
    assert (options(fast, "-accel"), options(fast, "-cpu")) == (["kvm"], ["host"])
    assert (options(slow, "-accel"), options(slow, "-cpu")) == (["tcg,thread=multi,tb-size=256"], ["max"])
    assert options(slow, "-M") == ["q35"]
