"""Many at once: hosts that register, and I/O queues of one controller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, Rtype, StatusCode, status_name
from storagetest.wire.nvme.structures import Registrant
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    UNREGISTER,
    ReservingHost,
    allowed,
    read_notice,
)
from storagetest.wire.nvme_tcp.session import connect_queue
from storagetest.wire.nvme_tcp.undo import undo_reservations

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 7.8")]

HOSTS = 8
"""Hosts of a case (chosen): each has an admin queue and an I/O queue."""
DYNAMIC = 0xFFFF
"""CNTLID of a registrant whose controller is a dynamic one (7.8)."""
REGISTRATION_PREEMPTED = 1
"""Type of a Reservation Notification log page (5.2.12.1.35)."""
QUEUES = 32
"""I/O queues that a case asks for (chosen)."""

# Reservations (Base 7.8, 8.1.24)


@pytest.fixture
def clients(
    bench: Harness, scratch: Scratch, request: pytest.FixtureRequest
) -> Iterator[list[ReservingHost]]:
    """Yield as many hosts as are let in, up to :data:`HOSTS`, on a namespace without registrants."""
    made: list[ReservingHost] = []
    for number in range(HOSTS):
        try:
            session = bench.session(name=f"host {number}")
            queue = session.io_queue()
        except (RemoteProtocolError, NotOffered) as error:
            if len(made) < 3:
                pytest.skip(f"{len(made)} hosts are let in at the same time: {error}")
            break
        if not session.controller["oncs"] >> 5 & 1 or not scratch.rescap:
            pytest.skip("ONCS or RESCAP: reservations are not supported")
        made.append(ReservingHost(session, queue, scratch, (0xD1 + number) << 56 | 0x51 + number))
    before = made[0].report()
    if before.registrants:
        pytest.skip("another host is registered on this namespace")
    yield made

    bench.close()  # the undo needs controllers, of which there may be no more

    def connect(identity: object) -> ControllerSession:
        return bench.session(identity=identity, name="the undo")  # type: ignore[arg-type]

    identities = [host.session.identity for host in made]
    left = undo_reservations(connect, identities, scratch.nsid, persistence=before.persistence)
    if left:
        stop_run(
            request.config,
            f"namespace {scratch.nsid} of {bench.endpoint.subnqn}: its reservations cannot be undone after "
            f"{request.node.name} ({left}): clear them on the target, or restart it, and run again",
        )


def _registrants(hosts: list[ReservingHost], *holders: ReservingHost) -> set[Registrant]:
    return {
        Registrant(one.session.cntlid, one in holders, one.session.identity.hostid, one.key) for one in hosts
    }


def _named(found: Registrant, wanted: set[Registrant]) -> Registrant:
    """Return a registrant with the CNTLID of its host's session, if it has that of a dynamic controller."""
    known = {one.hostid: one.cntlid for one in wanted}
    return replace(found, cntlid=known.get(found.hostid, DYNAMIC)) if found.cntlid == DYNAMIC else found


def _claim(reader: ReservingHost, wanted: set[Registrant], what: str) -> None:
    found = [_named(one, wanted) for one in reader.report().registrants]
    assert set(found) == wanted, (
        f"7.8: {what}: {len(wanted)} hosts are registered, and the report has {len(found)}: missing "
        f"{wanted - set(found) or 'none'}, not registered {set(found) - wanted or 'none'}"
    )
    assert len(found) == len(wanted), f"7.8: {what}: a registrant is there twice: {found}"


@pytest.mark.case("NVR-MANY", kills=("report-four-registrants",), builds_on=HOLDING)
def test_every_host_of_many_is_a_registrant(clients: list[ReservingHost]) -> None:
    """Each has a key of its own, writes, and leaves again: the last one first, then by turns."""
    rtype = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    holder = clients[len(clients) // 2]
    for number, host in enumerate(clients, 1):
        allowed(host.register())
        _claim(clients[0], _registrants(clients[:number]), f"after Register of host {number}")
    allowed(holder.acquire(rtype))
    for number, host in enumerate(clients, 1):
        done = host.write()
        assert done.ok, (
            f"8.1.24.1: a write by registrant {number} of many ended with {status_name(done.status)}"
        )
    left = [*clients]
    for host in (clients[-1], clients[0], *[one for one in clients[1:-1] if one is not holder]):
        allowed(host.register(UNREGISTER, current=host.key))
        left.remove(host)
        _claim(holder, _registrants(left, holder), f"after Unregister, with {len(left)} left")
        done = host.write()
        assert done.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24.1: a write by a host that has unregistered ended with {status_name(done.status)}"
        )


