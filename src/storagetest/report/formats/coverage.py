"""``storagetest report coverage``: sections of the standards against outcomes, as Markdown or HTML.

The HTML file is whole in itself: no script, nothing from the network, light and dark by the reader's
settings, and readable when printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from storagetest.report.coverage import CaseRecord, count_text, coverage, latest, load, sections
from storagetest.report.formats.base import ReportFormat, register, write_output
from storagetest.report.templates import render

_HTML = {".html", ".htm"}


@register
class CoverageFormat(ReportFormat):
    """Show sections of the standards against conformance cases and outcomes. Of a case that ran
    more than once on a target the last outcome counts.
    """

    name = "coverage"
    summary = "sections of the standards against conformance cases and outcomes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("cases", metavar="CASES", nargs="?", type=Path, default=Path("cases.jsonl"),
                            help="what pytest --st-cases wrote (default: cases.jsonl)")  # fmt: skip
        parser.add_argument("-o", "--output", metavar="PAGE", type=Path,
                            help="write PAGE: HTML if named so, else Markdown (default: print)")  # fmt: skip
        parser.add_argument("--title", default="Conformance coverage", help="the page's title")

    def write(self, args: argparse.Namespace) -> None:
        """Print the page, or write it and print its path."""
        records = latest(load(args.cases))
        wants_html = args.output is not None and args.output.suffix.lower() in _HTML
        page = (html_page if wants_html else markdown)(records, title=args.title)
        if args.output is None:
            sys.stdout.write(page)
        else:
            write_output(args.output, page)
            sys.stdout.write(f"{args.output}\n")


def markdown(records: Sequence[CaseRecord], *, title: str = "Coverage") -> str:
    """Return the page: sections against outcomes for each target, then the cases that did not simply pass."""
    lines = [f"# {title}", ""]
    for target, own in _by_target(records).items():
        counted, table = coverage(own), sections(own)
        lines += [f"## {target}", "", _row(["section", "cases", *table.outcomes])]
        lines.append(_row(["---", *("---:" for _ in range(len(table.outcomes) + 1))]))
        for section in table.sections:
            numbers = (str(count or "") for count in section.counts)
            lines.append(_row([section.name, str(len(section.cases)), *numbers]))
        totals = {outcome.value: str(count) for outcome, count in counted.totals.items()}
        lines += [_row(["**all**", str(len(own)), *(totals[outcome] for outcome in table.outcomes)]), ""]
        if counted.worth_reading:
            lines += [_row(["case", "section", "level", "outcome", "observed"]), _row(["---"] * 5)]
            lines += [
                _row([case.id, case.section, case.level.value, case.outcome.value, case.remark])
                for case in counted.worth_reading
            ]
            lines.append("")
    return "\n".join(lines) + "\n"


def html_page(records: Sequence[CaseRecord], *, title: str = "Conformance coverage") -> str:
    """Return the same as one HTML file: each section opens to show its cases."""
    targets = [
        {
            "name": target,
            "total": len(own),
            "counts": count_text(coverage(own).totals),
            "table": sections(own),
        }
        for target, own in _by_target(records).items()
    ]
    return f"{render('coverage.html.j2', title=title, targets=targets)}\n"


def _by_target(records: Sequence[CaseRecord]) -> Mapping[str, list[CaseRecord]]:
    targets: dict[str, list[CaseRecord]] = {}
    for record in sorted(records, key=lambda record: record.target):
        targets.setdefault(record.target or "cases", []).append(record)
    return targets


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
