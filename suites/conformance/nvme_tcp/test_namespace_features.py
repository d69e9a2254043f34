"""Features whose scope is a namespace: the value of one is not another's; FFFFFFFFh sets all (Base 4.4).

A value is set for namespaces alone that the targets file lets be written, and is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Scratch
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost

from .test_feature_values import need_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 4.4")]

Pair = tuple[Scratch, Scratch]

ALL_NAMESPACES = 0xFFFF_FFFF
RECOVERY, PERSISTENCE = Feature.ERROR_RECOVERY, Feature.RESERVATION_PERSISTENCE
SECOND = 10
"""Time Limited Error Recovery of one second, in units of 100 ms (NVM 4.1.3.2)."""
PERSISTS = 1 << 0
"""RESCAP: Persist Through Power Loss is supported (NVM 4.1.5.1)."""


def _value(session: ControllerSession, fid: int, nsid: int) -> int:
    done = session.admin.run(admin.get_features(fid, nsid=nsid))
    assert done.ok, f"5.2.11: feature {fid:02x}h of namespace {nsid:#x} is not {status_name(done.status)}"
    return done.cqe.dw0


def _set(session: ControllerSession, fid: int, nsid: int, value: int) -> int:
    """Set a feature of a namespace, or of all; return the status."""
    return session.admin.run(admin.set_features(fid, value, nsid=nsid)).status


@contextmanager
def kept_feature(
    session: ControllerSession, fid: int, nsids: tuple[int, ...], config: pytest.Config
) -> Iterator[dict[int, int]]:
    """Yield the values of a feature, by NSID; restore them at the end, or end the run."""
    before = {nsid: _value(session, fid, nsid) for nsid in nsids}
    try:
        yield before
    finally:
        for nsid, value in before.items():
            _set(session, fid, nsid, value)
            done = session.admin.run(admin.get_features(fid, nsid=nsid))
            if not done.ok or done.cqe.dw0 != value:
                found = f"{done.cqe.dw0:#x}" if done.ok else status_name(done.status)
                stop_run(
                    config,
                    f"feature {fid:02x}h of namespace {nsid} was {value:#x} and cannot be set back, it is "
                    f"{found}: set it on the target, or restart it, and run again",
                )


def _nsids(pair: Pair) -> tuple[int, ...]:
    return tuple(one.nsid for one in pair)


def _require_no_other(session: ControllerSession, nsids: tuple[int, ...]) -> None:
    others = sorted(set(session.namespaces()) - set(nsids))
    if others:
        pytest.skip(f"NSID FFFFFFFFh would set the feature of namespaces {others[:8]}, too")


def _is_set(session: ControllerSession, fid: int, nsid: int, value: int) -> None:
    """Set a feature; skip if the controller does not let it be changed."""
    status = _set(session, fid, nsid, value)
    if status != StatusCode.SUCCESS:
        pytest.skip(f"feature {fid:02x}h of namespace {nsid} is not set: {status_name(status)}")


@pytest.mark.case(
    "NVA-FEAT-NAMESPACE-05H", section="Base 4.4, NVM 4.1.3.2", kills=("recovery-of-controller",)
)
def test_error_recovery_of_a_namespace_is_not_anothers(
    session: ControllerSession, pair: Pair, pytestconfig: pytest.Config
) -> None:
    """Each of two namespaces is given a value, and then one of them another one."""
    nsids = _nsids(pair)
    need_feature(session, RECOVERY, nsid=nsids[0])
    with kept_feature(session, RECOVERY, nsids, pytestconfig) as before:
        for step, nsid in enumerate((*nsids, *nsids), 1):
            wanted = {one: _value(session, RECOVERY, one) for one in nsids}
            wanted[nsid] = (before[nsid] & ~0xFFFF) + SECOND * step
            _is_set(session, RECOVERY, nsid, wanted[nsid])
            found = {one: _value(session, RECOVERY, one) for one in nsids}
            assert found == wanted, (
                f"4.4: Error Recovery of namespace {nsid} was set to {wanted[nsid]:#x}; they are {found}, "
                f"by NSID; required: {wanted}"
            )


@pytest.mark.case("NVA-FEAT-ALL-05H", section="Base 4.4, NVM 4.1.3.2", kills=("recovery-all-sets-first",))
def test_error_recovery_of_all_namespaces_is_set(
    session: ControllerSession, pair: Pair, pytestconfig: pytest.Config
) -> None:
    """Set Features with FFFFFFFFh sets the value for all namespaces that are attached to the controller."""
    nsids = _nsids(pair)
    _require_no_other(session, nsids)
    need_feature(session, RECOVERY, nsid=nsids[0])
    with kept_feature(session, RECOVERY, nsids, pytestconfig) as before:
        for step in (1, 2):
            value = (before[nsids[0]] & ~0xFFFF) + SECOND * step
            _is_set(session, RECOVERY, ALL_NAMESPACES, value)
            found = {one: _value(session, RECOVERY, one) for one in nsids}
            assert found == dict.fromkeys(nsids, value), (
                f"4.4: Error Recovery of NSID FFFFFFFFh was set to {value:#x}; they are {found}, by NSID"
            )


@pytest.fixture
def persistent(hosts: tuple[ReservingHost, ReservingHost], pair: Pair) -> tuple[int, ...]:
    """Return the NSIDs of the two namespaces; skip if the reservations of one do not persist."""
    session, nsids = hosts[0].session, _nsids(pair)
    for nsid in nsids:
        if not session.namespace(nsid)["rescap"] & PERSISTS:
            pytest.skip(f"RESCAP bit 0 of namespace {nsid}: no Persist Through Power Loss")
    return nsids


@pytest.mark.case(
    "NVR-PTPL-NAMESPACE",
    section="Base 5.2.26.1.34",
    kills=("persistence-of-first",),
    builds_on=("NVR-PTPL-FEATURE",),
)
def test_the_persist_state_of_a_namespace_is_not_anothers(
    hosts: tuple[ReservingHost, ReservingHost], persistent: tuple[int, ...], pytestconfig: pytest.Config
) -> None:
    session = hosts[0].session
    with kept_feature(session, PERSISTENCE, persistent, pytestconfig):
        for nsid in persistent:
            _is_set(session, PERSISTENCE, nsid, 0)
        for nsid in persistent:
            for value in (1, 0):
                _is_set(session, PERSISTENCE, nsid, value)
                found = {one: _value(session, PERSISTENCE, one) & 1 for one in persistent}
                wanted = {one: value * (one == nsid) for one in persistent}
                assert found == wanted, (
                    f"5.2.26.1.34: PTPL of namespace {nsid} was set to {value}; by NSID it is {found}; "
                    f"required: {wanted}"
                )


@pytest.mark.case(
    "NVR-PTPL-ALL",
    section="Base 5.2.26.1.34",
    kills=("persistence-of-first",),
    builds_on=("NVR-PTPL-FEATURE",),
)
def test_the_persist_state_of_all_namespaces_is_set(
    hosts: tuple[ReservingHost, ReservingHost], persistent: tuple[int, ...], pytestconfig: pytest.Config
) -> None:
    """Set Features with FFFFFFFFh modifies it for each attached namespace that supports it."""
    session = hosts[0].session
    _require_no_other(session, persistent)
    with kept_feature(session, PERSISTENCE, persistent, pytestconfig):
        for value in (1, 0, 1):
            _is_set(session, PERSISTENCE, ALL_NAMESPACES, value)
            found = {one: _value(session, PERSISTENCE, one) & 1 for one in persistent}
            assert found == dict.fromkeys(persistent, value), (
                f"5.2.26.1.34: PTPL of NSID FFFFFFFFh was set to {value}; by NSID it is {found}"
            )
            report = hosts[0].report().persistence
            assert report == value, f"7.8: PTPLS is {report} after PTPL of NSID FFFFFFFFh was set to {value}"
