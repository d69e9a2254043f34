"""Two controllers of one host at the same time, which share only their namespaces (Base 3.1.3, 6.3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, Property, StatusCode, status_name
from storagetest.wire.nvme.structures import ControllerData
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import (
    Harness,
    Scratch,
    read_blocks,
    refused,
    request_event,
    write_blocks,
    wwids,
)
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_feature_values import need_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

Pair = tuple[ControllerSession, ControllerSession]

CID = 0x7001
"""The CID of a command that is outstanding on one controller alone."""

CONTROLLERS = 20
"""Controllers that a case has at the same time, if the subsystem admits as many (chosen)."""

CONNECT_DATA = 1024
"""Bytes of the data of Connect (6.3)."""

QUEUE_EXISTS = (
    StatusCode.COMMAND_SEQUENCE_ERROR,
    StatusCode.INVALID_QUEUE_IDENTIFIER,
    StatusCode.CONNECT_INVALID_PARAMETERS,
)
"""How a Connect on a queue that exists ends: the first by 3.3.2.3, any of the three by 6.3 (QID)."""


@pytest.fixture
def pair(session: ControllerSession, bench: Harness) -> Pair:
    """Return two sessions of one host."""
    return session, bench.session(identity=session.identity, name="the second admin queue")


def _works(session: ControllerSession, queue: Queue, why: str) -> None:
    """Claim that the controller and its I/O queue carry out commands."""
    done = session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096)
    assert done.ok, f"3.1.3: Identify of the other controller ends with {status_name(done.status)} {why}"
    done = queue.run(io.flush(session.own_namespace()))
    assert done.ok, f"3.1.3: Flush through the other controller ends with {status_name(done.status)} {why}"


@pytest.mark.case("NVF-PAIR-CNTLID", kills=("pair-cntlid",))
def test_the_controllers_of_a_host_have_ids_of_their_own(pair: Pair) -> None:
    found = [session.cntlid for session in pair]
    identified = [ControllerData.decode(session.identify(Cns.CONTROLLER))["cntlid"] for session in pair]
    assert found == identified, f"6.3: Connect has returned CNTLIDs {found}, and Identify has {identified}"
    assert found[0] != found[1], f"6.3: two associations have one controller, {found[0]:#x}"


@pytest.mark.case("NVF-CNTLID-MANY", kills=("cntlid-repeats",))
def test_many_controllers_have_ids_of_their_own(bench: Harness) -> None:
    """As many at the same time as the subsystem admits, up to a number that this case chooses."""
    found: list[int] = []
    for number in range(CONTROLLERS):
        try:
            found.append(bench.session(name=f"admin queue {number + 1}").cntlid)
        except RemoteProtocolError as error:
            if "refused" not in str(error):
                raise
            break
    if len(found) < 3:
        pytest.skip(f"the subsystem admits {len(found)} controllers at the same time")
    repeated = sorted({one for one in found if found.count(one) > 1})
    assert not repeated, f"6.3: of {len(found)} controllers at the same time some have one CNTLID: {repeated}"


@pytest.mark.case("NVA-PAIR-NN", section="Base 5.2.13.2.1", kills=("pair-nn",))
def test_nn_is_that_of_the_subsystem(pair: Pair) -> None:
    found = [session.controller["nn"] for session in pair]
    assert found[0] == found[1], (
        f"5.2.13.2.1: NN is the largest valid NSID of the subsystem, but two of its controllers have {found}"
    )


@pytest.mark.case(
    "NVA-PAIR-NAMESPACE", section="NVM 4.1.5.1", kills=("pair-namespace-size",), builds_on=("NVA-ID-NS-06",)
)
def test_a_namespace_has_one_size_and_format_through_each_controller(pair: Pair) -> None:
    """Namespaces with the same identifiers are one namespace, whichever controller is asked."""
    shared = set(pair[0].namespaces()) & set(pair[1].namespaces())
    for nsid in sorted(shared)[:8]:
        names = [wwids(session, nsid) for session in pair]
        if not names[0] or names[0] != names[1]:
            continue
        seen = [
            {name: session.namespace(nsid)[name] for name in ("nsze", "ncap", "flbas", "nlbaf")}
            | {"block size": session.namespace(nsid).block_size}
            for session in pair
        ]
        assert seen[0] == seen[1], (
            f"4.1.5.1: NSID {nsid} ({', '.join(sorted(names[0]))}) is {seen[0]} through one controller and "
            f"{seen[1]} through the other"
        )


@pytest.mark.case("NVF-PAIR-CC", section="Base 3.1.4.5", kills=("pair-cc",))
def test_cc_of_one_controller_is_not_the_others(pair: Pair) -> None:
    """Each one is disabled and enabled again, and the other's CC stays as it was."""
    for this, other in (pair, pair[::-1]):
        before = other.get_property(Property.CC)
        this.disable()
        found = other.get_property(Property.CC)
        this.enable()
        assert found == before, (
            f"3.1.4.5: CC of controller {other.cntlid:#x} was {before:#x}; it is {found:#x} after CC.EN of "
            f"controller {this.cntlid:#x} was cleared"
        )


