"""Preempt of one of several hosts that hold a reservation together, and of the own one (Base 8.1.24.7)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.harness import refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    ReservingHost,
    allowed,
    hold,
    read_notice,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.7", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

REGISTRATION_PREEMPTED = 1
"""Type of a Reservation Notification log page (5.2.12.1.35)."""

SHARED = {
    "WEAR": Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS,
    "EAAR": Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
}
ACTIONS = {"PREEMPT": PREEMPT, "ABORT": PREEMPT_ABORT}


@pytest.mark.parametrize(("rtype", "action"), [
    pytest.param(rtype, action, marks=pytest.mark.case(
        f"NVR-SHARED-{name}-{short}", kills=("preempt-shared-ignored",)))
    for short, rtype in SHARED.items() for name, action in ACTIONS.items()
])  # fmt: skip
def test_a_preempt_of_one_of_all_registrants_unregisters_that_one(
    hosts: Hosts, rtype: Rtype, action: int
) -> None:
    """The reservation stays: it is held by all registrants that are left, the one that preempts is one."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    done = second.acquire(rtype, action, victim=first.key)
    assert done.ok, (
        f"8.1.24.7: PRKEY is the key of another registrant, and all hold: {status_name(done.status)}; "
        "the registrants with that key are unregistered"
    )
    left = second.report()
    found = (
        left.rtype,
        [one.key for one in left.registrants],
        [one.key for one in left.registrants if one.holds],
    )
    assert found == (rtype, [second.key], [second.key]), (
        f"8.1.24.7: after a Preempt of {first.key:#x} the reservation has type {found[0]}, its "
        f"registrants are {found[1]}, and {found[2]} hold it, by key; it was of type {int(rtype)}, of "
        f"all registrants, and {second.key:#x} has preempted"
    )
    refused(first.write(), StatusCode.RESERVATION_CONFLICT)
    allowed(second.write())


@pytest.mark.parametrize("action", [
    pytest.param(action, marks=pytest.mark.case(
        f"NVR-NOTICE-SHARED-{name}", kills=("preempt-shared-ignored",)))
    for name, action in ACTIONS.items()
])  # fmt: skip
@pytest.mark.case(builds_on=("NVR-NOTICE-01", *HOLDING))
def test_one_of_all_registrants_is_notified_of_its_preemption(hosts: Hosts, action: int) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS)
    allowed(second.register())
    allowed(first.acquire(Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS, action, victim=second.key))
    kind, nsid = read_notice(second)
    assert (kind, nsid) == (REGISTRATION_PREEMPTED, second.nsid), (
        f"8.1.24.7: a registrant was unregistered by Preempt, and its log page has type {kind} of namespace "
        f"{nsid}; 1, Registration Preempted, of namespace {second.nsid} is required"
    )


@pytest.mark.parametrize("action", [
    pytest.param(action, marks=pytest.mark.case(
        f"NVR-PREEMPT-SELF-{name}", kills=("preempt-self-ignored",)))
    for name, action in ACTIONS.items()
])  # fmt: skip
def test_a_holder_preempts_itself_for_another_type(hosts: Hosts, action: int) -> None:
    """PRKEY is the holder's own key: the type changes, and each registrant stays one."""
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(second.read())
    allowed(first.acquire(Rtype.EXCLUSIVE_ACCESS, action, victim=first.key))
    left = first.report()
    keys = {one.key for one in left.registrants}
    held = [one.key for one in left.registrants if one.holds]
    assert (left.rtype, keys, held) == (Rtype.EXCLUSIVE_ACCESS, {first.key, second.key}, [first.key]), (
        f"8.1.24.7: after the holder has preempted itself the reservation has type {left.rtype}, its "
        f"registrants are {sorted(keys)}, and {held} hold it, by key; required are type "
        f"{int(Rtype.EXCLUSIVE_ACCESS)}, {sorted((first.key, second.key))} and {[first.key]}"
    )
    refused(second.read(), StatusCode.RESERVATION_CONFLICT)
    allowed(first.write())
