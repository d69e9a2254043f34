"""Forms of Get and Set Features: data structures, reserved values, NSIDs, Save (Base 5.2.11, 5.2.26)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, refused

from .test_feature_values import FEATURES, PER_NAMESPACE, SAVE_AND_SELECT, need_feature, set_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.26")]

BEHAVIOR = 512
"""Bytes of the Host Behavior Support data structure (5.2.26.1.14)."""

ACRE = 0
"""Its byte of Advanced Command Retry Enable: 0h or 1h."""

CAPABILITIES, SAVEABLE = 3, 1
"""Select of Get Features, and a bit of what it returns (5.2.11)."""

INVALID_NSID = 0xFFFF_FFFE

# Host Behavior Support (5.2.26.1.14)


def _read_behavior(session: ControllerSession) -> bytes:
    done = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    assert done.ok, f"5.2.26.1.14: Host Behavior Support is not {status_name(done.status)}"
    return done.data


def _set_behavior(session: ControllerSession, data: bytes) -> CommandResult:
    return session.admin.run(admin.set_features(Feature.HOST_BEHAVIOR, 0), data=data)


def _with_acre(data: bytes, value: int) -> bytes:
    return data[:ACRE] + bytes([value]) + data[ACRE + 1 :]


@pytest.fixture
def behavior(session: ControllerSession) -> Iterator[bytes]:
    """Yield the data structure of the controller, which it has again at the end; skip if it has none."""
    done = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    if not done.ok:
        pytest.skip(f"Host Behavior Support ends with {status_name(done.status)}")
    yield done.data
    _set_behavior(session, done.data)


@pytest.mark.case("NVA-FEAT-BEHAVIOR", section="Base 5.2.26.1.14", kills=("behavior-forgotten",))
def test_the_host_behavior_is_what_was_set_last(session: ControllerSession, behavior: bytes) -> None:
    """A controller may refuse a value; then the one before stays."""
    current = behavior
    for value in (1, 0, 1):
        wanted = _with_acre(current, value)
        done = _set_behavior(session, wanted)
        current = wanted if done.ok else current
        found = _read_behavior(session)
        assert found == current, (
            f"5.2.26.1.14: ACRE was set to {value} ({status_name(done.status)}); the data structure begins "
            f"with {found[:8].hex()}; {current[:8].hex()} is required"
        )


@pytest.mark.case("NVA-FEAT-BEHAVIOR-RESERVED", section="Base 1.4.1.6, 5.2.26.1.14", kills=("behavior-any",))
def test_a_reserved_host_behavior_is_refused(session: ControllerSession, behavior: bytes) -> None:
    for value in (2, 0x80, 0xFF):
        done = _set_behavior(session, _with_acre(behavior, value))
        assert not done.ok, f"1.4.1.6: ACRE {value:#x} is reserved, and Set Features of it succeeds"
        found = _read_behavior(session)
        assert found == behavior, (
            f"5.2.26.1.14: ACRE {value:#x} was refused; the data structure was {behavior[:8].hex()}, and is "
            f"{found[:8].hex()}"
        )


@pytest.mark.case("NVA-FEAT-BEHAVIOR-OWN", section="Base 5.2.26.1.14", kills=("behavior-of-all",))
def test_the_host_behavior_is_one_controllers_own(
    session: ControllerSession, behavior: bytes, bench: Harness
) -> None:
    other = bench.session(name="another controller's admin queue")
    before = _read_behavior(other)
    value = 1 - (behavior[ACRE] & 1)
    done = _set_behavior(session, _with_acre(behavior, value))
    if not done.ok:
        pytest.skip(f"ACRE is not changed: {status_name(done.status)}")
    found = _read_behavior(other)
    assert found == before, (
        f"5.2.26.1.14: ACRE was set to {value} on one controller; another one's data structure was "
        f"{before[:8].hex()}, and is {found[:8].hex()}"
    )


@pytest.mark.case(
    "NVA-FEAT-BEHAVIOR-SHORT",
    section="Base 4.3.2",
    kills=("behavior-short",),
    builds_on=("NVT-SGL-04",),
)
def test_half_of_the_host_behavior_is_neither_set_nor_read(
    session: ControllerSession, behavior: bytes
) -> None:
    """The SGL has 256 bytes of 512."""
    half = _with_acre(behavior, 1 - (behavior[ACRE] & 1))[: BEHAVIOR // 2]
    done = _set_behavior(session, half)
    assert not done.ok, "4.3.2: Set Features of 512 bytes succeeds; its SGL has 256: Data SGL Length Invalid"
    found = _read_behavior(session)
    assert found == behavior, (
        f"5.2.26: Set Features was refused; the data structure was {behavior[:8].hex()}, and is "
        f"{found[:8].hex()}"
    )
    read = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR // 2)
    assert not read.ok, "4.3.2: Get Features of 512 bytes succeeds; its SGL has 256: Data SGL Length Invalid"


# Temperature Threshold (5.2.26.1.3)

RESERVED_THRESHOLDS = {"THSEL-2": 2 << 20, "THSEL-3": 3 << 20, "TMPSEL-9": 9 << 16, "TMPSEL-14": 14 << 16}
"""Values that select no threshold: THSEL is 00b or 01b, TMPSEL 0h to 8h or Fh."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVA-FEAT-{name}", kills=("threshold-any",)))
    for name in RESERVED_THRESHOLDS
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.1.6, 5.2.26.1.3")
def test_a_reserved_threshold_is_neither_read_nor_set(session: ControllerSession, name: str) -> None:
    fid, select = Feature.TEMPERATURE_THRESHOLD, RESERVED_THRESHOLDS[name]
    need_feature(session, fid)
    before = session.admin.run(admin.get_features(fid)).cqe.dw0
    for what, command in (
        ("Get", admin.get_features(fid, cdw11=select)),
        ("Set", admin.set_features(fid, select | before & 0xFFFF)),
    ):
        done = session.admin.run(command)
        assert not done.ok, (
            f"1.4.1.6: {what} Features of Temperature Threshold with the reserved {name} ends with a success"
        )
    after = session.admin.run(admin.get_features(fid)).cqe.dw0
    assert after == before, f"5.2.26.1.3: the threshold was {before:#x}, and is {after:#x}"


