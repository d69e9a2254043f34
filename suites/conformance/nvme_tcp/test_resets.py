"""What a controller keeps and forgets: commands of before a reset, shutdowns, events, Abort, Keep Alive."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Feature, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import (
    Harness,
    Scratch,
    block_data,
    read_blocks,
    refused,
    request_event,
    write_blocks,
)
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp
from storagetest.wire.nvme_tcp.session import CSTS_FATAL, CSTS_READY, CSTS_SHUTDOWN_DONE

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.7.2")]

SHUTDOWN_ABRUPT = 0x8000
"""CC.SHN 10b (3.1.4.5)."""

SHST = 0xC
SHORT_KATO = 1000
"""Milliseconds (chosen: the least that a controller with KAS of 1 s may grant)."""

MOST_ABORTS = 64
"""Abort commands of a case, however large ACL is (chosen)."""


@pytest.mark.case("NVF-PROP-10", section="Base 6.6", level="SHOULD", kills=("cap-set-succeeds",))
def test_property_set_of_a_read_only_property_is_no_success(session: ControllerSession) -> None:
    cap = session.get_property(Property.CAP)
    done = session.admin.run(fabrics.property_set(Property.CAP, cap ^ 1))
    assert not done.ok, "6.6: Property Set of CAP, which is read-only, ended with a success"


# An I/O command of before a reset (3.7.2)


def another_queue(session: ControllerSession) -> Queue:
    """Return another I/O queue: 2, or if one is granted, 1 again, whose end may take its time."""
    qid = min(session.io_queues_granted, 2)

    def connected() -> Queue | None:
        try:
            return session.io_queue(qid=qid)
        except RemoteProtocolError:
            return None

    what = f"a Connect of I/O queue {qid} that is not refused (Base 3.7.2: a reset deletes the I/O queues)"
    return wait_until(connected, session.endpoint.deadline, what, interval=0.05, error=RemoteProtocolError)


@pytest.mark.case(
    "NVF-RESET-05", kills=("reset-io-outlives", "reset-io-completes"), builds_on=("NVF-RESET-01",)
)
def test_a_write_of_before_a_reset_neither_succeeds_nor_is_carried_out(
    session: ControllerSession, scratch: Scratch
) -> None:
    old = session.io_queue(qid=1)
    blocks = scratch.blocks_of(old.in_capsule_limit + 1)  # more than a capsule holds, so it is asked for
    data = block_data(blocks * scratch.block_size, 81)
    cid = old.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    r2t = old.receive().pdu
    assert isinstance(r2t, R2T), f"3.3.2.2: not {r2t}"
    session.disable()
    session.enable()
    new = another_queue(session)
    current = write_blocks(new, scratch, blocks, 82)
    try:
        for pdu in old.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            old.send(pdu)
        answer = old.receive(deadline=min(1.0, old.deadline)).pdu
    except RemoteProtocolError:
        answer = None  # closed, or without a response
    old.forget(cid)
    done = isinstance(answer, CapsuleResp) and Cqe.decode(answer.cqe).ok
    assert not done, "3.7.2: a write that was outstanding at a reset succeeded after it"
    assert read_blocks(new, scratch, blocks) == current, (
        "3.7.2: data of a write of before the reset replaced what was written after it"
    )


# Shutdown (3.6.2)


def _shut_down(session: ControllerSession, shn: int, which: str) -> None:
    session.set_property(Property.CC, session.cc_enable | shn)

    def complete() -> bool:
        return session.get_property(Property.CSTS) & SHST == CSTS_SHUTDOWN_DONE

    what = f"CSTS.SHST 10b after {which} (Base 3.6.2)"
    wait_until(complete, session.endpoint.deadline, what, interval=0.02, error=RemoteProtocolError)


@pytest.mark.case(
    "NVF-SHUTDOWN-04", section="Base 3.6.2", kills=("shutdown-second-hangs",), builds_on=("NVF-SHUTDOWN-01",)
)
def test_each_shutdown_completes(session: ControllerSession) -> None:
    for which in ("the first shutdown", "the second", "the third"):
        _shut_down(session, 0x4000, which)
        session.disable()
        session.enable()


@pytest.mark.case("NVF-SHUTDOWN-05", section="Base 3.6.2", kills=("shutdown-abrupt-hangs",))
def test_an_abrupt_shutdown_completes(session: ControllerSession) -> None:
    _shut_down(session, SHUTDOWN_ABRUPT, "an abrupt shutdown")


@pytest.mark.case("NVF-SHUTDOWN-06", section="Base 3.6.2", kills=("shutdown-of-all",))
def test_another_hosts_shutdown_does_not_end_this_ones_commands(
    session: ControllerSession, queue: Queue, bench: Harness
) -> None:
    nsid = session.own_namespace()
    _shut_down(bench.session(name="the other host"), SHUTDOWN_ABRUPT, "the other host's abrupt shutdown")
    assert queue.run(io.flush(nsid)).ok, "3.6.2: the shutdown of one controller ended another's commands"
    assert session.get_property(Property.CSTS) & (SHST | CSTS_READY) == CSTS_READY, (
        "3.1.4.6: SHST and RDY are of one controller, and it was not shut down"
    )


# Asynchronous Event Request (5.2.2) and Abort (5.2.1)


def _fill(session: ControllerSession, when: str) -> list[int]:
    """Submit as many requests as AERL allows; none of them may be refused. Return their CIDs."""
    queue = session.admin
    cids = [queue.submit(admin.async_event()) for _ in range(session.controller["aerl"] + 1)]
    done = queue.run(admin.get_features(Feature.NUMBER_OF_QUEUES))  # behind them in the queue
    assert done.ok, f"5.2.11: not {status_name(done.status)}"
    refusals = [status for status in map(queue.status_of, cids) if status == StatusCode.AER_LIMIT_EXCEEDED]
    assert not refusals, (
        f"5.2.2: {len(refusals)} of {len(cids)} requests were over the limit {when}; AERL is {len(cids) - 1}"
    )
    for at, cid in enumerate(cids):
        if queue.status_of(cid) is not None:  # the controller had an event to report
            queue.wait(cid)
            cids[at] = request_event(session)
    return cids


@pytest.mark.case("NVA-AER-03", section="Base 5.2.2", kills=("aer-reset-limit",), builds_on=("NVA-AER-01",))
def test_event_requests_of_before_a_reset_do_not_count(session: ControllerSession) -> None:
    _fill(session, "of a new controller")
    session.disable()
    session.enable()
    _fill(session, "after a reset")


@pytest.mark.case("NVA-AER-04", section="Base 5.2.2", kills=("aer-abort-limit",), builds_on=("NVA-ABORT-02",))
def test_an_aborted_event_request_does_not_count(session: ControllerSession) -> None:
    cids = _fill(session, "of a new controller")
    done = session.admin.run(admin.abort(sqid=0, cid=cids[0]))
    assert done.ok, f"5.2.1: Abort is not {status_name(done.status)}"
    if done.cqe.dw0 & 1:
        pytest.skip("the controller does not abort Asynchronous Event Requests")
    refused(session.admin.wait(cids[0]), StatusCode.ABORTED_BY_REQUEST)
    cid = session.admin.submit(admin.async_event())
    assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
    assert session.admin.status_of(cid) != StatusCode.AER_LIMIT_EXCEEDED, (
        "5.2.2: a request that was aborted is not outstanding, but counts against AERL"
    )


@pytest.mark.case(
    "NVA-ABORT-04", section="Base 5.2.1", kills=("abort-any-queue",), builds_on=("NVA-ABORT-01",)
)
def test_abort_names_the_command_of_its_queue(session: ControllerSession, queue: Queue) -> None:
    assert queue.qid
    cid = request_event(session)
    done = session.admin.run(admin.abort(sqid=queue.qid, cid=cid))
    if done.ok:  # an error is as good: there is no such command
        assert done.cqe.dw0 & 1, f"5.2.1: no command {cid} is outstanding on queue {queue.qid}"
    assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
    assert session.admin.status_of(cid) is None, (
        f"5.2.1: Abort of command {cid} of queue {queue.qid} ended command {cid} of the admin queue"
    )


@pytest.mark.case(
    "NVA-ABORT-05", section="Base 5.2.1", kills=("abort-limit-one",), builds_on=("NVA-ABORT-01",)
)
def test_as_many_aborts_are_taken_as_acl_allows(session: ControllerSession) -> None:
    limit = min(session.controller["acl"] + 1, 16)
    cids = [session.admin.submit(admin.abort(sqid=0, cid=0x7700 + at)) for at in range(limit)]
    for cid in cids:
        done = session.admin.wait(cid)
        assert done.status != StatusCode.ABORT_LIMIT_EXCEEDED, (
            f"5.2.1: one of {limit} Abort commands is over the limit; ACL is {limit - 1}, zero's based"
        )


@pytest.mark.case(
    "NVA-ABORT-AGAIN", section="Base 5.2.1", kills=("abort-limit-for-life",), builds_on=("NVA-ABORT-01",)
)
def test_aborts_one_after_the_other_are_never_over_the_limit(session: ControllerSession) -> None:
    """ACL limits the Abort commands that are outstanding, and here one is at a time."""
    count = min(2 * (session.controller["acl"] + 2), MOST_ABORTS)
    for number in range(count):
        done = session.admin.run(admin.abort(sqid=0, cid=0x7700 + number))
        assert done.ok, (
            f"5.2.1: Abort {number + 1} of {count}, one after the other, ended with "
            f"{status_name(done.status)}; ACL is {session.controller['acl']}"
        )


# Keep Alive (3.9)


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-04", section="Base 5.2.26.1.8", kills=("kato-set-ignored",), builds_on=("NVA-KA-02",)
)
def test_a_timeout_that_was_set_later_ends_the_association(bench: Harness) -> None:
    session = bench.session()
    kato, cleanup = max(SHORT_KATO, session.controller["kas"] * 100), session.controller["cqt"] / 1000
    done = session.admin.run(admin.set_features(Feature.KATO, kato))
    assert done.ok, f"5.2.26.1.8: KATO of {kato} ms is not {status_name(done.status)}"
    ending = session.admin.wait_for_close(deadline=2 * kato / 1000 + cleanup + 3)  # 3.9.4.1: up to 2 * KATT
    fatal = not ending.ended and bool(session.get_property(Property.CSTS) & CSTS_FATAL)
    assert ending.ended or fatal, f"3.9.5: KATO was set to {kato} ms, but the association goes on: {ending}"


# Identify: one field in two structures (5.2.13)


@pytest.mark.case("NVA-ID-INDEPENDENT", section="Base 5.2.13.2.8", kills=("identify-independent-other",))
def test_the_independent_structure_is_that_of_identify_namespace(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:8]:
        command = admin.identify(Cns.CSI_INDEPENDENT, nsid=nsid)
        done = session.admin.run(command, reads=4096)
        if not done.ok:
            pytest.skip(f"Identify CNS 08h: {status_name(done.status)}")
        data = session.namespace(nsid)
        found = (done.data[1], done.data[2], int.from_bytes(done.data[4:8], "little"))
        wanted = (data["nmic"], data["rescap"], data["anagrpid"])
        names = ("NMIC", "RESCAP", "ANAGRPID")
        bad = [name for name, a, b in zip(names, found, wanted, strict=True) if a != b]
        assert not bad, (
            f"5.2.13.2.8: {', '.join(bad)} of namespace {nsid} is {found} in CNS 08h and {wanted} in CNS 00h"
        )


@pytest.mark.case("NVA-ID-NS-LIMITS", section="NVM 4.1.5.1", kills=("identify-copy-limits",))
def test_the_limits_of_copy_agree(session: ControllerSession) -> None:
    if not session.controller["oncs"] >> 8 & 1:
        pytest.skip("ONCS bit 8: Copy is not supported")
    for nsid in session.namespaces()[:8]:
        data = session.namespace(nsid)
        assert data["mcl"] >= data["mssrl"] > 0, (
            f"4.1.5.1: of namespace {nsid}, MCL is {data['mcl']} and MSSRL {data['mssrl']}: a range is more "
            "than a whole Copy"
        )


@pytest.mark.case("NVA-ID-ANA-GROUP", section="Base 8.1.1.2", kills=("identify-ana-group",))
def test_the_ana_group_of_a_namespace_is_a_valid_one(session: ControllerSession) -> None:
    if not session.controller["cmic"] & 8:
        pytest.skip("CMIC bit 3: no asymmetric namespace access reporting")
    most = session.controller["anagrpmax"]
    for nsid in session.namespaces()[:8]:
        group = session.namespace(nsid)["anagrpid"]
        assert 1 <= group <= most, f"8.1.1.2: ANAGRPID of namespace {nsid} is {group}; ANAGRPMAX is {most}"
