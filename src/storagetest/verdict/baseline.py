"""Stored sessions of a case, and where another session of an unchanged target lies. Pure.

A *session* is one stored set of runs of one case. Saving into a baseline states that the target is unchanged,
so what differs between sessions is noise: of the host, the network, the day. The session is the sample,
because its runs share the day. *Unchanged* therefore means: as one more of these sessions. Rules:

1. A session is its robust location (:mod:`storagetest.measure.location`), of logarithms, over its first n
   runs if n runs are compared: what the first runs of a session have in common is in both.
2. The variance between sessions is learned from the K stored ones (K - 1 degrees of freedom). Few sessions
   may all have met the fast one of two modes; so the *other cases* of the baseline count too: each has a
   *session ratio*, the variance between its sessions beyond what its runs explain, divided by the variance of
   a run. The mean of these ratios, in terms of this case's runs, is a second estimate; each other case gives
   it one degree of freedom, up to seven. The mean and not a robust value: what one case has met may come to
   the others.
3. The next session then lies around the mean of the stored ones, with the variance times 1 + 1/K, by
   Student's t.

Source: rule 2 is the moderated variance of G. K. Smyth, "Linear models and empirical Bayes methods for
assessing differential expression", Statistical Applications in Genetics and Molecular Biology 3 (2004), with
a fixed weight.

The *noise floor* is the simpler figure for ``storagetest compare`` and for readers of the file: the 95 %
quantile, over all pairs of sessions, of the larger mean divided by the smaller one, less one. It needs two
sessions.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from storagetest.measure.location import location, robust_scale
from storagetest.measure.stats import mean

QUANTILE = 0.95
MOST_DEGREES_OF_OTHERS = 7

Logs = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NextSession:
    """Where an unchanged target's next session lies: location (logarithm), deviation, degrees of freedom."""

    centre: float
    deviation: float
    degrees: float


@dataclass(frozen=True)
class Reference:
    """The stored values of one metric of one case, by session, in its base unit; ``source`` is the file.

    ``other_ratios`` are the session ratios of the metric in the baseline's other cases.
    """

    sessions: tuple[tuple[float, ...], ...]
    source: str = ""
    other_ratios: tuple[float, ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all sessions."""
        return tuple(itertools.chain.from_iterable(self.sessions))

    @property
    def floor(self) -> float | None:
        """The noise floor as a share (0.03 is 3 %); None with fewer than two sessions."""
        return noise_floor(self.sessions)

    @cached_property
    def log_sessions(self) -> tuple[Logs, ...]:
        """The logarithms of the values, which must be above zero."""
        return tuple(tuple(math.log(value) for value in session) for session in self.sessions)

    @cached_property
    def run_deviation(self) -> float:
        """The standard deviation of a run's logarithm within its session; the values must be above zero."""
        return robust_scale(self.log_sessions)

    def locations(self, runs: int) -> Logs:
        """Return the location of each session's first ``runs`` runs."""
        return tuple(location(session[:runs], self.run_deviation) for session in self.log_sessions)

    @cached_property
    def _next_sessions(self) -> dict[int, NextSession]:
        return {}

    def next_session(self, runs: int) -> NextSession:
        """Return where ``runs`` runs of another session lie; ValueError for fewer than two sessions."""
        if runs not in self._next_sessions:  # a gate is judged again after every run
            self._next_sessions[runs] = self._next_session(runs)
        return self._next_sessions[runs]

    def _next_session(self, runs: int) -> NextSession:
        locations, count = self.locations(runs), len(self.sessions)
        own = count - 1.0
        others = float(min(len(self.other_ratios), MOST_DEGREES_OF_OTHERS))
        variance = statistics.variance(locations)
        if others:
            ratio = max(0.0, mean(self.other_ratios))
            pooled = self.run_deviation**2 * (1 / min(runs, self._shortest) + ratio)
            variance = (own * variance + others * pooled) / (own + others)
        return NextSession(mean(locations), math.sqrt(variance * (1 + 1 / count)), own + others)

    @property
    def session_ratio(self) -> float | None:
        """The ratio of rule 2; below zero by chance.

        None with fewer than two sessions, or a value of zero.
        """
        if len(self.sessions) < 2 or not all(0 < value < math.inf for value in self.values):
            return None
        between = statistics.variance(self.locations(self._shortest))
        return between / self.run_deviation**2 - 1 / self._shortest

    @property
    def _shortest(self) -> int:
        return min(map(len, self.sessions))


def noise_floor(sessions: Sequence[Sequence[float]]) -> float | None:
    """Return the 95 % quantile of the effects between ``sessions``; None if there is no pair.

    A session without values, or whose mean is not a positive number, has no ratio and is left out.
    """
    means = [mean(values) for values in sessions if values]
    means = [each for each in means if 0 < each < math.inf]
    effects = sorted(max(a, b) / min(a, b) - 1 for a, b in itertools.combinations(means, 2))
    if not effects:
        return None
    below, part = divmod(QUANTILE * (len(effects) - 1), 1)
    low, high = effects[int(below)], effects[min(int(below) + 1, len(effects) - 1)]
    return low + part * (high - low)
