"""The fixtures that suites are written with.

``variant`` → ``client`` → ``attachment`` → ``measure``: each needs the one before it, so a case names only
the last one that it uses. The first three live as long as the variant's cases run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.config import Variant
from storagetest.hosts import Host
from storagetest.plugin.attaching import attached
from storagetest.plugin.comparing import Compare, right_side
from storagetest.plugin.measuring import Measure
from storagetest.plugin.state import KEY, State
from storagetest.protocols.base import Attachment

__all__ = ["attachment", "client", "comparison", "measure", "st", "variant"]


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
def client(variant: Variant, st: State) -> Host:
    """Return the host that attaches the variant and puts the load on it."""
    return st.host(st.client(variant))


@pytest.fixture(scope="session")
def attachment(variant: Variant, client: Host, st: State) -> Iterator[Attachment]:
    """Yield the variant as ``client`` has it: a directory of our own, or a device that may be overwritten."""
    with attached(variant, client, st) as found:
        yield found


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
    request: pytest.FixtureRequest, variant: Variant, client: Host, attachment: Attachment, st: State
) -> Measure:
    """Return a function that runs a workload, records it, and holds it to its gates.

    ``measure("sequential", direction="read", block_size="1MiB")`` returns the
    :class:`~storagetest.measure.run.Run`. A gate that is missed fails the case; one that cannot be judged
    makes it INVALID.
    """
    return Measure(request.node, variant, client, attachment, st)
