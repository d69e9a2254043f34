"""Reservation commands that are refused, and hosts that are not notified (Base 7.5 to 7.7, 8.1.24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme.structures import ReservationStatus
from storagetest.wire.nvme_tcp import CommandResult
from storagetest.wire.nvme_tcp.harness import EVENT_TYPES, refused, request_event
from storagetest.wire.nvme_tcp.reservation_harness import (
    ACQUIRE,
    CLEAR,
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    RELEASE,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    kept_masks,
    mask_of,
    read_notice,
    require_type,
    set_mask,
)
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]
Uses = Callable[[ReservingHost, ReservingHost], CommandResult]
"""A command of the second host, on a namespace that the first one holds."""

HELD = Rtype.WRITE_EXCLUSIVE
SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
WRONG = 0xBAD0


def _acquire(action: int, rtype: int = HELD, *, ignore: bool = False, key: int | None = None) -> Uses:
    def use(holder: ReservingHost, host: ReservingHost) -> CommandResult:
        require_type(host.scratch, rtype)
        command = io.acquire(host.nsid, action, rtype, ignore=ignore)
        return host.queue.run(command, data=io.keys(host.key if key is None else key, holder.key))

    return use


def _release(action: int, *, ignore: bool = False, key: int | None = None) -> Uses:
    def use(_: ReservingHost, host: ReservingHost) -> CommandResult:
        command = io.release(host.nsid, action, HELD, ignore=ignore)
        return host.queue.run(command, data=io.keys(host.key if key is None else key)[:8])

    return use


def _unchanged(first: ReservingHost, before: ReservationStatus, what: str) -> None:
    after = first.report()
    assert after == before, f"8.1.24: after {what}, which is refused, the report is {after}; it was {before}"


@pytest.mark.parametrize(("use", "what"), [
    pytest.param(_acquire(PREEMPT), "Preempt", marks=pytest.mark.case(
        "NVR-STRANGER-PREEMPT", section="Base 8.1.24.7", kills=("stranger-preempts",))),
    pytest.param(_acquire(PREEMPT_ABORT), "Preempt and Abort", marks=pytest.mark.case(
        "NVR-STRANGER-ABORT", section="Base 8.1.24.7", kills=("stranger-preempts",))),
    pytest.param(_release(RELEASE), "Release", marks=pytest.mark.case(
        "NVR-STRANGER-RELEASE", section="Base 8.1.24.6", kills=("stranger-releases",))),
    pytest.param(_release(CLEAR), "Clear", marks=pytest.mark.case(
        "NVR-STRANGER-CLEAR", section="Base 8.1.24.8", kills=("stranger-releases",))),
    pytest.param(
        lambda _, host: host.register(UNREGISTER, current=host.key, new=0), "Unregister",
        marks=pytest.mark.case(
            "NVR-STRANGER-UNREG", section="Base 8.1.24.4", kills=("stranger-unregisters",))),
])  # fmt: skip
def test_a_host_that_is_no_registrant_is_refused(hosts: Hosts, use: Uses, what: str) -> None:
    """It uses a key of its own, which is not registered, and then that of the holder."""
    first, second = hosts
    hold(first, HELD)
    before = first.report()
    for host in (second, replace(second, key=first.key)):
        refused(use(first, host), StatusCode.RESERVATION_CONFLICT)
        _unchanged(first, before, f"{what} by a host that is no registrant, with key {host.key:#x}")


@pytest.mark.parametrize(("use", "what"), [
    pytest.param(_acquire(PREEMPT, key=WRONG), "Preempt", marks=pytest.mark.case(
        "NVR-WRONG-KEY-PREEMPT", section="Base 8.1.24.7", kills=("preempt-key-unchecked",))),
    pytest.param(_acquire(PREEMPT_ABORT, key=WRONG), "Preempt and Abort", marks=pytest.mark.case(
        "NVR-WRONG-KEY-ABORT", section="Base 8.1.24.7", kills=("preempt-key-unchecked",))),
    pytest.param(_release(CLEAR, key=WRONG), "Clear", marks=pytest.mark.case(
        "NVR-WRONG-KEY-CLEAR", section="Base 8.1.24.8", kills=("clear-key-unchecked",))),
])  # fmt: skip
def test_a_registrant_with_another_key_is_refused(hosts: Hosts, use: Uses, what: str) -> None:
    first, second = hosts
    hold(first, HELD)
    allowed(second.register())
    before = first.report()
    refused(use(first, second), StatusCode.RESERVATION_CONFLICT)
    _unchanged(first, before, f"{what} with key {WRONG:#x}, which the host has not registered")


@pytest.mark.parametrize(("use", "what"), [
    pytest.param(_acquire(ACQUIRE, ignore=True), "Acquire", marks=pytest.mark.case(
        "NVR-IEKEY-ACQUIRE", section="Base 7.5")),
    pytest.param(_acquire(PREEMPT, ignore=True), "Preempt", marks=pytest.mark.case(
        "NVR-IEKEY-PREEMPT", section="Base 7.5")),
    pytest.param(_release(RELEASE, ignore=True), "Release", marks=pytest.mark.case(
        "NVR-IEKEY-RELEASE", section="Base 7.7")),
    pytest.param(_release(CLEAR, ignore=True), "Clear", marks=pytest.mark.case(
        "NVR-IEKEY-CLEAR", section="Base 7.7")),
])  # fmt: skip
@pytest.mark.case(kills=("iekey-taken",))
def test_the_existing_key_is_not_ignored(hosts: Hosts, use: Uses, what: str) -> None:
    """IEKEY set to 1 is an Invalid Field of every command but Register. The key itself is right."""
    first, second = hosts
    allowed(second.register())
    if what != "Acquire":
        hold(first, HELD)
    before = second.report()
    refused(use(first, second), StatusCode.INVALID_FIELD)
    _unchanged(second, before, f"{what} with IEKEY")


@pytest.mark.parametrize("action", [
    pytest.param(PREEMPT, marks=pytest.mark.case("NVR-PREEMPT-RTYPE")),
    pytest.param(PREEMPT_ABORT, marks=pytest.mark.case("NVR-PREEMPT-ABORT-RTYPE")),
])  # fmt: skip
@pytest.mark.case(section="Base 7.5", kills=("preempt-rtype-unchecked",))
def test_a_preempt_to_a_type_that_does_not_exist_is_refused(hosts: Hosts, action: int) -> None:
    first, second = hosts
    hold(first, HELD)
    allowed(second.register())
    before = first.report()
    for rtype in (0, 7, 0xFF):
        refused(_acquire(action, rtype)(first, second), StatusCode.INVALID_FIELD)
        _unchanged(first, before, f"a Preempt with type {rtype:02x}h")


@pytest.mark.parametrize(("ends", "what"), [
    pytest.param(lambda first, _: first.release(SHARED), "Release", marks=pytest.mark.case(
        "NVR-NOTICE-OWN-RELEASE", section="Base 8.1.24.6")),
    pytest.param(lambda first, _: first.release(SHARED, CLEAR), "Clear", marks=pytest.mark.case(
        "NVR-NOTICE-OWN-CLEAR", section="Base 8.1.24.8")),
    pytest.param(
        lambda first, second: first.acquire(SHARED, PREEMPT, victim=second.key), "Preempt",
        marks=pytest.mark.case("NVR-NOTICE-OWN-PREEMPT", section="Base 8.1.24.7")),
])  # fmt: skip
@pytest.mark.case(kills=("notice-to-itself",), builds_on=("NVR-NOTICE-CLEAR",))
def test_a_host_is_not_notified_of_its_own_command(hosts: Hosts, ends: Uses, what: str) -> None:
    """The other registrant is; the host itself knows."""
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    cid = request_event(first.session)
    allowed(ends(first, second))
    if not read_notice(second)[0]:
        pytest.skip(f"the other registrant is not notified of {what} (NVR-NOTICE-*)")
    found = read_notice(first)[0]
    event = first.session.admin.status_of(cid)
    assert (found, event) == (0, None), (
        f"8.1.24: the host that has sent {what} has a notification of type {found}, and an event "
        f"{'was' if event is not None else 'was not'} reported to it; the other registrants are notified"
    )


@pytest.mark.case(
    "NVR-EVENT-KEPT",
    section="Base 5.2.2",
    level="SHOULD",
    kills=("event-lost-unasked",),
    builds_on=("NVR-NOTICE-RELEASE",),
)
def test_an_event_waits_for_a_request(hosts: Hosts) -> None:
    """No request is outstanding when the event comes: the next one is completed with it.

    A controller may report one event of each other type before it.
    """
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    allowed(first.release(SHARED))
    queue = second.session.admin
    for _ in range(EVENT_TYPES):
        try:
            done = queue.wait(queue.submit(admin.async_event()))
        except ResponseTimeout:
            break
        if done.cqe.dw0 >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION:
            return
    pytest.fail("5.2.2: an event that came while no request was outstanding is not reported to the next")


@pytest.mark.case("NVR-MASK-RESET", section="Base 4.4", level="SHOULD", kills=("reset-keeps-82h",))
def test_the_notification_mask_ends_with_a_reset(hosts: Hosts) -> None:
    """It was set without Save, twice."""
    first, _ = hosts
    before = mask_of(first.session, first.nsid)
    with kept_masks(first.session, first.nsid):
        for number in (1, 2):
            done = set_mask(first.session, first.nsid, before ^ 0b110)
            assert done.ok, f"5.2.26.1.33: the mask is not set: {status_name(done.status)}"
            first.session.disable()
            first.session.enable()
            found = mask_of(first.session, first.nsid)
            assert found == before, (
                f"4.4: the mask is {found:#x} after reset {number}; it was {before:#x} before it was set to "
                f"{before ^ 0b110:#x} without Save"
            )


# Ignore Existing Key of Register (7.6)


@pytest.mark.case(
    "NVR-IGNORE-UNREGISTER",
    section="Base 7.6",
    kills=("unregister-iekey-ignored",),
    builds_on=("NVR-REG-04",),
)
def test_ignore_existing_key_unregisters_unseen(hosts: Hosts) -> None:
    """With IEKEY 1 the current key is not checked, and an Unregister succeeds whatever CRKEY is."""
    first, second = hosts
    for current in (WRONG, 0, second.key):
        allowed(first.register())
        allowed(second.register())
        done = first.register(UNREGISTER, current=current, new=0, ignore=True)
        found = [one.key for one in first.report().registrants]
        assert done.ok, f"7.6: Unregister with IEKEY 1 and CRKEY {current:#x} is {status_name(done.status)}"
        assert found == [second.key], (
            f"7.6: the first host has unregistered with IEKEY 1 and CRKEY {current:#x}; the keys are {found}"
        )


@pytest.mark.case("NVR-IGNORE-NEW", level="SHOULD", section="Base 8.1.24.3", kills=("iekey-of-registrants",))
def test_a_replace_that_ignores_the_key_registers_a_new_host(hosts: Hosts) -> None:
    """A host may replace its key without regard to its registration status by setting IEKEY."""
    first, second = hosts
    allowed(first.register())
    done = second.register(REPLACE, current=0, new=second.key, ignore=True)
    assert done.ok, (
        f"8.1.24.3: Replace with IEKEY 1 by a host that is no registrant: {status_name(done.status)}"
    )
    found = sorted(one.key for one in first.report().registrants)
    assert found == sorted((first.key, second.key)), f"8.1.24.3: after that Replace the keys are {found}"
