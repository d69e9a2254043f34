"""Connect to a discovery controller: what is refused there as anywhere, and what the log states of it."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.nvme.codes import Cns, LogPage, StatusCode, status_name
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER, DISCOVERY_NQN
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.session import Identity, connect_queue

from .test_discovery_entries import PIECE, TRTYPE_TCP

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 6.3", builds_on=("NVF-DISCOVERY-02",)),
]

NO_CONTROLLER = 0x7FF0
"""A CNTLID that no controller has (chosen, as in the other cases of Connect)."""

LONGEST_NQN = 223
"""Bytes of the longest NQN, without its NUL (4.7)."""

REFUSED: dict[str, tuple[dict[str, Any], StatusCode, str]] = {
    "FORMAT": ({"recfmt": 1}, StatusCode.CONNECT_INCOMPATIBLE_FORMAT, "connect-wrong-status"),
    "SIZE-0": ({"sqsize": 0}, StatusCode.CONNECT_INVALID_PARAMETERS, "connect-wrong-status"),
    "CNTLID": ({"cntlid": NO_CONTROLLER}, StatusCode.CONNECT_INVALID_PARAMETERS, "discovery-any-cntlid"),
}
"""By name: the field of Connect that is wrong, its status, and a mutant that the case detects."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-DISCOVERY-CONNECT-{name}", kills=(kills,)))
    for name, (_, _, kills) in REFUSED.items()
])  # fmt: skip
def test_a_wrong_connect_to_the_discovery_subsystem_is_refused(
    bench: Harness, discovery: ControllerSession, name: str
) -> None:
    """A discovery controller is a dynamic one: CNTLID is FFFFh. Another Connect has succeeded."""
    discovery.close()
    wrong, status, _ = REFUSED[name]
    fields = {"cntlid": ANY_CONTROLLER, **wrong}
    done = connect_queue(bench.queue(), subnqn=DISCOVERY_NQN, identity=bench.any_host(), **fields)
    refused(done, status)


@pytest.mark.case(
    "NVF-DISCOVERY-JOIN",
    section="Base 3.1.3.3",
    kills=("discovery-joined",),
    builds_on=("NVF-DISCOVERY-03", "NVF-CONNECT-12"),
)
def test_an_io_queue_with_the_cntlid_of_a_discovery_controller_is_refused(
    bench: Harness, discovery: ControllerSession
) -> None:
    """It names the subsystem of I/O controllers, in which this host has no controller."""
    done = connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=bench.endpoint.subnqn,
        identity=discovery.identity,
        qid=1,
        sqsize=min(15, discovery.cap.mqes),
        cntlid=discovery.cntlid,
    )
    assert not done.ok, (
        f"3.1.3.3: an I/O queue is connected to CNTLID {discovery.cntlid:#x}, which is a discovery controller"
    )


@pytest.mark.case(
    "NVF-DISCOVERY-ASQSZ-TAKEN",
    section="Base 5.2.12.3.3",
    kills=("asqsz-over",),
    builds_on=("NVF-DISCOVERY-05", "NVF-DISCOVERY-ASQSZ"),
)
def test_an_admin_queue_of_asqsz_entries_is_connected(bench: Harness, discovery: ControllerSession) -> None:
    """ASQSZ of the entries of the subsystem is the largest size of an admin queue."""
    records = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[8:16], "little")
    raw = discovery.log_page(LogPage.DISCOVERY, PIECE * (min(records, 64) + 1))
    entries = [raw[at : at + PIECE] for at in range(PIECE, len(raw), PIECE)]
    wanted = bench.endpoint.subnqn.encode()
    sizes = [
        int.from_bytes(entry[8:10], "little")
        for entry in entries
        if entry[0] == TRTYPE_TCP and entry[256:512].partition(b"\0")[0] == wanted
    ]
    discovery.close()
    if not sizes:
        pytest.skip("the discovery log has no entry of this subsystem")
    done = _connect(bench.queue(), bench, bench.any_host(), sqsize=min(sizes) - 1)
    assert done is None, (
        f"5.2.12.3.3: ASQSZ is {min(sizes)}, but a Connect of an admin queue of as many entries is {done}"
    )


def _connect(queue: Queue, bench: Harness, identity: Identity, **fields: int) -> str | None:
    """Connect an admin queue; return the name of the status if it was refused."""
    endpoint = bench.endpoint
    done = connect_queue(
        queue, subnqn=endpoint.subnqn, identity=identity, cntlid=endpoint.any_controller, **fields
    )
    return None if done.ok else status_name(done.status)


@pytest.mark.case(
    "NVF-CONNECT-HOSTNQN-LONGEST",
    section="Base 4.7",
    kills=("host-name-222",),
    builds_on=("NVF-CONNECT-01",),
)
def test_the_longest_host_nqn_is_taken(bench: Harness) -> None:
    """It has 223 bytes, on an admin queue and on an I/O queue."""
    if bench.endpoint.host is not None:
        pytest.skip("the subsystem lets one host in")
    fresh = Identity.fresh()
    prefix = "nqn.2014-08.org.example:"
    name = prefix + fresh.hostid.hex() * 8
    session = bench.session(identity=Identity(name[:LONGEST_NQN], fresh.hostid))
    queue = session.io_queue()
    assert queue.qid, "4.7: the I/O queue is connected"
    assert session.identify(Cns.CONTROLLER), "4.7: the controller serves the host"
