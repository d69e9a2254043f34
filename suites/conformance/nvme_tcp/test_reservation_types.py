"""Each type of reservation: its end, its notifications, and what a Preempt makes of it (Base 8.1.24)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    read_notice,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.1", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

NONE, RELEASED, PREEMPTED = 0, 2, 3
"""Types of a Reservation Notification log page: an empty one, Reservation Released, Reservation Preempted
(5.2.12.1.35)."""

SHORT = dict(zip(Rtype, ("WE", "EA", "WERO", "EARO", "WEAR", "EAAR"), strict=True))
ONE_HOLDER = [rtype for rtype in Rtype if not rtype.all_hold]
ACTIONS = {"PREEMPT": PREEMPT, "ABORT": PREEMPT_ABORT}


def _claim(host: ReservingHost, rtype: int, registered: list[int], holding: list[int], after: str) -> None:
    """Claim what the report of ``host`` has: the type, the keys of the registrants and of the holders."""
    status = host.report()
    found = status.rtype, sorted(one.key for one in status.registrants)
    held = sorted(one.key for one in status.registrants if one.holds)
    assert (*found, held) == (rtype, sorted(registered), sorted(holding)), (
        f"8.1.24: after {after} the reservation has type {found[0]}, the registrants' keys are {found[1]}, "
        f"and those of {held} hold it; required are type {int(rtype)}, {registered} and {holding}"
    )


def _free(hosts: Hosts, after: str) -> None:
    """Claim that no host is excluded."""
    for name, host in zip(("first", "second"), hosts, strict=True):
        for done in (host.read(), host.write()):
            assert done.ok, f"8.1.24.1: after {after} the {name} host ends with {status_name(done.status)}"


@pytest.fixture
def third(hosts: Hosts, bench: Harness) -> Iterator[ReservingHost]:
    """Yield a third host that has registered; it is none of the registrants at the end."""
    session = bench.session(name="third host's admin queue")
    host = ReservingHost(session, session.io_queue(), hosts[0].scratch, 0xC3)
    allowed(host.register())
    try:
        yield host
    finally:
        host.register(UNREGISTER, current=host.key)


# The end of a reservation


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-TYPE-RELEASE-{name}", kills=("release-ignored",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.6")
def test_a_release_ends_a_reservation_of_each_type(hosts: Hosts, rtype: Rtype) -> None:
    """The registrants stay."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(first.release(rtype))
    _claim(second, 0, [first.key, second.key], [], "a Release")
    _free(hosts, "a Release")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-TYPE-RELEASE-OTHER-{SHORT[rtype]}", kills=("release-of-first-only",)))
    for rtype in Rtype if rtype.all_hold
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.6")
def test_each_registrant_releases_a_reservation_that_all_hold(hosts: Hosts, rtype: Rtype) -> None:
    """Also one that has not acquired it."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(second.release(rtype))
    _claim(first, 0, [first.key, second.key], [], "a Release by a registrant that has not acquired it")
    _free(hosts, "a Release")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-TYPE-OTHER-{name}", kills=("release-type",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 7.7", level="SHOULD")
def test_a_release_of_each_other_type_is_refused(hosts: Hosts, rtype: Rtype) -> None:
    """RTYPE is another one than that of the reservation: it stays."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    before = second.report()
    for other in (0, *Rtype, 7, 0xFF):
        if other == rtype:
            continue
        done = first.release(other)
        assert done.status == StatusCode.INVALID_FIELD, (
            f"7.7: a Release of type {int(other)}, of a reservation of type {int(rtype)}, ended with "
            f"{status_name(done.status)}; required: INVALID_FIELD (0h/02h)"
        )
        after = second.report()
        assert after == before, (
            f"8.1.24.6: after a Release of type {int(other)}, which is refused, the report is {after}; it "
            f"was {before}"
        )


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-TYPE-UNREG-{SHORT[rtype]}", kills=("reservation-outlives",)))
    for rtype in ONE_HOLDER
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.4")
def test_a_reservation_of_one_holder_ends_with_its_registration(hosts: Hosts, rtype: Rtype) -> None:
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(first.register(UNREGISTER, current=first.key))
    _claim(second, 0, [second.key], [], "Unregister by the holder")
    _free(hosts, "Unregister by the holder")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-TYPE-LEAVE-{SHORT[rtype]}", kills=("unregister-frees",)))
    for rtype in ONE_HOLDER
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.4")
def test_a_reservation_stays_when_another_registrant_leaves(hosts: Hosts, rtype: Rtype) -> None:
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(second.register(UNREGISTER, current=second.key))
    _claim(first, rtype, [first.key], [first.key], "Unregister by another host than the holder")
    refused(second.write(), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-TYPE-CLEAR-{name}", kills=("clear-ignored",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.8")
