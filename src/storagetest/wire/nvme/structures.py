"""The data of Identify, Get Log Page and Reservation Report (NVM Express Base 2.3; NVM Command Set 1.2).

A structure is read by a table of offsets. Reading is total: a short buffer is a
:class:`~storagetest.errors.RemoteProtocolError` that shows it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storagetest.wire.bitfields import require_bytes

IDENTIFY_LENGTH = 4096

CONTROLLER: Mapping[str, tuple[int, int]] = {
    "vid": (0, 2),
    "cmic": (76, 1),
    "mdts": (77, 1),
    "cntlid": (78, 2),
    "ver": (80, 4),
    "oaes": (92, 4),
    "ctratt": (96, 4),
    "cntrltype": (111, 1),
    "oacs": (256, 2),
    "acl": (258, 1),
    "aerl": (259, 1),
    "lpa": (261, 1),
    "elpe": (262, 1),
    "npss": (263, 1),
    "kas": (320, 2),
    "cqt": (386, 2),
    "anacap": (343, 1),
    "anagrpmax": (344, 4),
    "nanagrpid": (348, 4),
    "sqes": (512, 1),
    "cqes": (513, 1),
    "maxcmd": (514, 2),
    "nn": (516, 4),
    "oncs": (520, 2),
    "vwc": (525, 1),
    "awun": (526, 2),
    "awupf": (528, 2),
    "nwpc": (531, 1),
    "ocfs": (534, 2),
    "sgls": (536, 4),
    "mnan": (540, 4),
    "ioccsz": (1792, 4),
    "iorcsz": (1796, 4),
    "icdoff": (1800, 2),
    "fcatt": (1802, 1),
    "msdbd": (1803, 1),
    "ofcs": (1804, 2),
}
"""Fields of Identify Controller (Base 5.2.13.2.1): name → (offset, bytes)."""

CONTROLLER_TEXT: Mapping[str, tuple[int, int]] = {
    "sn": (4, 20),
    "mn": (24, 40),
    "fr": (64, 8),
    "subnqn": (768, 256),
}

NAMESPACE: Mapping[str, tuple[int, int]] = {
    "nsze": (0, 8),
    "ncap": (8, 8),
    "nuse": (16, 8),
    "nsfeat": (24, 1),
    "nlbaf": (25, 1),
    "flbas": (26, 1),
    "dlfeat": (33, 1),
    "nawun": (34, 2),
    "nabsn": (40, 2),
    "nabo": (42, 2),
    "nmic": (30, 1),
    "rescap": (31, 1),
    "mssrl": (74, 2),
    "mcl": (76, 4),
    "msrc": (80, 1),
    "anagrpid": (92, 4),
    "nsattr": (99, 1),
}
"""Fields of Identify Namespace (NVM 4.1.5.1): name → (offset, bytes)."""


def _number(raw: bytes, place: tuple[int, int]) -> int:
    return int.from_bytes(raw[place[0] : place[0] + place[1]], "little")


@dataclass(frozen=True, slots=True)
class ControllerData:
    """Identify Controller. Any field of :data:`CONTROLLER` is an attribute."""

    raw: bytes

    @classmethod
    def decode(cls, raw: bytes) -> ControllerData:
        """Read 4096 bytes."""
        return cls(require_bytes(raw, IDENTIFY_LENGTH, "Identify Controller"))

    def __getitem__(self, name: str) -> int:
        return _number(self.raw, CONTROLLER[name])

    def text(self, name: str) -> str:
        """Return a field of :data:`CONTROLLER_TEXT`, without its padding."""
        offset, size = CONTROLLER_TEXT[name]
        return _text(self.raw[offset : offset + size])

    @property
    def in_capsule_limit(self) -> int:
        """Bytes of in-capsule data on I/O queues: IOCCSZ is in units of 16 bytes and counts the SQE."""
        return max(self["ioccsz"] * 16 - 64, 0)


@dataclass(frozen=True, slots=True)
class NamespaceData:
    """Identify Namespace. Any field of :data:`NAMESPACE` is an item."""

    raw: bytes

    @classmethod
    def decode(cls, raw: bytes) -> NamespaceData:
        """Read 4096 bytes."""
        return cls(require_bytes(raw, IDENTIFY_LENGTH, "Identify Namespace"))

    def __getitem__(self, name: str) -> int:
        return _number(self.raw, NAMESPACE[name])

    @property
    def _format(self) -> bytes:
        """The LBA format in use (FLBAS)."""
        index = self["flbas"] & 0xF | (self["flbas"] >> 1 & 0x30)
        return self.raw[128 + 4 * index : 132 + 4 * index]

    @property
    def block_size(self) -> int:
        """Bytes that are transferred for a logical block, of the format in use.

        They are those of the data (LBADS) and, if it is at the end of the data (FLBAS bit 4: an extended
        LBA), of the metadata (MS).
        """
        return self.block_data_size + (self.metadata if self.is_extended else 0)

    @property
    def block_data_size(self) -> int:
        """Bytes of the data of a logical block, of the format in use (LBADS)."""
        return 1 << min(self._format[2], 24)

    @property
    def is_extended(self) -> bool:
        """Whether metadata is transferred at the end of the data of each block (FLBAS bit 4)."""
        return bool(self["flbas"] >> 4 & 1)

    @property
    def metadata(self) -> int:
        """Bytes of metadata of a logical block, of the format in use (MS)."""
        return int.from_bytes(self._format[:2], "little")

    @property
    def nguid(self) -> bytes:
        """The 16 bytes of NGUID."""
        return self.raw[104:120]

    @property
    def eui64(self) -> bytes:
        """The 8 bytes of EUI64."""
        return self.raw[120:128]


@dataclass(frozen=True, slots=True)
class NvmCommandLimits:
    """The limits in Identify Controller of the NVM Command Set (NVM 4.1.5.4); 0: no limit is reported."""

    vsl: int = 0
    wzsl: int = 0
    dmrl: int = 0
    dmrsl: int = 0
    wusl: int = 0

    @classmethod
    def decode(cls, raw: bytes) -> NvmCommandLimits:
        """Read 4096 bytes."""
        require_bytes(raw, IDENTIFY_LENGTH, "I/O Command Set specific Identify Controller")
        vsl, wzsl, wusl, dmrl, dmrsl = struct.unpack_from("<BBBBI", raw)
        return cls(vsl, wzsl, dmrl, dmrsl, wusl)


LARGEST_NSID = 0xFFFF_FFFE
"""The largest NSID that a namespace can have (Base 3.2.1.2)."""

NSIDS_OF_LIST = 1024
"""NSIDs in one namespace list at most (Base 5.2.13.2.2)."""


MOST_LISTS = 1024
"""Lists that are read at most, of a controller that always has one more (chosen)."""


def whole_list(read: Callable[[int], list[int]]) -> list[int]:
    """Return all NSIDs of a namespace list; ``read`` returns those of one list, above a NSID."""
    found = part = read(0)
    for _ in range(MOST_LISTS):
        if len(part) < NSIDS_OF_LIST or found[-1] >= LARGEST_NSID:
            break
        part = [nsid for nsid in read(found[-1]) if nsid > found[-1]]
        found = found + part
    return found


def active_namespaces(raw: bytes) -> list[int]:
    """Read the Active Namespace ID list (Base 5.2.13.2.2), up to its first zero."""
    numbers = struct.unpack("<1024I", require_bytes(raw, IDENTIFY_LENGTH, "Active Namespace ID list")[:4096])
    return list(numbers[: numbers.index(0)] if 0 in numbers else numbers)


def descriptors(raw: bytes) -> list[tuple[int, bytes]]:
    """Read the Namespace Identification Descriptor list (Base 5.2.13.2.3): (type, identifier) of each."""
    found, at = [], 0
    while at + 4 <= len(raw) and raw[at + 1]:
        kind, length = raw[at], raw[at + 1]
        found.append((kind, require_bytes(raw, at + 4 + length, "descriptor list")[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


CC_ENABLE = 0x00460001
"""CC (Base 3.1.4.5): EN, I/O completion entries of 2^4 bytes, submission entries of 2^6."""


@dataclass(frozen=True, slots=True)
class Cap:
    """Controller Capabilities (Base 3.1.4.1)."""

    value: int

    @property
    def mqes(self) -> int:
        """Maximum Queue Entries Supported, zero's based."""
        return self.value & 0xFFFF

    @property
    def timeout(self) -> float:
        """Seconds within which CSTS.RDY follows CC.EN (TO is in units of 500 ms)."""
        return (self.value >> 24 & 0xFF) * 0.5

    @property
    def page_size(self) -> int:
        """Bytes of the least memory page (MPSMIN), the unit of MDTS."""
        return 1 << (12 + (self.value >> 48 & 0xF))

    @property
    def cc_enable(self) -> int:
        """:data:`CC_ENABLE` with MPS as MPSMIN: a host writes no page size that CAP lacks (3.1.4.5)."""
        return CC_ENABLE | (self.value >> 48 & 0xF) << 7

    @property
    def css(self) -> int:
        """Command Sets Supported."""
        return self.value >> 37 & 0xFF


