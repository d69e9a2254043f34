"""What a reservation counts, keeps and notifies (Base 7.5 to 7.8, 8.1.24, 5.2.12.1.35)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.harness import Harness, is_within_reach, refused, request_event
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PERSIST_OFF,
    PERSIST_ON,
    PREEMPT,
    PREEMPT_ABORT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    read_notice,
    set_mask,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 7.8", builds_on=("NVR-REG-07",)),
]

REGISTRATION_PREEMPTED, RESERVATION_RELEASED, RESERVATION_PREEMPTED = 1, 2, 3
"""Types of the Reservation Notification log page (5.2.12.1.35)."""

MASK_ALL = 0b1110
"""Reservation Notification Mask: REGPRE, RESREL and RESPRE (5.2.26.1.33)."""


# The generation counter (7.8)


def _counted(host: ReservingHost, before: int, what: str) -> int:
    """The claim that GEN is one more than ``before``; return it."""
    now = host.report().generation
    assert now == (before + 1) % 2**32, f"7.8: GEN was {before}, and is {now} after {what}"
    return now


@pytest.mark.case("NVR-GEN-04", kills=("generation-replace", "generation-unregister"))
def test_the_generation_counts_replace_and_unregister(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    generation = first.report().generation
    allowed(first.register(REPLACE, current=first.key, new=0xC3))
    generation = _counted(first, generation, "Replace")
    allowed(first.register(REPLACE, current=0, new=0xD4, ignore=True))
    generation = _counted(first, generation, "Replace with IEKEY")
    allowed(first.register(UNREGISTER, current=0xD4))
    _counted(first, generation, "Unregister")


@pytest.mark.case("NVR-GEN-05", kills=("generation-preempt-abort",), builds_on=HOLDING)
def test_the_generation_counts_preempt_and_abort(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    generation = second.report().generation
    allowed(second.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT_ABORT, victim=first.key))
    _counted(second, generation, "Preempt and Abort")


@pytest.mark.case("NVR-REPORT-THREE", section="Base 7.8", kills=("report-two-registrants",))
def test_the_report_has_every_registrant(hosts: tuple[ReservingHost, ReservingHost], bench: Harness) -> None:
    """REGCTL counts the registered controllers of all hosts, and each has its data: of one host to three."""
    session = bench.session(name="third host's admin queue")
    third = ReservingHost(session, session.io_queue(), hosts[0].scratch, 0xC3)
    registered: list[int] = []
    try:
        for host in (*hosts, third):
            allowed(host.register())
            registered.append(host.key)
            found = host.report()
            assert sorted(one.key for one in found.registrants) == sorted(registered)
    finally:
        left = third.register(UNREGISTER, current=third.key)
    allowed(left)
    assert sorted(one.key for one in hosts[0].report().registrants) == sorted(registered[:2])


@pytest.mark.case(
    "NVR-PREEMPT-SAME-KEY",
    section="Base 8.1.24.7",
    kills=("preempt-first-of-key",),
    builds_on=("NVR-PREEMPT-04",),
)
def test_preempt_unregisters_every_registrant_of_the_key(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness
) -> None:
    """Two hosts have registered one key; the holder, of another key, preempts it."""
    first, second = hosts
    session = bench.session(name="third host's admin queue")
    third = ReservingHost(session, session.io_queue(), first.scratch, second.key)
    hold(first, Rtype.WRITE_EXCLUSIVE)
    try:
        for host in (second, third):
            allowed(host.register())
        found = sorted(one.key for one in first.report().registrants)
        assert found == sorted([first.key, second.key, second.key]), f"7.8: three registrants, not {found}"
        allowed(first.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=second.key))
        left = [one.key for one in first.report().registrants]
        assert left == [first.key], (
            f"8.1.24.7: registrants of the keys {[hex(key) for key in left]} are left after a Preempt of "
            f"{second.key:#x}, which two hosts had"
        )
        for host in (second, third):
            refused(host.register(REPLACE, current=host.key, new=0xD4), StatusCode.RESERVATION_CONFLICT)
    finally:
        third.register(UNREGISTER, current=third.key)


@pytest.mark.case("NVR-GEN-06", kills=("generation-failed",))
def test_the_generation_does_not_count_what_fails(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    before = first.report().generation
    refused(first.register(new=0xC3), StatusCode.RESERVATION_CONFLICT)
    refused(first.register(REPLACE, current=0xDEAD, new=0xC3), StatusCode.RESERVATION_CONFLICT)
    now = first.report().generation
    assert now == before, f"7.8: GEN was {before}, and is {now} after two commands that failed"


# Namespaces and hosts (8.1.24)


def _another(host: ReservingHost) -> int:
    """Return another active namespace without registrants; skip if there is none."""
    session = host.session
    for nsid in session.namespaces()[:8]:
        if nsid == host.nsid or not session.namespace(nsid)["rescap"]:
            continue
        status = host.report(nsid)
        if not status.registrants and not status.rtype:
            return nsid
    pytest.skip("no other namespace that can be reserved and is free")


@pytest.mark.case("NVR-OWN-REPORT", section="Base 8.1.24", kills=("report-of-all",), builds_on=HOLDING)
def test_a_registration_is_of_one_namespace(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    other = _another(first)
    before = first.report(other)
    hold(first, Rtype.WRITE_EXCLUSIVE)
    after = first.report(other)
    assert after == before, (
        f"8.1.24: namespace {first.nsid} was registered and acquired; the report of namespace {other} was "
        f"{before} and is {after}"
    )


@pytest.mark.case("NVR-OWN-READ", section="Base 8.1.24", kills=("reservation-of-all",), builds_on=HOLDING)
def test_a_reservation_excludes_hosts_from_its_namespace_alone(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    other = _another(first)
    size = second.session.namespace(other).block_size
    if not is_within_reach(second.session, second.queue, other, 0):
        pytest.skip(f"block 0 of namespace {other} is not read")
    hold(first, Rtype.EXCLUSIVE_ACCESS)
    refused(second.read(), StatusCode.RESERVATION_CONFLICT)
    done = second.queue.run(io.read(other, 0, 1), reads=size)
    assert done.ok, (
        f"8.1.24: namespace {first.nsid} is reserved; a read of namespace {other} ended with "
        f"{status_name(done.status)}"
    )


@pytest.mark.case(
    "NVR-HOST-CONTROLLERS", section="Base 8.1.24.1", kills=("reservation-of-controller",), builds_on=HOLDING
)
def test_a_reservation_is_the_hosts_on_each_controller(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness
) -> None:
    first, second = hosts
    hold(first, Rtype.EXCLUSIVE_ACCESS)
    session = bench.session(identity=first.session.identity, name="the holder's other controller")
    again = ReservingHost(session, session.io_queue(), first.scratch, first.key)
    allowed(again.read())
    allowed(again.write())
    refused(second.read(), StatusCode.RESERVATION_CONFLICT)


# Persist Through Power Loss (7.6)


@pytest.mark.case(
    "NVR-PTPL-01", section="Base 7.6", kills=("cptpl-ignored", "persistence-feature-0"), builds_on=()
)
def test_the_persist_state_is_set_and_cleared_by_register(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    if not first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: no Persist Through Power Loss")
    key = first.key
    for persist, state in ((PERSIST_ON, 1), (PERSIST_OFF, 0), (PERSIST_ON, 1)):
        allowed(first.register(REPLACE, current=key, new=key, ignore=True, persist=persist))
        seen = first.report().persistence
        assert seen == state, f"7.6: CPTPL was {persist:02b}b, but PTPLS is {seen}"
        feature = first.session.admin.run(
            admin.get_features(Feature.RESERVATION_PERSISTENCE, nsid=first.nsid)
        )
        allowed(feature)
        assert feature.cqe.dw0 & 1 == state, (
            f"5.2.26.1.34: PTPLS is {state}, but the feature is {feature.cqe.dw0 & 1}"
        )


@pytest.mark.case("NVR-PTPL-02", section="Base 7.6", kills=("cptpl-ignored",), builds_on=())
def test_the_persist_state_is_kept_by_a_register_that_does_not_change_it(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    if not first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: no Persist Through Power Loss")
    allowed(first.register(persist=PERSIST_ON))
    allowed(second.register())
    assert first.report().persistence == 1, "7.6: CPTPL 00b changes nothing, and PTPLS was 1"


@pytest.mark.case(
    "NVR-PTPL-LACKS", section="Base 7.6", level="SHOULD", kills=("rescap-lacks-persistence",), builds_on=()
)
def test_a_persist_state_that_is_not_supported_is_not_set(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Either a Register with CPTPL 11b is refused, or RESCAP states that reservations may persist."""
    first, _ = hosts
    if first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: Persist Through Power Loss is supported")
    done = first.register(persist=PERSIST_ON)
    if done.ok:
        seen = first.report().persistence
        pytest.fail(
            f"7.6: a Register with CPTPL 11b succeeded, and PTPLS is {seen}; RESCAP bit 0 is 0: reservations "
            "do not persist"
        )