# Volatile Write Cache (5.2.26.1.4)


@pytest.mark.case(
    "NVA-FEAT-VWC-SET",
    section="Base 5.2.26.1.4",
    kills=("write-cache-not-set",),
    builds_on=("NVA-FEAT-VWC",),
)
def test_the_write_cache_is_set_if_there_is_one(session: ControllerSession) -> None:
    """A controller may refuse to change it. Without a cache, Set Features ends with Invalid Field."""
    fid = Feature.VOLATILE_WRITE_CACHE

    def read() -> int:
        done = session.admin.run(admin.get_features(fid))
        assert done.ok, (
            f"5.2.26.1.4: VWC announces a cache; Get Features ends with {status_name(done.status)}"
        )
        return done.cqe.dw0 & 1

    if not session.controller["vwc"] & 1:
        refused(session.admin.run(admin.set_features(fid, 1)), StatusCode.INVALID_FIELD)
        return
    first = read()
    try:
        for wanted in (1 - first, first):
            was = read()
            done = session.admin.run(admin.set_features(fid, wanted))
            found, required = read(), wanted if done.ok else was
            assert found == required, (
                f"5.2.26.1.4: WCE was {was}, and Set Features of {wanted} ended with "
                f"{status_name(done.status)}; it is {found}"
            )
    finally:
        session.admin.run(admin.set_features(fid, first))


# NSIDs that are not valid (3.2.1.5)

OF_NAMESPACES = (
    Feature.ERROR_RECOVERY,
    Feature.RESERVATION_NOTIFICATION_MASK,
    Feature.RESERVATION_PERSISTENCE,
)
"""Features whose scope is a namespace (5.2.26, NVM 4.1.3)."""

