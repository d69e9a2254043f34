"""``storagetest compare A B``: compare two results.jsonl or baselines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.baseline import load
from storagetest.report.compare import compare_stored, notes, on_one_side, status, table
from storagetest.report.formats.base import print_message

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add ``compare`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "compare",
        help="compare the runs of two results.jsonl or baselines",
        description="Compare the runs of two results.jsonl or baselines. If A is a baseline, a change below "
        "its noise floor is not reported. Exit status: 0 no regression, 1 a regression, 2 not all cases "
        "could be compared: one file does not have them, or they have too few runs.",
    )
    parser.add_argument("a", metavar="A", type=Path, help="the older results.jsonl or baseline")
    parser.add_argument("b", metavar="B", type=Path, help="the newer results.jsonl or baseline")
    parser.add_argument("--floor", metavar="PERCENT", type=_floor, default=0.0,
                        help="do not report a change smaller than this (default: 0)")  # fmt: skip
    parser.add_argument("--allow-missing", action="store_true",
                        help="exit status 0 also if only one of the files has a case")  # fmt: skip
    parser.set_defaults(func=_compare)


def _floor(text: str) -> float:
    percent = float(text)
    if not 0 <= percent < 1000:
        raise ValueError(text)
    return percent


def _compare(args: argparse.Namespace) -> int:
    try:
        a, b = (load(path, on_torn=print_message) for path in (args.a, args.b))
    except (StoragetestError, OSError) as error:
        print_message(f"storagetest compare: {error}")
        return 2
    rows = compare_stored(a, b, floor=args.floor / 100)
    for line in table(rows):
        sys.stdout.write(f"{line}\n")
    missing = on_one_side(a, b)
    for line in [*notes(a, b), *missing]:
        print_message(line)
    exit_status = status(rows, complete=args.allow_missing or not missing)
    if exit_status == 2:
        print_message(
            "not all cases were compared: both files require the same cases, with at least four runs each"
        )
    return exit_status
