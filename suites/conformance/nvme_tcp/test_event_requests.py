"""Several Asynchronous Event Requests: which of them an event, an Abort and the limit are of (Base 5.2.2)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession
from storagetest.wire.nvme_tcp.harness import EVENT_TYPES, refused, request_event, run_behind
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    ReservingHost,
    allowed,
    hold,
    read_notice,
)
from storagetest.wire.tcp import ResponseTimeout

from .test_event_masks import await_one

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.2", builds_on=("NVA-ABORT-02",)),
]

Hosts = tuple[ReservingHost, ReservingHost]

SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
"""A release of this type notifies the other registrants (Base 8.1.24.6)."""

REQUESTS = 3
"""Requests of a case, if AERL allows so many (chosen)."""

NOTICES = 8
"""Notifications that a case reads at most; it causes two (chosen)."""


def _waiting(session: ControllerSession, count: int) -> list[int]:
    """Submit ``count`` requests that wait for an event; return their CIDs."""
    return [request_event(session) for _ in range(count)]


def _aborted(session: ControllerSession, cid: int) -> None:
    """Abort a request; skip if the controller does not abort it."""
    done = session.admin.run(admin.abort(sqid=0, cid=cid))
    assert done.ok, f"5.2.1: Abort is not {status_name(done.status)}"
    if done.cqe.dw0 & 1:
        pytest.skip("the controller does not abort Asynchronous Event Requests")
    refused(session.admin.wait(cid), StatusCode.ABORTED_BY_REQUEST)


def _is_notice(done: CommandResult) -> bool:
    """Whether a request was completed with a Reservation Log Page Available event (5.2.2.1)."""
    assert done.ok, f"5.2.2: an Asynchronous Event Request ended with {status_name(done.status)}"
    return done.cqe.dw0 >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION


WHICH = {"FIRST": 0, "MIDDLE": 1, "LAST": 2}
"""Which of the requests is aborted."""


@pytest.mark.parametrize("which", [
    pytest.param(which, marks=pytest.mark.case(f"NVA-AER-LEFT-{which}", kills=("abort-ends-all-requests",)))
    for which in WHICH
])  # fmt: skip
def test_the_requests_that_are_not_aborted_stay(session: ControllerSession, which: str) -> None:
    """They are outstanding as before, and each of them is aborted after it.

    Abort is best effort (5.2.1): a request that it does not abort is claimed to be outstanding.
    """
    if session.controller["aerl"] + 1 < REQUESTS:
        pytest.skip(f"AERL allows {session.controller['aerl'] + 1} requests, not {REQUESTS}")
    cids = _waiting(session, REQUESTS)
    _aborted(session, cids.pop(WHICH[which]))
    run_behind(session)
    for at, cid in enumerate(cids, 1):
        status = session.admin.status_of(cid)
        assert status is None, (
            f"5.2.1: the {which.lower()} of {REQUESTS} event requests was aborted; request {at} of the "
            f"others ended with {status_name(status)}"
        )
    for at, cid in enumerate(cids, 1):
        done = session.admin.run(admin.abort(sqid=0, cid=cid))
        assert done.ok, f"5.2.1: Abort is not {status_name(done.status)}"
        if done.cqe.dw0 & 1:
            run_behind(session)
            status = session.admin.status_of(cid)
            assert status is None, (
                f"5.2.1: Abort of event request {at} states that it was not aborted; it ended with "
                f"{status_name(status)}"
            )
            pytest.skip(f"a second event request is not aborted (NVR-EVENT-LEFT-{which})")
        refused(session.admin.wait(cid), StatusCode.ABORTED_BY_REQUEST)


@pytest.mark.case("NVA-AER-ABORTED-ONE", kills=("abort-frees-every-request",), builds_on=("NVA-AER-01",))
def test_an_aborted_request_makes_room_for_one(session: ControllerSession) -> None:
    """As many requests wait as AERL allows; after one is aborted, one more is taken, and no second one."""
    limit = session.controller["aerl"] + 1
    cids = _waiting(session, limit)
    _aborted(session, cids[0])
    over = []
    for _ in range(2 + EVENT_TYPES):  # a controller may have an event to report, which ends a request
        cid = session.admin.submit(admin.async_event())
        run_behind(session)
        over.append(session.admin.status_of(cid))
        if over[-1] == StatusCode.AER_LIMIT_EXCEEDED:
            break
    waiting = limit - 1 + over.count(None)
    assert over[-1] == StatusCode.AER_LIMIT_EXCEEDED, (
        f"5.2.2: {waiting} event requests wait; AERL allows {limit}, of which one was aborted before"
    )
    assert waiting <= limit, (
        f"5.2.2: {waiting} event requests wait after one of {limit} was aborted; AERL allows {limit}"
    )


@pytest.mark.parametrize("which", [
    pytest.param(which, marks=pytest.mark.case(
        f"NVR-EVENT-LEFT-{which}", kills=("abort-loses-the-other-requests",)))
    for which in WHICH
])  # fmt: skip
@pytest.mark.case(builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"))
def test_an_event_completes_one_of_the_requests_that_are_left(hosts: Hosts, which: str) -> None:
    """One of several requests is aborted before the event: another one is completed with it."""
    first, second = hosts
    if second.session.controller["aerl"] + 1 < REQUESTS:
        pytest.skip(f"AERL allows {second.session.controller['aerl'] + 1} requests, not {REQUESTS}")
    hold(first, SHARED)
    allowed(second.register())
    cids = _waiting(second.session, REQUESTS)
    _aborted(second.session, cids.pop(WHICH[which]))
    allowed(first.release(SHARED))
    await_one(
        second.session.admin,
        cids,
        f"; the {which.lower()} of {REQUESTS} was aborted, and then a reservation was released",
    )


@pytest.mark.case(
    "NVR-EVENT-WAITED-ONCE",
    kills=("event-that-waited-again",),
    builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"),
)
def test_an_event_that_waited_for_a_request_is_reported_once(hosts: Hosts) -> None:
    """No request is outstanding when it comes; the next one is completed with it, and the one after it waits.

    After the log page was read, which clears the event, that request is completed with the next event.
    """
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    allowed(first.release(SHARED))
    queue = second.session.admin
    try:
        for _ in range(EVENT_TYPES):  # a controller may have other events to report
            if _is_notice(queue.wait(queue.submit(admin.async_event()))):
                break
    except ResponseTimeout:
        pytest.skip("an event that came while no request was outstanding is not reported (NVR-EVENT-KEPT)")
    for _ in range(EVENT_TYPES):
        cid = queue.submit(admin.async_event())
        run_behind(second.session)
        if queue.status_of(cid) is None:
            break
        assert not _is_notice(queue.wait(cid)), (
            "5.2.2: an event that had waited for a request was reported to two of them; its type is masked "
            "until the host clears the event"
        )
    for _ in range(NOTICES):
        if not read_notice(second)[0]:
            break
    run_behind(second.session)
    assert queue.status_of(cid) is None, (
        "5.2.2: an event was reported again by the read of its log page, which clears it"
    )
    allowed(first.acquire(SHARED))
    allowed(first.release(SHARED))
    await_one(queue, [cid], "; its type was cleared, and then a reservation was released")
