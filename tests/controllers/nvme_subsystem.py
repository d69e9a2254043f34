"""A small NVM subsystem in memory, written from the standard: controllers, namespaces, reservations.

It is the second implementation that the NVMe/TCP suite runs against, so it makes other legal choices than
Linux's, and has what that lacks (Compare, Copy, Verify, reservations). Sections: NVM Express Base 2.3,
"NVM" is the NVM Command Set 1.2. It shares the codecs with the suite and nothing else.
"""

# ruff: noqa: C901, PLR0912  # a rule of the standard is an `if` and a `raise`, side by side

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from nvme_features import (
    CHANGEABLE,
    feature_effects,
    get_features,
    over_threshold,
    set_features,
    under_threshold,
)
from nvme_namespace import Answer, CommandFailed, ControllerConfig, Namespace, changed_list, namespace_data
from nvme_reservations import notice, reserve

from storagetest.wire.nvme.codes import (
    ONCS_BITS,
    Admin,
    Cns,
    Feature,
    Io,
    LogPage,
    Property,
    StatusCode,
)
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData

EVENTS = {LogPage.RESERVATION_NOTIFICATION: 6, LogPage.CHANGED_NAMESPACES: 2}
"""Asynchronous Event Types (5.2.2) that a read of the log page clears."""

READY_MODES_SINCE = 0x00020000
"""The first version of which CAP.CRMS and CRTO are part (3.1.4.1): ready with media alone."""


