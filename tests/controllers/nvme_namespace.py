"""A namespace of the small subsystem, its reservation, and the choices that the subsystem makes.

Sections: NVM Express Base 2.3; "NVM" is the NVM Command Set 1.2.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field

from storagetest.wire.nvme.codes import FABRICS, Rtype, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import Fes

ONCS = 0b1_1011_1111
"""All but Timestamp (bit 6)."""
RESCAP = 0b1111_1111


class CommandFailed(Exception):
    """A command ends with this status; ``result`` is its dword 0."""

    def __init__(self, status: int, *, result: int = 0, dnr: bool = True) -> None:
        super().__init__(f"{status:#x}")
        self.status, self.result, self.dnr = status, result, dnr


@dataclass
class Answer:
    data: bytes = b""
    result: int = 0


@dataclass
class Namespace:
    """Blocks in memory, and their reservation (8.1.24)."""

    nsid: int
    blocks: int = 2048
    block_size: int = 512
    identifier: uuid.UUID = field(init=False)
    generation: int = 0
    persistence: int = 0
    protection: int = 0  # the state of Namespace Write Protection (5.2.26.1.35)
    registrants: dict[bytes, int] = field(default_factory=dict)  # Host Identifier → key
    holder: bytes | None = None
    rtype: int = 0
    uncorrectable: set[int] = field(default_factory=set)  # LBAs

    def __post_init__(self) -> None:
        self.identifier = uuid.UUID(f"22222222-2222-4222-8222-2222222222{self.nsid % 100:02d}")
        self.data = bytearray(self.blocks * self.block_size)

    def span(self, command: Command) -> slice:
        """The bytes that LBA and NLB name; LBA Out of Range where they reach past the end (NVM 3.3)."""
        return self.extent(command.cdw10 | command.cdw11 << 32, (command.cdw12 & 0xFFFF) + 1)

    def extent(self, lba: int, blocks: int) -> slice:
        if lba + blocks > self.blocks:
            raise CommandFailed(StatusCode.LBA_OUT_OF_RANGE)
        return slice(lba * self.block_size, (lba + blocks) * self.block_size)

    def check_readable(self, span: slice) -> None:
        """Unrecovered Read Error if Write Uncorrectable has marked a block (NVM 3.3.7)."""
        if self.uncorrectable.intersection(self.lbas(span)):
            raise CommandFailed(StatusCode.UNRECOVERED_READ_ERROR)

    def lbas(self, span: slice) -> range:
        return range(span.start // self.block_size, span.stop // self.block_size)

    def all_registrants(self) -> bool:
        return self.rtype in (Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)

    def holds(self, host: bytes) -> bool:
        return (
            bool(self.rtype) and host in self.registrants and (self.all_registrants() or self.holder == host)
        )

    def check_access(self, host: bytes, *, writes: bool) -> None:
        """Reservation Conflict by the table of 8.1.24."""
        if not self.rtype or self.holds(host):
            return
        exclusive = self.rtype in (
            Rtype.EXCLUSIVE_ACCESS,
            Rtype.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
            Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
        )
        only_holder = self.rtype in (Rtype.WRITE_EXCLUSIVE, Rtype.EXCLUSIVE_ACCESS)
        if (writes or exclusive) and (only_holder or host not in self.registrants):
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)

    def release(self) -> None:
        self.holder, self.rtype = None, 0

    def unregister(self, host: bytes) -> None:
        self.registrants.pop(host, None)
        if self.holder == host:
            if self.all_registrants() and self.registrants:
                self.holder = next(iter(self.registrants))
            else:
                self.release()


@dataclass
class ControllerConfig:
    """The legal alternatives that this subsystem uses."""

    cpda: int = 0
    maxh2cdata: int = 8192
    in_capsule: int = 4096  # of I/O queues
    read_piece: int = 12288  # bytes of one C2HData
    r2t_piece: int = 16384  # bytes of one R2T
    first_r2t: int = 0  # of the first R2T of a write; 0: as of each other one
    held_for: float = 0.0  # seconds that an I/O queue waits for more commands, to respond in another order
    admin_held_for: float = 0.0  # the same of an admin queue
    success_flag: bool = True
    disable_flow_control: bool = True
    success_of_admin: bool = False
    blocks: int = 2048  # of each namespace
    block_size: int = 512
    metadata: int = 0  # bytes of a block that are metadata, at its end: an extended LBA (FLBAS bit 4)
    mdts: int = 5  # 2^5 pages of 4 KiB
    mqes: int = 127
    max_qid: int = 4
    mssrl: int = 64
    mcl: int = 128
    msrc: int = 3
    dlfeat: int = 0b1001  # deallocated blocks read as zeroes; Write Zeroes takes DEAC
    vsl: int = 0
    wzsl: int = 0
    wusl: int = 0
    dmrl: int = 0
    dmrsl: int = 0
    oncs: int = ONCS
    nsids: tuple[int, ...] = (1, 2)
    unknown_ttag: Fes = Fes.INVALID_HEADER_FIELD
    pads_term_data: bool = False  # the header in error has HLEN bytes, however few of them came
    fuses: bool = False  # Compare and Write
    acwu: int = 3  # blocks of a fused operation, zero's based
    awun: int = 7  # blocks of an atomic write, zero's based: AWUN and AWUPF
    joins_any_host: bool = False  # not legal: an I/O queue of another host is accepted
    takes_digests: bool = True
    nn: int = 4  # NSIDs that are valid; those that are not in `nsids` are inactive
    first_cntlid: int = 1
    ana: bool = True
    lpa: int = 0b110  # the effects log page, offsets of log pages
    traffic_keeps_alive: bool = True  # TBKAS
    kas: int = 1  # units of 100 ms
    ready_after: float = 0.0  # seconds from CC.EN to CSTS.RDY, and from CC.SHN to CSTS.SHST 10b
    acl: int = 3
    aerl: int = 3
    elpe: int = 15
    formats: int = 1  # LBA formats; the last one is in use
    discovered: int = 1  # entries of the discovery log page
    event_at_once: bool = False  # the first Asynchronous Event Request ends with an event of the vendor's
    version: int = 0x00020100  # VS: 2.1.0
    write_cache: bool = True  # VWC; without it, there is no such feature
    capsule_offsets: bool = True  # SGLS bit 20
    static: bool = (
        False  # the static controller model: CNTLID FFFEh requests any controller, FFFFh is refused
    )
    several_r2ts: bool = False  # as many R2Ts of a command at once as MAXR2T allows
    rescap_bits: int = RESCAP  # of RESCAP, if ONCS announces reservations
    write_protected: bool = False  # every namespace (NSATTR)
    nwpc: int = 1  # No Write Protect and Write Protect; 0: no namespace write protection
    most_controllers: int = 0  # of I/O at a time; one more is refused with Controller Busy; 0: any number
    hides_cntlid: bool = False  # the CNTLID of each registrant is FFFFh: its controller is a dynamic one
    logs_own_errors: bool = False  # an entry of no command follows each one of a command in the error log
    only_host: str = ""  # the Host NQN that is let in; "": any
    mpsmin: int = 0  # CAP.MPSMIN: pages of 2^(12 + n) bytes at least
    out_of_reach: dict[int, int] = field(default_factory=dict)  # NSID → status of its reads, writes, Flush
    aborts: bool = True  # Abort aborts an Asynchronous Event Request; without it, nothing
    least_timeout: int = 0  # ms: the least Keep Alive Timeout, which a shorter one is set to
    timeout: int = 20  # CAP.TO, in units of 500 ms
    counts_media: bool = True  # SMART counts commands and data units; without it, it reports neither
    lists_itself: bool = False  # the discovery log has the unique NQN of the discovery subsystem
    measures: bool = False  # each reading of the SMART log has other counts, temperature, spare, use
    namespace_masks: bool = False  # a Reservation Notification Mask is of all controllers; resets keep it

    @property
    def rescap(self) -> int:
        """RESCAP: what reservations can do, if ONCS announces them."""
        return self.rescap_bits if self.oncs >> 5 & 1 else 0

    @property
    def discard_limits(self) -> bytes:
        """DMRL, DMRSL and DMSL: all are 0, or an unused one has its largest value (NVM 3.3.3.1)."""
        if not self.dmrl and not self.dmrsl:
            return bytes(13)
        return struct.pack("<BIQ", self.dmrl or 0xFF, self.dmrsl or 0xFFFFFFFF, (1 << 64) - 1)

    def r2t_size(self, at: int) -> int:
        """Return the most bytes of an R2T whose data begin at byte ``at`` of the command."""
        return self.r2t_piece if at or not self.first_r2t else self.first_r2t

    def rounded_timeout(self, kato: int) -> int:
        """Return a Keep Alive Timeout in ms: the least one, rounded up to the units of KAS (3.9.1)."""
        unit = self.kas * 100
        return -(-max(kato, self.least_timeout) // unit) * unit if kato else 0


def namespace_data(namespace: Namespace, traits: ControllerConfig) -> bytes:
    """Return the data of Identify Namespace (NVM 4.1.5.1)."""
    raw = bytearray(4096)
    struct.pack_into("<QQQ", raw, 0, namespace.blocks, namespace.blocks, namespace.blocks)
    raw[30], raw[31], raw[33] = 1, traits.rescap, traits.dlfeat
    struct.pack_into("<HIB", raw, 74, traits.mssrl, traits.mcl, traits.msrc)
    struct.pack_into("<I", raw, 92, traits.ana)  # ANAGRPID
    raw[99] = traits.write_protected or bool(namespace.protection)  # NSATTR
    raw[104:120] = namespace.identifier.bytes[::-1]
    last = traits.formats - 1
    raw[25], raw[26] = last, last  # NLBAF, FLBAS
    for number in range(last):  # formats that are not in use: with metadata, and of other blocks
        struct.pack_into("<HBB", raw, 128 + 4 * number, 8, 9 + number, 1)
    if traits.metadata:
        raw[26], raw[27] = last | 1 << 4, 1  # FLBAS, MC
    raw[128 + 4 * last : 130 + 4 * last] = struct.pack("<H", traits.metadata)
    raw[128 + 4 * last + 2] = (namespace.block_size - traits.metadata).bit_length() - 1
    return bytes(raw)


def changed_list(changed: set[int], *, clear: bool) -> bytes:
    """Return the Changed Attached Namespace List log page; ``clear`` empties it (5.2.12.1.5)."""
    raw = struct.pack(f"<{len(changed)}I", *sorted(changed)).ljust(4096, b"\0")
    if clear:
        changed.clear()
    return raw


def is_write(command: Command) -> bool:
    """Whether data goes to the controller (bits 1:0 of the opcode, or of FCTYPE: 01b)."""
    return (command.nsid if command.opcode == FABRICS else command.opcode) & 3 == 1


def is_read(command: Command) -> bool:
    """Whether data comes from the controller (10b)."""
    return (command.nsid if command.opcode == FABRICS else command.opcode) & 3 == 2
