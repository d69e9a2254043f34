"""Rerun published experiments: how many of their claims agree.

``storagetest report page --papers`` has the tables, the figures and the claims.
"""

from __future__ import annotations

from storagetest.report.page.model import PageData, Section
from storagetest.report.papers.findings import finding_counts
from storagetest.report.templates import render


def section(data: PageData) -> Section:
    """Return the section."""
    body = render("papers.html.j2", rows=finding_counts(data.records))
    return Section("papers", "Published experiments", body)
