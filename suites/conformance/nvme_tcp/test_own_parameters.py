"""Parameters of one connection, queue or association next to others that have other ones (Base 6.3)."""

from __future__ import annotations

import contextlib

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, status_name
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme.structures import ControllerData
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, ICReq
from storagetest.wire.nvme_tcp.queue import Terminated
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

from .test_transfers import DISABLE_FLOW_CONTROL, asked_for, bulk

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3")]

UNITS = (15, 3)
"""HPDA of the queue that is connected first, and of the one after it: 64 bytes and 16 (3.6.2.2)."""

MAXR2T = 3
"""MAXR2T of the queue that is connected last, zero's based; the one before it has 0 (3.6.2.2)."""

QUIET = 0.15
"""Seconds without an R2T after which no more of them is outstanding (chosen)."""

SMALL, LARGE = 3, 11
"""SQSIZE of two queues (chosen)."""

QUEUE, HOST = "queue", "host"
"""What the other connection is: another I/O queue of the controller, or one of another host."""


def _other_queue(bench: Harness, session: ControllerSession, whose: str, **options: object) -> Queue:
    """Connect a second I/O queue, of the controller or of another host's."""
    if whose == HOST:
        session = bench.session(name="the other host's admin queue")
    elif session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue")
    return session.io_queue(**options)  # type: ignore[arg-type]  # the options of io_queue()


