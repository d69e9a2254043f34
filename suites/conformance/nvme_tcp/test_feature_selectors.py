"""Features that have several values: reserved values of SEL, power states, two temperature thresholds."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused

from .test_admin import RESERVED_FEATURE
from .test_feature_values import FEATURES, SAVE_AND_SELECT, set_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.26")]

CAPABILITIES = 3
"""Select of Get Features (5.2.11)."""

SAVEABLE = 1
"""Bit 0 of the capabilities of a feature (5.2.11)."""

UNDER = 1 << 20
"""THSEL of Temperature Threshold: the under temperature threshold (5.2.26.1.3)."""

SENSOR_1 = 1 << 16
"""TMPSEL of Temperature Threshold: temperature sensor 1; 0h is the composite temperature (5.2.26.1.3)."""

MOST_STATES = 32
"""Power states that PS can name: it has five bits (5.2.26.1.2)."""


@pytest.mark.parametrize("select", [
    pytest.param(select, marks=pytest.mark.case(f"NVA-FEAT-SELECT-{select}", kills=("select-reserved",)))
    for select in (4, 7)
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.1.6, 5.2.11")
def test_a_reserved_select_is_an_error(session: ControllerSession, select: int) -> None:
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Select of Get Features is not supported")
    done = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES, select=select))
    assert not done.ok, (
        f"5.2.11: Get Features with the reserved SEL {select} returns {done.cqe.dw0:#x}; "
        "1.4.1.6: a reserved value is reported as an error"
    )


@pytest.mark.parametrize("select", [
    pytest.param(
        select, marks=pytest.mark.case(f"NVA-FEAT-UNKNOWN-SELECT-{select}", kills=("unknown-selected",))
    )
    for select in (1, 2, CAPABILITIES)
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", builds_on=("NVA-FEAT-UNKNOWN",))
def test_no_value_of_a_reserved_feature_is_read(session: ControllerSession, select: int) -> None:
    """Its default and saved value and its capabilities end with Invalid Field, as its current value does."""
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Select of Get Features is not supported")
    done = session.admin.run(admin.get_features(RESERVED_FEATURE, select=select))
    assert not done.ok, f"5.2.11: SEL {select} of the reserved feature 60h returns {done.cqe.dw0:#x}"
    refused(done, StatusCode.INVALID_FIELD)


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-REFUSED-{fid:02X}H", kills=("refused-value-set",)))
    for fid in FEATURES
])  # fmt: skip
@pytest.mark.case(builds_on=("NVA-FEAT-SAVE", "NVA-FEAT-CAPABLE"))
def test_a_set_features_that_is_refused_sets_nothing(session: ControllerSession, fid: int) -> None:
    """A feature that is not saveable is to be saved: the command is aborted, and the value stays."""
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Save of Set Features is not supported")
    feature = set_feature(session, fid)
    if feature.read(CAPABILITIES) & SAVEABLE:
        pytest.skip(f"feature {fid:02x}h is saveable, so nothing is refused")
    done = session.admin.run(admin.set_features(fid, feature.first, save=True, nsid=feature.nsid))
    if done.ok:
        pytest.skip(f"feature {fid:02x}h is not saveable, and is set with Save all the same (NVA-FEAT-SAVE)")
    found = feature.read()
    feature.set(feature.first)
    assert found == feature.value, (
        f"5.2.26: feature {fid:02x}h was set to {feature.value:#x}; it is {found:#x} after Set Features of "
        f"{feature.first:#x} with Save ended with {status_name(done.status)}"
    )


@pytest.mark.case("NVA-FEAT-POWER", section="Base 5.2.26.1.2", kills=("power-state-any",))
def test_a_power_state_that_is_not_there_is_refused(session: ControllerSession) -> None:
    """The controller "shall abort the command"; Invalid Field in Command is what it should end with."""
    if not session.admin.run(admin.get_features(Feature.POWER_MANAGEMENT)).ok:
        pytest.skip("Get Features (Power Management) is refused: the feature is not supported")
    states = session.controller["npss"] + 1
    if states >= MOST_STATES:
        pytest.skip("NPSS: every power state is supported")
    for state in sorted({states, MOST_STATES - 1}):
        done = session.admin.run(admin.set_features(Feature.POWER_MANAGEMENT, state))
        assert not done.ok, (
            f"5.2.26.1.2: power state {state} is set; NPSS: the controller has {states}, from 0 on"
        )


@pytest.mark.case("NVA-FEAT-POWER-SET", section="Base 5.2.26.1.2", kills=("power-state-refused",))
def test_the_power_state_that_is_there_can_be_set(session: ControllerSession) -> None:
    """It is set to what it is, and to 0, which each controller has; then to what it was."""
    command = admin.get_features(Feature.POWER_MANAGEMENT)
    before = session.admin.run(command)
    if not before.ok:
        pytest.skip("Get Features (Power Management) is refused: the feature is not supported")
    first, states = before.cqe.dw0 & (MOST_STATES - 1), session.controller["npss"] + 1
    assert first < states, f"5.2.26.1.2: PS is {first}; NPSS: the controller has {states} states, from 0 on"
    for state in (first, 0, first):
        done = session.admin.run(admin.set_features(Feature.POWER_MANAGEMENT, state))
        if done.status == StatusCode.FEATURE_NOT_CHANGEABLE:
            pytest.skip("the feature is not changeable")
        assert done.ok, (
            f"5.2.26.1.2: power state {state} of {states} cannot be set: {status_name(done.status)}"
        )
        found = session.admin.run(command).cqe.dw0 & (MOST_STATES - 1)
        assert found == state, f"5.2.26.1.2: power state {state} was set, and PS is {found}"


@pytest.mark.case(
    "NVA-FEAT-THRESHOLDS",
    section="Base 5.2.26.1.3",
    kills=("threshold-under-is-over",),
    builds_on=("NVA-FEAT-AGAIN",),
)
def test_the_under_temperature_threshold_is_not_the_over_temperature_threshold(
    session: ControllerSession,
) -> None:
    def read(select: int) -> int:
        done = session.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD, cdw11=select))
        if not done.ok:
            pytest.skip(f"Get Features (Temperature Threshold) ends with {status_name(done.status)}")
        return done.cqe.dw0 & 0xFFFF

    over, under = read(0), read(UNDER)
    wanted = next(value for value in (under ^ 1, under ^ 2) if value != over)
    done = session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | wanted))
    if not done.ok:
        pytest.skip(f"the under temperature threshold is not set: {status_name(done.status)}")
    try:
        assert read(0) == over, (
            f"5.2.26.1.3: the over temperature threshold is {read(0)} K after the other one was set to "
            f"{wanted} K; it was {over} K"
        )
    finally:
        session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | under))


@pytest.mark.case(
    "NVA-FEAT-SENSOR",
    section="Base 5.2.26.1.3",
    kills=("threshold-of-sensor",),
    builds_on=("NVA-FEAT-THRESHOLDS",),
)
def test_the_threshold_of_a_sensor_is_not_that_of_the_composite_temperature(
    session: ControllerSession,
) -> None:
    """A controller may refuse the threshold of a sensor that it does not have."""
    composite = set_feature(session, Feature.TEMPERATURE_THRESHOLD)
    read = session.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD, cdw11=SENSOR_1))
    wanted = next(value for value in (0x140, 0x141, 0x142) if value not in (composite.value, composite.first))
    done = session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, SENSOR_1 | wanted))
    found = composite.read() & 0xFFFF
    if read.ok and done.ok:
        before = read.cqe.dw0 & 0xFFFF
        session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, SENSOR_1 | before))
    composite.set(composite.first)
    assert found == composite.value & 0xFFFF, (
        f"5.2.26.1.3: the threshold of the composite temperature was {composite.value & 0xFFFF} K; it is "
        f"{found} K after that of sensor 1 was set to {wanted} K ({status_name(done.status)})"
    )


@pytest.mark.case(
    "NVA-FEAT-UNDER",
    section="Base 5.2.26.1.3",
    kills=("threshold-under-constant",),
    builds_on=("NVA-FEAT-THRESHOLDS",),
)
def test_the_under_temperature_threshold_is_what_it_was_set_to(session: ControllerSession) -> None:
    """The controller changes the over temperature threshold, so this one is no constant either."""
    over = set_feature(session, Feature.TEMPERATURE_THRESHOLD)

    def read() -> int:
        done = session.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD, cdw11=UNDER))
        if not done.ok:
            pytest.skip(f"Get Features (under temperature threshold) ends with {status_name(done.status)}")
        return done.cqe.dw0 & 0xFFFF

    first = read()
    try:
        for wanted in (first ^ 1, first ^ 2):
            done = session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | wanted))
            if not done.ok:
                pytest.skip(f"the under temperature threshold is not set: {status_name(done.status)}")
            found = read()
            assert found == wanted, (
                f"5.2.26.1.3: the under temperature threshold was set to {wanted} K; it is {found} K"
            )
    finally:
        session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | first))
        over.set(over.first)
