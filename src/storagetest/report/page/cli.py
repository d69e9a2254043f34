"""``storagetest page RESULTS…``: the comparison report, one HTML file that needs nothing else.

Exit status: 0 written, 1 something could not be read or written, 2 misuse.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import ResultError, StoragetestError
from storagetest.report.baseline import Stored, entries_of, load
from storagetest.report.compare import Row, compare_stored
from storagetest.report.coverage import latest
from storagetest.report.coverage import load as load_cases
from storagetest.report.exports.cli import records_of
from storagetest.report.page.document import document
from storagetest.report.page.given import given

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["add_parser"]


def add_parser(subparsers: SubParsers) -> None:
    """Add ``page`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "page",
        help="write one HTML page that puts targets side by side",
        description="Write the comparison report: targets side by side, scaling, latency against IOPS, "
        "changes against a baseline, history, conformance. One HTML file without scripts; it opens from "
        "disk, prints, and loads nothing.",
    )
    parser.add_argument("results", metavar="RESULTS", nargs="+", type=Path,
                        help="results.jsonl files; of a case that ran again the last counts")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="PAGE", type=Path, default=Path("comparison.html"),
                        help="the file to write (default: comparison.html)")  # fmt: skip
    parser.add_argument("--cases", metavar="FILE", type=Path, action="append", default=[],
                        help="conformance cases (what --st-cases wrote); may be repeated")  # fmt: skip
    parser.add_argument("--baseline", metavar="PATH", type=Path,
                        help="a baseline, or an older results.jsonl, to compare with")  # fmt: skip
    parser.add_argument("--title", default="Storage targets compared", help="the page's title")
    parser.set_defaults(func=_page)


def _page(args: argparse.Namespace) -> int:
    try:
        sys.stdout.write(f"{_written(args)}\n")
    except StoragetestError as error:
        _say(f"storagetest page: {error}")
        return 1
    return 0


def _written(args: argparse.Namespace) -> Path:
    records = records_of(args.results)
    cases = latest(case for path in args.cases for case in load_cases(path))
    if not records:
        _say(f"{', '.join(map(str, args.results))}: no runs in there")
    rows: Sequence[Row] = ()
    if args.baseline is not None:
        rows = compare_stored(load(args.baseline, on_torn=_say), Stored(entries_of(records)))
    found = given(
        records,
        cases=cases,
        rows=rows,
        baseline=str(args.baseline or ""),
        sources=[path.name for path in (*args.results, *args.cases)],
    )
    output: Path = args.output
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(document(found, title=args.title), encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        raise ResultError(f"{output}: {error.strerror}; name another with -o") from None
    return output


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
