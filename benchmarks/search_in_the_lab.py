"""Does the search find the best of a real target's grid?

Every combination of connections, block size, processes and clients is measured once; then the surrogate
looks for the best with at most 15 % as many measurements, and so does the climb. What they found, and the
three best of the grid (one measurement each does not separate them), are then measured in turns.
Printed are the mean bandwidths of these turns, and of what each strategy found the ratio to the best of them
all with the 95 % interval of the mean ratio (Student's t on the logarithms, a turn is one observation). It
passes unless the surrogate is shown to have lost more than 2 %.

    pytest benchmarks/search_in_the_lab.py --st-lab --st-target nfs-v4.2-nconnect1 --st-profile search -s

On an emulated lab its processors are the limit, and what else they do hides everything: give the link of each
client so long a delay that they are idle half of the time (``storagetest lab ssh client1 tc qdisc replace dev
eth0 root netem delay 75ms``, after ``modprobe sch_netem`` on that machine).

The profile is one of your targets file: ``search: {size: 2MiB, ramp: 1s, runtime: 2s, repeats: 1,
max_repeats: 1, search: 1, start_spread: 1s}``. The ramp has to outlast the slow start of TCP, which so long a
delay makes long: with 400 ms, more connections seem to give more. Its settings in ``search`` do not matter
here, but that it is not 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import pytest

from storagetest.measure.stats import mean_interval
from storagetest.plugin.measure.find_maximum import MaximumSearch
from storagetest.search import BayesianSearch, OneAtATime, Point, Space, Strategy
from storagetest.units import format_throughput

CONFIDENCE = 0.95
SHARE = 0.15
LOST = 0.02
TURNS = 8
CLIMBING = 1
"""Measurements a value: with three, as it was published, it would need more than its share."""


class EveryPoint(Strategy):
    """All of the grid, once, in its order: what the protocol has to be attached anew for comes first."""

    def next_point(self) -> Point | None:
        """Return the next point."""
        return next(iter(list(self.space)[len(self.measured) :]), None)

    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return what was measured."""
        means = self.means()
        return [means.get(point, float("nan")) for point in points]


class InTurns(EveryPoint):
    """The same few points, in turns that begin with another one each time."""

    def __init__(self, space: Space, *, points: Sequence[Point], turns: int) -> None:
        super().__init__(space, budget=len(points) * turns)
        rounds = [points[first:] + points[:first] for first in (turn % len(points) for turn in range(turns))]
        self._order = [point for each in rounds for point in each]

    def next_point(self) -> Point | None:
        """Return whose turn it is."""
        return next(iter(self._order[len(self.measured) :]), None)


@pytest.mark.clients("all")
def test_the_search_finds_what_the_grid_has(
    find_maximum: MaximumSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the surrogate found is not shown to give 2 % less than the best that is known."""

    def searched(make: Callable[[Space, int], Strategy]) -> Strategy:
        made: list[Strategy] = []

        def strategy(space: Space, budget: int) -> Strategy:
            made.append(make(space, budget))
            return made[0]

        find_maximum(
            "mixed-access", strategy=strategy, direction="read", random_percent=99, queue_depth=2,
            block_size=["4KiB", "8KiB", "16KiB", "32KiB"], jobs=[1, 2, 4],
        )  # fmt: skip
        return made[0]

    grid = searched(lambda space, _: EveryPoint(space, budget=len(space)))
    surrogate = searched(lambda space, _: BayesianSearch(space, budget=int(SHARE * len(space))))
    climb = searched(lambda space, _: OneAtATime(space, budget=int(SHARE * len(space)), repeats=CLIMBING))
    means = grid.means()
    top = sorted(means, key=means.__getitem__, reverse=True)[:3]
    points = list(dict.fromkeys([*top, surrogate.best(), climb.best()]))
    turns = searched(lambda space, _: InTurns(space, points=points, turns=TURNS))

    series = {point: [value for at, value in turns.measured if at == point] for point in points}
    best = max(points, key=lambda point: statistics.fmean(series[point]))
    lines = [f"{len(grid.space)} combinations; in {TURNS} turns:"]
    for point in points:
        names = {
            "the best": point == best,
            "of the grid's first three": point in top,
            "the surrogate's": point == surrogate.best(),
            "the climb's": point == climb.best(),
        }
        at = ", ".join(f"{name}={value}" for name, value in grid.space.values(point).items())
        mean = format_throughput(statistics.fmean(series[point]))
        lines.append(f"  {mean:>12}  {at}  {', '.join(name for name, is_it in names.items() if is_it)}")
    upper = 1.0
    for name, strategy in (("surrogate", surrogate), ("climb", climb)):
        count = len(strategy.measured)
        cost = f"{name}: {count} measurements, {count / len(means):.1%} of the grid's"
        if strategy.best() == best:
            lines.append(f"{cost}: the best itself")
            continue
        pairs = zip(series[strategy.best()], series[best], strict=True)
        lost = mean_interval([math.log(ours / theirs) for ours, theirs in pairs], CONFIDENCE)
        assert lost is not None, "one turn has no interval"
        mean, low, high = (math.exp(one) for one in (lost.mean, lost.low, lost.high))
        lines.append(f"{cost}: ratio to the best {mean:.3f} ({low:.3f} .. {high:.3f})")
        if strategy is surrogate:
            upper = high
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert upper >= 1 - LOST, "\n".join(lines)
