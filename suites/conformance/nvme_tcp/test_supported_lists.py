"""Lists of what a controller supports, and parts of notifications (Base 5.2.12, 5.2.13)."""

from __future__ import annotations

import struct

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme.structures import Cap, active_namespaces, whole_list
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession
from storagetest.wire.nvme_tcp.harness import refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13")]

ALL_NAMESPACES = 0xFFFF_FFFF
THIS_CONTROLLER = 0xFFFF
"""CNTID of the controller that processes Identify of CNS 1Ch (5.2.13.2.21)."""

SETS = 1 << 6
"""CAP.CSS: one or more I/O Command Sets, and the Identify structures of them (3.1.4.1)."""

OFFSETS_SUPPORTED = 1 << 2
"""LPA: extended data of Get Log Page (5.2.13.2.1)."""

# Identify of I/O Command Sets (5.2.13.2.7, 5.2.13.2.21)


def _set_data(session: ControllerSession, done: CommandResult, what: str) -> bytes:
    """Return the data; skip if Identify refuses a structure that CAP.CSS does not require."""
    required = Cap(session.get_property(Property.CAP)).css & SETS
    if not done.ok and not required:
        pytest.skip(f"CAP.CSS bit 6 is 0, and {what} ends with {status_name(done.status)}")
    assert done.ok, f"5.2.13: CAP.CSS bit 6 is 1, and {what} ends with {status_name(done.status)}"
    return done.data


def _listed(session: ControllerSession, after: int) -> list[int]:
    done = session.admin.run(admin.identify(Cns.CSI_ACTIVE_NAMESPACES, nsid=after), reads=4096)
    return active_namespaces(_set_data(session, done, "CNS 07h"))


@pytest.mark.case("NVA-ID-SET-LIST", section="Base 5.2.13.2.7", kills=("set-list-empty", "set-list-from"))
def test_the_active_list_of_the_nvm_command_set_is_in_the_whole_one(session: ControllerSession) -> None:
    """It has the namespaces of that command set, above NSID. These are all, if there is no other set."""
    every = session.namespaces()
    found = whole_list(lambda above: _listed(session, above))
    assert found == sorted(set(found)), f"5.2.13.2.7: the list is {found[:8]}…: in increasing order"
    assert set(found) <= set(every), (
        f"5.2.13.2.7: namespaces {sorted(set(found) - set(every))[:8]} of the NVM Command Set are not active"
    )
    if not Cap(session.get_property(Property.CAP)).css & SETS:
        assert found == every, f"5.2.13.2.7: the active list is {every[:8]}, that of the only set {found[:8]}"
    for nsid in found[:3]:
        after = _listed(session, nsid)
        assert after == [one for one in found if one > nsid][: len(after)], (
            f"5.2.13.2.7: the list above NSID {nsid} is {after[:8]}, and the whole one {found[:8]}"
        )


@pytest.mark.case("NVA-ID-SET-LIST-FFFFFFFF", section="Base 5.2.13.2.7", kills=("nsid-not-checked",))
def test_the_active_list_of_a_command_set_from_ffffffff_is_refused(session: ControllerSession) -> None:
    _listed(session, 0)
    for nsid in (0xFFFF_FFFE, ALL_NAMESPACES):
        done = session.admin.run(admin.identify(Cns.CSI_ACTIVE_NAMESPACES, nsid=nsid), reads=4096)
        refused(done, StatusCode.INVALID_NAMESPACE)


@pytest.mark.case("NVA-ID-SET-VECTORS", section="Base 5.2.13.2.21", kills=("set-vectors-empty",))
def test_a_combination_of_command_sets_has_the_nvm_command_set(session: ControllerSession) -> None:
    """The vectors of combinations that may be used together; bit 0 is the NVM Command Set."""
    command = admin.identify(Cns.CSI_VECTORS, cntid=THIS_CONTROLLER)
    data = _set_data(session, session.admin.run(command, reads=4096), "CNS 1Ch")
    vectors = [vector for (vector,) in struct.iter_unpack("<Q", data)]
    used = [vector for vector in vectors if vector]
    assert vectors[0], "5.2.13.2.21: the first I/O Command Set Combination is 0: at least one is there"
    assert any(vector & 1 for vector in used), (
        f"5.2.13.2.21: no combination has the NVM Command Set: {[f'{vector:#x}' for vector in used]}"
    )


@pytest.mark.case("NVA-ID-SET-OWN", section="Base 5.2.13.2.21", kills=("set-vectors-of-number",))
def test_the_combinations_of_this_controller_are_those_of_its_number(session: ControllerSession) -> None:
    """CNTID FFFFh is the controller that processes the command."""
    own = session.controller["cntlid"]
    numbers = (own, THIS_CONTROLLER)
    answers = [session.admin.run(admin.identify(Cns.CSI_VECTORS, cntid=one), reads=4096) for one in numbers]
    if not any(one.ok for one in answers):
        _set_data(session, answers[0], "CNS 1Ch")
    found = [status_name(one.status) for one in answers]
    assert all(one.ok for one in answers), (
        f"5.2.13.2.21: CNS 1Ch for CNTID {own:#x}, which is this controller's, and for FFFFh, which is this "
        f"controller, ends with {found}"
    )
    assert answers[0].data == answers[1].data, f"5.2.13.2.21: the data for CNTID {own:#x} and FFFFh differ"