@pytest.mark.case("NVB-PAIR-DATA", section="NVM 3.3.4", kills=("pair-cache",))
def test_data_that_one_controller_writes_are_read_through_the_other(pair: Pair, scratch: Scratch) -> None:
    """Each writes in turn; the blocks were read before through both."""
    queues = [session.io_queue() for session in pair]
    blocks = scratch.fit(4)
    for number in range(4):
        data = write_blocks(queues[number % 2], scratch, blocks, 500 + number)
        for name, queue in zip(("first", "second"), queues, strict=True):
            assert read_blocks(queue, scratch, blocks) == data, (
                f"3.3.4: write {number + 1} of one controller is not read through the {name} one"
            )


def _value(session: ControllerSession, fid: int) -> int:
    done = session.admin.run(admin.get_features(fid))
    assert done.ok, f"5.2.11: Get Features {fid:02x}h is not {status_name(done.status)}"
    return done.cqe.dw0


def _change(session: ControllerSession, fid: int, first: int) -> int:
    """Return another value than ``first`` for a feature."""
    if fid == Feature.KATO:
        return first + 10 * max(session.controller["kas"] * 100, 1_000)
    return first ^ (session.controller["oaes"] & 1 << 8 if fid == Feature.ASYNC_EVENT else 1)


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-PAIR-FEATURE-{fid:02X}H", kills=("pair-features",)))
    for fid in (Feature.ARBITRATION, Feature.WRITE_ATOMICITY, Feature.ASYNC_EVENT, Feature.KATO)
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26")
def test_a_feature_of_one_controller_is_not_the_others(pair: Pair, fid: int) -> None:
    """The scope of the feature is a controller. Each one sets it in turn."""
    changed = 0
    need_feature(pair[0], fid)
    for this, other in (pair, pair[::-1]):
        before, others = _value(this, fid), _value(other, fid)
        changed += this.admin.run(admin.set_features(fid, _change(this, fid, before))).ok
        found = _value(other, fid)
        assert found == others, (
            f"5.2.26: feature {fid:02x}h of controller {other.cntlid:#x} was {others:#x}; it is {found:#x} "
            f"after Set Features of controller {this.cntlid:#x} of the same host"
        )
    if not changed:
        pytest.skip(f"feature {fid:02x}h is not changed by Set Features")


