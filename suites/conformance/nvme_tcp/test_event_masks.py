"""Asynchronous events of one type: reported once, masked until the host clears them (Base 5.2.2, 5.2.12)."""

from __future__ import annotations

import time

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, LogPage, Rtype, status_name
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import request_event
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost, allowed, hold
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.2", builds_on=(*HOLDING, "NVR-NOTICE-RELEASE")),
]

SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
"""A release of this type notifies the other registrants (Base 8.1.24.6)."""

RESERVATION_RELEASED = 2
"""Type of a Reservation Notification log page (Base 5.2.12.1.35)."""

MOST = 8
"""Log pages that a case reads at most; it causes fewer (chosen)."""


def _page(host: ReservingHost, *, rae: int) -> int:
    """Read the Reservation Notification log page; return its type."""
    command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64, rae=rae)
    done = host.session.admin.run(command, reads=64)
    allowed(done)
    return done.data[8]


def _reported(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Cause an event of the second host, and receive it: a reservation of the first one is released."""
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    cid = request_event(second.session)
    allowed(first.release(SHARED))
    event = second.session.admin.wait(cid).cqe.dw0
    assert event & 7 == 6, f"5.2.2: the event after a release is {event:#x}: not an I/O command's"


def _release_again(host: ReservingHost) -> None:
    allowed(host.acquire(SHARED))
    allowed(host.release(SHARED))


def _get_features(host: ReservingHost, count: int) -> None:
    """Commands behind which an event that is reported already has come."""
    for _ in range(count):
        done = host.session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
        assert done.ok, f"5.2.11: not {status_name(done.status)}"


def await_one(queue: Queue, cids: list[int], circumstance: str = "") -> None:
    """Wait until an event has completed one of the requests ``cids``."""
    until = time.monotonic() + queue.deadline
    while all(queue.status_of(cid) is None for cid in cids):
        assert time.monotonic() < until, (
            f"5.2.2: no event completes any of {len(cids)} requests{circumstance}"
        )
        assert queue.run(admin.keep_alive()).ok, "5.2.14: Keep Alive"
        time.sleep(queue.deadline / 50)


def _not_reported(host: ReservingHost, cid: int, why: str) -> None:
    """Claim that the request is outstanding after two more commands."""
    _get_features(host, 2)
    assert host.session.admin.status_of(cid) is None, (
        f"5.2.2: a second event of the type was reported {why}; a type that was reported is masked until "
        "the host clears the event"
    )


@pytest.mark.case("NVR-EVENT-MASKED", kills=("event-unmasked",))
def test_a_second_event_of_a_type_is_masked(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    _reported(hosts)
    first, second = hosts
    cid = second.session.admin.submit(admin.async_event())
    _release_again(first)
    _not_reported(second, cid, "before its log page was read")


@pytest.mark.case("NVR-EVENT-RETAINED", section="Base 5.2.12", kills=("rae-ignored",))
def test_an_event_is_retained_by_a_read_with_rae(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    _reported(hosts)
    first, second = hosts
    cid = second.session.admin.submit(admin.async_event())
    for _ in range(2):
        assert _page(second, rae=1) in (RESERVATION_RELEASED, 0)  # whether the page stays is the controller's
    _release_again(first)
    _not_reported(second, cid, "after its log page was read with RAE set to 1")


@pytest.mark.parametrize("before", [
    pytest.param(0, marks=pytest.mark.case(
        "NVR-EVENT-CLEARED", kills=("rae-forced", "event-masked-for-good"))),
    pytest.param(1, marks=pytest.mark.case("NVR-EVENT-CLEARED-LATER", kills=("rae-forced", "rae-kept"))),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12")
def test_an_event_is_cleared_by_a_read_without_rae(
    hosts: tuple[ReservingHost, ReservingHost], before: int
) -> None:
    """The next event is reported; ``before`` is how many reads with RAE set to 1 come first."""
    _reported(hosts)
    first, second = hosts
    for _ in range(before):
        _page(second, rae=1)
    left = [_page(second, rae=0) for _ in range(MOST)]
    assert left[-1] == 0, f"5.2.12.1.35: one release has left {MOST} log pages of types {left}"
    cid = second.session.admin.submit(admin.async_event())
    _release_again(first)
    try:
        event = second.session.admin.wait(cid).cqe.dw0
    except ResponseTimeout:
        pytest.fail(
            "5.2.12: no event is reported any more: the type stays masked, although its log page was read "
            f"with RAE 0 (after {before} reads with RAE 1)"
        )
    assert event >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION, (
        f"5.2.2: the event after the first one was cleared is {event:#x}"
    )


@pytest.mark.case(
    "NVR-EVENT-AFTER-RESET", level="SHOULD", section="Base 3.7.2", kills=("event-mask-outlives-reset",)
)
def test_a_reset_ends_the_mask_of_an_event(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """A reset brings the controller to its initial state; no sentence of 5.2.2 names the masks of events."""
    _reported(hosts)
    first, second = hosts
    second.session.disable()
    second.session.enable()
    cid = request_event(second.session)
    _release_again(first)
    try:
        second.session.admin.wait(cid)
    except ResponseTimeout:
        pytest.fail("3.7.2: an event type that was reported before a reset is still masked after it")


@pytest.mark.case("NVR-EVENT-LIMIT", kills=("event-lost-after-limit",), builds_on=("NVA-AER-02",))
def test_an_event_is_reported_after_one_request_too_many(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """A request over AERL is refused; the others are outstanding, and an event completes one of them."""
    first, second = hosts
    queue = second.session.admin
    hold(first, SHARED)
    allowed(second.register())
    more = second.session.controller["aerl"]
    cids = [request_event(second.session), *(queue.submit(admin.async_event()) for _ in range(more))]
    assert not queue.run(admin.async_event()).ok, "5.2.2: a request over AERL"
    allowed(first.release(SHARED))
    await_one(queue, cids, ", after another one was refused (Asynchronous Event Request Limit Exceeded)")
    ended = [status_name(status) for cid in cids if (status := queue.status_of(cid))]
    assert not ended, f"5.2.2: requests within AERL ended with {ended}"


@pytest.mark.case("NVR-EVENT-ONE", kills=("event-completes-all",))
def test_an_event_completes_one_request(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Two requests are outstanding, and one event is reported."""
    first, second = hosts
    if second.session.controller["aerl"] < 1:
        pytest.skip("AERL: the controller takes one Asynchronous Event Request")
    hold(first, SHARED)
    allowed(second.register())
    cids = [request_event(second.session), second.session.admin.submit(admin.async_event())]
    allowed(first.release(SHARED))
    await_one(second.session.admin, cids)
    _get_features(second, 3)
    ended = [cid for cid in cids if second.session.admin.status_of(cid) is not None]
    assert len(ended) < len(cids), "5.2.2: one event has completed both of the outstanding requests"
