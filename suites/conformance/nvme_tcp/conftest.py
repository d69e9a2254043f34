"""Fixtures of the NVMe/TCP cases: a harness, a ready controller, an I/O queue, blocks to overwrite."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import pytest

from storagetest.config import Variant
from storagetest.config.implementations import Implementation
from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.plugin.conformance import entry
from storagetest.plugin.conformance.cases import WireLog
from storagetest.plugin.conformance.first_look import Look
from storagetest.plugin.conformance.known_issues import apply_identified
from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.plugin.conformance.repeated_faults import fail_on_faults
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme.structures import ControllerData
from storagetest.wire.nvme_tcp import PORT, ControllerSession, Queue, SubsystemEndpoint, decoder
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, data_signature, implementation, wwids
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost, offered_types
from storagetest.wire.nvme_tcp.session import Identity
from storagetest.wire.nvme_tcp.undo import undo_reservations
from storagetest.wire.tcp import RecordedConnection

ANSWER = 5.0
"""Timeout in seconds for a response or a close (chosen)."""

BRIEF = 1.0
"""Timeout in seconds of a response while no case is let in: each skipped case waits so long (chosen)."""

REGION = 256
"""Blocks of one case's scratch."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail the case after its own claims if a reserved field was set in any PDU that it received.

    The case is skipped if it needs what the target need not offer.
    """
    try:
        result = yield
    except NotOffered as error:
        pytest.skip(str(error))
    bench = pyfuncitem.funcargs.get("bench")
    if isinstance(bench, Harness):
        fail_on_faults(pyfuncitem, bench.faults)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Skip the case if a fixture needs what the target need not offer."""
    try:
        return (yield)
    except NotOffered as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure, find out whether the target still lets a host connect."""
    report = yield
    endpoint = item.funcargs.get("endpoint")
    if isinstance(endpoint, SubsystemEndpoint) and "bench" in item.fixturenames:
        entry.note_failure(item, report, "the connection of a host", lambda: _enter(endpoint))
    return report


def _enter(endpoint: SubsystemEndpoint, deadline: float = ANSWER) -> None:
    """Connect to a controller and enable it, as each case does, and leave it."""
    within = min(endpoint.deadline, deadline)
    ControllerSession.connect(replace(endpoint, deadline=within, close_timeout=within)).close()


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> SubsystemEndpoint:
    """Return the endpoint of the target's subsystem, as this machine connects to it."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    within = min(ANSWER, options.deadline)
    return SubsystemEndpoint(
        address,
        port,
        options.nqn,
        within,
        within,
        namespace=options.namespace,
        host=_host(options.host_nqn),
    )


def _host(nqn: str | None) -> Identity | None:
    """Return the one host that the subsystem lets in (Base 6.3, Connect Invalid Host), if there is one."""
    return Identity(nqn, uuid.uuid5(uuid.NAMESPACE_URL, nqn).bytes) if nqn else None


@dataclass(frozen=True, slots=True)
class TargetLooks:
    """The session's looks at the target: its controller, and regions of it that may be overwritten."""

    controller: Look[ControllerData]
    scratch: Look[itertools.cycle[Scratch]]
    pair: Look[tuple[Scratch, Scratch]]
    model: list[int]
    """The CNTLID that requests any controller, once a session was connected (Base 6.3)."""

    @property
    def implementation(self) -> Implementation:
        """The implementation, empty if it is unknown or could not be read."""
        data = self.controller.result
        return Implementation() if data is None else Implementation(*implementation(data))

    @property
    def reserves(self) -> bool:
        """Whether the controller reports reservations: bit 5 of ONCS (Base 5.2.13.2.1)."""
        return bool(self.controller.get()["oncs"] >> 5 & 1)


@pytest.fixture(scope="session")
def about(endpoint: SubsystemEndpoint, variant: Variant) -> TargetLooks:
    """Look at the target once: at its controller, and at the namespace that may be overwritten."""
    model: list[int] = []

    def identify() -> ControllerData:
        with ControllerSession.connect(endpoint) as session:
            model.append(session.endpoint.any_controller)
            return session.controller

    def find_scratch() -> itertools.cycle[Scratch]:
        with ControllerSession.connect(endpoint) as session:
            return _scratch(session, variant)

    def find_pair() -> tuple[Scratch, Scratch]:
        return _pair(lambda: ControllerSession.connect(endpoint), variant)

    return TargetLooks(
        Look("Identify Controller", identify),
        Look("the look for blocks to overwrite", find_scratch),
        Look("the look for blocks of two namespaces", find_pair),
        model,
    )


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest, about: TargetLooks) -> bool:
    """Apply the known issues of the target's implementation; return whether the case is expected to fail."""
    return apply_identified(request.node, about.implementation)


@pytest.fixture
def bench(
    endpoint: SubsystemEndpoint,
    about: TargetLooks,
    wire_log: WireLog,
    known_issue: bool,
    request: pytest.FixtureRequest,
) -> Iterator[Harness]:
    """Yield a harness whose connections are in the case's log, and are closed at its end.

    The case is skipped if the target has let no host in since another case failed.
    """
    entry.skip_if_closed(request.node, lambda: _enter(endpoint, BRIEF))
    for any_controller in about.model[-1:]:
        endpoint = replace(endpoint, any_controller=any_controller)
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
def discovery(bench: Harness) -> ControllerSession:
    """Return a session with the discovery controller; skip if the Connect is refused, as it may be."""
    try:
        return bench.session(subnqn=DISCOVERY_NQN, name="discovery")
    except RemoteProtocolError as error:
        if "refused" not in str(error):
            raise
        pytest.skip(f"no discovery service at this port: {error}")


