"""The reserved value of CPTPL, and writes of other hosts during Preempt and Abort (Base 7.6, 8.1.24.7)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.harness import Harness, block_data, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PERSIST_OFF,
    PERSIST_ON,
    PREEMPT_ABORT,
    REGISTER,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    require_type,
)
from storagetest.wire.tcp import ResponseTimeout

from .test_pending_writes import complete, pending
from .test_preempt_pending import SETTLED

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.7", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

RESERVED = 1
"""CPTPL 01b (Base 7.6)."""

NEW_KEY = 0xC3

ACTIONS = {"REGISTER": REGISTER, "UNREGISTER": UNREGISTER, "REPLACE": REPLACE}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-CPTPL-RESERVED-{name}", kills=("cptpl-reserved-taken",)))
    for name in ACTIONS
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.1.6, 7.6", builds_on=("NVR-REG-07",))
def test_the_reserved_value_of_cptpl_is_refused(hosts: Hosts, name: str) -> None:
    """Invalid Field; the registration and the persist state are as before, whichever they are."""
    first, _ = hosts
    persists = first.session.namespace(first.nsid)["rescap"] & 1
    for state in (PERSIST_ON, PERSIST_OFF) if persists else (0,):
        first.register(UNREGISTER, ignore=True)  # of an earlier turn
        if name != "REGISTER":
            allowed(first.register(persist=state))
        before = first.report()
        new = first.key if name == "REGISTER" else NEW_KEY
        done = first.register(ACTIONS[name], current=first.key, new=new, persist=RESERVED)
        refused(done, StatusCode.INVALID_FIELD)
        after = first.report()
        assert after == before, (
            f"7.6: {name} with CPTPL 01b, which is reserved, ended with {status_name(done.status)}; the "
            f"report was {before}, and is {after}"
        )


@pytest.mark.parametrize("who", [
    pytest.param("THIRD", marks=pytest.mark.case("NVR-ABORT-THIRD")),
    pytest.param("OWN", marks=pytest.mark.case("NVR-ABORT-OWN")),
])  # fmt: skip
@pytest.mark.case(
    kills=("preempt-aborts-all",), builds_on=(*HOLDING, "NVR-PREEMPT-02", "NVR-ABORT-PENDING-WERO")
)
def test_a_write_of_a_host_that_is_not_preempted_goes_on(hosts: Hosts, bench: Harness, who: str) -> None:
    """A registrant's write waits for its data while another registrant is preempted; it is done then.

    The write is of a third host, or of the host that preempts.
    """
    first, second = hosts
    rtype = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    require_type(first.scratch, rtype)
    writer = first
    try:
        hold(first, rtype)
        allowed(second.register())
        if who == "THIRD":
            session = bench.session(name="third host's admin queue")
            writer = ReservingHost(session, session.io_queue(), first.scratch, 0xD5)
            allowed(writer.register())
        elif _grants_one(second):
            pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
        else:
            writer = ReservingHost(second.session, second.session.io_queue(), second.scratch, second.key)
        write_blocks(writer.queue, writer.scratch, 1, 1860)
        new = block_data(writer.scratch.block_size, 1861)
        r2t = pending(writer.queue, writer.scratch, new)
        _preempts(second, first, rtype, writer, r2t, new)
        found = read_blocks(second.queue, second.scratch, 1)
        assert found == new, (
            "8.1.24.7: a write of a host that is still a registrant succeeded, and its block has other data"
        )
    finally:
        if who == "THIRD" and writer is not first:
            writer.register(UNREGISTER, ignore=True)


def _grants_one(host: ReservingHost) -> bool:
    """Whether the controller of ``host`` has no second I/O queue."""
    return host.session.io_queues_granted < 2


def _preempts(
    second: ReservingHost, first: ReservingHost, rtype: Rtype, writer: ReservingHost, r2t: R2T, new: bytes
) -> None:
    """Preempt the first host while a write waits; claim that the write is done once its data have come."""
    command = io.acquire(second.nsid, PREEMPT_ABORT, rtype)
    preempt = second.queue.submit(command, data=io.keys(second.key, first.key))
    try:
        allowed(second.queue.wait(preempt, deadline=SETTLED))
        waits = False
    except ResponseTimeout:  # it waits for every write of the namespace
        waits = True
    done = complete(writer.queue, r2t, new)
    assert done.ok, (
        f"8.1.24.7: a write of a host that is still a registrant ended with {status_name(done.status)}; "
        "Preempt and Abort was of the key of another host"
    )
    if waits:
        allowed(second.queue.wait(preempt))