def test_any_registrant_clears_a_reservation_of_each_type(hosts: Hosts, rtype: Rtype) -> None:
    """It is another registrant than the host that has acquired it, which is notified."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(second.release(rtype, CLEAR))
    _claim(second, 0, [], [], "Clear")
    _free(hosts, "Clear")
    found = read_notice(first)
    assert found == (PREEMPTED, first.nsid), (
        f"8.1.24.8: another host has cleared a reservation, and the log page of its holder has type "
        f"{found[0]} of namespace {found[1]}; 3, Reservation Preempted, of {first.nsid} is required"
    )


# Acquire, and Preempt


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-TYPE-AGAIN-{name}", kills=("reservation-stolen",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.5")
def test_a_holder_acquires_the_same_type_and_no_other(hosts: Hosts, rtype: Rtype) -> None:
    first, _ = hosts
    hold(first, rtype)
    for other in first.types:
        done = first.acquire(other)
        wanted = StatusCode.SUCCESS if other == rtype else StatusCode.RESERVATION_CONFLICT
        assert done.status == wanted, (
            f"8.1.24.5: the holder of a reservation of type {int(rtype)} acquires one of type {int(other)}: "
            f"{status_name(done.status)}; required: {status_name(wanted)}"
        )
        _claim(first, rtype, [first.key], [first.key], f"an Acquire of type {int(other)} by the holder")


@pytest.mark.parametrize(("rtype", "action"), [
    pytest.param(rtype, action, marks=pytest.mark.case(
        f"NVR-TYPE-{name}-{short}", kills=("preempt-other-type",),
        builds_on=(*HOLDING, "NVR-PREEMPT-ALL") if rtype.all_hold else HOLDING))
    for rtype, short in SHORT.items() for name, action in ACTIONS.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.7")
def test_a_preempt_makes_each_type_of_each_other(hosts: Hosts, rtype: Rtype, action: int) -> None:
    """The holder, or all holders, are preempted; the host that preempts holds alone, of its RTYPE."""
    first, second = hosts
    for other in first.types:
        hold(first, rtype)
        allowed(second.register())
        done = second.acquire(other, action, victim=0 if rtype.all_hold else first.key)
        what = f"a Preempt of type {int(rtype)} by one of type {int(other)}"
        assert done.ok, f"8.1.24.7: {what} ended with {status_name(done.status)}"
        _claim(second, other, [second.key], [second.key], what)
        allowed(second.write())
        refused(first.write(), StatusCode.RESERVATION_CONFLICT)
        if other.reads_too:
            refused(first.read(), StatusCode.RESERVATION_CONFLICT)
        else:
            allowed(first.read())
        allowed(second.release(other, CLEAR))


# Notifications


def _notified(host: ReservingHost, wanted: int, what: str, section: str) -> None:
    """Claim the type of the notification that ``host`` reads; it is of its namespace."""
    kind, nsid = read_notice(host)
    required = (wanted, host.nsid if wanted else 0)
    assert (kind, nsid) == required, (
        f"{section}: {what}; the log page of another registrant has type {kind} of namespace {nsid}, "
        f"required are {required[0]} and {required[1]}"
    )


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-NOTICE-RELEASE-{name}",
        kills=("notice-of-type-lost",) if rtype.registrants else ("notice-of-any-type",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.6", builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"))
def test_a_release_notifies_registrants_by_the_type(hosts: Hosts, rtype: Rtype) -> None:
    """Of Write Exclusive and Exclusive Access, a registrant has no more access than any other host."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(first.release(rtype))
    wanted = RELEASED if rtype.registrants else NONE
    _notified(second, wanted, f"a reservation of type {int(rtype)} was released", "8.1.24.6")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-NOTICE-UNREG-{name}",
        kills=("notice-of-type-lost",) if rtype in (3, 4) else ("notice-of-any-type",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.4", builds_on=(*HOLDING, "NVR-NOTICE-UNREG"))
def test_an_unregister_of_the_holder_notifies_registrants_by_the_type(hosts: Hosts, rtype: Rtype) -> None:
    """If all registrants hold, the reservation is not released: another registrant is left."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    allowed(first.register(UNREGISTER, current=first.key))
    wanted = RELEASED if rtype.registrants and not rtype.all_hold else NONE
    _notified(second, wanted, f"the holder of type {int(rtype)} has unregistered", "8.1.24.4")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-NOTICE-THIRD-{SHORT[rtype]}", kills=("notice-of-preempt-lost",)))
    for rtype in ONE_HOLDER
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.7", builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"))
def test_a_preempt_to_another_type_notifies_the_registrants_that_stay(
    hosts: Hosts, third: ReservingHost, rtype: Rtype
) -> None:
    """One of them preempts the holder: for the others, its reservation was released."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    other = Rtype.WRITE_EXCLUSIVE if rtype != Rtype.WRITE_EXCLUSIVE else Rtype.EXCLUSIVE_ACCESS
    allowed(second.acquire(other, PREEMPT, victim=first.key))
    _claim(second, other, [second.key, third.key], [second.key], "a Preempt of one of three registrants")
    what = f"type {int(rtype)} was preempted by type {int(other)}"
    _notified(third, RELEASED, what, "8.1.24.7")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-NOTICE-SELF-{SHORT[rtype]}", kills=("notice-of-preempt-lost",)))
    for rtype in ONE_HOLDER
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.7", builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"))
def test_a_holder_that_takes_another_type_notifies_the_registrants(hosts: Hosts, rtype: Rtype) -> None:
    """The holder preempts its own reservation."""
    first, second = hosts
    hold(first, rtype)
    allowed(second.register())
    other = Rtype.WRITE_EXCLUSIVE if rtype != Rtype.WRITE_EXCLUSIVE else Rtype.EXCLUSIVE_ACCESS
    allowed(first.acquire(other, PREEMPT, victim=first.key))
    what = f"the holder of type {int(rtype)} has preempted itself to type {int(other)}"
    _notified(second, RELEASED, what, "8.1.24.7")
