"""Shared code of the comparisons with other programs: attach, run interleaved pairs, compute the ratio.

A pair is one observation: ours over theirs. Both run on the same directory of the same client, in turns (A B,
B A, A B …), with the client and the server locked exclusively. A first pair is not counted.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from storagetest import config
from storagetest.errors import StoragetestError
from storagetest.hosts import Host, LocalHost
from storagetest.hosts.connect import connect
from storagetest.measure.stats import mean_interval
from storagetest.protocols.base import Attachment, Protocol, protocols
from storagetest.protocols.local import Local
from storagetest.runner import exclusive
from storagetest.runner.locks import machine_id

CONFIDENCE = 0.95

Rates = Mapping[str, float]


class Ratio:
    """Ours over theirs: medians of both, the median ratio, and the interval of the mean ratio."""

    def __init__(self, found: Sequence[tuple[float, float]]) -> None:
        ratios = [mine / other for other, mine in found]
        interval = mean_interval([math.log(each) for each in ratios], CONFIDENCE)
        if interval is None:
            raise StoragetestError("one pair has no interval: ask for two or more")
        self.theirs, self.ours = (statistics.median(column) for column in zip(*found, strict=True))
        self.median = statistics.median(ratios)
        self.low, self.high = math.exp(interval.low), math.exp(interval.high)
        self.count = len(found)


def ratio(found: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of pairs of (their rate, our rate)."""
    return Ratio(found)


def place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the path or target to run on."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", type=Path, help="a directory on this machine")
    where.add_argument("--target", help="a variant of the targets file (storagetest targets lists them)")
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), help="the targets file")
    parser.add_argument("--client", help="the client to run on; the variant's first by default")
    parser.add_argument("--pairs", type=int, default=20)


@contextmanager
def attached(wanted: argparse.Namespace, what: str) -> Iterator[tuple[str, Attachment]]:
    """Attach the requested path or variant, with its client and server locked exclusively."""
    with ExitStack() as stack:
        protocol: Protocol[Any]
        options: Any
        client: Host
        if wanted.path is not None:
            name, protocol, options = "local", Local(), Local.Options(path=str(wanted.path.resolve()))
            client, locks = stack.enter_context(LocalHost()), ["client:local"]
        else:
            loaded = config.load(wanted.targets)
            variant = next((each for each in loaded.variants if each.id == wanted.target), None)
            if variant is None:
                known = ", ".join(each.id for each in loaded.variants)
                raise StoragetestError(f"{wanted.targets} has no variant {wanted.target!r}: {known}")
            named = {machine.name: machine for machine in variant.clients}
            machine = named.get(wanted.client or next(iter(named)))
            if machine is None:
                raise StoragetestError(f"{variant.id} has no client {wanted.client!r}: {', '.join(named)}")
            name, protocol, options = variant.id, protocols.get(variant.protocol)(), variant.options
            client, locks = stack.enter_context(connect(machine)), [f"client:{machine_id(machine)}"]
        locks.append(f"server:{protocol.server(options)}")
        stack.enter_context(exclusive(locks, timeout=600, purpose=what))
        yield name, stack.enter_context(protocol.attach(client, options))


def pairs(
    count: int, theirs: Callable[[], Rates], ours: Callable[[], Rates], names: Sequence[str]
) -> dict[str, list[tuple[float, float]]]:
    """Return, for each name, their and our rates, pair by pair; what either does not give is left out."""
    ours(), theirs()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(count):
        if number % 2:
            mine, other = ours(), theirs()
        else:
            other = theirs()
            mine = ours()
        both = [name for name in names if name in mine and name in other]
        for name in both:
            found[name].append((other[name], mine[name]))
        print(f"  {number + 1:3}  {'  '.join(f'{name} {mine[name] / other[name]:.3f}' for name in both)}")
        sys.stdout.flush()
    return found