@dataclass(frozen=True, slots=True)
class Registrant:
    """One registered controller (Base 7.8)."""

    cntlid: int
    holds: bool
    hostid: bytes
    key: int


@dataclass(frozen=True, slots=True)
class ReservationStatus:
    """The extended Reservation Status structure (Base 7.8). ``rtype`` 0: no reservation is held."""

    generation: int
    rtype: int
    persistence: int
    registrants: tuple[Registrant, ...]


def reservation_status(raw: bytes) -> ReservationStatus:
    """Read the extended structure; registrants beyond the buffer are left out."""
    require_bytes(raw, 64, "Reservation Status")
    generation, rtype, count, persistence = struct.unpack_from("<IBH2xB", raw)
    found = []
    for at in range(64, min(64 + 64 * count, len(raw) - 63), 64):
        cntlid, status, key = struct.unpack_from("<HB5xQ", raw, at)
        found.append(Registrant(cntlid, bool(status & 1), raw[at + 16 : at + 32], key))
    return ReservationStatus(generation, rtype, persistence, tuple(found))


@dataclass(frozen=True, slots=True)
class AnaGroup:
    """One ANA group descriptor (Base 5.2.12.1.13)."""

    number: int
    state: int
    namespaces: tuple[int, ...]


def ana_groups(raw: bytes) -> tuple[int, tuple[AnaGroup, ...]]:
    """Read the Asymmetric Namespace Access log page: its change count and its groups."""
    require_bytes(raw, 16, "ANA log page")
    change, count = struct.unpack_from("<QH", raw)
    at, groups = 16, []
    for _ in range(count):
        require_bytes(raw, at + 32, "ANA log page")
        number, names = struct.unpack_from("<II", raw, at)
        require_bytes(raw, at + 32 + 4 * names, "ANA log page")
        namespaces = struct.unpack_from(f"<{names}I", raw, at + 32)
        groups.append(AnaGroup(number, raw[at + 16] & 0xF, namespaces))
        at += 32 + 4 * names
    return change, tuple(groups)


@dataclass(frozen=True, slots=True)
class DiscoveryEntry:
    """One entry of the Discovery log page (Base 5.2.12.3.3)."""

    trtype: int
    adrfam: int
    subtype: int
    portid: int
    cntlid: int
    trsvcid: str
    subnqn: str
    traddr: str


def discovery_entries(raw: bytes) -> tuple[int, int, tuple[DiscoveryEntry, ...]]:
    """Read the Discovery log page: generation counter, number of records, and the entries within ``raw``."""
    require_bytes(raw, 1024, "Discovery log page")
    generation, count = struct.unpack_from("<QQ", raw)
    entries = []
    for at in range(1024, min(1024 + 1024 * count, len(raw) - 1023), 1024):
        trtype, adrfam, subtype, _, portid, cntlid = struct.unpack_from("<BBBBHH", raw, at)
        texts = ((at + 32, 32), (at + 256, 256), (at + 512, 256))
        service, name, address = (_text(raw[start : start + size]) for start, size in texts)
        entries.append(DiscoveryEntry(trtype, adrfam, subtype, portid, cntlid, service, name, address))
    return generation, count, tuple(entries)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()
