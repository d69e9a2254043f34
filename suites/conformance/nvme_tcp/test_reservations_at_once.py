"""Reservation commands of two hosts that are outstanding together: one comes first (Base 8.1.24)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp.pdu import R2T
from storagetest.wire.nvme_tcp.reservation_harness import (
    ACQUIRE,
    HOLDING,
    PREEMPT,
    ReservingHost,
    allowed,
    require_type,
)
from storagetest.wire.tcp import ResponseTimeout

from .test_pending_writes import asked_for, complete

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.5", builds_on=(*HOLDING, "NVT-ASKED-RESERVE")),
]

Hosts = tuple[ReservingHost, ReservingHost]

TYPE = Rtype.EXCLUSIVE_ACCESS
TURNS = 2
"""Turns of a case: the data of either host come first (chosen)."""


def _asked(host: ReservingHost, action: int, victim: int) -> tuple[R2T, bytes]:
    """Submit an Acquire without its keys; return the R2T that asks for them, and the keys.

    A target that serves one reservation command at a time may ask for the keys of the second one later.
    """
    keys = io.keys(host.key, victim)
    try:
        return asked_for(host.queue, io.acquire(host.nsid, action, TYPE), keys), keys
    except ResponseTimeout:
        pytest.skip("the controller asks for the keys of one host at a time")


def _together(hosts: Hosts, action: int, turn: int) -> list[Cqe]:
    """Let both hosts acquire or preempt, and send the keys of both; return the completions by host."""
    victims = (hosts[1].key, hosts[0].key) if action == PREEMPT else (0, 0)
    waiting = [_asked(host, action, victim) for host, victim in zip(hosts, victims, strict=True)]
    done: dict[int, Cqe] = {}
    for number in (0, 1) if turn else (1, 0):
        r2t, keys = waiting[number]
        done[number] = complete(hosts[number].queue, r2t, keys)
    return [done[0], done[1]]


@pytest.mark.parametrize(("name", "action"), [
    pytest.param("Acquire", ACQUIRE, marks=pytest.mark.case(
        "NVR-TOGETHER-ACQUIRE", kills=("reservations-race",))),
    pytest.param("Preempt", PREEMPT, marks=pytest.mark.case(
        "NVR-TOGETHER-PREEMPT", section="Base 8.1.24.7", kills=("reservations-race",))),
])  # fmt: skip
def test_one_of_two_hosts_that_reserve_together_holds(hosts: Hosts, name: str, action: int) -> None:
    """Both commands are outstanding before the keys of either come: one succeeds, the other conflicts."""
    require_type(hosts[0].scratch, TYPE)
    for turn in range(TURNS):
        for host in hosts:
            host.register(1, ignore=True)  # of an earlier turn
            allowed(host.register())
        if action == PREEMPT:
            allowed(hosts[turn].acquire(TYPE))
        done = _together(hosts, action, turn)
        won = [host for host, cqe in zip(hosts, done, strict=True) if cqe.ok]
        ended = [status_name(cqe.status) for cqe in done]
        assert len(won) == 1, (
            f"8.1.24: {name}s of two hosts that were outstanding together ended with {ended}"
        )
        lost = next(cqe for cqe in done if not cqe.ok)
        assert lost.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24: {name}s of two hosts that were outstanding together ended with {ended}; the one that "
            "does not hold is a conflict"
        )
        holders = [one.key for one in hosts[0].report().registrants if one.holds]
        assert holders == [won[0].key], (
            f"8.1.24: {name} of the host with key {won[0].key:#x} succeeded; holders are {holders}"
        )
