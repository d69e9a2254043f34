"""``storagetest export FORMAT RESULTS…``: results in other tools' formats.

Exit status: 0 written, 1 the results could not be read or the output not written, 2 misuse.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.base import Record
from storagetest.report.exports import markdown, openmetrics
from storagetest.report.jsonl import read

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["add_parser", "records_of"]

_FORMATS = (openmetrics, markdown)


def add_parser(subparsers: SubParsers) -> None:
    """Add ``export`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "export",
        help="write results in another tool's format: OpenMetrics, Markdown",
        description="Write the runs of results.jsonl files in another tool's format.",
    )
    formats = parser.add_subparsers(metavar="FORMAT", required=True)
    for module in _FORMATS:
        write = module.add_parser(formats)
        one = formats.choices[module.NAME]
        one.add_argument("results", metavar="RESULTS", nargs="+", type=Path, help="what --st-results named")
        one.add_argument("-o", "--output", metavar="FILE", type=Path,
                         help="write to FILE (default: print it)")  # fmt: skip
        one.set_defaults(func=_export, write=write)


def records_of(paths: Sequence[Path]) -> list[Record]:
    """Return the records of all files, in their order. Raises :class:`ResultError`."""
    return [record for path in paths for record in read(path, on_torn=_say)]


def _export(args: argparse.Namespace) -> int:
    try:
        text: str = args.write(records_of(args.results), args)
        if args.output is None:
            sys.stdout.write(text)
        else:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(text, encoding="utf-8")
    except StoragetestError as error:
        _say(f"storagetest export: {error}")
        return 1
    except OSError as error:
        _say(f"storagetest export: {args.output}: {error.strerror}")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
