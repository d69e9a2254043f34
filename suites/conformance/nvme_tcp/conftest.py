"""Fixtures of the NVMe/TCP cases: a harness, a ready controller, an I/O queue, blocks to overwrite."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storagetest.config import Variant
from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance.cases import WireLog
from storagetest.plugin.conformance.known_issues import apply_reported
from storagetest.wire.nvme import io
from storagetest.wire.nvme_tcp import PORT, ControllerSession, Queue, SubsystemEndpoint, decoder
from storagetest.wire.nvme_tcp.harness import (
    SIGNATURE_SPAN,
    Harness,
    Scratch,
    implementation,
    signature,
    wwids,
)
from storagetest.wire.tcp import RecordedConnection

ANSWER = 5.0
"""Timeout in seconds for a response or a close (chosen)."""

REGION = 256
"""Blocks of one case's scratch."""


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> SubsystemEndpoint:
    """Return the endpoint of the target's subsystem, as this machine connects to it."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    within = min(ANSWER, options.deadline)
    return SubsystemEndpoint(address, port, options.nqn, within, within)


@pytest.fixture(scope="session")
def about(endpoint: SubsystemEndpoint, variant: Variant) -> dict[str, object]:
    """Query the target once: its implementation, and the blocks that may be overwritten."""
    found: dict[str, object] = {"is": "", "scratch": "the target could not be queried", "reserves": True}
    with contextlib.suppress(RemoteProtocolError), ControllerSession.connect(endpoint) as session:
        data = session.controller
        found |= {"is": implementation(data), "reserves": bool(data["oncs"] >> 5 & 1)}
        found["scratch"] = _scratch(session, variant)
    return found  # if the query failed, each case reports its own error


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest, about: dict[str, object]) -> bool:
    """Apply the known issues of the target's controller; return whether the case is expected to fail."""
    return apply_reported(request.node, controller=str(about["is"]))


@pytest.fixture
def bench(endpoint: SubsystemEndpoint, wire_log: WireLog, known_issue: bool) -> Iterator[Harness]:
    """Yield a harness whose connections are in the case's log, and are closed at its end."""
    if known_issue:  # a response that is known to be missing needs no long timeout
        endpoint = replace(endpoint, deadline=min(endpoint.deadline, 1.5), close_timeout=0.4)

    def note(link: RecordedConnection, name: str) -> None:
        wire_log.add(link, name=name, decoder=decoder, port=PORT)

    with Harness(endpoint, note) as made:
        yield made


@pytest.fixture
def session(bench: Harness) -> ControllerSession:
    """Return a session with a ready controller, as a host of this case only."""
    return bench.session()


@pytest.fixture
def queue(session: ControllerSession) -> Queue:
    """Return an I/O queue of ``session``."""
    return session.io_queue()


@pytest.fixture
def scratch(about: dict[str, object]) -> Scratch:
    """Return blocks of this case's own; skip where the target's ``erase`` allows none to be overwritten."""
    found = about["scratch"]
    if isinstance(found, str):
        pytest.skip(found)
    assert isinstance(found, itertools.cycle)
    return next(found)


def _scratch(session: ControllerSession, variant: Variant) -> itertools.cycle[Scratch] | str:
    """Return regions of the namespace that ``erase`` names, or why there are none."""
    nsid, erase = variant.options.namespace, variant.options.erase
    if nsid not in session.namespaces():
        return f"{variant.id}: namespace {nsid} is not active"
    names = wwids(session, nsid)
    if erase is None or erase not in names:
        return (
            f"{variant.id}: `erase` does not name namespace {nsid}, so nothing is written there "
            f"(its names: {', '.join(sorted(names)) or 'none'})"
        )
    limits, end = session.limits(nsid), session.namespace(nsid)["nsze"]
    size = limits.block_size
    head = min(-(-SIGNATURE_SPAN // size), end)
    queue = session.io_queue()
    found = signature(queue.run(io.read(nsid, 0, head), reads=head * size).data)
    if found:
        return f"{variant.id}: namespace {nsid} carries {found}; nothing is written there"
    first = end // 2
    starts = range(first, min(end - REGION, first + 64 * REGION), REGION)
    return itertools.cycle([Scratch(nsid, lba, REGION, end, limits) for lba in starts])
