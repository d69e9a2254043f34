"""Reservations of two namespaces at a time: each is of its own namespace, whichever of them is named.

Both hosts register on both namespaces, by the same keys, and the first one holds each reservation. The
targets file allows it: ``more_namespaces`` names a second namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    offered_types,
    read_notice,
    require_type,
)
from storagetest.wire.nvme_tcp.session import Identity
from storagetest.wire.nvme_tcp.undo import undo_reservations

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]
Sides = tuple[Hosts, Hosts]

TYPE = Rtype.EXCLUSIVE_ACCESS
NEW_KEY = 0xC3
"""The key that a Replace registers (chosen)."""

NOTICES = 8
"""Notifications of earlier turns that a host may have, at most (chosen)."""

REGISTRATION_PREEMPTED = 1
"""Type of a Reservation Notification log page (5.2.12.1.35)."""


@pytest.fixture
def sides(
    hosts: Hosts, pair: tuple[Scratch, Scratch], bench: Harness, request: pytest.FixtureRequest
) -> Iterator[Sides]:
    """Yield the two hosts on each of two namespaces; no registrant is left on the second one."""
    other = pair[1]
    if not offered_types(other):
        pytest.skip(f"RESCAP: namespace {other.nsid} cannot be reserved")
    require_type(pair[0], TYPE)
    require_type(other, TYPE)
    before = hosts[0].report(other.nsid)
    if before.registrants:
        pytest.skip(f"another host is registered on namespace {other.nsid}")
    here = (replace(hosts[0], scratch=pair[0]), replace(hosts[1], scratch=pair[0]))
    there = (replace(hosts[0], scratch=other), replace(hosts[1], scratch=other))
    yield here, there

    bench.close()  # the undo needs controllers, of which there may be no more

    def connect(identity: Identity) -> ControllerSession:
        return bench.session(identity=identity, name="admin queue of the undo")

    identities = [host.session.identity for host in hosts]
    left = undo_reservations(connect, identities, other.nsid, persistence=before.persistence)
    if left:
        stop_run(
            request.config,
            f"namespace {other.nsid} of {bench.endpoint.subnqn}: its reservations cannot be undone after "
            f"{request.node.name} ({left}): clear them on the target, or restart it, and run again",
        )


def _prepare(*sides: Hosts) -> None:
    """Register both hosts on each namespace, and let the first one hold each reservation."""
    for first, second in sides:
        for host in (first, second):
            host.register(UNREGISTER, ignore=True)  # of an earlier turn
        hold(first, TYPE)
        allowed(second.register())


ACTIONS: dict[str, tuple[Callable[[Hosts], CommandResult], str]] = {
    "RELEASE": (lambda hosts: hosts[0].release(TYPE), "Base 8.1.24.6"),
    "CLEAR": (lambda hosts: hosts[0].release(TYPE, CLEAR), "Base 8.1.24.8"),
    "UNREGISTER": (lambda hosts: hosts[0].register(UNREGISTER, current=hosts[0].key), "Base 8.1.24.4"),
    "REPLACE": (lambda hosts: hosts[0].register(REPLACE, current=hosts[0].key, new=NEW_KEY), "Base 8.1.24.3"),
    "PREEMPT": (lambda hosts: hosts[1].acquire(TYPE, PREEMPT, victim=hosts[0].key), "Base 8.1.24.7"),
    "ABORT": (lambda hosts: hosts[1].acquire(TYPE, PREEMPT_ABORT, victim=hosts[0].key), "Base 8.1.24.7"),
}
"""By name: a command of one namespace that ends or changes registrations there, and its section."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVR-APART-{name}", section=section, kills=("reservations-end-together",)))
    for name, (_, section) in ACTIONS.items()
])  # fmt: skip
def test_what_ends_a_reservation_ends_that_of_its_own_namespace_alone(sides: Sides, name: str) -> None:
    """First on the one namespace, then on the other: the report of the other one is as before."""
    act, section = ACTIONS[name]
    for acted, other in (sides, sides[::-1]):
        _prepare(*sides)
        before, own = other[0].report(), acted[1].report()
        allowed(act(acted))
        after = other[0].report()
        assert after == before, (
            f"{section[5:]}: {name} of namespace {acted[0].nsid} succeeded; the report of namespace "
            f"{other[0].nsid} was {before}, and is {after}"
        )
        assert acted[1].report() != own, (
            f"{section[5:]}: {name} of namespace {acted[0].nsid} succeeded, and its report is as before"
        )


@pytest.mark.case("NVR-APART-EXCLUDES", section="Base 8.1.24.1", kills=("reservation-of-first-alone",))
def test_a_reservation_of_either_namespace_excludes_hosts_there(sides: Sides) -> None:
    """One namespace is reserved at a time: another host reads and writes the other one."""
    for reserved, other in (sides, sides[::-1]):
        hold(reserved[0], TYPE)
        for what, run in (("Read", ReservingHost.read), ("Write", ReservingHost.write)):
            done = run(reserved[1])
            assert done.status == StatusCode.RESERVATION_CONFLICT, (
                f"8.1.24.1: {what} of namespace {reserved[0].nsid} by another host ended with "
                f"{status_name(done.status)}; it is reserved, of type {int(TYPE)}"
            )
            done = run(other[1])
            assert done.ok, (
                f"8.1.24.1: {what} of namespace {other[0].nsid} by another host ended with "
                f"{status_name(done.status)}; namespace {reserved[0].nsid} is reserved, and not this one"
            )
        allowed(reserved[0].register(UNREGISTER, current=reserved[0].key))


@pytest.mark.case(
    "NVR-APART-ACQUIRE", section="Base 8.1.24.5", kills=("registrant-of-all-namespaces",), builds_on=HOLDING
)
def test_a_registrant_of_one_namespace_is_none_of_the_other(sides: Sides) -> None:
    """Acquire, Release and Unregister need a registration on the namespace that they name."""
    for registered, other in (sides, sides[::-1]):
        host, stranger = registered[0], other[0]
        allowed(host.register())
        for what, done in (
            ("Acquire", stranger.acquire(TYPE)),
            ("Release", stranger.release(TYPE)),
            ("Unregister", stranger.register(UNREGISTER, current=host.key)),
        ):
            assert done.status == StatusCode.RESERVATION_CONFLICT, (
                f"8.1.24: {what} of namespace {stranger.nsid} ended with {status_name(done.status)}; it "
                f"is a registrant of namespace {host.nsid} alone: Reservation Conflict"
            )
        allowed(host.register(UNREGISTER, current=host.key))


@pytest.mark.case(
    "NVR-NOTICE-APART",
    section="Base 5.2.12.1.35",
    kills=("notice-of-first-namespace",),
    builds_on=(*HOLDING, "NVR-NOTICE-CLEAR"),
)
def test_a_notification_names_the_namespace_of_its_reservation(sides: Sides) -> None:
    for first, second in sides:
        _prepare((first, second))
        for _ in range(NOTICES):
            if not read_notice(first)[0]:  # what an earlier turn has left
                break
        allowed(second.acquire(TYPE, PREEMPT, victim=first.key))
        kind, nsid = read_notice(first)
        assert (kind, nsid) == (REGISTRATION_PREEMPTED, first.nsid), (
            f"5.2.12.1.35: the registration of namespace {first.nsid} was preempted; the notification has "
            f"type {kind} and NSID {nsid:#x}"
        )
        refused(first.read(), StatusCode.RESERVATION_CONFLICT)
