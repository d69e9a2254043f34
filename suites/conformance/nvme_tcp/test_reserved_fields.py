"""Reserved bytes and bits of what a controller returns: Identify, log pages, the report (Base 1.4.1.6).

A reserved field is 0, "or in accordance with a future extension". So the fields are those that no revision
up to 2.3 has defined, and a controller of a later one is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, LogPage, Rtype, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import request_event
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost, allowed, hold

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 1.4.1.6")]

LATEST = 0x00020300
"""VER of the latest revision whose fields are known here: 2.3."""

ALL_NAMESPACES = 0xFFFFFFFF
WRONG_CNS = 0x0F


@dataclass(frozen=True)
class Fields:
    """Reserved fields of a structure.

    ``unused`` are spans of reserved bytes, ``bits`` the reserved bits of a byte, by its offset.
    """

    unused: tuple[tuple[int, int], ...] = ()
    bits: dict[int, int] = field(default_factory=dict)

    def faults(self, raw: bytes, *, at: int = 0) -> list[str]:
        """Return a phrase for each reserved field that is not 0 in the structure at offset ``at``."""
        used = [one for start, end in self.unused for one in range(start, end) if raw[at + one]]
        found = [f"byte {one} is {raw[at + one]:#04x}" for one in used[:8]]
        masked = {one: raw[at + one] & mask for one, mask in self.bits.items()}
        return found + [f"bits {bits:#04x} of byte {one} are set" for one, bits in masked.items() if bits]


CMIC, FRMW, LPA, ANACAP = 76, 260, 261, 343
OACS, ONCS, FUSES, FNA, VWC, SGLS = 256, 520, 522, 524, 525, 536
CONTROLLER = Fields(
    unused=((144, 240), (424, 512), (1024, 1792), (1807, 2048)),
    bits={
        CMIC: 0xE0,
        OACS + 1: 0x80,
        FRMW: 0xC0,
        LPA: 0x80,
        ANACAP: 0x20,
        ONCS + 1: 0x80,
        FUSES: 0xFE,
        FUSES + 1: 0xFF,
        FNA: 0xF0,
        VWC: 0xF8,
        SGLS + 2: 0xC0,
        SGLS + 3: 0xFF,
    },
)
"""Identify Controller (Base 5.2.13.2.1)."""

MC, DPC, DPS, NMIC, DLFEAT = 27, 28, 29, 30, 33
NAMESPACE = Fields(
    unused=((88, 92), (96, 99)), bits={MC: 0xFC, DPC: 0xE0, DPS: 0xF0, NMIC: 0xFC, DLFEAT: 0xE0}
)
"""Identify Namespace (NVM 4.1.5.1)."""

NVM_CONTROLLER = Fields(unused=((64, 4096),))
"""Identify Controller of the NVM Command Set (NVM 4.1.5.4)."""

INDEPENDENT = Fields(unused=((9, 10), (24, 4096)))
"""The I/O Command Set Independent structure of a namespace (Base 5.2.13.2.8)."""

SMART = Fields(unused=((7, 32), (256, 512)))
"""The SMART log page (Base 5.2.12.1.3)."""

ERROR = Fields(unused=((43, 63),))
"""An entry of the Error Information log page (Base 5.2.12.1.2)."""

FIRMWARE = Fields(unused=((1, 8), (64, 512)), bits={0: 0x88})
"""The Firmware Slot Information log page (Base 5.2.12.1.4)."""

EFFECTS = Fields(unused=((2048, 4096),))
"""The Commands Supported and Effects log page (Base 5.2.12.1.6)."""

ANA = Fields(unused=((10, 16),))
ANA_GROUP = Fields(unused=((17, 32),), bits={16: 0xF0})
"""The head of the ANA log page, and a group's descriptor (Base 5.2.12.1.13)."""

DISCOVERY = Fields(unused=((24, 1024),))
"""The head of the discovery log page (Base 5.2.12.3.3), after DLPF and TDLPL."""

NOTICE = Fields(unused=((10, 12), (16, 64)))
"""The Reservation Notification log page (Base 5.2.12.1.35)."""

REPORT = Fields(unused=((7, 9), (10, 64)))
REGISTRANT = Fields(unused=((3, 8), (32, 64)), bits={2: 0xFE})
"""The head of the extended Reservation Report, and a registrant (Base 7.8)."""


def _looked_at(session: ControllerSession) -> None:
    """Skip a controller of a revision whose fields are not known here."""
    if session.controller["ver"] > LATEST:
        pytest.skip(f"VER is {session.controller['ver']:#x}: a later revision may define the fields")


def _claim(what: str, faults: list[str]) -> None:
    assert not faults, f"1.4.1.6: reserved fields of {what}: {', '.join(faults)}; a reserved field is 0"


def _read(session: ControllerSession, command: Command, length: int, what: str) -> bytes:
    done = session.admin.run(command, reads=length)
    if not done.ok:
        pytest.skip(f"no {what}: {status_name(done.status)}")
    return done.data


IDENTIFY: dict[str, tuple[int, Fields, str]] = {
    "CTRL": (Cns.CONTROLLER, CONTROLLER, "Identify Controller"),
    "NS": (Cns.NAMESPACE, NAMESPACE, "Identify Namespace"),
    "NVM": (Cns.CSI_CONTROLLER, NVM_CONTROLLER, "Identify Controller of the NVM Command Set"),
    "INDEPENDENT": (Cns.CSI_INDEPENDENT, INDEPENDENT, "Identify CNS 08h of a namespace"),
}
"""By name: a data structure of Identify, its reserved fields, and what it is."""


