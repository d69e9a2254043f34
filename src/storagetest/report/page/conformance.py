"""Conformance by standard and section: the cases on each target, and their outcomes."""

from __future__ import annotations

from collections import Counter

from storagetest.report.coverage import CaseOutcome, count_text, sections, standard
from storagetest.report.page.model import PageData, Section
from storagetest.report.standards import section_title, standard_title
from storagetest.report.templates import render

_BAD = {CaseOutcome.FAILED, CaseOutcome.ERROR}


def section(data: PageData) -> Section:
    """Return the section."""
    targets = sorted({case.target for case in data.cases})
    standards = sorted({standard(case.section) for case in data.cases})
    rows = []
    parts: dict[str, list[dict[str, object]]] = {target: [] for target in targets}
    for name in standards:
        of_standard = [case for case in data.cases if standard(case.section) == name]
        title = standard_title(name)
        row = [f"{name}, {title}" if title else name, f"{len({case.section for case in of_standard}):,}"]
        for target in targets:
            cases = [case for case in of_standard if case.target == target]
            counts = Counter(case.outcome for case in cases)
            row.append(count_text(counts) or "-")
            if cases:
                parts[target].append(
                    {
                        "title": f"{name}: {count_text(counts)}",
                        "open": not _BAD.isdisjoint(counts),
                        "table": sections(cases),
                    }
                )
        rows.append(row)
    heads = ["standard", "sections", *(target or "cases" for target in targets)]
    body = render("conformance.html.j2", heads=heads, rows=rows, parts=parts, title_of=section_title)
    return Section("conformance", "Conformance", body, empty=not rows)
