"""The claims of an experiment with what a rerun found of them, as texts and as counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storagetest.report.base import Record
from storagetest.report.papers.published import Claim, Experiment, experiments
from storagetest.report.papers.rerun import Rerun, reruns
from storagetest.verdict.claims import ClaimResult, Finding, unmeasured

_WORDS = {Finding.AGREES: "passed", Finding.DIFFERS: "failed", Finding.UNMEASURED: "invalid"}
"""Class in the style sheet."""

_NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim with its result, as texts."""

    text: str
    published: str
    required: str
    ratio: str
    interval: str
    finding: Finding
    look: str
    reason: str
    summary: str
    """The reason in a few words if the columns have the values, else empty."""


def finding_counts(records: Iterable[Record]) -> list[tuple[Experiment, list[int]]]:
    """Return the experiments that were rerun, each with the number of claims by finding."""
    return counts_of(reruns(records))


def counts_of(found: Mapping[str, Rerun]) -> list[tuple[Experiment, list[int]]]:
    """Return each experiment with the number of its claims by finding."""
    rows = []
    for data in experiments() if found else ():
        if data.id in found:
            counts = Counter(row.finding for row in claim_rows(data, found[data.id]))
            rows.append((data, [counts[finding] for finding in Finding]))
    return rows


def claim_rows(data: Experiment, rerun: Rerun) -> list[ClaimRow]:
    """Return the claims in the publication's order; a claim without a result was not judged."""
    return [_claim_row(claim, rerun.claims.get(claim.id)) for claim in data.claims]


def _claim_row(claim: Claim, result: ClaimResult | None) -> ClaimRow:
    result = result or unmeasured(claim.because or "these results do not contain it")
    interval = result.interval
    return ClaimRow(
        claim.text,
        claim.published,
        " and ".join(f"{op}{_NO_BREAK}{factor:g}{_NO_BREAK}x" for op, factor in claim.gates)
        if claim.left is not None
        else "",
        f"{interval.mean:.3g} x" if interval else "",
        f"{interval.low:.3g} … {interval.high:.3g} x ({interval.confidence * 100:.4g} %)" if interval else "",
        result.finding,
        _WORDS[result.finding],
        result.reason,
        _summary(result),
    )


def _summary(result: ClaimResult) -> str:
    if result.finding is not Finding.UNMEASURED or result.interval is None:
        return ""
    pairs = result.interval.count
    return f"undecided after {pairs} pair{'s' * (pairs != 1)} of runs"