# Notifications (8.1.24.6 to 8.1.24.8, 5.2.12.1.35)


def _event(host: ReservingHost, cid: int, what: str) -> None:
    event = host.session.admin.wait(cid).cqe.dw0
    assert event & 7 == 6, f"5.2.2: the event after {what} is {event:#x}: not an I/O command's"
    assert event >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION, f"5.2.2: the log page of {event:#x}"


NOTIFIED = ("notice-no-event", "notice-kind", "notice-nsid")


@pytest.mark.case("NVR-NOTICE-RELEASE", section="Base 8.1.24.6", kills=NOTIFIED, builds_on=HOLDING)
def test_registrants_are_notified_of_a_release(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    waiting = request_event(second.session)
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY))
    _event(second, waiting, "a release")
    assert read_notice(second) == (RESERVATION_RELEASED, second.nsid), (
        "5.2.12.1.35: the type of the notification (2h: Reservation Released) and its namespace"
    )


@pytest.mark.case("NVR-NOTICE-CLEAR", section="Base 8.1.24.8", kills=NOTIFIED, builds_on=HOLDING)
def test_registrants_are_notified_of_a_clear(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    waiting = request_event(second.session)
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))
    _event(second, waiting, "Clear")
    assert read_notice(second) == (RESERVATION_PREEMPTED, second.nsid), (
        "5.2.12.1.35: the type of the notification (3h: Reservation Preempted) and its namespace"
    )