class Subsystem:
    """Namespaces and controllers. ``changed`` is called with each change that causes asynchronous events."""

    def __init__(self, nqn: str, *, personality: ControllerConfig | None = None) -> None:
        self.nqn = nqn
        self.personality = personality or ControllerConfig()
        self.lock = threading.RLock()
        blocks, size = self.personality.blocks, self.personality.block_size
        self.namespaces = {
            nsid: Namespace(nsid, blocks=blocks, block_size=size) for nsid in self.personality.nsids
        }
        if len(self.namespaces) > 100:  # the identifiers have two digits of the NSID
            for nsid, namespace in self.namespaces.items():
                namespace.identifier = UUID(int=namespace.identifier.int + (nsid // 100 << 64))
        self.controllers: dict[int, Controller] = {}
        self.masks: dict[int, int] = {}  # of ``namespace_masks``
        self.counted = {Io.READ: [0, 0], Io.WRITE: [0, 0]}  # commands and bytes of each (5.2.12.1.3)
        self._next = self.personality.first_cntlid - 1

    def admit(self, data: ConnectData, kato: int, hangup: Callable[[], None]) -> Controller:
        """Create a controller for an admin queue's Connect (6.3)."""
        with self.lock:
            self._check_admitted(data)
            self._next = self._next % 0xFFEF + 1
            discovery, kato = data.subnqn == DISCOVERY_NQN, self.personality.rounded_timeout(kato)
            controller = Controller(self, self._next, str(data.hostnqn), data.hostid, kato, discovery, hangup)
            if self.personality.namespace_masks:
                controller.masks = self.masks
            self.controllers[controller.cntlid] = controller
            return controller

    def _check_admitted(self, data: ConnectData) -> None:
        """Connect Invalid Host, Connect Controller Busy (6.3)."""
        traits = self.personality
        if traits.only_host and str(data.hostnqn) != traits.only_host:
            raise CommandFailed(StatusCode.CONNECT_INVALID_HOST)
        used = sum(not one.discovery for one in self.controllers.values())
        if traits.most_controllers and data.subnqn != DISCOVERY_NQN and used >= traits.most_controllers:
            raise CommandFailed(StatusCode.CONNECT_CONTROLLER_BUSY, dnr=False)


@dataclass
class Controller:
    """One association with a host (dynamic controller model, 3.1.1)."""

    subsystem: Subsystem
    cntlid: int
    hostnqn: str
    hostid: bytes
    kato: int
    discovery: bool
    hangup: Callable[[], None]
    queues: set[int] = field(default_factory=set)
    cc: int = 0
    csts: int = 0
    features: dict[int, int] = field(default_factory=dict)  # current values that are not the default ones
    behavior: bytes = bytes(512)  # Host Behavior Support (5.2.26.1.14)
    port: int = 0
    notify: list[Callable[[int], bool]] = field(default_factory=list)
    notices: list[tuple[int, int, int]] = field(default_factory=list)  # count, type, NSID
    noticed: int = 0
    errors: list[bytes] = field(default_factory=list)  # entries of the error log, the newest one first
    failed: int = 0
    masks: dict[int, int] = field(default_factory=dict)
    resets: list[Callable[[], None]] = field(default_factory=list)  # of the queues that outlive a reset
    hangups: dict[int, Callable[[], None]] = field(default_factory=dict)  # of the I/O queues, by QID
    changed: set[int] = field(default_factory=set)  # namespaces, since the list of them was read
    reported: set[int] = field(default_factory=set)  # event types that are masked (5.2.2)
    cleared: list[Callable[[int], None]] = field(default_factory=list)  # is called with a type that is
    _timer: threading.Timer | None = None
    _busy_until: float = 0.0
    readings: int = 0  # of the SMART log
    surprised: bool = False  # whether the event of ``event_at_once`` was reported

    @property
    def traits(self) -> ControllerConfig:
        return self.subsystem.personality

    def alive(self) -> None:
        """Start the Keep Alive Timer again, if it is active (3.9.2)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.kato and self.cc & 1 and not self.cc >> 14 & 3:
            self._timer = threading.Timer(self.kato / 1000, self._expired)
            self._timer.daemon = True
            self._timer.start()

    def _expired(self) -> None:
        self.csts |= 2
        self.hangup()

    def gone(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.subsystem.controllers.pop(self.cntlid, None)
        self.end_io_queues()

    def end_io_queues(self) -> None:
        """Without its admin queue, or after a reset, a controller has no I/O queues (3.3.1, 3.7.2)."""
        for hangup in list(self.hangups.values()):
            hangup()

    def log_error(self, qid: int, command: Command, status: int) -> None:
        """Add an entry to the Error Information log page (5.2.12.1.2)."""
        self.failed += 1
        lba = command.cdw10 | command.cdw11 << 32 if qid else 0
        entry = struct.pack("<QHHHHQI", self.failed, qid, command.cid, status << 1, 0xFFFF, lba, command.nsid)
        self.errors = [entry.ljust(64, b"\0"), *self.errors[: self.traits.elpe]]
        if self.traits.logs_own_errors:
            self.failed += 1
            entry = struct.pack("<QHHHHQI", self.failed, 0xFFFF, 0xFFFF, 6 << 1, 0xFFFF, 0, 0xFFFFFFFF)
            self.errors = [entry.ljust(64, b"\0"), *self.errors[: self.traits.elpe]]

    # Fabrics (6)

    def property_get(self, command: Command) -> Answer:
        modes = self.traits.version >= READY_MODES_SINCE
        values = {
            Property.CAP: (8, self._cap() | modes << 59),
            **({Property.CRTO: (4, self.traits.timeout)} if modes else {}),
            Property.VS: (4, self.traits.version),
            Property.CC: (4, self.cc),
            Property.CSTS: (4, self._status()),
        }
        size, value = values.get(command.cdw11, (0, 0))
        if command.cdw10 & 7 > 1 or size != (8 if command.cdw10 & 7 else 4):
            raise CommandFailed(StatusCode.INVALID_FIELD)
        return Answer(result=value)

    def _cap(self) -> int:
        traits = self.traits
        pages = traits.mpsmin << 48 | traits.mpsmin << 52  # MPSMIN, MPSMAX
        return traits.mqes | 1 << 16 | traits.timeout << 24 | 1 << 37 | pages

    def property_set(self, command: Command) -> Answer:
        if command.cdw11 != Property.CC or command.cdw10 & 7:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        was, self.cc = self.cc, command.cdw12
        if self.cc >> 14 & 3 or (self.cc ^ was) & 1:
            self._busy_until = time.monotonic() + self.traits.ready_after
        if self.cc & 1 and not was & 1:
            self.csts = 1 if self.cc >> 7 & 0xF == self.traits.mpsmin else 2
        elif was & 1 and not self.cc & 1:
            self.csts = 0
            self.features.clear()  # none is saveable, so each has its default value again (4.4)
            self.behavior = bytes(512)
            if not self.traits.namespace_masks:
                self.masks.clear()
            self.kato = CHANGEABLE[Feature.KATO]
            self.reported.clear()
            self.end_io_queues()
            for forget in self.resets:
                forget()
        if self.cc >> 14 & 3:
            self.csts = self.csts & ~0xC | 8
        self.alive()
        return Answer()

    def _status(self) -> int:
        """Return CSTS: what CC asked for comes after a while (3.1.4.6)."""
        if time.monotonic() >= self._busy_until:
            return self.csts
        return self.csts & ~0xC | 4 if self.cc >> 14 & 3 else self.csts ^ 1

    # Admin (5.2)

    @property
    def processes(self) -> bool:
        """Whether others than fabrics commands are processed: it is enabled, and not shut down (3.6.2)."""
        return bool(self.csts & 1) and not self.cc >> 14 & 3

    def admin(self, command: Command, data: bytes) -> Answer:
        if not self.processes:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        if command.flags & 3:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # no admin command is fused (FUSES)
        run = {
            Admin.IDENTIFY: self._identify,
            Admin.GET_LOG_PAGE: self._log_page,
            Admin.GET_FEATURES: partial(get_features, self),
            Admin.SET_FEATURES: partial(set_features, self, data=data),
            Admin.KEEP_ALIVE: self._keep_alive,
        }.get(command.opcode)  # type: ignore[call-overload]
        allowed = (
            Admin.IDENTIFY,
            Admin.GET_LOG_PAGE,
            Admin.KEEP_ALIVE,
            Admin.GET_FEATURES,
            Admin.SET_FEATURES,
        )
        if run is None or (self.discovery and command.opcode not in allowed):
            raise CommandFailed(StatusCode.INVALID_OPCODE)
        return run(command)

    def _keep_alive(self, command: Command) -> Answer:
        self.alive()
        return Answer()

    def _identify(self, command: Command) -> Answer:
        cns, nsid, csi = command.cdw10 & 0xFF, command.nsid, command.cdw11 >> 24
        if cns == Cns.CONTROLLER:
            return Answer(self._controller_data())
        if self.discovery:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        if cns == Cns.CSI_VECTORS and command.cdw10 >> 16 in (0xFFFF, self.cntlid):
            return Answer(b"\1".ljust(4096, b"\0"))  # one combination: the NVM Command Set
        if cns == Cns.ACTIVE_NAMESPACES or (cns == Cns.CSI_ACTIVE_NAMESPACES and not csi):
            if nsid >= 0xFFFFFFFE:
                raise CommandFailed(StatusCode.INVALID_NAMESPACE)
            active = sorted(number for number in self.subsystem.namespaces if number > nsid)[:1024]
            return Answer(struct.pack(f"<{len(active)}I", *active).ljust(4096, b"\0"))
        if cns in (Cns.NAMESPACE, Cns.CSI_NAMESPACE, Cns.CSI_INDEPENDENT):
            self._check_nsid(nsid)
            if cns == Cns.CSI_NAMESPACE and csi:
                raise CommandFailed(StatusCode.INVALID_FIELD)
            namespace = self.subsystem.namespaces.get(nsid)
            if namespace is None or cns == Cns.CSI_NAMESPACE:
                return Answer(bytes(4096))
            if cns == Cns.CSI_INDEPENDENT:
                protected = self.traits.write_protected or bool(namespace.protection)
                independent = struct.pack(
                    "<BBBxIB5xB", 0, 1, self.traits.rescap, self.traits.ana, protected, 1
                )
                return Answer(independent.ljust(4096, b"\0"))
            return Answer(namespace_data(namespace, self.traits))
        if cns == Cns.DESCRIPTORS:
            namespace = self.subsystem.namespaces.get(nsid)
            if namespace is None:
                raise CommandFailed(StatusCode.INVALID_NAMESPACE)
            raw = (
                b"\3\x10\0\0" + namespace.identifier.bytes + b"\2\x10\0\0" + namespace.identifier.bytes[::-1]
            )
            return Answer((raw + b"\4\1\0\0\0").ljust(4096, b"\0"))
        if cns == Cns.CSI_CONTROLLER and csi == 0:
            traits = self.traits
            limits = struct.pack("<BBB", traits.vsl, traits.wzsl, traits.wusl) + traits.discard_limits
            return Answer(limits.ljust(4096, b"\0"))
        raise CommandFailed(StatusCode.INVALID_FIELD)

    def _check_nsid(self, nsid: int) -> None:
        if not 1 <= nsid <= self.traits.nn:
            raise CommandFailed(StatusCode.INVALID_NAMESPACE)

    def _controller_data(self) -> bytes:
        raw = bytearray(4096)

        def put(offset: int, form: str, *values: object) -> None:
            struct.pack_into("<" + form, raw, offset, *values)

        put(4, "20s40s8s", b"SECOND0001".ljust(20), b"storagetest second".ljust(40), b"1".ljust(8))
        raw[76] = (
            8 * self.traits.ana | 2
        )  # CMIC: asymmetric namespace access is reported; several controllers
        put(77, "BHI", self.traits.mdts, self.cntlid, self.traits.version)
        put(92, "II", 1 << 31 if self.discovery else 0x100, 1 | self.traits.traffic_keeps_alive << 6)
        raw[111] = 2 if self.discovery else 1
        put(258, "BBBBB", self.traits.acl, self.traits.aerl, 2, self._lpa, self.traits.elpe)
        put(320, "H", self.traits.kas)
        put(512, "BBH", 0x66, 0x44, self.traits.mqes + 1)
        if not self.discovery:
            put(516, "IH", self.traits.nn, self.traits.oncs)
            raw[522] = self.traits.fuses
            put(526, "HH", self.traits.awun, self.traits.awun)
            put(532, "H", self.traits.acwu * self.traits.fuses)
            raw[525] = self.traits.write_cache
            raw[531] = self.traits.nwpc
            if self.traits.ana:
                put(343, "BII", 1, 1, 1)  # ANACAP: optimized; ANAGRPMAX, NANAGRPID
                put(540, "I", self.traits.nn)  # MNAN
            put(534, "H", 1)  # OCFS: copy format 0
            put(1804, "H", 1)  # OFCS: Disconnect
            put(1792, "II", (64 + self.subsystem.personality.in_capsule) // 16, 1)
        put(536, "I", 1 | self.traits.capsule_offsets << 20)  # SGLS: SGLs, and offsets in the capsule
        raw[1803] = 1
        put(1802, "B", self.traits.static and not self.discovery)  # FCATT: the controller model
        put(768, "256s", (self._discovery_nqn if self.discovery else self.subsystem.nqn).encode())
        return bytes(raw)

    @property
    def _discovery_nqn(self) -> str:
        """The NQN of the discovery subsystem: the well-known one, or one of its own (3.1.3.3)."""
        return f"{self.subsystem.nqn}.discovery" if self.traits.lists_itself else DISCOVERY_NQN

    @property
    def _lpa(self) -> int:
        return self.traits.lpa | 4 * self.discovery

    def _log_page(self, command: Command) -> Answer:
        length = ((command.cdw10 >> 16 | command.cdw11 << 16 & 0xFFFF0000) + 1) * 4
        offset = command.cdw12 | command.cdw13 << 32
        if not self._lpa >> 2 & 1:  # no extended data
            length, offset = ((command.cdw10 >> 16) + 1) * 4, 0
        self._check_size(length, self.traits.mdts)
        page, rae = command.cdw10 & 0xFF, command.cdw10 >> 15 & 1
        groups_only = bool(command.cdw10 >> 8 & 1)
        pages: dict[int, Callable[[], bytes]] = {
            LogPage.SUPPORTED: lambda: b"".join(struct.pack("<I", one in pages) for one in range(256)),
            LogPage.ERROR: lambda: b"".join(self.errors).ljust(64 * (self.traits.elpe + 1), b"\0"),
            LogPage.SMART: self._smart,
            LogPage.FIRMWARE_SLOT: lambda: b"\1".ljust(8, b"\0") + b"1".ljust(8) + bytes(496),
            LogPage.CHANGED_NAMESPACES: lambda: changed_list(self.changed, clear=not rae),
            LogPage.EFFECTS: self._effects,
            LogPage.ANA: lambda: self._ana(groups_only=groups_only),
            LogPage.FEATURES: lambda: feature_effects(self),
            LogPage.RESERVATION_NOTIFICATION: lambda: notice(self, clear=not rae),
        }
        if not self.traits.ana:
            del pages[LogPage.ANA]
        if not self.traits.lpa >> 1 & 1:
            del pages[LogPage.EFFECTS]
        if self.discovery:
            listed = {LogPage.SUPPORTED: 1, LogPage.FEATURES: 1, LogPage.DISCOVERY: 1 << 16 | 1}  # EXTDLPES
            pages = {
                LogPage.SUPPORTED: lambda: b"".join(
                    struct.pack("<I", listed.get(one, 0)) for one in range(256)
                ),
                LogPage.FEATURES: lambda: feature_effects(self),
                LogPage.DISCOVERY: lambda: self._discovery(extended=bool(command.cdw10 >> 8 & 1)),
            }
        if page not in pages:
            raise CommandFailed(StatusCode.INVALID_LOG_PAGE)
        if command.cdw14 >> 23 & 1 and self._lpa >> 2 & 1:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # no page has an index offset (IOS 0)
        if page == LogPage.SMART and command.nsid not in (0, 0xFFFFFFFF):
            raise CommandFailed(StatusCode.INVALID_FIELD)  # it is not of a namespace (LPA bit 0 is 0)
        if page == LogPage.RESERVATION_NOTIFICATION and offset > 64:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # before its notification is removed
        raw = pages[page]()
        if offset > len(raw) or offset % 4:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        if page in EVENTS and not rae:
            self.reported.discard(EVENTS[LogPage(page)])
            for clear in list(self.cleared):
                clear(EVENTS[LogPage(page)])
        return Answer(raw[offset : offset + length].ljust(length, b"\0"))

    def _smart(self) -> bytes:
        (reads, got), (writes, put) = self.subsystem.counted[Io.READ], self.subsystem.counted[Io.WRITE]
        units = (-(-got // 512_000), -(-put // 512_000))
        known = self.traits.counts_media  # 0: not reported
        counts = b"".join((one * known).to_bytes(16, "little") for one in (*units, reads, writes))
        head = bytes([0, 0x2C, 1, 100, 10]).ljust(32, b"\0") + counts
        page = bytearray(head.ljust(176, b"\0") + struct.pack("<Q328x", self.failed))
        if self.traits.measures:
            number = self.readings = self.readings + 1
            page[1], page[3], page[5] = 0x2C + number % 3, 100 - number // 8 % 2, number // 8 % 4
            for at in (64, 96, 128):  # reads of other hosts, Controller Busy Time, Power On Hours
                page[at : at + 8] = struct.pack("<Q", number + int.from_bytes(page[at : at + 8], "little"))
        warm = int.from_bytes(page[1:3], "little")
        page[0] = 2 * (not under_threshold(self) < warm < over_threshold(self))
        return bytes(page)

    def _ana(self, *, groups_only: bool) -> bytes:
        nsids = [] if groups_only else sorted(self.subsystem.namespaces)
        group = struct.pack("<IIQB15x", 1, len(nsids), 0, 1) + struct.pack(f"<{len(nsids)}I", *nsids)
        return struct.pack("<QH6x", 0, 1) + group

    def _effects(self) -> bytes:
        raw = bytearray(4096)
        for opcode in (*(int(one) for one in _ADMIN_OPCODES),):
            raw[4 * opcode] = 1
        for opcode in _IO_OPCODES:
            raw[1024 + 4 * opcode] = 3 if opcode in _CHANGING else 1  # CSUPP, and LBCC
        return bytes(raw)

    def _discovery(self, *, extended: bool) -> bytes:
        """Return the log; an extended entry has its length and the number of its attributes, 0, as well."""
        raw = self._discovery_entries()
        if not extended:
            return raw
        entries = [raw[at : at + 1024] + struct.pack("<I4x", 1032) for at in range(1024, len(raw), 1024)]
        head = raw[:18] + struct.pack("<BxI", 1, 1024 + 1032 * len(entries)) + raw[24:1024]
        return head + b"".join(entries)

    def _discovery_entries(self) -> bytes:
        entry = bytearray(1024)
        any_controller = 0xFFFE if self.traits.static else 0xFFFF
        struct.pack_into("<BBBBHHH", entry, 0, 3, 1, 2, 2, 1, any_controller, 32)
        entry[32:64] = str(self.port).encode().ljust(32)
        entry[256:512] = self.subsystem.nqn.encode().ljust(256, b"\0")
        entry[512:768] = b"127.0.0.1".ljust(256)
        others, itself = self.traits.discovered - 1, self.traits.lists_itself
        raw = struct.pack("<QQH", 1, others + 1 + itself, 0).ljust(1024, b"\0")
        if itself:  # SUBTYPE 3: the current discovery subsystem
            name = self._discovery_nqn.encode().ljust(256, b"\0")
            raw += entry[:2] + b"\3" + entry[3:256] + name + entry[512:]
        for number in range(others):  # other subsystems at other ports, before the one that is here
            other = bytearray(entry)
            other[4:6] = struct.pack("<H", 2 + number)  # PORTID
            other[256:512] = f"{self.subsystem.nqn}.{number}".encode().ljust(256, b"\0")
            raw += bytes(other)
        return raw + bytes(entry)

    def namespace(self, nsid: int) -> Namespace:
        namespace = self.subsystem.namespaces.get(nsid)
        if namespace is None:
            inactive = 1 <= nsid <= self.traits.nn
            raise CommandFailed(StatusCode.INVALID_FIELD if inactive else StatusCode.INVALID_NAMESPACE)
        return namespace

    # I/O (7, NVM 3.3)

    def io(self, command: Command, data: bytes) -> Answer:
        if not self.processes:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        optional = _ONCS.get(command.opcode)
        if command.opcode not in _IO_OPCODES or (
            optional is not None and not self.traits.oncs >> optional & 1
        ):
            raise CommandFailed(StatusCode.INVALID_OPCODE)
        if command.flags & 3 and not self.traits.fuses:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # fused operations are not there (FUSES 0)
        with self.subsystem.lock:
            if command.opcode == Io.FLUSH and command.nsid == 0xFFFFFFFF:
                return Answer()
            namespace = self.namespace(command.nsid)
            if command.opcode in _RESERVATION:
                return reserve(self, namespace, command, data)
            if command.nsid in self.traits.out_of_reach:
                raise CommandFailed(self.traits.out_of_reach[command.nsid], dnr=False)
            namespace.check_access(self.hostid, writes=command.opcode in _WRITING)
            protected = self.traits.write_protected or namespace.protection
            if protected and command.opcode in _WRITING - {Io.FLUSH}:
                raise CommandFailed(StatusCode.NAMESPACE_WRITE_PROTECTED)
            return self._media(namespace, command, data)

    def transfer_length(self, command: Command) -> int | None:
        """Return the bytes that an I/O command transfers; None if only its execution decides."""
        if command.opcode in (Io.READ, Io.WRITE, Io.COMPARE):
            namespace = self.namespace(command.nsid)
            namespace.span(command)
            length = ((command.cdw12 & 0xFFFF) + 1) * namespace.block_size
            self._check_size(length, self.traits.mdts)
            return length
        if command.opcode == Io.DATASET_MANAGEMENT:
            return ((command.cdw10 & 0xFF) + 1) * 16
        if command.opcode == Io.COPY:
            return ((command.cdw12 & 0xFF) + 1) * 32
        if command.opcode in (Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE):
            return 16
        if command.opcode == Io.RESERVATION_RELEASE:
            return 8
        if command.opcode == Io.RESERVATION_REPORT:
            self._check_size((command.cdw10 + 1) * 4, self.traits.mdts)
            return (command.cdw10 + 1) * 4
        return 0

    def _check_size(self, size: int, exponent: int) -> None:
        """Refuse ``size`` bytes over a limit of 2^``exponent`` pages; 0 is no limit."""
        if exponent and size > 4096 << self.traits.mpsmin << exponent:
            raise CommandFailed(StatusCode.INVALID_FIELD)

    def _media(self, namespace: Namespace, command: Command, data: bytes) -> Answer:
        if command.opcode == Io.FLUSH:
            return Answer()
        if command.opcode == Io.DATASET_MANAGEMENT:
            return self._manage(namespace, command, data)
        if command.opcode == Io.COPY:
            return self._copy(namespace, command, data)
        span = namespace.span(command)
        if command.opcode == Io.WRITE_UNCORRECTABLE:
            self._check_size(span.stop - span.start, self.traits.wusl)
            namespace.uncorrectable.update(namespace.lbas(span))
            return Answer()
        if command.opcode in (Io.READ, Io.COMPARE, Io.VERIFY):
            namespace.check_readable(span)
        else:
            namespace.uncorrectable.difference_update(namespace.lbas(span))
        if counted := self.subsystem.counted.get(Io(command.opcode)):
            counted[:] = counted[0] + 1, counted[1] + span.stop - span.start
        if command.opcode == Io.READ:
            return Answer(bytes(namespace.data[span]))
        if command.opcode == Io.WRITE:
            namespace.data[span] = data
        elif command.opcode == Io.WRITE_ZEROES:
            self._check_size(span.stop - span.start, self.traits.wzsl)
            if command.cdw12 >> 25 & 1 and not self.traits.dlfeat & 8:
                raise CommandFailed(StatusCode.INVALID_FIELD)  # DEAC is not supported (DLFEAT bit 3)
            namespace.data[span] = bytes(span.stop - span.start)
        elif command.opcode == Io.VERIFY:
            self._check_size(span.stop - span.start, self.traits.vsl)
        elif command.opcode == Io.COMPARE and namespace.data[span] != data:
            raise CommandFailed(StatusCode.COMPARE_FAILURE)
        return Answer()

    def _manage(self, namespace: Namespace, command: Command, data: bytes) -> Answer:
        ranges = [struct.unpack_from("<IIQ", data, at) for at in range(0, len(data), 16)]
        traits = self.traits
        if len(ranges) > (traits.dmrl or 256) or any(
            traits.dmrsl and blocks > traits.dmrsl for _, blocks, _ in ranges
        ):
            raise CommandFailed(StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED)
        for _, blocks, lba in ranges:
            namespace.extent(lba, blocks)
        if command.cdw11 & 4:
            for _, blocks, lba in ranges:
                namespace.uncorrectable.difference_update(range(lba, lba + blocks))
                namespace.data[namespace.extent(lba, blocks)] = bytes(blocks * namespace.block_size)
        return Answer()

    def _copy(self, namespace: Namespace, command: Command, data: bytes) -> Answer:
        if command.cdw12 >> 8 & 0xF:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        entries = [struct.unpack_from("<8xQH", data, at) for at in range(0, len(data), 32)]
        sizes = [count + 1 for _, count in entries]
        traits = self.traits
        if len(entries) > traits.msrc + 1 or max(sizes) > traits.mssrl or sum(sizes) > traits.mcl:
            raise CommandFailed(StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED)
        target = namespace.extent(command.cdw10 | command.cdw11 << 32, sum(sizes))
        spans = [namespace.extent(lba, count + 1) for lba, count in entries]
        for span in spans:
            namespace.check_readable(span)
        namespace.data[target] = b"".join(bytes(namespace.data[span]) for span in spans)
        namespace.uncorrectable.difference_update(namespace.lbas(target))
        return Answer()


_ADMIN_OPCODES = (
    Admin.GET_LOG_PAGE,
    Admin.IDENTIFY,
    Admin.ABORT,
    Admin.SET_FEATURES,
    Admin.GET_FEATURES,
    Admin.ASYNCHRONOUS_EVENT_REQUEST,
    Admin.KEEP_ALIVE,
)
_RESERVATION = {
    Io.RESERVATION_REGISTER,
    Io.RESERVATION_REPORT,
    Io.RESERVATION_ACQUIRE,
    Io.RESERVATION_RELEASE,
}
_WRITING = {Io.WRITE, Io.WRITE_UNCORRECTABLE, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT, Io.COPY, Io.FLUSH}
_CHANGING = _WRITING - {Io.FLUSH}
"""Commands that change the content of blocks (5.2.12.1.6, LBCC)."""
_IO_OPCODES = {
    Io.FLUSH,
    Io.WRITE,
    Io.READ,
    Io.WRITE_UNCORRECTABLE,
    Io.COMPARE,
    Io.WRITE_ZEROES,
    Io.DATASET_MANAGEMENT,
    Io.VERIFY,
    Io.COPY,
}
_IO_OPCODES |= _RESERVATION
_ONCS = ONCS_BITS | dict.fromkeys(_RESERVATION, 5)
"""The bit of ONCS for the support of a command (5.2.13.2.1)."""
