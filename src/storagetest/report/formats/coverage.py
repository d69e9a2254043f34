"""``storagetest report coverage``: sections or requirements of the standards, as Markdown or HTML.

The HTML file is whole in itself: no script, nothing from the network, light and dark by the reader's
settings, and readable when printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from storagetest.errors import ResultError
from storagetest.installed_suites import SUITES
from storagetest.report import requirements_page
from storagetest.report.coverage import (
    CaseRecord,
    cause_lines,
    count_text,
    coverage,
    known_fault_lines,
    latest,
    load,
    sections,
)
from storagetest.report.formats.base import ReportFormat, markdown_row, register, write_output
from storagetest.report.requirements import collect_case_ids, read_all, unknown_cases, unused_cases
from storagetest.report.standards import section_title
from storagetest.report.templates import render

_HTML = {".html", ".htm"}
_CASES = Path("cases.jsonl")


@register
class CoverageFormat(ReportFormat):
    """Show sections of the standards against conformance cases and outcomes. Of a case that ran
    more than once on a target the last outcome counts. With --requirements, show instead which requirements
    of each standard are held by a case, cannot be tested from outside, or are open.
    """

    name = "coverage"
    summary = "sections of the standards against conformance cases and outcomes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("cases", metavar="CASES", nargs="?", type=Path, default=_CASES,
                            help="what pytest --st-cases wrote (default: cases.jsonl)")  # fmt: skip
        parser.add_argument("-o", "--output", metavar="PAGE", type=Path,
                            help="write PAGE: HTML if named so, else Markdown (default: print)")  # fmt: skip
        parser.add_argument("--title", help="the page's title")
        parser.add_argument("--requirements", action="store_true",
                            help="show which requirements are held by a case; needs no CASES")  # fmt: skip
        parser.add_argument("--suites", metavar="DIR", type=Path,
                            help="suites of the requirements (default: ./suites, or installed)")  # fmt: skip
        parser.add_argument("--all", action="store_true",
                            help="list also untestable requirements, and cases that hold none")  # fmt: skip

    def write(self, args: argparse.Namespace) -> None:
        """Print the page, or write it and print its path."""
        wants_html = args.output is not None and args.output.suffix.lower() in _HTML
        make = _requirements if args.requirements else _sections
        page = make(args, wants_html=wants_html)
        if args.output is None:
            sys.stdout.write(page)
        else:
            write_output(args.output, page)
            sys.stdout.write(f"{args.output}\n")


def _sections(args: argparse.Namespace, *, wants_html: bool) -> str:
    if args.suites is not None or args.all:
        raise ResultError("--suites and --all belong to --requirements; add it, or leave them out.")
    make = html_page if wants_html else markdown
    return make(latest(load(args.cases)), title=args.title or "Conformance coverage")


def _requirements(args: argparse.Namespace, *, wants_html: bool) -> str:
    suites = args.suites or next((path for path in (Path("suites"), SUITES) if path.is_dir()), SUITES)
    tables = read_all(suites)
    known = collect_case_ids(sorted({table.suite for table in tables}))
    wrong = unknown_cases(tables, known)
    if wrong:
        raise ResultError("\n".join(wrong))
    has_run = args.cases != _CASES or args.cases.is_file()
    records = latest(load(args.cases)) if has_run else None
    unused, title = unused_cases(tables, known), args.title or "Requirements"
    if wants_html:
        return requirements_page.html_page(tables, unused, title=title, records=records)
    return requirements_page.markdown(tables, unused, title=title, records=records, complete=args.all)


def markdown(records: Sequence[CaseRecord], *, title: str = "Coverage") -> str:
    """Return the page: sections against outcomes for each target, then the cases that did not simply pass."""
    lines = [f"# {title}", ""]
    for target, own in _by_target(records).items():
        counted, table = coverage(own), sections(own)
        lines += [f"## {target}", "", markdown_row(["section", "cases", *table.outcomes])]
        lines.append(markdown_row(["---", *("---:" for _ in range(len(table.outcomes) + 1))]))
        for section in table.sections:
            numbers = (str(count or "") for count in section.counts)
            lines.append(markdown_row([section.name, str(len(section.cases)), *numbers]))
        totals = {outcome.value: str(count) for outcome, count in counted.totals.items()}
        lines += [
            markdown_row(["**all**", str(len(own)), *(totals[outcome] for outcome in table.outcomes)]),
            "",
        ]
        remarks = [*cause_lines(own), *known_fault_lines(own)]
        lines += [f"- {line}" for line in remarks] + [""] * bool(remarks)
        if counted.worth_reading:
            lines += [
                markdown_row(["case", "section", "level", "outcome", "observed"]),
                markdown_row(["---"] * 5),
            ]
            lines += [
                markdown_row([case.id, case.section, case.level.value, case.outcome.value, case.remark])
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
            "remarks": [*cause_lines(own), *known_fault_lines(own)],
            "table": sections(own),
        }
        for target, own in _by_target(records).items()
    ]
    return f"{render('coverage.html.j2', title=title, targets=targets, title_of=section_title)}\n"


def _by_target(records: Sequence[CaseRecord]) -> Mapping[str, list[CaseRecord]]:
    targets: dict[str, list[CaseRecord]] = {}
    for record in sorted(records, key=lambda record: record.target):
        targets.setdefault(record.target or "cases", []).append(record)
    return targets