@pytest.mark.parametrize("name", [
    pytest.param(
        name, marks=pytest.mark.case(f"NVA-ID-RSVD-{name}", kills=(f"identify-rsvd-{name.lower()}",))
    )
    for name in IDENTIFY
])  # fmt: skip
def test_reserved_fields_of_identify_are_zero(session: ControllerSession, name: str) -> None:
    _looked_at(session)
    cns, fields, what = IDENTIFY[name]
    nsids = session.namespaces()[:4] if cns in (Cns.NAMESPACE, Cns.CSI_INDEPENDENT) else [0]
    for nsid in nsids:
        raw = _read(session, admin.identify(cns, nsid=nsid), 4096, what)
        _claim(f"{what}{f' {nsid:#x}' if nsid else ''}", fields.faults(raw))


LOGS: dict[str, tuple[int, int, Fields, str]] = {
    "SMART": (LogPage.SMART, 512, SMART, "the SMART log page"),
    "FIRMWARE": (LogPage.FIRMWARE_SLOT, 512, FIRMWARE, "the Firmware Slot Information log page"),
    "EFFECTS": (LogPage.EFFECTS, 4096, EFFECTS, "the Commands Supported and Effects log page"),
}
"""By name: a log page, its bytes, its reserved fields, and what it is."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVA-LOG-RSVD-{name}", kills=(f"log-rsvd-{name.lower()}",)))
    for name in LOGS
])  # fmt: skip
def test_reserved_fields_of_a_log_page_are_zero(session: ControllerSession, name: str) -> None:
    _looked_at(session)
    page, length, fields, what = LOGS[name]
    raw = _read(session, admin.get_log_page(page, length, nsid=ALL_NAMESPACES), length, what)
    _claim(what, fields.faults(raw))


@pytest.mark.case("NVA-LOG-RSVD-ERROR", kills=("log-rsvd-error",), builds_on=("NVA-LOG-01H",))
def test_reserved_fields_of_an_entry_of_the_error_log_are_zero(session: ControllerSession) -> None:
    """The entry is that of a command that has failed just now, if the controller logs it."""
    _looked_at(session)
    session.admin.run(admin.identify(WRONG_CNS), reads=4096)
    raw = _read(session, admin.get_log_page(LogPage.ERROR, 64), 64, "Error Information log page")
    _claim("an entry of the error log", ERROR.faults(raw))


@pytest.mark.case("NVA-LOG-RSVD-ANA", kills=("log-rsvd-ana",), builds_on=("NVA-LOG-ANA",))
def test_reserved_fields_of_the_ana_log_are_zero(session: ControllerSession) -> None:
    """The groups have no namespaces here, so their descriptors are of one size (RGO)."""
    _looked_at(session)
    if not session.controller["cmic"] & 8:
        pytest.skip("CMIC bit 3: there is no asymmetric namespace access reporting")
    length = 16 + 32 * min(session.controller["nanagrpid"], 64)
    command = admin.get_log_page(LogPage.ANA, length, lsp=1)
    raw = _read(session, command, length, "ANA log page")
    _claim("the head of the ANA log page", ANA.faults(raw))
    for number in range(min(int.from_bytes(raw[8:10], "little"), (length - 16) // 32)):
        _claim(f"descriptor {number} of the ANA log page", ANA_GROUP.faults(raw, at=16 + 32 * number))


@pytest.mark.case("NVF-DISCOVERY-RSVD-HEAD", kills=("discovery-rsvd-head",), builds_on=("NVF-DISCOVERY-02",))
def test_reserved_fields_of_the_head_of_the_discovery_log_are_zero(discovery: ControllerSession) -> None:
    _looked_at(discovery)
    _claim(
        "the head of the discovery log page", DISCOVERY.faults(discovery.log_page(LogPage.DISCOVERY, 1024))
    )


@pytest.mark.case(
    "NVR-NOTICE-RSVD", kills=("notice-rsvd",), builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"),
)  # fmt: skip
def test_reserved_fields_of_a_notification_are_zero(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """First of the page without a notification, then of the one that a release causes."""
    first, second = hosts
    _looked_at(second.session)

    def page() -> bytes:
        command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64)
        return _read(second.session, command, 64, "Reservation Notification log page")

    _claim("the Reservation Notification log page", NOTICE.faults(page()))
    waiting = request_event(second.session)
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY))
    second.session.admin.wait(waiting)
    _claim("a notification of a release", NOTICE.faults(page()))


@pytest.mark.case("NVR-REPORT-RSVD", kills=("report-rsvd-head", "report-rsvd-registrant"), builds_on=HOLDING)
def test_reserved_fields_of_the_report_are_zero(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Of a report without registrants, then of one with two, of which one holds the reservation."""
    first, second = hosts
    _looked_at(first.session)

    def report() -> bytes:
        done = first.queue.run(io.report(first.nsid, 1024), reads=1024)
        allowed(done)
        return done.data

    _claim("the Reservation Report of no registrant", REPORT.faults(report()))
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    raw = report()
    _claim("the Reservation Report", REPORT.faults(raw))
    for number in range(2):
        _claim(f"registrant {number} of the report", REGISTRANT.faults(raw, at=64 * (1 + number)))
