"""What an NSID means to features and log pages, and options of Get Log Page (Base 4.4, 5.2.12, 5.2.26)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme.structures import NSIDS_OF_LIST, ana_groups
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost, kept_masks, mask_of, set_mask

from .test_feature_values import set_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 4.4")]

ALL_NAMESPACES = 0xFFFFFFFF

SINCE = 0x00020000
"""The first version (VER) of the text that these cases were read from."""

SMART_PER_NAMESPACE, EXTENDED_DATA, LISTED_PAGES = 1, 1 << 2, 1024
"""LPA: SMARTS, SPEDS (5.2.13.2.1); bytes of the list of supported log pages (5.2.12.1.1)."""

SUPPORTED, INDEX_OFFSET = 1, 1 << 1
"""LSUPP and IOS of a log page in the list of those that are supported (5.2.12.1.1)."""

OFFSET_TYPE = 1 << 23
"""OT of Get Log Page, in command dword 14 (5.2.12)."""

GROUPS_ONLY = 1
"""RGO, in the Log Specific Parameter of the ANA log page (5.2.12.1.13)."""

MASK = Feature.RESERVATION_NOTIFICATION_MASK
MASKED = 0b1110
"""Every type of notification (5.2.26.1.33)."""

OF_CONTROLLER = (Feature.ARBITRATION, Feature.TEMPERATURE_THRESHOLD, Feature.ASYNC_EVENT, Feature.KATO)
"""Mandatory features whose scope is a controller, and which can be set (3.1.3.6, 5.2.26)."""


def _since(session: ControllerSession) -> None:
    if session.controller["ver"] < SINCE:
        pytest.skip("VER: the rule is that of 2.0 and later")


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-SCOPE-{fid:02X}H", kills=("feature-of-namespace",)))
    for fid in OF_CONTROLLER
])  # fmt: skip
def test_a_feature_of_a_controller_is_not_set_for_a_namespace(session: ControllerSession, fid: int) -> None:
    """The command is aborted, and the feature keeps its value."""
    _since(session)
    feature = set_feature(session, fid)
    try:
        for nsid in session.namespaces()[:2]:
            done = session.admin.run(admin.set_features(fid, feature.first, nsid=nsid))
            refused(done, StatusCode.FEATURE_NOT_NAMESPACE_SPECIFIC)
            found = feature.read()
            assert found == feature.value, (
                f"4.4: feature {fid:02x}h was {feature.value:#x}; it is {found:#x} after Set Features with "
                f"NSID {nsid:#x} was aborted"
            )
    finally:
        feature.set(feature.first)


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-ALL-{fid:02X}H", kills=("feature-of-all-refused",)))
    for fid in OF_CONTROLLER
])  # fmt: skip
def test_a_feature_of_a_controller_is_set_with_nsid_ffffffff(session: ControllerSession, fid: int) -> None:
    """With FFFFFFFFh as with 0h, a feature of controller scope is set, and read, for the controller."""
    feature = set_feature(session, fid)
    try:
        command = admin.set_features(fid, feature.value, nsid=ALL_NAMESPACES)
        done = session.admin.run(command)
        assert done.ok, f"4.4: Set Features {fid:02x}h with NSID FFFFFFFFh is not {status_name(done.status)}"
        found = session.admin.run(admin.get_features(fid, nsid=ALL_NAMESPACES))
        assert found.ok, f"4.4: Get Features {fid:02x}h with NSID FFFFFFFFh: {status_name(found.status)}"
        assert found.cqe.dw0 == feature.read(), (
            f"4.4: feature {fid:02x}h is {found.cqe.dw0:#x} with NSID FFFFFFFFh, and {feature.read():#x} "
            "with 0h"
        )
    finally:
        feature.set(feature.first)


@pytest.mark.case("NVA-FEAT-KATO-KEPT", section="Base 3.9.1", kills=("kato-0-sets-default",))
def test_a_timeout_that_is_refused_changes_nothing(session: ControllerSession) -> None:
    """A Keep Alive Timeout of 0 is aborted, "and the Keep Alive Timeout value … shall not be changed"."""
    feature = set_feature(session, Feature.KATO)
    done = session.admin.run(admin.set_features(Feature.KATO, 0))
    if done.ok:
        pytest.skip("a Keep Alive Timeout of 0 is no error (NVA-FEAT-KATO-02)")
    found = feature.read()
    assert found == feature.value, (
        f"3.9.1: the Keep Alive Timeout was {feature.value} ms; it is {found} ms after one of 0 was refused"
    )


# Reservation Notification Mask (5.2.26.1.33)


@pytest.mark.case("NVR-MASK-GET-ALL", section="Base 5.2.26.1.33", kills=("mask-read-of-all",))
def test_the_mask_of_all_namespaces_is_not_read(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    session = hosts[0].session
    refused(session.admin.run(admin.get_features(MASK, nsid=ALL_NAMESPACES)), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVR-MASK-SET-ALL", section="Base 5.2.26.1.33", kills=("mask-set-of-first",))
def test_the_mask_of_all_namespaces_is_set(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Set Features with FFFFFFFFh modifies the mask of each attached namespace that can be reserved."""
    session = hosts[0].session
    nsids = [nsid for nsid in session.namespaces() if session.namespace(nsid)["rescap"]]
    with kept_masks(session, *nsids):
        for mask in (MASKED, 0):
            done = set_mask(session, ALL_NAMESPACES, mask)
            assert done.ok, f"5.2.26.1.33: the mask of all is not {status_name(done.status)}"
            found = {nsid: mask_of(session, nsid) for nsid in nsids}
            assert found == dict.fromkeys(nsids, mask), (
                f"5.2.26.1.33: the mask of every namespace was set to {mask:#x}; they are {found}, by NSID"
            )


