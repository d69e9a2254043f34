"""The fixtures that suites are written with.

``variant`` → ``client`` → ``attachment`` → ``measure``: each needs the one before it, so a case names only
the last one that it uses. The first three live as long as the variant's cases run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from storagetest.config import Machine, Variant
from storagetest.hosts import Host
from storagetest.measure.cache import Cache
from storagetest.plugin.attaching import attached
from storagetest.plugin.comparing import Compare, right_side
from storagetest.plugin.crowds import attached_too, machines_of
from storagetest.plugin.maximum import Maximum
from storagetest.plugin.measuring import Measure
from storagetest.plugin.state import KEY, State
from storagetest.protocols.base import Attachment

__all__ = [
    "attachment",
    "attachments",
    "cache_state",
    "client",
    "comparison",
    "crowd",
    "maximum",
    "measure",
    "st",
    "variant",
]


@pytest.fixture(scope="session")
def st(pytestconfig: pytest.Config) -> State:
    """What this run knows: configuration, connections, profile."""
    return pytestconfig.stash[KEY]


@pytest.fixture(scope="session")
def variant(request: pytest.FixtureRequest, st: State) -> Variant:
    """Return the target variant that the case runs on (one parameter each)."""
    identifier: str = request.param
    return st.variants[identifier]


@pytest.fixture(scope="session")
def crowd(request: pytest.FixtureRequest, variant: Variant, st: State) -> tuple[Machine, ...]:
    """Return the clients that work at once: the variant's first, or as many as the case is to run on."""
    return machines_of(getattr(request, "param", None), variant, st)


@pytest.fixture(scope="session")
def client(crowd: tuple[Machine, ...], st: State) -> Host:
    """Return the host that attaches the variant and puts the load on it; of several, the first."""
    return st.host(crowd[0])


@pytest.fixture(scope="session")
def attachment(variant: Variant, client: Host, st: State) -> Iterator[Attachment]:
    """Yield the variant as ``client`` has it: a directory of our own, or a device that may be overwritten."""
    with attached(variant, client, st) as found:
        yield found


@pytest.fixture(scope="session")
def attachments(
    variant: Variant, crowd: tuple[Machine, ...], attachment: Attachment, st: State
) -> Iterator[tuple[Attachment, ...]]:
    """Yield the variant as each client of the crowd has it."""
    with attached_too(variant, crowd, attachment, st) as found:
        yield found


_BUFFERED: Mapping[str, object] = {"direct": False, "engine": "psync", "queue_depth": 1}


@pytest.fixture(params=[Cache.DIRECT.value, Cache.COLD.value, Cache.WARM.value])  # a sample takes the first
def cache_state(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """Return the options of a load by fio that reads with caches ``cold``, ``warm`` or bypassed (``direct``).

    ``measure("small-random-read", **cache_state)`` runs in each of the three. None is assumed: counters
    have to show what crossed the wire, or the run is INVALID (:mod:`storagetest.measure.cache`).
    """
    return {} if request.param == Cache.DIRECT.value else {**_BUFFERED, "cache": request.param}


@pytest.fixture
def comparison(
    request: pytest.FixtureRequest, client: Host, attachment: Attachment, st: State
) -> Iterator[Compare]:
    """Yield a function that measures a comparison's two variants in turns and holds them to its gate."""
    chosen = st.comparisons[request.node.get_closest_marker("compares").args[0]]
    with right_side(chosen, client, st) as other:
        yield Compare(request.node, chosen, client, (attachment, other), st)


@pytest.fixture
def measure(
    request: pytest.FixtureRequest, variant: Variant, attachments: tuple[Attachment, ...], st: State
) -> Measure:
    """Return a function that runs a workload, records it, and holds it to its gates.

    ``measure("sequential", direction="read", block_size="1MiB")`` returns the
    :class:`~storagetest.measure.run.Run`. A gate that is missed fails the case; one that cannot be judged
    makes it INVALID. On many clients (see the marks ``clients`` and ``scale``) they begin together;
    ``measure(…, clients=2, data_set="shared")`` takes fewer of them, and one data set for all.
    """
    return Measure(request.node, variant, attachments, st)


@pytest.fixture
def maximum(
    request: pytest.FixtureRequest, variant: Variant, crowd: tuple[Machine, ...], st: State
) -> Iterator[Maximum]:
    """Yield a function that looks for the options with which the clients together get the most.

    ``maximum("mixed-access", block_size=["64KiB", "1MiB"], jobs=[1, 2, 4])`` tries values of the workload's
    options, of the protocol's (:attr:`~storagetest.protocols.base.Protocol.searched`) and numbers of clients,
    measures the best it found as ``measure`` does, and says which parameter stands in the way of more.
    """
    with Maximum(request.node, variant, crowd, st) as found:
        yield found