@pytest.mark.case(
    "NVR-MANY-PREEMPT", section="Base 8.1.24.7", kills=("preempt-of-many-ignored",), builds_on=HOLDING
)
def test_a_preempt_unregisters_every_host_of_a_key(clients: list[ReservingHost]) -> None:
    """All hosts but the holder have one key, which the holder preempts."""
    holder, *others = clients
    for host in others:
        host.key = 0xEE << 48 | 0xEE
    for host in clients:
        allowed(host.register())
    allowed(holder.acquire(Rtype.WRITE_EXCLUSIVE))
    _claim(holder, _registrants(clients, holder), "before the Preempt")
    allowed(holder.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=others[0].key))
    _claim(holder, _registrants([holder], holder), f"after a Preempt of the key of {len(others)} hosts")


@pytest.mark.parametrize("action", [
    pytest.param(PREEMPT, marks=pytest.mark.case("NVR-MANY-PREEMPT-HOLDER")),
    pytest.param(PREEMPT_ABORT, marks=pytest.mark.case("NVR-MANY-PREEMPT-HOLDER-ABORT")),
])  # fmt: skip
@pytest.mark.case(
    section="Base 8.1.24.7",
    kills=("preempt-of-holder-alone", "second-preempted-unnotified"),
    builds_on=HOLDING,
)
def test_a_preempt_of_the_holder_unregisters_the_others_of_its_key(
    clients: list[ReservingHost], action: int
) -> None:
    """Of three hosts or more all but one have the key of the holder, which that one preempts.

    Each of them is notified that its registration was preempted.
    """
    taker, *others = clients
    for host in others:
        host.key = 0xEF << 48 | 0xEF
    for host in clients:
        allowed(host.register())
    holder = others[len(others) // 2]
    allowed(holder.acquire(Rtype.WRITE_EXCLUSIVE))
    _claim(taker, _registrants(clients, holder), "before the Preempt")
    allowed(taker.acquire(Rtype.WRITE_EXCLUSIVE, action, victim=holder.key))
    _claim(
        taker, _registrants([taker], taker), f"after a Preempt of the holder's key, of {len(others)} hosts"
    )
    for number, host in enumerate(others, 1):
        done = host.write()
        assert done.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24.1: a write by preempted host {number} ended with {status_name(done.status)}"
        )
        kind, _ = read_notice(host)
        assert kind == REGISTRATION_PREEMPTED, (
            f"8.1.24.7: the registration of host {number} of {len(others)} was preempted, and its "
            f"notification has type {kind}"
        )


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-MANY-PREEMPT-ALL-{rtype:d}"))
    for rtype in (Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.7", kills=("preempt-of-many-ignored",), builds_on=HOLDING)
def test_a_preempt_of_key_0_unregisters_every_other_registrant(
    clients: list[ReservingHost], rtype: Rtype
) -> None:
    """All registrants hold the reservation; the second one takes it."""
    for host in clients:
        allowed(host.register())
    allowed(clients[0].acquire(rtype))
    taker = clients[1]
    allowed(taker.acquire(rtype, PREEMPT))
    _claim(taker, _registrants([taker], taker), f"after a Preempt of key 0, of {len(clients)} registrants")
    for number, host in enumerate(clients, 1):
        done = host.write()
        wanted = StatusCode.SUCCESS if host is taker else StatusCode.RESERVATION_CONFLICT
        assert done.status == wanted, (
            f"8.1.24.1: a write by host {number} of {len(clients)} ended with {status_name(done.status)}; "
            "host 2 has preempted all others"
        )


@pytest.mark.parametrize("length", [
    pytest.param(64, marks=pytest.mark.case("NVR-REPORT-COUNT-64")),
    pytest.param(128, marks=pytest.mark.case("NVR-REPORT-COUNT-128")),
    pytest.param(192, marks=pytest.mark.case("NVR-REPORT-COUNT-192")),
])  # fmt: skip
@pytest.mark.case(kills=("report-counts-what-fits",))
def test_a_part_of_the_report_counts_every_registrant(clients: list[ReservingHost], length: int) -> None:
    """The header alone, and with one registrant, and with two; they begin as the whole report does."""
    for host in clients:
        allowed(host.register())
    queue, nsid = clients[0].queue, clients[0].nsid
    whole = queue.run(io.report(nsid, 1024), reads=1024)
    done = queue.run(io.report(nsid, length), reads=length)
    assert done.ok, f"7.8: a Reservation Report of {length} bytes is not {status_name(done.status)}"
    found = int.from_bytes(done.data[5:7], "little")
    assert found == len(clients), (
        f"7.8: {len(clients)} hosts are registered; a Reservation Report of {length} bytes counts {found}"
    )
    assert done.data == whole.data[:length], (
        f"7.8: the {length} bytes of a part of the report are not the first ones of the whole"
    )


@pytest.mark.case(
    "NVR-MANY-CLEAR", section="Base 8.1.24.8", kills=("clear-of-many-ignored",), builds_on=HOLDING
)
def test_a_clear_unregisters_every_host(clients: list[ReservingHost]) -> None:
    for host in clients:
        allowed(host.register())
    allowed(clients[1].acquire(Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS))
    found = {one.hostid for one in clients[0].report().registrants}
    assert found == {one.session.identity.hostid for one in clients}, (
        f"7.8: {len(found)} of {len(clients)} hosts"
    )
    allowed(clients[-1].release(Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS, CLEAR))
    _claim(clients[0], set(), f"after a Clear with {len(clients)} registrants")
    done = clients[0].write()
    assert done.ok, f"8.1.24.8: a write after Clear ended with {status_name(done.status)}"


# I/O queues (Base 3.3.1, 5.2.26.2.1)


@pytest.fixture
def many(session: ControllerSession, bench: Harness) -> list[Queue]:
    """Return every I/O queue that the controller grants, up to :data:`QUEUES`."""
    done = session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, (QUEUES - 1) * 0x1_0001))
    assert done.ok, f"5.2.26.2.1: a request for {QUEUES} queues is not {status_name(done.status)}"
    granted = min(done.cqe.dw0 & 0xFFFF, done.cqe.dw0 >> 16) + 1
    made = []
    for qid in range(1, min(granted, QUEUES) + 1):
        queue = bench.queue(name=f"I/O queue {qid}")
        done = connect_queue(
            queue,
            subnqn=bench.endpoint.subnqn,
            identity=session.identity,
            qid=qid,
            sqsize=min(qid + 1, session.cap.mqes),
            cntlid=session.cntlid,
        )
        assert done.ok, (
            f"5.2.26.2.1: {granted} I/O queues are granted, and Connect of queue {qid} ended with "
            f"{status_name(done.status)}"
        )
        queue.in_capsule_limit = session.controller.in_capsule_limit
        made.append(queue)
    return made


@pytest.mark.case("NVT-MANY-QUEUES", section="Base 5.2.26.2.1", kills=("queue-4-loses",))
def test_every_queue_that_is_granted_serves_its_own_commands(many: list[Queue], scratch: Scratch) -> None:
    """Each writes a block of its own, all at the same time, and reads that of the next one."""
    size = scratch.block_size
    for turn in range(2):
        data = [block_data(size, 2000 + 100 * turn + number) for number in range(len(many))]
        cids = [
            queue.submit(io.write(scratch.nsid, scratch.lba + at, 1), data=data[at])
            for at, queue in enumerate(many)
        ]
        for at, (queue, cid) in reversed([*enumerate(zip(many, cids, strict=True))]):
            done = queue.wait(cid)
            assert done.ok, f"3.3.1: a write on I/O queue {at + 1} ended with {status_name(done.status)}"
        for at, queue in enumerate(many):
            other = (at + 1) % len(many)
            assert read_blocks(queue, scratch, 1, at=other) == data[other], (
                f"3.3.4: I/O queue {at + 1} of {len(many)} reads other data than queue {other + 1} wrote"
            )
