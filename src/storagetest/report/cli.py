"""``storagetest report FORMAT …``: a sub-command for each registered report format.

Exit status: 0 made, 1 something could not be read or written, 2 misuse.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.formats.base import ReportFormat, formats, print_message

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def add_parser(subparsers: SubParsers) -> None:
    """Add ``report`` to the commands; each format sets ``func(args) -> int``."""
    report = subparsers.add_parser(
        "report",
        help="write a report of a run: HTML, a table, Markdown, OpenMetrics …",
        description="Write a report of a run. `storagetest report FORMAT --help` lists a format's options.",
    )
    commands = report.add_subparsers(metavar="FORMAT", required=True)
    for name, kind in formats.all().items():
        report_format = kind()
        description = " ".join((inspect.getdoc(kind) or "").split())
        parser = commands.add_parser(name, help=report_format.summary, description=description)
        report_format.add_arguments(parser)
        parser.set_defaults(func=_command(report_format))


def _command(report_format: ReportFormat) -> Callable[[argparse.Namespace], int]:
    def write(args: argparse.Namespace) -> int:
        try:
            report_format.write(args)
        except (StoragetestError, OSError) as error:
            print_message(f"storagetest report {report_format.name}: {error}")
            return 1
        return 0

    return write


def current_spelling(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with the spellings of 0.1 replaced, which are accepted for one release more.

    They are ``page``, ``coverage`` and ``export FORMAT`` as commands, ``report --jsonl FILE``, and ``report
    ALLURE_RESULTS`` without a format.
    """
    new = _replaced(list(argv))
    if new != list(argv):
        print_message(f"storagetest {argv[0]}: deprecated here; write: storagetest {' '.join(new[:2])} …")
    return new


def _replaced(argv: list[str]) -> list[str]:
    match argv:
        case ["page" | "coverage", *_]:
            return ["report", *argv]
        case ["export", *rest]:
            return ["report", *rest]
        case ["report", first, *_] if first not in {"-h", "--help", *formats.all()}:
            old = argparse.ArgumentParser(add_help=False)
            old.add_argument("--jsonl")
            jsonl, rest = old.parse_known_args(argv[1:])
            if jsonl.jsonl is not None:
                return ["report", "table", jsonl.jsonl, *rest]
            if first.startswith("-") or Path(first).is_dir():
                return ["report", "allure", *rest]
    return argv
