"""Findings: each violated requirement and each known deviation, in the words of standard and suite."""

from __future__ import annotations

from collections.abc import Iterator

from storagetest.report.coverage import CaseOutcome, CaseRecord, known_faults
from storagetest.report.page.model import PageData, Section, group
from storagetest.report.standards import section_title
from storagetest.report.templates import render

_ORDER = (
    CaseOutcome.FAILED,
    CaseOutcome.ERROR,
    CaseOutcome.INVALID,
    CaseOutcome.WARNED,
    CaseOutcome.KNOWN,
)
_MOST = 60
"""Findings on the page (chosen)."""
_MOST_CASES = 10
"""Cases of a known fault that are named (chosen)."""

_REQUIRED = "; required: "
"""Between what was found and what is required in the message of a violation."""


def section(data: PageData) -> Section:
    """Return the section."""
    found = list(_findings(data))
    body = render("findings.html.j2", findings=found[:_MOST], left_out=max(0, len(found) - _MOST))
    return Section("findings", "Findings", body, empty=not found)


def _findings(data: PageData) -> Iterator[dict[str, object]]:
    for outcome in _ORDER:
        cases = [case for case in data.cases if case.outcome is outcome]
        # One entry may explain many cases.
        for members in group(cases, _same).values():
            first = members[0]
            yield {
                "outcome": outcome.value,
                "target": first.target,
                "ids": [case.id for case in members],
                "section": first.section,
                "title": section_title(first.section),
                "level": first.level.value,
                "required": list(dict.fromkeys(case.required for case in members if case.required))[:3],
                "observed": _observed(first),
                "reason": first.reason,
                "reference": first.reference,
            }
    for (target, known), cases in known_faults(data.cases).items():
        yield {
            "outcome": CaseOutcome.KNOWN.value,
            "target": target,
            "ids": _first([case.id for case in cases]),
            "section": "",
            "required": [],
            "observed": known.fault,
            "reason": known.reason,
            "reference": known.reference,
        }


def _first(ids: list[str]) -> list[str]:
    """Return the first of ``ids``, and how many there are more: nearly every case can have a known fault."""
    left = len(ids) - _MOST_CASES
    return [*ids[:_MOST_CASES], f"and {left} more"] if left > 0 else ids


def _same(case: CaseRecord) -> tuple[str, ...]:
    """Return the key of cases that are one finding: those with the same reason on the same target."""
    return (case.target, case.reason) if case.reason else (case.target, case.id)


def _observed(case: CaseRecord) -> str:
    return case.message.partition("\n")[0].partition(_REQUIRED)[0]
