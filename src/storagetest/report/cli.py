"""``storagetest report``: the HTML page of a run's Allure results, or the table of an old results.jsonl."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.baseline import load
from storagetest.report.compare import compare_stored, remarks, status, table
from storagetest.report.html import generate
from storagetest.report.jsonl import read
from storagetest.report.terminal import summary_lines

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["add_parser"]


def add_parser(subparsers: SubParsers) -> None:
    """Add ``report`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "report",
        help="make the HTML report of a run, or print the table of an old one",
        description="Make the HTML report of a run (one file that opens from disk and loads nothing from the "
        "network), or print the table of an old results.jsonl.",
    )
    parser.add_argument("allure_results", metavar="ALLURE_RESULTS", nargs="?", type=Path,
                        help="the directory that pytest --alluredir wrote")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("report"),
                        help="where to put the page (default: report/)")  # fmt: skip
    parser.add_argument("--title", default="storagetest", help="the report's title")
    parser.add_argument("--node", metavar="PATH", help="the Node.js to use (default: PATH's, or pip's)")
    parser.add_argument("--history", metavar="FILE", type=Path,
                        help="keep each run's outcomes in this file and draw trends from it")  # fmt: skip
    parser.add_argument("--jsonl", metavar="FILE", type=Path, help="print the table of this results.jsonl")
    parser.set_defaults(func=_report, parser=parser)
    _add_compare(subparsers)


def _add_compare(subparsers: SubParsers) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="compare the runs of two results.jsonl or baselines",
        description="Compare the runs of two results.jsonl, or baselines. Where A is a baseline, an effect "
        "below the noise floor that it has learned is never reported. Exit status: 0 no regression, "
        "1 a regression, 2 nothing could be compared.",
    )
    parser.add_argument("a", metavar="A", type=Path, help="the results.jsonl, or the baseline, of before")
    parser.add_argument("b", metavar="B", type=Path, help="the results.jsonl, or the baseline, of after")
    parser.add_argument("--floor", metavar="PERCENT", type=_floor, default=0.0,
                        help="never report a change smaller than this (default: 0)")  # fmt: skip
    parser.set_defaults(func=_compare)


def _floor(text: str) -> float:
    percent = float(text)
    if not 0 <= percent < 1000:
        raise ValueError(text)
    return percent


def _compare(args: argparse.Namespace) -> int:
    try:
        a, b = (load(path, on_torn=_say) for path in (args.a, args.b))
    except (StoragetestError, OSError) as error:
        _say(f"storagetest compare: {error}")
        return 2
    rows = compare_stored(a, b, floor=args.floor / 100)
    for line in table(rows):
        sys.stdout.write(f"{line}\n")
    for line in remarks(a, b):
        _say(line)
    found = status(rows)
    if found == 2:
        _say("nothing could be compared: it takes the same cases in both files, and four runs a side")
    return found


def _report(args: argparse.Namespace) -> int:
    if (args.allure_results is None) == (args.jsonl is None):
        args.parser.error("name either a directory of Allure results or --jsonl FILE")
    try:
        if args.jsonl is not None:
            return _table(args.jsonl)
        return _html(args)
    except StoragetestError as error:
        _say(f"storagetest report: {error}")
        return 1


def _html(args: argparse.Namespace) -> int:
    page = generate(
        args.allure_results,
        args.output,
        node=args.node,
        title=args.title,
        history=args.history,
        progress=_say,
    )
    sys.stdout.write(f"{page}\n")
    return 0


def _table(path: Path) -> int:
    records = read(path, on_torn=_say)
    if not records:
        _say(f"{path} holds no runs")
    width = shutil.get_terminal_size((100, 24)).columns
    for line in summary_lines(records, width=width, colour=sys.stdout.isatty()):
        sys.stdout.write(f"{line}\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
