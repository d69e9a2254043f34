"""``storagetest report table``: the table that pytest prints at the end of a run."""

from __future__ import annotations

import argparse
import shutil
import sys

from storagetest.report.formats.base import ReportFormat, add_results, print_message, read_results, register
from storagetest.report.terminal import summary_lines


@register
class TableFormat(ReportFormat):
    """Print the table of old results, as pytest printed it at the end of the run."""

    name = "table"
    summary = "the table that pytest prints, of an old run"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_results(parser)

    def write(self, args: argparse.Namespace) -> None:
        """Print the table."""
        records = read_results(args.results)
        if not records:
            print_message(f"{', '.join(map(str, args.results))} holds no runs")
        width = shutil.get_terminal_size((100, 24)).columns
        for line in summary_lines(records, width=width, colour=sys.stdout.isatty()):
            sys.stdout.write(f"{line}\n")
