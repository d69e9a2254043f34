"""Errors of the transport on each kind of queue, and what a controller with commands outstanding does then.

The cases of ``test_fatal_errors`` break the rules of command capsules on an admin queue, and those of data on
an I/O queue; here it is the other way round (NVMe/TCP 3.5).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Feature, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, request_event
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_fatal_errors import DIGESTS, VIOLATIONS, Stage, Violation, responses
from .test_transfers import BAD_SGLS
from .test_write_pieces import Write, begin

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.5")]

BY_NAME = {violation.name: violation for violation in VIOLATIONS}

CAPSULES = ("CMD-HDGST", "CMD-HEADER-BIT", "TYPE-05", "TYPE-07", "TYPE-09", "DATA-UNSOLICITED")
"""Violations that are a MUST, and need no R2T."""

DATA = ("DATA-TTAG", "DATA-RANGE", "DATA-HDGST")
"""Violations of data that an R2T asks for."""

BEHAVIOR = 512
"""Bytes of Host Behavior Support (Base 5.2.26.1.14)."""

SERVICE = "CMD-HDGST"


def _needs_digests(queue: Queue, broken: Violation) -> None:
    if broken.icreq.header_digest and not queue.digests.header:
        pytest.skip("the controller does not enable the header digest, as it may (3.6.2.3)")


def _claim_end(stage: Stage, broken: Violation, where: str) -> None:
    """Break the rule; claim that the connection ends, and that the controller completes no command."""
    stage.queue.send_raw(broken.breaks(stage))
    ending = stage.queue.wait_for_close()
    assert ending.ended, f"3.5: {broken.name} on {where} is a fatal error, but the connection stays: {ending}"
    assert not responses(ending), f"3.5: processing stops at {broken.name} on {where}; but: {ending}"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVT-QUEUE-{name}",
        section=f"NVMe/TCP {BY_NAME[name].section}",
        kills=("fatal-on-io-ignored",),
        builds_on=(f"NVT-{name}-END",),
    ))
    for name in CAPSULES
])  # fmt: skip
def test_a_fatal_error_on_an_io_queue_ends_its_connection(session: ControllerSession, name: str) -> None:
    broken = BY_NAME[name]
    queue = session.io_queue(icreq=broken.icreq)
    _needs_digests(queue, broken)
    _claim_end(Stage(queue), broken, "an I/O queue")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVT-ADMIN-{name}",
        section=f"NVMe/TCP {BY_NAME[name].section}",
        kills=("fatal-of-admin-data-ignored",),
        builds_on=(f"NVT-{name}-END",),
    ))
    for name in DATA
])  # fmt: skip
def test_a_fatal_error_of_data_on_the_admin_queue_ends_its_connection(bench: Harness, name: str) -> None:
    """The data are those of Set Features (Host Behavior Support), of the value that it has."""
    broken = BY_NAME[name]
    session = bench.session(icreq=broken.icreq)
    queue = session.admin
    _needs_digests(queue, broken)
    got = queue.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    if not got.ok:
        pytest.skip(f"no Host Behavior Support: {status_name(got.status)}")
    queue.submit(admin.set_features(Feature.HOST_BEHAVIOR, 0), data=got.data, inside=False)
    r2t = queue.receive().pdu
    if not isinstance(r2t, R2T):
        pytest.skip("the controller does not ask for the data of Set Features")
    if r2t.length != BEHAVIOR:
        pytest.skip(f"the R2T asks for {r2t.length} bytes of {BEHAVIOR}")
    _claim_end(Stage(queue, r2t), broken, "the admin queue")


@pytest.mark.case(
    "NVF-DISCOVERY-HDGST",
    kills=("discovery-hdgst-unchecked",),
    builds_on=("NVF-DISCOVERY-02", f"NVT-{SERVICE}-END"),
)
def test_a_damaged_header_ends_the_connection_of_a_discovery_controller(
    bench: Harness, discovery: ControllerSession
) -> None:
    discovery.close()
    broken = BY_NAME[SERVICE]
    queue = bench.session(subnqn=DISCOVERY_NQN, icreq=DIGESTS, name="discovery with digests").admin
    _needs_digests(queue, broken)
    _claim_end(Stage(queue), broken, "a discovery controller")


@pytest.mark.case(
    "NVT-FATAL-EVENT", kills=("fatal-completes-requests",), builds_on=("NVT-TYPE-05-END", "NVA-AER-01")
)
def test_a_fatal_error_completes_no_event_request(session: ControllerSession) -> None:
    """The Asynchronous Event Request was outstanding before the error."""
    queue = session.admin
    request_event(session)
    _claim_end(Stage(queue), BY_NAME["TYPE-05"], "an admin queue with an event request outstanding")


@pytest.mark.case("NVT-FATAL-WRITE", kills=("fatal-completes-writes",), builds_on=("NVT-TYPE-05-END",))
def test_a_fatal_error_completes_no_write_that_waits(queue: Queue, scratch: Scratch) -> None:
    """Its data have not come: the controller has sent an R2T, at most."""
    begin(queue, scratch, seed=3101, size=4096)
    _claim_end(Stage(queue), BY_NAME["TYPE-05"], "an I/O queue with a write that waits for its data")


ADMIN_SGLS = ("KEYED", "BIT-BUCKET", "LAST-SEGMENT", "VENDOR", "SUBTYPE")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVT-SGL-ADMIN-{name}", kills=("admin-sgl-not-checked",), builds_on=("NVT-SGL-KEYED",)))
    for name in ADMIN_SGLS
])  # fmt: skip
@pytest.mark.case(section="NVMe/TCP 3.3.2")
def test_an_unsupported_sgl_of_an_admin_command_is_a_failure(session: ControllerSession, name: str) -> None:
    queue = session.admin
    raw = BAD_SGLS[name]
    done = queue.wait(queue.submit(admin.identify(Cns.CONTROLLER), reads=4096, dptr=_longer(raw)))
    assert done.status in (StatusCode.SGL_TYPE_INVALID, StatusCode.INVALID_FIELD), (
        f"3.3.2: Identify with an SGL that NVMe/TCP has not ({name}) is refused, not "
        f"{status_name(done.status)}"
    )
    assert session.get_property(Property.VS), "3.3.2: and the connection lives on"


def _longer(descriptor: bytes) -> bytes:
    """Return the descriptor with a length of 4,096 bytes, which Identify has."""
    return descriptor[:8] + (4096).to_bytes(4, "little") + descriptor[12:]


# SQHD of completions that come late (Base 4.2.1)


def _claim_not_behind(found: int, last: int, most: int, size: int, what: str) -> None:
    """Claim that ``found`` is the head of the queue as it was last stated, or one of the next ``most``."""
    allowed = [(last + step) % size for step in range(most + 1)]
    assert found in allowed, (
        f"4.2.1: SQHD was {last} in the completion before that of {what}, which states {found}: the head of "
        f"a queue of {size} entries does not move back"
    )


@pytest.mark.case(
    "NVT-CQE-SQHD-LATE",
    section="Base 4.2.1",
    kills=("sqhd-of-submission",),
    builds_on=("NVT-CQE-SQHD",),
)
def test_sqhd_of_a_write_that_has_waited_is_not_an_old_one(
    session: ControllerSession, scratch: Scratch
) -> None:
    """Commands behind it are complete when its data come: their heads are older than its own."""
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command at a time")
    queue = session.io_queue(sqsize=31)
    size = (queue.sqsize or 1) + 1
    write = begin(queue, scratch, seed=3102, size=4096)
    last = 0
    for _ in range(min(5, size - 2)):
        last = queue.run(io.flush(scratch.nsid)).cqe.sqhd
    cqe = _finish(write)
    assert cqe.ok, f"3.3.6: the write ended with {status_name(cqe.status)}"
    _claim_not_behind(cqe.sqhd, last, 1, size, "a write that has waited for its data")


def _finish(write: Write) -> Cqe:
    """Send the data that each R2T of the write asks for; return its completion."""
    while True:
        write.answer()
        received = write.queue.receive().pdu
        if isinstance(received, CapsuleResp):
            return Cqe.decode(received.cqe)
        assert isinstance(received, R2T), f"3.3.2.2: not {received}"
        write = replace(write, r2t=received)


@pytest.mark.case(
    "NVT-CQE-SQHD-EVENT",
    section="Base 4.2.1",
    kills=("sqhd-of-submission",),
    builds_on=("NVT-CQE-SQHD-ADMIN", "NVA-ABORT-02"),
)
def test_sqhd_of_an_event_request_that_has_waited_is_not_an_old_one(session: ControllerSession) -> None:
    """It is aborted after other commands are complete; if it is not, there is no completion."""
    queue = session.admin
    size = (queue.sqsize or 1) + 1
    cid = request_event(session)
    last = 0
    for _ in range(min(5, size - 2)):
        last = queue.run(fabrics.property_get(Property.CSTS)).cqe.sqhd
    done = queue.run(admin.abort(sqid=0, cid=cid))
    if not done.ok or done.cqe.dw0 & 1:
        pytest.skip("the event request was not aborted")
    found = queue.wait(cid).cqe.sqhd
    _claim_not_behind(found, last, 2, size, "an event request that was aborted")


# Commands of the admin queue that come on an I/O queue


@pytest.mark.case(
    "NVF-PROP-IO-SET", section="Base 6", kills=("property-set-on-io",), builds_on=("NVF-PROP-03",)
)
def test_a_property_is_not_set_on_an_io_queue(session: ControllerSession, queue: Queue) -> None:
    """CC is set to the value that it has."""
    value = session.get_property(Property.CC)
    done = queue.run(fabrics.property_set(Property.CC, value))
    assert not done.ok, "6: an I/O queue does not support Property Set"
    assert session.get_property(Property.CC) == value


@pytest.mark.case(
    "NVF-CONNECT-OVER-IO",
    section="Base 3.3.2.3",
    kills=("connect-over-io",),
    builds_on=("NVF-CONNECT-10",),
)
def test_a_connected_io_queue_is_no_admin_queue(session: ControllerSession) -> None:
    """A Connect of an admin queue comes on it, and a Connect of the same I/O queue."""
    queue = session.io_queue()
    qid, sqsize, flow = queue.qid, queue.sqsize or 1, queue.sq_flow_control
    for again, cntlid in ((0, session.endpoint.any_controller), (qid, session.cntlid)):
        try:
            done = connect_queue(
                queue,
                subnqn=session.endpoint.subnqn,
                identity=session.identity,
                qid=again,
                sqsize=sqsize,
                cntlid=cntlid,
            )
        except RemoteProtocolError:
            return  # the connection has ended
        assert not done.ok, (
            f"3.3.2.3: a Connect with QID {again} succeeds on the connection of I/O queue {qid}: Command "
            "Sequence Error"
        )
        queue.qid, queue.sq_flow_control = qid, flow
    assert session.get_property(Property.CSTS) & 1, "3.3.2.3: the controller stays ready"