@pytest.mark.parametrize("whose", [
    pytest.param(whose, marks=pytest.mark.case(f"NVT-OWN-HPDA-{whose.upper()}", kills=("hpda-of-last",)))
    for whose in (QUEUE, HOST)
])  # fmt: skip
@pytest.mark.case(builds_on=("NVT-HPDA-IO-3-NONE", "NVT-HPDA-IO-15-H"))
def test_data_of_each_connection_are_aligned_by_its_own_hpda(
    bench: Harness, session: ControllerSession, scratch: Scratch, whose: str
) -> None:
    """Two connections that differ in HPDA; each reads in turn."""
    first, last = (ICReq(hpda=hpda) for hpda in UNITS)
    try:
        queues = {first.hpda: session.io_queue(icreq=first)}
        queues[last.hpda] = _other_queue(bench, session, whose, icreq=last)
    except (PeerClosed, Terminated) as refused:
        pytest.skip(f"the controller does not support HPDA (NVT-ICREQ-HPDA-15): {refused}")
    data = write_blocks(queues[first.hpda], scratch, 1, 921)
    for _ in range(2):
        for hpda, queue in queues.items():
            done = queue.run(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
            assert done.ok, f"NVM 3.3.4: a read ended with {status_name(done.status)}"
            assert done.data == data, "NVM 3.3.4: the data that were written"
            for one in done.pdus_of(C2HData):
                assert one.pdo % ((hpda + 1) * 4) == 0, (
                    f"3.3: PDO of C2HData is {one.pdo} on a connection whose HPDA is {hpda}; another one, "
                    f"whose HPDA is {UNITS[0] + UNITS[1] - hpda}, is open"
                )


@pytest.mark.parametrize("whose", [
    pytest.param(whose, marks=pytest.mark.case(f"NVT-OWN-MAXR2T-{whose.upper()}", kills=("maxr2t-of-last",)))
    for whose in (QUEUE, HOST)
])  # fmt: skip
@pytest.mark.case(section="NVMe/TCP 3.3.2.2", builds_on=("NVT-R2T-LIMIT-1",))
def test_r2ts_of_each_connection_obey_its_own_maxr2t(
    bench: Harness, session: ControllerSession, scratch: Scratch, whose: str
) -> None:
    """The connection that allows one R2T at a time was opened before one that allows four."""
    queue = session.io_queue(icreq=ICReq(maxr2t=0))
    _other_queue(bench, session, whose, icreq=ICReq(maxr2t=MAXR2T))
    cid, _ = asked_for(queue, scratch, bulk(queue, scratch))
    outstanding = 1
    with contextlib.suppress(ResponseTimeout):
        while True:  # no data is sent, so all of them are outstanding at once
            received = queue.receive(deadline=QUIET)
            outstanding += isinstance(received.pdu, R2T) and received.pdu.cccid == cid
    assert outstanding == 1, (
        f"3.3.2.2: {outstanding} R2Ts of a command on a connection that allows one; another connection "
        f"allows {MAXR2T + 1}"
    )


@pytest.mark.case("NVF-OWN-FLOW", section="Base 6.3", kills=("flow-control-of-last",))
def test_sq_flow_control_is_disabled_on_the_queue_that_asked_for_it(
    bench: Harness, session: ControllerSession, scratch: Scratch
) -> None:
    """A queue with SQ flow control goes on to report SQHD after one without it is connected."""
    queue = session.io_queue(sqsize=LARGE)
    if _other_queue(bench, session, QUEUE, cattr=DISABLE_FLOW_CONTROL).sq_flow_control:
        pytest.skip("the controller does not disable SQ flow control")
    heads = [queue.run(io.flush(scratch.nsid)).cqe.sqhd for _ in range(3)]
    assert 0xFFFF not in heads, (
        f"6.3: SQHD of a queue with SQ flow control is {heads}; another queue was connected with DISSQFC"
    )


@pytest.mark.case("NVF-OWN-SIZE", section="Base 6.3", kills=("queue-size-of-last",))
def test_each_queue_has_the_size_of_its_own_connect(
    bench: Harness, session: ControllerSession, scratch: Scratch
) -> None:
    """Commands on two queues by turns: SQHD of each reaches every entry of its queue, and none beyond."""
    if scratch.limits.outstanding < LARGE:
        pytest.skip(f"CAP.MQES or MAXCMD allows {scratch.limits.outstanding} commands, not {LARGE}")
    queues = {SMALL: session.io_queue(sqsize=SMALL)}
    queues[LARGE] = _other_queue(bench, session, QUEUE, sqsize=LARGE)
    heads: dict[int, list[int]] = {size: [] for size in queues}
    for _ in range(2 * (LARGE + 1)):
        for size, queue in queues.items():
            heads[size].append(queue.run(io.flush(scratch.nsid)).cqe.sqhd)
    for size, found in heads.items():
        assert set(found) == set(range(size + 1)), (
            f"6.3: SQHD of a queue with SQSIZE {size} is {found}; another one has {SMALL + LARGE - size}"
        )


@pytest.mark.case(
    "NVF-CNTLID-LIVE", section="Base 6.3", kills=("cntlid-of-live",), builds_on=("NVF-CONNECT-02",)
)
def test_a_new_association_does_not_get_the_controller_of_one_that_stays(bench: Harness) -> None:
    """Of two associations, the one that was created first ends; a third host connects."""
    for turn in range(2):
        ended, stays = bench.session(name="ends"), bench.session(name="stays")
        queue = stays.io_queue()
        ended.close()
        new = bench.session(name="the new one")
        assert new.cntlid != stays.cntlid, (
            f"6.3: turn {turn + 1}: Connect returned CNTLID {new.cntlid:#x}, which is that of an association "
            "that has not ended"
        )
        _serves(stays, queue, "after another association has ended, and a new one was created")
        _serves(new, new.io_queue(), "which was created after another association has ended")


def _serves(session: ControllerSession, queue: Queue, which: str) -> None:
    """Claim that a controller has the CNTLID of its Connect, and that its I/O queue takes a command."""
    found = ControllerData.decode(session.identify(Cns.CONTROLLER))["cntlid"]
    assert found == session.cntlid, (
        f"6.3: CNTLID is {found:#x}, not {session.cntlid:#x}, of a controller {which}"
    )
    done = queue.run(io.flush(session.own_namespace()))
    assert done.ok, f"3.3.1: Flush is {status_name(done.status)} through a controller {which}"


@pytest.mark.case(
    "NVA-HOSTS-HOSTID",
    section="Base 5.2.26.1.32",
    kills=("host-identifier-of-last",),
    builds_on=("NVA-FEAT-HOSTID-01",),
)
def test_the_host_identifier_is_that_of_the_controllers_own_host(
    bench: Harness, session: ControllerSession
) -> None:
    """It is read after another host has connected, by each."""
    other = bench.session(name="the other host's admin queue")
    for number, one in enumerate((session, other, session), start=1):
        done = one.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=16)
        assert done.ok, f"5.2.26.1.32: Get Features {number} is {status_name(done.status)}"
        assert done.data == one.identity.hostid, (
            f"5.2.26.1.32: read {number} returns Host Identifier {done.data.hex()}; this host connected with "
            f"{one.identity.hostid.hex()}, and two hosts are connected"
        )


@pytest.mark.case("NVF-PAIR-DISCOVERY", section="Base 3.1.3", kills=("discovery-ends-others",))
def test_a_discovery_association_ends_no_other_one_of_its_host(
    bench: Harness, session: ControllerSession, queue: Queue
) -> None:
    """The host reads the discovery log page, and leaves; its I/O controller serves it all the while."""
    try:
        discovery = bench.session(
            identity=session.identity, subnqn=DISCOVERY_NQN, name="the discovery controller"
        )
    except RemoteProtocolError as error:
        pytest.skip(f"no discovery controller is here (NVF-DISCOVERY-01): {error}")
    why = "while its host has a discovery association"
    for _ in range(2):
        try:
            _serves(session, queue, why)
        except RemoteProtocolError as error:
            pytest.fail(f"3.1.3: an I/O controller has ended {why}: {error}")
        discovery.close()
        why = "whose host had a discovery association, which has ended"