# Log pages that are listed (5.2.12.1.1, 5.2.12.1.18)

CLEARED_BY_READING = (LogPage.CHANGED_NAMESPACES, LogPage.RESERVATION_NOTIFICATION)
"""Log pages that are not read only to see whether they are there."""

VENDOR_SPECIFIC = 0xC0
NEEDS_FIELDS = (0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0D, 0x0F, 0x11, 0x15, 0x16, 0x17, 0x18, 0x1A, 0x20, 0x21)
"""Log pages that need more than a length: telemetry, endurance groups, NVM sets, persistent events, …"""


def _supported(session: ControllerSession) -> list[int]:
    """Return the log pages of which LSUPP is 1; skip if there is no list."""
    done = session.admin.run(admin.get_log_page(LogPage.SUPPORTED, 1024), reads=1024)
    if not done.ok:
        pytest.skip(f"the list of log pages ends with {status_name(done.status)}")
    entries = [entry for (entry,) in struct.iter_unpack("<I", done.data)]
    return [page for page, entry in enumerate(entries) if entry & 1]


@pytest.mark.case("NVA-LOG-LISTED", section="Base 5.2.12.1.1", kills=("log-listed-lost",))
def test_each_log_page_that_is_listed_is_read(session: ControllerSession) -> None:
    for page in _supported(session):
        if page >= VENDOR_SPECIFIC or page in (*CLEARED_BY_READING, *NEEDS_FIELDS):
            continue
        command = admin.get_log_page(page, 512, nsid=ALL_NAMESPACES, rae=1)
        done = session.admin.run(command, reads=512)
        assert done.status not in (StatusCode.INVALID_LOG_PAGE, StatusCode.INVALID_OPCODE), (
            f"5.2.12.1.1: LSUPP of log page {page:02x}h is 1, and reading it ends with "
            f"{status_name(done.status)}"
        )


FEATURES_LENGTH = 1024
"""Bytes of the Feature Identifiers Supported and Effects log page: an entry of 4 for each of 256 features."""

FSUPP, RESERVED = 1, 0xFFE0
"""Bits of an entry: FSUPP, and 15:5, which follow UDCC, NCC, NIC and CCC (5.2.12.1.18)."""

NEEDS_NAMESPACE = (
    Feature.ERROR_RECOVERY,
    Feature.RESERVATION_NOTIFICATION_MASK,
    Feature.RESERVATION_PERSISTENCE,
)


def _effects(session: ControllerSession) -> bytes:
    command = admin.get_log_page(LogPage.FEATURES, FEATURES_LENGTH)
    done = session.admin.run(command, reads=FEATURES_LENGTH)
    if not done.ok:
        pytest.skip(f"log page 12h ends with {status_name(done.status)}")
    return done.data


PROBED = (
    Feature.ARBITRATION,
    Feature.POWER_MANAGEMENT,
    Feature.TEMPERATURE_THRESHOLD,
    Feature.ERROR_RECOVERY,
    Feature.VOLATILE_WRITE_CACHE,
    Feature.NUMBER_OF_QUEUES,
    Feature.WRITE_ATOMICITY,
    Feature.ASYNC_EVENT,
    Feature.KATO,
    Feature.HOST_BEHAVIOR,
    Feature.HOST_IDENTIFIER,
    Feature.RESERVATION_NOTIFICATION_MASK,
    Feature.RESERVATION_PERSISTENCE,
    0x60,
    0x00,
)
"""Features that a case reads, and two that are reserved."""

DATA = {Feature.HOST_BEHAVIOR: 512, Feature.HOST_IDENTIFIER: 16}
"""Bytes of the data of features."""


@pytest.mark.case(
    "NVA-LOG-FEATURES", section="Base 5.2.12.1.18", kills=("feature-list-lacks-one", "feature-list-all")
)
def test_the_list_of_features_agrees_with_what_is_read(session: ControllerSession) -> None:
    """FSUPP is 1 of each feature that Get Features returns, and of no other."""
    entries = [entry for (entry,) in struct.iter_unpack("<I", _effects(session))]
    nsid = session.namespaces()[0]
    for fid in PROBED:
        command = admin.get_features(
            fid, nsid=nsid if fid in NEEDS_NAMESPACE else 0, cdw11=int(fid == Feature.HOST_IDENTIFIER)
        )
        done = session.admin.run(command, reads=DATA.get(Feature(fid), 0) if fid in DATA else 0)
        if fid in NEEDS_NAMESPACE and not done.ok:
            continue  # the namespace may not have it
        assert done.ok == bool(entries[fid] & FSUPP), (
            f"5.2.12.1.18: FSUPP of feature {fid:02x}h is {entries[fid] & FSUPP}, and Get Features ends with "
            f"{status_name(done.status)}"
        )


