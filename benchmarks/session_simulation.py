"""How gates against a baseline err on a target whose noise is not that of a laboratory: seeded synthetic
suites.

A suite has 20 gates ``iops >= baseline - 5 %``, each of which stored some sessions of an unchanged target and
is then measured once more. The noise of the values' logarithms is one of nine models; between sessions
nothing is shared except where the model states it:

- *white*: normal, 3 %;
- *t3 tails*: Student's t with three degrees of freedom, 3 %;
- *slow runs*: white, and one run in ten is 20 % slower;
- *autocorrelated*: AR(1), 3 %, with a coefficient of 0.9;
- *sticky modes*: normal, 2 %, and two modes 8 % apart, which change before a run with a probability of 10 %;
- *day 1 %*, *day 3 %*, *day 5 %*: each session is off by a normal deviation of that size; runs 3, 2 and 2 %;
- *session modes*: normal, 2 %, and three sessions in ten are 8 % slower as a whole.

Printed are, for the unchanged target, how many suites have a FAIL, how many are red (FAIL or INVALID), and
the runs a gate takes; the median of the loss that a gate finds, as it is known before the run; and of a
target that is 10 % slower how many gates FAIL. The vectorised rules are compared with the code itself on some
suites. Exit status 0: they agree, and an unchanged target is FAIL in at most 1 % and red in at most 5 % of
the suites of each model.

    python benchmarks/session_simulation.py
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from storagetest.config.models import PROFILES
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import ErrorPlan, Outcome, Reference, judge, parse_threshold
from storagetest.verdict.baseline import MOST_DEGREES_OF_OTHERS
from storagetest.verdict.sequential import FIRST_TEST

GATES, SLOWER, CHECKED = 20, math.log(0.9), 2
GATE = parse_threshold("iops >= baseline - 5 %", METRICS)
Array = np.ndarray
Noise = Callable[[np.random.Generator, tuple[int, int]], Array]
"""Random numbers and (sessions, runs) -> logarithms of the values around 0."""


def autocorrelated(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """AR(1), 3 %, coefficient 0.9."""
    steps = rng.standard_normal(shape)
    for run in range(1, shape[1]):
        steps[:, run] = 0.9 * steps[:, run - 1] + math.sqrt(1 - 0.81) * steps[:, run]
    return 0.03 * steps


def sticky_modes(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Two modes, 8 % apart, that last ten runs on average."""
    changes = rng.random(shape) < 0.1
    changes[:, 0] = rng.random(shape[0]) < 0.5
    return normal(0.02)(rng, shape) - 0.08 * (np.cumsum(changes, axis=1) % 2)


def normal(runs: float, days: float = 0.0) -> Noise:
    """Return normal noise between runs and between sessions."""
    return lambda rng, shape: runs * rng.standard_normal(shape) + days * rng.standard_normal((shape[0], 1))


MODELS: dict[str, Noise] = {
    "white": normal(0.03),
    "t3 tails": lambda rng, shape: 0.03 / math.sqrt(3) * rng.standard_t(3, shape),
    "slow runs": lambda rng, shape: normal(0.03)(rng, shape) + math.log(0.8) * (rng.random(shape) < 0.1),
    "autocorrelated": autocorrelated,
    "sticky modes": sticky_modes,
    "day 1 %": normal(0.03, 0.01),
    "day 3 %": normal(0.02, 0.03),
    "day 5 %": normal(0.02, 0.05),
    "session modes": lambda rng, shape: normal(0.02)(rng, shape) - 0.08 * (rng.random((shape[0], 1)) < 0.3),
}


def locations(values: Array, scale: Array) -> Array:
    """Return biweight locations over the last axis, as storagetest.measure.location does."""
    centre = np.median(values, axis=-1)
    for _ in range(20):
        away = (values - centre[..., None]) / (4.685 * scale[..., None])
        weights = np.maximum(0.0, 1 - away**2) ** 2
        total = weights.sum(-1)
        centre = np.where(total > 0, (weights * values).sum(-1) / np.maximum(total, 1e-300), centre)
    return centre


