"""The machines as QEMU command lines. Pure: nothing here is run.

The network is a hub in the appliance's QEMU, with one stream socket to each client's; a second card carries
SSH and the forwarded ports, and reaches nothing but this machine's loopback (``restrict=on``). All of it is
rootless, and nothing leaves the machine.

Rules:

1. Paths are relative to the lab's directory, where QEMU is started: a socket's path may have 107 bytes only.
2. The hub's sockets are opened by the keeper and handed to QEMU listening (``{fd:NAME}``), so clients can
   connect while the appliance's QEMU is still starting. (Datagram sockets, which would need no connection,
   carry a tenth: net.unix.max_dgram_qlen is 10.)
3. Forwarded ports are asked for as port 0 and read back: no port is ever guessed to be free. A machine that
   is started anew gets the ones it had.
4. ``-M q35`` and not ``microvm``, which hangs in every fifth boot under emulation.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.lab.services import ADDRESS, Service

__all__ = [
    "APPLIANCE",
    "OLDEST",
    "Boot",
    "Machine",
    "argv",
    "listeners",
    "machines",
    "socket_name",
    "version",
]

APPLIANCE = "appliance"
OLDEST = (7, 2)  # the first that has stream networks
_SSH = 22
_NETWORK = ADDRESS.rpartition(".")[0]
_FIRST_CLIENT = 10  # client N is .10+N
_TRANSLATED = 256  # MiB of translated code; by itself QEMU goes up to 1 GiB for each machine
_UUIDS = uuid.UUID("57057e57-0000-4000-8000-000000000000")


@dataclass(frozen=True, slots=True)
class Machine:
    """One virtual machine: the appliance (number 0) or client N."""

    number: int
    memory: int
    services: tuple[Service, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its host name."""
        return f"client{self.number}" if self.number else APPLIANCE

    @property
    def address(self) -> str:
        """Its address on the lab's network."""
        return f"{_NETWORK}.{_FIRST_CLIENT + self.number}" if self.number else ADDRESS

    @property
    def uuid(self) -> str:
        """What it calls itself where a UUID is wanted: the same each time, like its name."""
        return str(uuid.uuid5(_UUIDS, self.name))

    @property
    def forwards(self) -> dict[str, int]:
        """The guest's ports that are reachable on the host's loopback, by what listens there."""
        return {"ssh": _SSH, **self.ports}


@dataclass(frozen=True, slots=True)
class Boot:
    """What all machines of a lab start from, and how."""

    kernel: str
    rootfs: str
    overlay: str | None
    kvm: bool


def version(text: str) -> tuple[int, int]:
    """Return QEMU's version from what ``--version`` prints; (0, 0) where there is none."""
    found = re.search(r"version (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def machines(
    memory: int,
    services: tuple[Service, ...],
    clients: int,
    client_memory: int,
    client_services: tuple[Service, ...],
) -> list[Machine]:
    """Return the appliance and ``clients`` clients; memory is in MiB."""
    ports = {name: port for service in services for name, port in service.ports.items()}
    appliance = Machine(0, memory, services, ports)
    return [appliance, *(Machine(number, client_memory, client_services) for number in range(1, clients + 1))]


def listeners(machine: Machine, everyone: Sequence[Machine]) -> list[str]:
    """Return the sockets that ``machine``'s QEMU listens on: the appliance has one for each client."""
    return [] if machine.number else [socket_name(client.name) for client in everyone if client.number]


def argv(
    machine: Machine, boot: Boot, everyone: Sequence[Machine], ports: Mapping[str, int] | None = None
) -> list[str]:
    """Return the command of one machine; ``ports`` are the host's for its forwards, if they are known."""
    return [
        "qemu-system-x86_64",
        *("-name", machine.name),
        *("-M", "q35"),
        *("-accel", "kvm" if boot.kvm else f"tcg,thread=multi,tb-size={_TRANSLATED}"),
        *("-cpu", "host" if boot.kvm else "max"),
        *("-smp", "2" if boot.kvm else "1"),
        *("-m", str(machine.memory)),
        *("-uuid", machine.uuid),
        "-nodefaults",
        "-no-user-config",
        *("-display", "none"),
        *("-kernel", boot.kernel),
        *("-initrd", f"initrd-{machine.name}"),
        *("-append", _command_line()),
        *("-chardev", "stdio,id=console,signal=off"),
        *("-serial", "chardev:console"),
        *("-qmp", f"unix:qmp-{machine.name},server=on,wait=off"),
        *_disks(boot),
        *_data_network(machine, everyone),
        *_admin_network(machine, ports or {}),
    ]


def _command_line() -> str:
    # No mitigations, no KASLR: they protect nothing here and cost start-up time under emulation.
    return (
        "console=ttyS0 quiet panic=5 net.ifnames=0 mitigations=off nokaslr random.trust_cpu=on "
        "tsc=reliable audit=0 apparmor=0"
    )


def _disks(boot: Boot) -> list[str]:
    disks = [boot.rootfs] if boot.overlay is None else [boot.rootfs, boot.overlay]
    found = []
    for number, path in enumerate(disks):
        # The host's page cache holds the image once for all machines.
        found += [
            "-drive",
            f"file={_comma(path)},format=raw,if=none,id=disk{number},readonly=on,cache=unsafe",
        ]
        found += ["-device", f"virtio-blk-pci,drive=disk{number},serial=disk{number},addr={4 + number:#x}"]
    return found


def _data_network(machine: Machine, everyone: Sequence[Machine]) -> list[str]:
    """Return the card on the lab's network, a hub behind it, and the hub's links.

    A client's hub has one link only, and is there so that the link can be replugged (see Vm.power_on).
    """
    peers = [client for client in everyone if client.number] if not machine.number else [machine]
    plugged = [
        argument for peer in peers for netdev in _links(machine, peer) for argument in ("-netdev", netdev)
    ]
    return ["-netdev", "hubport,id=data,hubid=0", *plugged, "-device", _card("data", machine, slot=8)]


def _links(machine: Machine, client: Machine) -> list[str]:
    """Return ``machine``'s end of the link between ``client`` and the appliance, and what plugs it in."""
    end = (
        f"server=off,addr.type=unix,addr.path={socket_name(client.name)}"
        if machine.number
        else f"server=on,addr.type=fd,addr.str={{fd:{socket_name(client.name)}}}"
    )
    link = f"link-{client.name}"
    return [f"stream,id={link},{end}", f"hubport,id=plug-{link},hubid=0,netdev={link}"]


def _admin_network(machine: Machine, ports: Mapping[str, int]) -> list[str]:
    forwards = "".join(
        f",hostfwd=tcp:127.0.0.1:{ports.get(what, 0)}-:{port}" for what, port in machine.forwards.items()
    )
    return [
        "-netdev",
        f"user,id=admin,restrict=on,ipv6=off{forwards}",
        "-device",
        _card("admin", machine, slot=9),
    ]


def _card(network: str, machine: Machine, slot: int) -> str:
    mac = f"52:54:00:77:{slot:02x}:{machine.number:02x}"
    return f"virtio-net-pci,id=nic-{network},netdev={network},mac={mac},addr={slot:#x},romfile="


def socket_name(client: str) -> str:
    """Return the name of the socket that the link of ``client`` is made over."""
    return f"net-{client}"


def _comma(path: str) -> str:
    """Write a path as QEMU's option syntax wants it: a comma is two."""
    return path.replace(",", ",,")
