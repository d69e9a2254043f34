"""Features and log pages (Base 5.2.11, 5.2.12, 5.2.26): values, capabilities, parts and offsets."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import (
    NAMESPACE_NOTICES,
    Harness,
    refused,
)
from storagetest.wire.nvme_tcp.reserved import FEATURE_BITS

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.11")]

CURRENT, DEFAULT, SAVED, CAPABILITIES = range(4)
"""Select of Get Features (5.2.11)."""

SAVEABLE, NAMESPACE_SPECIFIC, CHANGEABLE = 1 << 0, 1 << 1, 1 << 2
"""Bits of the capabilities (5.2.11)."""

SAVE_AND_SELECT = 1 << 4
"""ONCS: Select of Get Features, and Save of Set Features (5.2.13.2.1)."""

ALL_NAMESPACES = 0xFFFFFFFF

MANDATORY = {
    Feature.ARBITRATION: "Base 3.1.3.6",
    Feature.POWER_MANAGEMENT: "Base 3.1.3.6",
    Feature.TEMPERATURE_THRESHOLD: "Base 3.1.3.6",
    Feature.ERROR_RECOVERY: "NVM 4.1.3",
    Feature.NUMBER_OF_QUEUES: "Base 3.1.3.6",
    Feature.WRITE_ATOMICITY: "NVM 4.1.3",
    Feature.ASYNC_EVENT: "Base 3.1.3.6",
    Feature.KATO: "Base 3.1.3.6",
}
"""Features that an I/O controller over this transport supports, and where that is required."""


def get(session: ControllerSession, fid: int, select: int) -> int:
    """Return dword 0 of Get Features."""
    done = session.admin.run(admin.get_features(fid, select=select))
    assert done.ok, f"5.2.11: Select {select} of feature {fid:02x}h is not {status_name(done.status)}"
    return done.cqe.dw0


@pytest.fixture
def selecting(session: ControllerSession) -> ControllerSession:
    """Return a session with a controller that supports Select."""
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Select of Get Features is not supported")
    return session


@pytest.mark.parametrize(
    "fid",
    [
        pytest.param(
            fid, marks=pytest.mark.case(f"NVA-FEAT-{fid:02X}H", section=section, kills=("features-missing",))
        )
        for fid, section in MANDATORY.items()
    ],
)
def test_a_mandatory_feature_is_read(session: ControllerSession, fid: int) -> None:
    get(session, fid, CURRENT)


@pytest.mark.case("NVA-FEAT-RESULT", section="Base 1.4.1.6", kills=("arbitration-reserved-bit",))
def test_values_of_features_have_no_reserved_bits(session: ControllerSession) -> None:
    for fid in FEATURE_BITS:
        session.admin.run(admin.get_features(fid))
    assert not session.admin.faults, "; ".join(session.admin.faults)


@pytest.mark.case("NVA-FEAT-DEFAULT", kills=("features-default",))
def test_the_default_value_is_not_changed_by_set_features(selecting: ControllerSession) -> None:
    before = get(selecting, Feature.KATO, DEFAULT)
    assert selecting.admin.run(admin.set_features(Feature.KATO, 77_000)).ok
    after = get(selecting, Feature.KATO, DEFAULT)
    assert after == before, (
        f"5.2.11: the default of KATO was {before}; after Set Features 77000 it is {after}"
    )


@pytest.mark.case("NVA-FEAT-SAVED", kills=("features-saved",))
def test_the_saved_value_of_a_feature_that_is_not_saveable_is_the_default(
    selecting: ControllerSession,
) -> None:
    for fid in MANDATORY:
        if get(selecting, fid, CAPABILITIES) & SAVEABLE:
            continue
        saved, default = get(selecting, fid, SAVED), get(selecting, fid, DEFAULT)
        assert saved == default, (
            f"5.2.11: feature {fid:02x}h cannot be saved; its saved value is {saved}, its default {default}"
        )


@pytest.mark.case("NVA-FEAT-CAPABILITIES", kills=("features-capabilities",))
def test_a_feature_that_is_changed_is_reported_as_changeable(selecting: ControllerSession) -> None:
    assert selecting.admin.run(admin.set_features(Feature.KATO, 66_000)).ok
    reported = get(selecting, Feature.KATO, CAPABILITIES)
    assert reported & CHANGEABLE, f"5.2.11: KATO was changed, but its capabilities are {reported:#x}"


@pytest.mark.case("NVA-FEAT-SAVE", section="Base 5.2.26", kills=("features-saved-anyway",))
def test_a_feature_that_is_not_saveable_is_not_saved(selecting: ControllerSession) -> None:
    if get(selecting, Feature.KATO, CAPABILITIES) & SAVEABLE:
        pytest.skip("KATO is saveable, so nothing is refused")
    done = selecting.admin.run(admin.set_features(Feature.KATO, 66_000, save=True))
    refused(done, StatusCode.FEATURE_NOT_SAVEABLE)


@pytest.mark.case("NVA-FEAT-CAPABLE", kills=("features-capable-of-all",))
def test_what_the_capabilities_state_holds(selecting: ControllerSession) -> None:
    """A feature of the controller is not specific to a namespace; one that is saveable is saved.

    What is saved is the value that is saved already.
    """
    for fid in (Feature.ARBITRATION, Feature.ASYNC_EVENT, Feature.KATO):
        reported = get(selecting, fid, CAPABILITIES)
        assert not reported & NAMESPACE_SPECIFIC, (
            f"5.2.11: feature {fid:02x}h is of the controller, but its capabilities are {reported:#x}"
        )
        current = get(selecting, fid, CURRENT)
        if reported & SAVEABLE and get(selecting, fid, SAVED) == current:
            done = selecting.admin.run(admin.set_features(fid, current, save=True))
            assert done.status != StatusCode.FEATURE_NOT_SAVEABLE, (
                f"5.2.26: the capabilities of feature {fid:02x}h are {reported:#x}, but it is not saveable"
            )


@pytest.mark.case("NVA-FEAT-KEPT", section="Base 5.2.26", kills=("feature-forgotten",))
def test_a_feature_is_one_controllers_own(session: ControllerSession, bench: Harness) -> None:
    other = bench.session()
    before = get(other, Feature.KATO, CURRENT)
    assert session.admin.run(admin.set_features(Feature.KATO, 61_000)).ok
    assert get(other, Feature.KATO, CURRENT) == before, "5.2.26: KATO is of one controller"
    assert get(session, Feature.KATO, CURRENT) >= 61_000, "5.2.26.1.8: KATO as set, or rounded up"


@pytest.mark.case(
    "NVA-FEAT-AGAIN",
    section="Base 5.2.26",
    kills=("second-set-features-ignored",),
    builds_on=("NVA-FEAT-AEN-01",),
)
def test_a_feature_has_the_value_that_was_set_last(session: ControllerSession) -> None:
    """Each Set Features of a feature sets it, whatever was set before."""
    unit = max(session.controller["kas"] * 100, 1)
    events = session.controller["oaes"] & NAMESPACE_NOTICES
    values = [(Feature.KATO, kato) for kato in (60_000, 90_000, 61_000, 90_000)]
    values += [(Feature.ASYNC_EVENT, value) for value in (events, 0, events, 0)]
    for number, (fid, value) in enumerate(values):
        done = session.admin.run(admin.set_features(fid, value))
        assert done.ok, f"5.2.26: {value} for feature {fid:02x}h is not {status_name(done.status)}"
        wanted = -(-value // unit) * unit if fid == Feature.KATO else value  # rounded up (5.2.26.1.8)
        found = get(session, fid, CURRENT)
        assert found == wanted, (
            f"5.2.26: feature {fid:02x}h is {found}; Set Features {number % 4 + 1} of it has set {wanted}"
        )


@pytest.mark.case(
    "NVA-FEAT-ASSOCIATION",
    section="Base 3.7.2, 5.2.26",
    kills=("feature-outlives-association",),
    builds_on=("NVA-FEAT-AEN-01",),
)
def test_a_new_association_begins_with_the_value_that_the_one_before_it_began_with(
    bench: Harness, session: ControllerSession
) -> None:
    """A value that was not saved ends with its controller: a new association has the default."""
    events = session.controller["oaes"] & NAMESPACE_NOTICES
    before = get(session, Feature.ASYNC_EVENT, CURRENT)
    if not events:
        pytest.skip("OAES: the events that can be configured are none of those tested here")
    done = session.admin.run(admin.set_features(Feature.ASYNC_EVENT, before ^ events))
    assert done.ok, f"5.2.26: the configured events are not {status_name(done.status)}"
    for when in ("while the first one lasts", "after the first one"):
        found = get(bench.session(), Feature.ASYNC_EVENT, CURRENT)
        assert found == before, (
            f"3.7.2: a new association {when} has Asynchronous Event Configuration {found:#x}; the first one "
            f"began with {before:#x} and has set {before ^ events:#x} without Save"
        )
        session.close()


# Log pages (5.2.12)


def log(session: ControllerSession, page: int, size: int, *, offset: int = 0) -> bytes:
    """Return a part of a log page."""
    command = admin.get_log_page(page, size, nsid=ALL_NAMESPACES, offset=offset, rae=1)
    done = session.admin.run(command, reads=size)
    assert done.ok, (
        f"5.2.12: {size} bytes from {offset} of page {page:02x}h is not {status_name(done.status)}"
    )
    return done.data


@pytest.fixture
def effects(session: ControllerSession) -> bytes:
    """Return the Commands Supported and Effects log page, which does not change."""
    if not session.controller["lpa"] & 2:
        pytest.skip("LPA bit 1: no Commands Supported and Effects log page")
    return log(session, LogPage.EFFECTS, 4096)


@pytest.mark.case("NVA-LOG-PART-EFFECTS", section="Base 5.2.12", kills=("log-length-other",))
def test_parts_of_the_effects_log_are_its_beginning(session: ControllerSession, effects: bytes) -> None:
    for size in (4, 64, 256, 2048):
        part = log(session, LogPage.EFFECTS, size)
        assert part == effects[:size], f"5.2.12: {size} bytes are not the beginning of the page"


@pytest.mark.case("NVA-LOG-OFFSET-EFFECTS", section="Base 5.2.12", kills=("log-offset-other",))
def test_the_effects_log_is_read_from_an_offset(session: ControllerSession, effects: bytes) -> None:
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    for offset, size in ((4, 64), (1024, 256), (2048, 2048), (4092, 4)):
        part = log(session, LogPage.EFFECTS, size, offset=offset)
        assert part == effects[offset : offset + size], (
            f"5.2.12: {size} bytes from LPO {offset} are not the page's"
        )


@pytest.mark.case("NVA-LOG-PART-SMART", section="Base 5.2.12", kills=("log-length-other",))
def test_a_part_of_the_smart_log_is_its_beginning(session: ControllerSession) -> None:
    """The spare may fall between two reads: the whole is read before and after the part."""
    before = log(session, LogPage.SMART, 512)
    part = log(session, LogPage.SMART, 8)
    after = log(session, LogPage.SMART, 512)
    assert part[3:5] in (before[3:5], after[3:5]), (
        "5.2.12: Available Spare and its threshold differ in a short read"
    )


@pytest.mark.case("NVA-LOG-SMART", section="Base 5.2.12.1.3", kills=("log-smart-range",))
def test_the_smart_log_has_values_of_its_ranges(session: ControllerSession) -> None:
    page = log(session, LogPage.SMART, 512)
    assert page[0] & 0xC0 == 0, f"5.2.12.1.3: reserved bits of Critical Warning are set: {page[0]:02x}h"
    assert page[3] <= 100, f"5.2.12.1.3: Available Spare is {page[3]} of 0 to 100 percent"
    assert page[4] <= 100, f"5.2.12.1.3: Available Spare Threshold is {page[4]} of 0 to 100 percent"
