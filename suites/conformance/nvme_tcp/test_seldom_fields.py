"""Seldom used: single bits of the mask of reservation notifications, IEKEY, offsets of each log page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Scratch, refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    PREEMPT,
    ReservingHost,
    allowed,
    hold,
    kept_masks,
    read_notice,
    set_mask,
)

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

ALL_NAMESPACES = 0xFFFF_FFFF
MASK_ALL = 0b1110
"""Reservation Notification Mask: REGPRE, RESREL and RESPRE (5.2.26.1.33)."""

# The mask of notifications (5.2.26.1.33)


def _preempts(first: ReservingHost, second: ReservingHost) -> None:
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(first.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=second.key))


def _releases(first: ReservingHost, second: ReservingHost) -> None:
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY))


def _clears(first: ReservingHost, second: ReservingHost) -> None:
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))


Act = Callable[[ReservingHost, ReservingHost], None]
NOTICES: dict[str, tuple[int, Act]] = {
    "REGPRE": (1, _preempts),
    "RESREL": (2, _releases),
    "RESPRE": (3, _clears),
}
"""Of each bit of the mask: its number, which is also the type of the notification, and what the second host
is notified of."""


def _found(hosts: tuple[ReservingHost, ReservingHost], act: Act, mask: int) -> int:
    """Return the type of the notification that the second host has of an act; its mask is ``mask``."""
    first, second = hosts
    with kept_masks(second.session, second.nsid):
        allowed(set_mask(second.session, second.nsid, 0))
        for _ in range(8):  # what earlier cases have left
            if not read_notice(second)[0]:
                break
        allowed(set_mask(second.session, second.nsid, mask))
        act(first, second)
        return read_notice(second)[0]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-NOTICE-OTHERS-{name}", kills=("notice-mask-wider",)))
    for name in NOTICES
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26.1.33", builds_on=("NVR-NOTICE-CLEAR", "NVR-NOTICE-MASK"))
def test_a_notification_is_sent_if_the_mask_has_the_other_bits(
    hosts: tuple[ReservingHost, ReservingHost], name: str
) -> None:
    kind, act = NOTICES[name]
    found = _found(hosts, act, MASK_ALL & ~(1 << kind))
    assert found == kind, (
        f"5.2.26.1.33: {name} is 0 in the mask, and the log page has type {found}h; its type is {kind}h"
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-NOTICE-ALONE-{name}", kills=("notice-mask-ignored",)))
    for name in NOTICES
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26.1.33", builds_on=("NVR-NOTICE-CLEAR", "NVR-NOTICE-MASK"))
def test_a_notification_is_masked_by_its_own_bit(
    hosts: tuple[ReservingHost, ReservingHost], name: str
) -> None:
    kind, act = NOTICES[name]
    found = _found(hosts, act, 1 << kind)
    assert found == 0, f"5.2.26.1.33: {name} is 1 in the mask, and the log page has type {found}h"


# Reservation Capabilities

IEKEY_SINCE, IEKEY = 0x0001_0300, 0x80


@pytest.mark.case("NVR-IEKEY-STATED", section="NVM 4.1.5.1", kills=("iekey-not-stated",))
def test_ignore_existing_key_is_as_since_version_1_3(session: ControllerSession, scratch: Scratch) -> None:
    """RESCAP bit 7 is set by controllers of that version and later."""
    found = session.namespace(scratch.nsid)["rescap"]
    if not found:
        pytest.skip("RESCAP is 0: no reservations")
    if session.controller["ver"] < IEKEY_SINCE:
        pytest.skip(f"VER is {session.controller['ver']:#x}: before 1.3")
    assert found & IEKEY, (
        f"4.1.5.1: RESCAP is {found:#04x}, and VER {session.controller['ver']:#x}: bit 7 is 1"
    )


# Log pages

PAGES = {
    LogPage.SUPPORTED: 1024,
    LogPage.ERROR: 64,
    LogPage.SMART: 512,
    LogPage.CHANGED_NAMESPACES: 4096,
    LogPage.EFFECTS: 4096,
    LogPage.ANA: 16,
    LogPage.RESERVATION_NOTIFICATION: 64,
}
"""Log pages other than that of NVA-LOG-BEYOND, and how many bytes each has at least: some controllers return
none of them in part."""


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(
        f"NVA-LOG-BEYOND-{page.name.replace('_', '-')}", kills=("log-offset-unchecked",)))
    for page in PAGES
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12", builds_on=("NVA-LOG-BEYOND",))
def test_an_offset_beyond_any_log_page_is_refused(session: ControllerSession, page: LogPage) -> None:
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    nsid = 0 if page is LogPage.RESERVATION_NOTIFICATION else ALL_NAMESPACES
    size = PAGES[page]
    whole = session.admin.run(admin.get_log_page(page, size, nsid=nsid, rae=1), reads=size)
    if not whole.ok:
        pytest.skip(f"log page {page:02x}h is not supported: {status_name(whole.status)}")
    command = admin.get_log_page(page, size, nsid=nsid, offset=1 << 32, rae=1)
    done = session.admin.run(command, reads=size)
    refused(done, StatusCode.INVALID_FIELD)


FIXED = {
    LogPage.SUPPORTED: 1024,
    LogPage.FIRMWARE_SLOT: 512,
    LogPage.CHANGED_NAMESPACES: 4096,
    LogPage.EFFECTS: 4096,
    LogPage.FEATURES: 1024,
}
"""Log pages of one size, in bytes (5.2.12.1)."""

PAST = (4, 512, 4096)
"""Bytes from the end of a log page to the offset of a read (chosen)."""


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(
        f"NVA-LOG-PAST-{page.name.replace('_', '-')}", kills=("log-offset-unchecked",)))
    for page in FIXED
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12", builds_on=("NVA-LOG-BEYOND",))
def test_an_offset_a_little_past_a_log_page_is_refused(session: ControllerSession, page: LogPage) -> None:
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    size = FIXED[page]
    whole = session.admin.run(admin.get_log_page(page, size, nsid=ALL_NAMESPACES, rae=1), reads=size)
    if not whole.ok:
        pytest.skip(f"log page {page:02x}h is not supported: {status_name(whole.status)}")
    for past in PAST:
        command = admin.get_log_page(page, 64, nsid=ALL_NAMESPACES, offset=size + past, rae=1)
        refused(session.admin.run(command, reads=64), StatusCode.INVALID_FIELD)


@pytest.mark.case(
    "NVT-SGL-SHORT-FEATURE", section="Base 4.3.2", kills=("feature-short",), builds_on=("NVT-SGL-04",)
)
def test_a_feature_whose_sgl_is_too_short_fails(session: ControllerSession) -> None:
    """The Host Identifier has 16 bytes, and the SGL eight."""
    allowed(session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=16))
    done = session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=8)
    assert not done.ok, "4.3.2: Get Features of 16 bytes succeeds; its SGL has 8: Data SGL Length Invalid"