@pytest.mark.case("NVA-LOG-FEATURES-FIELDS", section="Base 5.2.12.1.18", kills=("feature-list-reserved",))
def test_entries_of_the_list_of_features_have_no_reserved_bits(session: ControllerSession) -> None:
    for fid, (entry,) in enumerate(struct.iter_unpack("<I", _effects(session))):
        assert not entry & RESERVED, (
            f"1.4.1.6: the entry {entry:#010x} of feature {fid:02x}h has reserved bits set"
        )
        assert entry & FSUPP or not entry, (
            f"5.2.12.1.18: FSUPP of feature {fid:02x}h is 0, but its entry is {entry:#010x}"
        )


@pytest.mark.case(
    "NVA-LOG-PARTS-12H",
    section="Base 5.2.12",
    kills=("feature-list-part", "log-offset-unchecked"),
    builds_on=("NVA-LOG-OFFSET",),
)
def test_the_list_of_features_is_read_in_parts(session: ControllerSession) -> None:
    """An offset behind its end is refused."""
    if not session.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    whole = _effects(session)
    for at, size in ((4, 4), (8, 512), (60, 8), (516, 508), (FEATURES_LENGTH - 4, 4)):
        done = session.admin.run(admin.get_log_page(LogPage.FEATURES, size, offset=at), reads=size)
        assert done.ok, f"5.2.12: {size} bytes from LPO {at} of page 12h end with {status_name(done.status)}"
        assert done.data == whole[at : at + size], (
            f"5.2.12: {size} bytes from LPO {at} of page 12h are not those of the whole page"
        )
    beyond = admin.get_log_page(LogPage.FEATURES, 4, offset=FEATURES_LENGTH + 4)
    refused(session.admin.run(beyond, reads=4), StatusCode.INVALID_FIELD)


# Parts of a reservation notification (5.2.12.1.35)

Hosts = tuple[ReservingHost, ReservingHost]


def _notified(hosts: Hosts) -> ReservingHost:
    """Let the first host clear, and return the second one, which has a notification of that."""
    first, second = hosts
    hold(first, 1)
    allowed(second.register())
    allowed(first.release(1, CLEAR))
    return second


@pytest.mark.parametrize(("at", "size"), [
    pytest.param(0, 16, marks=pytest.mark.case("NVR-NOTICE-PART", kills=("notice-part-empty",))),
    pytest.param(8, 8, marks=pytest.mark.case("NVR-NOTICE-OFFSET", kills=("notice-part-empty",))),
    pytest.param(12, 52, marks=pytest.mark.case("NVR-NOTICE-OFFSET-NSID", kills=("notice-part-empty",))),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12, 5.2.12.1.35", builds_on=(*HOLDING, "NVR-NOTICE-CLEAR"))
def test_a_part_of_a_notification_is_read(hosts: Hosts, at: int, size: int) -> None:
    """The type is at byte 8, the namespace at 12."""
    if at and not hosts[1].session.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    second = _notified(hosts)
    command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, size, offset=at)
    done = second.session.admin.run(command, reads=size)
    assert done.ok, f"5.2.12: {size} bytes from LPO {at} of page 80h end with {status_name(done.status)}"
    if at <= 8:
        assert done.data[8 - at] == 3, (
            f"5.2.12.1.35: {size} bytes from LPO {at} are {done.data.hex()}; the type of the notification, "
            "at byte 8, is 3: Reservation Preempted"
        )
    nsid = int.from_bytes(done.data[12 - at : 16 - at], "little")
    assert nsid == second.nsid, (
        f"5.2.12.1.35: {size} bytes from LPO {at} are {done.data.hex()}; the NSID, at byte 12, is "
        f"{second.nsid}"
    )


@pytest.mark.case(
    "NVR-NOTICE-BEYOND",
    section="Base 5.2.12",
    kills=("notice-beyond-read",),
    builds_on=(*HOLDING, "NVR-NOTICE-CLEAR"),
)
def test_an_offset_behind_a_notification_is_refused(hosts: Hosts) -> None:
    """The log page is one notification of 64 bytes, and still there behind commands that are refused."""
    if not hosts[1].session.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    second = _notified(hosts)
    for offset in (68, 4096, 1 << 32):
        command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64, offset=offset)
        refused(second.session.admin.run(command, reads=64), StatusCode.INVALID_FIELD)
    done = second.session.admin.run(admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64)
    assert done.ok, f"5.2.12.1.35: the notification ends with {status_name(done.status)}"
    assert done.data[8] == 3, (
        f"5.2.12.1.35: behind reads that were refused, log page 80h is {done.data[:16].hex()}; the type, at "
        "byte 8, is 3: Reservation Preempted"
    )
