"""Published experiments that were rerun: what was published beside what was measured, and whether it agrees.

A rerun is a measured case of ``suites/papers``; what a publication claims is a comparison, so its claims are
the gates of that case.
"""

from __future__ import annotations

from storagetest.report.base import Record
from storagetest.report.page.given import WORDS, Given, Section, case_of, escaped, table

__all__ = ["section"]

_NOTHING = (
    "<p>No published experiment was rerun in these results, so nothing is said about how any publication's "
    "figures compare with these targets.</p>"
)


def section(found: Given) -> Section:
    """Return the section."""
    title = "Published experiments"
    reruns = [record for record in found.records if _is_rerun(record)]
    if not reruns:
        return Section("papers", title, _NOTHING)
    rows = [
        [
            escaped(case_of(record.run)),
            escaped(record.run.variant),
            "<br>".join(
                f"{escaped(verdict.threshold.text)}: <b>{verdict.outcome.value}</b> {escaped(verdict.reason)}"
                for verdict in record.verdicts
            )
            or "no claim was judged",
            WORDS[record.status],
        ]
        for record in reruns
    ]
    heads = ["experiment", "variant", "claims", "outcome"]
    return Section("papers", title, table(heads, rows, caption="Reruns and the claims that were judged"))


def _is_rerun(record: Record) -> bool:
    return "/papers/" in f"/{record.run.case.partition('::')[0]}"