OF_CONTROLLERS = (Feature.ARBITRATION, Feature.TEMPERATURE_THRESHOLD, Feature.ASYNC_EVENT, Feature.KATO)


def _nsids(session: ControllerSession) -> list[int]:
    """Return NSIDs that are not valid: above NN (3.2.1.4); skip if each one is valid."""
    least = session.controller["nn"] + 1
    if least > INVALID_NSID:
        pytest.skip("NN: each NSID is valid")
    return sorted({least, INVALID_NSID})


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-NSID-{fid:02X}H", kills=("feature-any-nsid",)))
    for fid in OF_NAMESPACES
])  # fmt: skip
@pytest.mark.case(section="Base 3.2.1.5")
def test_a_feature_of_an_invalid_namespace_is_refused(session: ControllerSession, fid: int) -> None:
    """Invalid Namespace or Format, or Invalid Field, which 5.2.26.1.33 has for a notification mask."""
    active = session.namespaces()[0]
    need_feature(session, fid, nsid=active)
    value = session.admin.run(admin.get_features(fid, nsid=active)).cqe.dw0
    for nsid in _nsids(session):
        for what, command in (
            ("Get", admin.get_features(fid, nsid=nsid)),
            ("Set", admin.set_features(fid, value, nsid=nsid)),
        ):
            done = session.admin.run(command)
            assert done.status in (StatusCode.INVALID_NAMESPACE, StatusCode.INVALID_FIELD), (
                f"3.2.1.5: {what} Features {fid:02x}h of NSID {nsid:#x}, which is not valid, ended with "
                f"{status_name(done.status)}; required: INVALID_NAMESPACE (0h/0bh)"
            )


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-NSID-{fid:02X}H", kills=("feature-any-nsid",)))
    for fid in OF_CONTROLLERS
])  # fmt: skip
@pytest.mark.case(section="Base 3.2.1.5", level="SHOULD")
def test_a_feature_of_a_controller_with_an_invalid_nsid_is_refused(
    session: ControllerSession, fid: int
) -> None:
    """Many controllers do not look at the NSID of such a feature."""
    need_feature(session, fid)
    value = session.admin.run(admin.get_features(fid)).cqe.dw0
    for nsid in _nsids(session):
        for what, command in (
            ("Get", admin.get_features(fid, nsid=nsid)),
            ("Set", admin.set_features(fid, value, nsid=nsid)),
        ):
            done = session.admin.run(command)
            assert done.status == StatusCode.INVALID_NAMESPACE, (
                f"3.2.1.5: {what} Features {fid:02x}h with NSID {nsid:#x}, which is not valid, ended with "
                f"{status_name(done.status)}; required: INVALID_NAMESPACE (0h/0bh)"
            )


# Save


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-SAVE-{fid:02X}H", kills=("features-saved-anyway",)))
    for fid in FEATURES
])  # fmt: skip
@pytest.mark.case(level="SHOULD")
def test_no_feature_is_saved_that_is_not_saveable(session: ControllerSession, fid: int) -> None:
    """Also if ONCS bit 4 is 0: then Save is not supported. The value that was not saved is not set."""
    feature = set_feature(session, fid)
    if session.controller["oncs"] & SAVE_AND_SELECT and feature.read(CAPABILITIES) & SAVEABLE:
        pytest.skip(f"feature {fid:02x}h is saveable")
    nsid = feature.nsid if fid in PER_NAMESPACE else 0
    done = session.admin.run(admin.set_features(fid, feature.first, save=True, nsid=nsid))
    found = feature.read()
    feature.set(feature.first)
    refused(done, StatusCode.FEATURE_NOT_SAVEABLE)
    assert found == feature.value, (
        f"5.2.26: feature {fid:02x}h was set to {feature.value:#x}; it is {found:#x} after Set Features with "
        "Save was refused"
    )