@pytest.mark.case("NVA-PAIR-QUEUES", section="Base 5.2.26.2.1", kills=("pair-queues-locked",))
def test_the_number_of_queues_is_asked_for_by_each_controller(pair: Pair) -> None:
    """I/O queues of one controller do not hinder the other, whose QID 1 is a queue of its own."""
    first = pair[0].io_queue(qid=1)
    done = pair[1].admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0))
    assert done.ok, (
        "5.2.26.2.1: Number of Queues of a controller without I/O queues ends with "
        f"{status_name(done.status)}; the other controller of the host has one"
    )
    second = pair[1].io_queue(qid=1)
    _works(pair[0], first, "after QID 1 was connected to each")
    _works(pair[1], second, "after QID 1 was connected to each")


@pytest.mark.case("NVA-PAIR-AER", section="Base 5.2.2", kills=("pair-aerl",))
def test_event_requests_of_one_controller_do_not_count_for_the_other(pair: Pair) -> None:
    for which, session in zip(("first", "second"), pair, strict=True):
        count = session.controller["aerl"] + 1
        cids = [session.admin.submit(admin.async_event()) for _ in range(count)]
        assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
        over = [cid for cid in cids if session.admin.status_of(cid) == StatusCode.AER_LIMIT_EXCEEDED]
        assert not over, f"5.2.2: {len(over)} of {count} requests of the {which} controller are over its AERL"


@pytest.mark.case("NVA-PAIR-ABORT", section="Base 5.2.1", kills=("pair-abort",), builds_on=("NVA-ABORT-01",))
def test_abort_of_one_controller_is_not_of_the_others_commands(pair: Pair) -> None:
    this, other = pair
    request_event(other, cid=CID)
    done = this.admin.run(admin.abort(sqid=0, cid=CID))
    if done.ok:  # an error is as good: there is no such command
        assert done.cqe.dw0 & 1, f"5.2.1: no command {CID:#x} is outstanding on controller {this.cntlid:#x}"
    assert other.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
    assert other.admin.status_of(CID) is None, (
        f"5.2.1: Abort of controller {this.cntlid:#x} has ended command {CID:#x} of the other one, "
        f"{other.cntlid:#x}"
    )


@pytest.mark.case(
    "NVF-PAIR-CONNECT",
    section="Base 3.3.2.3",
    kills=("pair-connect-moves",),
    builds_on=("NVF-CONNECT-10",),
)
def test_an_io_queue_of_one_controller_is_not_connected_to_the_other(pair: Pair) -> None:
    """A queue exists on its connection: a Connect there that names the other controller fails."""
    queue = pair[0].io_queue(qid=1)
    if queue.in_capsule_limit < CONNECT_DATA:
        pytest.skip(f"IOCCSZ: the data of Connect do not fit into {queue.in_capsule_limit} bytes")
    pair[1].io_queue(qid=1)
    done = connect_queue(
        queue,
        subnqn=pair[0].endpoint.subnqn,
        identity=pair[0].identity,
        qid=2,
        sqsize=min(15, pair[1].cap.mqes),
        cntlid=pair[1].cntlid,
    )
    refused(done, *QUEUE_EXISTS)


ENDS: dict[str, Callable[[ControllerSession], None]] = {
    "SHUTDOWN": ControllerSession.close,
    "RESET": ControllerSession.disable,
    "DROPPED": lambda session: session.admin.close(),
}


@pytest.mark.parametrize(("end", "which"), [
    pytest.param(end, which, marks=pytest.mark.case(
        f"NVF-PAIR-{name}-{which + 1}", kills=(f"pair-ends-{name.lower()}",)))
    for name, end in ENDS.items() for which in (0, 1)
])  # fmt: skip
@pytest.mark.case(section="Base 3.1.3")
def test_the_other_controller_stays_when_one_ends(
    pair: Pair, end: Callable[[ControllerSession], None], which: int
) -> None:
    ended, other = pair[which], pair[1 - which]
    queue = other.io_queue()
    ended.io_queue()
    end(ended)
    _works(other, queue, "after the one of the same host has ended")
    assert other.get_property(Property.CSTS) & 0xD == 1, "3.1.4.6: CSTS of the other controller has changed"
