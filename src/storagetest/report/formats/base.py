"""Base class of the report formats; each is one class in one module and a sub-command of the command report.

Command line, shell completion and the reference page of the docs are generated from the registry. Other
packages add formats by entry points of the group ``storagetest.report.formats``.
"""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from storagetest.errors import ResultError
from storagetest.files import replace_file
from storagetest.registry import Registry, get_registry
from storagetest.report.base import Record
from storagetest.report.jsonl import read


class ReportFormat(ABC):
    """One kind of report. The docstring of the class is the description of its sub-command.

    ``name`` is the sub-command, in lower case and dashes; ``summary`` is its line in the list of formats.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the sub-command."""

    @abstractmethod
    def write(self, args: argparse.Namespace) -> None:
        """Make the report. Raises :class:`~storagetest.errors.StoragetestError` if that fails."""


class ResultsFormat(ReportFormat):
    """A text that is made of the runs of results.jsonl files, and printed or written to a file.

    A subclass needs :meth:`render`, and :meth:`add_arguments` only if it has options.
    """

    @abstractmethod
    def render(self, records: Sequence[Record], args: argparse.Namespace) -> str:
        """Return the text, with its last line break."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the files to read and the file to write."""
        add_results(parser)
        parser.add_argument("-o", "--output", metavar="FILE", type=Path,
                            help="write to FILE (default: print it)")  # fmt: skip

    def write(self, args: argparse.Namespace) -> None:
        """Print the text or write it to the output file."""
        text = self.render(read_results(args.results), args)
        if args.output is None:
            sys.stdout.write(text)
        else:
            write_output(args.output, text)


formats: Registry[ReportFormat] = get_registry("storagetest.report.formats")
register = formats.register


def add_results(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that names results.jsonl files."""
    parser.add_argument("results", metavar="RESULTS", nargs="+", type=Path,
                        help="results.jsonl files (what --st-results named)")  # fmt: skip


def read_results(paths: Sequence[Path]) -> list[Record]:
    """Return the records of all files, in their order. Raises :class:`ResultError`."""
    return [record for path in paths for record in read(path, on_torn=print_message)]


def write_output(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` by one rename, and make its directory. Raises :class:`ResultError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # such as /dev/stdout
            path.write_text(text, encoding="utf-8")
            return
        replace_file(path, text)
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}. Name another file with -o.") from None


def print_message(line: str) -> None:
    """Print ``line`` to stderr."""
    sys.stderr.write(f"{line}\n")


def markdown_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
