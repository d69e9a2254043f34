"""Adapt verdicts to a run whose client was the bottleneck.

A target may be faster than a client can show. If the client was the bottleneck
(:mod:`storagetest.measure.bottleneck`), the value is a lower bound of the target's:

- a gate that is met stays PASS, and its reason names the client as the limit;
- a gate that is missed becomes INVALID instead of FAIL;
- a gate on the client itself (``client_cpu``) is not changed.

A full or lossy network belongs to the system under test, so a gate missed on it stays FAIL, and the result
names the limit.
"""

from __future__ import annotations

from dataclasses import replace

from storagetest.measure.bottleneck import Limiter
from storagetest.measure.run import Run
from storagetest.verdict.base import Outcome, Verdict

_OF_THE_CLIENT = {"client_cpu"}


def mark_client_limited(verdict: Verdict, *runs: Run) -> Verdict:
    """Return ``verdict`` adapted to the bottleneck of its ``runs``."""
    limited = next((run for run in runs if run.limited_by and run.limited_by.limiter is Limiter.CLIENT), None)
    if limited is None or limited.limited_by is None or verdict.threshold.metric.name in _OF_THE_CLIENT:
        return verdict
    why = limited.limited_by.reason
    if verdict.outcome is Outcome.FAIL:
        reason = f"{verdict.reason}; but the client was the bottleneck ({why}): the target cannot be judged"
        return replace(verdict, outcome=Outcome.INVALID, reason=reason, final=True)
    if verdict.outcome is Outcome.PASS:
        return replace(verdict, reason=f"{verdict.reason}; the client was the bottleneck ({why})")
    return verdict
