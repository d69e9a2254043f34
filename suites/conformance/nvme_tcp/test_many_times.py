"""What holds the first times holds after hundreds: counts do not wrap, and queues and events come again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import LogPage, Rtype, status_name
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, request_event
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, UNREGISTER, ReservingHost, allowed, hold
from storagetest.wire.tcp import ResponseTimeout

from .test_controller_states import io_queue
from .test_fabrics import needs_disconnect

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

EVERY = 0xFFFFFFFF
MANY = 300
"""Times that something is counted: more than eight bits hold (chosen)."""

ROUNDS = 20
"""Times that an event, a queue or a reset comes again (chosen)."""

SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
"""A release of this type notifies the other registrants (Base 8.1.24.6)."""

PAGES = 8
"""Log pages of notifications that are read for one event at most (chosen)."""


# Counts


@pytest.mark.case(
    "NVR-GEN-MANY",
    section="Base 7.8",
    kills=("generation-byte",),
    builds_on=("NVR-GEN-01", "NVR-REG-07"),
)
def test_the_generation_has_more_than_eight_bits(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """A host registers and unregisters, hundreds of times, and each is counted: GEN is a counter of 32 bits.

    NVR-GEN-04 is about Replace.
    """
    first, _ = hosts
    before = first.report().generation
    for _ in range(MANY // 2):
        allowed(first.register())
        allowed(first.register(UNREGISTER, current=first.key))
    found = (first.report().generation - before) % (1 << 32)
    assert found == MANY, (
        f"7.8: GEN was {before}; it has risen by {found}, after {MANY // 2} registrations that each ended"
    )


COUNTERS = {"Host Read Commands": 64, "Host Write Commands": 80}
"""Offsets in the SMART log of counters of 16 bytes (5.2.12.1.3)."""

STEP = 60
"""Commands between two reads of a count: one that wraps at 256 falls (chosen)."""


@pytest.mark.parametrize("name", [
    pytest.param("Host Read Commands", marks=pytest.mark.case("NVA-SMART-MANY-READS")),
    pytest.param("Host Write Commands", marks=pytest.mark.case("NVA-SMART-MANY-WRITES")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12.1.3", kills=("smart-counts-byte",), builds_on=("NVA-LOG-SMART",))
def test_a_count_of_the_smart_log_does_not_fall(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Commands of one block, hundreds of them; a count of zero all the time is not reported."""
    at = COUNTERS[name]

    def count() -> int:
        raw = session.log_page(LogPage.SMART, 512, nsid=EVERY)
        return int.from_bytes(raw[at : at + 16], "little")

    data = block_data(scratch.block_size, 91)
    found = [count()]
    for _ in range(-(-MANY // STEP)):
        for _ in range(STEP):
            if name == "Host Read Commands":
                done = queue.run(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
            else:
                done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=data)
            assert done.ok, f"NVM 3.3: a command of one block ended with {status_name(done.status)}"
        found.append(count())
    if not any(found):
        pytest.skip(f"{name} is 0, so the controller does not report it")
    assert found == sorted(found), f"5.2.12.1.3: {name}, each {STEP} commands: {found}; it does not fall"


@pytest.mark.case("NVA-LOG-ERROR-MANY", section="Base 5.2.12.1.2", kills=("error-count-byte",))
def test_the_error_count_has_more_than_eight_bits(session: ControllerSession) -> None:
    """Hundreds of commands fail; the highest Error Count rises, or stays if they are not logged."""

    def count() -> int:
        raw = session.log_page(LogPage.ERROR, 64, nsid=EVERY)
        return int.from_bytes(raw[:8], "little")

    found = [count()]
    for _ in range(-(-MANY // STEP)):
        for _ in range(STEP):
            done = session.admin.run(admin.get_log_page(0x6F, 64), reads=64)
            assert not done.ok, "5.2.12: a reserved log page is read"
        found.append(count())
    if found[0] == found[-1]:
        pytest.skip("the controller does not log commands that fail")
    assert found == sorted(found), (
        f"5.2.12.1.2: Error Count of the newest entry, each {STEP} errors: {found}; it is incremented"
    )


# Rounds


@pytest.mark.case(
    "NVR-EVENT-ROUNDS",
    section="Base 5.2.2",
    kills=("event-lost-after-eight",),
    builds_on=(*HOLDING, "NVR-EVENT-CLEARED"),
)
def test_each_of_many_events_is_reported(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """Each is cleared before the next one: the host reads its log page without RAE."""
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    for number in range(ROUNDS):
        queue = second.session.admin
        cid = queue.submit(admin.async_event()) if number else request_event(second.session)
        allowed(first.release(SHARED))
        try:
            second.session.admin.wait(cid)
        except ResponseTimeout:
            pytest.fail(f"5.2.2: event {number + 1} is not reported, and the {number} before it were")
        for _ in range(PAGES):
            done = second.session.admin.run(
                admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64
            )
            allowed(done)
            if not done.data[8]:
                break
        allowed(first.acquire(SHARED))


@pytest.mark.case("NVF-ROUNDS-DISCOVERY", section="Base 3.3.2", kills=("sixteen-discoveries",))
def test_a_discovery_controller_is_connected_many_times(discovery: ControllerSession, bench: Harness) -> None:
    """Each of the associations ends before the next one begins, and each reads the discovery log page."""
    discovery.close()
    for number in range(2, ROUNDS + 1):
        session = bench.session(subnqn=DISCOVERY_NQN, name=f"discovery {number}")
        assert session.log_page(LogPage.DISCOVERY, 1024), f"5.2.12.3.3: association {number} has no log page"
        session.close()


def _disconnect(_: ControllerSession, queue: Queue) -> None:
    done = queue.run(fabrics.disconnect())
    assert done.ok, f"6.4: Disconnect of I/O queue 1 ends with {status_name(done.status)}"
    queue.close()


def _reset(session: ControllerSession, queue: Queue) -> None:
    session.disable()
    queue.close()
    session.enable()


ENDS: dict[str, Callable[[ControllerSession, Queue], None]] = {"DISCONNECT": _disconnect, "RESET": _reset}
"""How an I/O queue ends."""


@pytest.mark.parametrize("how", [
    pytest.param("DISCONNECT", marks=pytest.mark.case(
        "NVF-ROUNDS-DISCONNECT", section="Base 6.4", builds_on=("NVF-DISCONNECT-01", "NVF-DISCONNECT-03"))),
    pytest.param("RESET", marks=pytest.mark.case(
        "NVF-ROUNDS-RESET", section="Base 3.7.2", builds_on=("NVF-RESET-03",))),
])  # fmt: skip
@pytest.mark.case(kills=("sixteen-io-queues",))
def test_an_io_queue_is_connected_many_times(session: ControllerSession, how: str) -> None:
    """The queue of one QID, in one association: each time it is connected, and serves a command."""
    if how == "DISCONNECT":
        needs_disconnect(session)
    nsid = session.own_namespace()
    for number in range(1, ROUNDS + 1):
        queue = io_queue(session)
        done = queue.run(io.flush(nsid))
        assert done.ok, f"7.2: Flush on I/O queue 1 ends with {status_name(done.status)} in round {number}"
        ENDS[how](session, queue)
