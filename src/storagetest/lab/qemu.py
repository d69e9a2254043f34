"""QEMU command lines of the machines. Pure: no process is started here.

The data network is a hub in the appliance's QEMU with one stream socket per client. A second card carries SSH
and the forwarded ports; it connects to the host's loopback only (``restrict=on``). No part needs root, and no
packet leaves the host.

Rules:

1. Paths are relative to the lab's directory, which is QEMU's working directory: a socket's path has at most
   107 bytes.
2. The supervisor opens the hub's listening sockets and passes them to QEMU (``{fd:NAME}``), so clients can
   connect while the appliance's QEMU still starts. Why not datagram sockets: they have a tenth of the
   throughput, because net.unix.max_dgram_qlen is 10.
3. Forwarded ports are requested as port 0 and read back from QEMU, so they are always free. A machine that is
   restarted keeps its ports.
4. ``-M q35``, because ``microvm`` hangs in every fifth boot under emulation (measured).
5. A machine that is saved in a snapshot (snapshots.py) has its memory in a shared mapping of a file, so that
   QEMU's migration stream contains the devices only. A machine that resumes from it maps the same file
   privately: writes stay in this process, and many labs use one snapshot.
6. A disk that all machines share is one file of the lab's directory, without QEMU's file lock. Every QEMU
   reads and writes it through the host's page cache, so a block that one machine has written is what the
   others read.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.lab.services import ADDRESS, Service

APPLIANCE = "appliance"
OLDEST = (7, 2)  # the first version with -netdev stream
_SSH = 22
_NETWORK = ADDRESS.rpartition(".")[0]
_FIRST_CLIENT = 10  # client N has the address .10+N
_TRANSLATION_CACHE = 256  # MiB per machine; QEMU's default is up to 1 GiB
_EMULATED_PROCESSOR = "max,erms=off"
"""Without ERMS, kernel and libc copy by words: emulation takes a turn for each byte of ``rep movsb``, and
copies took 2.2 times the processor time (measured)."""
SHARED_DISK = "shared-disk"
"""Name of the shared disk's file in the lab's directory; its serial number in the machines."""
_UUIDS = uuid.UUID("57057e57-0000-4000-8000-000000000000")


@dataclass(frozen=True, slots=True)
class Machine:
    """One virtual machine: the appliance (number 0) or client N. Memory and disk are in MiB."""

    number: int
    memory: int
    services: tuple[Service, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    shared_disk: int = 0  # MiB

    @property
    def name(self) -> str:
        """The host name."""
        return f"client{self.number}" if self.number else APPLIANCE

    @property
    def address(self) -> str:
        """The address on the lab's data network."""
        return f"{_NETWORK}.{_FIRST_CLIENT + self.number}" if self.number else ADDRESS

    @property
    def uuid(self) -> str:
        """The machine's UUID, derived from its name."""
        return str(uuid.uuid5(_UUIDS, self.name))

    @property
    def forwards(self) -> dict[str, int]:
        """The guest's forwarded ports by name."""
        return {"ssh": _SSH, **self.ports}


@dataclass(frozen=True, slots=True)
class Boot:
    """Boot parameters that all machines of a lab share."""

    kernel: str
    rootfs: str
    overlay: str | None
    kvm: bool

    @property
    def disks(self) -> tuple[str, ...]:
        """Return the paths of the disks that all machines read."""
        return (self.rootfs,) if self.overlay is None else (self.rootfs, self.overlay)


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """A machine's files of a snapshot: its memory, and the state of its processor and devices."""

    memory: str
    state: str


def version(text: str) -> tuple[int, int]:
    """Return QEMU's version from the output of ``--version``; (0, 0) if it contains none."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def machines(
    memory: int,
    services: tuple[Service, ...],
    clients: int,
    client_memory: int,
    client_services: tuple[Service, ...],
    *,
    shared_disk: int = 0,
) -> list[Machine]:
    """Return the appliance and ``clients`` clients; memory and the disk that they share are in MiB."""
    ports = {name: port for service in services for name, port in service.ports.items()}
    appliance = Machine(0, memory, services, ports, shared_disk)
    numbers = range(1, clients + 1)
    return [
        appliance,
        *(Machine(number, client_memory, client_services, shared_disk=shared_disk) for number in numbers),
    ]


def listeners(machine: Machine, all_machines: Sequence[Machine]) -> list[str]:
    """Return the sockets that ``machine``'s QEMU listens on; the appliance has one per client."""
    return [] if machine.number else [socket_name(client.name) for client in all_machines if client.number]


