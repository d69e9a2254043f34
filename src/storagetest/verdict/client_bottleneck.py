"""What a limited client means for a gate.

A target may be better than a client can show. So where the client was the bottleneck (see
:mod:`storagetest.measure.bottleneck`), what was measured is a lower bound of what the target can do:

- a gate that is met is met: PASS, and its sentence says that the client set the figure;
- a gate that is missed says nothing about the target: INVALID, not FAIL;
- a gate on the client itself (``client_cpu``) is not concerned.

A full or lossy network is different: it belongs to what is tested unless the user says otherwise, so a gate
missed on it is missed, and the result says who limited it.
"""

from __future__ import annotations

from dataclasses import replace

from storagetest.measure.bottleneck import Limiter
from storagetest.measure.run import Run
from storagetest.verdict.base import Outcome, Verdict

__all__ = ["mark_client_limited"]

_OF_THE_CLIENT = {"client_cpu"}


def mark_client_limited(verdict: Verdict, *runs: Run) -> Verdict:
    """Return ``verdict`` as it stands when it is known who limited the ``runs`` that it was built on."""
    limited = next((run for run in runs if run.limited_by and run.limited_by.limiter is Limiter.CLIENT), None)
    if limited is None or limited.limited_by is None or verdict.threshold.metric.name in _OF_THE_CLIENT:
        return verdict
    why = limited.limited_by.reason
    if verdict.outcome is Outcome.FAIL:
        reason = (
            f"{verdict.reason}; but the client was the bottleneck ({why}): this says nothing of the target"
        )
        return replace(verdict, outcome=Outcome.INVALID, reason=reason, final=True)
    if verdict.outcome is Outcome.PASS:
        return replace(verdict, reason=f"{verdict.reason}; the client was the bottleneck ({why})")
    return verdict
