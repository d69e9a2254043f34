"""Connect: formats of each queue, the end of a name, SQ flow control of others; Set Features refused."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Identity
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, refused
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_feature_forms import CAPABILITIES, SAVEABLE
from .test_feature_values import SAVE_AND_SELECT
from .test_transfers import DISABLE_FLOW_CONTROL

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

UNTERMINATED = b"nqn.2014-08.org.nvmexpress:".ljust(256, b"h")
"""The bytes of a name of 256 characters, whose NUL is missing (4.7: 223 bytes at most)."""

BEHAVIOR = 512
"""Bytes of Host Behavior Support (5.2.26.1.14)."""

SQSIZE = 3
"""SQSIZE of a queue whose head is followed over its end (chosen)."""


def _connect(session: ControllerSession, bench: Harness, qid: int, recfmt: int) -> CommandResult:
    """Connect an I/O queue of the session, or another admin queue of its host."""
    return connect_queue(
        bench.queue(),
        subnqn=bench.endpoint.subnqn,
        identity=session.identity,
        qid=qid,
        cntlid=session.cntlid if qid else bench.endpoint.any_controller,
        sqsize=1,
        recfmt=recfmt,
    )


@pytest.mark.parametrize(("qid", "recfmt"), [
    pytest.param(0, 1, marks=pytest.mark.case("NVF-FORMAT-ADMIN-1", kills=("format-high-byte",))),
    pytest.param(0, 0x100, marks=pytest.mark.case("NVF-FORMAT-ADMIN-100", kills=("format-low-byte",))),
    pytest.param(0, 0x8000, marks=pytest.mark.case("NVF-FORMAT-ADMIN-8000", kills=("format-low-byte",))),
    pytest.param(1, 1, marks=pytest.mark.case("NVF-FORMAT-IO-1")),
    pytest.param(1, 0x100, marks=pytest.mark.case("NVF-FORMAT-IO-100")),
    pytest.param(1, 0x8000, marks=pytest.mark.case("NVF-FORMAT-IO-8000")),
])  # fmt: skip
@pytest.mark.case(kills=("format-of-io-queues-ignored",))
def test_a_record_format_that_does_not_exist_is_refused(
    session: ControllerSession, bench: Harness, qid: int, recfmt: int
) -> None:
    """Connect of the admin queue and of an I/O queue; the queue can be connected after it."""
    refused(_connect(session, bench, qid, recfmt), StatusCode.CONNECT_INCOMPATIBLE_FORMAT)
    done = _connect(session, bench, qid, 0)
    assert done.ok, (
        f"6.3: Connect of queue {qid} ended with {status_name(done.status)}, after one of record format "
        f"{recfmt:#x} was refused"
    )


@pytest.mark.case("NVF-CONNECT-HOSTNQN-END", section="Base 4.7", kills=("host-name-without-end",))
def test_a_host_nqn_without_its_end_is_refused(bench: Harness) -> None:
    done = connect_queue(
        bench.queue(),
        subnqn=bench.endpoint.subnqn,
        identity=Identity(UNTERMINATED, Identity.fresh().hostid),  # type: ignore[arg-type]  # raw bytes
        cntlid=bench.endpoint.any_controller,
    )
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)


@pytest.mark.parametrize("half", [
    pytest.param(0, marks=pytest.mark.case("NVA-FEAT-QUEUES-NSQR")),
    pytest.param(16, marks=pytest.mark.case("NVA-FEAT-QUEUES-NCQR")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26.2.1", level="SHOULD", kills=("queues-of-one-kind-ffff",))
def test_65536_queues_of_one_kind_are_refused(session: ControllerSession, half: int) -> None:
    """The number of submission queues, or of completion queues, is 65,535; the other one is 0."""
    done = session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0xFFFF << half))
    refused(done, StatusCode.INVALID_FIELD)


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-SAVE-{fid:02X}H"))
    for fid in (
        Feature.HOST_BEHAVIOR, Feature.RESERVATION_NOTIFICATION_MASK, Feature.RESERVATION_PERSISTENCE
    )
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26", level="SHOULD", kills=("features-saved-anyway",))
def test_a_feature_with_data_or_of_a_namespace_is_not_saved(
    session: ControllerSession, scratch: Scratch, fid: int
) -> None:
    """Its current value is set again, with Save, although it is not saveable."""
    nsid = 0 if fid == Feature.HOST_BEHAVIOR else scratch.nsid
    reads = BEHAVIOR if fid == Feature.HOST_BEHAVIOR else 0
    done = session.admin.run(admin.get_features(fid, nsid=nsid), reads=reads)
    if not done.ok:
        pytest.skip(f"feature {fid:02x}h is not supported: {status_name(done.status)}")
    value, data = done.cqe.dw0, done.data[:reads]
    capabilities = session.admin.run(admin.get_features(fid, nsid=nsid, select=CAPABILITIES), reads=reads)
    if session.controller["oncs"] & SAVE_AND_SELECT and capabilities.ok and capabilities.cqe.dw0 & SAVEABLE:
        pytest.skip(f"feature {fid:02x}h is saveable")
    done = session.admin.run(admin.set_features(fid, 0 if reads else value, nsid=nsid, save=True), data=data)
    refused(done, StatusCode.FEATURE_NOT_SAVEABLE)


@pytest.mark.case("NVF-OWN-FLOW-HEAD", kills=("flow-control-of-last", "head-of-last-stays"))
def test_sqhd_goes_on_after_another_queue_asks_for_no_flow_control(
    bench: Harness, session: ControllerSession, scratch: Scratch
) -> None:
    """An I/O queue of another host, and then one of the same controller, are connected with DISSQFC."""
    queue = session.io_queue(sqsize=SQSIZE)
    entries = (queue.sqsize or SQSIZE) + 1  # CAP.MQES may allow fewer
    others = [bench.session(name="the other host's admin queue").io_queue]
    if session.io_queues_granted > 1:
        others.append(session.io_queue)
    for connect in others:
        connect(cattr=DISABLE_FLOW_CONTROL)
        first = queue.run(io.flush(scratch.nsid)).cqe.sqhd
        heads = [queue.run(io.flush(scratch.nsid)).cqe.sqhd for _ in range(entries)]
        right = [(first + at) % entries for at in range(1, entries + 1)]
        assert heads == right, (
            f"6.3: SQHD of a queue with SQ flow control is {heads} after {first}, and not {right}; another "
            "queue was connected with DISSQFC"
        )
