"""Does the search for the maximum find it, and how much of the grid's time does it take?

Made-up targets answer as storage does: each parameter (stripe size, block size, connections, processes,
clients) pays up to a point; several limits lie above each other (clients, network, server), which makes
plateaus; too many streams in all cost something, so that parameters depend on each other. Every
measurement has noise, and one in fifty was disturbed and is far too slow. Two strategies are let loose on
each of them: the published climb, one parameter at a time, and the surrogate. The grid measures every
combination once.

Printed is, by kind of surface and by noise, how often a strategy ended within 2 % of the grid's true best (in
brackets: the exact 95 % interval by Clopper and Pearson), how much of the best it lost, and what share of the
grid's measured time it took. Exit status 0: the surrogate ends there in at least 95 % of all surfaces, with
at most 15 % of the grid's time in each; 1: not.

    OPENBLAS_NUM_THREADS=1 python benchmarks/search_simulation.py --surfaces 240 --seed 9001

The matrices are small: more threads make it slower.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from storagetest.search import BayesianSearch, OneAtATime, Parameter, Point, Space, Strategy

NEAR, OFTEN, SHARE = 0.02, 0.95, 0.15
DISTURBED, SLOWED = 0.02, 0.6
KINDS = ("unimodal", "interacting", "plateau")


@dataclass(frozen=True)
class Surface:
    """A target: the true value at each point of its space, and the noise of a measurement (a share)."""

    seed: int
    kind: str
    space: Space
    truth: dict[Point, float]
    noise: float

    @property
    def best(self) -> float:
        """The grid's true best."""
        return max(self.truth.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a kind and strategy, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--surfaces", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.01, 0.03], metavar="SHARE")
    wanted = parser.parse_args(arguments)
    if wanted.surfaces < 1 or min(wanted.noise) < 0:
        parser.error("there is at least one surface, and no noise below zero")
    made = [surface(wanted.seed + number, wanted.noise) for number in range(wanted.surfaces)]
    grids = sorted(len(one.space) for one in made)
    noise = " or ".join(f"{share:.0%}" for share in wanted.noise)
    print(f"{len(made)} surfaces of {grids[0]} to {grids[-1]} points, noise {noise}, seed {wanted.seed}")
    climbed = _race(made, lambda one, _: OneAtATime(one.space, budget=len(one.space)))
    led = _race(
        made, lambda one, seed: BayesianSearch(one.space, budget=int(SHARE * len(one.space)), seed=seed)
    )
    _report("one at a time, 3 runs a value", made, climbed)
    hit, most = _report("surrogate", made, led)
    good = hit >= OFTEN and most <= SHARE
    summary = (
        f"within {NEAR:.0%} of the best in {hit:.1%} of the surfaces, at most {most:.1%} of the grid's time"
    )
    print(f"{summary}: {'yes' if good else 'NOT ENOUGH'}")
    return 0 if good else 1


def surface(seed: int, noises: Sequence[float]) -> Surface:
    """Return a simulated target, determined by the seed."""
    random = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    names = ("stripe", "block", "connections", "processes", "clients")
    count = int(random.integers(3, 6))
    sizes = {3: (7, 10), 4: (5, 8), 5: (4, 7)}[count]
    space = Space(
        tuple(
            Parameter(name, tuple(2**at for at in range(random.integers(*sizes)))) for name in names[:count]
        )
    )
    shape = np.array(space.shape)
    knees = random.uniform(0.15, 0.9, count) * (shape - 1)  # where each parameter has paid
    falls = random.uniform(0.0, 0.35, count)  # what it costs beyond that, a step
    gains = random.uniform(0.4, 1.2, count)  # what it pays up to there, a step
    free_streams = random.uniform(0.3, 0.8) * float((shape - 1).sum())
    cost = random.uniform(0.05, 0.3)
    cap = random.uniform(0.6, 0.95)

    def value(point: Point) -> float:
        at = np.array(point, float)
        below = np.minimum(at - knees, 0.0)
        beyond = np.maximum(at - knees, 0.0)
        logs = float((gains * below / (1 + 0.15 * -below)).sum())
        if kind == "plateau":
            return float(min(math.exp(logs), cap * math.exp(-0.004 * beyond.sum())))
        logs -= float((falls * beyond).sum())
        if kind == "interacting":
            logs -= cost * max(0.0, float(at.sum()) - free_streams) ** 1.3
            logs -= 0.08 * abs(float((at[0] - knees[0]) * (at[-1] - knees[-1])))
        return math.exp(logs)

    truth = {point: 1000 * value(point) for point in space}
    return Surface(seed, kind, space, truth, float(random.choice(noises)))


def _race(made: Sequence[Surface], strategy: Callable[[Surface, int], Strategy]) -> list[tuple[float, float]]:
    """Return, of each surface, how far from the best it ended and the share of the grid's time it took."""
    found = []
    for number, one in enumerate(made):
        random = np.random.default_rng([number, 7])
        looking = strategy(one, number)
        while (point := looking.next_point()) is not None:
            value = one.truth[point] * math.exp(random.normal(0.0, one.noise))
            if random.random() < DISTURBED:
                value *= SLOWED
            looking.record(point, value)
        best = looking.result()
        found.append((1 - one.truth[best.point] / one.best, best.measurements / len(one.space)))
    return found


def _report(name: str, made: Sequence[Surface], found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    print(f"{name}: within {NEAR:.0%} of the best; lost and the grid's time, median to largest")
    noises = sorted({one.noise for one in made})
    for group in (*KINDS, *noises, "all"):
        pairs = zip(made, found, strict=True)
        mine = [pair for one, pair in pairs if group in (one.kind, one.noise, "all")]
        if not mine:
            continue
        hits = sum(lost <= NEAR for lost, _ in mine)
        sure = binomtest(hits, len(mine)).proportion_ci(method="exact")
        shares = sorted(share for _, share in mine)
        lost = sorted(lost for lost, _ in mine)
        print(
            f"  {group if isinstance(group, str) else f'noise {group:.0%}':11}",
            f"{hits:3} of {len(mine):3}, {hits / len(mine):6.1%} ({sure.low:.1%} to {sure.high:.1%}),",
            f"lost {statistics.median(lost):.1%} to {lost[-1]:.1%},",
            f"time {statistics.median(shares):.1%} to {shares[-1]:.1%}",
        )
    missed = [one.seed for one, (lost, _) in zip(made, found, strict=True) if lost > NEAR]
    print(f"  missed, by seed: {', '.join(map(str, missed)) or 'none'}")
    return statistics.fmean(lost <= NEAR for lost, _ in found), max(share for _, share in found)


if __name__ == "__main__":
    sys.exit(main())
