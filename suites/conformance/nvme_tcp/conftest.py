"""Fixtures of the NVMe/TCP cases: a bench, a controller that is ready, an I/O queue, blocks to overwrite."""

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
from storagetest.wire.nvme_tcp import PORT, Endpoint, Queue, Session, decoder
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
"""Seconds within which a target answers, or closes."""

REGION = 256
"""Blocks of one case's scratch."""


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> Endpoint:
    """Return where this machine reaches the target's subsystem."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    within = min(ANSWER, options.deadline)
    return Endpoint(address, port, options.nqn, within, within)


@pytest.fixture(scope="session")
def about(endpoint: Endpoint, variant: Variant) -> dict[str, object]:
    """Look at the target once: which implementation it is, and where it may be overwritten."""
    found: dict[str, object] = {"is": "", "scratch": "the target could not be looked at", "reserves": True}
    with contextlib.suppress(RemoteProtocolError), Session.connect(endpoint) as session:
        data = session.controller
        found |= {"is": implementation(data), "reserves": bool(data["oncs"] >> 5 & 1)}
        found["scratch"] = _scratch(session, variant)
    return found  # what is wrong with a target that cannot even be looked at, the cases say one by one


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest, about: dict[str, object]) -> bool:
    """Apply the known issues of the target's controller; return whether the case is expected to fail."""
    return apply_reported(request.node, controller=str(about["is"]))


@pytest.fixture
def bench(endpoint: Endpoint, wire_log: WireLog, known_issue: bool) -> Iterator[Harness]:
    """Yield a bench whose connections are in the case's log, and are closed at its end."""
    if known_issue:  # what is known not to come need not be waited for
        endpoint = replace(endpoint, deadline=min(endpoint.deadline, 1.5), patience=0.4)

    def note(link: RecordedConnection, what: str) -> None:
        wire_log.add(link, name=what, decoder=decoder, port=PORT)

    with Harness(endpoint, note) as made:
        yield made


@pytest.fixture
def session(bench: Harness) -> Session:
    """Return a controller that is ready, of a host of this case's own."""
    return bench.session()


@pytest.fixture
def queue(session: Session) -> Queue:
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


def _scratch(session: Session, variant: Variant) -> itertools.cycle[Scratch] | str:
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
    data = session.namespace(nsid)
    size, end = data.block_size, data["nsze"]
    head = min(-(-SIGNATURE_SPAN // size), end)
    queue = session.io_queue()
    found = signature(queue.run(io.read(nsid, 0, head), reads=head * size).data)
    if found:
        return f"{variant.id}: namespace {nsid} carries {found}; nothing is written there"
    first = end // 2
    starts = range(first, min(end - REGION, first + 64 * REGION), REGION)
    return itertools.cycle([Scratch(nsid, size, lba, REGION, end) for lba in starts])
