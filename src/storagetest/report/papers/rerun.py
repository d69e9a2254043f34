"""What results.jsonl holds of a rerun: which point a run is, and what was found of the claims.

Both are in the evidence of a run's first sample, so that a page needs results.jsonl only, and a report
computes no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from storagetest.measure.run import Run
from storagetest.measure.stats import Interval
from storagetest.report.base import Record
from storagetest.verdict.claims import ClaimResult, Finding

POINT, CLAIMS, CONDITIONS = "published experiment", "claims", "conditions"
"""Names of the evidence."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How busy the controller was; in an emulated lab, its processors are those of all machines."""

    seconds: float
    load_before: float
    load_after: float
    processors: int


@dataclass(slots=True)
class Rerun:
    """The rerun of one experiment: runs by (side, point), results by claim.

    ``conditions`` maps each case to its begin (s since the epoch) and its conditions, if known.
    """

    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    claims: dict[str, ClaimResult] = field(default_factory=dict)
    conditions: dict[str, tuple[float, Conditions | None]] = field(default_factory=dict)


def with_point(run: Run, experiment: str, side: str, point: str) -> Run:
    """Return ``run`` with the place that it has in an experiment."""
    return _with_evidence(run, POINT, {"experiment": experiment, "side": side, "point": point})


def with_claims(run: Run, results: Mapping[str, ClaimResult]) -> Run:
    """Return ``run`` with the results of an experiment's claims."""
    return _with_evidence(run, CLAIMS, {name: _to_json(result) for name, result in results.items()})


def with_conditions(run: Run, conditions: Conditions) -> Run:
    """Return ``run`` with the conditions of its experiment."""
    return _with_evidence(run, CONDITIONS, asdict(conditions))


def reruns(records: Iterable[Record]) -> dict[str, Rerun]:
    """Return the reruns in ``records`` by experiment; of a point that ran more than once the last counts."""
    found: dict[str, Rerun] = {}
    for record in sorted(records, key=lambda each: each.run.started):
        evidence = record.run.samples[0].evidence if record.run.samples else {}
        if POINT not in evidence:
            continue
        place = json.loads(evidence[POINT])
        rerun = found.setdefault(place["experiment"], Rerun())
        rerun.runs[place["side"], place["point"]] = record.run
        if CLAIMS in evidence:
            known = Conditions(**json.loads(evidence[CONDITIONS])) if CONDITIONS in evidence else None
            rerun.conditions[record.run.case.partition("[")[0]] = record.run.started, known
            rerun.claims |= {name: _from_json(one) for name, one in json.loads(evidence[CLAIMS]).items()}
    return found


def _with_evidence(run: Run, name: str, value: object) -> Run:
    if not run.samples:
        return run
    first, *rest = run.samples
    first = replace(first, evidence={name: json.dumps(value), **first.evidence})
    return replace(run, samples=(first, *rest))


def _to_json(result: ClaimResult) -> dict[str, object]:
    interval = result.interval
    ends = (
        (interval.mean, interval.low, interval.high, interval.confidence, interval.count)
        if interval
        else None
    )
    return {"finding": result.finding.value, "reason": result.reason, "interval": ends}


def _from_json(document: Mapping[str, object]) -> ClaimResult:
    ends = document["interval"]
    interval = Interval(*ends) if isinstance(ends, list) else None
    return ClaimResult(Finding(document["finding"]), str(document["reason"]), interval)
