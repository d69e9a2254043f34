"""Connections that end at any time: what they have left hinders no other host (Base 3.3.2)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Property, status_name
from storagetest.wire.nvme.command import in_capsule, transport_sgl
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme.structures import Cap
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, ICReq
from storagetest.wire.nvme_tcp.session import KATO, connect_queue

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.3.2", builds_on=("NVF-ASSOCIATIONS-MANY",)),
]

TIMES = 24
"""Connections of a kind that a case leaves (chosen)."""
TOGETHER = 8
"""Reads that are outstanding when their connection is closed (chosen)."""
UNREAD = 1 << 20
"""Bytes of their data (chosen)."""
PAUSE = 0.02
"""Seconds in which a connection that sends no more is open (chosen)."""


def _claim_served(bench: Harness, scratch: Scratch, what: str) -> None:
    """A new host writes and reads."""
    try:
        queue = bench.session(name="a new host").io_queue()
        data = write_blocks(queue, scratch, 2, 2101)
        found = read_blocks(queue, scratch, 2)
    except RemoteProtocolError as error:
        raise AssertionError(f"3.3.2: {what}, and a new host is not served: {error}") from error
    assert found == data, f"3.3.2: {what}, and a new host reads other data than it has written"


@pytest.mark.case("NVT-LEFT-READS", kills=("left-reads-leak",))
def test_reads_whose_connection_was_left_hold_nothing(bench: Harness, scratch: Scratch) -> None:
    """The host closes the connection, and has read nothing of the data."""
    together = min(TOGETHER, scratch.limits.outstanding)
    blocks = scratch.blocks_of(UNREAD // together)
    for number in range(TIMES):
        session = bench.session(name=f"association {number}")
        queue = session.io_queue()
        for _ in range(together):
            queue.submit(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)
        if number % 2:
            session.admin.close()
        queue.close()
        session.admin.close()
    _claim_served(bench, scratch, f"{TIMES} associations have left {together} reads each")


@pytest.mark.case("NVT-LEFT-EVENTS", section="Base 5.2.2", kills=("left-events-leak",))
def test_event_requests_of_associations_that_ended_do_not_count(bench: Harness) -> None:
    """Each association has as many requests outstanding as AERL allows."""
    for number in range(TIMES):
        session = bench.session(name=f"association {number}")
        limit = min(session.controller["aerl"] + 1, 16)
        cids = [session.admin.submit(admin.async_event()) for _ in range(limit)]
        done = session.admin.run(fabrics.property_get(Property.CSTS))
        assert done.ok, f"5.2.2: Property Get ended with {status_name(done.status)}"
        for at, cid in enumerate(cids, 1):
            status = session.admin.status_of(cid)
            assert not status, (
                f"5.2.2: event request {at} of {limit} ended with {status_name(status or 0)} in association "
                f"{number + 1}; AERL allows {session.controller['aerl'] + 1}, and those before it have ended"
            )
        session.admin.close()


def _admin(bench: Harness, *, enable: bool) -> Queue:
    queue = bench.queue(name="an admin queue")
    done = connect_queue(
        queue,
        subnqn=bench.endpoint.subnqn,
        identity=bench.any_host(),
        cntlid=bench.endpoint.any_controller,
    )
    assert done.ok, f"6.3: Connect of another host ended with {status_name(done.status)}"
    if enable:
        cap = Cap(queue.run(fabrics.property_get(Property.CAP)).cqe.result)
        queue.submit(fabrics.property_set(Property.CC, cap.cc_enable))
    return queue


def _part_of_connect(bench: Harness) -> Queue:
    queue = bench.queue(name="a connection with a part of Connect")
    endpoint, identity = bench.endpoint, bench.any_host()
    data = ConnectData(identity.hostid, endpoint.any_controller, endpoint.subnqn, identity.nqn).encode()
    connect = replace(fabrics.connect(qid=0, sqsize=31, kato=KATO), cid=1, dptr=in_capsule(len(data)))
    queue.send_raw(queue.encode(CapsuleCmd(connect.encode(), data))[:500])
    return queue


def _part_of_command(bench: Harness) -> Queue:
    queue = _admin(bench, enable=False)
    command = replace(admin.identify(Cns.CONTROLLER), cid=2, dptr=transport_sgl(4096))
    queue.send_raw(queue.encode(CapsuleCmd(command.encode()))[:40])
    return queue


def _part_of_icreq(bench: Harness, length: int) -> Queue:
    queue = bench.new_queue(name=f"a connection with {length} bytes of ICReq")
    queue.send_raw(queue.encode(ICReq())[:length])
    return queue


PHASES = {
    "TCP": lambda bench: bench.new_queue(name="a connection without ICReq"),
    "ICREQ-PART": lambda bench: _part_of_icreq(bench, 60),
    "ICREQ": lambda bench: _part_of_icreq(bench, 128),
    "CONNECT-PART": _part_of_connect,
    "CONNECT": lambda bench: _admin(bench, enable=False),
    "COMMAND-PART": _part_of_command,
    "ENABLE": lambda bench: _admin(bench, enable=True),
}
"""What a host has sent when it closes the connection."""


@pytest.mark.parametrize("phase", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-LEFT-{name}", kills=("left-connections-leak",)))
    for name in PHASES
])  # fmt: skip
def test_connections_that_were_left_at_any_time_hinder_no_host(
    bench: Harness, scratch: Scratch, phase: str
) -> None:
    for number in range(TIMES):
        try:
            queue = PHASES[phase](bench)
        except RemoteProtocolError as error:
            raise AssertionError(
                f"3.3.2: connection {number + 1} is not let in; those before it were closed: {error}"
            ) from error
        time.sleep(PAUSE)
        queue.close()
    _claim_served(bench, scratch, f"{TIMES} connections were closed ({phase})")


# What changes nothing


@pytest.mark.case("NVF-CC-SAME", section="Base 3.1.4.5", kills=("cc-same-resets",))
def test_a_controller_that_is_enabled_again_is_not_reset(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """CC is set to the value that it has: CC.EN does not change, so this is no reset."""
    data = write_blocks(queue, scratch, 1, 2110)
    before = session.admin.run(admin.get_features(0x0B)).cqe.dw0
    for turn in range(3):
        session.set_property(Property.CC, session.get_property(Property.CC))
        csts = session.get_property(Property.CSTS)
        assert csts & 1, f"3.1.4.6: CSTS is {csts:#x} after CC was set to its own value, in turn {turn + 1}"
        try:
            found = read_blocks(queue, scratch, 1)
        except RemoteProtocolError as error:
            raise AssertionError(
                f"3.1.4.5: an I/O queue ended when CC was set to its own value, in turn {turn + 1}: {error}"
            ) from error
        assert found == data, "NVM 3.3.4: a read after CC was set to its own value"
    after = session.admin.run(admin.get_features(0x0B)).cqe.dw0
    assert after == before, f"4.4: a feature is {after:#x}, and was {before:#x}; there was no reset"
