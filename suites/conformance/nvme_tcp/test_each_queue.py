"""What one queue of a host has changed holds for each queue of each host (Base 8.1.24)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import block_data
from storagetest.wire.nvme_tcp.queue import CommandResult
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.1", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

QUEUES = 4
"""I/O queues of a host, if the controller grants as many (chosen)."""


def _more(host: ReservingHost) -> list[Queue]:
    """Connect more I/O queues of a host; return all of them. Skip if the controller grants one."""
    granted = host.session.io_queues_granted
    if granted < 2:
        pytest.skip("the controller grants one I/O queue")
    more = [host.session.io_queue() for _ in range(min(granted, QUEUES) - 1)]
    return [host.queue, *more]


def _write(host: ReservingHost, queue: Queue) -> CommandResult:
    scratch = host.scratch
    return queue.run(io.write(host.nsid, scratch.lba, 1), data=block_data(scratch.block_size, 961))


def _read(host: ReservingHost, queue: Queue) -> CommandResult:
    return queue.run(io.read(host.nsid, host.scratch.lba, 1), reads=host.scratch.block_size)


def _each_writes(host: ReservingHost, queues: list[Queue], why: str) -> None:
    for number, queue in enumerate(queues, 1):
        done = _write(host, queue)
        assert done.ok, (
            f"8.1.24: a write on I/O queue {number} of {len(queues)} is {status_name(done.status)} {why}"
        )


def _each_excluded(
    host: ReservingHost, queues: list[Queue], why: str, *, from_number: int = 1, reads: bool = False
) -> None:
    conflict = StatusCode.RESERVATION_CONFLICT
    for number, queue in enumerate(queues, from_number):
        for name, done in (
            ("write", _write(host, queue)),
            *((("read", _read(host, queue)),) if reads else ()),
        ):
            assert done.status == conflict, (
                f"8.1.24.1: a {name} on I/O queue {number} ends with {status_name(done.status)} {why}; "
                f"required: {status_name(conflict)}"
            )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-QUEUES-{name}", kills=("conflict-first-queue-alone",)))
    for name in ("WE", "EA", "WERO", "EARO")
])  # fmt: skip
def test_a_reservation_excludes_each_queue_of_another_host(hosts: Hosts, name: str) -> None:
    """The queues of the other host were connected before the reservation."""
    first, second = hosts
    rtype = {
        "WE": Rtype.WRITE_EXCLUSIVE,
        "EA": Rtype.EXCLUSIVE_ACCESS,
        "WERO": Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
        "EARO": Rtype.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
    }[name]
    queues = _more(second)
    hold(first, rtype)
    reads = rtype in (Rtype.EXCLUSIVE_ACCESS, Rtype.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY)
    _each_excluded(second, queues, f"while another host holds a reservation of type {rtype:d}", reads=reads)


@pytest.mark.case("NVR-QUEUES-LATER", kills=("conflict-first-queue-alone",))
def test_a_reservation_excludes_a_queue_that_is_connected_later(hosts: Hosts) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    later = _more(second)[1:]
    _each_excluded(second, later, "which was connected after the reservation was acquired", from_number=2)


@pytest.mark.case("NVR-QUEUES-HOLDER", kills=("holder-first-queue-alone",))
def test_the_holder_writes_on_each_of_its_queues(hosts: Hosts) -> None:
    """The reservation is acquired on the first queue, and is the host's."""
    first, _ = hosts
    queues = _more(first)
    hold(first, Rtype.EXCLUSIVE_ACCESS)
    _each_writes(first, queues, "and the host holds the reservation")
    for number, queue in enumerate(queues, 1):
        done = _read(first, queue)
        assert done.ok, f"8.1.24.1: the holder's read on I/O queue {number} is {status_name(done.status)}"


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(
        f"NVR-QUEUES-{way}", section=f"Base {section}", kills=("conflict-remembered",)))
    for way, section in {"RELEASED": "8.1.24.6", "CLEARED": "8.1.24.8", "UNREGISTERED": "8.1.24.4"}.items()
])  # fmt: skip
def test_a_reservation_that_has_ended_excludes_no_queue(hosts: Hosts, way: str) -> None:
    """Each queue of the other host was excluded before."""
    first, second = hosts
    queues = _more(second)
    hold(first, Rtype.WRITE_EXCLUSIVE)
    _each_excluded(second, queues, "while another host holds the reservation")
    if way == "UNREGISTERED":
        allowed(first.register(UNREGISTER, current=first.key, new=0))
    else:
        allowed(first.release(Rtype.WRITE_EXCLUSIVE, *((CLEAR,) if way == "CLEARED" else ())))
    _each_writes(second, queues, f"after the reservation was {way.lower()}")


@pytest.mark.case("NVR-QUEUES-REGISTERED", kills=("conflict-remembered",))
def test_a_registrant_writes_on_each_of_its_queues(hosts: Hosts) -> None:
    """Its key is registered on the first one, while another host holds a reservation of registrants only."""
    first, second = hosts
    queues = _more(second)
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    _each_excluded(second, queues, "and the host is no registrant")
    allowed(second.register())
    _each_writes(second, queues, "and the host is a registrant of a reservation of registrants only")


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(
        f"NVR-QUEUES-{way}", section=f"Base {section}", kills=("conflict-first-queue-alone",)))
    for way, section in {"PREEMPTED": "8.1.24.7", "LEFT": "8.1.24.4"}.items()
])  # fmt: skip
def test_a_host_that_is_no_registrant_any_more_is_excluded_on_each_queue(hosts: Hosts, way: str) -> None:
    """Another host has preempted its key, or it has unregistered on its first queue."""
    first, second = hosts
    queues = _more(second)
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    _each_writes(second, queues, "and the host is a registrant of a reservation of registrants only")
    if way == "LEFT":
        allowed(second.register(UNREGISTER, current=second.key, new=0))
    else:
        allowed(first.acquire(Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, PREEMPT, victim=second.key))
    _each_excluded(second, queues, "after the registration has ended")
