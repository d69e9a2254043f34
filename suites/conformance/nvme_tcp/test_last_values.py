"""The largest queue, Connect with a Keep Alive Timeout of 0, and damaged data of admin commands."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER, DISCOVERY_NQN
from storagetest.wire.nvme_tcp import ControllerSession, override_field
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, H2CData, ICReq
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_digests import needs_digests
from .test_other_queues import BEHAVIOR

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

MOST = 2048
"""Entries of the largest queue whose every head is reached (chosen)."""

HEAD = 1024
"""Bytes of the head of the discovery log page (Base 5.2.12.3.3)."""


@pytest.mark.case("NVF-CONNECT-MQES", kills=("mqes-refused", "sqhd-six-bits"), builds_on=("NVT-CQE-SQHD",))
def test_an_io_queue_of_mqes_entries_is_connected_and_used(session: ControllerSession) -> None:
    """CAP.MQES is SQSIZE of the largest queue, both zero's based; SQHD reaches each of its entries."""
    nsid, mqes = session.own_namespace(), session.cap.mqes
    queue = session.io_queue(sqsize=mqes)
    size = mqes + 1
    count = size + 2 if size <= MOST else 8
    heads = [queue.run(io.flush(nsid)).cqe.sqhd for _ in range(count)]
    for number, head in enumerate(heads):
        wanted = (heads[0] + number) % size
        assert head == wanted, (
            f"4.2.1: SQHD of a queue of {size} entries (MQES {mqes}) is {head} after {number + 1} commands; "
            f"required: {wanted}"
        )


@pytest.mark.case("NVF-DISCOVERY-KATO-0", section="Base 3.1.3.3", kills=("discovery-wants-timeout",))
def test_a_discovery_controller_needs_no_keep_alive_timeout(
    bench: Harness, discovery: ControllerSession
) -> None:
    """A host asks for an explicit persistent connection by a timeout that is not 0."""
    discovery.close()
    queue = bench.queue(name="discovery without a timeout")
    done = connect_queue(
        queue, subnqn=DISCOVERY_NQN, identity=bench.any_host(), cntlid=ANY_CONTROLLER, kato=0
    )
    assert done.ok, (
        f"3.1.3.3: a Connect to a discovery controller with KATO 0 ends with {status_name(done.status)}"
    )
    session = ControllerSession(bench.endpoint, bench.any_host(), queue, done.cqe.dw0 & 0xFFFF)
    session.enable()
    log = queue.run(admin.get_log_page(LogPage.DISCOVERY, HEAD), reads=HEAD)
    assert log.ok, f"5.2.12.3.3: the discovery log page ends with {status_name(log.status)}"


@pytest.mark.case(
    "NVF-CONNECT-KATO-0",
    section="Base 3.9.1",
    level="SHOULD",
    kills=("connect-without-timer",),
    builds_on=("NVA-FEAT-KATO-02",),
)
def test_the_keep_alive_timer_is_not_disabled_by_connect(bench: Harness) -> None:
    """TCP requires the timer (NVMe/TCP 3.4): what disables it is aborted. 3.9.1 has this of Set Features."""
    endpoint = bench.endpoint
    done = connect_queue(
        bench.queue(),
        subnqn=endpoint.subnqn,
        identity=bench.any_host(),
        cntlid=endpoint.any_controller,
        kato=0,
    )
    refused(done, StatusCode.KEEP_ALIVE_INVALID)


@pytest.mark.case(
    "NVT-DGST-FEATURE-ASKED",
    section="NVMe/TCP 3.5",
    kills=("ddgst-admin-data-unchecked",),
    builds_on=("NVT-DGST-DATA", "NVT-DGST-FEATURE"),
)
def test_damaged_h2cdata_of_an_admin_command_are_a_transient_transport_error(bench: Harness) -> None:
    """Set Features of Host Behavior Support, of the value that it has; the admin queue goes on."""
    session = bench.session(icreq=ICReq(data_digest=True))
    queue = session.admin
    needs_digests(queue)
    got = queue.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    if not got.ok:
        pytest.skip(f"no Host Behavior Support: {status_name(got.status)}")
    command = admin.set_features(Feature.HOST_BEHAVIOR, 0)
    queue.forget(queue.submit(command, data=got.data, inside=False))
    r2t = queue.receive().pdu
    if not isinstance(r2t, R2T) or r2t.length != BEHAVIOR:
        pytest.skip(f"the controller does not ask for the data of Set Features at once: {r2t}")
    queue.send(
        H2CData(r2t.cccid, r2t.ttag, r2t.offset, got.data, last=True),
        override=lambda raw: override_field(raw, "DDGST", 0xDEADBEEF),
    )
    received = queue.receive().pdu
    assert isinstance(received, CapsuleResp), f"3.5: damaged data of Set Features are followed by {received}"
    status = Cqe.decode(received.cqe).status
    assert status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: Set Features whose H2CData were damaged ended with {status_name(status)}"
    )
    done = queue.run(command, data=got.data, inside=True)
    assert done.ok, f"3.5: Set Features after a damaged one ended with {status_name(done.status)}"