# Log pages


@pytest.mark.case(
    "NVA-LOG-SMART-NSID", section="Base 5.2.12.1.3", level="SHOULD", kills=("smart-of-namespace",)
)
def test_smart_of_a_namespace_is_refused_if_it_is_not_supported(session: ControllerSession) -> None:
    """A "shall" of 2.3; no case has read whether it was one before."""
    if session.controller["lpa"] & SMART_PER_NAMESPACE:
        pytest.skip("LPA bit 0: SMART of a namespace is supported")
    command = admin.get_log_page(LogPage.SMART, 512, nsid=session.namespaces()[0])
    refused(session.admin.run(command, reads=512), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVA-LOG-INDEX", section="Base 5.2.12", kills=("index-offset-taken",))
def test_an_index_offset_is_refused_if_it_is_not_supported(session: ControllerSession) -> None:
    """OT is set for each log page whose IOS is 0, with an offset of 0."""
    _since(session)
    if not session.controller["lpa"] & EXTENDED_DATA:
        pytest.skip("LPA bit 2: log page offsets are not supported")
    listed = session.admin.run(admin.get_log_page(LogPage.SUPPORTED, LISTED_PAGES), reads=LISTED_PAGES)
    if not listed.ok:
        pytest.skip(f"the list of log pages: {status_name(listed.status)}")
    for page in (LogPage.SUPPORTED, LogPage.ERROR, LogPage.SMART, LogPage.FIRMWARE_SLOT):
        if listed.data[4 * page] & (SUPPORTED | INDEX_OFFSET) != SUPPORTED:
            continue
        command = replace(admin.get_log_page(page, 64, nsid=ALL_NAMESPACES), cdw14=OFFSET_TYPE)
        done = session.admin.run(command, reads=64)
        assert done.status == StatusCode.INVALID_FIELD, (
            f"5.2.12: IOS of page {page:02x}h is 0, and OT ends with {status_name(done.status)}; "
            "required: INVALID_FIELD (0h/02h)"
        )


@pytest.mark.case("NVA-LOG-ANA-GROUPS", section="Base 5.2.12.1.13", kills=("ana-groups-with-nsids",))
def test_the_groups_alone_have_no_namespaces(session: ControllerSession) -> None:
    """With RGO, the number of NSIDs of each ANA group is 0; otherwise the groups are the same."""
    if not session.controller["cmic"] & 8:
        pytest.skip("CMIC bit 3: no asymmetric namespace access reporting")
    length = 16 + session.controller["nanagrpid"] * 32
    numbers = 4 * max(len(session.namespaces()), NSIDS_OF_LIST)
    command = admin.get_log_page(LogPage.ANA, max(length, 4096), lsp=GROUPS_ONLY)
    done = session.admin.run(command, reads=max(length, 4096))
    assert done.ok, f"5.2.12.1.13: RGO is not {status_name(done.status)}"
    _, groups = ana_groups(done.data)
    _, whole = ana_groups(session.log_page(LogPage.ANA, length + numbers))
    found = {group.number: len(group.namespaces) for group in groups}
    assert found == dict.fromkeys((group.number for group in whole), 0), (
        f"5.2.12.1.13: with RGO each ANA group has no namespaces; they have {found}, by group"
    )
