"""Who is left: Unregister and Preempt by the type of the reservation (Base 8.1.24.4, 8.1.24.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PREEMPT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.7", builds_on=HOLDING),
]

RESERVATION_RELEASED = 2
"""Type of a Reservation Notification log page (5.2.12.1.35)."""

SHARED = (Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)

Hosts = tuple[ReservingHost, ReservingHost]


def _claim(host: ReservingHost, rtype: int, registered: list[int], holding: list[int], after: str) -> None:
    """Claim what the report of ``host`` has: the type, the keys of the registrants and of the holders."""
    status = host.report()
    found = status.rtype, [one.key for one in status.registrants]
    held = [one.key for one in status.registrants if one.holds]
    assert (*found, held) == (rtype, registered, holding), (
        f"8.1.24: after {after} the reservation has type {found[0]}, the registrants' keys are {found[1]}, "
        f"and those of {held} hold it; required are type {int(rtype)}, {registered} and {holding}"
    )


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-UNREG-SHARED-{rtype:d}", kills=("unregister-ends-shared",)))
    for rtype in SHARED
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.4")
def test_a_reservation_of_all_registrants_ends_with_the_last(hosts: Hosts, rtype: Rtype) -> None:
    """The host that acquired it unregisters first; it is released when the last holder unregisters."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(first.register(UNREGISTER, current=first.key))
    _claim(second, rtype, [second.key], [second.key], "one of two registrants has unregistered")
    refused(first.write(), StatusCode.RESERVATION_CONFLICT)
    allowed(second.register(UNREGISTER, current=second.key))
    _claim(first, 0, [], [], "both registrants have unregistered")
    allowed(first.write())


@pytest.mark.case("NVR-PREEMPT-ALL", kills=("preempt-zero-ignored",))
def test_a_preempt_of_key_0_takes_a_reservation_of_all_registrants(hosts: Hosts) -> None:
    """All other registrants are unregistered, and a reservation of the new type is created."""
    first, second = hosts
    hold(first, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
    allowed(second.register())
    allowed(second.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=0))
    _claim(second, Rtype.WRITE_EXCLUSIVE, [second.key], [second.key], "a Preempt with PRKEY 0")
    refused(first.write(), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-PREEMPT-KEY-0", kills=("preempt-zero-ignored",))
def test_a_preempt_of_key_0_is_refused_if_one_host_holds(hosts: Hosts) -> None:
    """Invalid Field in Command, and nothing changes."""
    first, second = hosts
    hold(first, Rtype.EXCLUSIVE_ACCESS)
    allowed(second.register())
    refused(second.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=0), StatusCode.INVALID_FIELD)
    assert first.report().rtype == Rtype.EXCLUSIVE_ACCESS, "8.1.24.7: a Preempt that is aborted takes nothing"


@pytest.mark.case("NVR-PREEMPT-IDLE", kills=("preempt-idle-ignored",))
def test_a_preempt_without_a_reservation_unregisters(hosts: Hosts) -> None:
    """No reservation is held: the registrants of the key are unregistered, and none is created."""
    first, second = hosts
    for host in hosts:
        allowed(host.register())
    allowed(first.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=second.key))
    _claim(first, 0, [first.key], [], "a Preempt without a reservation")
    allowed(second.write())


@pytest.mark.case("NVR-NOTICE-UNREG", section="Base 8.1.24.4", kills=("notice-of-unregister-lost",))
def test_registrants_are_notified_when_the_holder_unregisters(hosts: Hosts) -> None:
    """The released reservation was of a registrants only type."""
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    allowed(first.register(UNREGISTER, current=first.key))
    command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64)
    done = second.session.admin.run(command, reads=64)
    allowed(done)
    assert done.data[8] == RESERVATION_RELEASED, (
        f"8.1.24.4: the holder has unregistered, and the log page of a registrant has type {done.data[8]}, "
        "not 2, Reservation Released"
    )


ON_ANOTHER: dict[str, Callable[[ReservingHost], CommandResult]] = {
    "REGISTER": lambda host: host.register(),
    "REPLACE": lambda host: host.register(REPLACE, current=host.key, new=host.key + 1),
    "ACQUIRE": lambda host: host.acquire(Rtype.WRITE_EXCLUSIVE),
    "UNREGISTER": lambda host: host.register(UNREGISTER, current=host.key),
}
"""Commands of a registrant on another controller than that on which it has registered."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVR-CONTROLLER-{name}", kills=("registrant-of-controller",), builds_on=("NVR-REG-07",)))
    for name in ON_ANOTHER
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.3")
def test_a_host_is_a_registrant_on_each_of_its_controllers(hosts: Hosts, bench: Harness, name: str) -> None:
    """The same key may be registered again on another controller, and any other command uses it there."""
    first, _ = hosts
    allowed(first.register())
    session = bench.session(identity=first.session.identity, name="the registrant's other controller")
    other = ReservingHost(session, session.io_queue(), first.scratch, first.key)
    done = ON_ANOTHER[name](other)
    assert done.ok, (
        f"8.1.24.3: {name.capitalize()} by a registrant on another of its controllers ends with "
        f"{status_name(done.status)}"
    )
    key = first.key + 1 if name == "REPLACE" else first.key
    left = {one.key for one in first.report().registrants}
    assert left == (set() if name == "UNREGISTER" else {key}), (
        f"8.1.24.3: after {name.capitalize()} on another controller of the host the keys are {sorted(left)}"
    )
