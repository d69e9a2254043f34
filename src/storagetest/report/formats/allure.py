"""``storagetest report allure``: the HTML report of Allure's results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from storagetest.report.allure.html import generate
from storagetest.report.formats.base import ReportFormat, print_message, register


@register
class AllureFormat(ReportFormat):
    """Make Allure's HTML report of a run: one file that opens from disk and loads nothing else."""

    name = "allure"
    summary = "Allure's HTML report: everything about each case"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("allure_results", metavar="ALLURE_RESULTS", type=Path,
                            help="the directory that pytest --alluredir wrote")  # fmt: skip
        parser.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("report"),
                            help="where to put the page (default: report/)")  # fmt: skip
        parser.add_argument("--title", default="storagetest", help="the report's title")
        parser.add_argument("--node", metavar="PATH", help="the Node.js to use (default: PATH's, or pip's)")
        parser.add_argument("--history", metavar="FILE", type=Path,
                            help="file of each run's outcomes, for trends")  # fmt: skip

    def write(self, args: argparse.Namespace) -> None:
        """Generate the page and print its path."""
        page = generate(
            args.allure_results,
            args.output,
            node=args.node,
            title=args.title,
            history=args.history,
            progress=print_message,
        )
        sys.stdout.write(f"{page}\n")
