"""The top of the page: the verdict in one line, the counts behind it, and what to do.

The counts are of gates and cases. A case that passes without a gate is *measured, no gate*: nothing was
required of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storagetest.measure.bottleneck import Limiter
from storagetest.report.base import Record, Status
from storagetest.report.coverage import CaseOutcome, CaseRecord, cause_lines, known_faults
from storagetest.report.metric_values import case_text
from storagetest.report.page.model import PageData, Section, case_anchor, group, has_no_gate, plural
from storagetest.report.templates import render
from storagetest.verdict.base import Outcome

_MOST = 4
"""Findings for each thing to do (chosen); the others are counted."""

_BAD_CASES = (CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.INVALID)


@dataclass(frozen=True, slots=True)
class NextStep:
    """A finding and what to do about it. ``anchor`` is where the page has more."""

    kind: str
    head: str
    text: str
    action: str
    anchor: str


def section(data: PageData) -> Section:
    """Return the section."""
    word, kind, sentence = _verdict(data)
    steps = [*_of_records(data.records), *_of_cases(data.cases), *_of_gaps(data)]
    body = render(
        "verdict.html.j2",
        word=word,
        kind=kind,
        sentence=sentence,
        tiles=_tiles(data),
        parts=_parts(steps),
        most=_MOST,
        allure=data.allure,
        causes=cause_lines(data.cases),
    )
    return Section("verdict", "Verdict", body)


def _verdict(data: PageData) -> tuple[str, str, str]:
    """Return the word, its class, and the sentence of the whole."""
    statuses = Counter(record.status for record in data.records)
    outcomes = Counter(case.outcome for case in data.cases)
    gates = [verdict.outcome for record in data.records for verdict in record.verdicts]
    missed, met = gates.count(Outcome.FAIL), gates.count(Outcome.PASS)
    failed = statuses[Status.FAILED] + outcomes[CaseOutcome.FAILED]
    errors = statuses[Status.ERROR] + outcomes[CaseOutcome.ERROR]
    invalid = statuses[Status.INVALID] + outcomes[CaseOutcome.INVALID]
    parts = []
    if gates:
        parts.append(f"{met} of {plural(len(gates), 'gate')} met" + (f", {missed} missed" if missed else ""))
    if data.cases:
        passed = outcomes[CaseOutcome.PASSED] + outcomes[CaseOutcome.OBSERVED]
        judged = len(data.cases) - outcomes[CaseOutcome.SKIPPED]
        parts.append(f"{passed:,} of {plural(judged, 'conformance case')} passed")
    if errors:
        parts.append(f"{plural(errors, 'case')} ended in an error")
    if invalid:
        parts.append(f"{plural(invalid, 'case')} INVALID")
    sentence = "; ".join(parts)
    if failed:
        return "FAIL", "failed", sentence
    if errors or invalid:
        return "NO VERDICT", "invalid", sentence
    if met or outcomes[CaseOutcome.PASSED]:
        return "PASS", "passed", sentence
    if data.records:
        return "MEASURED", "learning", "no gate was judged"
    return "NOTHING", "learning", "no case has run"


def _parts(steps: Sequence[NextStep]) -> list[tuple[str, list[NextStep]]]:
    """Return the steps by what to do, in their order."""
    return list(group(steps, lambda step: step.action).items())


def _tiles(data: PageData) -> list[tuple[str, str, str]]:
    """Return (number, word, class) of what there is of each kind."""
    gates = Counter(verdict.outcome for record in data.records for verdict in record.verdicts)
    outcomes = Counter(case.outcome for case in data.cases)
    no_gate = sum(has_no_gate(record) for record in data.records)
    statuses = Counter(record.status for record in data.records)
    every = [
        (gates[Outcome.FAIL], "gates missed", "failed"),
        (gates[Outcome.PASS], "gates met", "passed"),
        (gates[Outcome.LEARNING], "gates learning", "learning"),
        (gates[Outcome.INVALID], "gates INVALID", "invalid"),
        (no_gate, "measured, no gate", "plain"),
        (statuses[Status.ERROR], "measuring errors", "failed"),
        (outcomes[CaseOutcome.FAILED], "requirements violated", "failed"),
        (outcomes[CaseOutcome.WARNED], "SHOULDs not kept", "invalid"),
        (_known_deviations(data), "known deviations", "learning"),
        (outcomes[CaseOutcome.PASSED], "conformance cases passed", "passed"),
        (outcomes[CaseOutcome.OBSERVED], "choices observed", "plain"),
        (outcomes[CaseOutcome.ERROR], "conformance errors", "failed"),
        (outcomes[CaseOutcome.INVALID], "conformance INVALID", "invalid"),
        (outcomes[CaseOutcome.SKIPPED] + statuses[Status.SKIPPED], "skipped", "plain"),
    ]
    return [(f"{number:,}", word, kind) for number, word, kind in every if number]


def _of_records(records: Sequence[Record]) -> Iterator[NextStep]:
    order = (Status.FAILED, Status.ERROR, Status.INVALID)
    for status in order:
        for record in records:
            if record.status is status:
                head = f"{record.run.variant}: {case_text(record.run)}"
                text = record.reasons[0].partition("\n")[0] if record.reasons else ""
                yield NextStep(status.value, head, text, _action(record), case_anchor(record))


def _action(record: Record) -> str:
    if record.status is Status.ERROR:
        return (
            "The test setup failed, so nothing is known about the target. Correct it, and run the case again."
        )
    if record.status is Status.INVALID:
        return (
            "The measurement supports no verdict. Remove the cause: a longer runtime, more repeats, or a "
            "quiet client; then run the case again."
        )
    limit = record.run.limited_by
    if limit is None or limit.limiter is Limiter.UNKNOWN:
        return "The limit is not known. Compare the targets below."
    where = {
        Limiter.TARGET: "The target is the limit. Compare it with the others below, and correct the "
        "target or the gate.",
        Limiter.CLIENT: "The client is the limit. Use a stronger client or more of them before the target is "
        "judged.",
        Limiter.NETWORK: "The network is the limit. Check its cards, its cables and its losses.",
    }
    return where[limit.limiter]


def _of_cases(cases: Sequence[CaseRecord]) -> Iterator[NextStep]:
    actions = {
        CaseOutcome.FAILED: "The target violates its standard. Report it to the vendor, or write it down "
        "as a known issue.",
        CaseOutcome.ERROR: "The test setup failed. Correct it, and run the case again.",
        CaseOutcome.INVALID: "There is no result. Remove the cause, and run the case again.",
    }
    for outcome in _BAD_CASES:
        for case in cases:
            if case.outcome is outcome:
                head = f"{case.target}: {case.id} ({case.section})"
                yield NextStep(outcome.value, head, case.remark, actions[outcome], "findings")


def _known_deviations(data: PageData) -> int:
    """Return the number of cases that are known issues, and of known faults of replies."""
    cases = sum(case.outcome is CaseOutcome.KNOWN for case in data.cases)
    return cases + len(known_faults(data.cases))


def _of_gaps(data: PageData) -> Iterator[NextStep]:
    known = _known_deviations(data)
    if known:
        yield NextStep(
            "known",
            f"{plural(known, 'known deviation')}",
            "The target deviates from its standard as is written down.",
            "Read what each is, and decide whether your clients depend on it.",
            "findings",
        )
    no_gate = [record for record in data.records if has_no_gate(record)]
    if no_gate:
        names = list(dict.fromkeys(record.run.workload for record in no_gate))
        yield NextStep(
            "plain",
            f"{plural(len(no_gate), 'case')} without a gate",
            f"Measured, and judged by nothing: {', '.join(names)}.",
            "Set gates under thresholds in targets.yaml.",
            "cases",
        )
