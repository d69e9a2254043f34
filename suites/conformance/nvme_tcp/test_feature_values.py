"""How long the value of a feature lasts that is set without Save: until a reset (Base 4.4).

4.4 states without a "shall" that a feature has its saved value, or else its default value, after a reset.
Because of that the claims are SHOULDs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import (
    NAMESPACE_NOTICES,
    Harness,
)

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="SHOULD", section="Base 4.4")]

CURRENT, DEFAULT, SAVED = range(3)
"""Select of Get Features (5.2.11)."""

SAVE_AND_SELECT = 1 << 4
"""ONCS: Select of Get Features, and Save of Set Features (5.2.13.2.1)."""

PER_NAMESPACE = (Feature.ERROR_RECOVERY,)
"""Features whose scope is a namespace (NVM 4.1.3)."""


@dataclass(frozen=True, slots=True)
class SetFeature:
    """A feature of a controller that has a value other than its first one."""

    session: ControllerSession
    fid: int
    nsid: int
    first: int
    value: int

    def read(self, select: int = CURRENT) -> int:
        """Return the feature's value."""
        command = admin.get_features(self.fid, select=select, nsid=self.nsid)
        done = self.session.admin.run(command)
        assert done.ok, f"5.2.11: Select {select} of {self.fid:02x}h is not {status_name(done.status)}"
        return done.cqe.dw0

    def set(self, value: int) -> bool:
        """Set the value without Save; return whether the controller has set it."""
        return self.session.admin.run(admin.set_features(self.fid, value, nsid=self.nsid)).ok

    def after_reset(self) -> set[int]:
        """Return the values that the feature may have after a reset: saved, default, or the first one."""
        if not self.session.controller["oncs"] & SAVE_AND_SELECT:
            return {self.first}
        return {self.first, self.read(DEFAULT), self.read(SAVED)}


def _other(session: ControllerSession, fid: int, first: int) -> int:
    """Return a value that the controller may be given in place of ``first``, and that does no harm."""
    if fid == Feature.ASYNC_EVENT:
        return first ^ (session.controller["oaes"] & NAMESPACE_NOTICES)
    if fid == Feature.KATO:
        return first + 10 * max(session.controller["kas"] * 100, 1_000)
    if fid in (Feature.TEMPERATURE_THRESHOLD, Feature.ERROR_RECOVERY):  # 1 K more, and a timeout of 1 s more
        return first + (10 if fid == Feature.ERROR_RECOVERY else 1) if first & 0xFFFF < 0xFF00 else first - 1
    return first ^ 1  # AB of Arbitration, DN of Write Atomicity Normal


def need_feature(session: ControllerSession, fid: int, *, nsid: int = 0) -> None:
    """Skip if the controller does not have a feature, which NVA-FEAT-01H and others may require."""
    if session.admin.run(admin.get_features(fid, nsid=nsid)).status == StatusCode.INVALID_FIELD:
        pytest.skip(f"Get Features {fid:02x}h ends with Invalid Field: the controller does not have it")


def set_feature(session: ControllerSession, fid: int) -> SetFeature:
    """Set a feature to another value than it has; skip if the controller does not let it be changed."""
    nsid = session.namespaces()[0] if fid in PER_NAMESPACE else 0
    need_feature(session, fid, nsid=nsid)
    probe = SetFeature(session, fid, nsid, 0, 0)
    first = probe.read()
    made = SetFeature(session, fid, nsid, first, _other(session, fid, first))
    if made.value == first or not made.set(made.value) or made.read() == first:
        pytest.skip(f"feature {fid:02x}h of this controller is not changed")
    return made


FEATURES = (
    Feature.ARBITRATION,
    Feature.TEMPERATURE_THRESHOLD,
    Feature.ERROR_RECOVERY,
    Feature.WRITE_ATOMICITY,
    Feature.ASYNC_EVENT,
    Feature.KATO,
)
"""Features of which the standard does not state that they persist across a reset (5.2.26, NVM 4.1.3)."""


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(
        f"NVA-FEAT-RESET-{fid:02X}H", kills=(f"reset-keeps-{fid:02x}h", "reset-keeps-second")))
    for fid in FEATURES
])  # fmt: skip
def test_a_value_that_was_not_saved_ends_with_a_reset(session: ControllerSession, fid: int) -> None:
    feature = set_feature(session, fid)
    wanted = feature.after_reset() - {feature.value}
    try:
        for number in (1, 2):
            session.disable()
            session.enable()
            found = feature.read()
            assert found in wanted, (
                f"4.4: feature {fid:02x}h is {found:#x} after reset {number}; it was set to "
                f"{feature.value:#x} without Save; its saved, default and first value are {sorted(wanted)}"
            )
            assert feature.set(feature.value), f"5.2.26: {feature.value:#x} is not set again after a reset"
    finally:
        feature.set(feature.first)


@pytest.mark.case("NVA-FEAT-RESET-SHUTDOWN", kills=("reset-keeps-shutdown",))
def test_a_value_that_was_not_saved_ends_with_a_shutdown_and_a_reset(session: ControllerSession) -> None:
    feature = set_feature(session, Feature.ASYNC_EVENT)
    session.shut_down()
    session.disable()
    session.enable()
    found = feature.read()
    assert found in feature.after_reset() - {feature.value}, (
        f"4.4: Asynchronous Event Configuration is {found:#x} after a shutdown and a reset, as it was set "
        "before them without Save"
    )


@pytest.mark.case("NVA-FEAT-RESET-OTHER", section="Base 3.7.2", level="MUST", kills=("reset-clears-others",))
def test_the_reset_of_a_controller_leaves_the_values_of_another(
    session: ControllerSession, bench: Harness
) -> None:
    """The other controller is of the same host, and then of another one."""
    feature = set_feature(session, Feature.ASYNC_EVENT)
    for identity in (session.identity, None):
        other = bench.session(identity=identity)
        other.disable()
        other.enable()
        found = feature.read()
        assert found == feature.value, (
            f"3.7.2: Asynchronous Event Configuration is {found:#x} after the reset of another controller; "
            f"it was set to {feature.value:#x}"
        )
