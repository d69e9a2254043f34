"""``storagetest report page``: the comparison report, one HTML file that needs nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from storagetest.report.baseline import BaselineFile, entries_of, load
from storagetest.report.compare import Row, compare_stored
from storagetest.report.coverage import latest
from storagetest.report.coverage import load as load_cases
from storagetest.report.formats.base import (
    ReportFormat,
    add_results,
    print_message,
    read_results,
    register,
    write_output,
)
from storagetest.report.page.document import document
from storagetest.report.page.model import build_page_data
from storagetest.report.papers import page as papers


@register
class PageFormat(ReportFormat):
    """Write the report to open first: the verdict and what to do, targets side by side, all repeats,
    scaling, latency, findings, conformance, changes against a baseline, history. One HTML file without
    scripts; it opens from disk, prints, and loads nothing. Of a case that ran more than once the last run
    counts.
    """

    name = "page"
    summary = "the HTML page to open first: verdict, targets side by side, findings"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_results(parser)
        parser.add_argument("-o", "--output", metavar="PAGE", type=Path, default=Path("comparison.html"),
                            help="the file to write (default: comparison.html)")  # fmt: skip
        parser.add_argument("--cases", metavar="FILE", type=Path, action="append", default=[],
                            help="conformance cases (what --st-cases wrote); may be repeated")  # fmt: skip
        parser.add_argument("--baseline", metavar="PATH", type=Path,
                            help="a baseline, or an older results.jsonl, to compare with")  # fmt: skip
        parser.add_argument("--allure", metavar="ADDRESS", default="",
                            help="Allure's report of the same run, to link to: an address relative to the "
                            "page, such as report/index.html")  # fmt: skip
        parser.add_argument("--papers", action="store_true",
                            help="write the page of published experiments instead")  # fmt: skip
        parser.add_argument("--title", help="the page's title")

    def write(self, args: argparse.Namespace) -> None:
        """Write the page and print its path."""
        records = read_results(args.results)
        if args.papers:
            self._finish(args, papers.document(records, title=args.title or "Published experiments"))
            return
        cases = latest(case for path in args.cases for case in load_cases(path))
        if not records:
            print_message(f"{', '.join(map(str, args.results))}: no runs in there")
        rows: Sequence[Row] = ()
        if args.baseline is not None:
            before = load(args.baseline, on_torn=print_message)
            rows = compare_stored(before, BaselineFile(entries_of(records)))
        data = build_page_data(
            records,
            cases=cases,
            rows=rows,
            baseline=str(args.baseline or ""),
            allure=args.allure,
            sources=[path.name for path in (*args.results, *args.cases)],
        )
        self._finish(args, document(data, title=args.title or "Storage test results"))

    @staticmethod
    def _finish(args: argparse.Namespace, page: str) -> None:
        write_output(args.output, page)
        sys.stdout.write(f"{args.output}\n")