@pytest.fixture
def queue(session: ControllerSession) -> Queue:
    """Return an I/O queue of ``session``."""
    return session.io_queue()


@pytest.fixture
def scratch(about: TargetLooks) -> Scratch:
    """Return blocks of this case's own; skip where the target's ``erase`` allows none to be overwritten."""
    return next(about.scratch.get())


@pytest.fixture
def pair(about: TargetLooks) -> tuple[Scratch, Scratch]:
    """Return the same blocks of two namespaces; skip where ``more_namespaces`` allows none."""
    return about.pair.get()


@pytest.fixture
def hosts(
    bench: Harness, scratch: Scratch, about: TargetLooks, request: pytest.FixtureRequest
) -> Iterator[tuple[ReservingHost, ReservingHost]]:
    """Yield two hosts on a namespace without registrants; none is left at the end, or the run ends.

    A parameter of the fixture makes the identity of the second host from that of the first one.
    """
    if not about.reserves:
        pytest.skip("ONCS: reservations are not supported")
    made = []
    for name, key in (("first", 0xA1), ("second", 0xB2)):
        identity = Identity.fresh() if made else bench.any_host()
        if made and hasattr(request, "param"):
            identity = request.param(made[0].session.identity)
        session = bench.session(identity=identity, name=f"{name} host's admin queue")
        if not offered_types(scratch):
            pytest.skip("RESCAP: this namespace cannot be reserved")
        made.append(ReservingHost(session, session.io_queue(), scratch, key))
    first, second = made
    before = first.report()
    if before.registrants:
        pytest.skip("another host is registered on this namespace")
    identities = [host.session.identity for host in made]
    yield first, second

    bench.close()  # the undo needs controllers, of which there may be no more

    def connect(identity: Identity) -> ControllerSession:
        return bench.session(identity=identity, name="admin queue of the undo")

    left = undo_reservations(connect, identities, scratch.nsid, persistence=before.persistence)
    if left:
        stop_run(
            request.config,
            f"namespace {scratch.nsid} of {bench.endpoint.subnqn}: its reservations cannot be undone after "
            f"{request.node.name} ({left}): clear them on the target, or restart it, and run again",
        )


def _scratch(session: ControllerSession, variant: Variant) -> itertools.cycle[Scratch]:
    """Return regions of the namespace that ``erase`` names; skip if the user allows no write."""
    nsid = variant.options.namespace
    _check_erasable(session, variant.id, nsid, variant.options.erase)
    limits, data = session.limits(nsid), session.namespace(nsid)
    end = data["nsze"]
    first = end // 2
    starts = range(first, min(end - REGION, first + 64 * REGION), REGION)
    if not starts:
        pytest.skip(f"{variant.id}: namespace {nsid} has {end} blocks; the cases need {2 * REGION + 2}")
    return itertools.cycle([Scratch(nsid, lba, REGION, end, limits, data["rescap"]) for lba in starts])


def _pair(connect: Callable[[], ControllerSession], variant: Variant) -> tuple[Scratch, Scratch]:
    """Return the same LBAs of two namespaces; skip if the user allows no write to two."""
    allowed = {variant.options.namespace: variant.options.erase}
    allowed |= {one.namespace: one.erase for one in variant.options.more_namespaces}
    if len(allowed) < 2:
        pytest.skip(
            f"{variant.id}: no `more_namespaces` in the targets file, so one namespace at most is written"
        )
    made = []
    for nsid, erase in list(allowed.items())[:2]:
        with connect() as session:  # each look has an I/O queue, of which a controller may grant one
            _check_erasable(session, variant.id, nsid, erase)
            data = session.namespace(nsid)
            made.append(Scratch(nsid, 0, REGION, data["nsze"], session.limits(nsid), data["rescap"]))
    lba = min(one.end for one in made) // 2
    if lba < REGION:
        pytest.skip(f"{variant.id}: a namespace has fewer than {2 * REGION} blocks")
    left, right = (replace(one, lba=lba) for one in made)
    return left, right


def _check_erasable(session: ControllerSession, variant: str, nsid: int, erase: str | None) -> None:
    """Skip unless ``erase`` names the namespace, and it has no signature.

    Raises RemoteProtocolError if the target does not prove that.
    """
    if nsid not in session.namespaces():
        pytest.skip(f"{variant}: namespace {nsid} is not active")
    names = wwids(session, nsid)
    if erase is None:
        pytest.skip(
            f"{variant}: no `erase` in the targets file, so nothing is written (its names: "
            f"{', '.join(sorted(names)) or 'none'}). If its data may be lost, add one of them: `erase: NAME`"
        )
    if erase not in names:
        pytest.skip(
            f"{variant}: `erase` does not name namespace {nsid}, so nothing is written there "
            f"(its names: {', '.join(sorted(names)) or 'none'})"
        )
    if session.namespace(nsid)["nsattr"] & 1:  # NVM 4.1.5.1
        pytest.skip(f"{variant}: NSATTR bit 0 is 1: namespace {nsid} is write protected")
    found = data_signature(session, nsid)
    if found:
        pytest.skip(f"{variant}: namespace {nsid} carries {found}; nothing is written there")
    if wwids(session, nsid) != names:
        raise RemoteProtocolError(
            f"{variant}: namespace {nsid} had the names {', '.join(sorted(names))}, and then others; an "
            "identifier remains fixed throughout the life of the namespace (NVM 4.1.5.1, NGUID and EUI64)"
        )
