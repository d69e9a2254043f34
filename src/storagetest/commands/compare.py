"""``storagetest compare A B``: two results.jsonl, or baselines, side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.baseline import load
from storagetest.report.compare import compare_stored, notes, status, table
from storagetest.report.formats.base import print_message

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["add_parser"]


def add_parser(subparsers: SubParsers) -> None:
    """Add ``compare`` to the commands; it sets ``func(args) -> int``."""
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
        a, b = (load(path, on_torn=print_message) for path in (args.a, args.b))
    except (StoragetestError, OSError) as error:
        print_message(f"storagetest compare: {error}")
        return 2
    rows = compare_stored(a, b, floor=args.floor / 100)
    for line in table(rows):
        sys.stdout.write(f"{line}\n")
    for line in notes(a, b):
        print_message(line)
    found = status(rows)
    if found == 2:
        print_message(
            "nothing could be compared: it takes the same cases in both files, and four runs a side"
        )
    return found
