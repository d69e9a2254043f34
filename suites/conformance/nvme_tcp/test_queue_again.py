"""Queues that are connected again, the last one, and commands next to one that fails (Base 3.3, 6.3, 6.4)."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks
from storagetest.wire.nvme_tcp.pdu import R2T

from .test_keep_alive_timer import timeout_in_use

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

SMALL, LARGE = 3, 11
"""SQSIZE of a queue, and of the one that is connected by its QID after it (chosen)."""

NOTICED = 2.0
"""Seconds in which a controller notices that the connection of a queue was closed (chosen)."""

OTHERS = 2
"""I/O queues that stay connected while another one is disconnected (chosen)."""


def _connected_again(session: ControllerSession, sqsize: int) -> Queue:
    """Reset the controller, close the connection of I/O queue 1, as a host does, and connect QID 1 again.

    A controller that keeps the queue until it sees the close may need a moment for that.
    """
    session.disable()
    session.io_queues[-1].close()
    session.enable()
    until = time.monotonic() + NOTICED
    while True:
        try:
            return session.io_queue(qid=1, sqsize=sqsize)
        except RemoteProtocolError:
            session.io_queues[-1].close()
            if time.monotonic() > until:
                raise
        time.sleep(NOTICED / 20)


def _heads(queue: Queue, nsid: int, count: int) -> list[int]:
    """Run ``count`` commands one after the other; return SQHD of each completion."""
    return [queue.run(io.flush(nsid)).cqe.sqhd for _ in range(count)]


@pytest.mark.case("NVF-AGAIN-SIZE", kills=("queue-size-of-old",), builds_on=("NVF-RESET-01", "NVT-CQE-SQHD"))
def test_a_queue_that_is_connected_again_has_the_size_that_it_is_given_then(
    session: ControllerSession, scratch: Scratch
) -> None:
    """After a controller reset, QID 1 is connected with a larger SQSIZE, and each head of it is reached."""
    if scratch.limits.outstanding < LARGE:
        pytest.skip(f"CAP.MQES or MAXCMD allows {scratch.limits.outstanding} commands, not {LARGE}")
    _heads(session.io_queue(qid=1, sqsize=SMALL), scratch.nsid, 2 * SMALL)
    heads = _heads(_connected_again(session, LARGE), scratch.nsid, 2 * (LARGE + 1))
    assert set(heads) == set(range(LARGE + 1)), (
        f"6.3: QID 1 was connected with SQSIZE {SMALL}, and after a reset with {LARGE}; SQHD is {heads}"
    )


@pytest.mark.case(
    "NVF-AGAIN-HEAD",
    section="Base 4.2.1",
    kills=("sqhd-of-old-queue",),
    builds_on=("NVF-RESET-01", "NVT-CQE-SQHD"),
)
def test_a_queue_that_is_connected_again_begins_with_its_first_head(
    session: ControllerSession, scratch: Scratch
) -> None:
    """SQHD of the first command is the same for each new queue, whatever the one before it has served."""
    queue, firsts = session.io_queue(qid=1, sqsize=LARGE), []
    for served in (3, 5, 1):
        firsts.append(_heads(queue, scratch.nsid, served)[0])
        queue = _connected_again(session, LARGE)
    assert len(set(firsts)) == 1, (
        f"4.2.1: SQHD of the first command of QID 1 is {firsts[0]} at first, and {firsts[1:]} after a reset "
        "has deleted the queue, and it is connected again"
    )


@pytest.mark.case("NVF-DISCONNECT-OTHERS", section="Base 6.4", kills=("disconnect-ends-others",))
def test_disconnect_ends_one_queue(session: ControllerSession, scratch: Scratch) -> None:
    if not session.controller["ofcs"] & 1:
        pytest.skip("OFCS: Disconnect is not supported")
    first = session.io_queue()
    others = [session.io_queue() for _ in range(min(OTHERS, session.io_queues_granted - 1))]
    if not others:
        pytest.skip("the controller grants one I/O queue")
    assert first.run(fabrics.disconnect()).ok, "6.4: Disconnect of an I/O queue"
    for number, queue in enumerate(others, start=2):
        try:
            done = queue.run(io.flush(scratch.nsid))
        except RemoteProtocolError as error:
            pytest.fail(f"6.4: after Disconnect of I/O queue 1, I/O queue {number} is lost: {error}")
        assert done.ok, f"6.4: Flush on I/O queue {number} after Disconnect of 1: {status_name(done.status)}"


@pytest.mark.case(
    "NVF-DISCONNECT-PENDING",
    section="Base 6.4",
    kills=("disconnect-pending-qid-kept",),
    builds_on=("NVF-DISCONNECT-03",),
)
def test_a_qid_is_free_after_a_disconnect_while_a_write_waits(
    session: ControllerSession, scratch: Scratch
) -> None:
    """The write has no data yet. If Disconnect succeeds all the same, it has deleted the queue."""
    if not session.controller["ofcs"] & 1:
        pytest.skip("OFCS: Disconnect is not supported")
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command only")
    queue, data = session.io_queue(qid=1), block_data(scratch.block_size, 61)
    queue.submit(io.write(scratch.nsid, scratch.lba, 1), data=data, inside=False)
    received = queue.receive().pdu
    assert isinstance(received, R2T), f"NVMe/TCP 3.3.2.2: not {received}"
    try:
        done = queue.run(fabrics.disconnect())
    except RemoteProtocolError as error:
        pytest.skip(f"Disconnect has no response while a write waits for its data: {error}")
    if not done.ok:
        pytest.skip(f"Disconnect ends with {status_name(done.status)} while a write waits for its data")
    queue.wait_for_close(deadline=NOTICED)
    queue.close()
    try:
        again = session.io_queue(qid=1)
    except RemoteProtocolError as error:
        pytest.fail(f"6.4: QID 1 is not connected again after its Disconnect, while a write waited: {error}")
    done = again.run(io.flush(scratch.nsid))
    assert done.ok, f"6.4: Flush on the queue that was connected again is {status_name(done.status)}"


@pytest.mark.case(
    "NVF-DISCONNECT-AGAIN",
    section="Base 6.4",
    kills=("disconnect-qid-kept",),
    builds_on=("NVF-DISCONNECT-03",),
)
def test_a_queue_is_connected_again_while_others_are_there(
    session: ControllerSession, scratch: Scratch
) -> None:
    """Each queue in turn is disconnected and connected again by its QID; all serve commands each time."""
    if not session.controller["ofcs"] & 1:
        pytest.skip("OFCS: Disconnect is not supported")
    session.io_queue()
    queues = {1: session.io_queues[0]}
    for qid in range(2, min(OTHERS + 1, session.io_queues_granted) + 1):
        queues[qid] = session.io_queue(qid=qid)
    if len(queues) < 2:
        pytest.skip("the controller grants one I/O queue")
    for qid, ended in list(queues.items()):
        assert ended.run(fabrics.disconnect()).ok, f"6.4: Disconnect of I/O queue {qid}"
        ended.wait_for_close(deadline=NOTICED)
        ended.close()
        try:
            queues[qid] = session.io_queue(qid=qid)
        except RemoteProtocolError as error:
            pytest.fail(
                f"6.4: QID {qid} is not connected again after its Disconnect, while {len(queues) - 1} other "
                f"I/O queues are there: {error}"
            )
        for other, queue in queues.items():
            done = queue.run(io.flush(scratch.nsid))
            assert done.ok, f"6.4: Flush on I/O queue {other} is {status_name(done.status)}"


@pytest.mark.case("NVF-CONNECT-LAST", section="Base 5.2.26.2.1", kills=("last-queue-refused",))
def test_the_last_of_the_granted_queues_is_connected(session: ControllerSession, scratch: Scratch) -> None:
    first = session.io_queue()
    last = session.io_queues_granted
    if last == 1:
        pytest.skip("the controller grants one I/O queue")
    queue = session.io_queue(qid=last)
    for one, qid in ((queue, last), (first, 1)):
        done = one.run(io.flush(scratch.nsid))
        assert done.ok, f"5.2.26.2.1: {last} queues are granted; Flush on {qid} is {status_name(done.status)}"


@pytest.mark.case("NVB-FAILED-ALONE", section="Base 3.3.1", kills=("failure-ends-others",))
def test_a_command_that_fails_ends_no_other(queue: Queue, scratch: Scratch) -> None:
    """A write waits for its data; a read past the end fails meanwhile."""
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command only")
    blocks = scratch.blocks_of(queue.in_capsule_limit + 1)
    data = block_data(blocks * scratch.block_size, 701)
    written = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    failed = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    done = queue.wait(failed)
    assert not done.ok, "NVM 3.1: a read past the end"
    done = queue.wait(written)
    assert done.ok, f"3.3.1: a write ended with {status_name(done.status)} when a read of its queue failed"
    assert done.pdus_of(R2T), "3.3.1: the write was completed, and its data were not asked for"
    assert read_blocks(queue, scratch, blocks) == data, (
        "NVM 3.3.6: data of a write next to a read that failed"
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """The session that is kept alive, and one of its host that was silent for more than ``kato`` ms."""

    session: ControllerSession
    silent: ControllerSession
    kato: int


def _keep_one_alive(bench: Harness, session: ControllerSession) -> _Kept:
    """Let one of two controllers of a host be silent, while the other one is used; claim that it is there."""
    data = session.controller
    kato = timeout_in_use(bench, 1000)
    silent = bench.session(identity=session.identity, kato=kato, name="the silent admin queue")
    until = time.monotonic() + (2 * kato + data["cqt"]) / 1000 + 1
    for number in itertools.count(1):
        try:
            done = session.admin.run(admin.keep_alive())
        except RemoteProtocolError as error:
            pytest.fail(
                f"3.9.5: controller {session.cntlid:#x} has ended with controller {silent.cntlid:#x} of its "
                f"host, whose Keep Alive Timeout of {kato} ms passed; Keep Alive {number}: {error}"
            )
        assert done.ok, f"5.2.14: Keep Alive {number} is {status_name(done.status)}"
        if time.monotonic() > until:
            return _Kept(session, silent, kato)
        time.sleep(kato / 4000)
    raise AssertionError  # the loop has no other end


@pytest.mark.slow
@pytest.mark.case(
    "NVF-PAIR-KEEP-ALIVE", section="Base 3.9.5", kills=("pair-ends-keep-alive",), builds_on=("NVA-KA-02",)
)
def test_a_keep_alive_timeout_ends_one_controller(bench: Harness, session: ControllerSession) -> None:
    """Of two controllers of a host, one is given up; the other one is used all the while."""
    kept = _keep_one_alive(bench, session)
    assert kept.session.admin.run(admin.keep_alive()).ok, "3.9.5: the controller that was kept alive"


@pytest.mark.slow
@pytest.mark.case(
    "NVF-PAIR-KEEP-ALIVE-OWN", section="Base 3.9.5", kills=("pair-keeps-alive",), builds_on=("NVA-KA-02",)
)
def test_a_keep_alive_of_one_controller_keeps_no_other_alive(
    bench: Harness, session: ControllerSession
) -> None:
    kept = _keep_one_alive(bench, session)
    ending = kept.silent.admin.wait_for_close(deadline=kept.kato / 4000)
    assert ending.ended, (
        f"3.9.5: controller {kept.silent.cntlid:#x} goes on without a Keep Alive, over its timeout of "
        f"{kept.kato} ms; another controller of its host sent some: {ending}"
    )
