"""Rerun published experiments: published values next to measured ones, and whether they agree.

A rerun is a measured case of ``suites/papers``; a publication claims comparisons, and these are the gates of
that case.
"""

from __future__ import annotations

from storagetest.report.metric_values import case_text
from storagetest.report.page.model import STATUS_WORDS, PageData, Section
from storagetest.report.templates import render


def section(data: PageData) -> Section:
    """Return the section."""
    reruns = [record for record in data.records if "/papers/" in f"/{record.run.case.partition('::')[0]}"]
    body = render("papers.html.j2", reruns=reruns, words=STATUS_WORDS, case_text=case_text)
    return Section("papers", "Published experiments", body, empty=not reruns)
