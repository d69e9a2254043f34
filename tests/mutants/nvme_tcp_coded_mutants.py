"""Coded values that are not defined, and reservation commands and writes that should be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nvme_tcp_depth_mutants import fused
from nvme_tcp_rules import accepts, fabrics, host, identify, log, on_admin, on_io, patch, put, results, target

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme_tcp.pdu import H2CData

ENTRY = 1024
"""Bytes of the head of the discovery log, and of each entry (Base 5.2.12.3.3)."""

for name, at, new, text in (
    ("adrfam", 1, b"\7", "ADRFAM of an entry is reserved"),
    ("treq", 3, b"\3", "the secure channel in TREQ of an entry is 11b"),
    ("cntlid", 6, b"\xf8\xff", "CNTLID of an entry is FFF8h"),
    ("sectype", 768, b"\x0b", "SECTYPE of an entry is reserved"),
):

    def _change(raw: bytes, at: int = at, new: bytes = new) -> bytes:
        return put(ENTRY + at, new)(raw) if len(raw) >= 2 * ENTRY else raw

    target(
        f"discovery-coded-{name} | Base 5.2.12.3.3 | {text}",
        patch(_change, when=log(LogPage.DISCOVERY)),
    )


def _at(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: put(offset, new)(raw) if len(raw) > offset else raw


target(
    "discovery-record-format | Base 5.2.12.3.3 | RECFMT of the discovery log is 1h",
    patch(_at(16, b"\1\0"), when=log(LogPage.DISCOVERY)),
)
target(
    "ana-state-reserved | Base 5.2.12.1.13 | the state of an ANA group is reserved",
    patch(_at(32, b"\7"), when=log(LogPage.ANA)),
)
target(
    "ana-groups-more | Base 5.2.13.2.1 | NANAGRPID is more than ANAGRPMAX",
    patch(_at(348, b"\7\0\0\0"), when=identify(Cns.CONTROLLER)),
)
CAP = fabrics(Fctype.PROPERTY_GET, cdw11=Property.CAP)
target(
    "cap-reserved | Base 3.1.4.1 | reserved bits of CAP are set",
    results(lambda t, c, old: old | 1 << 20, when=CAP),
)
target(
    "cap-nssrs | Base 3.1.4.1 | CAP announces a subsystem reset that is not there",
    results(lambda t, c, old: old | 1 << 36, when=CAP),
)
target(
    "identify-hids | Base 5.2.13.2.1 | CTRATT states no Host Identifiers of 128 bits",
    patch(lambda raw: put(96, bytes([raw[96] & 0xFE]))(raw), when=identify(Cns.CONTROLLER)),
)
target(
    "reservation-of-every | Base 3.2.1.5 | reservation commands take NSID FFFFFFFFh",
    accepts(
        StatusCode.INVALID_NAMESPACE,
        StatusCode.INVALID_FIELD,
        when=lambda t, c: (
            c.nsid == 0xFFFFFFFF
            and on_io(
                Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE, Io.RESERVATION_REPORT
            )(t, c)
        ),
    ),
)
host(
    "asked-admin-lost | NVMe/TCP 3.3.2 | data of an admin command that an R2T asks for are zeroes",
    lambda t, got: (
        [replace(got.pdu, data=bytes(len(got.pdu.data)))]
        if isinstance(got.pdu, H2CData) and not t.qid
        else None
    ),
)
fused(
    "protected-fused | Base 5.2.26.1.35 | a fused Write of a protected namespace succeeds",
    of_target=accepts(
        StatusCode.NAMESPACE_WRITE_PROTECTED, when=lambda t, c: on_io(Io.WRITE)(t, c) and c.flags & 3 == 2
    ),
)
target(
    "cns-high-accepted | Base 5.2.13.1 | each CNS from 40h on is accepted",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: on_admin(Admin.IDENTIFY)(t, c) and c.cdw10 & 0xFF >= 0x40,
    ),
)