def argv(
    machine: Machine,
    boot: Boot,
    all_machines: Sequence[Machine],
    ports: Mapping[str, int] | None = None,
    *,
    save: MachineFiles | None = None,
    resume: MachineFiles | None = None,
) -> list[str]:
    """Return the command of one machine. ``ports`` are the host's forwarded ports of an earlier start.

    With ``save``, the machine boots with its memory in that file, so that its state can be saved; with
    ``resume``, it continues from the saved state.
    """
    return [
        "qemu-system-x86_64",
        *("-name", machine.name),
        *_memory(machine, save, resume),
        *("-accel", "kvm" if boot.kvm else f"tcg,thread=multi,tb-size={_TRANSLATION_CACHE}"),
        *("-cpu", "host" if boot.kvm else _EMULATED_PROCESSOR),
        *("-smp", "2" if boot.kvm else "1"),
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
        *_shared_disk(machine),
        *_data_network(machine, all_machines),
        *_admin_network(machine, ports or {}),
    ]


def _memory(machine: Machine, save: MachineFiles | None, resume: MachineFiles | None) -> list[str]:
    """Return the options of the machine type and of its memory."""
    size = ["-m", str(machine.memory)]
    files = save or resume
    if files is None:
        return ["-M", "q35", *size]
    backend = (
        f"memory-backend-file,id=ram,size={machine.memory}M,mem-path={_escape_commas(files.memory)},"
        f"share={'off' if resume else 'on'}"
    )
    incoming = ["-incoming", "defer"] if resume else []
    return ["-M", "q35,memory-backend=ram", *size, "-object", backend, *incoming]


def _command_line() -> str:
    # Mitigations and KASLR have no use in a lab and cost boot time under emulation. norandmaps: if a program
    # has another address in each process, the emulator translates its code each time; a fork and exec took
    # four times as long.
    return (
        "console=ttyS0 quiet panic=5 net.ifnames=0 mitigations=off nokaslr norandmaps random.trust_cpu=on "
        "tsc=reliable audit=0 apparmor=0"
    )


def _disks(boot: Boot) -> list[str]:
    found = []
    for number, path in enumerate(boot.disks):
        # Not O_DIRECT: all machines share the image in the host's page cache.
        found += [
            "-drive",
            f"file={_escape_commas(path)},format=raw,if=none,id=disk{number},readonly=on,cache=unsafe",
        ]
        found += ["-device", f"virtio-blk-pci,drive=disk{number},serial=disk{number},addr={4 + number:#x}"]
    return found


def _shared_disk(machine: Machine) -> list[str]:
    if not machine.shared_disk:
        return []
    drive = f"file={SHARED_DISK},format=raw,if=none,id=shared,file.locking=off,cache=unsafe,discard=unmap"
    device = f"virtio-blk-pci,drive=shared,serial={SHARED_DISK},share-rw=on,addr=0x6"
    return ["-drive", drive, "-device", device]


def _data_network(machine: Machine, all_machines: Sequence[Machine]) -> list[str]:
    """Return the options of the data card, its hub and the hub's links.

    A client's hub has only one link; with a hub, the link can be replugged (see FaultableVm.power_on).
    """
    peers = [client for client in all_machines if client.number] if not machine.number else [machine]
    netdevs = [
        argument for peer in peers for netdev in _links(machine, peer) for argument in ("-netdev", netdev)
    ]
    return ["-netdev", "hubport,id=data,hubid=0", *netdevs, "-device", _card("data", machine, slot=8)]


def _links(machine: Machine, client: Machine) -> list[str]:
    """Return the netdevs of ``machine``'s end of the link between ``client`` and the appliance."""
    end = (
        f"server=off,addr.type=unix,addr.path={socket_name(client.name)}"
        if machine.number
        else f"server=on,addr.type=fd,addr.str={{fd:{socket_name(client.name)}}}"
    )
    link = f"link-{client.name}"
    return [f"stream,id={link},{end}", f"hubport,id=plug-{link},hubid=0,netdev={link}"]


def _admin_network(machine: Machine, ports: Mapping[str, int]) -> list[str]:
    forwards = "".join(
        f",hostfwd=tcp:127.0.0.1:{ports.get(name, 0)}-:{port}" for name, port in machine.forwards.items()
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
    """Return the name of the socket of the link between ``client`` and the appliance."""
    return f"net-{client}"


def _escape_commas(path: str) -> str:
    """Return ``path`` for an option of QEMU: each comma is doubled."""
    return path.replace(",", ",,")
