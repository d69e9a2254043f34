"""Conformance by standard and section: what was checked on each target, and what became of it."""

from __future__ import annotations

from collections import Counter

from storagetest.report.coverage import CaseOutcome, CaseRecord, coverage, standard
from storagetest.report.coverage_page import sections_html, words
from storagetest.report.page.given import Given, Section, escaped, table

__all__ = ["section"]

_NOTHING = (
    "<p>No conformance case is in these results. Give what <code>pytest --st-cases</code> wrote with "
    "<code>--cases FILE</code> (pytest writes cases.jsonl).</p>"
)


def section(found: Given) -> Section:
    """Return the section."""
    title = "Conformance"
    if not found.cases:
        return Section("conformance", title, _NOTHING)
    targets = sorted({case.target for case in found.cases})
    parts = [_standards(found, targets)]
    for target in targets:
        own = [case for case in found.cases if case.target == target]
        parts.append(f"<h3>{escaped(target or 'cases')}</h3>")
        parts += [
            _standard(name, [case for case in own if standard(case.section) == name])
            for name in sorted({standard(case.section) for case in own})
        ]
    return Section("conformance", title, "".join(parts))


def _standards(found: Given, targets: list[str]) -> str:
    rows = []
    for name in sorted({standard(case.section) for case in found.cases}):
        own = [case for case in found.cases if standard(case.section) == name]
        cells = []
        for target in targets:
            tally = Counter(case.outcome for case in own if case.target == target)
            cells.append(escaped(words(tally)) if tally else "-")
        rows.append([escaped(name), f"{len({case.section for case in own}):,}", *cells])
    heads = ["standard", "sections", *(escaped(target or "cases") for target in targets)]
    said = table(heads, rows, caption="Cases by standard and outcome", numbers=(1,))
    return (
        f"{said}<p>A section that is not listed has no case, which is no statement about the target. "
        "<i>observed</i>: the target chose one of several ways that the standard leaves open; <i>warned</i>: "
        "a SHOULD that it does not keep; <i>known</i>: a deviation that is written down with its reason.</p>"
    )


def _standard(name: str, own: list[CaseRecord]) -> str:
    counted = coverage(own)
    loud = any(counted.totals.get(each) for each in (CaseOutcome.FAILED, CaseOutcome.ERROR))
    said = escaped(f"{name}: {words(counted.totals)}")
    return f"<details{' open' if loud else ''}><summary>{said}</summary>{sections_html(own)}</details>"