@pytest.mark.case(
    "NVR-NOTICE-READ", section="Base 5.2.12.1.35", kills=("notice-stays",), builds_on=("NVR-NOTICE-CLEAR",)
)
def test_a_notification_is_read_once(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))
    assert read_notice(second)[0] == RESERVATION_PREEMPTED, "5.2.12.1.35: Clear notifies a registrant"
    kind, _ = read_notice(second)
    assert kind == 0, f"5.2.12.1.35: the one notification was read, but the log page has type {kind}h again"


@contextmanager
def _masked(host: ReservingHost, nsid: int) -> Iterator[None]:
    """Mask every notification of a namespace; afterwards none."""
    done = set_mask(host.session, nsid, MASK_ALL)
    assert done.ok, f"5.2.26.1.33: the mask is not set: {status_name(done.status)}"
    try:
        yield
    finally:
        done = set_mask(host.session, nsid, 0)
        assert done.ok, f"5.2.26.1.33: the mask is not cleared: {status_name(done.status)}"


@pytest.mark.case(
    "NVR-NOTICE-MASK",
    section="Base 5.2.26.1.33",
    kills=("notice-mask-ignored",),
    builds_on=("NVR-NOTICE-CLEAR",),
)
def test_a_masked_notification_is_not_sent(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    with _masked(second, second.nsid):
        hold(first, Rtype.WRITE_EXCLUSIVE)
        allowed(second.register())
        allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))
        kind, _ = read_notice(second)
    assert kind == 0, f"5.2.26.1.33: every notification is masked, but the log page has type {kind}h"


@pytest.mark.case(
    "NVR-NOTICE-MASK-OTHER",
    section="Base 5.2.26.1.33",
    kills=("notice-mask-of-other",),
    builds_on=("NVR-NOTICE-CLEAR",),
)
def test_the_mask_of_a_namespace_masks_no_other(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    others = [nsid for nsid in second.session.namespaces() if nsid != second.nsid]
    if not others:
        pytest.skip("the host has one namespace")
    for nsid in others:
        done = set_mask(second.session, nsid, 0)
        if not done.ok:
            pytest.skip(f"namespace {nsid} has no mask: {status_name(done.status)}")
    with ExitStack() as masks:
        for nsid in others:
            masks.enter_context(_masked(second, nsid))
        hold(first, Rtype.WRITE_EXCLUSIVE)
        allowed(second.register())
        allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))
        kind, nsid = read_notice(second)
    assert (kind, nsid) == (RESERVATION_PREEMPTED, second.nsid), (
        f"5.2.26.1.33: the masks of namespaces {others} are set, and the log page has type {kind}h of "
        f"namespace {nsid} after Clear of namespace {second.nsid}"
    )