class Suites:
    """The stored sessions of many suites, gate by gate, and what the rules make of another session."""

    def __init__(self, stored: Array, plan: ErrorPlan) -> None:
        self.stored, self.plan = stored, plan
        gates, self.sessions, runs = stored.shape
        away = np.abs(stored - np.median(stored, axis=-1, keepdims=True)).reshape(gates, -1)
        correction = math.sqrt(runs / (runs - 1))
        self.scale = np.maximum(1.4826 * np.median(away, axis=-1) * correction, 1e-4)
        between = self._locations(runs).var(axis=1, ddof=1)
        ratios = (between / self.scale**2 - 1 / runs).reshape(-1, GATES)
        others = (ratios.sum(1, keepdims=True) - ratios) / (GATES - 1)
        self.ratio = np.maximum(0.0, others.reshape(-1))
        self.degrees = self.sessions - 1 + MOST_DEGREES_OF_OTHERS
        margin, (_, deviation), miss = -math.log(0.95), self.ahead(plan.last), self._t(plan.miss)
        alarm = self._t(plan.false_alarm / plan.gates)
        self.limit = np.maximum(alarm * deviation, margin + miss * deviation)
        self.visible = self.limit + miss * deviation

    def _t(self, error: float) -> float:
        return float(stdtrit(self.degrees, 1 - error))

    def _locations(self, runs: int) -> Array:
        scale = np.repeat(self.scale[:, None], self.sessions, axis=1)
        return locations(self.stored[:, :, :runs], scale)

    def ahead(self, runs: int) -> tuple[Array, Array]:
        """Return centre and standard deviation of the next session's location."""
        found = self._locations(runs)
        pooled = self.scale**2 * (1 / runs + self.ratio)
        own = self.sessions - 1
        variance = (own * found.var(axis=1, ddof=1) + MOST_DEGREES_OF_OTHERS * pooled) / self.degrees
        return found.mean(axis=1), np.sqrt(variance * (1 + 1 / self.sessions))

    def judge(self, values: Array) -> tuple[Array, Array]:
        """Return by gate whether it fails, and the runs it used."""
        used = np.zeros(len(values), int)
        for runs in range(FIRST_TEST, self.plan.last + 1):
            centre, deviation = self.ahead(runs)
            loss = centre - locations(values[:, :runs], self.scale)
            passing = (used == 0) & (loss + self._t(self.plan.miss) * deviation <= self.visible)
            used[passing] = runs
        failed = used == 0
        return failed, np.where(failed, self.plan.last, used)


def through_the_code(stored: Array, values: Array, used: Array, plan: ErrorPlan) -> list[Outcome]:
    """Return the verdicts of one suite's gates by the code itself."""
    sessions = [tuple(tuple(map(float, np.exp(each))) for each in gate) for gate in stored]
    ratios = [Reference(each).session_ratio or 0.0 for each in sessions]
    verdicts = []
    for gate, runs in enumerate(values):
        samples = tuple(Sample({"iops": float(value)}, 1.0, 10**6) for value in np.exp(runs[: used[gate]]))
        run = Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0)
        others = tuple(ratio for other, ratio in enumerate(ratios) if other != gate)
        reference = Reference(sessions[gate], other_ratios=others)
        verdicts.append(judge(run, GATE, plan=plan, reference=reference).outcome)
    return verdicts


def main() -> int:
    """Print the table; exit 1 where the promise is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suites", type=int, default=1000)
    parser.add_argument("--sessions", type=int, nargs="+", default=[8], help="stored, 2 or more")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    plan = ErrorPlan(gates=GATES, max_repeats=PROFILES["standard"].max_repeats)
    print(f"{args.suites} suites of {GATES} gates, {plan.last} runs a session, seed {args.seed}")
    print(
        f"{'noise':15} sessions | unchanged, suites: FAIL    red  runs | finds | 10 % slower: FAIL | agrees"
    )
    kept = True
    for count in args.sessions:
        for name, noise in MODELS.items():
            rows = args.suites * GATES
            stored = noise(rng, (rows * count, plan.last)).reshape(rows, count, plan.last)
            suites = Suites(stored, plan)
            values = noise(rng, (rows, plan.last))
            failed, used = suites.judge(values)
            slower, _ = suites.judge(noise(rng, (rows, plan.last)) + SLOWER)
            agrees, red = True, failed.reshape(-1, GATES).any(1)
            for suite in range(CHECKED):
                part = slice(suite * GATES, (suite + 1) * GATES)
                verdicts = through_the_code(stored[part], values[part], used[part], plan)
                worst = [verdict in (Outcome.FAIL, Outcome.INVALID) for verdict in verdicts]
                agrees &= worst == failed[part].tolist()
            finds = -np.expm1(-np.median(suites.visible))
            print(f"{name:15} {count:8} | {red.mean():22.2%} {used.mean():5.2f} | {finds:5.1%} |"
                  f" {slower.mean():17.1%} | {agrees}", flush=True)  # fmt: skip
            kept &= agrees and red.mean() <= 0.01
    print("promise (an unchanged target is red in at most 1 % of suites):", "kept" if kept else "BROKEN")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
