"""Rerun published experiments: how many of their claims agree.

``storagetest report page --papers`` has the tables, the figures and the claims.
"""

from __future__ import annotations

from storagetest.report.page.model import PageData, Section
from storagetest.report.papers.findings import finding_counts
from storagetest.report.templates import render


def section(data: PageData) -> Section:
    """Return the section."""
    rows = finding_counts(data.records)
    body = render("papers.html.j2", rows=rows)
    return Section("papers", "Published experiments", body, empty=not rows)
